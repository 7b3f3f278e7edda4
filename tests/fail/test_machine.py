"""Requests that the machine refuses, and names that would deceive: a diagnostic, status 1, no half-written output."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import unicodedata
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgebuild.base.artifacts import Artifact, publish, write_atomic
from edgebuild.base.errors import STRICT, EdgebuildError, fail, fault
from edgebuild.base.text import visible
from edgebuild.build.entry import main as start
from edgebuild.cli import main
from edgebuild.model.formats import read_model
from edgebuild.model.formats.onnx.onnx_operators import READERS as ONNX_READERS
from edgebuild.model.formats.tflite.tflite_operators import READERS as TFLITE_READERS
from edgebuild.model.ops import SPECS
from edgebuild.model.ops.base import named
from tests.conftest import ROOT
from tests.fail.make_cases import small_onnx
from tests.graphs import Tiny, tiny_tflite

Capture = pytest.CaptureFixture[str]
EVIL = "a\nb\x1b[31m\u202ec */ ??/"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.tflite").write_bytes(tiny_tflite())
    return "tiny.tflite"


def message(capsys: Capture, *command: str) -> str:
    """The message of a command that fails."""
    assert main(list(command)) == 1
    output = capsys.readouterr()
    assert output.out == "" and "error: " in output.err and "Traceback" not in output.err
    return output.err


def test_output_that_is_a_file(model: str, capsys: Capture) -> None:
    Path("out").write_text("mine")
    text = message(capsys, "model", model, "--target", "host", "-o", "out", "--name", "n")
    assert text.startswith("out/n.c: error: cannot write it: ") and Path("out").read_text() == "mine"


def test_product_that_is_a_folder(model: str, capsys: Capture) -> None:
    Path("out/n_report.json").mkdir(parents=True)
    assert "out/n_report.json: error: cannot write it: Is a directory" in message(
        capsys, "model", model, "--target", "host", "-o", "out", "--name", "n"
    )
    assert [f.name for f in Path("out").iterdir()] == ["n_report.json"]


def test_sources_of_the_user_are_not_replaced(model: str, capsys: Capture) -> None:
    Path("main.c").write_text("int main(void) { return 0; }\n")
    text = message(capsys, "model", model, "--target", "host", "--name", "main")
    assert text.startswith("main.c: error: edgebuild did not generate it") and not Path("main.h").exists()
    assert Path("main.c").read_text() == "int main(void) { return 0; }\n"
    Path("main.c").write_text("")  # nothing is lost
    assert main(["model", model, "--target", "host", "--name", "main", "-q"]) == 0
    Path("main.c").write_text(Path("main.c").read_text() + "/* an edit */\n")  # of what may be made again at any time
    assert main(["model", model, "--target", "host", "--name", "main", "-q"]) == 0
    assert "an edit" not in Path("main.c").read_text()


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert start(["run", "n.req.json"]) == 1
    assert capsys.readouterr().err.startswith("n.req.json: error: cannot read the request: No such file")


def test_name_that_is_too_long(model: str, capsys: Capture) -> None:
    text = message(capsys, "model", model, "--target", "host", "-o", "out", "--name", "n" * 300)
    assert "cannot write it: File name too long" in text and not Path("out").exists()


@pytest.mark.parametrize("command", ["inspect {} --after import -o out/bench.txt", "bench {} --targets host -o out"])
def test_files_of_one_command_are_written_together(command: str, model: str, capsys: Capture) -> None:
    """The constants of another text of a graph, or half of a table, would be read as if they belonged to the rest."""
    names = ("bench.txt",) if "inspect" in command else ("bench.csv", "bench.json")
    for name in names:
        Path("out", name).mkdir(parents=True)
    assert "error: cannot write it: Is a directory" in message(capsys, *command.format(model).split())
    assert sorted(os.listdir("out")) == [*names]


@pytest.mark.parametrize("file", ["x" * 300 + ".tflite", "folder.tflite", "tiny.tflite/x.onnx"])
def test_model_that_cannot_be_read(file: str, model: str, capsys: Capture) -> None:
    Path("folder.tflite").mkdir()
    assert "error: cannot read the model: " in message(capsys, "model", file, "--target", "host", "--name", "n")


@pytest.mark.parametrize("suffix", ["onnx", "tflite", "yaml", "svd", "c"])
def test_pipe_in_the_place_of_a_file(suffix: str, model: str, capsys: Capture) -> None:
    """Nobody writes to it: reading it would never end."""
    pipe = f"pipe.{suffix}"
    os.mkfifo(pipe)
    Path("d.c").write_text("typedef bfGroup G { uint32 a; } G; void f(G *g) { g->a = 1; }\n")
    words = {
        "yaml": ["distribute", model, "--cluster", pipe],
        "svd": ["driver", "d.c", "--target", "host", "--layout", f"fixed:{pipe}"],
        "c": ["driver", pipe, "--target", "host"],
    }.get(suffix, ["model", pipe, "--target", "host"])
    assert f"{pipe}: error: cannot read" in (text := message(capsys, *words, "--name", "n")) and "a pipe" in text


def test_a_build_refuses_a_pipe_too(model: str, capsys: Capture) -> None:
    os.mkfifo("pipe.onnx")
    request = {"schema": 1, "kind": "model", "name": "n", "source": "pipe.onnx", "target": "host", "output": "."}
    Path("n.req.json").write_text(json.dumps({**request, "options": {}}))
    assert "pipe.onnx: error: cannot read it: it is a pipe" in message(capsys, "run", "n.req.json")


def test_links_and_devices_are_written_to(model: str, capsys: Capture) -> None:
    """As root, --depfile /dev/stdout had replaced the device by a file."""
    for out in ("out.d", "none.d"):
        Path(f"link_{out}").symlink_to(out)
        Path("out.d").write_text("")
        words = ["model", model, "--target", "host", "--name", "n", "-o", "o", "-q", "--depfile", f"link_{out}"]
        assert main(words) == 0
        assert Path(f"link_{out}").is_symlink() and Path(out).read_text().startswith("o/n.c:")
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(Path("pipe"), b"text")
    assert os.read(reader, 10) == b"text" and Path("pipe").is_fifo()


FOREIGN = {  # name -> its bytes, what is said
    "empty.onnx": (b"", "empty"),
    "m.h5": (b"\x89HDF\r\n\x1a\n", "a Keras model"),
    "m.pb": (b"\n\x10\n\x05input", "a graph of TensorFlow"),
    "old.pth": (pickle.dumps([1], 2), "a file of PyTorch"),
    "m.ort": (b"\x08\0\0\0ORTM", "a model in onnxruntime's own format"),
    "m.pte": (b"\x08\0\0\0ET12", "a program of ExecuTorch"),
    "m.gguf": (b"GGUF\3", "a GGUF file"),
    "m.safetensors": (b"\x02\0\0\0\0\0\0\0{}", "a safetensors file"),
    "page.onnx": (b"\n<!DOCTYPE html>", "a text in XML or HTML"),
    "lfs.tflite": (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
    "labels.npy": (b"\x93NUMPY\1\0v\0", "arrays of numpy"),
    "gz.tflite": (gzip.compress(b"TFL3", mtime=0), "compressed by gzip"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_other_tools_are_recognised(name: str, model: str, capsys: Capture) -> None:
    data, what = FOREIGN[name]
    Path(name).write_bytes(data)
    text = message(capsys, "model", name, "--target", "host", "--name", "n")
    assert f"not a model that edgebuild reads: {what}" in text and "\n  " in text


@pytest.mark.parametrize(
    ("inside", "what"), [("m/data.pkl", "a file of PyTorch"), ("m.h5", "a Keras model"), ("m.onnx", "a zip archive")]
)
def test_archives_of_other_tools_are_recognised(inside: str, what: str, model: str, capsys: Capture) -> None:
    with zipfile.ZipFile("m.onnx", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr(inside, "")
    assert f"reads: {what}" in message(capsys, "model", "m.onnx", "--target", "host", "--name", "n")
    Path("cut.pt").write_bytes(Path("m.onnx").read_bytes()[:40])
    assert "reads: a file of PyTorch" in message(capsys, "model", "cut.pt", "--target", "host", "--name", "n")
    Path("cut.zip").write_bytes(Path("cut.pt").read_bytes())
    assert "reads: a zip archive" in message(capsys, "model", "cut.zip", "--target", "host", "--name", "n")


def test_what_is_neither_report_nor_model_is_recognised(model: str, capsys: Capture) -> None:
    """Samples stand where a report or a model is wanted; --target would not help."""
    with zipfile.ZipFile("samples.npz", "w") as archive:
        archive.writestr("x.npy", "")
    assert "reads: arrays of numpy" in message(capsys, "report", "samples.npz", "-o", "page.html")
    Path("folder").mkdir()
    assert "Is a directory\n  name a file in it" in message(capsys, "report", "folder", "-o", "page.html")


def test_folder_of_a_saved_model_is_recognised(model: str, capsys: Capture) -> None:
    Path("saved").mkdir()
    Path("saved/saved_model.pb").touch()
    assert "a SavedModel of TensorFlow" in message(capsys, "model", "saved", "--target", "host", "--name", "n")


@pytest.mark.parametrize(
    "options",
    [["--depfile", "no/d"], ["--target", "x" * 300 + ".yaml"], ["--target", "folder.yaml"], ["--calibration", "none"]],
)
def test_files_of_options(options: list[str], model: str, capsys: Capture) -> None:
    Path("folder.yaml").mkdir()
    Path("no").write_text("a file")
    energy = ["--objective", "energy", "--qos", "50"] if "--calibration" in options else []
    message(capsys, "model", model, "-q", "--target", "stm32f767", *energy, *options, "-o", "out", "--name", "n")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda f: None, "cannot read the inputs: No such file"),
        (lambda f: f.mkdir(), "cannot read the inputs: Is a directory"),
        (lambda f: f.write_bytes(b""), "not a .npy or .npz file"),
        (lambda f: f.write_text("1, 2, 3"), "not a .npy or .npz file"),
        (lambda f: np.save(f, np.array([{"a": 1}], object)), "not a .npy or .npz file"),
        (lambda f: np.save(f, np.array(["text"])), "it holds values of type"),
        (lambda f: np.save(f, np.zeros((2, 3), np.int8)), "the inputs have 6 elements"),
        (lambda f: np.save(f, np.zeros((1, 1000), np.int8)), "the inputs have 1000 elements"),
    ],
)
def test_inputs(make: Callable[[Path], object], reason: str, model: str, capsys: Capture) -> None:
    make(Path("in.npy"))
    assert reason in message(capsys, "verify", model, "--target", "host", "--inputs", "in.npy")


@pytest.mark.parametrize("mode", ["bogus", "random:", "random:-1", "Eager"])
def test_moments_of_the_dma_model(mode: str, model: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["verify", model, "--target", "host", "--map", "layer", "--dma", mode])
    assert f"'{mode}' is neither eager nor lazy nor random:SEED" in capsys.readouterr().err


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    """The third product is more than what may be written: none of them changes, and nothing is left behind."""
    before = [Artifact(name, b"old") for name in ("a", "b", "c")]
    publish(before, tmp_path)
    program = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from edgebuild.base.artifacts import Artifact, publish, write_atomic\n"
        "from edgebuild.base.errors import EdgebuildError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: publish([Artifact('a', b'n'), Artifact('new/b', b'n'), Artifact('c', bytes(9999))], Path(sys.argv[1]))\n"
        "except EdgebuildError as error: print(error); raise SystemExit(1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (1, "") and done.stdout.startswith(f"{tmp_path}/c: error: cannot write it")
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == {"a": b"old", "b": b"old", "c": b"old"}


@pytest.mark.parametrize("command", ["model", "run"])
def test_a_full_disk_is_one_error_and_leaves_no_folder(command: str, model: str, tmp_path: Path) -> None:
    """Python names no file where the disk is full while it writes."""
    request = {"schema": 1, "kind": "model", "name": "n", "source": model, "target": "host"}
    request |= {"output": ".", "options": {}}
    Path("n.req.json").write_text(json.dumps(request))
    words = {"model": ["model", model, "--target", "host", "-o", "new/out"], "run": ["run", "--header", "n.req.json"]}
    program = (
        "import resource, signal, sys; from edgebuild.build.entry import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program, *words[command]], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "EDGEBUILD_CACHE": ""})  # fmt: skip
    assert done.returncode == 1 and re.match(r"\S+: error: cannot write it: File too large\n", done.stderr), done.stderr
    assert not Path("new").exists()


NO_PROGRAM = [(("x.elf",), "no program of a RISC-V core"), (("--cores", "17", "x.elf"), "17 is not from 1 to 16")]


@pytest.mark.parametrize(("words", "wanted"), NO_PROGRAM)
@pytest.mark.needs("gcc")
def test_simulate_names_what_is_wrong(words: tuple[str, ...], wanted: str, tmp_path: Path, capfd: Capture) -> None:
    (tmp_path / "x.elf").write_bytes(b"\x7fELF\1\1" + bytes(46))
    try:
        status = main(["simulate", "corev", *words[:-1], str(tmp_path / words[-1])])
    except SystemExit as usage:
        status = usage.code
    assert status in (1, 2) and wanted in capfd.readouterr().err.split("error: ")[1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(model: str, capsys: Capture) -> None:
    Path("out").mkdir(mode=0o500)
    assert "cannot write it: Permission denied" in message(capsys, "model", model, "--target", "host", "-o", "out")


def test_too_little_memory(model: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(request: object) -> None:
        raise MemoryError

    monkeypatch.setattr("edgebuild.model.compile.compile_model", full)
    assert "not enough memory" in message(capsys, "model", model, "--target", "host", "--name", "n")


@pytest.mark.parametrize(
    ("reason", "status", "text"),
    [
        (ImportError("libx.so.9: failed to map segment from shared object"), 1, "not enough memory"),
        (ImportError("libx.so.9: cannot open shared object file"), 3, "a package does not load: libx.so.9"),
        (ModuleNotFoundError("No module named 'onnx'", name="onnx"), 3, "No module named 'onnx'"),
    ],
)
def test_a_package_that_does_not_load(
    reason: ImportError, status: int, text: str, model: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(request: object) -> None:
        raise reason

    monkeypatch.setattr("edgebuild.model.compile.compile_model", broken)
    assert main(["model", model, "--target", "host", "--name", "n"]) == status
    output = capsys.readouterr()
    assert output.out == "" and output.err.startswith("error: ") and text in output.err


ABSURD = {
    "input of a TFLite model": lambda: _tflite_of(1, 200_000, 200_000, 3),
    "input of an ONNX model": lambda: small_onnx("Relu", (1, 3, 200_000, 200_000)).SerializeToString(),
    "constant of an ONNX model": lambda: _constant_of_shape([100_000, 100_000]),
}


def _tflite_of(*shape: int) -> bytes:
    model = Tiny()
    model.file.tensors[0].shape = list(shape)
    return model.pack()


def _constant_of_shape(shape: list[int]) -> bytes:
    model = small_onnx("Relu", (1, 4))
    last = model.graph.node[0].output[0]
    model.graph.node[0].output[0] = "one"
    model.graph.node.append(onnx.helper.make_node("Add", ["one", "top"], [last]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(shape, np.int64), "shape"))
    model.graph.node.insert(0, onnx.helper.make_node("ReduceMax", ["large"], ["top"]))
    model.graph.node.insert(0, onnx.helper.make_node("ConstantOfShape", ["shape"], ["large"]))
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("what", ABSURD)
def test_absurd_sizes_are_refused_before_any_work(what: str, model: str) -> None:
    """In a process that may not have 2 GB."""
    file = Path("big.onnx" if "ONNX" in what else "big.tflite")
    file.write_bytes(ABSURD[what]())
    command = [sys.executable, "-P", "-m", "edgebuild", "model", str(file), "--target", "host", "-o", "out"]
    done = subprocess.run(
        ["sh", "-c", f'ulimit -v {2 << 20} && exec "$@"', "sh", *command], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 1 and done.stdout == "" and not Path("out").exists()
    assert "x200000" in done.stderr or "a constant of shape 100000x100000 is too large" in done.stderr, done.stderr


HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, marks of direction, halves of pairs, line separators


def test_visible_text_has_no_character_that_nobody_sees() -> None:
    every = "".join(map(chr, range(0x110000)))
    assert not {unicodedata.category(c) for c in visible(every) if c != "\t"} & {*HIDDEN}
    assert visible("tëxt\t→ 漢") == "tëxt\t→ 漢" and visible("a\nb") == "a\\u000ab"


def test_names_of_a_model_reach_neither_terminal_nor_c(model: str, capsys: Capture) -> None:
    tiny = Tiny()
    for t in tiny.file.tensors:
        t.name = EVIL.encode() + t.name
    file = f"{EVIL.replace('/', '_')}.tflite"
    Path(file).write_bytes(tiny.pack())
    for command in (["model", file, "--target", "host", "--name", "n", "-o", "out"], ["inspect", file]):
        assert main(command) == 0
        hidden_in(capsys.readouterr().out)
    for product in Path("out").iterdir():
        if product.suffix != ".bin":
            text = product.read_text()
            hidden_in(text)
            assert "??/" not in text or product.suffix == ".json"
    if shutil.which("gcc"):
        flags = ["-std=c11", "-Wall", "-Wextra", "-Wtrigraphs", "-Werror", "-fsyntax-only"]
        subprocess.run(["gcc", *flags, "out/n.c"], check=True)
    tiny.file.operators[0].opcodeIndex = 77
    Path(file).write_bytes(tiny.pack())
    hidden_in(message(capsys, "model", file, "--target", "host", "--name", "n"))


def hidden_in(text: str) -> None:
    hidden = {c for c in text if c not in "\n\t" and unicodedata.category(c) in HIDDEN}
    assert not hidden and "a\nb" not in text


def test_source_of_a_driver_with_a_strange_name(model: str, capsys: Capture) -> None:
    name = EVIL.replace("/", "_") + ".c"
    Path(name).write_text("")
    text = message(capsys, "driver", name, "--name", "n", "--target", "pulpino", "-o", "out")
    hidden_in(text)
    assert "cannot stand in #line" in text and not Path("out").exists()


def test_diagnostics_show_every_character() -> None:
    error = fail(EVIL, file=EVIL, node=EVIL, kind=EVIL, hints=[EVIL])
    assert isinstance(error, EdgebuildError)
    hidden_in(str(error))


def test_requests_with_strange_names(model: str, capsys: Capture) -> None:
    import json

    members = {
        "schema": 1,
        "kind": "model",
        "name": "n",
        "source": "a\0b",
        "target": "host",
        "output": ".",
        "options": {},
    }
    Path("n.req.json").write_text(json.dumps(members))
    assert "zero byte" in message(capsys, "run", "n.req.json")
    Path("n.req.json").write_text(json.dumps({**members, "source": EVIL + "\ud800"}))
    hidden_in(message(capsys, "run", "n.req.json"))


def break_clamp(monkeypatch: pytest.MonkeyPatch, fact: str) -> None:
    """Let a fact of clamps fail, which a Relu becomes."""

    def fails(*given: object) -> object:
        raise ZeroDivisionError("of a test")

    spec = named(replace(SPECS["clamp"], **{fact: (fails,) if fact == "limits" else fails}))
    monkeypatch.setitem(SPECS, "clamp", spec)
    monkeypatch.delenv(STRICT)


@pytest.mark.parametrize("fact", ["nest", "kernel", "reference", "rows", "limits", "interval"])
def test_a_fact_that_fails_names_its_node(
    fact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """A fault of ours is an error like all: file, node, kind and the line, and what to do with it."""
    monkeypatch.chdir(tmp_path)
    onnx.save(small_onnx(), "m.onnx")
    graph = read_model(Path("m.onnx"))
    break_clamp(monkeypatch, fact)
    if fact not in ("kernel", "limits"):  # asked for in some plans only
        with pytest.raises(ZeroDivisionError) as bug:
            getattr(SPECS["clamp"], fact)(graph.ops[0], graph)
        text = str(fault(bug.value))
    else:
        text = message(capsys, "model", "m.onnx", "--target", "host", "-o", "out", "--name", "n", "--tile", "off")
    assert re.search(r"m\.onnx: node 'relu0' \(Relu\): error: .*ZeroDivisionError: of a test", text)
    assert "report" in text and not Path("out").exists()


def test_a_reader_that_fails_names_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, model: str
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(small_onnx(), "m.onnx")
    for readers, kind, file in ((ONNX_READERS, "Relu", "m.onnx"), (TFLITE_READERS, "FULLY_CONNECTED", model)):
        monkeypatch.setitem(readers, kind, lambda node: [][1])
        text = message(capsys, "model", file, "--target", "host", "-o", "out", "--name", "n")
        assert re.match(rf"{file}: node '.*' \({kind}\): error: cannot be read: IndexError", text)
        assert "truncated" not in text


def test_a_strict_environment_gets_the_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(small_onnx(), "m.onnx")
    break_clamp(monkeypatch, "kernel")
    monkeypatch.setenv(STRICT, "1")
    with pytest.raises(ZeroDivisionError):
        main(["model", "m.onnx", "--target", "host", "-o", "out", "--name", "n", "--tile", "off"])
