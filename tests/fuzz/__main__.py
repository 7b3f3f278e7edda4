"""`./sconsw fuzz [--seed S] [--count N]`: everything random, from the day's seed where none is given."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

from edgebuild.base.workers import executor
from tests.judging import fork_judges, judge_without_vnni

from .journal import Journal
from .recipe import FORMS
from .units import OTHERS, TARGETS, Result, Unit, layers, networks, others, run

ROOT = Path(__file__).parents[2]
MAX_TEXT = 2000  # characters of a failure's text
PARTS = ("networks", "layers", *OTHERS)
SUMMED = 30  # units between two summaries
ONE_UNIT = """
import pathlib, pickle, sys
from tests.fuzz.units import run
pathlib.Path(sys.argv[1]).write_bytes(pickle.dumps(run(*pickle.load(sys.stdin.buffer))))
"""
BROKEN = 3  # pools that end one after another without a result: what then follows would end alike


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./sconsw fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; today's date if none is given")
    parser.add_argument("--count", type=int, default=100, help="networks of each form (%(default)s)")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="all if none is given")
    parser.add_argument("--targets", nargs="+", choices=("host", *TARGETS), help="all if none is given: each network "
                        "on the host in all modes, and on one of the others in some")  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=PARTS, help="leave out the rest")
    parser.add_argument("--blocks", type=int, default=0, help="of each network, of a few layers each; 0: 1 to 5")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side; 0: one for each core")
    parser.add_argument("--scheduler", metavar="tcp://HOST:PORT", help="let the workers of a scheduler of dask do the "
                        "work, each in a checkout at the same path; not with --jobs or --no-vnni")  # fmt: skip
    parser.add_argument("--programs", type=int, default=0, help="built for each network and target at most, of those "
                        "that differ; other plans run on values alone; 0: all")  # fmt: skip
    parser.add_argument("--seconds", type=int, help="begin nothing new after this time; --resume goes on")
    parser.add_argument("--resume", action="store_true", help="leave out what an earlier run found to be right")
    parser.add_argument("--no-vnni", action="store_true", help="run the onnxruntime that judges on a processor without "
                        "VNNI, which QEMU models (package qemu-user)")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build", help="for fuzz.json and fuzz/ (build)")
    options = parser.parse_args()
    if options.scheduler and (options.jobs != 1 or options.no_vnni):
        parser.error("--scheduler goes without --jobs and --no-vnni: that is for those who start the workers")
    options.output = options.output.resolve()  # compilers run in folders of their own
    return options


def main() -> int:
    options = arguments()
    seed = options.seed if options.seed is not None else int(time.strftime("%Y%m%d"))
    start, wanted = time.monotonic(), options.only or PARTS
    print(f"seed {seed}, count {options.count}", flush=True)
    drawn = networks(seed, options.count, options.forms, options.targets, options.blocks)
    units = list(drawn) if "networks" in wanted else []
    units += layers(seed, options.count, options.forms, options.targets) if "layers" in wanted else ()
    units += [u for part in OTHERS if part in wanted for u in others(part, seed, options.count)]
    journal = Journal(options.output, options.resume)
    missing = journal.missing(units)
    if options.resume:
        print(f"{len(units) - len(missing)} of {len(units)} units are done", flush=True)
    about = {"seeds": [seed, options.count], "parts": wanted}
    try:
        for n, result in enumerate(work(missing, options, journal, start), start=1):
            journal.add(result)
            for failure in result.failures:
                print(f"{failure['kind']}: {failure['command']}\n{failure['text'][-MAX_TEXT:]}", flush=True)
            if n % SUMMED == 0:
                summary = journal.write(units, about)
                progress = f"{n} of {len(missing)} units, {summary['runs']} runs, {len(summary['cases'])} failures"
                print(progress, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted: what follows is of the part that ran", file=sys.stderr)
    finally:
        summary = journal.write(units, {**about, "seconds": round(time.monotonic() - start)})
    print(json.dumps(summary, indent=1))
    return int(bool(summary["cases"]))


def work(missing: list[Unit], options: argparse.Namespace, journal: Journal, start: float) -> Iterator[Result]:
    """The results of all units, as they come, from `jobs` processes or the workers of a scheduler.

    One that ends its process breaks the pool of all. Those that ran then run again one by one, which tells whose
    fault it is; a scheduler does so by itself. Raises RuntimeError if `BROKEN` processes in a row end in that way.
    """
    waiting, running, suspects, broken = iter(missing), dict[Future[Result], Unit](), list[Unit](), 0
    while True:
        with _pool(options) as (pool, jobs):
            while True:
                late = options.seconds is not None and time.monotonic() - start > options.seconds
                while len(running) < (1 if suspects else jobs) and not late:
                    unit = suspects[0] if suspects else next(waiting, None)
                    if unit is None:
                        break
                    asked = (unit, options.output / "fuzz", journal.common(), options.programs)
                    running[pool.submit(_in_a_process if options.scheduler else run, *asked)] = unit
                if not running:
                    return
                done = wait(running, return_when=FIRST_COMPLETED).done
                single, ended = len(running) == 1, any(isinstance(f.exception(), BrokenProcessPool) for f in done)
                broken = broken + single if ended else 0
                if broken == BROKEN:
                    raise RuntimeError(f"{BROKEN} processes in a row ended by themselves")
                if ended and not single:
                    suspects, running = [*suspects, *running.values()], {}
                    break
                for future in done:
                    unit = running.pop(future)
                    suspects = [u for u in suspects if u != unit]
                    yield _result(future, unit)
                if ended:
                    break


def _in_a_process(*asked: object) -> Result:
    """The result of a unit, for workers of a scheduler: limits of time need the main thread, and these have others.

    Raises RuntimeError for a unit that ends its process, which is not the worker's.
    """
    with tempfile.TemporaryDirectory(prefix="edgebuild-fuzz-") as folder:
        file = Path(folder) / "result"
        command = [sys.executable, "-c", ONE_UNIT, str(file)]
        done = subprocess.run(command, input=pickle.dumps(asked), capture_output=True, cwd=ROOT)
        if done.returncode or not file.exists():
            raise RuntimeError(f"the process ended with status {done.returncode}: {done.stderr.decode()[-MAX_TEXT:]}")
        result = pickle.loads(file.read_bytes())
        assert isinstance(result, Result)
        return result


@contextmanager
def _pool(options: argparse.Namespace) -> Iterator[tuple[Executor, int]]:
    """Processes or workers that run units, and how many at a time."""
    if options.scheduler:
        with executor(options.scheduler) as pool_and_threads:
            yield pool_and_threads
        return
    jobs = options.jobs or os.cpu_count() or 1
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), judge_without_vnni if options.no_vnni else fork_judges)
    try:
        yield pool, jobs
    finally:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown()


def _result(future: Future[Result], unit: Unit) -> Result:
    """A unit that ends its process, or fails outside of what it judges, is a failure too."""
    problem = future.exception()
    if problem is None:
        return future.result()
    text = f"{type(problem).__name__}: {problem}"
    return Result(unit.name, failures=[{"kind": "traceback", "command": f"unit {unit.name}", "text": text}])


if __name__ == "__main__":
    sys.exit(main())
