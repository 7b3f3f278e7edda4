"""Writes docs/operators.md from the registry: `python -m tests.operators_page`."""

from __future__ import annotations

from pathlib import Path

from edgebuild.model.formats import formats
from edgebuild.model.ops import SPECS
from edgebuild.model.supported import limits_of

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"
HEAD = """\
# Operators

Made from the registry by `python -m tests.operators_page`; `edgebuild ops` prints the same with all limits. ONNX
operators whose standard gives a function body (RMSNormalization, Attention and others) are read as
that body. Operators on constants are computed beforehand, whichever they are.

"""


def page() -> str:
    every = [formats()[name] for name in sorted(formats(), reverse=True)]
    operators = [form.operators() for form in every]
    lines = [HEAD + f"| kind | {' | '.join(form.title for form in every)} | limits |", "|---" * (len(every) + 2) + "|"]
    for kind, spec in sorted(SPECS.items()):
        names = [", ".join(own.names(kind)) for own in operators]
        if any(names):
            lines.append(f"| {kind} | {' | '.join(names)} | {' '.join(limits_of(spec))} |")
    for at, own in enumerate(operators):
        for domain, listed in own.others.items():
            cells = [""] * len(every)
            cells[at] = ", ".join(listed) + (f" of {domain}" if domain else "")
            lines.append(f"| read as others | {' | '.join(cells)} | |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
