"""docs/report.md is the schema of the report: no member without a row, no row that reports contradict."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from edgebuild.base.request import model_request
from edgebuild.model.compile import compile_model
from tests.conftest import ROOT
from tests.graphs import tiny_tflite

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    path: str
    kind: str
    always: bool


def schema() -> list[Row]:
    text = (ROOT / "docs" / "report.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| ([^|]+) \|", text, re.MULTILINE)
    return [Row(path, kind, when.strip() == "always") for path, kind, when in rows]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of everything that is no map and no list."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    else:
        yield path, value


def pattern(row: Row) -> re.Pattern[str]:
    return re.compile(re.escape(row.path).replace(r"\*", r"[^.\[\]]+"))


def holders(value: Any, path: list[str]) -> Iterator[Any]:
    """The maps that should hold the last part of a path."""
    if isinstance(value, list):
        for inner in value:
            yield from holders(inner, path)
    elif isinstance(value, dict):
        if len(path) == 1:
            yield value
        elif path[0] in value:
            yield from holders(value[path[0]], path[1:])


REPORTS = {
    "tiny": ("tiny", "host", {}),
    "tiled": ("digits", "mps2-an386", {"tile": "auto"}),
    "parts": ("digits", "host", {"tile": "ffmt", "max_mac_overhead": "50"}),
    "streamed": ("digits", "mps3-an547", {"stream_input": "rows"}),
    "rows": ("digits", "host", {"stream_output": "rows"}),
    "mapped": ("digits", "host", {"map": "layer"}),
    "energy": ("digits", "stm32f767", {"objective": "energy", "qos": "60"}),
    "budgets": ("digits", "stm32f767", {"objective": "energy", "qos": "30,60"}),
}


@pytest.mark.parametrize("name", REPORTS)
def test_report_and_table_agree(name: str, tmp_path: Path) -> None:
    file, target, options = REPORTS[name]
    (tmp_path / "tiny.tflite").write_bytes(tiny_tflite())
    source = DIGITS if file == "digits" else tmp_path / "tiny.tflite"
    artifacts = compile_model(model_request(source, "n", target, options))
    report = json.loads(next(a.data for a in artifacts if a.name == "n_report.json"))
    rows = [(row, pattern(row)) for row in schema()]
    for path, value in leaves(report):
        row = next((row for row, wanted in rows if wanted.fullmatch(path)), None)
        assert row is not None, f"docs/report.md has no row for {path}"
        is_fit = isinstance(value, TYPES[row.kind]) and (row.kind == "boolean") == isinstance(value, bool)
        assert is_fit, f"{path} is {value!r}, the table says {row.kind}"
    for row, _ in rows:
        *inside, last = row.path.replace("[]", "").split(".")
        if row.always and last != "*":
            for holder in holders(report, [*inside, last]):
                assert last in holder, f"{row.path} is not there"


def test_every_row_occurs_once() -> None:
    paths = [row.path for row in schema()]
    assert len(paths) == len(set(paths)) > 80


def test_no_bytes_of_weights_without_constants(tmp_path: Path) -> None:
    """Such a program refers to no weights file, so its linker takes none."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "relu.onnx")
    files = {a.name: a.data for a in compile_model(model_request(tmp_path / "relu.onnx", "n", "host", {}))}
    rom = json.loads(files["n_report.json"])["rom"]
    assert (rom["weights_bytes"], rom["header_bytes"], rom["tensors_bytes"]) == (0, 0, 0)
    assert b"n_weights[]" not in files["n.c"]
