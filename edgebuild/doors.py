"""Where the parts of this installation are that build systems ask for."""

from __future__ import annotations

import os
from pathlib import Path

from edgebuild.artifacts import write_atomic

PACKAGE = Path(__file__).resolve().parent
_CODE_SUFFIXES = (".py", ".j2")


def cmake_dir() -> Path:
    """The folder with `EdgeBuildConfig.cmake` and the toolchain files."""
    return PACKAGE / "cmake"


def scons_toolpath() -> Path:
    """The folder in which SCons finds the tool `edgebuild`."""
    return PACKAGE / "scons" / "site_tools"


def write_cmake_module(out: Path) -> None:
    """Put `FindEdgeBuild.cmake`, for a project that keeps it among its own files, into the folder `out`."""
    name = "FindEdgeBuild.cmake"
    write_atomic(out / name, (cmake_dir() / name).read_bytes())


def cmsis_nn_sources(library: Path) -> list[Path]:
    """The sources of CMSIS-NN that its int8 convolutions need, in the library's folder; sorted."""
    groups = ("ConvolutionFunctions", "NNSupportFunctions", "TransposeFunctions")
    found = [file for group in groups for file in (library / "Source" / group).glob("*.c")]
    return sorted(file for file in found if not file.stem.endswith(("_f16", "_f32")))


def code_files() -> list[str]:
    """The files of this package that generated code depends on, sorted.

    In a checkout these are all modules and templates, since any of them may be edited. An installed package changes as
    a whole and with its version, so there the file with the version stands for all.
    """
    if not (PACKAGE.parent / "pyproject.toml").exists():
        return [str(PACKAGE / "__init__.py")]
    found: list[str] = []
    for folder, folders, files in os.walk(PACKAGE):
        folders[:] = [f for f in folders if f not in ("__pycache__", "cmake", "scons")]
        found += [os.path.join(folder, f) for f in files if f.endswith(_CODE_SUFFIXES)]
    return sorted(found)
