"""The operators that users may have in a model file, by format."""

from __future__ import annotations

from collections.abc import Iterable

from .importers.onnx import ONNX_SURFACE
from .ops import SPECS, composed, streams
from .ops.base import Spec

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
        lines.append(f"  {', '.join(sorted(streams.TFLITE))}")
    else:
        lines.append(f"  {', '.join(sorted({*ONNX_SURFACE, *composed.ONNX}))}")
        lines.append("  Operators of which all operands are constants are computed beforehand, whatever they are.")
    return lines


def _names(spec: Spec, name: str) -> list[str]:
    return sorted(spec.tflite if name == "tflite" else spec.onnx)
