"""`./sconsw fuzz [--seed S] [--count N]`: everything random, from the day's seed where none is given."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from tests.conftest import judge_without_vnni

from .journal import Journal
from .recipe import FORMS
from .units import OTHERS, TARGETS, Result, Unit, layers, networks, others, run

ROOT = Path(__file__).parents[2]
TOLD = 2000  # characters of a failure's text
PARTS = ("networks", "layers", *OTHERS)
SUMMED = 30  # units between two summaries
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
    parser.add_argument("--programs", type=int, default=0, help="built for each network and target at most, of those "
                        "that differ; other plans run on values alone; 0: all")  # fmt: skip
    parser.add_argument("--seconds", type=int, help="begin nothing new after this time; --resume goes on")
    parser.add_argument("--resume", action="store_true", help="leave out what an earlier run found to be right")
    parser.add_argument("--no-vnni", action="store_true", help="run the onnxruntime that judges on a processor without "
                        "VNNI, which QEMU models (package qemu-user)")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build", help="for fuzz.json and fuzz/ (build)")
    options = parser.parse_args()
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
                print(f"{failure['kind']}: {failure['command']}\n{failure['text'][-TOLD:]}", flush=True)
            if n % SUMMED == 0:
                found = journal.write(units, about)
                told = f"{n} of {len(missing)} units, {found['runs']} runs, {len(found['cases'])} failures"
                print(told, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted: what follows is of the part that ran", file=sys.stderr)
    finally:
        found = journal.write(units, {**about, "seconds": round(time.monotonic() - start)})
    print(json.dumps(found, indent=1))
    return int(bool(found["cases"]))


def work(missing: list[Unit], options: argparse.Namespace, journal: Journal, start: float) -> Iterator[Result]:
    """The results of all units, as they come, in `jobs` processes.

    One that ends its process breaks the pool of all. Those that ran then run again one by one, which tells whose
    fault it is. Raises RuntimeError if `BROKEN` processes in a row end in that way.
    """
    jobs, waiting, running = options.jobs or os.cpu_count() or 1, iter(missing), dict[Future[Result], Unit]()
    prepare = judge_without_vnni if options.no_vnni else None
    pool, suspects, broken = ProcessPoolExecutor(jobs, get_context("spawn"), prepare), list[Unit](), 0
    try:
        while True:
            late = options.seconds is not None and time.monotonic() - start > options.seconds
            while len(running) < (1 if suspects else jobs) and not late:
                unit = suspects[0] if suspects else next(waiting, None)
                if unit is None:
                    break
                running[pool.submit(run, unit, options.output / "fuzz", journal.common(), options.programs)] = unit
            if not running:
                return
            done = wait(running, return_when=FIRST_COMPLETED).done
            if any(isinstance(future.exception(), BrokenProcessPool) for future in done):
                alone = len(running) == 1
                broken, pool = broken + alone, ProcessPoolExecutor(jobs, get_context("spawn"), prepare)
                if broken == BROKEN:
                    raise RuntimeError(f"{BROKEN} processes in a row ended by themselves")
                if not alone:
                    suspects, running = [*suspects, *running.values()], {}
                    continue
            else:
                broken = 0
            for future in done:
                unit = running.pop(future)
                suspects = [u for u in suspects if u != unit]
                yield _result(future, unit)
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
