"""SCons projects of other shapes: two targets in one SConstruct, copied variant folders, builds that were killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import run
from tests.doors.projects import DIGITS, MAIN_C, Project, scons

PYTHON = [sys.executable, "-P", "-m", "edgebuild"]
TOOL = "import edgebuild.doors\ntoolpath = [str(edgebuild.doors.scons_toolpath())]\n"
TWO_TARGETS = f"""\
{TOOL}
for target in ("mps2-an386", "riscv-virt"):
    env = Environment(tools=["default", "edgebuild"], toolpath=toolpath, OBJPREFIX=target + "-", EDGEBUILD={PYTHON!r})
    env.EdgeBuildTarget(target)
    env.Program(target + ".elf", ["main.c", env.Model("digits", "digits.onnx", TILE="auto")])
"""
COPIED = f"""\
{TOOL}
one = Environment(tools=["default", "edgebuild"], toolpath=toolpath, EDGEBUILD={PYTHON!r})
two = one.Clone(EDGEBUILD_TARGET="host", CCFLAGS=["-O1"])
SConscript("src/SConscript", exports={{"env": one}}, variant_dir="out/one")
SConscript("src/SConscript", exports={{"env": two}}, variant_dir="out/two", duplicate=False)
"""


def sample(folder: Path, construct: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("digits.onnx", "main.c", "images.h"):
        shutil.copy(DIGITS / name, folder)
    (folder / "SConstruct").write_text(construct)
    return folder


@pytest.mark.needs("arm-none-eabi-gcc", "riscv64-unknown-elf-gcc", "qemu-system-arm")
def test_two_targets_in_one_sconstruct(tmp_path: Path) -> None:
    folder = sample(tmp_path / "a b", TWO_TARGETS)
    scons(folder)
    assert "is up to date" in scons(folder)
    run("qemu-system-arm", "-machine", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native",
        "-monitor", "none", "-serial", "none", "-kernel", "mps2-an386.elf", cwd=folder)  # fmt: skip
    machines = [run("readelf", "-h", f"{t}.elf", cwd=folder) for t in ("mps2-an386", "riscv-virt")]
    assert "ARM" in machines[0] and "RISC-V" in machines[1]


def test_one_name_for_two_models_is_an_error(tmp_path: Path) -> None:
    text = f"{TOOL}env = Environment(tools=['default', 'edgebuild'], toolpath=toolpath)\n"
    text += "for ram in ('16K', '20K'):\n    env.Model('digits', 'digits.onnx', RAM=ram)\n"
    output = scons(sample(tmp_path, text), status=2)
    assert "Model('digits'): error: the name is taken in this folder by another request" in output


def test_a_model_of_an_override_leaves_the_environment_alone(tmp_path: Path) -> None:
    """Later models of `env` are compiled as `env` says, and their headers are found there."""
    text = f"{TOOL}env = Environment(tools=['default', 'edgebuild'], toolpath=toolpath, EDGEBUILD={PYTHON!r})\n"
    text += "env.Override({'CPPDEFINES': ['ONLY_HERE']}).Model('other', 'digits.onnx')\n"
    text += "env.Program('app', ['main.c', env.Model('digits', 'digits.onnx')])\n"
    (folder := sample(tmp_path, text)).joinpath("main.c").write_text(MAIN_C)
    commands = [line for line in scons(folder).splitlines() if " -c " in line]
    assert all(("-DONLY_HERE" in c) == ("other" in c) for c in commands) and len(commands) > 2


def test_names_that_differ_in_case_only_are_an_error(tmp_path: Path) -> None:
    """Their macros are the same, so that the guard of the second header would hide it."""
    text = f"{TOOL}env = Environment(tools=['default', 'edgebuild'], toolpath=toolpath)\n"
    text += "for name in ('net', 'Net'):\n    env.Model(name, 'digits.onnx')\n"
    output = scons(sample(tmp_path, text), status=2)
    assert "Model('Net'): error: the name is taken in this folder by 'net'" in output


@pytest.mark.needs("gcc")
def test_variant_folders_with_and_without_copies(tmp_path: Path) -> None:
    folder = sample(tmp_path, COPIED)
    (folder / "src").mkdir()
    for name in ("digits.onnx", "main.c", "images.h"):
        (folder / name).rename(folder / "src" / name)
    (folder / "src" / "main.c").write_text('#include "digits.h"\nint main(void) { return DIGITS_OUTPUT_SIZE; }\n')
    text = "Import('env')\nenv.Program('app', ['main.c', env.Model('digits', 'digits.onnx')])\n"
    (folder / "src" / "SConscript").write_text(text)
    scons(folder)
    assert "is up to date" in scons(folder)
    products = [folder / "out" / which / "edgebuild" / "digits" / "digits.c" for which in ("one", "two")]
    assert products[0].read_bytes() == products[1].read_bytes()
    for which in ("one", "two"):
        run(folder / "out" / which / "app", status=10)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("what", ["model", "option"])
def test_killed_build_of_a_model_that_is_then_reverted(what: str, tmp_path: Path) -> None:
    """kill -9 comes between the products and what SCons remembers; then the model is as SCons remembers it."""
    project = Project(tmp_path / "project", "scons")
    project.build()
    right, model = project.generated(), project.model.read_bytes()
    if what == "model":
        project.model.write_bytes(other_weights(model))
    else:
        project.write(TILE="rolling")
    # The door calls this in place of Python: the products are written, and then all of SCons is killed.
    killer = project.python.read_text().replace("exec ", "") + KILL
    counting = project.python.read_text()
    project.python.write_text(killer)
    killed = subprocess.run([sys.executable, "-m", "SCons", "-Q"], cwd=project.folder, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert project.generated() != right
    project.python.write_text(counting)
    project.model.write_bytes(model)
    project.write()
    project.build()
    assert project.generated() == right
    assert project.build().starts == 0


KILL = """
case " $* " in *" --header "*) exit ;; esac
for p in $PPID $(awk '/^PPid/ { print $2 }' /proc/$PPID/status); do
    tr '\\0' ' ' </proc/$p/cmdline | grep -q -e '-m SCons -Q $' && kill -9 $p
done
"""


def other_weights(model: bytes) -> bytes:
    """The ONNX file with other bytes in its longest run of weights."""
    import onnx

    proto = onnx.load_from_string(model)
    tensor = max(proto.graph.initializer, key=lambda t: len(t.raw_data))
    tensor.raw_data = bytes(tensor.raw_data[::-1])
    return bytes(proto.SerializeToString())


@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.parametrize("call", ["env.Model('digits', 'digits.onnx')", "env.BfDriver('d', ['d.c'])"])
def test_cross_compiler_without_a_target_is_an_error(call: str, tmp_path: Path) -> None:
    text = (
        f"{TOOL}env = Environment(tools=['default', 'edgebuild'], toolpath=toolpath, CC='arm-none-eabi-gcc')\n{call}\n"
    )
    output = scons(sample(tmp_path, text), status=2)
    assert "arm-none-eabi-gcc is a cross compiler, and no target is named" in output
    assert f"{tmp_path / 'SConstruct'}:4: " in output
    with_target = call.replace(")", ", TARGET='mps2-an386')")
    (tmp_path / "d.c").touch()
    (tmp_path / "SConstruct").write_text(text.replace(call, with_target))
    scons(tmp_path, "-n")


@pytest.mark.needs("gcc")
def test_a_model_of_a_repository_and_a_header_that_every_source_includes(tmp_path: Path) -> None:
    """Model, driver and main.c lie in a folder that SCons looks into; declarations are nothing for an assembler."""
    folder = sample(
        tmp_path / "here",
        f"{TOOL}Repository('../there')\n"
        "env = Environment(tools=['default', 'edgebuild'], toolpath=toolpath, CCFLAGS=['-include', 'stdint.h'])\n"
        "led = env.BfDriver('led', 'led.bf.c', INCLUDE_DIRS='inc')\n"
        "env.Program('app', ['main.c', env.Model('digits', 'digits.onnx', WEIGHTS='asm'), led])\n",
    )
    (tmp_path / "there" / "inc").mkdir(parents=True)
    (tmp_path / "there" / "inc" / "pins.h").write_text("#define PLACE 0x40000000\n")
    led = '#include "pins.h"\nbfGroup Led { bit on; };\nmake_device(Led, led, PLACE);\nvoid on(void) { led->on = 1; }\n'
    (tmp_path / "there" / "led.bf.c").write_text(led)
    (folder / "digits.onnx").rename(tmp_path / "there" / "digits.onnx")
    (folder / "main.c").unlink()
    (tmp_path / "there" / "main.c").write_text(MAIN_C)
    scons(folder)
    run(folder / "app")
    assert "is up to date" in scons(folder)


@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.parametrize("variant", ["", ", variant_dir='build'", ", variant_dir='build', duplicate=False"])
def test_a_board_of_the_whole_project_in_a_subdirectory(variant: str, tmp_path: Path) -> None:
    text = f"{TOOL}env = Environment(tools=['default', 'edgebuild'], toolpath=toolpath)\n"
    text += f"env.EdgeBuildTarget('board.yaml')\nSConscript('net/SConscript', ['env']{variant})\n"
    folder = sample(tmp_path, text)
    (folder / "board.yaml").write_text("inherits: mps2-an386\ndescription: ours\n")
    (folder / "net").mkdir()
    (folder / "digits.onnx").rename(folder / "net" / "digits.onnx")
    (folder / "net" / "SConscript").write_text("Import('env')\nenv.Model('net', 'digits.onnx')\n")
    scons(folder, "codegen")
    place = folder / ("build" if variant else "net") / "edgebuild" / "net"
    assert json.loads((place / "net.req.json").read_text())["target"].endswith("../board.yaml")
    assert json.loads((place / "net_report.json").read_text())["target"] == "board"
