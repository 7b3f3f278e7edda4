"""Tensors of an ONNX model that lie in files beside it: nothing else is read, whatever the model names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.model.formats import read_model
from edgebuild.model.formats.onnx.external import external_files

VALUES = np.arange(32, dtype=np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "model"
    (place / "sub").mkdir(parents=True)
    for file in (place / "w.bin", place / "sub" / "w.bin", tmp_path / "outside.bin"):
        VALUES.tofile(file)
    (place / "link.bin").symlink_to("w.bin")
    (place / "away.bin").symlink_to(tmp_path / "outside.bin")
    (place / "linked").symlink_to("sub")
    os.mkfifo(place / "pipe.bin")
    with (place / "huge.bin").open("wb") as file:
        file.truncate(8 << 30)
    return place


def written(
    folder: Path, location: str | None, dims: tuple[int, ...] = (4, 8), kind: int = TensorProto.FLOAT, **fields: object
) -> Path:
    t = TensorProto(name="w", data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **fields}.items():
        if value is not None:
            entry = t.external_data.add()
            entry.key, entry.value = key, str(value)
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, size)) for n, size in (("x", 4), ("y", 8))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [t])
    file = folder / "m.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file.write_bytes(model.SerializeToString())
    return file


def constant(file: Path) -> Any:
    """The values of the model's only constant, in order."""
    (data,) = (t.data for t in read_model(file).tensors.values() if t.data is not None)
    return np.sort(data.ravel())


@pytest.mark.parametrize("fields", [{}, {"offset": 0, "length": 128}, {"location": "sub/w.bin"}])
def test_what_lies_in_the_folder_is_read(fields: dict[str, Any], folder: Path) -> None:
    file = written(folder, **{"location": "w.bin", **fields})
    assert np.array_equal(constant(file), VALUES)
    assert external_files(file) == [folder / fields.get("location", "w.bin")]


def test_an_offset_counts(folder: Path) -> None:
    (folder / "w.bin").write_bytes(b"\xff" * 40 + VALUES.tobytes() + b"\xff" * 8)
    assert np.array_equal(constant(written(folder, "w.bin", offset=40, length=128)), VALUES)


@pytest.mark.parametrize(
    ("location", "fields", "text"),
    [
        ("../outside.bin", {}, "no file in the folder"),
        ("../../../../../../etc/passwd", {}, "no file in the folder"),
        ("/etc/passwd", {}, "no file in the folder"),
        ("sub/../w.bin", {}, "no file in the folder"),
        ("sub\\w.bin", {}, "no file in the folder"),
        ("w.bin\0.txt", {}, "no file in the folder"),
        ("", {}, "no file in the folder"),
        (None, {}, "location"),
        ("link.bin", {}, "a link"),
        ("away.bin", {}, "a link"),
        ("linked/w.bin", {}, "a link"),
        ("pipe.bin", {}, "a pipe or a device"),
        ("missing.bin", {}, "No such file"),
        ("sub", {}, "its shape needs 128"),
        ("huge.bin", {}, "its shape needs 128"),
        ("huge.bin", {"length": 8 << 30}, "its shape needs 128"),
        ("huge.bin", {"dims": (4, 1 << 29)}, "at most 512 MiB"),
        ("w.bin", {"dims": (4, -8)}, "bytes at offset"),
        ("w.bin", {"offset": -4, "length": 128}, "bytes at offset"),
        ("w.bin", {"offset": 1 << 62, "length": 128}, "its shape needs 128"),
        ("w.bin", {"offset": 64, "length": 128}, "its shape needs 128"),
        ("w.bin", {"length": 64}, "its shape needs 128"),
        ("w.bin", {"offset": "0x0"}, "no number"),
        ("w.bin", {"offset": "9" * 5000}, "no number"),
        ("w.bin", {"kind": TensorProto.STRING}, "no file can hold"),
        ("w.bin", {"kind": 99}, "no file can hold"),
    ],
)
def test_all_else_is_refused(location: str | None, fields: dict[str, Any], text: str, folder: Path) -> None:
    file = written(folder, location, **fields)
    external_files(file)
    with pytest.raises(EdgebuildError, match=text):
        read_model(file)


def test_a_tensor_in_an_attribute_reads_no_other_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the folder of the process it would be there."""
    monkeypatch.chdir(folder)
    model = onnx.load(written(folder, "../outside.bin"), load_external_data=False)
    constant = helper.make_node("Constant", [], ["w"])
    constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(model.graph.initializer[0])
    del model.graph.initializer[:]
    model.graph.node.insert(0, constant)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(EdgebuildError, match="no file in the folder"):
        read_model(folder / "m.onnx")


def test_many_tensors_on_the_same_bytes_are_no_bomb(folder: Path) -> None:
    model = onnx.load(written(folder, "huge.bin", (1024, 25600), offset=0, length=100 << 20), load_external_data=False)
    for number in range(5):
        model.graph.initializer.append(model.graph.initializer[0])
        model.graph.initializer[-1].name = f"w{number}"
    (folder / "huge.bin").write_bytes(b"")  # so that a test that fails takes no memory
    (folder / "huge.bin").open("r+b").truncate(100 << 20)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(EdgebuildError, match="at most 512 MiB"):
        read_model(folder / "m.onnx")


def functions(levels: int, width: int, last: str = "Neg") -> onnx.ModelProto:
    """A model of one call, of a function that calls the next one `width` times, at each level."""
    nested = []
    for level in range(levels):
        kind, domain = (last, "m" if last != "Neg" else "") if level == 0 else (f"F{level - 1}", "m")
        nodes = [helper.make_node(kind, [f"b{i}"], [f"b{i + 1}"], domain=domain) for i in range(width)]
        sets = [helper.make_opsetid("", 17), helper.make_opsetid("m", 1)]
        nested.append(helper.make_function("m", f"F{level}", ["b0"], [f"b{width}"], nodes, sets))
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (4,)) for n in "xy"]
    call = helper.make_node(f"F{levels - 1}", ["x"], ["y"], domain="m")
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("m", 1)]
    graph = helper.make_graph([call], "g", ports[:1], ports[1:])
    return helper.make_model(graph, functions=nested, opset_imports=sets, ir_version=8)


def test_functions_are_counted_before_they_are_inlined(tmp_path: Path) -> None:
    for model, text in (
        (functions(6, 10), "has 1000000 operators"),
        (functions(60, 10), "operators; at most"),
        (functions(3, 2, "F2"), "in a circle"),
    ):
        (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(EdgebuildError, match=text):
            read_model(tmp_path / "m.onnx")
    (tmp_path / "m.onnx").write_bytes(functions(3, 3).SerializeToString())
    assert len(read_model(tmp_path / "m.onnx").ops) == 27
