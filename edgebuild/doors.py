"""Paths of edgebuild's modules for build systems. Projects import this module; its names are stable."""

from __future__ import annotations

from pathlib import Path

from .base.artifacts import Artifact, publish
from .base.inputs import PACKAGE
from .base.inputs import hal_dir as hal_dir


def cmake_dir() -> Path:
    """The folder with `EdgeBuildConfig.cmake` and the toolchain files."""
    return PACKAGE / "build" / "cmake"


def scons_toolpath() -> Path:
    """The folder with the tool `edgebuild`, for SCons' tool path."""
    return PACKAGE / "build" / "scons" / "site_tools"


def write_cmake_module(out: Path) -> None:
    """Write `FindEdgeBuild.cmake` into the folder `out`, for a project that keeps a copy of it."""
    name = "FindEdgeBuild.cmake"
    publish([Artifact(name, (cmake_dir() / name).read_bytes())], out, owned=False)
