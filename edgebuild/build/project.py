"""A new project for a board: build scripts, a program that runs the model once, and settings of editors."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base.artifacts import Artifact
from ..base.target import Target, hal_dir
from ..doors import cmake_dir

GDB_PORT = 1234
GCC = r"^(?:scons: \*\*\* (?:\[.*?\] )?)?(.+?):(\d+):(\d+): (?:fatal )?(error|warning): (.*)$"
OURS = r"^(?:scons: \*\*\* (?:\[.*?\] )?)?(\S.*?)(?::(\d+))?(?::(\d+))?: (error|warning): (.*)$"


@dataclass(frozen=True)
class Project:
    """`board`: a name, or the path of a YAML file, relative to the project. `model`: a C identifier; `file`: its file.

    `input`, `output`: functions of the model's first input and output, or "". `libc`: whether the generated C calls the
    C library.
    """

    name: str
    board: str
    target: Target
    tool: str  # cmake or scons
    model: str
    file: str
    input: str = ""
    output: str = ""
    libc: bool = False

    @property
    def bare(self) -> bool:
        return self.target.firmware is not None

    @property
    def program(self) -> str:
        return f"{self.name}.elf" if self.bare else self.name

    @property
    def path(self) -> str:
        """Path of the program from the project's folder."""
        return f"build/{self.program}"

    @property
    def runner(self) -> tuple[str, ...]:
        return self.target.runner.command if self.target.runner and self.bare else ()


def files(p: Project) -> tuple[Artifact, ...]:
    """All files of the project except the model."""
    texts = {
        "main.c": _main_c(p),
        ".gitignore": "/build/\n/edgebuild/\n/cmake/edgebuild-python.txt\n.sconsign.dblite\n",
        ".vscode/tasks.json": _json(_tasks(p)),
        ".vscode/launch.json": _json({"version": "0.2.0", "configurations": [_launch(p)]}),
        ".vscode/settings.json": _json(_settings(p)),
        ".vscode/extensions.json": _json({"recommendations": ["ms-vscode.cpptools", "ms-vscode.cmake-tools"]}),
    }
    if p.bare and p.target.firmware:
        texts["firmware.ld"] = (hal_dir() / p.target.firmware.linker).read_text(encoding="utf-8")
    if p.tool == "scons":
        texts |= {"SConstruct": _sconstruct(p), "SConscript": _sconscript(p)}
    else:
        texts |= {
            "CMakeLists.txt": _cmakelists(p),
            "CMakePresets.json": _json(_presets(p)),
            "cmake/FindEdgeBuild.cmake": (cmake_dir() / "FindEdgeBuild.cmake").read_text(encoding="utf-8"),
            "cmake/edgebuild-python.txt": f"{sys.executable}\n",
        }
        if p.bare:
            texts["cmake/toolchain.cmake"] = (
                "# The compiler of the board and its flags, from what edgebuild knows of it.\n"
                'set(EDGEBUILD_FIND_TOOLCHAIN ON)\ninclude("${CMAKE_CURRENT_LIST_DIR}/FindEdgeBuild.cmake")\n'
            )
    return tuple(Artifact(name, text.encode()) for name, text in texts.items())


def next_steps(p: Project) -> list[str]:
    """Commands that build the project and run it."""
    if p.tool == "scons":
        return ["scons", "scons run"] if p.runner or not p.bare else ["scons"]
    run = f"run_{p.program}" if p.runner else ""
    steps = [f"cmake --preset {p.target.name}", f"cmake --build --preset {p.target.name}"]
    return [*steps, *([f"{steps[1]} --target {run}"] if run else []), *([] if p.bare else [p.path])]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def _main_c(p: Project) -> str:
    say, include = ("eb_print", '"eb_semihost.h"') if p.runner else ("printf", "<stdio.h>")
    text = f'    {say}("{p.name}: the model has run\\n");\n' if p.runner or not p.bare else ""
    fill = f"    memset({p.input}(), 0, sizeof *{p.input}() * {p.input.upper()}_SIZE); /* your data */"
    results = f"    /* {p.output}() has the results, {p.output.upper()}_SIZE of them */"
    return (
        f'{f"#include {include}" if text else ""}\n\n#include <string.h>\n\n#include "{p.model}.h"\n\n'
        f"int main(void)\n{{\n{fill if p.input else ''}\n    {p.model}_invoke();\n{results if p.output else ''}\n"
        f"{text}    return 0;\n}}\n"
    ).lstrip("\n")


def _cmakelists(p: Project) -> str:
    firmware = f"edgebuild_firmware({p.program} LINKER_SCRIPT firmware.ld)\n" if p.bare else ""
    test = f"edgebuild_add_test({p.model})\n" if p.runner or not p.bare else ""
    return f"""cmake_minimum_required(VERSION 3.20)
project({p.name} LANGUAGES C)
enable_testing()
list(APPEND CMAKE_MODULE_PATH "${{CMAKE_CURRENT_SOURCE_DIR}}/cmake")
find_package(EdgeBuild REQUIRED COMPONENTS models)

add_model({p.model} MODEL {p.file})
{test}
add_executable({p.program} main.c)
target_link_libraries({p.program} PRIVATE {p.model})
{firmware}edgebuild_report({p.program}) # FLASH_BUDGET, RAM_BUDGET and STACK_BUDGET fail the build
"""


def _presets(p: Project) -> dict[str, Any]:
    board = p.board if not p.board.endswith((".yaml", ".yml")) else f"${{sourceDir}}/{p.board}"
    variables = {"CMAKE_EXPORT_COMPILE_COMMANDS": "ON"}
    if p.bare:
        toolchain = "${sourceDir}/cmake/toolchain.cmake"
        variables |= {"CMAKE_TOOLCHAIN_FILE": toolchain, "EDGEBUILD_TARGET": board}
        variables |= {"EDGEBUILD_LIBC": "ON"} if p.libc else {}
    else:
        variables |= {"CMAKE_BUILD_TYPE": "RelWithDebInfo"}
    name = p.target.name
    configure = {"name": name, "generator": "Ninja", "binaryDir": "${sourceDir}/build", "cacheVariables": variables}
    later = {"name": name, "configurePreset": name}
    return {
        "version": 2,
        "cmakeMinimumRequired": {"major": 3, "minor": 20, "patch": 0},
        "configurePresets": [configure],
        "buildPresets": [later],
        "testPresets": [{**later, "output": {"outputOnFailure": True}}],
    }


def _sconstruct(p: Project) -> str:
    libc = ", LIBC=True" if p.libc else ""
    target = f'env.EdgeBuildTarget("{p.board}"{libc}, LINKER_SCRIPT="firmware.ld")\n' if p.bare else ""
    flags = "" if p.bare else 'env.Append(CCFLAGS=["-O2", "-g"])\n'
    runner = 'env["EDGEBUILD_RUNNER"]' if p.runner else '["$SOURCE.abspath"]'
    run = f'env.AlwaysBuild(env.Alias("run", app, [{runner}]))\n'
    return f"""import os

try:
    import edgebuild.doors
except ImportError:
    print("edgebuild is not in the Python that runs SCons; call the scons of an environment that has it")
    Exit(2)

toolpath = [str(edgebuild.doors.scons_toolpath())]
env = Environment(tools=["default", "edgebuild", "compilation_db"], toolpath=toolpath, ENV=os.environ)
env["COMPILATIONDB_USE_ABSPATH"] = True
{target}{flags}app = SConscript("SConscript", "env", variant_dir="build", duplicate=False)
database = env.CompilationDatabase("build/compile_commands.json")  # `scons codegen` writes it, for editors
env.Ignore("build", database)
env.Alias("codegen", database)
{run if p.runner or not p.bare else ""}"""


def _sconscript(p: Project) -> str:
    test = f"env.EdgeBuildTest({p.model})\n" if p.runner or not p.bare else ""
    return f"""Import("env")
{p.model} = env.Model("{p.model}", "{p.file}")
app = env.Program("{p.program}", ["main.c", {p.model}])
env.EdgeBuildReport(app)  # FLASH_BUDGET, RAM_BUDGET and STACK_BUDGET fail the build
{test}Return("app")
"""


def _matchers(p: Project) -> list[dict[str, Any]]:
    """Problem matchers for compilers, and for edgebuild, whose errors may lack the column or the line."""
    base = "${workspaceFolder}/build" if p.tool == "cmake" else "${workspaceFolder}"
    places = {"file": 1, "line": 2, "column": 3, "severity": 4, "message": 5}
    rows = ("gcc", GCC), ("edgebuild", OURS)
    return [
        {"owner": owner, "fileLocation": ["autoDetect", base], "pattern": {"regexp": regexp, **places}}
        for owner, regexp in rows
    ]


def _tasks(p: Project) -> dict[str, Any]:
    preset = f"cmake --build --preset {p.target.name}"
    scons = p.tool == "scons"
    steps = {
        "build": "scons codegen ." if scons else f"cmake --preset {p.target.name} && {preset}",
        "size": f"scons {p.program}_size" if scons else f"{preset} --target {p.program}_size",
        "clean": "scons -c" if scons else f"{preset} --target clean",
    }
    if p.runner or not p.bare:
        steps["run"] = "scons run" if scons else f"{preset} --target run_{p.program}" if p.runner else p.path
        steps["test"] = "scons edgebuild_test" if scons else f"ctest --preset {p.target.name}"
    tasks: list[dict[str, Any]] = []
    for label, command in steps.items():
        task: dict[str, Any] = {"label": label, "type": "shell", "command": command, "problemMatcher": _matchers(p)}
        task |= {"options": {"cwd": "${workspaceFolder}"}}
        task |= {"group": {"kind": "build", "isDefault": True}} if label == "build" else {}
        task |= {"group": {"kind": "test", "isDefault": True}} if label == "test" else {}
        task |= {"dependsOn": "build"} if label in ("run", "test") else {}
        tasks.append(task)
    if server := _server(p):
        ready = {"activeOnStart": True, "beginsPattern": "^waiting for gdb", "endsPattern": "^waiting for gdb"}
        nothing = {"regexp": "^(no problem)$", "file": 1, "line": 1, "message": 1}
        tasks.append({
            "label": "debug server", "type": "shell", "isBackground": True, "dependsOn": "build",
            "command": f"echo waiting for gdb; exec {server}", "options": {"cwd": "${workspaceFolder}"},
            "problemMatcher": [{"owner": "server", "pattern": nothing, "background": ready}],
        })  # fmt: skip
    return {"version": "2.0.0", "tasks": tasks}


def _server(p: Project) -> str:
    """The command of QEMU that waits for a debugger; "" for any other runner."""
    if not p.runner or not p.runner[0].startswith("qemu-system"):
        return ""
    return " ".join([*(word.replace("{elf}", p.path) for word in p.runner), "-S", "-gdb", f"tcp::{GDB_PORT}"])


def _launch(p: Project) -> dict[str, Any]:
    common = {"type": "cppdbg", "request": "launch", "program": f"${{workspaceFolder}}/{p.path}", "args": [],
              "cwd": "${workspaceFolder}", "MIMode": "gdb", "stopAtEntry": True}  # fmt: skip
    if not p.bare:
        return {"name": "debug", **common, "miDebuggerPath": "gdb", "preLaunchTask": "build"}
    simulated = bool(_server(p))
    port = GDB_PORT if simulated else 3333  # OpenOCD's default
    return {
        "name": "debug in the simulator" if simulated else "debug through OpenOCD",
        **common,
        "miDebuggerPath": "gdb-multiarch",
        "miDebuggerServerAddress": f"localhost:{port}",
        "preLaunchTask": "debug server" if simulated else "build",
    }


def _settings(p: Project) -> dict[str, Any]:
    return {
        **({"cmake.useCMakePresets": "always"} if p.tool == "cmake" else {}),
        "C_Cpp.default.compileCommands": "${workspaceFolder}/build/compile_commands.json",
        "clangd.arguments": ["--compile-commands-dir=${workspaceFolder}/build"],
        "files.associations": {"*.bf.c": "c", "*.bf.h": "c", "*.bf.cpp": "cpp"},
    }


def demo_model() -> bytes:
    """A small int8 network in ONNX with fixed weights: one dense layer of 16 inputs and 4 outputs."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    numbers = np.arange(64, dtype=np.int64)
    weights = ((numbers * 37 + 11) % 255 - 127).astype(np.int8).reshape(16, 4)

    def scalar(name: str, value: Any) -> Any:
        return numpy_helper.from_array(np.array(value), name)

    constants: Sequence[Any] = [
        numpy_helper.from_array(weights, "w"),
        scalar("s_x", np.float32(1 / 64)), scalar("s_w", np.float32(1 / 128)), scalar("s_y", np.float32(1 / 16)),
        scalar("zero", np.int8(0)),
    ]  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["input", "s_x", "zero"], ["x"]),
        helper.make_node("DequantizeLinear", ["w", "s_w", "zero"], ["w_real"]),
        helper.make_node("MatMul", ["x", "w_real"], ["y"], "dense"),
        helper.make_node("QuantizeLinear", ["y", "s_y", "zero"], ["output"]),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.INT8, [1, k]) for n, k in (("input", 16), ("output", 4))]
    graph = helper.make_graph(nodes, "demo", ports[:1], ports[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString(deterministic=True))
