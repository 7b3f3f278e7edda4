"""`python -m tests.bench_clocks`: what clocks are worth, as a table and in build/bench/clocks.json. All modelled.

For the three networks and slacks: the plan's energy against full clock with busy, gated and stop idling, and what part
comes from idling, from frequencies and from decoupling; for the F767 at the tightest slack also with other stalls than
those assumed. Then the solver on random instances, and, where unicorn and the Arm compiler are there, the emitted C
and seeded mistakes in it under the register model.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgebuild.base.target import load_target
from edgebuild.build.papers import Setting, as_in_the_thesis, energy_choices
from edgebuild.clock.configs import clock_plan
from edgebuild.clock.tree import load_clock_tree
from edgebuild.model.clocked import Choices
from edgebuild.model.energy.select import SLACKS, Comparison, compare, select
from tests.clocks.instances import random_problem
from tests.clocks.networks import NETWORKS, PAPER_NAMES

ROOT = Path(__file__).parents[1]
HEADINGS = f"{'network':22} slack  time ms  budget   busy  gated   stop | single | idle  freq.  DAE | switches  LFO"
CASES = (("stm32f767", 50_000_000), ("stm32f767", 8_000_000), ("stm32f429", 8_000_000), ("stm32f411", 8_000_000))


def settings() -> list[Setting]:
    """The F767 as it is used here, and step by step nearer to how the literature uses it; two chips without a cache."""
    f767, f429, f411 = (load_target(name) for name in ("stm32f767", "stm32f429", "stm32f411"))
    literature = as_in_the_thesis()
    return [
        Setting("stm32f767", f767, 50_000_000),
        Setting("stm32f767", f767, 8_000_000),
        replace(literature, name="stm32f767, arena in SRAM1", channelwise=False),
        literature,
        Setting("stm32f429", f429, 8_000_000),
        Setting("stm32f411", f411, 8_000_000),
    ]


def networks(setting: Setting) -> list[dict[str, Any]]:
    print(f"\n{setting.name}, HSE {setting.hse_hz / 1e6:g} MHz, code in flash; energy saved at equal latency, modelled")
    print(HEADINGS)
    rows = []
    for name in NETWORKS:
        steps = choices_of(name, setting)
        for slack in SLACKS:
            figures = compare(steps.plain, steps.layers, steps.model, slack)
            rows.append(_row(setting, name, figures))
            _print(name, figures)
    return rows


def sensitivity() -> list[dict[str, Any]]:
    """The figures at 10 % slack with the assumed stall cycles halved and doubled, and with none."""
    setting = settings()[0]
    print(f"\n{setting.name}, HSE {setting.hse_hz / 1e6:g} MHz, other stalls than the assumed ones")
    rows = []
    for factor in (0.0, 0.5, 1.0, 2.0):
        for name in NETWORKS:
            figures = compare_network(name, setting, SLACKS[0], factor)
            rows.append({**_row(setting, name, figures), "stall_factor": factor})
            _print(f"{factor:g} x {name}"[:22], figures)
    return rows


def choices_of(name: str, setting: Setting, stalls: float = 1.0) -> Choices:
    """All costs of a network's steps; `stalls`: the assumed stall cycles times this."""
    return energy_choices(PAPER_NAMES[name], setting, stalls)


@cache
def compare_network(name: str, setting: Setting, slack: float, stalls: float = 1.0) -> Comparison:
    steps = choices_of(name, setting, stalls)
    return compare(steps.plain, steps.layers, steps.model, slack)


def _print(name: str, c: Comparison) -> None:
    saved = "".join(f"{c.saving(b):7.1%}" for b in c.baselines)
    parts = "".join(f"{s:6.1%}" for s in c.shares.values())
    lfo = sum(p.lfo for p in c.plan.points)
    single = 1 - c.single.energy_uj / c.baselines["busy"]
    times = f"{c.plan.time_us / 1000:8.1f} {c.budget_us / 1000:7.1f}"
    rest = f"{len(c.plan.switched):8}  {lfo}/{len(c.plan.points)}"
    print(f"{name:22} {c.slack:5.0%} {times}{saved} | {single:6.1%} |{parts} | {rest}")


def _row(setting: Setting, name: str, c: Comparison) -> dict[str, Any]:
    return {
        "basis": "modelled",
        "chip": setting.target.name,
        "setting": setting.name,
        "hse_hz": setting.hse_hz,
        "network": name,
        "slack": c.slack,
        "budget_us": c.budget_us,
        "time_us": c.plan.time_us,
        "energy_uj": c.plan.energy_uj,
        "bound_uj": c.plan.bound_uj,
        "single_energy_uj": c.single.energy_uj,
        "baselines_uj": c.baselines,
        "saved": {b: c.saving(b) for b in c.baselines},
        "shares": c.shares,
        "switches": len(c.plan.switched),
        "idle": c.plan.mode.name,
    }


def solver(count: int = 30) -> dict[str, Any]:
    seconds, gaps = [], []
    for seed in range(count):
        problem = random_problem(seed)
        begin = time.process_time()
        choice = select(problem)
        seconds.append(time.process_time() - begin)
        gaps.append(1 - choice.bound_uj / choice.energy_uj)
    print(f"\nsolver, 60 layers x 12 points with relocking and idling, {count} random instances:")
    mean = sum(seconds) / count
    print(f"  longest {max(seconds):.2f} s, mean {mean:.2f} s (process time); gap to the bound {max(gaps):.1e}")
    return {"instances": count, "max_s": max(seconds), "mean_s": sum(seconds) / count, "max_gap": max(gaps)}


def mutations() -> dict[str, int]:
    """How many seeded mistakes in the emitted C the register model catches."""
    if not can_run():
        return {}
    from tests.clocks.mutations import MUTATIONS, SEEDED, caught

    count = sum(caught(kind, seed) is not None for kind, seed in SEEDED)
    print(f"seeded mistakes in the C: {count} of {len(SEEDED)} caught, {len(MUTATIONS)} kinds")
    return {"kinds": len(MUTATIONS), "mutants": len(SEEDED), "caught": count}


def can_run() -> bool:
    return find_spec("unicorn") is not None and shutil.which("arm-none-eabi-gcc") is not None


def sequences() -> list[dict[str, Any]]:
    if not can_run():
        print("\nregister model: skipped, it needs unicorn and arm-none-eabi-gcc")
        return []
    from tests.clocks.machine import Machine, build, exercise

    print("\nregister model: ordered pairs of configurations run, none of them with a violation")
    rows = []
    for chip, hse_hz in CASES:
        plan = clock_plan(load_clock_tree(chip), hse_hz)
        with tempfile.TemporaryDirectory() as folder:
            pairs = exercise(Machine(plan, build(plan, Path(folder))))
        print(f"  {chip}, HSE {hse_hz / 1e6:g} MHz: {pairs}")
        rows.append({"chip": chip, "hse_hz": hse_hz, "pairs": pairs, "violations": 0})
    return rows


def main() -> None:
    result = {
        "networks": [row for setting in settings() for row in networks(setting)],
        "sensitivity": sensitivity(),
        "solver": solver(),
        "sequences": sequences(),
        "mutations": mutations(),
    }
    file = ROOT / "build" / "bench" / "clocks.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
