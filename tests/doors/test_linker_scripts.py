"""Linker scripts of other people: arena and weights find their place with no line added, and no heap lies over them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgebuild.base.artifacts import publish
from edgebuild.base.request import model_request
from edgebuild.base.target import hal_dir, load_target
from edgebuild.model.compile import compile_model
from tests.conftest import ROOT, run

pytestmark = pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")

HERE = Path(__file__).parent / "linker"
DIGITS = ROOT / "sample_projects" / "digits"
NAMES = ("DATA_LOAD", "DATA_START", "DATA_END", "BSS_START", "BSS_END", "STACK_TOP", "HEAP_START")
SYMBOLS = {
    "cubemx": ("_sidata", "_sdata", "_edata", "_sbss", "_ebss", "_estack", "end"),
    "zephyr": ("__data_region_load_start", "__data_start", "__data_end", "__bss_start", "__bss_end", "_estack", "_end"),
    "newlib": ("__etext", "__data_start__", "__data_end__", "__bss_start__", "__bss_end__", "__StackTop", "end"),
}
STRICT = ["-Wl,--orphan-handling=error", "-Wl,--gc-sections"]


def program(folder: Path, script: str, *flags: str, **options: str) -> Path:
    """The program of `linker/main.c`, compiled and linked as the project of that script would do it."""
    publish(compile_model(model_request(DIGITS / "digits.onnx", "digits", "mps2-an386", options)), folder)
    cpu = ["-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"]
    defines = [f"-D{name}={symbol}" for name, symbol in zip(NAMES, SYMBOLS[script], strict=True)]
    include = [f"-I{folder}", f"-I{hal_dir() / 'include'}", f"-I{DIGITS}"]
    sources = [HERE / "startup.c", HERE / "main.c", hal_dir() / "src" / "semihost.c"]
    sources += [folder / f"digits{suffix}" for suffix in (".c", "_weights.S", "_weights.c")]
    elf = folder / "app.elf"
    run("arm-none-eabi-gcc", *cpu, "-std=c11", "-O2", "-fdata-sections", "-ffunction-sections", *defines,
        *include, *map(str, sources), "-nostartfiles", "--specs=nano.specs",
        *flags, f"-L{HERE}", f"-T{HERE / script}.ld", "-o", elf, cwd=folder)  # fmt: skip
    return elf


def status(elf: Path) -> int:
    runner = load_target("mps2-an386").runner
    assert runner is not None
    command = [word.replace("{elf}", str(elf)) for word in runner.command]
    return subprocess.run(command, timeout=60).returncode


@pytest.mark.parametrize("weights", ["asm", "c"])
@pytest.mark.parametrize("script", SYMBOLS)
def test_right_results_beside_a_heap_with_no_line_added(script: str, weights: str, tmp_path: Path) -> None:
    elf = program(tmp_path, script, *STRICT, weights=weights)
    assert status(elf) == 0
    sections = run("arm-none-eabi-size", "-A", elf)
    assert "edgebuild" not in sections  # they are parts of the script's own .bss and .rodata


@pytest.mark.parametrize("script", ["cubemx", "newlib"])
def test_fragment_keeps_off_the_heap_too(script: str, tmp_path: Path) -> None:
    """The model's own fragment in front of the script, for arenas in another memory than .bss."""
    elf = program(tmp_path, script, *STRICT, "-Wl,-T,digits_memory.ld")
    assert status(elf) == 0
    assert ".edgebuild.digits.arena" in run("arm-none-eabi-size", "-A", elf)


@pytest.mark.parametrize("weights", ["asm", "c"])
def test_arena_and_state_take_no_bytes_of_flash(weights: str, tmp_path: Path) -> None:
    request = model_request(DIGITS / "digits.onnx", "n", "mps2-an386", {"weights": weights, "stream_input": "rows"})
    publish(compile_model(request), tmp_path)
    listing = ""
    for source in ("n.c", f"n_weights.{'S' if weights == 'asm' else 'c'}"):
        run("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-O2", "-c", source, "-o", "n.o", cwd=tmp_path)
        listing += run("arm-none-eabi-readelf", "-SW", "n.o", cwd=tmp_path)
    for name in ("state", "arena"):
        row = next(line for line in listing.splitlines() if f" .bss.edgebuild.n.{name} " in line)
        assert " NOBITS " in row
