"""`./sconsw fuzz [--seed S] [--count N]`: everything random, from the day's seed where none is given."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from .machine import machine
from .networks import Found, Tally, keep, recipes, smaller, sweep
from .others import ALL, Trouble
from .recipe import FORMS

ROOT = Path(__file__).parents[2]
TARGETS = ("microbit", "mps2-an385", "mps2-an386", "mps2-an500", "mps3-an547", "riscv-virt")
SMALL_OF_ALIKE = 3
KINDS = {"wrong": ("wrong", "crash"), "tracebacks": ("traceback", "timeout"), "does_not_compile": ("does_not_compile",)}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./sconsw fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; today's date if none is given")
    parser.add_argument("--count", type=int, default=100, help="networks of each form (%(default)s)")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="all if none is given")
    parser.add_argument("--targets", nargs="+", choices=("host", *TARGETS), help="all if none is given: each network "
                        "on the host in all modes, and on one of the others in some")  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=("networks", *ALL), help="leave out the rest")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build", help="for fuzz.json and fuzz/ (build)")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    seed = options.seed if options.seed is not None else int(time.strftime("%Y%m%d"))
    start, wanted = time.monotonic(), options.only or ["networks", *ALL]
    print(f"seed {seed}, count {options.count}", flush=True)
    tally, folder = Tally(), options.output / "fuzz"
    kept, troubles = list[Found](), list[Trouble]()
    try:
        if "networks" in wanted:
            networks(seed, options, folder, tally, kept)
        for name in (n for n in ALL if n in wanted):
            for trouble in ALL[name](seed, options.count, folder / name):
                print(f"{trouble.kind}: {trouble.command}\n{trouble.text[-2000:]}", flush=True)
                troubles.append(trouble)
    except KeyboardInterrupt:
        print("interrupted: what follows is of the part that ran", file=sys.stderr)
    result = {**_counts(kept, troubles), **_summary(tally), "seeds": [seed, options.count], "parts": wanted}
    result["seconds"] = round(time.monotonic() - start)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "fuzz.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))
    return int(bool(kept or troubles))


def networks(seed: int, options: argparse.Namespace, folder: Path, tally: Tally, kept: list[Found]) -> None:
    for i, recipe in enumerate(recipes(seed, options.count, options.forms)):
        for name in options.targets or ["host", TARGETS[i % len(TARGETS)]]:
            one = Tally()
            sweep(recipe, [machine(name, folder)], folder / "work", one, thorough=name == "host")
            kept += [_tell(f, folder, kept) for f in one.found]
            _add(tally, one)
        if i % 30 == 29:
            print(f"{tally.networks} networks, {tally.runs} runs, {len(kept)} failures", file=sys.stderr, flush=True)


def _tell(found: Found, folder: Path, kept: list[Found]) -> Found:
    """Keep a failure and say so. Of those that look alike only some are made small: that takes the most time."""
    alike = sum(
        (f.failure.cause, f.target, f.options) == (found.failure.cause, found.target, found.options) for f in kept
    )
    small = smaller(found, machine(found.target, folder), folder / "small") if alike < SMALL_OF_ALIKE else found
    done = keep(small, folder / "cases")
    print(f"{done.failure.kind}: {done.command}\n    {done.recipe.described()}\n    {done.failure.where}", flush=True)
    return done


def _add(tally: Tally, one: Tally) -> None:
    tally.runs += one.runs
    tally.networks += one.networks
    tally.same += one.same
    for reason, count in one.refused.items():
        tally.refused[reason] = tally.refused.get(reason, 0) + count


def _counts(kept: list[Found], troubles: list[Trouble]) -> dict[str, Any]:
    seen = [f.failure.kind for f in kept] + [t.kind for t in troubles]
    counts: dict[str, Any] = {name: sum(kind in kinds for kind in seen) for name, kinds in KINDS.items()}
    counts["not_least"] = seen.count("not_least")
    return {**counts, "cases": [f.command for f in kept] + [t.command for t in troubles]}


def _summary(tally: Tally) -> dict[str, Any]:
    refused = dict(sorted(tally.refused.items(), key=lambda item: -item[1]))
    return {"runs": tally.runs, "networks": tally.networks, "equal_plans": tally.same, "refused": refused}


if __name__ == "__main__":
    sys.exit(main())
