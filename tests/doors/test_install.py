"""An installed package is enough: command, targets, SCons tool, CMake package."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, run
from tests.doors.projects import CMAKELISTS, DIGITS, MAIN_C, SCONSCRIPT

SCONSTRUCT = """\
import edgebuild.doors
env = Environment(tools=["default"])
env.Tool("edgebuild", toolpath=[str(edgebuild.doors.scons_toolpath())])
env.EdgeBuildTarget("mps2-an386")
SConscript("SConscript", "env", variant_dir="build", duplicate=False)
"""


@pytest.mark.slow
@pytest.mark.needs("cmake", "ninja", "gcc", "arm-none-eabi-gcc")
def test_installed_into_a_clean_environment(tmp_path: Path) -> None:
    venv, project = tmp_path / "some where" / "venv", tmp_path / "project"
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", ROOT)
    project.mkdir()
    shutil.copy(DIGITS / "digits.onnx", project)
    # Activated, as a user's shell would have it; nothing of the checkout is on any path.
    shell = {"PATH": f"{venv / 'bin'}:/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(venv), "PYTHONPATH": ""}

    assert "mps2-an386" in run(venv / "bin" / "edgebuild", "targets", cwd=project, env=shell)
    (project / "main.c").write_text(MAIN_C)
    (project / "SConstruct").write_text(SCONSTRUCT)
    (project / "SConscript").write_text(SCONSCRIPT.format(options=""))
    run(venv / "bin" / "scons", cwd=project, env=shell)
    assert "is up to date" in run(venv / "bin" / "scons", cwd=project, env=shell)

    (project / "CMakeLists.txt").write_text(CMAKELISTS.replace("EdgeBuild", "EdgeBuild 0.1", 1).format(options=""))
    run("cmake", "-G", "Ninja", "-B", "native", cwd=project, env=shell)
    run("cmake", "--build", "native", cwd=project, env=shell)
    assert str(ROOT) not in (project / "native" / "build.ninja").read_text()
    folder = run(venv / "bin" / "edgebuild", "cmake-dir", cwd=project, env=shell).strip()
    assert Path(folder).is_relative_to(venv)
    bare = ["-B", "bare", f"-DCMAKE_TOOLCHAIN_FILE={folder}/toolchain-arm-none-eabi.cmake"]
    run("cmake", "-G", "Ninja", *bare, cwd=project, env=shell)
    run("cmake", "--build", "bare", "--target", "digits", cwd=project, env=shell)
