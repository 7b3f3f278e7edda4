"""The command's help has examples that work, and its mistakes are one line with what would be right."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from edgebuild.cli import main
from edgebuild.cli.parsing import COMMANDS, command_line, command_parser, examples
from tests.graphs.tiny import tiny_tflite

EXAMPLES = examples()


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_are_read_as_they_are(command: str) -> None:
    """Each line up to where its remark, a pipe or a file begins; only the command itself is not run."""
    lines = [line.strip() for line in EXAMPLES[command].splitlines() if line.startswith("  ")]
    assert lines
    for line in lines:
        words = shlex.split(re.split("   | [|>] ", line)[0].replace("$(edgebuild", "; edgebuild").rstrip(")"))
        words = words[words.index("edgebuild") + 1 :]
        assert words[0] == command
        assert command_line(command).parse_args(words).command == command


def test_there_are_no_other_examples() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()


def test_help_ends_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["diff", "--help"])
    assert "--fail-if 'arena>+2%'" in capsys.readouterr().out


MISTAKES = [
    ("modle x.onnx", "there is no command 'modle'; did you mean 'model'?"),
    ("zzz", "there is no command 'zzz'; one of: model, "),
    ("", "required: COMMAND"),
    ("compile x.onnx", "there is no command 'compile'; did you mean 'model'?"),
    ("x.onnx --target host", "it stands before a file: `edgebuild model x.onnx --target NAME`"),
    ("--target host model x.onnx", "unknown option '--target'; options stand behind the command"),
    ("--verson", "unknown option '--verson'; did you mean '--version'?"),
    ("model x.onnx", "required: --target\n  --target: a name that `edgebuild targets` lists"),
    ("model x.onnx --traget host", "unknown option '--traget'; did you mean '--target'?"),
    ("model x.onnx --target host --tiles=off", "unknown option '--tiles'; did you mean '--tile'?"),
    ("model x.onnx --target host --tile atuo", "--tile: unknown value 'atuo'; did you mean 'auto'?"),
    ("model x.onnx --target host --tile 7", "--tile: unknown value '7'; one of: off, fdt, "),
    ("model x.onnx y.onnx --target host", "unexpected argument 'y.onnx'"),
    ("model x.onnx --target host --ram", "--ram: expected one argument"),
    ("model x.onnx -t host", "required: --target"),
    ("export x.onnx --as ardiuno --target host", "--as: unknown value 'ardiuno'; did you mean 'arduino'?"),
    ("cache statz", "action: unknown value 'statz'; did you mean 'stats'?"),
    ("driver x.bf.c --name n --target host --prove=strit", "unknown value 'strit'; did you mean 'strict'?"),
    ("tune", "name a model and --target, or give --clear"),
    ("verify x.onnx --min-accuracy 2", "'2' is no number from 0 to 1"),
]


@pytest.mark.parametrize(("words", "text"), MISTAKES)
def test_mistakes_name_what_would_be_right(words: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(words))
    output = capsys.readouterr()
    command = words.split(" ")[0]
    prog = f"edgebuild {command}" if command in COMMANDS else "edgebuild"
    assert ended.value.code == 2 and not output.out and "usage:" not in output.err
    assert output.err.startswith(f"{prog}: error: ") and text in output.err
    assert output.err.endswith(f"\n  `{prog} --help` says more\n")


FIGURES = [
    ("model {model} --target host -o {folder}/m -q", "ram"),
    ("export {model} --as cmake --target host -o {folder}/e", "report"),
    ("clock --target stm32f767 -o {folder}/c", "configs"),
    ("clock --target stm32f767 --hse 50MHz --explain 25,216,2", "legal"),
    ("tune --clear", None),
    ("layout {folder}/l.csv", "height"),
    ("targets 'stm32f4*'", 0),
    ("cache stats", "bound"),
    ("fit {model} --targets host,mps2-an386", "rows"),
    ("report {model} --target host", 0),
    ("inspect {model}", "schedule"),
    ("inspect {model} --target gap8 --sweep L1=16K:32K", 0),
    ("explain {model} --kernels", 0),
    ("explain E0201", "title"),
    ("ops", "onnx"),
    ("ops tflite", "tflite"),
    ("driver {folder}/d.bf.c --name d --target host -o {folder}/d", "layout"),
    ("diff {model} {model} --target host", "figures"),
]


@pytest.mark.parametrize(("words", "member"), FIGURES)
def test_figures_come_as_json(
    words: str, member: str | int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-` prints nothing but JSON; a file gets the same, beside what is printed otherwise."""
    (tmp_path / "tiny.tflite").write_bytes(tiny_tflite())
    (tmp_path / "d.bf.c").write_text(
        "bfGroup G { bit a; };\nmake_device(G, g, 0x40000000);\nvoid f(void) { g->a = 1; }\n"
    )
    (tmp_path / "l.csv").write_text("id,lower,upper,size\na,0,1,8\n")
    command = shlex.split(words.format(model=tmp_path / "tiny.tflite", folder=tmp_path))
    if command[0] == "targets":
        assert main([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[member]
        return
    assert main([*command, "--json", "-"]) == 0
    printed = capsys.readouterr().out
    assert isinstance(json.loads(printed), dict) if member is None else json.loads(printed)[member]
    assert main([*command, "--json", str(tmp_path / "f.json")]) == 0
    assert (tmp_path / "f.json").read_text() == printed


def test_a_dry_run_lists_the_products_and_writes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.tflite").write_bytes(tiny_tflite())
    command = ["model", str(tmp_path / "tiny.tflite"), "--target", "host", "-o", str(tmp_path / "out")]
    assert main([*command, "--dry-run"]) == 0
    listed = dict(line.split(" B  ")[::-1] for line in capsys.readouterr().out.splitlines() if " B  " in line)
    assert not (tmp_path / "out").exists()
    assert main(command) == 0
    sizes = {file.name: f"{file.stat().st_size:,}" for file in (tmp_path / "out").iterdir()}
    assert {name: size.strip() for name, size in listed.items()} == sizes


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mode", ["model"]),
        ("model --ti", ["--tile", "--time-limit"]),
        ("model x.onnx --tile r", ["rolling"]),
        ("verify x.onnx --target stm32f41", ["stm32f411", "stm32f412zg"]),
        ("ops o", ["onnx"]),
        ("model x", []),
        ("modle --ti", []),
    ],
)
def test_words_that_complete_a_line(line: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "words", *line.split(" ")]) == 0
    assert capsys.readouterr().out.split() == words


@pytest.mark.needs("groff")
def test_the_manual_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command and option is there, as it is typed; groff finds nothing to warn of."""
    assert main(["man"]) == 0
    (tmp_path / "edgebuild.1").write_text(capsys.readouterr().out)
    words = ["groff", "-man", "-ww", "-Tascii", "-P-cbou", "edgebuild.1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    for command in COMMANDS:
        flags = [flag for action in command_parser(command)._actions[1:] for flag in action.option_strings]
        assert f"   {command}\n" in done.stdout and all(flag in done.stdout for flag in flags), command
    assert "--fail-if 'arena>+2%'" in done.stdout and "`edgebuild ops`" in done.stdout


@pytest.mark.needs("bash")
def test_the_shell_asks_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    asked = "COMP_WORDS=(edgebuild model --tile r); COMP_CWORD=3; . ./script; _edgebuild; echo ${COMPREPLY[@]}"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", asked], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True)
    assert done.stdout.decode().split() == ["rolling"]


@pytest.mark.parametrize(
    ("environment", "is_coloured"),
    [({"FORCE_COLOR": "1"}, True), ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False), ({}, False)],
)
def test_errors_have_colour_where_it_is_wanted(
    environment: dict[str, str], is_coloured: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["model", "none.onnx", "--target", "host"]) == 1
    assert capsys.readouterr().err.startswith(
        "none.onnx: \33[1;31merror\33[0m: " if is_coloured else "none.onnx: error: "
    )


def test_closed_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main(["cmake-dir"]) == 0 and main(["model", "none.onnx", "--target", "host"]) == 1
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        assert main(["model", "none.onnx", "--target", "host"]) == 1 and main(["cmake-dir"]) == 0
    assert capsys.readouterr().out.endswith("cmake\n")
