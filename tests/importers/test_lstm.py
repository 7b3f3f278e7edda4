"""The fused LSTM of TFLite: sequences of inferences against TFLite Micro's interpreter, which keeps the states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Quant
from tests.graphs.tflite_models import File
from tests.importers.test_state import verified

TANH = 4


def lstm(integer: str, steps: int, inner: int, units: int, seed: int, clip: float = 0.0, power: int = -11) -> bytes:
    """One LSTM layer; `power`: of two, the scale of a quantised cell."""
    f, rng, real = File(), np.random.default_rng(seed), integer == "float32"
    zero = int(rng.integers(-20, 20)) if integer == "int8" else 0

    def quant(scale: float, point: int = 0) -> Quant | None:
        return None if real else Quant((float(np.float32(scale)),), (point,))

    x_scale = float(np.float32(0.02 if integer == "int8" else 0.0001))
    h_scale = float(np.float32(1 / 128 if integer == "int8" else 2**-15))
    x = f.tensor("x", (1, steps, inner), integer, quant(x_scale, zero))
    operands = [-1] * 24
    operands[0] = x
    for gate in range(4):
        for base, columns in ((1, inner), (5, units)):
            scale = float(rng.uniform(0.004, 0.02))
            data = rng.normal(0, 0.5, (units, columns)) if real else rng.integers(-127, 128, (units, columns))
            kind = "float32" if real else "int8"
            operands[base + gate] = f.tensor(f"w{base + gate}", data.shape, kind, quant(scale), data.astype(kind))
        weights = f.tensors[operands[1 + gate]]
        kind = {"float32": "float32", "int8": "int32", "int16": "int64"}[integer]
        bias = rng.normal(0, 0.5, units) if real else rng.integers(-3000, 3000, units)
        own = None if real else quant(x_scale * float(weights.quantization.scale[0]))
        operands[12 + gate] = f.tensor(f"b{gate}", (units,), kind, own, bias.astype(kind))
    operands[18] = f.tensor("h", (1, units), integer, quant(h_scale, 3 if integer == "int8" else 0))
    operands[19] = f.tensor("c", (1, units), "float32" if real else "int16", quant(2.0**power))
    for state in operands[18:20]:
        f.tensors[state].isVariable = True
    y = f.tensor("y", (1, steps, units), integer, quant(h_scale, 3 if integer == "int8" else 0))
    options = schema.UnidirectionalSequenceLSTMOptionsT()
    options.fusedActivationFunction, options.cellClip = TANH, clip
    f.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], options)
    if not real:  # the converter notes ranges as tensors without elements, of which no operator reads the data
        f.operators[-1].intermediates = [f.tensor(f"range{i}", (0,), "float32") for i in range(5)]
    return bytes(f.pack([x], [y]))


CASES = {
    "float": ("float32", 4, 5, 6, 0, 0.0, 0),
    "float, clipped": ("float32", 3, 2, 4, 1, 0.4, 0),
    "int8": ("int8", 4, 5, 6, 2, 0.0, -11),
    "int8, one step": ("int8", 1, 9, 7, 3, 0.0, -12),
    "int8, clipped, fine cell": ("int8", 6, 3, 5, 4, 0.8, -14),
    "int16": ("int16", 4, 5, 6, 5, 0.0, -11),
    "int16, coarse cell": ("int16", 5, 4, 8, 6, 3.0, -9),
}


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("case", CASES)
def test_equals_the_interpreter(case: str, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(lstm(*CASES[case]))
    result = verified(tmp_path / "m.tflite")
    assert result["equal"], result
    _, steps, inner, units, *_ = CASES[case]
    assert result["macs"] == steps * 4 * units * (inner + units)
    assert result["state_bytes"] == units * {"float": 8, "int8": 3, "int16": 4}[case.split(",")[0]]
