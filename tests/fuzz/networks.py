"""The network of a seed in all modes, judged by TFLite Micro or onnxruntime; failures made small and kept."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import ModuleType

import numpy as np

from edgebuild.base.artifacts import Artifact
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import Value
from edgebuild.base.target import Target
from edgebuild.model.compile import prepare
from edgebuild.model.ir import Array
from edgebuild.model.verify.oracles import NoJudge, Reference, fit, reference
from edgebuild.model.verify.stepwise import stepwise
from edgebuild.model.verify.vectors import random_inputs

from . import onnx_writer, tflite_writer
from .machine import Failure, Machine, check_explained, compiled, digest, largest_difference, report_of
from .recipe import FORMS, Recipe, choice, draw, draw_beside

WRITERS: dict[str, ModuleType] = {f: tflite_writer if f.startswith("tflite") else onnx_writer for f in FORMS}
TILE = ("off", "auto", "rolling", "fdt", "ffmt")
MAPS, MIN_ROOM = ("layer", "auto", "dory"), 512  # bytes of the first level
NAMED = ("tile", "map", "optimize")  # options that are counted by their value
VECTORS = 3
RELATIVE = 1e-4  # of floats, to the largest value on the way: sums are added up in other orders
HEADINGS = "| file | command | what was seen | layers |"
SMALLER_BY = 60  # compilations at most to make a failure small

Options = Mapping[str, Value]


@dataclass(frozen=True)
class Case:
    """A failure, what led to it, and the file that shows it."""

    recipe: Recipe
    target: str
    options: Options
    failure: Failure
    file: str = ""

    @property
    def command(self) -> str:
        words = [f"--{name.replace('_', '-')} {value}" for name, value in self.options.items()]
        return " ".join(["edgebuild verify", Path(self.file).name, f"--target {self.target}", *words])


@dataclass
class Tally:
    """Outcomes of all runs. `refused`: networks that edgebuild or an oracle has no form for."""

    runs: int = 0
    networks: int = 0
    same: int = 0  # plans that were printed like one that had run already
    programs: Counter[str] = field(default_factory=Counter)  # that were built and run, by target and mode
    planned: Counter[str] = field(default_factory=Counter)  # plans that were run on values alone
    refused: dict[str, int] = field(default_factory=dict)
    cases: list[Case] = field(default_factory=list)

    def refuse(self, text: str) -> None:
        reason = re.sub(r"\(.*|'[^']*'|\d+", "", text).strip()[:80]
        self.refused[reason] = self.refused.get(reason, 0) + 1


def modes(recipe: Recipe, arena: int, flash: int, target: Target) -> Iterator[Options]:
    """The five kinds of tiling, one more wish; or one kind and one wish. Kernels are for speed, size or between.

    One more way, of those to move tiles, where the target has memory levels; all of them if no other plan reaches the
    weights.
    """
    s = choice(recipe.seed + 1)
    kinds = s.pick("balanced", "balanced", "speed", "size")
    more: Options = s.pick(
        {"ram": int(arena * s.rng.uniform(0.5, 1))},
        {"ram": int(arena * s.rng.uniform(0.3, 0.8)), "tile": "auto"},
        {"stream_input": "rows"},
        {"stream_output": "rows"},
        {"objective": "ram"},
        {"flash": int(flash * s.rng.uniform(0.8, 1)), "tile": s.pick("off", "auto")},
        {"tile": s.pick("fdt", "ffmt"), "max_mac_overhead": 200.0},
        {"arena": "caller"},
        {"portable": True, "tile": "rolling"},
    )
    tiles = TILE if target.name == "host" else (s.pick(*TILE), s.pick("auto", "rolling"))
    plans: list[Options] = [*({"tile": tile} for tile in dict.fromkeys(tiles)), more]
    plans = [{"map": method} for method in MAPS] if only_mapped(target) else plans
    for options in (*plans, *moved(recipe, arena, target)):
        yield {**options, **({"optimize": kinds} if kinds != "balanced" else {})}


def only_mapped(target: Target) -> bool:
    """Whether only a DMA unit reaches the weights, so that all plans without `map` are refused."""
    return target.memory("weights").access == "dma"


def moved(recipe: Recipe, arena: int, target: Target) -> Iterator[Options]:
    """A way to move tiles between memory levels, mostly with little room in the first of them."""
    if len(target.levels) < 2 or not target.dma:
        return
    s, first = choice(recipe.seed * len(FORMS) + FORMS.index(recipe.form)), target.levels[0]
    room = min(first.size, max(MIN_ROOM, int(arena * s.rng.uniform(0.1, 1.2))))
    options: Options = {"map": s.pick(*MAPS), **({"limit": f"{first.name}={room}"} if s.rng.random() < 0.8 else {})}
    when = s.pick("eager", "lazy", f"random:{recipe.seed % 1000}")
    yield {**options, **({"dma": when} if target.firmware is None else {})}


class Judge:
    """The network of one recipe: its file, its inputs, and what the oracle makes of them."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        """Raises EdgebuildError where the network is refused, Failure where that goes wrong, ValueError: no network."""
        folder.mkdir(parents=True, exist_ok=True)
        self.recipe, self.folder = recipe, folder
        self.file, self.twin = (folder / f"{name}.{recipe.suffix}" for name in ("network", "twin"))
        self.file.write_bytes(WRITERS[recipe.form].write(recipe))
        self.twin.write_bytes(WRITERS[recipe.form].write(recipe, twin=True))
        self.plain = compiled(self.file, "host", {"tile": "off"})
        self.report = report_of(self.plain)
        self.vectors = self._vectors()
        self.expected = self._expected()

    @property
    def arena(self) -> int:
        return int(self.report["ram"]["arena_bytes"])

    @property
    def flash(self) -> int:
        rom = self.report["rom"]
        return int(rom["weights_bytes"] + rom["estimated_code_bytes"])

    def _vectors(self) -> list[list[Array]]:
        vectors = random_inputs(self.file, self.report, VECTORS, self.recipe.seed & 0xFFFF)
        vectors[-1] = [np.full_like(x, -128 if x.dtype == np.int8 else 0) for x in vectors[-1]]
        return vectors

    def _expected(self) -> Reference:
        try:
            expected = reference(self.twin, self.vectors, self.report)
        except NoJudge as error:
            raise ValueError(f"{error.diagnostics[0].text}: {error.diagnostics[0].hints}") from None
        except EdgebuildError as error:
            raise Failure("wrong", "oracle", str(error)) from None
        except Exception as reason:  # onnxruntime has its own, and none in common
            raise ValueError(f"onnxruntime: {str(reason).split('Status Message:')[-1]}") from None
        values = [x for row in expected.outputs for x in row]
        values += [x for row in expected.tensors for x in row.values() if x.dtype.kind == "f"]
        if not all(np.isfinite(x).all() for x in values if x.dtype.kind == "f"):
            raise ValueError("not all values are finite")
        self.largest = max((float(np.max(np.abs(x), initial=0)) for x in values if x.dtype.kind == "f"), default=0.0)
        return expected

    def check(self, outputs: list[list[Array]]) -> None:
        """Raises Failure where the outputs are not the oracle's."""
        wrong = self._differences(outputs, self.expected)
        if wrong and self.expected.slack:
            graph = prepare(self.file)
            seen = [dict(zip(graph.outputs, row, strict=False)) for row in outputs]
            exact = stepwise(graph, self.vectors, self.expected, seen)
            wrong = self._differences(outputs, exact) if exact is not None else {**wrong, "one op by itself": 0.0}
        if wrong:
            raise Failure("wrong", f"{len(wrong)} of {len(self.report['outputs'])}", f"outputs differ: {wrong}")

    def _differences(self, outputs: list[list[Array]], expected: Reference) -> dict[str, float]:
        wrong: dict[str, float] = {}
        for row, oracle in zip(outputs, expected.outputs, strict=True):
            for mine, theirs, port in zip(row, oracle, self.report["outputs"], strict=True):
                fitted = fit(theirs, port["shape"])
                distance = largest_difference(mine, fitted) if fitted is not None else float("inf")
                limit = RELATIVE * self.largest if mine.dtype.kind == "f" else expected.slack
                if not distance <= limit:
                    wrong[port["name"]] = max(wrong.get(port["name"], 0.0), distance)
        return wrong

    def run(self, machine: Machine, options: Options) -> None:
        """Compile and run in one mode, unless it is refused. Raises Failure."""
        with suppress(EdgebuildError):
            self.execute(machine, compiled(self.file, machine.name, options), options)

    def execute(self, machine: Machine, artifacts: Sequence[Artifact], options: Options) -> None:
        where = self.folder / "program"
        self.check(machine.run(artifacts, self.vectors, where, options.get("dma")))
        shutil.rmtree(where)


def sweep(
    recipe: Recipe, machines: Sequence[Machine], folder: Path, tally: Tally, most: int = 0, ways: Sequence[Options] = ()
) -> None:
    """One network in all modes on the host, in some on other machines. Failures go into `tally`, one of each cause.

    `ways`: these modes instead. `most`: programs that are built for each machine, of those that differ; 0: all.
    Modes come in a drawn order, and plans beyond are run on values alone.
    """
    tally.networks += 1
    try:
        judge = Judge(recipe, folder / "work")
    except EdgebuildError as reason:
        text = reason.diagnostics[0].text
        if not text.startswith("not a valid"):
            return tally.refuse(text)
        failure = Failure("traceback", text, "a reader fails on a network that its format's checker takes")
        return tally.cases.append(Case(recipe, "host", {"tile": "off"}, failure))
    except ValueError as reason:
        return tally.refuse(str(reason))
    except Failure as failure:
        return tally.cases.append(Case(recipe, "host", {"tile": "off"}, failure))
    for machine in machines:
        given = () if only_mapped(machine.target) else ways
        mine = list(given or modes(recipe, judge.arena, judge.flash, machine.target))
        Random(recipe.seed).shuffle(mine)
        _sweep_on(machine, judge, mine, most, tally)


def _sweep_on(machine: Machine, judge: Judge, ways: Sequence[Options], most: int, tally: Tally) -> None:
    recipe, causes, marks, arenas = judge.recipe, set[str](), set[str](), dict[str, int]()
    for options in sorted(ways, key=lambda o: o.get("objective") == "ram"):  # what is to be least comes last
        tally.runs += 1
        what = " ".join([machine.name, *(str(v) if o in NAMED else o for o, v in options.items())])
        try:
            artifacts = compiled(judge.file, machine.name, options)
            check_explained(report_of(artifacts))
            mark = digest(artifacts)
            if mark in marks:
                tally.same += 1
            elif most and len(marks) >= most:
                tally.planned[what] += 1
            else:
                judge.execute(machine, artifacts, options)
                marks.add(mark)
                tally.programs[what] += 1
        except EdgebuildError:
            continue
        except Failure as failure:
            if failure.cause not in causes:
                tally.cases.append(Case(recipe, machine.name, options, failure))
            causes.add(failure.cause)
            continue
        if "map" in options:
            continue  # where tiles move, RAM is no measure
        arenas[str(options)] = int(report_of(artifacts)["ram"]["arena_bytes"])
        _least(recipe, machine, options, arenas, tally)


def _least(recipe: Recipe, machine: Machine, options: Options, arenas: dict[str, int], tally: Tally) -> None:
    """Objective ram takes at most what each other way takes."""
    if options.get("objective") == "ram" and arenas[str(options)] > min(arenas.values()):
        best = min(arenas, key=lambda name: arenas[name])
        text = f"{arenas[str(options)]} B with {dict(options)}, {arenas[best]} B with {best}"
        tally.cases.append(Case(recipe, machine.name, options, Failure("not_least", "objective ram", text)))


def fails(recipe: Recipe, case: Case, machine: Machine, folder: Path) -> Failure | None:
    """How a recipe fails in the mode of `case`, if in the same way."""
    try:
        if not recipe.layers or recipe.layers[0].operands:
            return None
        Judge(recipe, folder).run(machine, case.options)
    except (EdgebuildError, ValueError):
        return None
    except Failure as failure:
        return failure if failure.kind == case.failure.kind else None
    return None


def smaller(case: Case, machine: Machine, folder: Path) -> Case:
    """The failure with as few layers as can be, then with sizes as small as can be."""
    if case.failure.kind in ("timeout", "not_least", "unexplained"):
        return case
    return _narrower(_shorter(case, machine, folder), machine, folder)


def _shorter(case: Case, machine: Machine, folder: Path) -> Case:
    """Take away one layer after another."""
    tried, again = 0, True
    while again and tried < SMALLER_BY:
        again = False
        for layer in reversed(case.recipe.layers):
            if not layer.operands or tried >= SMALLER_BY:
                continue
            tried += 1
            less = case.recipe.without(layer.number)
            failure = fails(less, case, machine, folder)
            if failure is not None:
                case, again = Case(less, case.target, case.options, failure), True
    return case


def _narrower(case: Case, machine: Machine, folder: Path) -> Case:
    """Bound every size that a layer drew: to 1, to half, to one less, as long as the failure remains."""
    tried, again = 0, True
    while again and tried < SMALLER_BY:
        again = False
        for number, name, size in drawn_sizes(case.recipe):
            for most in dict.fromkeys((1, size // 2, size - 1)):
                if tried >= SMALLER_BY or not 1 <= most < size:
                    continue
                tried += 1
                less = case.recipe.bounded(number, name, most)
                failure = fails(less, case, machine, folder)
                if failure is not None:
                    case, again = Case(less, case.target, case.options, failure), True
                    break
    return case


def drawn_sizes(recipe: Recipe) -> list[tuple[int, str, int]]:
    """The sizes of a recipe's layers: number, name, value."""
    writer = WRITERS[recipe.form].writer(recipe)
    with suppress(ValueError):  # nothing is left
        writer.write()
    return [(number, name, size) for number, sizes in writer.used.items() for name, size in sizes.items()]


def keep(case: Case, cases: Path) -> Case:
    """Write the network as a case with a line in the README beside it."""
    cases.mkdir(parents=True, exist_ok=True)
    r = case.recipe
    tile = "_".join(str(v) for v in case.options.values()).replace(".", "_").lower()
    name = f"{case.failure.kind}_{r.form}_{r.seed}_{case.target}_{tile}.{r.suffix}"
    (cases / name).write_bytes(WRITERS[r.form].write(r))
    kept = Case(r, case.target, case.options, case.failure, str(cases / name))
    readme = cases / "README.md"
    if not readme.exists():
        readme.write_text(
            "# Networks that went wrong\n\n| file | command | what was seen | layers |\n|---|---|---|---|\n"
        )
    seen = case.failure.text.strip().splitlines()[-1][:160].replace("|", "/")
    with readme.open("a", encoding="utf-8") as file:
        file.write(f"| {name} | `{kept.command}` | {case.failure.kind}: {seen} | {r.described()} |\n")
    return kept


def recipes(seed: int, count: int, forms: Sequence[str] = FORMS) -> Iterator[Recipe]:
    """`count` networks of every form, from consecutive seeds."""
    for number in range(seed, seed + count):
        for form in forms:
            yield drawn(form, number)


def beside(form: str, seed: int, machines: Sequence[Machine], folder: Path, tally: Tally) -> None:
    """Layers side by side with the kernels of each kind, planned without search."""
    ways: list[Options] = [{"tile": "off", "optimize": kind} for kind in ("balanced", "speed", "size")]
    sweep(draw_beside(form, seed), machines, folder, tally, ways=[*ways, {"tile": "rolling", "optimize": "speed"}])


def drawn(form: str, seed: int, blocks: int = 0) -> Recipe:
    return draw(form, seed, WRITERS[form].WORDS, WRITERS[form].operators(form), blocks)
