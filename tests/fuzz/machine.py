"""One compilation of the fuzzer: plan, print, build, run. What fails says in which of these stages."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from edgebuild.base.artifacts import Artifact
from edgebuild.base.errors import EdgebuildError, fail
from edgebuild.base.request import Value, model_request
from edgebuild.base.target import Target, hal_dir, link_flags, load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.ir import Array
from edgebuild.model.plan.memory.problem import ALIGN
from edgebuild.model.verify.harness import NAME, SANITIZERS, run_harness, write_sources
from edgebuild.model.verify.harness import sources as sources_of

from .shared import Shared

os.environ["EDGEBUILD_STRICT"] = "1"  # what fails inside is a failure, though a user gets the next best plan
os.environ["EDGEBUILD_CHECK"] = "all"  # every plan is run on values
os.environ["EDGEBUILD_CACHE"] = ""
QUICK = ("-std=c11", "-w", *SANITIZERS, "-O0")
SHARED = Shared()
PLAN_SECONDS, RUN_SECONDS = 120, 60
OWN_BYTES = 256  # of a memory, for variables of the test program


class Failure(Exception):
    """`kind`: traceback, timeout, does_not_compile, crash, wrong, unexplained. `where` tells equal causes apart.

    No frozen dataclass: whoever passes an exception on assigns its traceback, as pools of processes do.
    """

    def __init__(self, kind: str, where: str, text: str) -> None:
        super().__init__(kind, where, text)
        self.kind, self.where, self.text = kind, where, text

    @property
    def cause(self) -> str:
        return f"{self.kind} {self.where}"


class TooLong(BaseException):
    """Not an Exception, so that no handler in the compiler takes it for one of its own."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise TooLong after so many seconds of processor time, on which other work on the machine has no bearing."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def compiled(model: Path, target: str, options: Mapping[str, Value]) -> tuple[Artifact, ...]:
    """Compile the model. Raises EdgebuildError where it is refused, Failure for all else."""
    try:
        with at_most(PLAN_SECONDS), SHARED.of(model):
            settings = {name: value for name, value in options.items() if name != "dma"}  # which is of the run
            return compile_model(model_request(model, NAME, target, settings))
    except EdgebuildError:
        raise
    except TooLong:
        raise Failure("timeout", "plan", f"no plan after {PLAN_SECONDS} s") from None
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        where = f"{type(problem).__name__} {Path(last.filename).stem}.{last.name}"
        raise Failure("traceback", where, traceback.format_exc()) from None


def report_of(artifacts: Sequence[Artifact]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(next(a.data for a in artifacts if a.name.endswith("_report.json")))
    return report


def check_explained(report: Mapping[str, Any]) -> None:
    """Raise Failure unless buffers of the report, their ends rounded up, take all bytes of the arena.

    Tiles that move through the first level or scratchpads are no buffers of the report, nor constants on their way.
    """
    levels = [level["name"] for level in report.get("hierarchy", {"levels": []})["levels"]]
    target = load_target(report["target"])
    direct = any({target.memory("weights").name, *levels[:1]} <= set(unit.between) for unit in target.dma)
    nearest = {*levels[: 1 if direct else 2], *(name for engine in target.engines for name in engine.memories)}
    for memory, size in report["ram"]["by_memory"].items():
        if memory in nearest:
            continue
        used = np.zeros(size, bool)
        for b in report["layout"]["buffers"]:
            if b["memory"] == memory:
                used[b["offset"] : b["offset"] + -(-b["bytes"] // ALIGN) * ALIGN] = True
        if not used.all():
            raise Failure("unexplained", memory, f"{np.count_nonzero(~used)} of {size} B of {memory} are no buffer's")


def digest(artifacts: Sequence[Artifact]) -> str:
    """Of the code and the weights: plans that are printed alike are run once."""
    code = [a.data for a in artifacts if a.name.endswith((".c", ".bin"))]
    return hashlib.sha256(b"\0".join(code)).hexdigest()


@dataclass
class Machine:
    """A target with what all of its programs share, compiled once. Those of the host: at -O0 under the sanitizers."""

    name: str
    folder: Path
    shared: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        hal = hal_dir()
        runner = self.target.runner
        sources = [*self.target.startup, "src/counter.c"]
        sources += list(runner.sources if runner else ("src/semihost_host.c",))
        for source in sources:
            output = self.folder / (Path(source).stem + ".o")
            self._tool([*self.flags, f"-I{hal / 'include'}", "-c", str(hal / source), "-o", str(output)], self.folder)
            self.shared.append(str(output))

    @cached_property
    def target(self) -> Target:
        return load_target(self.name)

    @property
    def flags(self) -> list[str]:
        return list(QUICK) if self.target.firmware is None else list(self.target.toolchain.cflags)

    def run(
        self, artifacts: Sequence[Artifact], vectors: list[list[Array]], folder: Path, dma: Value = None
    ) -> list[list[Array]]:
        """The outputs per vector. Raises Failure where the program does not build or does not end well.

        `dma`: when the model of a DMA unit moves bytes.
        """
        report, tools = report_of(artifacts), self.target.toolchain
        folder.mkdir(parents=True, exist_ok=True)
        write_sources(folder, self.target, artifacts, report, len(vectors))
        needs_libm = bool(report.get("needs_libm"))
        sources = [*map(str, sources_of(self.target, report)), str(hal_dir() / "harness/harness.c")]
        fragments = (f"{NAME}_memory.ld",) if self.target.firmware else ()
        libraries = [*(tools.libm if needs_libm else ()), *tools.libs]
        flags = [*self.flags, *(tools.libc if needs_libm else ()), "-I.", f"-I{hal_dir() / 'include'}"]
        scripts = [] if self.name == "host" else list(link_flags(self.target, fragments))
        self._tool([*flags, *sources, *self.shared, *scripts, "-o", "harness.elf", *libraries], folder)
        runner = replace(self.target.runner, timeout_s=RUN_SECONDS) if self.target.runner else None
        try:
            target, when = replace(self.target, runner=runner), {"EB_DMA": str(dma)} if dma else {}
            return run_harness(folder / "harness.elf", target, vectors, report, when).outputs
        except EdgebuildError as problem:
            text = "\n".join([problem.diagnostics[0].text, *problem.diagnostics[0].hints])
            summary = next((line for line in text.splitlines() if "SUMMARY" in line or "runtime error" in line), "")
            raise Failure("crash", summary.split("(")[0].split("/")[-1][:80], text) from None

    def _tool(self, arguments: Sequence[str], folder: Path) -> None:
        compiler = self.target.toolchain.compiler
        done = subprocess.run([compiler, *arguments], cwd=folder, text=True, capture_output=True)
        over = re.search(r"region .* overflowed by (\d+) bytes", done.stderr)
        if over and int(over[1]) <= OWN_BYTES:  # the model fills a memory that the test program needs a little of
            raise fail(over[0])
        if done.returncode:
            error = next((line for line in done.stderr.splitlines() if "rror" in line), done.stderr[-200:])
            raise Failure("does_not_compile", error.split("error:")[-1].strip()[:60], done.stderr[:4000])


@cache
def machine(name: str, folder: Path) -> Machine:
    return Machine(name, folder / "machines" / name)


def largest_difference(mine: Array, theirs: Array) -> float:
    """Infinite where one is no number."""
    distance = np.abs(mine.astype(np.float64) - theirs.astype(np.float64))
    return float(np.max(np.where(np.isnan(distance), np.inf, distance), initial=0.0))
