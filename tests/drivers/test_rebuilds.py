"""Drivers in a build: what is done again when a file changes, and above all what is not, through both doors."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT, run

pytestmark = pytest.mark.needs("riscv64-unknown-elf-gcc", "cmake", "ninja", "make")
FILES = {
    "pad.h": "bfGroup Pad { bit a; bit b; };\nmake_device(Pad, pad, 0x1A101000);\n",
    "pads.bf.c": '#include "pad.h"\nvoid on(void) { pad->a = 1; pad->b = 1; }\n',
    "other.bf.c": "bfGroup O { bit a; };\nmake_device(O, o, 0x1A102000);\nvoid off(void) { o->a = 0; }\n",
    "blink.bf.cpp": """#include "board.h"
bfGroup Led { bit on; uint3 level; };
make_device(Led, led, BOARD_LED);
class Blink { public: void set(int level) { led->on = 1; led->level = level + LEVEL; } };
extern "C" void blink(void) { Blink b; b.set(2); }
""",
    "port.bf.c": """bfGroup Ctrl { bit EN; uint4 MODE; };
bfGroup Port { bfGroup Ctrl CTRL; };
make_device(Port, port, 0x1A105000);
void port_open(void) { port->CTRL.EN = 1; }
""",
    "chip.rdl": '`include "ctrl.rdl"\naddrmap chip { addrmap { ctrl CTRL @ 0; } PORT @ 0x1A105000; };\n',
    "ctrl.rdl": "reg ctrl { field { sw = rw; hw = r; } EN[0:0] = 0; field { sw = rw; hw = r; } MODE[4:1] = 0; };\n",
    "vendor/board.h": "#define BOARD_LED 0x1A103000\n",
    "calls.yaml": "functions: {off: 5}\n",
    "main.c": "void on(void); void off(void); void blink(void); void port_open(void);\n"
    "int main(void) { on(); off(); blink(); port_open(); return 0; }\n",
    "SConstruct": """import os
tools = "../package/edgebuild/build/scons/site_tools"
env = Environment(tools=["default", "edgebuild"], ENV=os.environ, toolpath=[tools])
env.EdgeBuildTarget("pulpino")
env.Append(CCFLAGS=["-g"])
SConscript("SConscript", "env", variant_dir="build", duplicate=False)
""",
    "SConscript": """Import("env")
other = env.BfDriver("other", "other.bf.c", PROFILE="calls.yaml")
blink = env.Clone()
blink.Append(CPPPATH="vendor", CPPDEFINES={"LEVEL": 3})
port = env.BfDriver("port", "port.bf.c", LAYOUT="fixed:chip.rdl")
env.Program("app", ["main.c", port, blink.BfDriver("blink", "blink.bf.cpp"), env.BfDriver("pads", "pads.bf.c"), other])
""",
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES C CXX)
add_compile_options(-g)
add_compile_definitions($<$<COMPILE_LANGUAGE:C>:IN_C> $<$<COMPILE_LANGUAGE:CXX>:IN_CPP>)
find_package(EdgeBuild REQUIRED)
add_bf_driver(pads SOURCES pads.bf.c)
add_bf_driver(other SOURCES other.bf.c PROFILE calls.yaml)
add_bf_driver(blink SOURCES blink.bf.cpp FOR app)
add_bf_driver(port SOURCES port.bf.c LAYOUT fixed:chip.rdl)
add_executable(app main.c)
target_include_directories(app PRIVATE vendor)
target_compile_definitions(app PRIVATE LEVEL=3)
target_link_libraries(app PRIVATE pads other blink port)
edgebuild_firmware(app)
""",
}


@dataclass(frozen=True)
class Built:
    """Record of one build: the drivers that were generated, the C files that were compiled."""

    drivers: set[str]
    compiled: set[str]
    output: str


@dataclass(frozen=True)
class Project:
    """Beside it lies a copy of the package, since a change of its code is a reason to build, too."""

    folder: Path
    tool: str

    def build(self, libclang: bool = True, fails: bool = False) -> Built:
        """Without `libclang`, whoever imports its Python package fails."""
        status = (1 if self.tool == "Ninja" else 2) if fails else 0
        poison = self.folder.parent / "poison"
        (poison / "clang").mkdir(parents=True, exist_ok=True)
        (poison / "clang" / "__init__.py").write_text("raise RuntimeError('libclang was asked for')\n")
        package = self.folder.parent / "package"
        path = [*([] if libclang else [str(poison)]), str(package)]
        env = {"PYTHONPATH": os.pathsep.join(path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        if self.tool == "scons":
            output = run(sys.executable, "-m", "SCons", "-Q", cwd=self.folder, env=env, status=status)
        else:
            if not (self.folder / "build").exists():
                toolchain = f"-DCMAKE_TOOLCHAIN_FILE={package}/edgebuild/build/cmake/toolchain-riscv.cmake"
                places = [f"-DEdgeBuild_DIR={package}/edgebuild/build/cmake", f"-DEDGEBUILD_PYTHON={sys.executable}"]
                command = ["cmake", "-G", self.tool, "-B", "build", toolchain, "-DEDGEBUILD_TARGET=pulpino", *places]
                run(*command, cwd=self.folder, env=env)
            output = run("cmake", "--build", "build", cwd=self.folder, env=env, status=status)
        generated = re.findall(r"^\[edgebuild\] driver (\w+) ->", output, re.M)
        compiled = re.findall(r" -c (?:[-@]\S+ )*(\S+\.c(?:pp)?)\b|Building C\w* object \S*?(\w+\.c(?:pp)?)\.o", output)
        return Built(set(generated), {Path(a or b).name for a, b in compiled}, output)

    def edit(self, file: str, old: str, new: str) -> None:
        text = (self.folder / file).read_text()
        assert old in text
        (self.folder / file).write_text(text.replace(old, new))

    def product(self, name: str) -> str:
        return (self.folder / "build" / "edgebuild" / "pads" / name).read_text()


@pytest.fixture(scope="module", params=["scons", "Ninja", "Unix Makefiles"])
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Built once, then in the state in which the test before left it: up to date."""
    sample = Project(tmp_path_factory.mktemp("drivers") / "project", request.param)
    sample.folder.mkdir()
    for part in ("edgebuild", "hal"):
        shutil.copytree(
            ROOT / part, sample.folder.parent / "package" / part, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name, text in FILES.items():
        (sample.folder / name).parent.mkdir(exist_ok=True)
        (sample.folder / name).write_text(text)
    built = sample.build()
    assert (
        built.drivers == {"pads", "other", "blink", "port"}
        and {"pads.c", "other.c", "blink.cpp", "port.c", "main.c"} <= built.compiled
    ), built.output
    return sample


def nothing(project: Project) -> bool:
    built = project.build(libclang=False)
    return not built.drivers and not built.compiled


@pytest.mark.one_in(3)
def test_null_build_starts_no_libclang(project: Project) -> None:
    assert nothing(project)
    for file in ("pads.bf.c", "pad.h"):
        os.utime(project.folder / file)
    assert nothing(project)


@pytest.mark.one_in(3)
def test_comment_compiles_its_driver_alone(project: Project) -> None:
    project.edit("pads.bf.c", "{ pad", "{ /* both */ pad")
    failed = project.build(libclang=False, fails=True)
    assert "libclang was asked for" in failed.output and not failed.compiled  # the poison works
    built = project.build()
    assert (built.drivers, built.compiled) == ({"pads"}, {"pads.c"}), built.output
    assert "/* both */" in project.product("pads.c")
    assert nothing(project)


@pytest.mark.one_in(3)
def test_header_of_groups_makes_its_drivers_again(project: Project) -> None:
    project.edit("pad.h", "bit b;", "bit b; uint8 c;")
    built = project.build()
    assert (built.drivers, built.compiled) == ({"pads"}, {"pads.c"}), built.output
    assert "PADS_PAD_C_WIDTH 8u" in project.product("pads_regs.h")
    assert nothing(project)


def test_profile_is_read_again(project: Project) -> None:
    project.edit("calls.yaml", "5", "7")
    built = project.build()
    assert (built.drivers, built.compiled) == ({"other"}, set()), built.output  # the layout is the same
    assert nothing(project)


@pytest.mark.one_in(3)
def test_overlay_that_comes_later_counts(project: Project) -> None:
    """A build says what an overlay could tell. One written then was not looked at until the source changed."""
    overlay = project.folder / "chip.overlay.yaml"
    overlay.write_text("fields: {PORT.CTRL.MODE: {plain: true}}\n")
    assert project.build().drivers == {"port"}
    assert nothing(project)
    overlay.unlink()
    assert project.build().drivers == {"port"}
    assert nothing(project)


def test_what_a_register_description_includes_is_read_again(project: Project) -> None:
    project.edit("ctrl.rdl", "[4:1]", "[5:2]")
    assert project.build().drivers == {"port"}
    assert "PORT_CTRL_MODE_SHIFT 2u" in (project.folder / "build/edgebuild/port/port_regs.h").read_text()
    assert nothing(project)


@pytest.mark.needs("gdb-multiarch")
def test_debuggers_find_the_source(project: Project) -> None:
    """From another folder, without a word of where the source is."""
    names = ("pads.o", "pads.c.o", "pads.c.obj")
    object_file = next(f for f in (project.folder / "build").rglob("*.o*") if f.name in names)
    output = run(
        "gdb-multiarch", "-nx", "-batch", "-ex", "list pads.bf.c:2,2", str(object_file), cwd=project.folder.parent
    )
    assert "void on(void)" in output, output


@pytest.mark.one_in(3)
def test_definitions_of_the_target_reach_the_driver(project: Project) -> None:
    text = (project.folder / "build" / "edgebuild" / "blink" / "blink.cpp").read_text()
    assert (
        "board.h" in text
        and "0x1A103000" in (project.folder / "build" / "edgebuild" / "blink" / "blink_regs.h").read_text()
    )
    flags = (project.folder / "build" / "edgebuild" / "blink" / "blink.flags").read_text()
    if project.tool != "scons":  # those of its own language
        assert "-DIN_CPP" in flags.splitlines() and "-DIN_C" not in flags.splitlines()
    assert "-DLEVEL=3" in flags.splitlines() and re.search("^-I.*vendor$", flags, re.M)
    project.edit("vendor/board.h", "0x1A103000", "0x1A104000")
    built = project.build()
    assert built.drivers == {"blink"}, built.output
    file = "SConscript" if project.tool == "scons" else "CMakeLists.txt"
    project.edit(file, '"LEVEL": 3' if project.tool == "scons" else "LEVEL=3",
                 '"LEVEL": 4' if project.tool == "scons" else "LEVEL=4")  # fmt: skip
    built = project.build()
    assert "blink" in built.drivers, built.output
    assert nothing(project)


def test_mistake_leaves_what_was_there(project: Project) -> None:
    before = project.product("pads.c")
    project.edit("pads.bf.c", "pad->b = 1", "pad->x = 1")
    built = project.build(fails=True)
    assert re.search(r"pads\.bf\.c:2:\d+: error: no member named 'x'", built.output)
    assert project.product("pads.c") == before
    project.edit("pads.bf.c", "pad->x = 1", "pad->b = 1")
    project.build()
    assert nothing(project)


@pytest.mark.one_in(3)
def test_compilers_name_files_that_exist(project: Project) -> None:
    """`__FILE__` has no folder, so that products are the same everywhere."""
    check = '#ifdef EB_FILE_pads_bf_c\n_Static_assert(sizeof __FILE__ == sizeof "pads.bf.c", "");\n#endif\n'
    added = f"#warning here\n{check}"
    project.edit("pads.bf.c", "void on", f"{added}void on")
    output = project.build().output
    (place,) = set(re.findall(r"^(\S[^:\n]*):(\d+):\d+: warning: #warning", output, re.M))
    assert Path(place[0]).read_text().splitlines()[int(place[1]) - 1] == "#warning here"
    project.edit("pads.bf.c", added, "")
    project.build()
