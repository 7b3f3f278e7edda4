"""A model on several devices as input of both build systems: the sample, and when it is made again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgebuild.cli import main
from tests.conftest import ROOT, run

SAMPLE = ROOT / "sample_projects" / "digits_on_two"
SCONSTRUCT = """\
import os
import edgebuild.build.scons
env = Environment(tools=["default", edgebuild.build.scons.generate], ENV=os.environ)
SConscript("SConscript", "env", variant_dir="build", duplicate=False)
"""


class Project:
    """The sample in a folder with a space in its name."""

    def __init__(self, folder: Path, tool: str, copied: bool = False) -> None:
        self.folder, self.tool = folder, tool
        if not copied:
            shutil.copytree(SAMPLE, folder)
        if tool == "scons":
            (folder / "SConstruct").write_text(SCONSTRUCT)
        else:
            arguments = [f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}", "-Werror=dev"]
            run("cmake", "-G", tool, "-B", "build", f"-DEDGEBUILD_PYTHON={sys.executable}", *arguments, cwd=folder)

    def build(self) -> str:
        command = [sys.executable, "-m", "SCons", "-Q"] if self.tool == "scons" else ["cmake", "--build", "build"]
        return run(*command, cwd=self.folder)

    def generated(self, device: str) -> dict[str, bytes]:
        names = (".c", ".h", "_weights.bin", "_report.json")
        folder = self.folder / "build" / "edgebuild" / f"digits_{device}"
        return {name: (folder / f"digits_{device}{name}").read_bytes() for name in names}

    def run(self) -> str:
        """Both devices at once; what the source prints."""
        place = self.folder / "build"
        (self.folder.parent / "s").mkdir(exist_ok=True)  # paths of sockets are short
        env = {**os.environ, "EB_LINK_FOLDER": os.path.relpath(self.folder.parent / "s", place)}
        right = subprocess.Popen(["./right"], cwd=place, env={**env, "EB_LINK_DEVICE": "1"})
        try:
            text = run("./left", cwd=place, env={**env, "EB_LINK_DEVICE": "0"})
            assert right.wait(timeout=60) == 0
            return text
        finally:
            right.kill()
            right.wait()


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc", "cmake", "ninja")
@pytest.mark.parametrize("tool", ["scons", "Ninja"])
def test_the_sample_reads_all_digits_on_two_devices(tmp_path: Path, tool: str) -> None:
    project = Project(tmp_path / "the sample", tool)
    assert "Generating" in project.build()
    assert project.run() == "".join(f"digit {i}: seen {i}\n" for i in range(10))
    assert "Generating" not in project.build()
    before = project.generated("left")
    cluster = project.folder / "cluster.yaml"
    cluster.write_text(cluster.read_text().replace("right, target: host, flash: 4K", "right, target: host, flash: 5K"))
    assert "Generating" in project.build()
    assert project.generated("left") != before


@pytest.mark.needs("gcc", "cmake", "ninja")
def test_both_doors_make_the_same_bytes(tmp_path: Path) -> None:
    projects = [Project(tmp_path / tool, tool) for tool in ("scons", "Ninja")]
    for project in projects:
        project.build()
    for device in ("left", "right"):
        assert projects[0].generated(device) == projects[1].generated(device)


TWO = {
    "scons": """\
Import("env")
env = env.Clone(EDGEBUILD_TARGET="host")
a = env.Cluster("digits", "digits.onnx", "cluster.yaml", DEVICES="left right")
b = env.Cluster("b", "digits.onnx", "b.yaml", DEVICES="left right")
one = env.Model("digits", "digits.onnx")
env.Default(env.StaticLibrary("all", [a["left"], a["right"], b["left"], b["right"], one]))
""",
    "Ninja": """\
cmake_minimum_required(VERSION 3.24)
project(two LANGUAGES C ASM)
find_package(EdgeBuild REQUIRED)
edgebuild_add_model(b_left MODEL digits.onnx CLUSTER b.yaml DEVICE left TARGET host)
edgebuild_add_model(b_right MODEL digits.onnx CLUSTER b.yaml DEVICE right TARGET host)
edgebuild_add_cluster(digits MODEL digits.onnx CLUSTER cluster.yaml DEVICES left right TARGET host)
edgebuild_add_model(digits MODEL digits.onnx TARGET host)
""",
}


@pytest.mark.slow
@pytest.mark.needs("gcc", "cmake", "ninja")
@pytest.mark.parametrize("tool", ["scons", "Ninja"])
def test_two_clusters_and_a_model_of_the_same_name(tmp_path: Path, tool: str) -> None:
    """Each has its own files, in one build; a change of one cluster leaves the other."""
    folder = tmp_path / "two"
    shutil.copytree(SAMPLE, folder)
    (folder / "b.yaml").write_text((folder / "cluster.yaml").read_text().replace("source: left", "source: right"))
    (folder / ("SConscript" if tool == "scons" else "CMakeLists.txt")).write_text(TWO[tool])
    project = Project(folder, tool, copied=True)
    project.build()
    place = folder / "build" / "edgebuild"
    for name in ("digits", "digits_left", "digits_right", "b_left", "b_right"):
        assert f" {name}_invoke(" in (header := (place / name / f"{name}.h").read_text()) or f" {name}_serve(" in header
    before = {d: (place / d / f"{d}.c").read_bytes() for d in ("digits_left", "b_left")}
    assert before["digits_left"] != before["b_left"]
    (folder / "b.yaml").write_text(
        (folder / "b.yaml").read_text().replace("left, target: host, flash: 4K", "left, target: host, flash: 5K")
    )
    assert "Generating" in project.build()
    after = {d: (place / d / f"{d}.c").read_bytes() for d in before}
    assert after["digits_left"] == before["digits_left"] and after["b_left"] != before["b_left"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "middle"], "there is no device 'middle'"),
        ([], "option 'device' is missing: they go together"),
        (["--device", "left", "--ram", "16K"], "option 'ram': not for a device of a cluster"),
        (["--device", "left", "--target", "microbit"], "device 'left' is host, this build is for microbit"),
    ],
)
def test_wrong_requests(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = [] if "--target" in words else ["--target", "host"]
    model, cluster = str(SAMPLE / "digits.onnx"), str(SAMPLE / "cluster.yaml")
    assert main(["model", model, *target, "--cluster", cluster, "-o", str(tmp_path), "-q", *words]) == 1
    assert message in capsys.readouterr().err
