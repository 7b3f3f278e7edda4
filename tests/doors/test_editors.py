"""compile_commands.json tells editors how to read the sources of drivers, and clangd finds no errors in them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, run

FILES = {
    "pads.bf.c": """#include "board.h"
bfGroup Pads { bit out[4]; uint3 reset(5) mode; bit ro in; uint8 rse(self) data; bit w1c done; };
make_device(Pads, pads, BOARD_PADS);
bf_interrupt void pads_isr(void) { pads->done = 1; }
int on(int n) { bf_critical { pads->out[n] = 1; pads->mode = LEVEL; } return pads->in ? pads->data : -1; }
""",
    "blink.bf.cpp": """#include "board.h"
bfGroup Led { bit wo on; uint3 level; };
make_device(Led, led, BOARD_LED);
class Blink {
public:
    void set(int level) { led->on = 1; led->level = level + LEVEL; }
};
extern "C" void blink(void) { Blink b; b.set(2); }
""",
    "vendor/board.h": "#define BOARD_LED 0x1A103000\n#define BOARD_PADS 0x1A104000\n",
    "vendor/level.h": "#define LEVEL (ONE + 2)\n",
    "main.c": "int on(int); void blink(void);\nint main(void) { blink(); return on(1); }\n",
    "SConstruct": f"""import os
tools = {str(ROOT / "edgebuild/build/scons/site_tools")!r}
env = Environment(tools=["default", "edgebuild", "compilation_db"], ENV=os.environ, toolpath=[tools])
env.Append(CPPPATH="vendor", CPPDEFINES={{"LEVEL": 3}})
env.CompilationDatabase("build/compile_commands.json")
env.Program("app", ["main.c", env.BfDriver("blink", "blink.bf.cpp"), env.BfDriver("pads", "pads.bf.c")])
""",
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES C CXX)
find_package(EdgeBuild REQUIRED)
add_bf_driver(pads SOURCES pads.bf.c INCLUDE_DIRS vendor DEFINES ONE=1 FORCE_INCLUDE vendor/level.h)
add_bf_driver(blink SOURCES blink.bf.cpp FOR app)
add_executable(app main.c)
target_include_directories(app PRIVATE vendor)
target_compile_definitions(app PRIVATE LEVEL=3)
target_link_libraries(app PRIVATE pads blink)
""",
}


@pytest.mark.needs("cmake", "ninja", "g++", "clangd")
@pytest.mark.parametrize("door", ["scons", "cmake"])
def test_clangd_reads_the_sources(door: str, tmp_path: Path) -> None:
    """Before anything is built."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    if door == "scons":
        run(sys.executable, "-m", "SCons", "-Q", "build/compile_commands.json", cwd=tmp_path)
    else:
        package = f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}"
        run("cmake", "-G", "Ninja", "-B", "build", package, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", cwd=tmp_path)
    rows = json.loads((tmp_path / "build" / "compile_commands.json").read_text())
    files = {Path(row["file"]).name for row in rows}
    assert {"pads.bf.c", "blink.bf.cpp", "main.c"} <= files
    for name in ("pads.bf.c", "blink.bf.cpp"):
        command = ["clangd", f"--check={tmp_path / name}", f"--compile-commands-dir={tmp_path / 'build'}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        errors = [line for line in done.stderr.splitlines() if line.startswith("E[")]
        assert done.returncode == 0 and errors == [], errors
    assert not list(tmp_path.rglob("*.bf*.o"))


@pytest.mark.needs("cmake", "ninja", "g++")
def test_a_build_leaves_the_rows_alone(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    package = f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}"
    run("cmake", "-G", "Ninja", "-B", "build", package, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", cwd=tmp_path)
    output = run("cmake", "--build", "build", cwd=tmp_path)
    assert "_dialect" not in output and (tmp_path / "build" / "app").is_file()
