"""`edgebuild verify --all`: the first op, row and channel that differ."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.cli import main
from edgebuild.cli.measuring import _all_results
from edgebuild.model.compile import compile_model
from edgebuild.model.emit import code
from edgebuild.model.verify import _recorded
from tests.zoo.builders import quantized
from tests.zoo.papers import running_example


def spoil(monkeypatch: pytest.MonkeyPatch, kind: str) -> list[str]:
    """One weight in the last channel of an op of this kind is another; the names of such ops."""
    right, names = code.kernel_uses, list[str]()

    def spoiled(use: code.Use) -> code.Use:
        if use.op.kind != kind or names not in ([], [use.op.name]):
            return use
        names[:] = [use.op.name]
        constants = []
        for c in use.kernel.constants:
            data = c.data.copy()
            data.reshape(-1)[-1] = 50 if data.reshape(-1)[-1] < 0 else -50
            constants.append(replace(c, data=data) if c.name == "w" else c)
        return replace(use, kernel=replace(use.kernel, constants=tuple(constants)))

    def uses(*arguments: Any) -> Sequence[code.Use]:
        return [spoiled(use) for use in right(*arguments)]

    monkeypatch.setattr(code, "kernel_uses", uses)
    return names


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("real", [True, False], ids=["float", "int8"])
def test_the_first_difference_is_named(
    real: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a model whose rows roll; ops behind it are right, for each is judged on its own operands."""
    monkeypatch.setenv("EDGEBUILD_CACHE", "")
    file, result = tmp_path / "net.onnx", tmp_path / "result.json"
    model = running_example() if real else quantized(running_example())
    file.write_bytes(model.SerializeToString())
    command = ["verify", str(file), "--target", "host", "--tile", "rolling", "--all", "--json", str(result)]
    assert main(command) == 0
    right = json.loads(result.read_text())
    assert right["first_difference"] is None and right["unseen"] == []
    assert all(row["seen"] and row["equal"] for row in right["results"])
    names = spoil(monkeypatch, "depthwise_conv2d")
    capsys.readouterr()
    assert main(command) == 1
    wrong = json.loads(result.read_text())
    assert [wrong["first_difference"]["op"]] == names
    assert wrong["first_difference"]["index"][3] == 31, "the channel whose weight was changed"
    assert [row["op"] for row in wrong["results"] if row["first"]] == names
    text = capsys.readouterr().out
    assert re.search(r"\(row \d+, column \d+, channel 31\)", text) and "DIFFERS by up to" in text


@pytest.mark.parametrize(("kind", "stream"), [("Relu", "rows"), ("Identity", "off")])
def test_what_cannot_be_recorded(kind: str, stream: str, tmp_path: Path) -> None:
    """Steps whose input comes by rows are an error; a model without steps has none to record."""
    file = tmp_path / "m.onnx"
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (1, 2, 4, 4)) for n in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node(kind, ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), file)
    artifacts = compile_model(
        model_request(file, "model", "host", {"stream_input": stream} if stream == "rows" else {})
    )
    report = json.loads(next(a.data for a in artifacts if a.name == "model_report.json"))
    builder: Any = SimpleNamespace(target=load_target("host"))
    with pytest.raises(EdgebuildError, match="cannot be recorded") if stream == "rows" else nullcontext():
        assert not _recorded(file, ((), ()), [], artifacts, report, builder, every=True).seen
    assert _all_results([]) == []
