"""A copy of the checkout in which faults are planted, and the tests that run there.

The user's files are only read. The copy ends with its context, however that ends.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import ROOT

LEFT_OUT = re.compile(r"(\.venv|build|dist|\.git)$|(.*/)?(__pycache__|\.\w+_cache|\.hypothesis|\.sconsign\.dblite)$")
TEST_S = 240  # of one test: the longest takes one minute
MEMORY = 6 * 2**30  # bytes of all processes of a run: a fault may fill lists without end
LATE = "late"
NO_TESTS = 5  # pytest's exit status
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.*?|\S+\.py)(?: - .*)?$", re.MULTILINE)
TOO_LONG = re.compile(r"^\+* ?Timeout ?\+*|Failed: Timeout", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """Of one run of tests. `by`: the test that failed; `why`: "failed", "timeout" or "memory"; both empty if none.

    `whole`: all tests ran, as far as none failed.
    """

    by: str = ""
    why: str = ""
    text: str = ""
    whole: bool = True

    def __bool__(self) -> bool:
        return bool(self.why)


class Checkout:
    """A copy with its own bytecode. `edgebuild` is that of the copy in all processes that tests start."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        self.limit_s, self.unsound = limit_s, list[str]()
        self.root, self.scratch = folder / "checkout", folder / "scratch"
        self.scratch.mkdir()
        self.clock = 0
        _copy(ROOT, self.root)
        (self.root / ".venv").symlink_to(ROOT / ".venv")
        if (ROOT.parent / "shared").exists():
            (folder / "shared").symlink_to((ROOT.parent / "shared").resolve())

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the processes of its tests."""
        return {"PYTHONPATH": str(self.root), "TMPDIR": str(self.scratch), "COLUMNS": "400", "PYTHONHASHSEED": "0",
                "PYTEST_ADDOPTS": ""}  # fmt: skip

    @property
    def pytest(self) -> list[str]:
        """The command for its tests. Their names begin at its root, whatever files lie above it."""
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
        return [*command, f"--rootdir={self.root}", f"--basetemp={self.scratch / 'pytest'}"]

    @contextmanager
    def planted(self, file: str, text: bytes) -> Iterator[None]:
        """The file with another text. Times of files tell bytecode apart, so no two states have one time."""
        path = self.root / file
        original, times = path.read_bytes(), path.stat()
        self.clock += 2
        path.write_bytes(text)
        os.utime(path, (times.st_atime, times.st_mtime + self.clock))
        try:
            yield
        finally:
            path.write_bytes(original)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def run(self, tests: Sequence[str], keyword: str = "") -> Verdict:
        """Run these tests but the unsound ones in their order, until the first fails.

        Raises RuntimeError if there are none.
        """
        command = [*self.pytest, "-x", "--tb=short", f"--timeout={TEST_S}", "-rfE"]
        command += ["-k", keyword] if keyword else []
        command += [word for test in self.unsound for word in ("--deselect", test)]
        environment = {**os.environ, **self.environment}
        status, why, text = _watched([*command, *tests], self.root, environment, self.scratch / "output", self.limit_s)
        if why == LATE:
            return Verdict(whole=False)
        if status == NO_TESTS and keyword:
            return Verdict()
        if status in (NO_TESTS, 4) and not FAILED.search(text) and "Error" not in text:
            raise RuntimeError(f"no tests: {' '.join(tests)}\n{text[-2000:]}")
        if not status:
            return Verdict()
        names = FAILED.findall(text)
        why = why or ("timeout" if TOO_LONG.search(text) else "failed")
        return Verdict(names[0] if names else "", why, text)


@contextmanager
def checkout(limit_s: float) -> Iterator[Checkout]:
    """A copy, which is removed however the work ends. `limit_s`: of the processor, for one run of tests."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # what runs in the background inherits that it is ignored
    with TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        yield Checkout(Path(folder), limit_s)


def _copy(source: Path, target: Path) -> None:
    def left_out(folder: str, names: list[str]) -> list[str]:
        return [n for n in names if LEFT_OUT.match(str((Path(folder) / n).relative_to(source)))]

    shutil.copytree(source, target, symlinks=True, ignore=left_out)


def _watched(
    command: list[str], folder: Path, environment: dict[str, str], output: Path, limit_s: float
) -> tuple[int, str, str]:
    """Exit status, why it was ended if it was, output. Whatever the command started ends with it."""
    with open(output, "wb") as file:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        why = ""
        try:
            while process.poll() is None and not why:
                time.sleep(0.2)
                seconds, memory = _spent(process.pid)
                why = LATE if seconds > limit_s else "memory" if memory > MEMORY else ""
        finally:
            for process_id, _ in _session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(process_id, signal.SIGKILL)
            process.wait()
    return process.returncode, why, output.read_text(errors="replace")


def _session(leader: int) -> Iterator[tuple[int, list[str]]]:
    """Processes of a session that run, and what the system says of each from its state on (proc(5), stat)."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            yield int(folder.name), fields


def _spent(leader: int) -> tuple[float, int]:
    """Seconds of the processor that a session has taken, with processes that have ended, and bytes that it holds."""
    rows = [fields for _, fields in _session(leader)]
    seconds = sum(int(n) for fields in rows for n in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return seconds, sum(int(fields[21]) for fields in rows) * os.sysconf("SC_PAGE_SIZE")
