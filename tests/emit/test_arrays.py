"""Inputs and outputs in arrays of the application: outside of the arena, at the right place, and checked."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import onnx
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest, checked
from edgebuild.cli import main
from edgebuild.model.compile import compile_model, graph_of
from edgebuild.model.interface_of import with_arrays
from tests.conftest import ROOT

DIGITS = ROOT / "sample_projects/digits/digits.onnx"
BOTH = {"input_at": "image", "output_at": "scores"}
SOURCE = r"""
#include <string.h>
#include "n.h"
int8_t guard_0[16]; int8_t image[sizeof image]; int8_t guard_1[16]; int8_t scores[sizeof scores]; int8_t guard_2[16];
static int8_t kept[sizeof image], first[sizeof scores];
int main(void)
{
    int8_t *guards[] = {guard_0, guard_1, guard_2};
    for (int i = 0; i < N_INPUT_SIZE; ++i) { kept[i] = image[i] = (int8_t)(i * 37); }
    for (int i = 0; i < 3; ++i) { memset(guards[i], 90, 16); }
    n_invoke();
    memcpy(first, scores, sizeof scores);
    memset(scores, 0, sizeof scores);
    n_invoke();
    for (int i = 0; i < 48; ++i) { if (guards[i / 16][i % 16] != 90) { return 1; } }
    if (memcmp(kept, image, sizeof image) != 0) { return 2; }
    if (memcmp(first, scores, N_OUTPUT_SIZE) != 0) { return 3; }
    return n_input() != image || n_output() != scores || sizeof image < N_INPUT_SIZE ? 4 : 0;
}
"""


def compiled(folder: Path, target: str = "host", source: Path = DIGITS, **options: str) -> dict[str, Any]:
    """The report of a model, whose files are in the folder."""
    request = ModelRequest(source, "n", target, **checked(ModelRequest, options))
    for artifact in compile_model(request):
        (folder / artifact.name).write_bytes(artifact.data)
    report: dict[str, Any] = json.loads((folder / "n_report.json").read_text())
    return report


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("tile", ["off", "rolling", "ffmt"])
def test_an_application_has_its_arrays_for_itself(tile: str, tmp_path: Path) -> None:
    """The model leaves its input as it is, writes only what is its own, and gives the same outputs again."""
    plain = compiled(tmp_path, tile=tile)
    report = compiled(tmp_path, tile=tile, **BOTH)
    assert report["ram"]["arena_bytes"] <= plain["ram"]["arena_bytes"]
    assert {*report["ram"]["by_memory"]} == {"RAM"}
    outside = {b["memory"]: b["offset"] for b in report["layout"]["buffers"] if b["memory"] != "RAM"}
    assert outside == {"image[]": 0, "scores[]": 0}
    (tmp_path / "main.c").write_text(SOURCE)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]
    subprocess.run(["gcc", *flags, "main.c", "n.c", "n_weights.c", "-o", "app"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "app"]).returncode == 0


def test_the_arena_has_no_room_for_them(tmp_path: Path) -> None:
    """An input whose channels the first op brings behind each other is half of the peak."""
    value = [
        onnx.helper.make_tensor_value_info(n, 1, shape) for n, shape in (("x", [1, 3, 32, 32]), ("y", [1, 3, 4, 4]))
    ]
    node = onnx.helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[8, 8], strides=[8, 8])
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", value[:1], value[1:])), tmp_path / "m.onnx")
    sizes = [
        compiled(tmp_path, source=tmp_path / "m.onnx", tile="off", **options)["ram"]["arena_bytes"]
        for options in ({}, {"input_at": "image"}, {"output_at": "scores"}, BOTH)
    ]
    planes = 4 * 3 * 32 * 32
    assert sizes[0] == sizes[2] == 2 * planes and planes < sizes[1] == sizes[3] < planes + 4 * 3 * 4 * 4


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("kind", ["Identity", "Relu"])
def test_c_without_a_tensor_in_the_arena(kind: str, tmp_path: Path) -> None:
    """Nothing is declared that is empty, and no parameter is left unused."""
    value = [onnx.helper.make_tensor_value_info(n, 1, [1, 4]) for n in "xy"]
    node = onnx.helper.make_node(kind, ["x"], ["y"])
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", value[:1], value[1:])), tmp_path / "m.onnx")
    arrays = {"input_at": "image"} if kind == "Identity" else BOTH
    for options in (arrays, {**arrays, "arena": "caller"}, {"steps": "ON"}):
        compiled(tmp_path, source=tmp_path / "m.onnx", **options)
        flags = ["-std=c11", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        subprocess.run(["gcc", *flags, "n.c", "n_weights.c"], cwd=tmp_path, check=True)


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_results_are_those_of_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["verify", str(DIGITS), "--target", "mps2-an386", "--tile", "rolling", "--json", "-"]
    assert main([*words, "--input-at", "image", "--output-at", "scores"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["equal"] and not result["unseen"]


@pytest.mark.needs("arm-none-eabi-gcc")
def test_an_array_at_an_odd_address_is_refused_by_the_linker(tmp_path: Path) -> None:
    compiled(tmp_path, "mps2-an386", input_at="image")
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-nostdlib", "-Wl,-emain", "main.c", "n_check.ld"]
    for address, words in ((0x20000004, ""), (0x20000005, "array image is not on a multiple of 4")):
        code = f'__asm__(".globl image\\n.set image, {address}");int main(void) {{ return 0; }}'
        (tmp_path / "main.c").write_text(code)
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert words in done.stderr and (done.returncode != 0) == bool(words), done.stderr


WRONG = {
    "no name": ({"input_at": "2image"}, "'2image' names no array"),
    "a word of C": ({"input_at": "float"}, "'float' names no array"),
    "a type of C": ({"input_at": "uint8_t"}, "'uint8_t' names no array"),
    "a function of C": ({"input_at": "memcpy"}, "'memcpy' names no array"),
    "an unknown tensor": ({"input_at": "imag=image"}, "no tensor 'imag'"),
    "one array twice": ({"input_at": "image", "output_at": "image"}, "named twice"),
    "rows of the input": ({"input_at": "image", "stream_input": "rows"}, "not with --stream-input"),
    "memory levels": ({"output_at": "scores", "map": "layer"}, "not with --map"),
    "energy": ({"input_at": "image", "objective": "energy"}, "not with --objective energy"),
}


@pytest.mark.parametrize("case", WRONG)
def test_arrays_that_cannot_be(case: str) -> None:
    options, words = WRONG[case]
    with pytest.raises(EdgebuildError) as refused:
        request = ModelRequest(DIGITS, "n", "host", **checked(ModelRequest, options))
        with_arrays(graph_of(request), request)
    assert words in str(refused.value)


def test_a_model_without_inputs_has_none_in_an_array(tmp_path: Path) -> None:
    value = [onnx.helper.make_tensor_value_info("c", 1, [3])]
    constant = onnx.helper.make_tensor("c", 1, [3], [1, 2, 3])
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], value, [constant])), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="image is one of 0"):
        compiled(tmp_path, source=tmp_path / "m.onnx", input_at="image")


@pytest.mark.parametrize("array", ["n", "n_arena", "N_H"])
def test_an_array_has_no_name_of_the_model(array: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["model", str(DIGITS), "--name", "n", "--target", "host", "--output-at", array, "-o", str(tmp_path / "out")]
    assert main(words) == 1
    assert f"cannot be called {array}" in capsys.readouterr().err and not (tmp_path / "out").exists()
