"""Inputs of `verify`: files of one array or of one for each input, and random positions that are in range."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.cli import main
from edgebuild.model.verify.vectors import random_inputs

pytest.importorskip("onnxruntime")
ROWS, WIDTH = 4, 8
Arrays = dict[str, Any]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A decoder's cache: a row is written at a position, which is an input, and all rows are read."""
    nodes = [
        helper.make_node("Unsqueeze", ["pos", "axes"], ["at"]),
        helper.make_node("ScatterND", ["cache", "at", "row"], ["kept"]),
        helper.make_node("MatMul", ["kept", "weights"], ["y"]),
    ]
    kinds = {"cache": (TensorProto.FLOAT, [ROWS, WIDTH]), "pos": (TensorProto.INT64, [1]),
             "row": (TensorProto.FLOAT, [1, WIDTH])}  # fmt: skip
    inputs = [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, 2])]
    weights = np.linspace(-1, 1, 2 * WIDTH, dtype=np.float32).reshape(WIDTH, 2)
    constants = [numpy_helper.from_array(np.array([1]), "axes"), numpy_helper.from_array(weights, "weights")]
    graph = helper.make_graph(nodes, "cache", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    monkeypatch.chdir(tmp_path)
    onnx.save(model, "cache.onnx")
    return "cache.onnx"


def arrays() -> Arrays:
    rng = np.random.default_rng(1)
    cache, row = (rng.standard_normal((3, n, WIDTH)).astype(np.float32) for n in (ROWS, 1))
    return {"cache": cache, "pos": np.array([0, ROWS - 1, -1]), "row": row[:, 0]}


def verified(model: str, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert main(["verify", model, "--target", "host", "--json", "-", *more]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_random_positions_are_rows_of_the_cache(cache: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verified(cache, capsys)["equal"]
    shapes: dict[str, Any] = {"cache": ("float32", [ROWS, WIDTH]), "pos": ("int64", [1])}
    ports = [{"name": name, "dtype": dtype, "shape": shape} for name, (dtype, shape) in shapes.items()]
    report = {"model": {"format": "onnx"}, "inputs": ports}
    drawn = random_inputs(Path(cache), report, 50)
    assert {int(row[1][0]) for row in drawn} == set(range(ROWS))
    assert not np.array_equal(drawn[0][0], np.rint(drawn[0][0])), "the cache is no index"


def test_an_array_for_each_input(cache: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("in.npz", **arrays())
    result = verified(cache, capsys, "--inputs", "in.npz")
    given = arrays()
    kept = np.concatenate([given["row"][:1], given["cache"][0, 1:]])
    wanted = kept @ np.linspace(-1, 1, 2 * WIDTH, dtype=np.float32).reshape(WIDTH, 2)
    assert result["inputs_tried"] == 3
    assert np.allclose(result["output"], wanted.ravel(), atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.pop("pos"), "error: the inputs have no array 'pos'"),
        (lambda x: x.update(step=x["pos"]), "error: the model has no input 'step'"),
        (lambda x: x.update(pos=x["pos"].astype(np.int32)), "error: 'pos' is int32, not int64"),
        (lambda x: x.update(pos=x["pos"][:2]), "3 of 'cache', 2 of 'pos', 3 of 'row'"),
        (lambda x: x.update(pos=np.int64(1)), "error: 'pos' has shape []"),
        (lambda x: x.update(row=x["row"][:, 1:]), "'row' has shape [3, 7]"),
        (lambda x: x.update(cache=x["cache"].transpose(0, 2, 1)), "the model takes [vectors, 4, 8]"),
        (lambda x: x.update(row=np.array(["text"])), "'row' holds values of type <U4"),
        (lambda x: x.update(row=np.array([None])), "'row' holds values of type object"),
    ],
)
def test_arrays_that_do_not_fit(
    change: Callable[[Arrays], Any], message: str, cache: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = arrays()
    change(given)
    np.savez("in.npz", **given)
    assert main(["verify", cache, "--target", "host", "--inputs", "in.npz"]) == 1
    assert message in capsys.readouterr().err


def test_one_array_cannot_have_inputs_of_several_types(cache: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("in.npy", np.zeros((2, ROWS * WIDTH + 1 + WIDTH), np.float32))
    assert main(["verify", cache, "--target", "host", "--inputs", "in.npy"]) == 1
    assert "a .npz file has an array for each" in capsys.readouterr().err


def test_a_damaged_archive(cache: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("in.npz", **arrays())
    Path("in.npz").write_bytes(Path("in.npz").read_bytes()[:-30])
    assert main(["verify", cache, "--target", "host", "--inputs", "in.npz"]) == 1
    assert "not a .npy or .npz file of numbers" in capsys.readouterr().err
