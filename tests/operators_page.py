"""Writes docs/operators.md from the registry: `python -m tests.operators_page`."""

from __future__ import annotations

from pathlib import Path

from edgebuild.model.ops import SPECS, TFLITE_OTHERS
from edgebuild.model.supported import READ_AS_OTHERS

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"
HEAD = """\
# Operators

Made from the registry by `python -m tests.operators_page`; `edgebuild ops` prints the same with all limits. ONNX
operators whose standard gives a function body (RMSNormalization, Attention and others) are read as
that body. Operators on constants are computed beforehand, whichever they are.

"""


def page() -> str:
    lines = [HEAD + "| kind | TFLite | ONNX | limits |", "|---|---|---|---|"]
    for kind, spec in sorted(SPECS.items()):
        if spec.tflite or spec.onnx:
            limits = " ".join(" ".join((limit.__doc__ or "").split()) for limit in spec.limits)
            names = (", ".join(sorted(readers)) for readers in (spec.tflite, spec.onnx))
            lines.append(f"| {kind} | {' | '.join(names)} | {limits} |")
    for domain, names in READ_AS_OTHERS.items():
        tflite, own = (", ".join(sorted(TFLITE_OTHERS)), "") if domain == "ONNX" else ("", f" of {domain}")
        lines.append(f"| read as others | {tflite} | {', '.join(names)}{own} | |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
