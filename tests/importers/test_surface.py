"""Inputs and outputs that are read from the bytes of a file are those of its graph, or are left to its reader."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.build import header
from edgebuild.model.compile import prepare
from edgebuild.model.emit.addresses import literal
from edgebuild.model.interface_of import ports_of
from edgebuild.model.surface import Ports, float_literal, surface
from tests.conftest import ROOT
from tests.graphs.tiny import tiny_tflite

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
SHARED = ROOT.parent / "shared"


@pytest.fixture
def tflite(tmp_path: Path) -> Path:
    (tmp_path / "tiny.tflite").write_bytes(tiny_tflite())
    return tmp_path / "tiny.tflite"


def test_plain_files_are_read(tflite: Path) -> None:
    for file in (DIGITS, tflite):
        assert surface(file.read_bytes()) == ports_of(prepare(file)), file


@pytest.mark.parametrize("kind", ["FLOAT", "INT32", "BOOL"])
@pytest.mark.parametrize("packed", [False, True])
def test_types_shapes_and_scales_of_onnx_files(kind: str, packed: bool, tmp_path: Path) -> None:
    """`packed`: numbers of constants as bytes, as exporters write them, or as a list."""
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [0.25])
    zero = helper.make_tensor("z", TensorProto.UINT8, [], [130])
    if packed:
        scale, zero = (numpy_helper.from_array(numpy_helper.to_array(t), t.name) for t in (scale, zero))
    nodes = [helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0])]
    nodes += [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("Relu", ["r"], ["t"])]
    nodes += [helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"])]
    nodes += [helper.make_node("QuantizeLinear", ["t", "s", "z"], ["u"])]
    nodes += [helper.make_node("DequantizeLinear", ["u", "s", "z"], ["y"])]
    own, real = getattr(TensorProto, kind), TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("a", own, [2, 3]), helper.make_tensor_value_info("x", real, [4])]
    outputs = [helper.make_tensor_value_info("b", own, [3, 2]), helper.make_tensor_value_info("y", real, [4])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [scale, zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (tmp_path / "typed.onnx").write_bytes(model.SerializeToString())
    ports = surface(model.SerializeToString())
    assert ports is not None and ports == ports_of(prepare(tmp_path / "typed.onnx"))


@pytest.mark.parametrize("file", sorted(SHARED.glob("models/*.tflite"))[:6], ids=lambda f: f.stem)
def test_real_files_are_read(file: Path) -> None:
    ports = surface(file.read_bytes())
    assert ports is None or ports == ports_of(prepare(file))


def test_files_that_are_damaged_give_ports_or_none(tflite: Path) -> None:
    """No other error, and no search without an end."""
    rng = Random(1)
    for file in (DIGITS, tflite):
        data = file.read_bytes()
        for _ in range(400):
            changed = bytearray(data[: rng.randrange(len(data))] if rng.random() < 0.3 else data)
            for _ in range(rng.randint(1, 6) if changed else 0):
                changed[rng.randrange(min(len(changed), 2000))] = rng.randrange(256)
            ports = surface(bytes(changed))
            assert ports is None or isinstance(ports, Ports)


def test_literals_are_those_of_numpy() -> None:
    rng = np.random.default_rng(2)
    bits = rng.integers(1, 0x7F7FFFFF, 3000, dtype=np.uint32).view(np.float32)
    powers = np.exp2(np.arange(-149, 128, dtype=np.float64)).astype(np.float32)
    for value in map(float, (*bits, *powers)):
        assert float_literal(value) == literal(value)


def test_the_header_is_that_of_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Written by a glance at the file, by its graph, and with all other products; a wrong one is an error."""
    from edgebuild.base.errors import EdgebuildError
    from edgebuild.build.run import run, run_header

    texts = []
    for name, options in (("scaled", '"scales": "power-of-two"'), ("plain", ""), ("graph", '"outputs": ""')):
        request = tmp_path / name / "n.req.json"
        request.parent.mkdir()
        request.write_text(
            '{"schema": 1, "kind": "model", "name": "n", "output": ".", "target": "host",'
            f'"source": "{DIGITS}", "options": {{{options}}}}}'
        )
        assert header.write_plain(str(request), False) == (name == "plain")
        run_header(request)
        texts.append((request.parent / "n.h").read_text())
        if name == "scaled":
            assert run(request) == 0 and (request.parent / "n.h").read_text() == texts.pop()
    assert texts[0] == texts[1] and "ARENA_BYTES" not in texts[0]
    assert run(request) == 0 and (request.parent / "n.h").read_text() == texts[0]
    assert "#define N_ARENA_BYTES" in (request.parent / "n_arena.h").read_text()
    (request.parent / "n.h").write_text("int wrong;\n")
    with pytest.raises(EdgebuildError, match="header"):
        run(request)
    assert (request.parent / "n.h").read_text() == texts[0]
