"""Export networks of PyTorch and Keras to ONNX with their framework's own exporter, if it is installed.

Files are checked first, and only admitted parts are passed on, in new files that this module writes. The exporter runs
in its own process with limits. Its result is read like any ONNX file.
"""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ...base import cache, programs
from ...base.errors import EdgebuildError, fail, visible
from ...base.inputs import MODEL, read_bytes, read_json
from .format import Format, Wanted

if TYPE_CHECKING:
    from ..ir import Graph

SECONDS, MEMORY = 600, 12 << 30  # processor time, and bytes that the exporter may map, mostly for its libraries
SCRIPT = Path(__file__).with_name("exporter_process.py")


@dataclass(frozen=True)
class Exporter:
    """`packages`: packages that must be installed, in addition to those of Keras's backend.

    `lines`: Python code for the user that exports to ONNX.
    """

    packages: Sequence[str]
    lines: Sequence[str]


EXPORTERS: Mapping[str, Exporter] = {
    "torch": Exporter(("torch", "onnxscript"), ("program = torch.export.load('net.pt2')  # unpickles: if you trust it",
                       "torch.onnx.export(program, dynamo=True).save('net.onnx')")),
    "keras": Exporter(("keras",), ("network = keras.saving.load_model('net.keras')  # if you trust it",
                                   "network.predict(sample); network.export('net.onnx', format='onnx')")),
}  # fmt: skip


def lines_of(framework: str) -> list[str]:
    """A hint for the user with code that exports to ONNX."""
    return ["these lines make an ONNX file, which is read anywhere:", *EXPORTERS[framework].lines]


def missing(framework: str) -> list[str]:
    """Packages that the exporter of a framework needs and that are not installed."""
    packages = [*EXPORTERS[framework].packages]
    if framework == "keras":
        packages += {"tensorflow": ["tensorflow", "tf2onnx"], "torch": ["torch", "onnxscript"]}.get(keras_backend(), [])
    return [name for name in packages if find_spec(name) is None]


def exported(framework: str, file: str, given: Mapping[str, bytes]) -> bytes:
    """The network as bytes of an ONNX file. `given`: name -> checked content of files for `exporter_process.py`.

    The result is cached by these and by versions of packages. Raises EdgebuildError if packages lack or export fails.
    """
    if lacks := missing(framework):
        text = f"is read by {framework}'s own exporter, and here is no {' and no '.join(lacks)}"
        raise fail(text, file=file, hints=[f"pip install {' '.join(lacks)}", *lines_of(framework)])
    question = f"export {framework} {_versions()} {_digest(given)}"
    with suppress(TypeError, ValueError):
        return base64.b64decode(cache.remembered(question), validate=True)
    with TemporaryDirectory() as name:
        folder = Path(name)
        for own, data in given.items():
            (folder / own).write_bytes(data)
        _run(framework, file, folder)
        data = read_bytes(folder / "net.onnx", "cannot read what the exporter wrote", MODEL)
    cache.remember(question, base64.b64encode(data).decode())
    return data


@contextmanager
def onnx_file(form: Format | None, path: Path) -> Iterator[Path]:
    """Path of the file, or of a temporary ONNX file that its framework's exporter makes from it."""
    if form is None or form.to_onnx is None:
        yield path
        return
    with TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        copy.write_bytes(form.to_onnx(path))
        yield copy


def read_exported(form: Format, path: Path, wanted: Wanted) -> Graph:
    """Export the file to ONNX and read that as a graph."""
    from .onnx.onnx_reader import read_onnx

    with onnx_file(form, path) as copy:
        return read_onnx(copy, dict(wanted.shapes), wanted.outputs, dict(wanted.bound))


def _versions() -> str:
    from importlib.metadata import PackageNotFoundError, version  # late, because every command imports this module

    installed = []
    for name in ("torch", "onnxscript", "keras", "tensorflow", "jax", "tf2onnx"):
        with suppress(PackageNotFoundError):
            installed.append(f"{name} {version(name)}")
    return ", ".join([*installed, f"by {keras_backend()}"])


def _digest(given: Mapping[str, bytes]) -> str:
    return " ".join(f"{name} {hashlib.sha256(data).hexdigest()}" for name, data in sorted(given.items()))


def _run(framework: str, file: str, folder: Path) -> None:
    """Run the exporter in `folder`. Raises EdgebuildError with the last line of its output."""
    env = {"PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3",
           "HOME": str(folder), "TMPDIR": str(folder), "KERAS_BACKEND": keras_backend()}  # fmt: skip
    command = [*_limits(), sys.executable, "-P", str(SCRIPT), framework, str(folder)]
    try:
        done = programs.run(command, folder, SECONDS, env)
    except subprocess.TimeoutExpired:
        raise _refused(framework, file, f"it takes more than {SECONDS} s") from None
    if done.returncode or not (folder / "net.onnx").is_file():
        ends = {-signal.SIGKILL: "it was ended: too little memory, or too much time", -signal.SIGSEGV: "it crashed"}
        words = [line for line in done.stderr.splitlines() if line.strip()] or [f"status {done.returncode}"]
        raise _refused(framework, file, ends.get(done.returncode, words[-1]))


def keras_backend() -> str:
    """The backend that the user has configured for Keras, else an installed one."""
    named = os.environ.get("KERAS_BACKEND", "")
    with suppress(EdgebuildError, AttributeError):
        home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")
        named = named or str(read_json(Path(home, "keras.json"), "no JSON").get("backend"))
    return next((name for name in (named, "tensorflow", "torch", "jax") if name and find_spec(name)), named)


def _limits() -> list[str]:
    """A command prefix that sets resource limits; empty if the system has no prlimit."""
    if not Path("/usr/bin/prlimit").exists():
        return []
    return ["/usr/bin/prlimit", f"--as={MEMORY}", f"--cpu={SECONDS}", "--core=0", f"--fsize={MODEL}", "--"]


def _refused(framework: str, file: str, words: str) -> EdgebuildError:
    return fail(f"{framework}'s exporter does not take it: {visible(words)}", file=file, hints=lines_of(framework))
