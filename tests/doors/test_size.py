"""Sizes of linked programs: the same as binutils' `size`, and parts that sum up to them."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from edgebuild import __version__
from edgebuild.base.target import load_target
from edgebuild.build.size import Linked, as_json, of_json, program_sizes
from edgebuild.cli import main
from tests.conftest import run
from tests.doors.projects import DIGITS, scons

MAIN_C = """\
#include "digits.h"
#include "second.h"
static volatile int initialised[7] = {1, 2, 3};
int counted;
int main(void) { digits_invoke(); second_invoke(); return initialised[counted] + digits_output()[0]; }
"""
MODELS = ["digits", "second"]
TARGETS = {"host": "gcc", "mps2-an386": "arm-none-eabi-gcc", "riscv-virt": "riscv64-unknown-elf-gcc"}


def program(folder: Path, target: str, main_c: str = MAIN_C) -> Path:
    """A program with two models; on bare targets with the start-up code and the linker script of `target`."""
    shutil.copy(DIGITS / "digits.onnx", folder)
    (folder / "main.c").write_text(main_c)
    text = """\
import edgebuild.doors
env = Environment(tools=["default", "edgebuild"], toolpath=[str(edgebuild.doors.scons_toolpath())])
if {target!r} != "host":
    env.EdgeBuildTarget({target!r})
models = [env.Model(name, "digits.onnx", WEIGHTS="asm", NOTE=True) for name in ("digits", "second")]
env.Program("app.elf", ["main.c", models])
"""
    (folder / "SConstruct").write_text(text.format(target=target))
    scons(folder)
    return folder / "app.elf"


@pytest.mark.one_in(3)
@pytest.mark.needs("size")
@pytest.mark.parametrize(
    "target", [pytest.param(t, marks=pytest.mark.needs(compiler)) for t, compiler in TARGETS.items()]
)
def test_equal_to_size_and_the_sum_of_its_parts(target: str, tmp_path: Path) -> None:
    elf = program(tmp_path, target)
    sizes = program_sizes(Linked(elf, memories=load_target(target).memories))
    counted = run("size", elf).splitlines()[1].split()
    assert [sizes.total.text, sizes.total.data, sizes.total.bss] == list(map(int, counted[:3]))
    assert list(sizes.parts) == ["digits", "second", "rest"]
    for kind in ("text", "data", "bss"):
        assert sum(asdict(part)[kind] for part in sizes.parts.values()) == asdict(sizes.total)[kind]
    weights = (elf.parent / "edgebuild" / "digits" / "digits_weights.bin").stat().st_size
    report = json.loads((elf.parent / "edgebuild" / "digits" / "digits_report.json").read_text())
    for name in ("digits", "second"):
        part = sizes.parts[name]
        assert part.text > weights and part.bss >= report["ram"]["arena_bytes"] and part.data == 0
    assert sizes.parts["rest"].data >= 28 and min(asdict(sizes.parts["rest"]).values()) >= 0
    if target != "host":
        assert sum(sum(part.values()) for part in sizes.memories.values()) == sizes.total.flash + sizes.total.ram
    assert not any(bound.reasons for bound in sizes.stacks.values())
    assert sizes.stacks["total"].bytes > sizes.stacks["digits"].bytes > 100
    digest = hashlib.sha256((tmp_path / "digits.onnx").read_bytes()).hexdigest()
    assert [(n["model"], n["sha256"], n["target"]) for n in sizes.notes] == [(n, digest, target) for n in MODELS]
    assert of_json(json.loads(json.dumps(as_json(sizes))), "") == sizes


@pytest.mark.needs("gcc", "objcopy")
def test_the_note_of_a_model_and_none_once_it_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--note", "--weights", "c", "--ram", "16K", "--name", "net", "-o", str(tmp_path), "-q"]
    assert main(["model", str(DIGITS / "digits.onnx"), "--target", "host", *files]) == 0
    (tmp_path / "main.c").write_text('#include "net.h"\nint main(void) { net_invoke(); return 0; }\n')
    flags = ["-std=c11", "-pedantic", "-Wall", "-Werror", "-ffunction-sections", "-Wl,--gc-sections"]
    run("gcc", *flags, "main.c", "net.c", "net_weights.c", "-o", "app", cwd=tmp_path)
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "app"), "--json", "-"]) == 0
    digest = hashlib.sha256((DIGITS / "digits.onnx").read_bytes()).hexdigest()
    note = {"model": "net", "sha256": digest, "target": "host", "tool": f"edgebuild {__version__}"}
    assert json.loads(capsys.readouterr().out) == [{**note, "ram": "16384", "weights": "c"}]
    run("objcopy", "-R", ".note.edgebuild", "app", cwd=tmp_path)
    assert main(["inspect", str(tmp_path / "app")]) == 1
    assert "compile the model with --note" in capsys.readouterr().err
    run("./app", cwd=tmp_path)


@pytest.mark.needs("gcc")
def test_what_grew_and_what_is_over_a_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    longer = MAIN_C.replace("int counted;", "int counted, more[100];").replace(
        "{ digits", "{ volatile char x[900]; x[counted] = 1; digits"
    )
    for name, text in (("a", MAIN_C), ("b", longer)):
        (tmp_path / name).mkdir()
        program(tmp_path / name, "host", text)
    old, new, last = tmp_path / "a" / "app.elf", tmp_path / "b" / "app.elf", tmp_path / "last.json"
    diff = ["size", str(new), "--diff", str(old)]
    assert main([*diff, "--json", str(tmp_path / "s.json")]) == 1
    output = capsys.readouterr()
    rows = {line.split()[0]: line.split() for line in output.out.splitlines()[1:]}
    assert rows["digits"][-3:] == ["+0", "+0", "+0"] and int(rows["rest"][-2]) >= 400
    assert "ram: +" in output.err and f"B since {old}" in output.err and "more +400 B" in output.err
    assert main([*diff, "--allow", "2K"]) == 0 and main(["size", str(old), "--diff", str(new)]) == 0
    sizes = json.loads((tmp_path / "s.json").read_text())
    ram = sizes["ram"]
    assert sizes["symbols"]["main.c:initialised"] == [0, 28, 0] and "initialised" not in sizes["symbols"]  # it is local
    assert sizes["base"]["ram"] == ram - int(rows["total"][-2]) and sizes["parts"]["digits"]["bss"] > 0
    assert main(["size", str(old), "--ram", str(ram - 1), "--last", str(last)]) == 0
    kept = last.read_bytes()
    assert main(["size", str(new), "--ram", str(ram)]) == 0
    capsys.readouterr()
    assert main(["size", str(new), "--ram", str(ram - 1), "--stack", "300", "--last", str(last)]) == 1
    output = capsys.readouterr()
    assert f"ram: {ram:,} B, 1 B over the budget" in output.err and f"stack: {sizes['stack']:,} B, " in output.err
    assert "grew since it was within the budget: " in output.err and "more +400 B" in output.err
    assert last.read_bytes() == kept
    assert main(["size", str(new), "--diff", str(last), "--allow", "0"]) == 1
    assert main(["size", str(new), "--allow", "0"]) == 1 and main(["size", str(new), "--entry", "none"]) == 1
    last.write_text("{}")
    assert main(["size", str(new), "--diff", str(last)]) == 1 and "not the sizes of a" in capsys.readouterr().err


@pytest.mark.needs("gcc")
def test_a_budget_of_the_stack_needs_a_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "main.c").write_text("int main(int c, char **v) { volatile char x[c]; x[0] = **v; return x[c - 1]; }")
    run("gcc", "-O1", "-fstack-usage", "main.c", "-o", "app", cwd=tmp_path)
    app, other = str(tmp_path / "app"), "objdump-that-is-not-there"
    assert main(["size", app]) == 0 and "'main' has a frame of unknown size" in capsys.readouterr().out
    assert main(["size", app, "--stack", "1M"]) == 1
    assert "no bound: 'main' has a frame of unknown size" in capsys.readouterr().err
    assert main(["size", app, "--objdump", other]) == 0 and other in capsys.readouterr().out
    row = next(tmp_path.glob("*.su"))
    assert "dynamic" in row.read_text()  # the compiler knows no bound either; of another program it may
    row.write_text(row.read_text().replace("dynamic", "dynamic,bounded"))
    assert main(["size", app, "--stack", "1M", "--stack-usage", str(tmp_path)]) == 0
    assert main(["size", app, "--stack", "1M", "--entry", "main"]) == 1


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"no program", None])
def test_what_is_no_program(data: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if data is not None:
        (tmp_path / "x").write_bytes(data)
    assert main(["size", str(tmp_path / "x")]) == 1
    assert f"{tmp_path / 'x'}: error: " in capsys.readouterr().err
