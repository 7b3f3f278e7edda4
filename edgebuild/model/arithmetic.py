"""How a model's format computes: the rounding of quantised ops, and where its real numbers differ."""

from __future__ import annotations

from enum import StrEnum


class Arithmetic(StrEnum):
    """The arithmetic of a graph, named after the format that brought it. Code asks for its facts, not for its name."""

    TFLITE = "tflite"
    ONNX = "onnx"

    @property
    def rounds_once(self) -> bool:
        """An integer result is the real one, rounded once, halves to even, as QuantizeLinear rounds."""
        return self is Arithmetic.ONNX

    @property
    def fixed_point(self) -> bool:
        """An integer result is that of TFLite Micro's and CMSIS-NN's kernels (gemmlowp's fixedpoint.h), bit for bit."""
        return self is Arithmetic.TFLITE

    @property
    def wide_bits(self) -> int:
        """Bits of a multiplier of 64-bit sums: 15 in MultiplyByQuantizedMultiplier of an int64, 23 in a float32."""
        return 15 if self.fixed_point else 23

    @property
    def bias_slack(self) -> float:
        """The share of a step of the result by which a bias may have another scale than its products."""
        return 0.02 if self.fixed_point else 0.0

    @property
    def finite(self) -> bool:
        """Real extremes, and activations without bounds, begin at the largest finite numbers and not at infinity."""
        return self is Arithmetic.TFLITE

    @property
    def saturating_casts(self) -> bool:
        """Casts of reals to 8 or 16 bits end at the ends of their type; else the low bits are left."""
        return self is Arithmetic.TFLITE

    @property
    def passes_nan(self) -> bool:
        """Functions of what is not a number give what is not a number."""
        return self is Arithmetic.ONNX
