"""Where build systems find their side of edgebuild. Projects import this module; its names are stable."""

from __future__ import annotations

from pathlib import Path

from .base.artifacts import Artifact, publish
from .base.inputs import PACKAGE
from .base.inputs import hal_dir as hal_dir


def cmake_dir() -> Path:
    """The folder with `EdgeBuildConfig.cmake` and the toolchain files."""
    return PACKAGE / "build" / "cmake"


def scons_toolpath() -> Path:
    """The folder in which SCons finds the tool `edgebuild`."""
    return PACKAGE / "build" / "scons" / "site_tools"


def write_cmake_module(out: Path) -> None:
    """Put `FindEdgeBuild.cmake`, for a project that keeps it among its own files, into the folder `out`."""
    name = "FindEdgeBuild.cmake"
    publish([Artifact(name, (cmake_dir() / name).read_bytes())], out, owned=False)
