"""Random inputs besides networks: driver programs, damaged model files, plans of least energy."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from edgebuild.base.errors import EdgebuildError
from tests.drivers import test_random
from tests.importers import fuzz as damage

from .hostile import USES, problems
from .machine import Failure, compiled, report_of
from .networks import WRITERS, drawn

ROOT = Path(__file__).parents[2]
CLOCKED = "stm32f767"


@dataclass(frozen=True)
class Trouble:
    """`kind` as in Failure; `command` shows it again."""

    kind: str
    command: str
    text: str


def driver_programs(seed: int, count: int, folder: Path) -> Iterator[Trouble]:
    """Random programs, run as they were written and as they were merged; the shortest start that fails.

    Of four seeds in a row two are C++, and each language meets both targets.
    """
    target, cpp = "riscv-virt" if seed % 2 else "pulpino", seed % 4 > 1
    trouble, low, high = _programs(seed, count, target, folder, cpp), 0, count
    while trouble is not None and low + 1 < high:
        middle = (low + high) // 2
        failure = _programs(seed, middle, target, folder, cpp)
        low, high, trouble = (low, middle, failure) if failure else (middle, high, trouble)
    if trouble is not None:
        yield trouble


def mutants_of_drivers(number: int, count: int, folder: Path, scores: dict[str, int]) -> Iterator[Trouble]:
    """Faults in the generated code of one driver, of which a proof accepts none that a random trace shows.

    `scores` gets how many were refuted, and so on.
    """
    from tests.drivers import mutants

    name, build = mutants.subject(number)
    folder = folder / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    command = f"python -m tests.fuzz --only mutants --seed {number} --count {count}"
    try:
        score = mutants.judged(*build(folder), count, number, folder)
    except Exception:
        yield Trouble("traceback", command, f"{name}\n{traceback.format_exc()}")
        return
    shutil.rmtree(folder)
    for word in ("planted", "refused", "alike", "refuted", "unknown"):
        scores[word] = scores.get(word, 0) + getattr(score, word)
    yield from (Trouble("wrong", command, f"{name}: proved, and not alike: {text}") for text in score.false)


def _programs(seed: int, count: int, target: str, folder: Path, cpp: bool) -> Trouble | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        test_random.run(folder, seed, count, target, cpp)
    except Exception as problem:
        kind = "wrong" if isinstance(problem, AssertionError) else "traceback"
        code = f"run(Path('build/fuzz/drivers'), {seed}, {count}, '{target}', {cpp})"
        command = f'python -c "from pathlib import Path; from tests.drivers.test_random import run; {code}"'
        return Trouble(kind, command, traceback.format_exc())
    return None


def damaged_file(form: str, seed: int, count: int, folder: Path) -> Iterator[Trouble]:
    """Damaged files of a random network: each is refused or compiled, within bounds of time and memory."""
    recipe = drawn(form, seed)
    place = folder / f"{form}_{seed}"
    place.mkdir(parents=True, exist_ok=True)
    try:
        whole = WRITERS[form].write(recipe)
    except ValueError:
        return
    (place / f"whole.{recipe.suffix}").write_bytes(whole)
    arguments = [str(place), str(place / f"whole.{recipe.suffix}"), str(count), str(seed)]
    command = [sys.executable, "-P", damage.__file__, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        yield Trouble("traceback", " ".join(["python", *command[2:]]), done.stdout)
    else:
        shutil.rmtree(place)


def hostile_names(kind: str, seed: int, count: int, folder: Path) -> Iterator[Trouble]:
    """So many names at least: products say of them what they say of plain ones."""
    models = -(-count // USES[kind].names)
    seeds = range(seed * models, (seed + 1) * models)
    try:
        for number, wrong in problems(kind, seeds, folder):
            code = f"print(*problems('{kind}', [{number}], Path('build/fuzz/names')))"
            command = f'python -c "from pathlib import Path; from tests.fuzz.hostile import problems; {code}"'
            yield Trouble("wrong", command, wrong)
    except Exception:
        yield Trouble("traceback", f"names {kind} {seed}", traceback.format_exc())


def plan_of_energy(seed: int, folder: Path) -> Iterator[Trouble]:
    """A network with a random time for one inference: the plan keeps to it and adds up."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe, file = drawn("tflite", seed), folder / f"energy_{seed}.tflite"
    try:
        file.write_bytes(WRITERS["tflite"].write(recipe))
    except ValueError:
        return
    qos = round(10 ** Random(seed).uniform(-1.5, 2), 3)
    options = {"objective": "energy", "qos": qos, "tile": Random(seed).choice([None, "off", "rolling"])}
    command = " ".join(["edgebuild model", file.name, f"--name n --target {CLOCKED} -o DIR"]
                       + [f"--{k} {v}" for k, v in options.items() if v is not None])  # fmt: skip
    try:
        problems = list(plan_faults(report_of(compiled(file, CLOCKED, options))["energy"]))
    except EdgebuildError:
        return  # too little time, or an operator that is not there
    except Failure as failure:
        yield Trouble(failure.kind, command, failure.text)
        return
    if problems:
        yield Trouble("wrong", command, "; ".join(problems))


def plan_faults(plan: dict[str, Any]) -> Iterator[str]:
    """Find what is wrong with the `energy` section of a report by adding up its own tables."""
    layers, switches, idle = plan["layers"], plan["switches"], plan["idle"]
    for layer in layers:
        chosen = {k: layer[k] for k in ("config", "g", "lfo", "time_us", "energy_uj")}
        if chosen not in layer["points"]:
            yield f"layer {layer['name']} runs in a way that is not among its points"
    costs = {(c["from"], c["to"]): c for c in plan["switch_costs"]}
    configs = [plan["start"], *(layer["config"] for layer in layers), plan["start"]]
    needed = [pair for pair in pairwise(configs) if pair[0] != pair[1]]
    if sorted(needed) != sorted((s["from"], s["to"]) for s in switches):
        yield f"the clock changes {needed}, the plan lists {switches}"
    busy = sum(p["time_us"] for p in (*layers, *switches))
    if any(costs.get((s["from"], s["to"])) != s for s in switches):
        yield "a switch is not among the possible ones"
    if not math.isclose(busy, plan["time_us"], rel_tol=1e-6):
        yield f"layers and switches take {busy} us, the plan says {plan['time_us']}"
    if busy > plan["qos_us"] * (1 + 1e-6):
        yield f"{busy} us are more than {plan['qos_us']}"
    spent = sum(p["energy_uj"] for p in (*layers, *switches)) + idle["energy_uj"]
    if not math.isclose(spent, plan["energy_uj"], rel_tol=1e-6):
        yield f"the parts take {spent} uJ, the plan says {plan['energy_uj']}"
    single = _in_one(plan)
    if single is not None and single < plan["energy_uj"] * (1 - 1e-3):
        yield f"{plan['start']} for all layers takes {single} uJ, the plan {plan['energy_uj']}"


def _in_one(plan: dict[str, Any]) -> float | None:
    """Energy with the clock that the plan starts with, whose idle modes are told, for all; None: too slow."""
    points = [[p for p in layer["points"] if p["config"] == plan["start"]] for layer in plan["layers"]]
    if not all(points):
        return None
    chosen = [min(p, key=lambda point: point["time_us"]) for p in points]
    rest = plan["qos_us"] - sum(p["time_us"] for p in chosen)
    if rest < 0:
        return None
    ways = [m["energy_uj"] + m["power_mw"] * rest / 1000 for m in plan["idle_modes"] if m["min_time_us"] <= rest]
    return float(sum(p["energy_uj"] for p in chosen) + min(ways))
