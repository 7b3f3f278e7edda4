"""Generated C under four compilers with all warnings, freestanding, in every variant of weights and arena."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.model import ops
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from tests.conftest import ROOT, run
from tests.graphs import random_inputs, tiny_tflite
from tests.ops.host import run_on_host
from tests.ops.test_host import compare
from tests.zoo.builders import ZOO, quantized

WARNINGS = ["-std=c11", "-O1", "-ffreestanding", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow"]
WARNINGS += ["-Wsign-conversion", "-Wundef", "-Werror"]
M0 = """\
inherits: cortex-m0
description: a Cortex-M0 with room for every model
memories:
  ROM: {origin: 0, size: 4M, roles: [code, weights]}
  RAM: {origin: 0x20000000, size: 4M, roles: [arena, data, stack]}
"""
COMPILERS = {  # target: the compilers of its code
    "m0": ["arm-none-eabi-gcc -mcpu=cortex-m0 -mthumb"],
    "mps2-an386": [
        "arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard",
        "clang --target=arm-none-eabi -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard",
    ],
    "mps3-an547": [
        "arm-none-eabi-gcc -mcpu=cortex-m55 -mthumb -mfloat-abi=hard",
        "clang --target=arm-none-eabi -mcpu=cortex-m55 -mthumb -mfloat-abi=hard",
    ],
    "riscv-virt": ["riscv64-unknown-elf-gcc -march=rv32imc -mabi=ilp32"],
    "host": ["gcc", "clang"],
}
VARIANTS = {
    "plain": {}, "weights in C": {"weights": "c"}, "arena of the caller": {"arena": "caller", "weights": "asm"},
    "functions that layers share": {"optimize": "size"},
}  # fmt: skip
MODELS = ("tiny", "digits", "resnet8", "ds_cnn", "ds_cnn float")
# What gcc itself may call in freestanding code, and its own arithmetic (of which int8 code may use the 64-bit part).
ALLOWED = re.compile(
    r"memcpy|memset|memmove|__aeabi_(mem(cpy|set|move|clr)\d?|lmul|lasr|llsl|llsr|[u]?idiv|[u]?idivmod|[u]?ldivmod)|__(muldi3|ashrdi3|ashldi3|lshrdi3|divsi3|modsi3|udivsi3|clzsi2|clzdi2)|__gnu_thumb1_case_\w+"
)


@cache
def model_file(folder: Path, name: str) -> Path:
    if name == "digits":
        return ROOT / "sample_projects" / "digits" / "digits.onnx"
    if name == "tiny":
        file = folder / "tiny.tflite"
        file.write_bytes(tiny_tflite())
        return file
    word, _, form = name.partition(" ")
    file = folder / f"{word}{form}.onnx"
    onnx.save(ZOO[word]() if form else quantized(ZOO[word]()), file)
    return file


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    (folder / "m0.yaml").write_text(M0)
    return folder


def generate(models: Path, name: str, target: str, folder: Path, **options: str) -> list[str]:
    """Write a model's files; the names of its sources."""
    place = str(models / "m0.yaml") if target == "m0" else target
    for artifact in compile_model(ModelRequest(model_file(models, name), "n", place, **options)):
        (folder / artifact.name).write_bytes(artifact.data)
    return ["n.c", "n_weights.S", "n_weights.c"]


@pytest.mark.one_in(6)
@pytest.mark.needs("gcc", "clang", "arm-none-eabi-gcc", "riscv64-unknown-elf-gcc", "nm")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("target", COMPILERS)
@pytest.mark.parametrize("name", MODELS)
def test_no_warning_and_no_library(name: str, target: str, variant: str, models: Path, tmp_path: Path) -> None:
    sources = generate(models, name, target, tmp_path, **VARIANTS[variant])
    for compiler in COMPILERS[target]:
        command = [*compiler.split(), *WARNINGS]
        for source in sources:
            run(*command, "-c", source, "-o", f"{source}.o", cwd=tmp_path)
        linker = COMPILERS[target][0].split()  # of the target's own tools: clang has none
        run(*linker, "-nostdlib", "-r", *(f"{source}.o" for source in sources), "-o", "all.o", cwd=tmp_path)
        listed = run("nm", "-u", "all.o", cwd=tmp_path).split()[1::2]
        if "float" not in name:
            assert not [symbol for symbol in listed if not ALLOWED.fullmatch(symbol)]


@pytest.mark.needs("arm-none-eabi-gcc")
def test_code_for_another_core_is_an_error(models: Path, tmp_path: Path) -> None:
    """Kernels for DSP instructions under the flags of a core without them: one message, of ours."""
    generate(models, "tiny", "mps2-an386", tmp_path)
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb", "-c", "n.c", "-o", "n.o"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert done.returncode != 0
    assert "#error" in done.stderr and "-mcpu=cortex-m4" in done.stderr


LOOSE = {  # flags with which compilers compute something else than the C says
    "gcc": ["-Ofast", "-ffast-math", "-ffinite-math-only", "-funsafe-math-optimizations", "-freciprocal-math"],
    "clang": ["-Ofast", "-ffast-math", "-ffinite-math-only"],
}


@pytest.mark.needs("gcc", "clang")
@pytest.mark.parametrize(("compiler", "flag"), [(name, flag) for name, flags in LOOSE.items() for flag in flags])
def test_floats_are_not_computed_loosely(compiler: str, flag: str, models: Path, tmp_path: Path) -> None:
    """IsNaN was false and log(0) a number under these flags. Integers have nothing that they change."""
    generate(models, "ds_cnn float", "host", tmp_path)
    command = [compiler, "-std=c11", "-Wno-overriding-t-option", "-Werror", "-c", "n.c", "-o", "n.o"]
    message = run(*command, flag, cwd=tmp_path, status=1)
    assert message.count("error:") == 1 and "-fno-fast-math" in message
    run(*command, flag, "-fno-fast-math", cwd=tmp_path)
    generate(models, "ds_cnn", "host", tmp_path)
    run(*command, flag, cwd=tmp_path)


INTERLEAVED = """\
#include <stdio.h>
#include "n.h"
static _Alignas(16) char arenas[2][N_ARENA_BYTES];
int main(void)
{
    size_t bytes = 0;
    for (int a = 0; a < 2; ++a)
        bytes += fread(n_input(arenas[a]), 1, N_INPUT_SIZE, stdin);
    for (int a = 0; a < 2; ++a)
        n_invoke(arenas[a]);
    for (int a = 0; a < 2; ++a)
        bytes += fwrite(n_output(arenas[a]), 1, N_OUTPUT_SIZE, stdout);
    return bytes != 2 * (N_INPUT_SIZE + N_OUTPUT_SIZE);
}
"""


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", ["tiny", "digits", "ds_cnn"])
def test_two_arenas_do_not_disturb_each_other(name: str, models: Path, tmp_path: Path) -> None:
    sources = generate(models, name, "host", tmp_path, arena="caller")
    (tmp_path / "main.c").write_text(INTERLEAVED)
    run("gcc", *["-std=c11", "-O1", "-fsanitize=address,undefined", "main.c"], *sources, "-o", "main", cwd=tmp_path)
    graph = prepare(model_file(models, name))
    x = np.random.default_rng(1).integers(-128, 128, (2, graph.tensors[graph.inputs[0]].elements)).astype(np.int8)
    done = subprocess.run([tmp_path / "main"], input=x.tobytes(), stdout=subprocess.PIPE, check=True)
    want = [ops.run(graph, vector)[graph.outputs[0]] for vector in x]
    assert done.stdout == b"".join(y.tobytes() for y in want)


@pytest.mark.needs("gcc")
def test_several_inputs_and_outputs_have_their_own_functions(tmp_path: Path) -> None:
    """And names that are no C identifiers, or become the same one, still make two functions."""
    quant = Quant((0.5,), (0,))
    names = ["left/x:0", "left.x.0", "sum", "Größe"]
    tensors = {name: Tensor(name, (1, 4), "int8", quant) for name in names}
    nodes = (
        Op("add", "sum", ("left/x:0", "left.x.0"), ("sum",), {"clamp": (None, None)}),
        Op("mul", "size", ("sum", "left/x:0"), ("Größe",), {"clamp": (None, None)}),
    )
    graph = Graph("m", nodes, tensors, ("left/x:0", "left.x.0"), ("sum", "Größe"))
    vectors = random_inputs(graph, 3)
    (rows,) = run_on_host([graph], [vectors], tmp_path)
    for vector, row in zip(vectors, rows, strict=True):
        compare(graph, vector, row)
    header = (tmp_path / "g0.h").read_text()
    assert len(set(re.findall(r"\bg0_(?:input|output)_\w+(?=\(void\))", header))) == 4


@pytest.mark.parametrize(
    "body", ["y = Identity(x)", "a = Tanh(x)  b = Sqrt(a)  c = Concat<axis=1>(a, b)  d = Tanh(c)  y = Sqrt(d)"]
)
def test_no_name_is_one_of_c_and_none_is_unused(body: str, tmp_path: Path) -> None:
    """Functions that layers of several sizes share are not called tanh and sqrt, which compilers know otherwise."""
    columns = 32 if body.startswith("a") else 16
    text = f"<ir_version: 8, opset_import: ['': 13]> g (float[1, 16] x) => (float[1, {columns}] y) {{ {body} }}"
    onnx.save(onnx.parser.parse_model(text.replace("'", '"')), path := tmp_path / "g.onnx")
    options = {"arena": "caller", "optimize": "size"}
    for artifact in compile_model(ModelRequest(path, "g", "host", **options)):
        (tmp_path / artifact.name).write_bytes(artifact.data)
    for compiler in COMPILERS["host"]:
        run(compiler, *WARNINGS, "-c", "g.c", "-o", "g.o", cwd=tmp_path)
