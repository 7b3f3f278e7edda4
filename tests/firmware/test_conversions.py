"""Functions of a header between real numbers and integers: bit for bit what onnxruntime makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.model.surface import Interface, Ports, Surface, header
from tests.conftest import run

TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16}
FLAGS = [
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wpedantic",
    "-Werror",
    "-fsanitize=undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
]
MAIN_C = """
#include <stdio.h>
#include "m.h"
int main(void)
{
    for (float x; fread(&x, sizeof x, 1, stdin) == 1;) {
        const TYPE q = m_quantize_input(x);
        const float real = m_real_output(q);
        fwrite(&q, sizeof q, 1, stdout);
        fwrite(&real, sizeof real, 1, stdout);
    }
    return 0;
}
"""


def judged(reals: np.ndarray, scale: float, zero: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    constants = [numpy_helper.from_array(np.float32(scale), "s"), numpy_helper.from_array(zero, "z")]
    outputs = [
        helper.make_tensor_value_info("q", TYPES[str(zero.dtype)], [None]),
        helper.make_tensor_value_info("y", 1, [None]),
    ]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [None])], outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return tuple(onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": reals}))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(
    ("dtype", "scale", "zero"),
    [("int8", 1 / 255, -128), ("int8", 0.5, 3), ("uint8", 0.1, 255), ("int16", 3.0517578e-05, 0)],
)
def test_equal_to_onnxruntime(dtype: str, scale: float, zero: int, tmp_path: Path) -> None:
    port = Surface("x", dtype, (4,), float(np.float32(scale)), zero)
    (tmp_path / "m.h").write_text(header(Interface("m", "m.onnx", "host", Ports((port,), (port,)))))
    (tmp_path / "main.c").write_text(MAIN_C)
    run("gcc", *FLAGS, f"-DTYPE={dtype}_t", "main.c", "-o", "m", cwd=tmp_path)
    rng, s = np.random.default_rng(1), np.float32(scale)
    ties = (np.arange(-400, 400, dtype=np.float32) + np.float32(0.5)) * s
    beside = np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))
    drawn = [rng.normal(0, spread, 9000).astype(np.float32) * s for spread in (3, 200, 40000)]
    far = np.array([0, -0.0, 1e30, -1e30, np.inf, -np.inf, 1e-42], np.float32)
    reals = np.concatenate([ties, *beside, *drawn, far])
    (tmp_path / "reals").write_bytes(reals.tobytes())
    run("sh", "-c", "./m < reals > results", cwd=tmp_path)
    results = np.fromfile(tmp_path / "results", np.dtype([("q", dtype), ("real", "<f4")]))
    integers, back = judged(reals, float(s), np.array(zero, dtype))
    np.testing.assert_array_equal(results["q"], integers)
    np.testing.assert_array_equal(results["real"], back)
