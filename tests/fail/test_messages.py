"""Messages that say what helps: few lines for many nodes, only ways that fit, and no search for what cannot fit."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.cli import main
from edgebuild.model import compile as pipeline
from edgebuild.model.compile import compile_model
from tests.fuzz.networks import WRITERS, drawn

MAX_LINES, REFUSED, SEEDS = 12, 50, 12


@pytest.mark.parametrize("kinds", [1, 7, REFUSED])
def test_many_refused_nodes_give_few_lines(kinds: int, tmp_path: Path) -> None:
    names = [f"v{i}" for i in range(REFUSED + 1)]
    nodes = [
        helper.make_node(f"Strange{i % kinds}", [a], [b], f"node{i}", domain="some.where")
        for i, (a, b) in enumerate(pairwise(names))
    ]
    ports = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 4])] for n in (names[0], names[-1])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("some.where", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", *ports), opset_imports=opsets, ir_version=9)
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError) as error:
        compile_model(model_request(tmp_path / "m.onnx", "n", "host", {}))
    text = "\n".join(map(str, error.value.diagnostics))
    assert len(text.splitlines()) <= MAX_LINES, text
    assert "some.where.Strange0" in text and sum(1 + d.others for d in error.value.diagnostics[:4]) > min(3, kinds)


def test_weights_that_are_too_large_are_refused_before_any_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """360 KB for 256 KB of flash."""

    def searched(*_: object) -> None:
        raise AssertionError("a plan was looked for")

    ports = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 300])] for n in "xy"]
    weights = numpy_helper.from_array(np.random.default_rng(1).standard_normal((300, 300)).astype(np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", *ports, [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    monkeypatch.setattr(pipeline, "plan", searched)
    with pytest.raises(EdgebuildError, match="weights at least 360000 B, memory FLASH") as error:
        compile_model(model_request(tmp_path / "m.onnx", "n", "microbit", {}))
    assert "over by" in error.value.diagnostics[0].hints[0]


def test_options_of_hints_fit(tmp_path: Path) -> None:
    """Of random networks whose plan without tiling does not fit."""
    compiled = 0
    for seed in range(SEEDS):
        model = tmp_path / f"{seed}.tflite"
        model.write_bytes(WRITERS["tflite"].write(drawn("tflite", 723 + seed)))
        for ram in (500, 1000, 2000):
            try:
                compile_model(model_request(model, "n", "microbit", {"tile": "off", "ram": ram}))
            except EdgebuildError as refused:
                for hint in (h for h in refused.diagnostics[0].hints if h.startswith("try: ")):
                    sizes = [int(n) for n in re.findall(r"\((\d+) B\)", hint)]
                    assert sizes and max(sizes) <= ram, hint
                    for flags in re.findall(r"(--\S+ \w+(?: --\S+ \w+)*) \(", hint):
                        words = flags.split()
                        pairs = zip(words[::2], words[1::2], strict=True)
                        added = {name[2:].replace("-", "_"): value for name, value in pairs}
                        options = {"tile": "off", "ram": ram, **added}
                        compile_model(model_request(model, "n", "microbit", options))
                        compiled += 1
    assert compiled


def test_groups_inside_of_groups_are_reported_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Behind the first of them the short words of the dialect were syntax errors, and nothing said why."""
    file = tmp_path / "d.bf.c"
    file.write_text("bfGroup D { bfGroup { bit ro A; } X; bfGroup { bit ro B; } Y; bit ro C; };\n")
    assert main(["driver", str(file), "--name", "n", "--target", "pulpino", "-o", str(tmp_path)]) == 1
    errors = capsys.readouterr().err
    assert f"{file}:1:13: error: a group is defined on its own" in errors and "expected ';'" not in errors
