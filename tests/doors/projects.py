"""A small project with one model, built by SCons or CMake, that counts what its builds do."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT, run

DIGITS = ROOT / "sample_projects" / "digits"
MAIN_C = """\
#include "digits.h"
int main(void) { digits_invoke(); return digits_output() == 0; }
"""
SCONSTRUCT = """\
env = Environment(tools=["default", "edgebuild"], toolpath=[{toolpath!r}])
env.Replace(EDGEBUILD=[{python!r}, "-P", "-m", "edgebuild"])
SConscript("SConscript", "env", variant_dir="build", duplicate=False)
"""
SCONSCRIPT = """\
Import("env")
env.Program("app", ["main.c", env.Model("digits", "digits.onnx"{options})])
"""
CMAKELISTS = """\
cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES C)
find_package(EdgeBuild REQUIRED)
add_model(digits MODEL digits.onnx{options})
add_executable(app main.c)
target_link_libraries(app PRIVATE digits)
"""


@dataclass(frozen=True)
class Built:
    """Record of one build: runs of requests, compiled files, links of the program."""

    headers: int  # that were written ahead
    starts: int
    compiles: int
    links: int
    output: str


class Project:
    """In a folder with a space in its name; the build goes to `build`, the generated files to `products`."""

    def __init__(self, folder: Path, tool: str) -> None:
        self.folder, self.tool = folder, tool
        self.products = folder / "build" / "edgebuild" / "digits"
        self.model = folder / "digits.onnx"
        self._log = folder.parent / "starts.log"
        folder.mkdir(parents=True)
        shutil.copy(DIGITS / "digits.onnx", self.model)
        (folder / "main.c").write_text(MAIN_C)
        # The door calls this in place of Python: a line for each start, then the real one.
        self.python = folder.parent / "counting python"
        self.python.write_text(f'#!/bin/sh\necho "$@" >>"{self._log}"\nexec "{sys.executable}" "$@"\n')
        self.python.chmod(0o755)
        self.write()

    def write(self, **options: str) -> None:
        """The build scripts; options as both doors spell them."""
        if self.tool == "scons":
            toolpath = str(ROOT / "edgebuild" / "build" / "scons" / "site_tools")
            (self.folder / "SConstruct").write_text(SCONSTRUCT.format(toolpath=toolpath, python=str(self.python)))
            words = "".join(f", {key}={value!r}" for key, value in options.items())
            (self.folder / "SConscript").write_text(SCONSCRIPT.format(options=words))
        else:
            words = "".join(f" {key} {value}" for key, value in options.items())
            (self.folder / "CMakeLists.txt").write_text(CMAKELISTS.format(options=words))

    def build(self, status: int = 0) -> Built:
        self._log.unlink(missing_ok=True)
        if self.tool == "scons":
            output = run(sys.executable, "-m", "SCons", "-Q", cwd=self.folder, status=status)
        else:
            if not (self.folder / "build" / "CMakeCache.txt").exists():
                self.configure()
            output = run("cmake", "--build", "build", cwd=self.folder, status=status)
        log = self._log.read_text() if self._log.exists() else ""
        return Built(
            starts=len(re.findall(r" edgebuild run (?!--header)", log)),
            headers=log.count(" edgebuild run --header "),
            compiles=len(re.findall(r"Building C object| -c ", output)),
            links=len(re.findall(r"Linking C executable|-o build/app ", output)),
            output=output,
        )

    def configure(self, *arguments: str, status: int = 0) -> str:
        config = f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}"
        command = ["cmake", "-Werror=dev", "-G", self.tool, "-B", "build", f"-DEDGEBUILD_PYTHON={self.python}", config]
        return run(*command, *arguments, cwd=self.folder, status=status)

    def generated(self) -> dict[str, bytes]:
        """Name -> bytes of all that edgebuild wrote, but what is for this machine only."""
        files = (f for f in self.products.iterdir() if f.suffix not in (".d", ".stamp", ".o"))
        return {f.name: f.read_bytes() for f in files}


def scons(folder: Path, *arguments: str, status: int = 0) -> str:
    return run(sys.executable, "-m", "SCons", "-Q", *arguments, cwd=folder, status=status)
