"""Names of models: what compilers have as macros, and what the headers of C libraries are called."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from edgebuild.base.artifacts import publish
from edgebuild.base.request import C_HEADERS, model_request
from edgebuild.model.compile import compile_model
from tests.conftest import run
from tests.graphs import tiny_tflite

LIBRARIES = [
    "gcc",
    "arm-none-eabi-gcc -mcpu=cortex-m55 -mthumb -mfloat-abi=hard",
    "riscv64-unknown-elf-gcc --specs=picolibc.specs",
]


@pytest.mark.needs("gcc", "clang", "nm")
@pytest.mark.parametrize("weights", ["asm", "c"])
@pytest.mark.parametrize("name", ["linux", "unix", "I", "int", "NULL", "stdout", "printf", "INT8", "main"])
def test_a_name_that_means_something_else_in_c(name: str, weights: str, tmp_path: Path) -> None:
    """`linux` and `unix` are macros of gnu17, the compilers' default; the words of section names are macros here."""
    (model := tmp_path / "tiny.tflite").write_bytes(tiny_tflite())
    publish(compile_model(model_request(model, name, "host", {"weights": weights})), tmp_path)
    macros = [f"-D{word}=1+" for word in ("rodata", "bss", "edgebuild", "weights", "arena")]
    sources = [f"{name}.c", f"{name}_weights.S", f"{name}_weights.c"]
    (tmp_path / "use.c").write_text(f'#include <errno.h>\n#include <stdio.h>\n#include "{name}.h"\n')
    for compiler in ("gcc", "clang"):
        for source in [*sources, "use.c"]:
            words = macros if source.endswith("S") else []
            run(compiler, "-Wall", "-Wextra", "-Werror", *words, "-c", source, "-o", f"{source}.o", cwd=tmp_path)
        run(compiler, "-r", "-nostdlib", *(f"{s}.o" for s in sources), "-o", "all.o", cwd=tmp_path)
        assert f"{name}_arena" not in run("nm", "-u", "all.o", cwd=tmp_path)


@pytest.mark.parametrize("compiler", [pytest.param(c, marks=pytest.mark.needs(c.split()[0])) for c in LIBRARIES])
def test_headers_of_c_libraries_are_recognised(compiler: str) -> None:
    """Headers without a folder that those of C11 include, as the compiler finds them: a model may hide none."""
    files: set[Path] = set()
    for header in C_HEADERS:  # each by itself: a library may lack what one of its headers includes
        command = [*compiler.split(), "-E", "-"]
        done = subprocess.run(command, input=f"#include <{header}.h>", capture_output=True, text=True, check=False)
        files |= {Path(f) for f in re.findall(r'^# \d+ "(/[^"]+\.h)"', done.stdout, re.MULTILINE)}
    direct: set[str] = set()
    for file in files:
        included = re.findall(r"^\s*#\s*include\s*<([A-Za-z]\w*)\.h>", file.read_text("latin-1"), re.MULTILINE)
        direct |= {h for h in included if any(f.stem == h for f in files)}

    assert direct and not direct - C_HEADERS
