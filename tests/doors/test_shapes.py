"""CMake projects of other shapes: presets, subdirectories, object libraries, installed libraries, toolchains."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edgebuild.base.inputs import hal_dir
from edgebuild.doors import cmake_dir
from tests.conftest import ROOT, run
from tests.docs.pages import blocks
from tests.doors.projects import DIGITS
from tests.doors.test_linker_scripts import HERE as SCRIPTS
from tests.doors.test_linker_scripts import NAMES, SYMBOLS, status
from tests.doors.test_scons_shapes import other_weights
from tests.graphs import tiny_tflite

pytestmark = pytest.mark.needs("cmake", "ninja", "make", "gcc")
HERE = f"-DEdgeBuild_DIR={cmake_dir()}"
HEAD = """\
cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES C)
find_package(EdgeBuild REQUIRED)
"""
FIRST_SCORE = """\
#include "net.h"
int NAME(void) { net_input()[0] = 1; net_invoke(); return NET_OUTPUT_SIZE; }
"""


def write(folder: Path, **files: str) -> Path:
    """Files by name; `__` stands for `/`, and the model is `digits.onnx` everywhere."""
    for name, text in files.items():
        file = folder / name.replace("__", "/")
        file = file.with_name({"CMakeLists": "CMakeLists.txt"}.get(file.name, file.name + ".c"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        shutil.copy(DIGITS / "digits.onnx", file.parent)
        (file.parent / "tiny.tflite").write_bytes(tiny_tflite())
    return folder


def configure(folder: Path, *arguments: str, generator: str = "Ninja", status: int = 0) -> str:
    words = ["cmake", "-G", generator, "-S", ".", "-B", "build", "-Werror=dev", HERE, *arguments]
    return " ".join(run(*words, cwd=folder, status=status).split())


def build(folder: Path, *arguments: str) -> str:
    return run("cmake", "--build", "build", *arguments, cwd=folder)


ONE_NAME = {
    "one__CMakeLists": "add_model(one MODEL digits.onnx NAME net)\n",
    "two__CMakeLists": "add_model(two MODEL tiny.tflite NAME net)\n",
    "use_one": FIRST_SCORE.replace("NAME", "main"),
    "use_two": FIRST_SCORE.replace("NAME", "main"),
}


def test_two_models_of_one_name_in_two_programs(tmp_path: Path) -> None:
    """Each program gets its own: the number of scores is the exit status."""
    text = HEAD + (
        "add_subdirectory(one)\nadd_subdirectory(two)\n"
        "add_executable(a use_one.c)\ntarget_link_libraries(a PRIVATE one)\n"
        "add_executable(b use_two.c)\ntarget_link_libraries(b PRIVATE two)\n"
    )
    folder = write(tmp_path, CMakeLists=text, **ONE_NAME)
    configure(folder)
    build(folder)
    run(folder / "build" / "a", status=10)
    outputs = json.loads((folder / "build/two/edgebuild/net/net_report.json").read_text())["outputs"][0]["shape"]
    run(folder / "build" / "b", status=outputs[-1])


@pytest.mark.parametrize("together", [False, True])
def test_unity_build_of_two_models_and_a_driver(together: bool, tmp_path: Path) -> None:
    """Each generated source is a translation unit of its own, also in a library of the project that has them all."""
    sources = " ".join(f"${{B}}/{n}/{n}.c ${{B}}/{n}/{n}_weights.c" for n in ("one", "two"))
    text = HEAD + (
        "set(CMAKE_UNITY_BUILD ON)\nset(B ${CMAKE_CURRENT_BINARY_DIR}/edgebuild)\n"
        "add_model(one MODEL digits.onnx WEIGHTS c)\nadd_model(two MODEL digits.onnx WEIGHTS c TILE off)\n"
        "edgebuild_add_bf_driver(led SOURCES led.bf.c)\n"
        f"add_library(nets STATIC {sources} ${{B}}/led/led.c)\n"
        "target_include_directories(nets PUBLIC ${B}/one ${B}/two)\nadd_dependencies(nets one two led)\n"
        "add_executable(app main.c use.c)\n"
        f"target_link_libraries(app PRIVATE {'nets' if together else 'one two led'})\n"
    )
    led = "bfGroup Led { bit on; uint3 mode; };\nmake_device(Led, led, 0x40000000);\nvoid on(void) { led->on = 1; }\n"
    main = "int one(void);\nint main(void) { one_invoke(); return one() - (two_invoke(), 0); }\n"
    folder = write(
        tmp_path,
        CMakeLists=text,
        main=f'#include "one.h"\n#include "two.h"\n{main}',
        use='#include "one.h"\nvoid on(void);\nint one(void) { return one_output() == 0 || on == 0; }\n',
    )
    (folder / "led.bf.c").write_text(led)
    configure(folder)
    build(folder)
    run(folder / "build" / "app")


@pytest.mark.parametrize("between", ["", "PRIVATE", "PUBLIC"])
def test_two_models_of_one_name_in_one_program_are_an_error(between: str, tmp_path: Path) -> None:
    """The linker would take the functions of the first library for both. Also behind libraries in between."""
    text = HEAD + "add_subdirectory(one)\nadd_subdirectory(two)\nadd_executable(a use_one.c)\n"
    if between:
        for n in ("one", "two"):
            text += f"add_library(lib_{n} STATIC lib_{n}.c)\ntarget_link_libraries(lib_{n} {between} {n})\n"
        text += "target_link_libraries(a PRIVATE lib_one lib_two)\n"
    else:
        text += "target_link_libraries(a PRIVATE one two)\n"
    parts = {f"lib_{n}": FIRST_SCORE.replace("NAME", f"score_{n}") for n in ("one", "two")}
    output = configure(write(tmp_path, CMakeLists=text, **ONE_NAME, **parts), status=1)
    line = text[: text.index("add_executable")].count("\n") + 1
    message = "program 'a' links more than one library with the functions of 'net': one, two"
    assert f"CMakeLists.txt:{line}: error: {message}" in output


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles", "Ninja Multi-Config"])
def test_presets_object_library_subdirectory_generated_model(generator: str, tmp_path: Path) -> None:
    """In a folder with spaces, brackets and letters beyond ASCII; warnings are errors; a second build does nothing."""
    text = HEAD.replace("LANGUAGES C", "LANGUAGES C CXX") + (
        "add_subdirectory(libs/net)\n"
        "add_library(core OBJECT core.c)\ntarget_link_libraries(core PUBLIC net)\n"
        "add_executable(app main.c)\ntarget_link_libraries(app PRIVATE core)\n"
    )
    library = (
        "find_package(EdgeBuild REQUIRED)\n"
        "add_custom_command(OUTPUT made.onnx COMMAND ${CMAKE_COMMAND} -E copy "
        "${CMAKE_CURRENT_SOURCE_DIR}/digits.onnx made.onnx DEPENDS digits.onnx VERBATIM)\n"
        "add_model(net MODEL made.onnx)\n"
    )
    folder = write(
        tmp_path / "prö ject (1)",
        CMakeLists=text,
        libs__net__CMakeLists=library,
        core=FIRST_SCORE.replace("NAME", "core"),
        main="int core(void);\nint main(void) { return core(); }\n",
    )
    cache = {
        "EdgeBuild_DIR": str(cmake_dir()),
        "CMAKE_C_FLAGS": "-Wall -Wextra -Wpedantic -Wconversion -Werror",
        "CMAKE_C_STANDARD": "99",
        "CMAKE_UNITY_BUILD": "ON",
        "CMAKE_INTERPROCEDURAL_OPTIMIZATION": "ON",
    }
    preset = {"name": "p", "generator": generator, "binaryDir": "${sourceDir}/build", "cacheVariables": cache}
    presets = {"version": 3, "configurePresets": [preset]}
    (folder / "CMakePresets.json").write_text(json.dumps(presets))
    run("cmake", "--preset", "p", "-Werror=dev", cwd=folder)
    build(folder)
    program = next(f for f in (folder / "build").rglob("app") if f.is_file())
    run(program, status=10)
    assert str(folder) not in run("readelf", "-d", program)  # it needs nothing of the build folder to run
    again = build(folder)
    assert "Building" not in again and "Linking" not in again and "Generating" not in again


@pytest.mark.needs("clang")
@pytest.mark.parametrize(("generator", "compiler"), [("Ninja", "gcc"), ("Unix Makefiles", "clang")])
def test_flags_and_linters_that_a_project_has_for_its_own_c(generator: str, compiler: str, tmp_path: Path) -> None:
    """A header in front of every source is no assembler, and generated code is not the project's to mend."""
    flags = "add_compile_options(-Wall -Werror $<$<COMPILE_LANGUAGE:C>:-include$<SEMICOLON>stdint.h>)\n"
    text = (
        HEAD
        + flags
        + (
            "add_model(net MODEL digits.onnx WEIGHTS asm)\n"
            "add_executable(app main.c)\ntarget_link_libraries(app PRIVATE net)\n"
            'set_target_properties(app PROPERTIES C_CLANG_TIDY "")\n'
        )
    )
    (linter := tmp_path / "linter").write_text("#!/bin/sh\nexit 1\n")
    linter.chmod(0o755)
    folder = write(tmp_path / "p", CMakeLists=text, main=FIRST_SCORE.replace("NAME", "main"))
    configure(folder, f"-DCMAKE_C_COMPILER={compiler}", f"-DCMAKE_C_CLANG_TIDY={linter}", generator=generator)
    build(folder)
    run(folder / "build" / "app", status=10)
    again = build(folder)
    assert "Building" not in again and "Generating" not in again


def test_another_project_uses_an_installed_library(tmp_path: Path) -> None:
    text = HEAD + (
        "add_model(net MODEL digits.onnx)\n"
        "install(TARGETS net EXPORT nets ARCHIVE DESTINATION lib PUBLIC_HEADER DESTINATION include "
        "INCLUDES DESTINATION include)\n"
        "install(EXPORT nets FILE nets-config.cmake NAMESPACE nets:: DESTINATION lib/cmake/nets)\n"
    )
    maker = write(tmp_path / "maker", CMakeLists=text)
    configure(maker, f"-DCMAKE_INSTALL_PREFIX={tmp_path / 'prefix'}")
    build(maker, "--target", "install")
    text = "cmake_minimum_required(VERSION 3.20)\nproject(user LANGUAGES C)\nfind_package(nets REQUIRED)\n"
    text += "add_executable(app main.c)\ntarget_link_libraries(app PRIVATE nets::net)\n"
    shutil.rmtree(maker)
    user = write(tmp_path / "user", CMakeLists=text, main=FIRST_SCORE.replace("NAME", "main"))
    configure(user, f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}")
    build(user)
    run(user / "build" / "app", status=10)


VENDOR = """\
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_ASM_COMPILER arm-none-eabi-gcc)
set(CMAKE_C_FLAGS_INIT "-mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard -ffunction-sections -fdata-sections")
set(CMAKE_EXE_LINKER_FLAGS_INIT "--specs=nano.specs -nostartfiles -Wl,--gc-sections")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
"""


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("fragment", [False, True])
def test_toolchain_linker_script_and_startup_of_a_vendor(fragment: bool, tmp_path: Path) -> None:
    defines = " ".join(f"{name}={symbol}" for name, symbol in zip(NAMES, SYMBOLS["cubemx"], strict=True))
    text = HEAD + (
        "add_model(digits MODEL digits.onnx TARGET mps2-an386)\n"
        "add_model(rows MODEL digits.onnx TARGET mps2-an386 STREAM_INPUT rows WEIGHTS c)\n"
        f'set(hal "{hal_dir()}")\n'
        f'add_executable(app.elf "{SCRIPTS}/startup.c" "{SCRIPTS}/main.c" "${{hal}}/src/semihost.c")\n'
        f'target_compile_definitions(app.elf PRIVATE {defines} "RAM={{0x20000000, 0x10000}}")\n'
        f'target_include_directories(app.elf PRIVATE "{DIGITS}" "${{hal}}/include")\n'
        f'target_link_options(app.elf PRIVATE "-L{SCRIPTS}" "-T{SCRIPTS}/cubemx.ld")\n'
        "target_link_libraries(app.elf PRIVATE digits rows)\n"
    )
    if fragment:
        text += "set_target_properties(app.elf PROPERTIES EDGEBUILD_LINK_FRAGMENTS ON)\n"
    folder = write(tmp_path, CMakeLists=text)
    (folder / "vendor.cmake").write_text(VENDOR)
    configure(folder, "-DCMAKE_TOOLCHAIN_FILE=vendor.cmake", "-DCMAKE_BUILD_TYPE=Release")
    build(folder)
    assert status(folder / "build" / "app.elf") == 0
    assert "no work to do" in build(folder)


@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.parametrize("call", ["add_model(net MODEL digits.onnx)", "add_bf_driver(net SOURCES net.c)"])
def test_cross_build_without_a_target_is_an_error(call: str, tmp_path: Path) -> None:
    folder = write(tmp_path, CMakeLists=HEAD + call + "\n", net="")
    (folder / "vendor.cmake").write_text(VENDOR)
    output = configure(folder, "-DCMAKE_TOOLCHAIN_FILE=vendor.cmake", status=1)
    assert "no target is named; add TARGET <name or yaml>" in output and "CMakeLists.txt:4" in output
    assert "see `edgebuild targets`" in output
    configure(folder, "-DCMAKE_TOOLCHAIN_FILE=vendor.cmake", "-DEDGEBUILD_TARGET=mps2-an386")


@pytest.mark.needs("arm-none-eabi-gcc")
def test_a_board_of_the_whole_project_in_a_subdirectory(tmp_path: Path) -> None:
    folder = write(
        tmp_path, CMakeLists=HEAD + "add_subdirectory(net)\n", net__CMakeLists="add_model(net MODEL digits.onnx)\n"
    )
    (folder / "vendor.cmake").write_text(VENDOR)
    (folder / "board.yaml").write_text("inherits: mps2-an386\ndescription: ours\n")
    configure(folder, "-DCMAKE_TOOLCHAIN_FILE=vendor.cmake", "-DEDGEBUILD_TARGET=board.yaml")
    build(folder)
    request = json.loads((folder / "build/net/edgebuild/net/net.req.json").read_text())
    assert request["target"] == "../../../../board.yaml"


def test_a_project_without_c_is_an_error(tmp_path: Path) -> None:
    text = HEAD.replace("LANGUAGES C", "LANGUAGES CXX") + "add_model(net MODEL digits.onnx)\n"
    assert "enable_language(C)" in configure(write(tmp_path, CMakeLists=text), status=1)


def test_external_project_of_the_page_links_what_has_changed(tmp_path: Path) -> None:
    """As docs/integrate.md has it: one build after a change of the model is enough, and one more links nothing."""
    for block in blocks(ROOT / "docs" / "integrate.md"):
        if block.file in ("app/main.c", "app/CMakeLists.txt", "super/CMakeLists.txt"):
            (tmp_path / block.file).parent.mkdir(exist_ok=True)
            (tmp_path / block.file).write_text(block.text)
    model, folder = tmp_path / "app" / "digits.onnx", tmp_path / "super"
    shutil.copy(DIGITS / "digits.onnx", model)
    configure(folder)
    build(folder)
    program = folder / "build" / "super"
    run(program)
    first = program.read_bytes()
    assert "Linking" not in build(folder)
    model.write_bytes(other_weights(model.read_bytes()))
    build(folder)
    assert program.read_bytes() != first
