"""Builds of both doors: what is done again, and above all what is not."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest

from edgebuild.base.request import model_outputs
from tests.conftest import ROOT, run
from tests.doors.projects import Project, scons

pytestmark = pytest.mark.needs("cmake", "ninja", "make", "gcc")

LED = """\
bfGroup Led { bit on; uint8 level; };
make_device(Led, led, PLACE);
void light(void) { led->on = 1; }
"""


@pytest.fixture(scope="module", params=["scons", "Ninja", "Unix Makefiles"])
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Built once, then in the state in which the test before left it: up to date."""
    built = Project(tmp_path_factory.mktemp("doors") / "sp ace" / "project", request.param)
    first = built.build()
    assert (first.headers, first.starts, first.compiles, first.links) == (1, 1, 4, 1), first.output
    return built


def nothing(project: Project) -> bool:
    built = project.build()
    return (built.headers, built.starts, built.compiles, built.links) == (0, 0, 0, 0)


def test_second_build_starts_nothing(project: Project) -> None:
    assert nothing(project)


def test_a_depfile_has_few_lines(project: Project) -> None:
    """One file of it stands for the code of edgebuild, so it does not grow with that."""
    depfile = (project.products / "digits.d").read_text()
    assert len(depfile.splitlines()) <= 4 and "digits.onnx" in depfile


def test_all_products_are_there(project: Project) -> None:
    assert set(project.generated()) == {*model_outputs("digits"), "digits.req.json"}


def test_new_date_of_the_model_compiles_nothing(project: Project) -> None:
    os.utime(project.model)
    built = project.build()
    assert built.starts == (0 if project.tool == "scons" else 1)  # SCons compares bytes by itself
    assert built.compiles == built.links == 0
    assert nothing(project)


@pytest.mark.one_in(3)
def test_changed_option_makes_the_model_again(project: Project) -> None:
    before = project.generated()
    project.write(RAM="20K")
    built = project.build()
    assert built.starts == 1
    assert project.generated() != before
    assert nothing(project)
    project.write()
    assert project.build().starts == 1
    assert project.generated() == before
    assert nothing(project)


@pytest.mark.one_in(3)
def test_other_weights_compile_nothing_but_weights(project: Project) -> None:
    before, model = project.generated(), project.model.read_bytes()
    network = onnx.load_from_string(model)
    largest = max(network.graph.initializer, key=lambda t: len(t.raw_data))
    largest.raw_data = bytes(byte ^ 1 for byte in largest.raw_data)
    project.model.write_bytes(network.SerializeToString())
    built, after = project.build(), project.generated()
    # Both forms of weights are sources; and no folder is named that is not there.
    assert (built.headers, built.starts, built.compiles, built.links) == (1, 1, 2, 1), built.output
    assert " -Iedgebuild/" not in built.output
    changed = {n for n in after if after[n] != before[n]}
    assert changed == {"digits_weights.bin", "digits_weights.c", "digits_report.json"}
    project.model.write_bytes(model)
    project.build()
    assert project.generated() == before and nothing(project)


def test_sources_and_products_know_nothing_of_each_other(project: Project) -> None:
    """Nothing is written beside the sources, and no product has a path of this machine."""
    own = {".sconsign.dblite", "SConstruct", "SConscript"} if project.tool == "scons" else {"CMakeLists.txt"}
    assert {f.name for f in project.folder.iterdir()} == {"build", "digits.onnx", "main.c", *own}
    paths = [os.fsencode(path) for path in (project.folder, ROOT, Path.home())]
    assert not [n for n, data in project.generated().items() if any(path in data for path in paths)]


def test_deleted_product_comes_back(project: Project) -> None:
    before = project.generated()
    (project.products / "digits.c").unlink()
    assert project.build().starts == 1
    assert project.generated() == before
    assert nothing(project)


def test_deleted_folder_of_products_comes_back(project: Project) -> None:
    """With the request, which CMake alone writes."""
    before = project.generated()
    shutil.rmtree(project.products.parent)
    assert project.build().starts == 1
    assert project.generated() == before
    assert nothing(project)


def test_a_header_comes_back_alone(project: Project) -> None:
    before = project.generated()
    (project.products / "digits.h").unlink()
    assert project.build().headers == 1
    assert project.generated() == before
    assert nothing(project)


def test_broken_model_leaves_what_was_there(project: Project) -> None:
    before, model = project.generated(), project.model.read_bytes()
    project.model.write_bytes(b"this is no model")
    built = project.build(status=2 if project.tool != "Ninja" else 1)
    assert "digits.onnx" in built.output and "error: " in built.output
    assert "Traceback" not in built.output
    assert project.generated() == before
    project.model.write_bytes(model)
    project.build()
    assert project.generated() == before
    assert nothing(project)


def test_changed_linker_fragment_links_again(project: Project) -> None:
    fragment = project.products / "digits_memory.ld"
    if project.tool == "scons":
        pytest.skip("programs without EdgeBuildTarget have their own linker script")
    os.utime(fragment)
    built = project.build()
    assert (built.compiles, built.links) == (0, 1)


def test_reconfiguring_makes_nothing(project: Project) -> None:
    if project.tool == "scons":
        pytest.skip("SCons has no such step")
    project.configure()
    assert nothing(project)


def test_clean_removes_everything(project: Project) -> None:
    if project.tool == "scons":
        run(sys.executable, "-m", "SCons", "-Qc", cwd=project.folder)
        assert not [f for f in (project.folder / "build").rglob("*") if f.is_file()]
    else:
        run("cmake", "--build", "build", "--target", "clean", cwd=project.folder)
        assert not [f for f in project.products.rglob("*") if f.is_file()]


def test_both_doors_write_the_same_bytes(tmp_path: Path) -> None:
    one, two = (Project(tmp_path / tool / "project", tool) for tool in ("scons", "Ninja"))
    for project in (one, two):
        project.write(RAM="0x4000", OBJECTIVE="ram", WEIGHTS="asm")
        project.build()
    assert one.generated() == two.generated()


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_no_policy_of_any_cmake_is_warned_about(generator: str, tmp_path: Path) -> None:
    """A project may ask for the behaviour of the oldest CMake that serves, of the newest, and of a range of both."""
    for version in ("3.20", "3.25...4.99", ".".join(run("cmake", "--version").split()[2].split("-")[0].split(".")[:2])):
        project = Project(tmp_path / version / "project", generator)
        script = project.folder / "CMakeLists.txt"
        script.write_text(script.read_text().replace("VERSION 3.20", f"VERSION {version}"))
        output = project.configure("-Wdev", "-Wdeprecated", "-Werror=deprecated")
        assert "CMake Warning" not in output and "CMake Deprecation" not in output, output


def test_multi_config_generates_once(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "Ninja Multi-Config")
    assert project.build().starts == 1
    output = run("cmake", "--build", "build", "--config", "Release", cwd=project.folder)
    assert "Generating" not in output and "Release" in output


def test_a_null_build_under_make_looks_at_the_model_itself(tmp_path: Path) -> None:
    """No target of ours is run in each build: only libraries and the program, besides one look at a checkout's code."""
    project = Project(tmp_path / "project", "Unix Makefiles")
    project.build()
    plan = run("make", "-n", cwd=project.folder / "build")
    assert "edgebuild run" not in plan and " -P " not in plan


@pytest.mark.parametrize("tool", ["scons", "Ninja", "Unix Makefiles"])
def test_codegen_makes_what_editors_read_and_compiles_nothing(tool: str, tmp_path: Path) -> None:
    project = Project(tmp_path / "project", tool)
    if tool == "scons":
        output = scons(project.folder, "codegen")
    else:
        project.configure()
        output = run("cmake", "--build", "build", "--target", "codegen", cwd=project.folder)
    assert set(project.generated()) == {*model_outputs("digits"), "digits.req.json"}
    assert "Building C" not in output and " -c " not in output
    built = project.build()
    assert (built.starts, built.compiles, built.links) == (0, 4, 1)


ZEPHYR = """add_custom_command(OUTPUT marks.h DEPENDS marks.in COMMAND ${CMAKE_COMMAND} -E sleep 1
  COMMAND ${CMAKE_COMMAND} -E copy "${CMAKE_CURRENT_SOURCE_DIR}/marks.in" marks.h)
add_custom_target(marks DEPENDS marks.h)
add_library(zephyr_interface INTERFACE)
target_compile_options(zephyr_interface INTERFACE "SHELL:-imacros \\"${CMAKE_CURRENT_BINARY_DIR}/marks.h\\"")
add_dependencies(zephyr_interface marks)
set(CMAKE_BUILD_TYPE Release)
set(CMAKE_C_FLAGS "-DMORE='2>1'")
"""


@pytest.mark.one_in(3)
@pytest.mark.parametrize("tool", ["Ninja", "Unix Makefiles", "scons"])
def test_a_removed_include_is_no_missing_input(tool: str, tmp_path: Path) -> None:
    """A driver's header goes together with the line that includes it: old depfiles must not ask for it.

    What its options name is there for the compiler, too, and what the compiler's options include, for the driver. That
    may be a product, as headers of Zephyr are.
    """
    project = Project(tmp_path / "project", tool)
    (project.folder / "h h").mkdir()
    source, header = project.folder / "led.bf.c", project.folder / "h h" / "board.h"
    (project.folder / "all.h").write_text("#define ALL\n")
    (project.folder / "marks.in").write_text("#define MARKS 4\n")
    wanted = "defined FAST && defined ALL && SLOW == 1 && MARKS == 4 && defined NDEBUG && (MORE)"
    check = f"#if !({wanted})\n#error\n#endif\n"
    options = 'INCLUDE_DIRS="h h", DEFINES="FAST,SLOW=1", FORCE_INCLUDE="all.h"'
    scripts = {
        "scons": ("SConscript", '["main.c", ', f'["main.c", env.BfDriver("led", "led.bf.c", {options}), '),
        "cmake": ("CMakeLists.txt", "PRIVATE digits)", "PRIVATE digits led)"),
    }
    name, old, new = scripts["scons" if tool == "scons" else "cmake"]
    script = project.folder / name
    text = script.read_text().replace(old, new)
    words = options.replace('="', ' "').replace(", ", " ")
    call = f"{ZEPHYR}edgebuild_add_bf_driver(led SOURCES led.bf.c {words})\nadd_executable("
    text = text.replace("add_executable(", call)
    flags = "CCFLAGS=['-imacros', 'marks.in', '-DNDEBUG', '-DMORE=2>1']"
    script.write_text(text.replace("env.BfDriver(", f"env.Clone({flags}).BfDriver("))
    header.write_text("#define PLACE 0x40000000u\n")
    source.write_text('#include "board.h"\n' + check + LED)
    project.build()
    header.write_text("#define PLACE 0x40000004u\n")
    assert project.build().starts == 1  # it is an input indeed
    header.unlink()
    source.write_text("#define PLACE 0x40000000u\n" + check + LED)
    built = project.build()
    assert built.starts == 1 and built.links <= 1, built.output
    assert nothing(project)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("tool", ["scons", "Ninja", "Unix Makefiles"])
def test_an_interrupted_build_leaves_no_process_and_no_half_file(tool: str, tmp_path: Path) -> None:
    """Ctrl-C goes to the whole process group; the next build equals a clean one."""
    project, clean = (Project(tmp_path / name / "project", tool) for name in ("hit", "clean"))
    command = [sys.executable, "-m", "SCons", "-Q"]
    if tool != "scons":
        project.configure()
        command = ["cmake", "--build", "build"]
    environment = {**os.environ, "EDGEBUILD_CACHE": ""}  # a hit would end before the signal
    stopped = []
    for seconds in (0.3, 0.6, 0.9):
        build = subprocess.Popen(command, cwd=project.folder, start_new_session=True, env=environment)
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(build.pid, signal.SIGINT)
        stopped.append(build.wait(20) != 0)
        end = time.monotonic() + 5
        while session_lives(build.pid) and time.monotonic() < end:
            time.sleep(0.02)
        assert not session_lives(build.pid), f"a process outlives its build, stopped after {seconds} s"
    assert any(stopped)
    project.build()
    clean.build()
    assert project.generated() == clean.generated()
    assert not [f for f in project.products.iterdir() if f.name.startswith(".") or f.suffix == ".tmp"]
    assert nothing(project)


def session_lives(leader: int) -> bool:
    """A session, as Ninja gives each command a group of its own. A process that only waits for its parent has ended."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = stat.read_text().rsplit(")", 1)[1].split()[:4]
            if int(session) == leader and state != "Z":
                return True
    return False
