"""Weights that are replaced while a program runs: `NAME_set_weights()` takes those of its own kind, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.artifacts import publish
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.model.compile import compile_model
from tests.conftest import ROOT, run
from tests.graphs import tiny

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
MAIN = """#include <stdio.h>
#include "d.h"
_Alignas(64) static uint8_t file[1 << 16];
static uint32_t hash(void)
{
    uint32_t h = 1;
    for (int i = 0; i < D_INPUT_SIZE; ++i)
        d_input()[i] = (int8_t)(i * 7);
    d_invoke();
    for (int i = 0; i < D_OUTPUT_SIZE; ++i)
        h = h * 31 + (uint8_t)d_output()[i];
    return h;
}
int main(int count, char **names)
{
    printf("%u\\n", hash());
    for (int n = 1; n < count; ++n) {
        FILE *f = fopen(names[n], "rb");
        if (!f || !fread(file, 1, sizeof file, f))
            return 9;
        fclose(f);
        printf("%d ", d_set_weights(file));
        printf("%u\\n", hash());
    }
    printf("%d ", d_set_weights(file + 1));
    printf("%d ", d_set_weights(0));
    printf("%u\\n", hash());
    return 0;
}
"""


class Other(tiny.Tiny):
    """The same layers and scales, other weights."""

    def values(self, *shape: int) -> np.ndarray:
        return np.ascontiguousarray(super().values(*shape)[..., ::-1])


class OtherBias(tiny.Tiny):
    def __init__(self, zero_point: int) -> None:
        self.zero_point = zero_point
        super().__init__()

    def result(self, name: str, shape: tuple[int, ...]) -> int:
        quant = tiny.Quant(tiny.X.scale, (self.zero_point if name == "conv" else tiny.X.zero_point[0],))
        return self.file.tensor(name, shape, "int8", quant)


def weights(folder: Path, data: bytes, name: str, **options: str) -> bytes:
    """The weights of a model that is compiled in the folder."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.tflite").write_bytes(data)
    words = {"set_weights": "on", "weights": "c", **options}
    publish(compile_model(model_request(folder / f"{name}.tflite", "d", "host", words)), folder)
    return (folder / "d_weights.bin").read_bytes()


def lines(folder: Path, *files: Path) -> list[str]:
    (folder / "main.c").write_text(MAIN)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsanitize=undefined"]
    run("gcc", *flags, "main.c", "d.c", "d_weights.c", "-o", "x", cwd=folder)
    return run("./x", *files, cwd=folder).splitlines()


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("options", [{}, {"objective": "ram", "tile": "rolling"}, {"steps": "on"}], ids=str)
def test_weights_of_a_trained_anew_model(options: dict[str, str], tmp_path: Path) -> None:
    first = weights(tmp_path / "a", tiny.Tiny().pack(), "net", **options)
    second = weights(tmp_path / "b", Other().pack(), "other_name", **options)
    assert first[:12] == second[:12] and first != second
    damaged, foreign = bytearray(second), bytearray(second)
    damaged[-1] ^= 1
    foreign[9] ^= 1
    for name, data in (("damaged", damaged), ("foreign", foreign)):
        (tmp_path / name).write_bytes(data)
    (of_second, *_) = lines(tmp_path / "b")
    files = [tmp_path / "damaged", tmp_path / "foreign", tmp_path / "b" / "d_weights.bin", tmp_path / "damaged"]
    of_first, *rest = lines(tmp_path / "a", *files)
    assert of_first != of_second
    wanted = [f"3 {of_first}", f"2 {of_first}", f"0 {of_second}", f"3 {of_second}", f"1 0 {of_first}"]
    assert rest == wanted


@pytest.mark.needs("gcc")
def test_numbers_of_the_model_in_the_code_are_part_of_the_hash(tmp_path: Path) -> None:
    """A zero point of another model is no weight, so its weights are refused."""
    first = weights(tmp_path / "a", OtherBias(-3).pack(), "net")
    other = weights(tmp_path / "b", OtherBias(-4).pack(), "net")
    assert first[8:12] != other[8:12] and len(first) == len(other)
    assert lines(tmp_path / "a", tmp_path / "b" / "d_weights.bin")[1].startswith("2 ")


def test_without_the_option_nothing_changes(tmp_path: Path) -> None:
    plain = {a.name: a.data for a in compile_model(model_request(DIGITS, "d", "host", {}))}
    assert b"set_weights" not in plain["d.h"] + plain["d.c"]
    (tmp_path / "add.onnx").write_bytes(without_weights())
    with pytest.raises(EdgebuildError, match="has no weights"):
        compile_model(model_request(tmp_path / "add.onnx", "d", "host", {"set_weights": "on"}))
    with pytest.raises(EdgebuildError, match="nor with --map"):
        compile_model(model_request(DIGITS, "d", "pulp-cluster", {"set_weights": "on", "map": "auto"}))


def without_weights() -> bytes:
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (4,)) for n in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
