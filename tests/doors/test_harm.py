"""Things that no command may do: hang, take memory without an end, or write over a file that it did not write."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebuild.base import atomic, inputs
from edgebuild.base.artifacts import Artifact, publish
from edgebuild.base.atomic import FolderLock
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest
from edgebuild.cli import main
from edgebuild.driver.pipeline import compile_driver
from edgebuild.driver.registers.svd import parse
from edgebuild.driver.source import sources
from edgebuild.driver.source.sources import named
from edgebuild.model.plan.memory import exact
from edgebuild.model.plan.memory.problem import Buffer
from edgebuild.model.verify.vectors import read_inputs, split_vectors
from edgebuild.model.views.reports import read_report
from tests.conftest import ROOT

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
GROUP = "bfGroup G { bit a; };\nmake_device(G, g, 0x40000000);\nvoid on(void) { g->a = 1; }\n"
LIMITS = 4 << 30, 60  # bytes, seconds


def run(*arguments: object, cwd: Path) -> tuple[int, str]:
    """The command in a process of its own that has limits: exit status, and what it says of errors."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (LIMITS[0], LIMITS[0]))

    command = [sys.executable, "-m", "edgebuild", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=cwd, env=environment, preexec_fn=limit, capture_output=True, text=True, timeout=LIMITS[1]
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


def driver(folder: Path, text: str, *options: str) -> tuple[int, str]:
    (folder / "d.c").write_text(text)
    return run("driver", "d.c", "--name", "n", "--target", "pulpino", "-o", "out", "-q", *options, cwd=folder)


# ---- one reader


@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
@pytest.mark.parametrize(
    "command",
    [
        "model X.onnx --target host",
        "model X.tflite --target host",
        "model m.onnx --target X.yaml",
        "model m.onnx --target host --cluster X.yaml --device a",
        "verify m.onnx --target host --inputs X.npz",
        "driver X.c --name n --target pulpino",
        "driver d.c --name n --target pulpino --layout fixed:X.svd",
        "driver d.c --name n --target pulpino --layout fixed:X.rdl",
        "driver d.c --name n --target pulpino --layout extend:X.json",
        "driver d.c --name n --target pulpino --profile X.yaml",
        "driver d.c --name n --target pulpino --force-include X.h",
        "layout X.csv",
        "map X.yaml --target host",
        "run X.req.json",
        "size X.elf",
    ],
)
def test_what_is_no_file_or_too_large_is_refused(
    command: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(DIGITS, tmp_path / "m.onnx")
    (tmp_path / "d.c").write_text(GROUP)
    word = next(w for w in command.split() if "X." in w)
    name = word.split(":")[-1]
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    elif kind == "device":
        (tmp_path / name).symlink_to("/dev/zero")
    else:
        with (tmp_path / name).open("wb") as file:
            file.truncate(8 << 30)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEBUILD_CACHE", str(tmp_path / "cache"))  # whose keys are digests of files
    assert main(command.split()) == 1
    errors = capsys.readouterr().err
    assert name in errors and "error: " in errors and not (tmp_path / "out").exists()


def test_a_file_may_have_its_whole_size_and_no_more(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x" * 100)
    assert inputs.read_bytes(file, most=100) == b"x" * 100
    with pytest.raises(EdgebuildError, match="larger than"):
        inputs.read_bytes(file, most=99)


# ---- sources of drivers


def test_a_source_that_includes_itself(tmp_path: Path) -> None:
    status, errors = driver(tmp_path, f'#include "d.c"\n{GROUP}')
    assert status == 1 and "nested too deeply" in errors


@pytest.mark.parametrize("end", ["self", "mutual", "macros"])
def test_cycles_with_guards_are_legal(end: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    text = f'#ifndef D\n#define D\n#include "d.c"\n{GROUP}#endif\n'
    if end == "mutual":
        for one, two, field in (("a", "b", "a"), ("b", "../sub/a", "b")):
            guarded = (
                f'#ifndef {one}_H\n#define {one}_H\n#include "{two}.h"\nbfGroup G{one} {{ bit {field}; }};\n#endif\n'
            )
            (tmp_path / "sub" / f"{one}.h").write_text(guarded)
        text = f'#include "sub/a.h"\n#include "sub/b.h"\n{GROUP}'
    elif end == "macros":  # the second time, another part of the file
        text = f'#ifdef SECOND\nbfGroup H {{ bit b; }};\n#else\n#define SECOND\n#include "d.c"\n{GROUP}#endif\n'
    assert driver(tmp_path, text) == (0, "")


def test_headers_that_are_too_deep_or_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_HEADERS", 400)
    for n in range(250):
        (tmp_path / f"c{n}.h").write_text(f'#include "c{n + 1}.h"\nbfGroup G{n} {{ bit a; }};\n')
    for n in range(10):
        (tmp_path / f"e{n}.h").write_text(f'#include "e{n + 1}.h"\n' * 2 + "/* bfGroup */\n")
    (tmp_path / "e10.h").write_text("/* bfGroup */\n")
    for name, text in (("c0", "more than 200 deep"), ("e0", "400 headers")):
        (tmp_path / "d.c").write_text(f'#include "{name}.h"\n{GROUP}')
        with pytest.raises(EdgebuildError, match=text):
            sources.read_sources([tmp_path / "d.c"], "riscv32-unknown-elf")


@pytest.mark.parametrize(
    "line",
    [
        '#include "/dev/zero"',
        "#include </dev/zero>",
        '#include "pipe.h"',
        "#include <pipe.h>",
        '#/**/include "/dev/zero"',
        '#inc\\\nlude "/dev/zero"',
        '%:include "/dev/zero"',
        '#include_next "/dev/zero"',
        '#import "/dev/zero"',
        '#include "plain.h"',
        '#define H "/dev/zero"\n#include H',
    ],
)
def test_a_header_that_is_none(line: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.h")
    (tmp_path / "plain.h").write_text('#include "pipe.h"\n')
    status, errors = driver(tmp_path, f"{line}\n{GROUP}", "-I", ".")
    assert status == 1 and ("a pipe or a device" in errors or "a header that is a device, a pipe" in errors), errors


def test_a_header_that_a_macro_names(tmp_path: Path) -> None:
    (tmp_path / "h.h").write_bytes(b"#define ONE 1 /* \xe4 */\n")
    assert driver(tmp_path, f'#define H "h.h"\n#include H\n{GROUP.replace("= 1", "= ONE")}') == (0, "")


def test_names_in_directives() -> None:
    assert named('#include "a"\n # include <b> // c\n/* #include "x" */ char *s = "#include <y>";') == {"a", "b"}
    assert named("#include HEADER") == set()
    assert named('x = "/*";\n#include "a"\n/* */') == {"a"}


def doubled(first: str, step: str, count: int = 40) -> str:
    """A chain of macros, each of which has the one before it twice."""
    return f"#define M0{first}\n" + "".join(f"#define M{n}{step.format(n - 1)}\n" for n in range(1, count + 1))


BOMBS = {
    "sum": (doubled(" 1", " M{0}+M{0}") + "int f(void) { return M40; }", "more than 192 MiB|nests too deeply"),
    "condition": (doubled(" 1", " M{0}+M{0}") + "#if M40\n#endif", "more than 192 MiB"),
    "statements": (doubled(" ;", " M{0} M{0}") + "void f(void) { M40 }", "more than 192 MiB"),
    "function": (doubled("(x) x x", "(x) M{0}(M{0}(x))") + "int a M40([1]);", "more than 192 MiB"),
    "headers": ('#include "h30.h"', "more than 1 s"),
    "deep": ("int f(int x) { return " + "x + " * 100_000 + "x; }", "nests too deeply"),
    "levels": ("int f(int x) { return " + "x + " * 300 + "x; }", "nest more than 200 levels"),
    "nodes": ("int f(int x) { " + "x = 0; " * 400 + "return x; }", "more than 100 statements"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_text_that_grows_without_an_end(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, words = BOMBS[name]
    monkeypatch.setattr(sources, "MEMORY", 192 << 20)
    monkeypatch.setattr(sources, "SECONDS", 1 if name == "headers" else 100)
    monkeypatch.setattr(sources, "MAX_NODES", 100 if name == "nodes" else sources.MAX_NODES)
    (tmp_path / "h0.h").write_text("int x;\n")
    for n in range(1, 31):
        (tmp_path / f"h{n}.h").write_text(f'#include "h{n - 1}.h"\n' * 2)
    (tmp_path / "d.c").write_text(f"{GROUP}\n{text}\n")
    with pytest.raises(EdgebuildError) as problem:
        sources.read_sources([tmp_path / "d.c"], "riscv32-unknown-elf")
    assert re.search(words, problem.value.diagnostics[0].text), problem.value


def test_long_chains_that_are_no_bombs(tmp_path: Path) -> None:
    chains = "if (x == 1) x = 2; else " * 180 + "x = 3; " + "x++; " * 2000
    (tmp_path / "d.c").write_text(f"{GROUP}\nvoid long_one(int x) {{ {chains} }}\n")
    sources.read_sources([tmp_path / "d.c"], "riscv32-unknown-elf")


# ---- descriptions of registers


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE d [<!ENTITY a "lol"><!ENTITY b "&a;&a;">]><d>&b;</d>',
        '<!DOCTYPE d [<!ENTITY a SYSTEM "/etc/passwd">]><d>&a;</d>',
        '<!DOCTYPE d [<!ENTITY % a SYSTEM "/etc/passwd"> %a;]><d/>',
    ],
)
def test_entities_are_refused(text: str) -> None:
    with pytest.raises(EdgebuildError, match="an entity is declared"):
        parse(text, "f.svd")


def test_large_texts_are_joined_once_and_depth_is_bounded() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    assert len(parse("<a>" + "x\n" * 1_000_000 + "</a>", "f.svd").text) == 2_000_000  # in pieces of a line each
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 5
    with pytest.raises(EdgebuildError, match="nested deeper than 100"):
        parse("<a>" * 100_000 + "</a>" * 100_000, "f.svd")
    with pytest.raises(EdgebuildError) as refused:
        parse(f"<d a='{'y' * 100_000}'><e></d>", "f.svd")
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("<% while (1) {} %>", "holds Perl"),
        ('`include "x.rdl"', "holds Perl"),
        ("`include <x.rdl>", "holds Perl"),
        ('`include "/dev/zero"', "a pipe or a device"),
        ('`include "d.rdl"', "circular"),
        ("addrmap t { addrmap { reg { field {} a; } R[100000000]; } g; };", "more than 65536 elements"),
        ("addrmap t { addrmap { reg { field {} a; } R; } g[1000000000]; };", "more than 65536 elements"),
        (
            "addrmap t { " + "regfile { " * 9 + "reg { field {} a; } R[60000]; " + "} f[2];" * 9 + "};",
            "more than 65536",
        ),
        ("addrmap t { " + "regfile { " * 3000 + "reg { field {} a; } R; " + "} f;" * 3000 + "};", "nested too deeply"),
    ],
)
def test_system_rdl_is_bounded(text: str, wanted: str, tmp_path: Path) -> None:
    (tmp_path / "x.rdl").write_text("<% system('touch ran') %>\n")
    (tmp_path / "d.rdl").write_text(text)
    status, errors = driver(tmp_path, GROUP, "--layout", "fixed:d.rdl")
    assert status == 1 and wanted in errors, errors
    assert not (tmp_path / "ran").exists()


# ---- arrays of inputs


def npy(array: np.ndarray | None = None, shape: tuple[int, ...] = (), dtype: str = "|i1", order: bool = False) -> bytes:
    stream = io.BytesIO()
    if array is not None:
        np.save(stream, array)
    else:
        np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": order, "shape": shape})
    return stream.getvalue()


def archive(file: Path, members: dict[str, bytes], form: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(file, "w", form) as opened:
        for name, data in members.items():
            opened.writestr(name, data)
    return file


PORT = {"name": "x", "shape": [1, 64], "dtype": "int8"}
DEEP = b"{'descr':'|i1','fortran_order':False,'shape':(" + b"(" * 2000 + b"3,64)}"


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_unpacked_as_numpy_does(order: str, tmp_path: Path) -> None:
    data = np.asarray(np.random.default_rng(0).integers(-128, 127, (3, 64)).astype(np.int8), order=order)  # type: ignore[call-overload]
    np.savez_compressed(tmp_path / "f.npz", x=data)
    vectors = split_vectors(read_inputs(tmp_path / "f.npz"), {"inputs": [PORT]})
    assert np.array_equal(np.concatenate([v for (v,) in vectors]), data)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"x.npy": npy(shape=(1 << 40, 64))}, "once they are unpacked"),
        ({"x.npy": npy(shape=(1 << 62, 1 << 62))}, "once they are unpacked"),
        ({"other.npy": npy(shape=(1 << 29,))}, "have no array 'x'"),
        ({"x.npy": npy(shape=(1 << 20, 64), dtype="<f4")}, "float32"),
        ({"x.npy": npy(shape=(1 << 20, 63))}, "has shape"),
        ({"x.npy": npy(shape=(3, 64)) + b"short"}, "damaged"),
        ({"x.npy": npy(shape=(-3, 64)) + bytes(192)}, "not a .npy or .npz"),
        ({"x.npy": npy(shape=(1,), dtype="|O") + b"cos\nsystem\n."}, "values of type object"),
        ({"x.npy": npy(shape=(1,), dtype="|V8") + bytes(8)}, "values of type"),
        ({"x.npy": b"\x93NUMPY\x01\x00" + len(DEEP).to_bytes(2, "little") + DEEP}, "not a .npy or .npz"),
        ({"x.npy": b"\x93NUMPY\x02\x00" + (1 << 30).to_bytes(4, "little") + b" " * 99}, "not a .npy or .npz"),
        ({"x.txt": b"hello"}, "not a .npy or .npz"),
        ({"x": npy(shape=(1, 64)) + bytes(64), "x.npy": npy(shape=(1, 64)) + bytes(64)}, "not a .npy or .npz"),
    ],
)
def test_arrays_that_are_refused_before_they_are_unpacked(members: dict[str, bytes], text: str, tmp_path: Path) -> None:
    file = archive(tmp_path / "f.npz", members)
    with pytest.raises(EdgebuildError, match=text):
        split_vectors(read_inputs(file), {"inputs": [PORT]})


def test_other_archives_and_damaged_ones(tmp_path: Path) -> None:
    plain = archive(tmp_path / "f.npz", {"x.npy": npy(np.zeros((3, 64), np.int8))}).read_bytes()
    whole = plain.find(b"PK\x05\x06")
    many = plain[:whole] + b"PK\x06\x07" + bytes(16) + plain[whole:]
    for data in (b"", b"PK", plain[: len(plain) // 2], many, DEEP, b"\x80\x04cos\nsystem\n."):
        (tmp_path / "f.npz").write_bytes(data)
        with pytest.raises(EdgebuildError, match=r"not a .npy or .npz"):
            read_inputs(tmp_path / "f.npz")
    archive(tmp_path / "f.npz", {"x.npy": npy(np.zeros((3, 64), np.int8))}, zipfile.ZIP_LZMA)
    with pytest.raises(EdgebuildError, match=r"not a .npy or .npz"):
        read_inputs(tmp_path / "f.npz")
    with (tmp_path / "f.npy").open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(DEEP).to_bytes(2, "little") + DEEP)
    with pytest.raises(EdgebuildError, match=r"not a .npy or .npz"):
        read_inputs(tmp_path / "f.npy")


# ---- YAML


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 400_000,
        "description: " + "x" * 900_000 + "\ninherits: " + "1" * 90_000 + "x",
        "a: &a [x,x,x,x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1 or ''},*a{n - 1 or ''}]\n" for n in range(1, 60)),
        "a: &a [*a]",
        "!!python/object/apply:os.system [touch ran]",
        "functions: {on: " + "1" * 200_000 + "x}",
    ],
)
def test_yaml_is_bounded(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.yaml").write_text(text)
    (tmp_path / "d.c").write_text(GROUP)
    monkeypatch.chdir(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    assert main(["targets", "t.yaml"]) == 1
    assert main(["driver", "d.c", "--name", "n", "--target", "pulpino", "--profile", "t.yaml"]) == 1
    assert "t.yaml" in capsys.readouterr().err and not (tmp_path / "ran").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < 10


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity"])
def test_numbers_that_json_does_not_have(number: str, tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text(f'{{"stack": {number}}}')
    for read in (lambda f: inputs.read_json(f, "wrong"), read_report):
        with pytest.raises(EdgebuildError, match=f": {number} is no number"):
            read(tmp_path / "n.json")


# ---- files of the user stay


@pytest.mark.parametrize("suffix", [".c", ".h", "_weights.bin", "_weights.S", "_report.json", "_memory.ld"])
def test_products_take_no_place_of_a_users_file(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"net{suffix}").write_bytes(b"mine\n")
    target = "mps2-an386" if suffix == "_weights.S" else "host"  # which has its weights in C
    command = ["model", str(DIGITS), "--name", "net", "--target", target, "-q", "-o", str(tmp_path)]
    assert main(command) == 1
    assert f"net{suffix}: error: edgebuild did not generate it" in capsys.readouterr().err
    assert [f.name for f in tmp_path.iterdir()] == [f"net{suffix}"]
    (tmp_path / f"net{suffix}").unlink()
    assert main(command) == 0 and main([*command, "--tile", "off", "--weights", "c"]) == 0 and main(command) == 0


def test_an_output_that_is_an_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name, through a link and through another name of the same file."""
    shutil.copy(DIGITS, tmp_path / "m.onnx")
    for link in ("soft", "soft.svg"):
        (tmp_path / link).symlink_to("m.onnx")
    os.link(tmp_path / "m.onnx", tmp_path / "hard")
    table = "id,lower,upper,size\na,0,1,4\n"
    (tmp_path / "t.csv").write_text(table)
    (tmp_path / "gpio.c").write_text(GROUP + "/* Generated by edgebuild */\n")
    monkeypatch.chdir(tmp_path)
    for command in (
        "verify m.onnx --target host --json m.onnx",
        "verify m.onnx --target host --json soft",
        "verify m.onnx --target host --json hard",
        "model m.onnx --target host --name n -o out --depfile soft",
        "inspect m.onnx --picture soft.svg",
        "map m.onnx --target host --json ./m.onnx",
        "layout t.csv -o t.csv",
        "driver gpio.c --name gpio --target pulpino",
        "driver gpio.c --name n --target pulpino --graph gpio.c -o out",
    ):
        assert main(command.split()) == 1, command
        assert "edgebuild does not write over it" in capsys.readouterr().err, command
    assert (tmp_path / "m.onnx").read_bytes() == DIGITS.read_bytes() and (tmp_path / "t.csv").read_text() == table
    assert (tmp_path / "gpio.c").read_text().startswith(GROUP)


def test_a_request_whose_products_are_its_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gpio.c").write_text(GROUP)
    request = {
        "kind": "driver",
        "name": "gpio",
        "options": {},
        "output": ".",
        "schema": 1,
        "source": ["gpio.c"],
        "target": "pulpino",
    }
    (tmp_path / "gpio.req.json").write_text(json.dumps(request))
    assert main(["run", str(tmp_path / "gpio.req.json")]) == 1
    assert "does not write over it" in capsys.readouterr().err and (tmp_path / "gpio.c").read_text() == GROUP


def test_two_commands_at_once_write_one_set_of_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One would move its file between two of the other: C with another plan's arena."""
    move = os.replace

    def slow(source: str, target: Path) -> None:
        time.sleep({("a", "2"): 0.06, ("b", "3"): 0.03}.get((Path(source).read_text(), target.name), 0))
        move(source, target)

    monkeypatch.setattr(os, "replace", slow)

    def work(mark: str) -> None:
        files = [Artifact(f"{number}", mark.encode()) for number in range(4)]
        publish(files, tmp_path / "new" / "out")
        with FolderLock(str(tmp_path)):  # a thread may enter again
            publish(files, tmp_path)

    threads = [threading.Thread(target=work, args=mark) for mark in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    for folder in (tmp_path, tmp_path / "new" / "out"):
        assert len({(folder / f"{number}").read_bytes() for number in range(4)}) == 1


def test_a_folder_with_files_of_the_user_is_no_place_for_a_test_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.o").write_bytes(b"mine")
    for command in ("verify", "calibrate"):
        where = ["--keep" if command == "verify" else "-o", str(tmp_path)]
        target = "host" if command == "verify" else "mps2-an386"
        assert main([command, str(DIGITS), "--target", target, *where]) == 1
        assert "holds files that edgebuild did not write" in capsys.readouterr().err
    assert [f.name for f in tmp_path.iterdir()] == ["mine.o"]


def test_a_module_for_cmake_takes_no_place_of_a_users_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cmake-module", "-o", str(tmp_path)]) == 0 and main(["cmake-module", "-o", str(tmp_path)]) == 0
    (tmp_path / "FindEdgeBuild.cmake").write_text("mine")
    assert main(["cmake-module", "-o", str(tmp_path)]) == 1
    assert (tmp_path / "FindEdgeBuild.cmake").read_text() == "mine"


@pytest.mark.parametrize("kind", ["pipe", "device", "other"])
def test_a_stamp_that_was_tampered_with(kind: str, tmp_path: Path) -> None:
    """It names what is looked at, and decides nothing else: nothing is removed, and nothing blocks."""
    (tmp_path / "gpio.c").write_text(GROUP)
    request = {
        "kind": "driver",
        "name": "n",
        "options": {},
        "output": "out",
        "schema": 1,
        "source": ["gpio.c"],
        "target": "pulpino",
    }
    (tmp_path / "n.req.json").write_text(json.dumps(request))
    assert run("run", "n.req.json", cwd=tmp_path) == (0, "")
    stamp, victim = tmp_path / "n.stamp", tmp_path / "victim"
    victim.write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    head, *lines = stamp.read_text().splitlines()
    aim = {"pipe": tmp_path / "pipe", "device": "/dev/zero", "other": victim}[kind]
    stamp.write_text("\n".join([head, lines[0], f"{'0' * 64} 0 {4 if kind == 'other' else 0} {aim}", "end", ""]))
    assert run("run", "n.req.json", cwd=tmp_path) == (0, "")
    assert stamp.read_text().splitlines()[1:-1] != [] and str(aim) not in stamp.read_text()
    assert victim.read_text() == "mine"
    stamp.unlink()
    os.mkfifo(stamp) if kind == "pipe" else stamp.symlink_to(victim)
    assert run("run", "n.req.json", cwd=tmp_path) == (0, "")
    assert victim.read_text() == "mine" and not stamp.is_symlink() and stamp.is_file()


@pytest.mark.parametrize("call", ["open", "replace"])
def test_an_interrupt_leaves_no_temporary_file(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives while the system works; Python raises when the work is done."""
    work: Any = {"open": open, "replace": os.replace}[call]

    def interrupted(*arguments: Any) -> None:
        work(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(atomic if call == "open" else os, call, interrupted, raising=False)
        atomic.replace_file(str(tmp_path / "x"), b"new")
    assert [f.name for f in tmp_path.iterdir()] == ([] if call == "open" else ["x"])


def test_solvers_leave_interrupts_to_python(tmp_path: Path) -> None:
    """A solver swallows an interrupt, or leaves no handler: the next one ends Python, with its files half written."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    (tmp_path / "d.c").write_text(GROUP.replace("bit a;", "bit a, b;").replace("a = 1;", "a = 1; g->b = 1;"))
    compile_driver(DriverRequest((tmp_path / "d.c",), "d", "host"))
    (sections,) = exact.split((Buffer("a", 2, 0, 1), Buffer("b", 2, 0, 1), Buffer("c", 1, 0, 1)))
    assert exact._solve(sections, 16, "Z", 1, 9).offsets
    caught = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigCgt"))
    signal.signal(signal.SIGINT, before)
    assert int(caught.split()[1], 16) >> signal.SIGINT - 1 & 1
