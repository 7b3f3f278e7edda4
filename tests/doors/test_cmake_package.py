"""Ways in which a CMake project gets the package: the checkout as a part of it, components, and wrong Pythons."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, run
from tests.doors.projects import DIGITS, MAIN_C

PACKAGE = ROOT / "edgebuild" / "build" / "cmake"
HEAD = "cmake_minimum_required(VERSION 3.20)\nproject(app LANGUAGES C)\n"
PARTS = {
    "subdirectory": "add_subdirectory({root} edgebuild)\n",
    "fetch": "include(FetchContent)\nFetchContent_Declare(edgebuild SOURCE_DIR {root})\n"
    "FetchContent_MakeAvailable(edgebuild)\nadd_subdirectory(inner)\n",
}
BODY = """\
find_package(EdgeBuild REQUIRED COMPONENTS models OPTIONAL_COMPONENTS none)
add_model(digits MODEL digits.onnx)
add_executable(app main.c)
target_link_libraries(app PRIVATE digits)
if(NOT EdgeBuild_models_FOUND OR EdgeBuild_none_FOUND)
  message(FATAL_ERROR "components")
endif()
"""
pytestmark = pytest.mark.needs("cmake", "ninja", "gcc")


def project(folder: Path, text: str, inner: str = "") -> Path:
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "CMakeLists.txt").write_text(inner)
    shutil.copy(DIGITS / "digits.onnx", folder)
    (folder / "main.c").write_text(MAIN_C)
    (folder / "CMakeLists.txt").write_text(text)
    return folder


def configure(folder: Path, *arguments: str, status: int = 0, path: Path | None = None) -> str:
    """With the line breaks of CMake's messages taken out."""
    env = {"PATH": f"{path}:{os.environ['PATH']}"} if path else None
    text = run("cmake", "-Werror=dev", "-G", "Ninja", "-B", "build", *arguments, cwd=folder, env=env, status=status)
    return " ".join(text.split())


@pytest.mark.parametrize("part", PARTS)
def test_the_checkout_is_a_part_of_the_project(part: str, tmp_path: Path) -> None:
    """Its functions work in all folders, and find_package finds the same."""
    inner = "add_executable(second ../main.c)\ntarget_link_libraries(second PRIVATE inner)\n"
    inner = f"add_model(inner NAME digits MODEL ../digits.onnx)\n{inner}"
    folder = project(tmp_path / "a b", HEAD + PARTS[part].format(root=ROOT) + BODY, inner)
    configure(folder)
    run("cmake", "--build", "build", cwd=folder)
    run(folder / "build" / "app")
    assert "no work to do" in run("cmake", "--build", "build", cwd=folder)


def test_the_checkout_alone_is_no_project(tmp_path: Path) -> None:
    output = configure(tmp_path, "-S", str(ROOT), status=1)
    assert "edgebuild is a part of other projects: give this folder to add_subdirectory" in output


@pytest.mark.parametrize("works", [True, False])
def test_an_environment_is_created_where_there_is_none(works: bool, tmp_path: Path) -> None:
    """With the first Python of PATH, and once; with a sentence where that fails or is forbidden."""
    checkout, programs = tmp_path / "checkout", tmp_path / "programs"
    checkout.mkdir()
    programs.mkdir()
    for name in ("CMakeLists.txt", "pyproject.toml", "edgebuild"):
        (checkout / name).symlink_to(ROOT / name)
    environment = f'#!/bin/sh\n[ "$2" = pip ] && exit {0 if works else 1}\nexec "{sys.executable}" "$@"\n'
    (tmp_path / "made").write_text(environment)
    python = f'#!/bin/sh\n[ "$1" = -c ] && exit 0\necho made >>"{tmp_path}/log"\nmkdir -p "$4/bin"\n'
    (programs / "python3").write_text(f'{python}cp "{tmp_path}/made" "$4/bin/python3"\nchmod +x "$4/bin/python3"\n')
    (programs / "python3").chmod(0o755)
    folder = project(tmp_path / "app", HEAD + PARTS["subdirectory"].format(root=checkout) + BODY)
    off = configure(folder, "-DEDGEBUILD_MAKE_ENVIRONMENT=OFF", path=programs, status=1)
    assert "none may be made: run ./sconsw -h in" in off and not (tmp_path / "log").exists()
    on = ["-DEDGEBUILD_MAKE_ENVIRONMENT=ON"]
    if works:
        for _ in range(2):
            configure(folder, *on, path=programs)
        assert (tmp_path / "log").read_text() == "made\n"
    else:
        output = configure(folder, *on, path=programs, status=1)
        assert "pip could not make an environment, see above: run ./sconsw -h in" in output


NO_PACKAGE = '#!/bin/sh\nexec "{0}" -S "$@"\n'


@pytest.mark.parametrize(
    ("variable", "python", "text"),
    [
        ("EdgeBuild_DIR", NO_PACKAGE, "EDGEBUILD_PYTHON={} has no edgebuild"),
        ("CMAKE_MODULE_PATH", NO_PACKAGE, "EDGEBUILD_PYTHON={} has no edgebuild"),
        ("EdgeBuild_DIR", "#!/bin/sh\necho 0.0.1\n", "has edgebuild 0.0.1, and this CMake package is that of"),
    ],
)
def test_a_python_without_this_edgebuild_is_an_error(variable: str, python: str, text: str, tmp_path: Path) -> None:
    (file := tmp_path / "python").write_text(python.format(sys.executable))
    file.chmod(0o755)
    folder = project(tmp_path / "app", HEAD + BODY)
    output = configure(folder, f"-D{variable}={PACKAGE}", f"-DEDGEBUILD_PYTHON={file}", status=1)
    assert text.format(file) in " ".join(output.split())
    assert variable != "EdgeBuild_DIR" or "CMake Error at CMakeLists.txt:3 (find_package)" in output


@pytest.mark.parametrize("variable", ["EdgeBuild_DIR", "CMAKE_MODULE_PATH"])
def test_an_unknown_component_is_an_error(variable: str, tmp_path: Path) -> None:
    folder = project(tmp_path / "app", HEAD + BODY.replace("COMPONENTS models", "COMPONENTS models drivres", 1))
    python = f"-DEDGEBUILD_PYTHON={sys.executable}"
    output = configure(folder, f"-D{variable}={PACKAGE}", python, status=1)
    assert "there is no component 'drivres' among models drivers clocks" in output
