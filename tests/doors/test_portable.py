"""Commands where Python has no more than on Windows, and with another encoding than UTF-8: the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

LESS = """
import json, os, signal, sys
for module in ("fcntl", "termios", "resource", "pwd", "grp", "pty"):
    sys.modules[module] = None
for of, names in ((os, "fork killpg setsid getuid geteuid chown O_NOFOLLOW O_DIRECTORY O_NONBLOCK O_NOCTTY O_CLOEXEC"),
                  (signal, "SIGKILL SIGALRM SIGHUP SIGPIPE alarm setitimer")):
    for name in names.split():
        delattr(of, name)
"""
RUN = """
from edgebuild.cli import main
print([main(command) for command in json.loads(sys.argv[1])])
"""
SAMPLE = "sample_projects/digits"


def commands(folder: Path) -> list[list[str]]:
    lines = f"""model {SAMPLE}/digits.onnx --target mps2-an386 -o {folder}/model -q
        export {SAMPLE}/digits.onnx --as cmake --target host -o {folder}/export -q
        driver hal/drivers/pulpino_gpio.bf.c --name gpio --target pulpino -o {folder}/driver --quiet
        init {folder}/project --target mps2-an386 --build scons
        report {SAMPLE}/digits.onnx --target host -o {folder}/report.html
        verify {SAMPLE}/digits.onnx --target host --json {folder}/verify.json"""
    return [line.split() for line in lines.splitlines()]


def products(folder: Path, head: str) -> dict[str, bytes]:
    folder.mkdir()
    strict = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    command = [sys.executable, *strict, "-c", head + RUN, json.dumps(commands(folder))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.endswith(f"{[0] * len(commands(folder))}\n"), done.stdout + done.stderr
    files = [f for f in sorted(folder.rglob("*")) if f.is_file()]
    return {f.relative_to(folder).as_posix(): f.read_bytes().replace(str(folder).encode(), b"") for f in files}


def test_the_same_products_without_what_posix_alone_has(tmp_path: Path) -> None:
    less = products(tmp_path / "less", LESS)
    assert less == products(tmp_path / "more", "import json, sys\n")
    assert len(less) > 40 and not [name for name, data in less.items() if b"\r\n" in data and name[-4:] != ".bin"]
