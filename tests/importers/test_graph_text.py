"""The text form of a graph: what is written is read back, and what anybody wrote gives a diagnostic.

And its ONNX form, which viewers open: judged by the checker of ONNX.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.build.run import files_read
from edgebuild.cli import main
from edgebuild.model import ops
from edgebuild.model.compile import compile_model
from edgebuild.model.formats.text import data_file
from edgebuild.model.formats.text.graph_text import read_text, written
from edgebuild.model.ir import Graph, short_names
from edgebuild.model.views.drawing import onnx_file
from tests.conftest import ROOT
from tests.graphs import KINDS, thrown, tiny_tflite


def saved(graph: Graph, folder: Path) -> Path:
    file = folder / "g.txt"
    text, data = written(graph)
    file.write_text(text)
    data_file(file).write_bytes(data)
    return file


def test_each_kind_is_read_back(tmp_path: Path) -> None:
    """All of a graph but the origin of its tensors, which judges alone want."""
    for kind in KINDS:
        for graph in thrown(kind, 4):
            if any(0 in t.shape for t in graph.tensors.values()):
                continue
            again = read_text(saved(graph, tmp_path))
            assert written(again) == written(graph), kind
            assert (again.ops, again.inputs, again.outputs, again.arithmetic) == (
                graph.ops, graph.inputs, graph.outputs, graph.arithmetic)  # fmt: skip
            for name, t in graph.tensors.items():
                assert again.tensors[name] == t
                assert (t.data is None and again.tensors[name].data is None) or np.array_equal(
                    t.data, again.tensors[name].data, equal_nan=t.dtype == "float32")  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.tflite"
    file.write_bytes(tiny_tflite())
    return file


@pytest.mark.parametrize("stage", ["import", "float", "constants"])
def test_a_text_compiles_to_the_same_products(stage: str, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "g.txt"
    assert main(["inspect", str(model), "--after", stage, "-o", str(text)]) == 0
    before, after = (compile_model(ModelRequest(file, "m", "mps2-an386")) for file in (model, text))
    for one, other in zip(before, after, strict=True):
        assert one.name == other.name
        assert one.name.endswith("_report.json") or one.data == other.data, one.name
    assert {str(text), str(data_file(text))} <= set(files_read(ModelRequest(text, "m", "host")))


def test_stages_say_what_changes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(model), "--stages"]) == 0
    printed = capsys.readouterr().out
    assert re.findall(r"^after (\w+):$", printed, re.M) == [
        "import", "transposes", "fold", "quantise", "surface", "float", "constants"]  # fmt: skip
    assert re.search(r"^-.*reshape", printed, re.M) or "no change" in printed


WRONG = [
    ("edgebuild graph 1", "edgebuild graph 2", "g.txt:1:1: error: a graph of another version"),
    ("graph('tiny.tflite', ", "graph('tiny.tflite', 3 + ", "g.txt:2:1: error: not a word and literals"),
    ("'tflite')", "'tflight')", "g.txt:2:1: error: graph: the arithmetic is"),
    ("input(", "inputs(", "unknown word 'inputs'; did you mean 'input'?"),
    ("input(", "__import__('os').system(", "not a word and literals"),
    ("'int8'", "'int9'", "g.txt:3:1: error: tensor: types are"),
    ("output('", "output('x", "error: output: "),
    ("'clamp'", "'clamped'", "error: operands or attributes that"),
    ("\nop('", "\nop('no", "unknown kind"),
]


@pytest.mark.parametrize(("was", "now", "message"), WRONG, ids=[now for _, now, _ in WRONG])
def test_wrong_lines(was: str, now: str, message: str, model: Path, tmp_path: Path) -> None:
    file = tmp_path / "g.txt"
    assert main(["inspect", str(model), "--after", "import", "-o", str(file)]) == 0
    text = file.read_text()
    assert was in text
    file.write_text(text.replace(was, now, 1))
    with pytest.raises(EdgebuildError) as caught:
        read_text(file)
    assert message in str(caught.value)
    assert "g.txt:" in str(caught.value)


def test_missing_and_short_constants(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "g.txt"
    assert main(["inspect", str(model), "--after", "import", "-o", str(file)]) == 0
    data = data_file(file).read_bytes()
    data_file(file).write_bytes(data[:-1])
    with pytest.raises(EdgebuildError, match=rf"there are {len(data) - 1} bytes, and the tensor ends behind them"):
        read_text(file)
    data_file(file).unlink()
    with pytest.raises(EdgebuildError, match="cannot read the constants of the graph"):
        read_text(file)


def test_a_plan_has_no_text(model: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["inspect", str(model), "-o", str(tmp_path / "g.txt")])


def test_joined_names_are_short_where_they_stay_different() -> None:
    """TFLite's converter joins the names of all operators that became one; `--outputs` takes them whole."""
    assert short_names(["x", "a/Relu;b/c;d/e1", "a/Relu;b/c;d/e"]) == {
        "x": "x", "a/Relu;b/c;d/e1": "a/Relu;..e1", "a/Relu;b/c;d/e": "a/Relu;..e"}  # fmt: skip
    assert short_names(["a;b;c", "a;d;c"]) == {"a;b;c": "a;b;c", "a;d;c": "a;d;c"}


def test_each_kind_is_valid_onnx() -> None:
    """Viewers see the ops as they are, with the bytes of constants and the quantisation."""
    for kind in KINDS:
        for graph in thrown(kind, 4):
            drawn = onnx.load_from_string(onnx_file(graph))
            onnx.checker.check_model(drawn)
            assert [(n.op_type, n.domain, *n.output) for n in drawn.graph.node] == [
                (op.kind, "edgebuild", *op.outputs) for op in graph.ops]  # fmt: skip
            stored = {t.name: onnx.numpy_helper.to_array(t) for t in drawn.graph.initializer}
            scales = {n.tensor_name: stored[n.quant_parameter_tensor_names[0].value]
                      for n in drawn.graph.quantization_annotation}  # fmt: skip
            for t in (t for op in graph.ops for t in graph.operands(op)):
                assert t.data is None or np.array_equal(stored[t.name], t.data, equal_nan=t.dtype == "float32"), kind
                assert t.quant is None or np.array_equal(scales[t.name], np.float32(t.quant.scale)), kind


def test_a_plan_as_onnx_says_steps_and_places(model: Path, tmp_path: Path) -> None:
    check_plan(model, tmp_path)


def test_ops_of_one_name_have_their_own_metadata(tmp_path: Path) -> None:
    """The convolution's row is not that of the view of its operand, which has the name of the same node."""
    check_plan(ROOT / "sample_projects/digits/digits.onnx", tmp_path)


def check_plan(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "g.onnx"
    words = [str(model), "--target", "mps2-an386", "--tile", "rolling"]
    assert main(["inspect", *words, "-o", str(file)]) == 0
    assert main(["inspect", *words, "--json", str(tmp_path / "r.json")]) == 0
    report, drawn = json.loads((tmp_path / "r.json").read_text()), onnx.load(file)
    onnx.checker.check_model(drawn)
    assert {p.key: p.value for p in drawn.metadata_props}["arena_bytes"] == str(report["ram"]["arena_bytes"])
    places = {b["name"]: str(b["offset"]) for b in report["layout"]["buffers"]}
    rows = {(row["kind"], row["name"]): row for row in report["layers"]}
    assert rows.keys() <= {(node.op_type, node.name) for node in drawn.graph.node}
    for node in drawn.graph.node:
        metadata, row = {p.key: p.value for p in node.metadata_props}, rows.get((node.op_type, node.name), {})
        assert ("step" in metadata) == bool(row)
        assert all(metadata[key] == str(row[key]) for key in row if key in ("step", "kernel", "macs"))
        assert metadata.get("arena_offset") == places.get(node.output[0])


@pytest.mark.filterwarnings("ignore:invalid")  # of Python, for text that is nearly a number
def test_damaged_texts_are_refused_or_read(model: Path, tmp_path: Path) -> None:
    """No other error leaves the reader, whatever stands in a text; nothing is run, and no memory taken for sizes."""
    file, rng = tmp_path / "g.txt", random.Random(5)
    assert main(["inspect", str(model), "--after", "import", "-o", str(file)]) == 0
    text, refused = file.read_text(), 0
    strange = ["", "(", "-1", "0", "2**99", "99999999999", "None", "((" * 99, "1e999", "{}", "\0"]
    words = re.findall(r"[\w.]+|'[^']*'", text)
    for _ in range(300):
        damaged = text
        for _ in range(rng.randint(1, 3)):
            match = rng.choice(list(re.finditer(r"[\w.-]+|[(){},']", damaged)))
            new = rng.choice([*words, *strange])
            damaged = damaged[: match.start()] + new + damaged[match.end() :]
        file.write_text(damaged)
        try:
            graph = read_text(file)
        except EdgebuildError:
            refused += 1
        else:
            assert all(op.kind in ops.SPECS for op in graph.ops)
    assert refused > 150


def test_nothing_judges_a_text(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "g.txt"
    assert main(["inspect", str(model), "--after", "import", "-o", str(file)]) == 0
    assert main(["verify", str(file), "--target", "host"]) == 1
    assert "nothing else knows what it computes\n  verify the model's own file" in capsys.readouterr().err
