"""The SCons tool: firmware, dependencies, what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.doors.projects import DIGITS, Project, scons

pytestmark = pytest.mark.needs("gcc")

FIRMWARE = """\
import edgebuild.build.scons
env = Environment(tools=["default", edgebuild.build.scons.generate])
for target in ("mps2-an386", "riscv-virt"):
    SConscript(DIR + "/SConscript", ["env", "target"], variant_dir="build/" + target, duplicate=False)
"""


@pytest.mark.needs("arm-none-eabi-gcc", "riscv64-unknown-elf-gcc")
def test_sample_for_two_processors(tmp_path: Path) -> None:
    (tmp_path / "SConstruct").write_text(FIRMWARE.replace("DIR", repr(str(DIGITS))))
    scons(tmp_path, "-j2")
    assert "is up to date" in scons(tmp_path)
    for target in ("mps2-an386", "riscv-virt"):
        assert (tmp_path / "build" / target / "digits.elf").exists()
        products = tmp_path / "build" / target / "edgebuild"
        fragment = products / "digits" / "digits_memory.ld"
        fragment.write_text("/* edited */\n")
        assert " -o " not in scons(tmp_path) and "INSERT" in fragment.read_text()  # made again, equal to before
        # Linker scripts count: a change of one means a new link, and nothing else.
        script = products / target / f"{target}_regions.ld"
        script.write_text(script.read_text() + "/* edited */\n")
        output = scons(tmp_path)
        assert "-o build/" + target + "/digits.elf" in output
        assert "Generating" not in output and " -c " not in output


def test_codegen_alias_compiles_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "scons")
    output = scons(project.folder, "codegen")
    assert "Generating" in output and " -c " not in output
    assert (project.products / "digits.h").exists()


def test_dry_run_does_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "scons")
    scons(project.folder, "-n")
    assert not (project.folder / "build").exists()


def test_reason_of_a_rebuild_is_reported(tmp_path: Path) -> None:
    project = Project(tmp_path / "project", "scons")
    scons(project.folder, "codegen")
    project.write(RAM="20K")
    assert "Generating" in scons(project.folder, "-n", "codegen")
    assert "`RAM=20K' is a new dependency" in (output := scons(project.folder, "--debug=explain", "codegen"))
    assert "{" not in output
    tree = scons(project.folder, "--random", "--cache-show", "--tree=prune", "codegen")
    assert "up to date" in tree and "digits.onnx" in tree and "{" not in tree


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("env.Model('digits', 'digits.onnx', RAMM=1)", "unknown option RAMM; did you mean 'RAM'?"),
        ("env.Model('digits', 'digits.onnx', TARGET='mps2')", "Model('digits'): error: unknown target 'mps2'"),
        ("env.EdgeBuildTarget('mps2-an38')", "did you mean 'mps2-an386'?"),
    ],
)
def test_wrong_scripts(tmp_path: Path, call: str, message: str) -> None:
    project = Project(tmp_path / "project", "scons")
    (project.folder / "SConscript").write_text(f"Import('env')\n{call}\n")
    output = scons(project.folder, status=2)
    assert message in output
    assert f"{project.folder / 'SConscript'}:2: " in output
    assert "Traceback" not in output


def test_tool_of_the_checkout_is_that_of_the_package() -> None:
    names = ("site_scons/site_tools/edgebuild.py", "edgebuild/build/scons/site_tools/edgebuild.py")
    one, two = ((ROOT / name).read_text() for name in names)
    assert one == two
