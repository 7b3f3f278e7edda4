"""Several models in one arena as input of both build systems: canaries in every buffer, in QEMU and on this machine."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from edgebuild.cli import main
from tests.conftest import ROOT, run
from tests.doors.projects import DIGITS
from tests.graphs.tiny import tiny_tflite
from tests.groups.test_shared_arena import halves

MODELS = ROOT.parent / "shared" / "models"
CMAKE = ROOT / "edgebuild" / "build" / "cmake"
SCONSTRUCT = """\
import os
import edgebuild.build.scons
env = Environment(tools=["default", edgebuild.build.scons.generate], ENV=os.environ)
{target}
SConscript("SConscript", "env", variant_dir="build", duplicate=False)
"""
SCONSCRIPT = """\
Import("env")
group = env.Models("g", {models}, SHARE={share!r}, BUFFERS={buffers})
app = env.Program("app", ["main.c", group{more}])
"""
CMAKELISTS = """\
cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES C)
find_package(EdgeBuild REQUIRED)
edgebuild_add_models(g MODELS {models} SHARE {share} BUFFERS {buffers})
{more}
add_executable(app main.c)
target_link_libraries(app PRIVATE g {whole})
if(EDGEBUILD_LINKER_SCRIPT)
  edgebuild_firmware(app)
endif()
"""
HEAD = """\
#include "g.h"
static void put(void *at, int bytes, int seed) {
    for (int i = 0; i < bytes; ++i) ((unsigned char *)at)[i] = (unsigned char)(i * 7 + seed);
}
static int gone(const void *at, int bytes, int seed) {
    for (int i = 0; i < bytes; ++i) if (((const unsigned char *)at)[i] != (unsigned char)(i * 7 + seed)) return 1;
    return 0;
}
"""


class Project:
    """A program with a group, in a folder with a space in its name."""

    def __init__(self, folder: Path, tool: str, target: str, share: str, models: list[str], buffers: list[str],
                 main: str, whole: bool = False) -> None:  # fmt: skip
        self.folder, self.tool = folder, tool
        folder.mkdir(parents=True)
        halves(folder)
        shutil.copy(DIGITS / "digits.onnx", folder)
        (folder / "main.c").write_text(HEAD + main)
        if tool == "scons":
            board = f"env.EdgeBuildTarget({target!r})" if target != "host" else ""
            (folder / "SConstruct").write_text(SCONSTRUCT.format(target=board))
            more = ', env.Model("digits", "digits.onnx")' if whole else ""
            text = SCONSCRIPT.format(models=models, share=share, buffers=buffers, more=more)
            (folder / "SConscript").write_text(text)
        else:
            more = "add_model(digits MODEL digits.onnx)" if whole else ""
            text = CMAKELISTS.format(models=" ".join(models), share=share, buffers=" ".join(buffers), more=more,
                                     whole="digits" if whole else "")  # fmt: skip
            (folder / "CMakeLists.txt").write_text(text)
            words = [f"-DEdgeBuild_DIR={CMAKE}", "-Werror=dev", f"-DEDGEBUILD_PYTHON={sys.executable}"]
            if target != "host":
                chain = "arm-none-eabi" if target.startswith("mps") else "riscv"
                words += [f"-DCMAKE_TOOLCHAIN_FILE={CMAKE}/toolchain-{chain}.cmake", f"-DEDGEBUILD_TARGET={target}"]
            run("cmake", "-G", tool, "-B", "build", *words, cwd=folder)

    def build(self) -> str:
        command = [sys.executable, "-m", "SCons", "-Q"] if self.tool == "scons" else ["cmake", "--build", "build"]
        return run(*command, cwd=self.folder)

    def run(self, *emulator: str) -> None:
        run(*emulator, self.folder / "build" / "app")

    def generated(self) -> dict[str, bytes]:
        files = (self.folder / "build" / "edgebuild" / "g").iterdir()
        return {f.name: f.read_bytes() for f in files if f.suffix not in (".d", ".stamp", ".o")}


QEMU = ("qemu-system-arm", "-machine", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none",
        "-semihosting-config", "enable=on,target=native", "-kernel")  # fmt: skip
PIPELINE = """\
#include "digits.h"
int main(void) {
    put(g_log(), G_LOG_BYTES, 1);
    for (int turn = 0; turn < 4; ++turn) {
        put(digits_input(), DIGITS_INPUT_SIZE, turn);
        digits_invoke();
        put(g_camera(), G_CAMERA_BYTES, turn);
        put(front_input(), FRONT_INPUT_SIZE, turn);
        if (gone(g_camera(), G_CAMERA_BYTES, turn)) return 2;
        front_invoke();
        put(g_radio(), G_RADIO_BYTES, turn);
        if ((const void *)back_input() != (const void *)front_output()) return 3;
        back_invoke();
        if (gone(g_radio(), G_RADIO_BYTES, turn)) return 4;
        for (int i = 0; i < DIGITS_OUTPUT_SIZE; ++i) if (back_output()[i] != digits_output()[i]) return 5;
    }
    return gone(g_log(), G_LOG_BYTES, 1) ? 6 : 0;
}
"""
EXCLUSIVE = """\
int main(void) {
    put(g_always(), G_ALWAYS_BYTES, 1);
    for (int turn = 0; turn < 2; ++turn) {
        put(g_audio(), G_AUDIO_BYTES, turn);
        put(mlperf_kws_input(), MLPERF_KWS_INPUT_SIZE, turn);
        mlperf_kws_invoke();
        if (gone(g_audio(), G_AUDIO_BYTES, turn)) return 2;
        put(g_frame(), G_FRAME_BYTES, turn);
        put(person_detect_input(), PERSON_DETECT_INPUT_SIZE, turn);
        if (gone(g_frame(), G_FRAME_BYTES, turn)) return 3;
        person_detect_invoke();
    }
    return gone(g_always(), G_ALWAYS_BYTES, 1) ? 4 : 0;
}
"""


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja", "gcc")
def test_a_pipeline_is_the_whole_network_and_keeps_canaries(tmp_path: Path) -> None:
    """Through both doors, which make the same bytes; nothing runs twice."""
    products = []
    for tool, target in (("scons", "mps2-an386"), ("Ninja", "mps2-an386")):
        buffers = ["camera=1K,alive=front.input,align=64", "radio=200,alive=back", "log=100"]
        models = ["front.onnx", "back.onnx"]
        project = Project(tmp_path / f"a {tool} {target}", tool, target, "PIPELINE", models, buffers, PIPELINE, True)
        assert "arena 1" in project.build()
        project.run(*QEMU)
        output = project.build()
        assert "Generating" not in output and "-c " not in output and "Building" not in output
        products.append(project.generated())
    assert products[0] == products[1]


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")
@pytest.mark.skipif(not MODELS.exists(), reason="the public models are not at hand")
@pytest.mark.parametrize("tool", ["Ninja", pytest.param("scons", marks=pytest.mark.slow)])
def test_two_public_models_and_buffers_take_the_largest(tool: str, tmp_path: Path) -> None:
    """The arena is that of the larger model and what lives always: 8 KB of audio and 32 KB of frame cost nothing."""
    files = [os.path.relpath(MODELS / f"{name}.tflite", tmp_path / "a project") for name in
             ("mlperf_kws", "person_detect")]  # fmt: skip
    buffers = ["audio=8K,alive=mlperf_kws", "frame=32K,alive=person_detect.input,align=32", "always=100"]
    project = Project(tmp_path / "a project", tool, "mps2-an386", "EXCLUSIVE", files, buffers, EXCLUSIVE)
    project.build()
    project.run(*QEMU)
    report = json.loads(project.generated()["g_report.json"])
    sizes = [json.loads(project.generated()[f"{n}_report.json"])["ram"]["arena_bytes"] for n in
             ("mlperf_kws", "person_detect")]  # fmt: skip
    assert report["layout"]["optimal"]
    assert report["ram"]["arena_bytes"] <= max(sizes[1], sizes[0] + 8192) + 100 + 2 * 12


@pytest.mark.needs("cmake", "ninja")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("MODELS front.onnx SHARE EXCLUSIV", "is not known; did you mean"),
        ("MODELS front.onnx BUFFERS a=4K", "option SHARE is missing"),
        ("MODELS front.onnx SHARE EXCLUSIVE ARENA caller", "unknown argument 'ARENA'"),
        ("MODELS front.onnx front.onnx SHARE EXCLUSIVE", "the name is taken in this directory"),
    ],
)
def test_wrong_calls(words: str, message: str, tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits.onnx", tmp_path / "front.onnx")
    text = "cmake_minimum_required(VERSION 3.20)\nproject(app LANGUAGES C)\nfind_package(EdgeBuild REQUIRED)\n"
    (tmp_path / "CMakeLists.txt").write_text(f"{text}edgebuild_add_models(g {words})\n")
    options = [f"-DEdgeBuild_DIR={CMAKE}", f"-DEDGEBUILD_PYTHON={sys.executable}"]
    assert message in run("cmake", "-G", "Ninja", "-B", "build", *options, cwd=tmp_path, status=1)


@pytest.mark.needs("cmake", "gcc")
def test_each_model_of_a_group_is_a_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.tflite").write_bytes(tiny_tflite())
    lists = CMAKELISTS.format(models="one.tflite two.tflite", share="exclusive", buffers="a=64",
                              more="enable_testing()\nedgebuild_add_test(g)", whole="")  # fmt: skip
    (tmp_path / "CMakeLists.txt").write_text(lists)
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    folder = tmp_path / "build"
    run("cmake", "-S", tmp_path, "-B", folder, f"-DEdgeBuild_DIR={CMAKE}", f"-DEDGEBUILD_PYTHON={sys.executable}")
    assert "model_g_host" in run("ctest", "-N", cwd=folder)
    (request,) = folder.rglob("g.req.json")
    assert main(["verify", str(request), "--json", str(tmp_path / "result.json")]) == 0
    models = json.loads((tmp_path / "result.json").read_text())["models"]
    assert [m["model"] for m in models] == ["one.tflite", "two.tflite"] and all(m["equal"] for m in models)
    assert "one.tflite on host: equal" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["verify", str(request), "--inputs", "x.npy"])
    assert "a group has several models" in capsys.readouterr().err
