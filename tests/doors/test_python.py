"""`edgebuild.compile`: what the command does, from Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import edgebuild
from edgebuild.cli import main
from tests.graphs.tiny import tiny_tflite

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (path := tmp_path / "tiny.tflite").write_bytes(tiny_tflite())
    return path


def test_it_writes_what_the_command_writes(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["model", str(model), "--target", "mps2-an386", "--ram", "4K", "--tile", "off", "--portable"]
    assert main([*command, "-o", str(tmp_path / "a")]) == 0
    output = capsys.readouterr().out
    result = edgebuild.compile(str(model), "mps2-an386", ram=4096, tile="off", portable=True)
    paths = result.write(tmp_path / "b")
    assert f"{result}\n" == output
    files = {f.name: f.read_bytes() for f in (tmp_path / "a").iterdir()}
    assert files == result.files == {p.name: p.read_bytes() for p in paths}
    assert sorted((tmp_path / "b").iterdir()) == sorted(paths)
    assert result.report["ram"]["arena_bytes"] == result.arena_bytes
    assert len(result.files["tiny_weights.bin"]) == result.weights_bytes > 0 < result.code_bytes


def test_a_notebook_shows_it(model: Path) -> None:
    result = edgebuild.compile(model, "host")
    assert ElementTree.fromstring(result._repr_svg_()).tag.endswith("svg")
    html = result._repr_html_()
    ElementTree.fromstring(f"<div>{html}</div>".replace("<br>", "<br/>"))
    assert f"arena {result.arena_bytes} B" in html and result._repr_svg_() in html


def test_lists_and_dicts_are_options_of_several_values() -> None:
    more: dict[str, Any] = {"qos": [50, 20], "shape": {"image": [1, 1, 8, 8]}, "outputs": ("logits",)}
    request = edgebuild.compile(DIGITS, "stm32f767", objective="energy", **more).request
    assert request.qos == (50, 20) and request.outputs == ("logits",)
    assert request.shape == (("image", (1, 1, 8, 8)),)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rom": 1}, "unknown option 'rom'; did you mean 'ram'"),
        ({"ram": [1, 2]}, "option 'ram': takes one value, and no list"),
        ({"tile": "atuo"}, "did you mean 'auto'"),
        ({"name": "3"}, "not a C identifier"),
        ({"target": "hots"}, "did you mean 'host'"),
    ],
)
def test_what_is_wrong(model: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(edgebuild.EdgebuildError, match=text):
        edgebuild.compile(model, **{"target": "host", **options})


def test_files_of_others_are_not_replaced(model: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny.c").write_text("int mine;\n")
    with pytest.raises(edgebuild.EdgebuildError, match="does not replace it"):
        edgebuild.compile(model, "host").write(tmp_path)
    assert (tmp_path / "tiny.c").read_text() == "int mine;\n" and not (tmp_path / "tiny.h").exists()


def test_the_package_loads_nothing_by_itself() -> None:
    ask = "import sys; b = set(sys.modules); import edgebuild; print(sorted(set(sys.modules) - b), dir(edgebuild))"
    output = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert output.startswith("['edgebuild'] ") and "'compile'" in output
    with pytest.raises(AttributeError, match="no attribute 'compil'"):
        edgebuild.compil  # noqa: B018


@pytest.mark.needs("gcc")
def test_it_runs_and_gives_arrays(model: Path) -> None:
    """Two vectors of the network, one after the other, are what each gives alone; wrong ones are refused."""
    result = edgebuild.compile(model, "host", name="net")
    (port,) = result.report["inputs"]
    x = np.random.default_rng(1).integers(-128, 128, (2, *port["shape"])).astype(port["dtype"])
    (both,), (first,) = result.run(x), result.run({port["name"]: x[:1]})
    assert both.shape == (2, *result.report["outputs"][0]["shape"]) and (both[:1] == first).all()
    with pytest.raises(edgebuild.EdgebuildError, match="elements"):
        result.run(x.ravel()[1:])
