"""The operators that users may have in a model file, by format."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from .importers import onnx_control, onnx_forms, onnx_ml, onnx_opsets
from .importers.onnx import IN_PARTS, SPECIAL
from .importers.onnx_fused import FUSED
from .ops import SPECS, TFLITE_OTHERS, composed
from .ops.base import Spec

# ONNX operators that importing turns into others, by domain. Some of onnxruntime's names are the standard's, too.
OTHERS = {*SPECIAL, *IN_PARTS, *onnx_control.CONTROL, *composed.ONNX, *onnx_forms.QUANTISED, *onnx_forms.INTEGER}
OTHERS |= {*onnx_opsets.CONVERTED}
STANDARD = sorted(name for name in OTHERS if onnx.defs.has(name))
MICROSOFT = sorted(
    {name for name in OTHERS if not onnx.defs.has(name)} | {"QLinearConcat", *FUSED, *onnx_forms.FLOAT_PRODUCTS}
)
READ_AS_OTHERS = {"ONNX": STANDARD, "com.microsoft": MICROSOFT, onnx_ml.DOMAIN: sorted(onnx_ml.ML_READERS)}

FORMATS = ("tflite", "onnx")


def supported(formats: Iterable[str]) -> str:
    """The operators of the formats under the names of their files, those with the same limits together.

    Kinds of operators that only passes make are not among them.
    """
    return "\n".join(line for name in formats for line in _lines(name))


def _lines(name: str) -> list[str]:
    is_tflite = name == "tflite"
    lines = ["TFLite:" if is_tflite else "ONNX, opset 13 and later:"]
    for spec in sorted(SPECS.values(), key=lambda s: min(_names(s, name), default="")):
        if names := _names(spec, name):
            lines.append(f"  {', '.join(names)}")
            lines += [f"    - {' '.join((limit.__doc__ or '').split())}" for limit in spec.limits]
    if is_tflite:
        lines.append(f"  {', '.join(sorted(TFLITE_OTHERS))}")
    else:
        lines.append(f"  {', '.join(STANDARD)}")
        lines += [f"{domain}:\n  {', '.join(names)}" for domain, names in READ_AS_OTHERS.items() if names != STANDARD]
        lines.append("  Operators of which all operands are constants are computed beforehand, whatever they are.")
    return lines


def _names(spec: Spec, name: str) -> list[str]:
    return sorted(spec.tflite if name == "tflite" else spec.onnx)
