"""Linker scripts of other people: arena and weights find their place with no line added, and no heap lies over them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from edgebuild.base.artifacts import publish
from edgebuild.base.request import model_request
from edgebuild.base.target import hal_dir, load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.conftest import ROOT, run

pytestmark = pytest.mark.needs("arm-none-eabi-gcc", "riscv64-unknown-elf-gcc", "qemu-system-arm", "qemu-system-riscv32")

HERE = Path(__file__).parent / "linker"
SITE_TOOLS = ROOT / "edgebuild" / "build" / "scons" / "site_tools"
DIGITS = ROOT / "sample_projects" / "digits"
NAMES = ("DATA_LOAD", "DATA_START", "DATA_END", "BSS_START", "BSS_END", "STACK_TOP", "HEAP_START")
SYMBOLS = {
    "cubemx": ("_sidata", "_sdata", "_edata", "_sbss", "_ebss", "_estack", "end"),
    "twobanks": ("_sidata", "_sdata", "_edata", "_sbss", "_ebss", "_estack", "end"),
    "zephyr": ("__data_region_load_start", "__data_start", "__data_end", "__bss_start", "__bss_end", "_estack", "_end"),
    "newlib": ("__etext", "__data_start__", "__data_end__", "__bss_start__", "__bss_end__", "__StackTop", "end"),
    "nrf5": ("__etext", "__data_start__", "__data_end__", "__bss_start__", "__bss_end__", "__StackTop", "end"),
    "picosdk": ("__data_load__", "__data_start__", "__data_end__", "__bss_start__", "__bss_end__", "__StackTop", "end"),
    "espressif": ("_data_load", "_data_start", "_data_end", "_bss_start", "_bss_end", "_stack_top", "_heap_start"),
    "libopencm3": ("_data_loadaddr", "_data", "_edata", "_edata", "_ebss", "_stack", "end"),
    "chibios": ("_textdata", "__data_base__", "__data_end__", "__bss_base__", "__bss_end__", "__main_stack_end__",
                "__heap_base__"),
    "cortexmrt": ("__sidata", "__sdata", "__edata", "__sbss", "__ebss", "_stack_start", "__sheap"),
    "asf": ("_etext", "_srelocate", "_erelocate", "_sbss", "_ebss", "_estack", "_end"),
    "freedom": ("metal_segment_data_source_start", "metal_segment_data_target_start", "metal_segment_data_target_end",
                "metal_segment_bss_target_start", "metal_segment_bss_target_end", "metal_segment_stack_end",
                "metal_segment_heap_target_start"),
    "mcuxpresso": ("_data_load", "_data", "_edata", "_bss", "_ebss", "_vStackTop", "_pvHeapStart"),
    "renesas": ("__data_load__", "__data_start__", "__data_end__", "__bss_start__", "__bss_end__", "__StackTop",
                "__HeapBase"),
    "simplelink": ("__data_load__", "__data_start__", "__data_end__", "__bss_start__", "__bss_end__", "_stack_end",
                   "end"),
    "cmsis": ("__etext", "__data_start__", "__data_end__", "__bss_start__", "__bss_end__", "__StackTop", "end"),
    "nuclei": ("_data_lma", "_data", "_edata", "__bss_start", "_end", "_sp", "end"),
}  # fmt: skip
RAM = {  # address and bytes of each bank
    "twobanks": "{0x20000000, 0x10000}, {0x20100000, 0x40000}",
    "picosdk": "{0x20000000, 0x42000}",
    "espressif": "{0x20000000, 0x20000}",
    "chibios": "{0x20000000, 0x18000}",
    "mcuxpresso": "{0x20000000, 0x10000}, {0x20100000, 0x8000}",
    "freedom": "{0x80400000, 0x10000}",
    "nuclei": "{0x80400000, 0x10000}",
}
STRICT = ["-Wl,--orphan-handling=error", "-Wl,--gc-sections"]
FLAGS = ["-std=c11", "-O2", "-fdata-sections", "-ffunction-sections", f"-I{hal_dir() / 'include'}"]
COMPILERS = {
    "mps2-an386": ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard",
                   "--specs=nano.specs"],
    "riscv-virt": ["riscv64-unknown-elf-gcc", "-march=rv32imac", "-mabi=ilp32", "--specs=picolibc.specs"],
}  # fmt: skip

# A call at the head and the end of each function, which spoils the registers that functions may.
HOOKS = ["-finstrument-functions", "-finstrument-functions-exclude-file-list=/hal/"]
HOOKS += [f"-Wl,--defsym=__cyg_profile_func_{place}=strlen" for place in ("enter", "exit")]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a target with two models, and the objects of all that does not depend on the linker script."""

    @cache
    def compiled(target: str) -> Path:
        folder = tmp_path_factory.mktemp(target)
        for name, more in (("digits", {"weights": "asm"}), ("rows", {"weights": "c", "stream_input": "rows"})):
            publish(compile_model(model_request(DIGITS / "digits.onnx", name, target, more)), folder)
        sources = [HERE / "main.c", hal_dir() / "src" / "semihost.c"]
        sources += [Path(n + suffix) for n in ("digits", "rows") for suffix in (".c", "_weights.S", "_weights.c")]
        for check in folder.glob("*_check.ld"):
            check.rename(f"{check}.o")  # whatever a link takes of objects, it takes these
        for source in sources:
            command = [*COMPILERS[target], *FLAGS, "-I.", f"-I{DIGITS}", "-c", source, "-o", f"{source.name}.o"]
            run(*command, cwd=folder)
        return folder

    return compiled


def program(
    parts: Callable[[str], Path], folder: Path, script: str, *flags: str, file: Path | None = None, status: int = 0
) -> Path:
    """The program of `linker/main.c`, linked as the project of that script would do it; `file`: in place of ours."""
    folder_of_parts = parts(target := target_of(script))
    defines = [f"-D{name}={symbol}" for name, symbol in zip(NAMES, SYMBOLS[script], strict=True)]
    defines += [f"-DRAM={RAM.get(script, '{0x20000000, 0x10000}')}", "-fno-tree-loop-distribute-patterns"]
    elf = folder / "app.elf"
    run(*COMPILERS[target], *FLAGS, *defines, HERE / "startup.c", *sorted(folder_of_parts.glob("*.o")),
        "-nostartfiles", *flags, f"-L{HERE}", f"-L{folder_of_parts}", f"-T{file or HERE / f'{script}.ld'}",
        "-o", elf, cwd=folder, status=status)  # fmt: skip
    return elf


def target_of(script: str) -> str:
    return "riscv-virt" if script in ("freedom", "nuclei") else "mps2-an386"


def status(elf: Path, target: str = "mps2-an386") -> int:
    runner = load_target(target).runner
    assert runner is not None
    command = [word.replace("{elf}", str(elf)) for word in runner.command]
    return subprocess.run(command, timeout=60).returncode


@pytest.mark.parametrize("script", SYMBOLS)
def test_right_results_beside_a_heap_with_no_line_added(
    script: str, parts: Callable[[str], Path], tmp_path: Path
) -> None:
    elf = program(parts, tmp_path, script, *STRICT)
    assert status(elf, target_of(script)) == 0
    assert "edgebuild" not in run("readelf", "-SW", elf)  # they are parts of the script's own .bss and .rodata


def test_the_script_and_the_startup_of_picolibc(parts: Callable[[str], Path], tmp_path: Path) -> None:
    """Link with what the package of the C library brings, in place of ours in somebody's manner."""
    elf = tmp_path / "app.elf"
    memories = {"flash": "0x80000000", "flash_size": "4M", "ram": "0x80400000", "ram_size": "1M"}
    places = [f"-Wl,--defsym=__{name}={value}" for name, value in memories.items()]
    objects = [o for o in sorted(parts("riscv-virt").glob("*.o")) if o.name != "semihost.c.o"]
    library = ["--crt0=semihost", "--oslib=semihost", "-Wl,--gc-sections"]
    run(*COMPILERS["riscv-virt"], *objects, *library, *places, "-o", elf, cwd=tmp_path)
    assert status(elf, "riscv-virt") == 0


@pytest.mark.parametrize("script", ["cubemx", "newlib", "nrf5", "picosdk", "cortexmrt"])
def test_fragment_keeps_off_the_heap_too(script: str, parts: Callable[[str], Path], tmp_path: Path) -> None:
    """The model's own fragment in front of the script, for arenas in another memory than .bss."""
    elf = program(parts, tmp_path, script, *STRICT, "-Wl,-T,digits_memory.ld", "-Wl,-T,rows_memory.ld")
    assert status(elf) == 0
    assert ".edgebuild.digits.arena" in run("readelf", "-SW", elf)


def test_fragment_refuses_a_script_with_memories_of_other_names(parts: Callable[[str], Path], tmp_path: Path) -> None:
    """GNU ld only warned, and placed arena and weights from address 0, over the code."""
    (other := tmp_path / "other.ld").write_text((HERE / "newlib.ld").read_text().replace("RAM", "SRAM"))
    program(parts, tmp_path, "newlib", file=other)  # without the fragments it links
    with pytest.raises(AssertionError, match="model digits: no linker script declares a memory RAM: give your target"):
        program(parts, tmp_path, "newlib", "-Wl,-T,digits_memory.ld", "-Wl,-T,rows_memory.ld", file=other)


@pytest.mark.needs("ld.lld")
@pytest.mark.parametrize("linker", ["bfd", "lld"])
def test_a_script_that_takes_no_section_but_bss_itself(
    linker: str, parts: Callable[[str], Path], tmp_path: Path
) -> None:
    """Left to themselves, sections lie where start-up does not clear them. `N_check.ld` refuses, one line mends it."""
    (tmp_path / "ld.lld").symlink_to(str(shutil.which("ld.lld")))  # gcc for other machines looks for it here
    flags = [f"-B{tmp_path}", f"-fuse-ld={linker}", "-Wl,--gc-sections"]
    text = (HERE / "cubemx.ld").read_text().replace("*(.bss*)", "")
    stack = "_estack = ORIGIN(RAM) + LENGTH(RAM);\n"  # lld wants to know the memory first
    (old := tmp_path / "old.ld").write_text(text.replace(stack, "") + stack)
    with pytest.raises(AssertionError) as refused:
        program(parts, tmp_path, "cubemx", *flags, file=old)
    for section in ("digits.arena", "rows.arena", "rows.state"):
        assert f"does not place .bss.edgebuild.{section}: add *(.bss.*) beside *(.bss) there" in str(refused.value)
    assert "digits.state" not in str(refused.value)  # it has none
    right = old.read_text().replace("*(.bss)", "*(.bss) *(.bss.*)")
    line = ".arena (NOLOAD) : { *(.bss.edgebuild.*.arena*) } > RAM\n"
    assert right.count("  .bss :") == 1
    for text in (right, right.replace("  .bss :", f"  {line}  .bss :")):
        old.write_text(text)
        assert status(program(parts, tmp_path, "cubemx", *flags, file=old)) == 0


def test_the_check_lets_partial_links_pass(parts: Callable[[str], Path], tmp_path: Path) -> None:
    objects = sorted(parts("mps2-an386").glob("digits*.o"))
    assert any(o.name == "digits_check.ld.o" for o in objects)
    run("arm-none-eabi-ld", "-r", *objects, "-o", tmp_path / "all.o")
    assert ".bss.edgebuild.digits.arena" in run("readelf", "-SW", tmp_path / "all.o")


def test_the_lists_of_a_dma_unit_are_checked_too(tmp_path: Path) -> None:
    """Where the linker puts them, a heap lies over them: a copy of a tile wrote into it."""
    publish(compile_model(model_request(DIGITS / "digits.onnx", "digits", "stm32h743", {"map": "layer"})), tmp_path)
    (tmp_path / "main.c").write_text(
        '#include "digits.h"\nvoid Reset_Handler(void) { digits_invoke(); }\nint _write, _sbrk;\n'
    )
    tools, include = load_target("stm32h743").toolchain, f"-I{hal_dir() / 'include'}"
    sources = [
        "main.c",
        "digits.c",
        "digits_weights.S",
        str(hal_dir() / "src" / "dma_mdma.c"),
        str(hal_dir() / "src" / "cache_armv7m.c"),
    ]
    text = (HERE / "cubemx.ld").read_text().replace("*(.bss*)", "").replace("debug.ld", str(HERE / "debug.ld"))
    for here, placed in (("", False), (" *(.bss.*)", True)):
        (tmp_path / "own.ld").write_text(text.replace("*(.bss)", f"*(.bss){here}"))
        command = [tools.compiler, *tools.cflags, include, "-I.", "-nostartfiles", *sources, "digits_check.ld"]
        done = subprocess.run([*command, "-Town.ld", "-o", "p.elf"], cwd=tmp_path, capture_output=True, text=True)
        assert ("does not place .bss.edgebuild.lists: add *(.bss.*)" in done.stderr) is not placed, done.stderr
        assert (done.returncode == 0) is placed, done.stderr


CMAKE = """\
cmake_minimum_required(VERSION 3.20)
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_C_FLAGS "{flags}")
project(app LANGUAGES C)
find_package(EdgeBuild REQUIRED)
add_model(digits MODEL {model} TARGET mps2-an386)
add_library(features STATIC features.c)
target_link_libraries(features PRIVATE digits)
add_executable(app main.c)
target_link_libraries(app PRIVATE features)
target_link_options(app PRIVATE -nostartfiles --specs=nano.specs -T${{CMAKE_SOURCE_DIR}}/board.ld)
"""
SCONS = """\
env = Environment(tools=["default", "edgebuild"], toolpath=[{toolpath!r}], CC="arm-none-eabi-gcc", LINK="$CC")
env.Replace(CCFLAGS="{flags}".split(), AR="arm-none-eabi-ar", RANLIB="arm-none-eabi-ranlib", PROGSUFFIX="")
env.Replace(LINKFLAGS=["$CCFLAGS", "-nostartfiles", "--specs=nano.specs", "-Tboard.ld"])
features = env.StaticLibrary("features", ["features.c", env.Model("digits", {model!r}, TARGET="mps2-an386")])
env.Program("app", ["main.c", features])
"""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("tool", ["scons", "Ninja", "Unix Makefiles"])
def test_doors_check_the_script_of_a_project(tool: str, tmp_path: Path) -> None:
    """The model is in a library, and the program has a script that start-up and heap of a vendor know."""
    (tmp_path / "features.c").write_text('#include "digits.h"\nvoid go(void) { digits_invoke(); }\n')
    (tmp_path / "main.c").write_text("void go(void);\nvoid Reset_Handler(void) { go(); }\nint _write, _sbrk;\n")
    flags = " ".join(COMPILERS["mps2-an386"][1:-1])
    words = {"flags": flags, "model": str(DIGITS / "digits.onnx"), "toolpath": str(SITE_TOOLS)}
    name, text = ("SConstruct", SCONS) if tool == "scons" else ("CMakeLists.txt", CMAKE)
    (tmp_path / name).write_text(text.format(**words))
    script = (HERE / "cubemx.ld").read_text().replace("*(.bss*)", "")
    script = script.replace("debug.ld", str(HERE / "debug.ld"))
    (tmp_path / "board.ld").write_text(script)
    build: tuple[str | Path, ...] = (sys.executable, "-m", "SCons", "-Q")
    if tool != "scons":
        run("cmake", "-G", tool, "-B", "build", f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}",
            f"-DEDGEBUILD_PYTHON={sys.executable}", cwd=tmp_path)  # fmt: skip
        build = ("cmake", "--build", "build")
    with pytest.raises(AssertionError, match=r"does not place \.bss\.edgebuild\.digits\.arena: add"):
        run(*build, cwd=tmp_path)
    (tmp_path / "board.ld").write_text(script.replace("*(.bss)", "*(.bss) *(.bss.*)"))
    run(*build, cwd=tmp_path)
    nothing = run(*build, cwd=tmp_path)
    assert "Link" not in nothing and " -o " not in nothing


@pytest.mark.needs("ld.lld")
@pytest.mark.parametrize("flags", [["-fPIC"], ["-fuse-ld=lld"], HOOKS])
@pytest.mark.parametrize("name", COMPILERS)
def test_own_script_under_other_flags_and_another_linker(name: str, flags: list[str], tmp_path: Path) -> None:
    """Start-up under -fPIC read addresses of variables before it had copied them; lld refused the script."""
    (tmp_path / "ld.lld").symlink_to(str(shutil.which("ld.lld")))  # gcc for other machines looks for it here
    tools = (target := load_target(name)).toolchain
    relax = ("-mno-relax",) if name == "riscv-virt" else ()  # version 14 of lld cannot
    ldflags = (*tools.ldflags, f"-B{tmp_path}", *flags)
    target = replace(target, toolchain=replace(tools, cflags=(*tools.cflags, *flags, *relax), ldflags=ldflags))
    artifacts = compile_model(model_request(DIGITS / "digits.onnx", "model", name, {}))
    assert verify(DIGITS / "digits.onnx", target, artifacts)["equal"]


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
