"""A model that calls CMSIS-NN: both build systems find its header and compile its sources."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, run
from tests.doors.projects import CMAKELISTS, MAIN_C, SCONSCRIPT, SCONSTRUCT
from tests.graphs import tiny_tflite

LIBRARY = ROOT / "tests" / "kernels" / "cmsis_nn"
HERE = f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}"
TOOLS = {
    "scons": ', OPTIMIZE="size", BACKEND="cmsis-nn", CMSIS_NN="nn"',
    "cmake": " OPTIMIZE size BACKEND cmsis-nn CMSIS_NN nn",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with the stand-in for the library, to which a source was added that the program cannot do without."""
    place = tmp_path / "project"
    shutil.copytree(LIBRARY, place / "nn")
    source = place / "nn" / "Source" / "ConvolutionFunctions" / "arm_part_s8.c"
    source.parent.mkdir(parents=True)
    source.write_text('#include "arm_nnfunctions.h"\nint part(void) { return ARM_CMSIS_NN_SUCCESS; }\n')
    (source.parent / "arm_part_f16.c").write_text("#error half precision\n")
    (place / "digits.tflite").write_bytes(tiny_tflite())
    (place / "main.c").write_text(
        MAIN_C.replace("int main", "int part(void);\nint main").replace("== 0", "== 0 || part()")
    )
    return place


@pytest.mark.parametrize(
    "tool", [pytest.param(t, marks=pytest.mark.needs("gcc", *({"cmake"} & {t}))) for t in ("cmake", "scons")]
)
def test_library_is_compiled_and_linked(tool: str, folder: Path) -> None:
    if tool == "scons":
        text = SCONSTRUCT.format(
            toolpath=str(ROOT / "edgebuild" / "build" / "scons" / "site_tools"), python=sys.executable
        )
        (folder / "SConstruct").write_text(text)
        (folder / "SConscript").write_text(SCONSCRIPT.format(options=TOOLS[tool]).replace(".onnx", ".tflite"))
        run(sys.executable, "-m", "SCons", "-Q", cwd=folder)
        assert "is up to date" in run(sys.executable, "-m", "SCons", "-Q", cwd=folder)
    else:
        (folder / "CMakeLists.txt").write_text(CMAKELISTS.format(options=TOOLS[tool]).replace(".onnx", ".tflite"))
        run("cmake", "-S", ".", "-B", "build", "-Werror=dev", HERE, cwd=folder)
        run("cmake", "--build", "build", cwd=folder)
    products = folder / "build" / "edgebuild" / "digits"
    assert "arm_convolve_wrapper_s8(" in (products / "digits.c").read_text()
    assert json.loads((products / "digits.req.json").read_text())["options"]["cmsis_nn"] == "../../../nn"
    run(folder / "build" / "app")
