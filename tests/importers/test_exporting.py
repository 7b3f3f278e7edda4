"""Networks of PyTorch and Keras for their own exporters: what is admitted, and that nothing of a file is run."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.model.formats import exporting, read_model
from edgebuild.model.formats import keras as keras
from edgebuild.model.formats.pt2.aten import admitted
from edgebuild.model.quantizer import quantise
from edgebuild.model.quantizer.samples import float_model
from tests.graphs.pt2_models import archive
from tests.importers.test_pt2 import Change, changed, node, sizes, with_argument, written

TORCH = not exporting.missing("torch")
KERAS = not exporting.missing("keras")


def target(name: str) -> Change:
    return lambda program: node(program).update(target=name)


HOSTILE: dict[str, tuple[Change, str]] = {
    "a function of Python": (target("torch.serialization.os.system"), "is no operator of ATen"),
    "a function of the operating system": (target("_operator.methodcaller"), "is no operator of ATen"),
    "an inner operator": (target("torch.ops.aten.__class__.mro"), "is no operator of ATen"),
    "control flow": (target("torch.ops.higher_order.cond"), "is no operator of ATen"),
    "an operator of a library": (target("torch.ops.custom.run.default"), "is no operator of ATen"),
    "an extension": (target("#pickle:load"), "is no operator of ATen"),
    "a name of a file": (with_argument("filename", as_string="/etc/passwd"), "kind as_string is /etc/passwd"),
    "an expression": (with_argument("dim", as_sym_int={"as_expr": {"expr_str": "__import__('os')"}}), "kind as_expr"),
    "a graph": (with_argument("body", as_graph={"name": "g", "graph": {}}), "kind as_graph"),
    "an operator as argument": (with_argument("f", as_operator="os.system"), "kind as_operator"),
    "an object": (with_argument("o", as_custom_obj={"name": "o", "class_fqn": "os.system"}), "kind as_custom_obj"),
    "numbers that are text": (with_argument("n", as_ints=["__import__('os')"]), "kind as_ints"),
    "training": (with_argument("train", as_bool=True), "model.eval()"),
    "a value of nothing": (with_argument("other", as_tensor={"name": "nobody"}), "reads 'nobody'"),
    "a large input": (sizes("t0", {"as_int": 1 << 20}, {"as_int": 1 << 20}), "has the shape"),
    "a size without an example": (sizes("t0", {"as_int": 1}, {"as_expr": {"expr_str": "f()"}}), "not a valid .pt2"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_program_is_operators_of_aten_on_tensors(case: str, tmp_path: Path) -> None:
    change, message = HOSTILE[case]
    with pytest.raises(EdgebuildError) as refused:
        admitted(changed("relu", change, tmp_path), "m.pt2")
    assert message in str(refused.value) and str(refused.value).startswith("m.pt2: ")


def test_open_sizes_are_those_of_the_example_and_a_batch_of_one(tmp_path: Path) -> None:
    hint = {"as_expr": {"expr_str": "s0 + __import__('os')", "hint": {"as_int": 4}}}
    program, constants = admitted(changed("relu", sizes("t0", hint, hint), tmp_path), "m.pt2")
    assert program["inputs"] == {"t0": {"shape": (1, 4), "dtype": "float32"}} and not constants
    assert "import" not in json.dumps(program)
    assert program["nodes"][0] == {
        "target": "relu.default", "outputs": ["y0"], "arguments": {"self": {"of": "t0"}}, "several": False,
    }  # fmt: skip


LAYER = {"module": "keras.layers", "class_name": "Dense", "config": {"name": "dense"}, "registered_name": None}
NETWORK: dict[str, Any] = {"module": "keras", "class_name": "Sequential", "config": {"layers": [LAYER]}}


def saved(config: Any, path: Path, more: tuple[tuple[str, bytes], ...] = (), version: str = "3.9.0") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("metadata.json", json.dumps({"keras_version": version}))
        parts.writestr("config.json", json.dumps(config))
        parts.writestr("model.weights.h5", b"weights")
        for name, data in more:
            parts.writestr(name, data)
    return path


def layer(**values: Any) -> dict[str, Any]:
    return {**NETWORK, "config": {"layers": [{**LAYER, **values}]}}


CODE = {"class_name": "__lambda__", "config": {"code": "4wEAAAAA"}}
WRONG: dict[str, tuple[Any, str]] = {
    "a layer of bytecode": (layer(class_name="Lambda"), "Lambda of keras.layers"),
    "bytecode": (layer(config={"name": "dense", "activation": CODE}), "node 'dense': error: its class __lambda__"),
    "a function": (layer(module="os", class_name="system"), "system of os"),
    "a saved model": (layer(class_name="TFSMLayer"), "TFSMLayer"),
    "a pickled module": (layer(class_name="TorchModuleWrapper"), "TorchModuleWrapper"),
    "a file of words": (layer(class_name="StringLookup"), "StringLookup"),
    "a class of the registry": (layer(registered_name="mine>Dense"), "a registry of its own"),
    "a class without a module": (layer(module=None), "no module"),
    "a helper": (layer(module="keras.utils", class_name="get_file"), "get_file of keras.utils"),
    "a builtin": (layer(module="builtins", class_name="function", config="__import__"), "__import__ of builtins"),
    "a class that is a list": (layer(class_name=["Dense"]), "is not admitted"),
    "no network": ({"class_name": "Lambda"}, "its class is Lambda"),
    "a list": ([], "not a valid .keras file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_keras_network_is_layers_that_compute(case: str, tmp_path: Path) -> None:
    config, message = WRONG[case]
    with pytest.raises(EdgebuildError) as refused:
        keras.admitted(saved(config, tmp_path / "m.keras"), "m.keras")
    assert message in str(refused.value) and str(refused.value).startswith("m.keras: ")


def test_a_copy_has_layers_and_weights_alone(tmp_path: Path) -> None:
    given = {**NETWORK, "compile_config": {"optimizer": {"module": "os", "class_name": "system"}}}
    copied = keras.admitted(saved(given, tmp_path / "m.keras", (("assets/words.txt", b"x"),)), "m.keras")
    with zipfile.ZipFile(io.BytesIO(copied)) as parts:
        assert parts.namelist() == ["metadata.json", "config.json", "model.weights.h5"]
        assert json.loads(parts.read("config.json")) == NETWORK and parts.read("model.weights.h5") == b"weights"


def test_archives_that_are_too_large_or_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.keras"
    monkeypatch.setattr(keras, "JSON", 1 << 10)
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: saved({**NETWORK, "name": "0" * 4000}, path), "config.json has more than"),
        (
            lambda: saved(layer(module="keras.src.engine.functional"), path, version="2.15.0"),
            "was saved by Keras 2.15.0",
        ),
        (lambda: path.write_bytes(saved(NETWORK, path).read_bytes()[:-30]), "not a valid .keras file"),
        (lambda: path.write_bytes(saved(NETWORK, path).read_bytes().replace(b"model.w", b"other.w")), "its parts are"),
    ]
    for write, message in cases:
        write()
        with pytest.raises(EdgebuildError, match=message):
            keras.admitted(path, "m.keras")


def test_an_exporter_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    files = [written("linear", tmp_path / "m.pt2"), saved(NETWORK, tmp_path / "m.keras")]
    for file, words in zip(files, ("here is no torch and no onnxscript", "here is no keras"), strict=True):
        with pytest.raises(EdgebuildError) as refused:
            quantise(file, tmp_path / "none.npy")
        lines = str(refused.value).splitlines()
        assert words in lines[0] and lines[1].startswith("  pip install ") and "net.onnx" in lines[-1]


def test_an_exported_network_is_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter's file is read as any ONNX file, by every command, and written once."""
    runs = []

    def run(framework: str, file: str, folder: Path) -> None:
        runs.append(sorted(p.name for p in folder.iterdir()))
        value = [onnx.helper.make_tensor_value_info(n, 1, [1, 4]) for n in "xy"]
        graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
        onnx.save(onnx.helper.make_model(graph), folder / "net.onnx")

    monkeypatch.setenv("EDGEBUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(exporting, "_run", run)
    monkeypatch.setattr(exporting, "missing", lambda framework: [])
    file = saved(NETWORK, tmp_path / "m.keras")
    for _ in range(2):
        graph = read_model(file)
        assert graph.format == "keras" and [op.kind for op in graph.ops] == ["clamp"]
    assert len(float_model(file).graph.node) == 1 and runs == [["net.keras"]]
    saved(layer(name="other"), file)
    read_model(file)
    assert len(runs) == 2


ATTEMPTS = ("os.system('touch ../out')", "subprocess.run(['touch', '../out'])", "open('../out', 'w')", "os.fork()",
            "os.open('../out', os.O_CREAT | os.O_WRONLY)", "socket.create_connection(('127.0.0.1', 9))",
            "os.remove('../kept')")  # fmt: skip


def test_an_exporter_starts_nothing_and_writes_in_its_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "kept").touch()
    tried = "\n".join(f"try: {attempt}; print('done')\nexcept PermissionError: pass" for attempt in ATTEMPTS)
    code = f"""import importlib.util, os, pathlib, socket, subprocess
spec = importlib.util.spec_from_file_location("script", {str(exporting.SCRIPT)!r})
script = importlib.util.module_from_spec(spec); spec.loader.exec_module(script)
script.install_sandbox(pathlib.Path("."))
{tried}
open("own", "w").close()"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "in", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "kept"] and (tmp_path / "in" / "own").exists()


@pytest.mark.skipif(not TORCH, reason="not installed: torch, onnxscript")
def test_a_program_by_the_exporter_of_torch(tmp_path: Path) -> None:
    """An operator that has no reader here, and an open batch."""
    import torch

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = torch.nn.GRU(4, 8, batch_first=True), torch.nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            return self.out(self.cell(x)[0][:, -1])

    torch.manual_seed(1)
    net, x = Net().eval(), torch.randn(3, 6, 4)
    batch = {0: torch.export.Dim("batch")}
    torch.export.save(torch.export.export(net, (x,), dynamic_shapes=(batch,)), tmp_path / "m.pt2")
    assert any(n.op_type == "GRU" for n in float_model(tmp_path / "m.pt2").graph.node)
    np.save(tmp_path / "x.npy", torch.randn(32, 6, 4).numpy())
    assert quantise(tmp_path / "m.pt2", tmp_path / "x.npy", None, ["minmax"]).chosen.quality.sqnr > 15


@pytest.mark.skipif(not TORCH, reason="not installed: torch, onnxscript")
def test_an_archive_that_would_run_code_runs_none(tmp_path: Path) -> None:
    """A pickle beside the program is not opened, as torch.export.load would."""

    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    import pickle

    from tests.graphs.pt2_models import program

    evil = {"data/sample_inputs/model.pt": pickle.dumps(Evil()), "data/aotinductor/model/a.so": b"\x7fELF"}
    document, weights = program("linear", [("float32", (2, 2, 3))])
    (tmp_path / "m.pt2").write_bytes(archive(document, weights, more=evil))
    assert float_model(tmp_path / "m.pt2").graph.node and not (tmp_path / "ran").exists()


@pytest.mark.skipif(not KERAS, reason="not installed: keras")
def test_a_network_by_the_exporter_of_keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", exporting.keras_backend())
    import keras as frontend

    shapes = frontend.layers.Conv2D(4, 3, padding="same", activation="relu"), frontend.layers.Dense(3)
    whole = [frontend.Input((8, 8, 3)), shapes[0], frontend.layers.GlobalAveragePooling2D(), shapes[1]]
    frontend.Sequential(whole).save(tmp_path / "m.keras")
    np.save(tmp_path / "x.npy", np.random.default_rng(1).random((20, 8, 8, 3), dtype=np.float32))
    assert quantise(tmp_path / "m.keras", tmp_path / "x.npy", None, ["minmax"]).chosen.quality.sqnr > 20
    assert [op.kind for op in read_model(tmp_path / "m.keras").ops if op.kind == "conv2d"]
