"""The CMake package: firmware, how it is found, what it says."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from edgebuild.doors import cmake_dir, write_cmake_module
from tests.conftest import ROOT, run
from tests.doors.projects import CMAKELISTS, DIGITS, MAIN_C

pytestmark = pytest.mark.needs("cmake", "ninja", "gcc")


def project(folder: Path, text: str, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(DIGITS / "digits.onnx", folder)
    for name, content in {"CMakeLists.txt": text, "main.c": MAIN_C, **files}.items():
        (folder / name).write_text(content)
    return folder


def configure(folder: Path, *arguments: str, status: int = 0, env: dict[str, str] | None = None) -> str:
    command = ["cmake", "-G", "Ninja", "-S", ".", "-B", "build", "-Werror=dev", *arguments]
    # CMake breaks the lines of its messages; for comparing, a message is one line.
    return " ".join(run(*command, cwd=folder, status=status, env=env).split())


HERE = f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}"


@pytest.mark.parametrize(
    ("toolchain", "programs"),
    [
        pytest.param(t, p, marks=pytest.mark.needs(*p))
        for t, p in [
            ("arm-none-eabi", ("arm-none-eabi-gcc", "qemu-system-arm")),
            ("riscv", ("riscv64-unknown-elf-gcc", "qemu-system-riscv32")),
        ]
    ],
)
def test_sample_runs_on_bare_processors(tmp_path: Path, toolchain: str, programs: tuple[str, ...]) -> None:
    file = cmake_dir() / f"toolchain-{toolchain}.cmake"
    run("cmake", "-G", "Ninja", "-S", DIGITS, "-B", tmp_path / "a b", HERE, f"-DCMAKE_TOOLCHAIN_FILE={file}")
    output = run("cmake", "--build", tmp_path / "a b", "--target", "run_digits.elf")
    for digit in range(10):
        assert f"digit {digit}: seen {digit} " in output
    assert "no work to do" in run("cmake", "--build", tmp_path / "a b")


def test_the_package_is_located_in_spite_of_a_find_root(tmp_path: Path) -> None:
    """A toolchain file that lets packages come from the target's root only, and a module that the project keeps."""
    text = CMAKELISTS.format(options=" TARGET host")
    text = text.replace("find_package", "list(APPEND CMAKE_MODULE_PATH ${CMAKE_SOURCE_DIR})\nfind_package", 1)
    toolchain = """
        set(CMAKE_SYSTEM_NAME Generic)
        set(CMAKE_C_COMPILER gcc)
        set(CMAKE_FIND_ROOT_PATH /nowhere)
        set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
    """
    folder = project(tmp_path, text, **{"toolchain.cmake": toolchain})
    assert "EdgeBuild" in configure(folder, "-DCMAKE_TOOLCHAIN_FILE=toolchain.cmake", status=1)
    write_cmake_module(folder)
    configure(folder, "-DCMAKE_TOOLCHAIN_FILE=toolchain.cmake", env={"VIRTUAL_ENV": sys.prefix})
    run("cmake", "--build", "build", "--target", "digits", cwd=folder)


def test_module_finds_the_command_on_path(tmp_path: Path) -> None:
    text = CMAKELISTS.replace("EdgeBuild REQUIRED", "EdgeBuild 0.1 REQUIRED MODULE").format(options="")
    folder = project(tmp_path, text)
    write_cmake_module(folder)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "edgebuild").symlink_to(Path(sys.prefix) / "bin" / "edgebuild")
    path = {"PATH": f"{tmp_path / 'bin'}:/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": ""}
    output = configure(folder, "-DCMAKE_MODULE_PATH=" + str(folder), env=path)
    assert "Found EdgeBuild" in output


def test_module_finds_a_checkout(tmp_path: Path) -> None:
    folder = project(tmp_path, CMAKELISTS.replace("REQUIRED", "REQUIRED MODULE").format(options=""))
    write_cmake_module(folder)
    path = {"PATH": "/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": "", "EdgeBuild_ROOT": sys.prefix}
    assert "Found EdgeBuild" in configure(folder, "-DCMAKE_MODULE_PATH=" + str(folder), env=path)


def test_module_says_when_there_is_nothing(tmp_path: Path) -> None:
    folder = project(tmp_path, CMAKELISTS.replace("REQUIRED", "REQUIRED MODULE").format(options=""))
    write_cmake_module(folder)
    path = {"PATH": "/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": ""}
    output = configure(folder, "-DCMAKE_MODULE_PATH=" + str(folder), env=path, status=1)
    assert "no Python environment has edgebuild (try: pip install edgebuild)" in output


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("MODEL digits.onnx", "MODEL digits.onnx RAMM 1", "edgebuild_add_model(digits): unknown argument 'RAMM'"),
        ("MODEL digits.onnx", "MODEL digts.onnx", "no such file: "),
        ("MODEL digits.onnx", "", "edgebuild_add_model(digits): MODEL is missing"),
        ("MODEL digits.onnx", "MODEL digits.onnx RAM", "edgebuild_add_model(digits): no value given for RAM"),
        ("MODEL digits.onnx", "MODEL digits.onnx NAME 1st", "the name must be a C identifier; give one with NAME"),
        ("add_executable", "edgebuild_add_model(b MODEL digits.onnx NAME digits)\nadd_executable", "the name is taken"),
        ("add_executable", "edgebuild_add_model(b MODEL digits.onnx NAME Digits)\nadd_executable", "the name is taken"),
        ("add_executable", "add_model(digits MODEL digits.onnx)\nadd_executable", "there is a target of this name"),
        ("EdgeBuild REQUIRED", "EdgeBuild 9.9 REQUIRED", "version: 0.1.0"),
        ("add_executable(app main.c)", "add_executable(app main.c)\nedgebuild_firmware(app)", "no bare target"),
    ],
)
def test_wrong_scripts(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = CMAKELISTS.replace(old, new, 1).format(options="")
    output = configure(project(tmp_path, text), HERE, status=1)
    assert message in output
    assert "CMakeLists.txt:" in output  # the line of the call


def test_short_names_can_be_off(tmp_path: Path) -> None:
    text = CMAKELISTS.replace("find_package", "set(EDGEBUILD_NO_SHORT_NAMES ON)\nfind_package")
    assert 'Unknown CMake command "add_model"' in configure(project(tmp_path, text.format(options="")), HERE, status=1)


def test_many_models_in_one_library(tmp_path: Path) -> None:
    text = """
        cmake_minimum_required(VERSION 3.20)
        project(app LANGUAGES C)
        find_package(EdgeBuild REQUIRED)
        add_models(networks MODELS digits.onnx two-digits.onnx TARGET board.yaml)
        add_executable(app main.c)
        target_link_libraries(app PRIVATE edgebuild::networks)
    """
    main = '#include "two_digits.h"\n' + MAIN_C.replace("digits_invoke();", "digits_invoke(); two_digits_invoke();")
    board = "inherits: host\ndescription: a board of the project\n"
    folder = project(tmp_path, text, **{"main.c": main, "board.yaml": board})
    shutil.copy(folder / "digits.onnx", folder / "two-digits.onnx")
    configure(folder, HERE)
    run("cmake", "--build", "build", cwd=folder)
    run(folder / "build" / "app")
    # The target's file was read, so a change of it counts; what it says is the same, so nothing is compiled.
    (folder / "board.yaml").write_text(board + "# a comment\n")
    output = run("cmake", "--build", "build", cwd=folder)
    assert output.count("Generating") == 2 and "Building" not in output
    assert "no work to do" in run("cmake", "--build", "build", cwd=folder)


def test_compile_commands_before_the_first_build(tmp_path: Path) -> None:
    folder = project(tmp_path / "a [b]", CMAKELISTS.format(options=""))  # CMake quotes texts in brackets
    configure(folder, HERE, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DEDGEBUILD_PROGRESS=ON")
    assert "digits.c" in (folder / "build" / "compile_commands.json").read_text()
    rules = (folder / "build" / "build.ninja").read_text().split("\n\n")
    assert sum("pool = console" in r and "Generating digits" in r for r in rules) == 1  # shows what a search is at


def test_programs_compile_before_the_plan(tmp_path: Path) -> None:
    """Ninja's log: the program's object was done before the model's rule; one that asks for the arena waits for it."""
    text = CMAKELISTS.format(options="") + "add_executable(sized sized.c)\ntarget_link_libraries(sized digits_arena)\n"
    sized = '#include "digits_arena.h"\nchar room[DIGITS_ARENA_BYTES];\nint main(void) { return 0; }\n'
    folder = project(tmp_path, text, **{"sized.c": sized})
    configure(folder, HERE)
    run("cmake", "--build", "build", "-j2", cwd=folder, env={"EDGEBUILD_CACHE": ""})
    rows = [line.split("\t") for line in (folder / "build" / ".ninja_log").read_text().splitlines()[1:]]
    ends = {row[3]: int(row[1]) for row in rows}
    assert ends["CMakeFiles/app.dir/main.c.o"] < ends["edgebuild/digits/digits.stamp"]
    assert "no work to do" in run("cmake", "--build", "build", cwd=folder)
