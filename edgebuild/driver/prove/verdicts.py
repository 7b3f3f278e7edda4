"""The verdict on each function: proved, refuted with the difference, or unknown with the reason.

Each path through the source is compared with each path through the generated code that the same inputs can take. Both
must have the same events in the same order, find the same values in all fields at each of them and at the end, and
return the same. Loops are proved by induction (`loops`), and where that does not do, turn by turn. Of a loop that
waits, a few turns are then followed, and the verdict says `bounded`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from itertools import islice

from edgebuild.base.artifacts import Artifact
from edgebuild.base.dataclass import dataclass
from edgebuild.driver.prove import objects
from edgebuild.driver.prove.compare import Path, Tree, all_paths, compare, covered, each_path, together
from edgebuild.driver.prove.effort import EFFORT, Unknown, solver_of
from edgebuild.driver.prove.hardware import Different
from edgebuild.driver.prove.interpreter import Interpreter
from edgebuild.driver.prove.loops import by_induction, has_loops
from edgebuild.driver.prove.sides import HAL, GeneratedSide, SourceSide
from edgebuild.driver.prove.values import DEPTH, POLLS, TURNS
from edgebuild.driver.prove.views import views_of
from edgebuild.driver.source import clang, ir
from edgebuild.driver.source.lowering import Program
from edgebuild.driver.stages import Driver

BOUND = f"only {POLLS} turns of a loop that waits, {TURNS} of others and {DEPTH} calls in each other were looked at"
SOME = 8  # paths that are looked at first where induction fails


@dataclass(frozen=True)
class Verdict:
    """`what`: "proved", "refuted" or "unknown"; `why`: the difference, or what the proof cannot follow."""

    function: str
    what: str
    why: str = ""
    bounded: bool = False


def prove(
    driver: Driver, triple: str, artifacts: tuple[Artifact, ...], only: frozenset[str] | None = None
) -> list[Verdict]:
    """A verdict for each function of the driver, or for those of `only`, on the generated C among its products."""
    names = [n for n, f in driver.cdfg.functions.items() if not f.around and (only is None or n in only)]
    cpp = driver.source.unit.cpp
    ends = ("_hal.h", ".cpp" if cpp else ".c")
    header, text = (next(a for a in artifacts if a.name == driver.request.name + end) for end in ends)
    folders = dict.fromkeys(str(p.parent) for p in driver.request.sources)
    flags = (*(word for f in folders for word in ("-I", f)), *driver.request.flags)
    # The header stands in front, so that its functions are the own ones of the unit; its guard makes the include empty.
    unit = clang.parse("generated.c", header.data + text.data, triple, flags, cpp, unsaved=(header,))
    views = views_of(driver)
    source = Interpreter(driver.source.program, driver.dialect, driver.layout, views, SourceSide())
    other = Interpreter(Program(unit), driver.dialect, driver.layout, views, GeneratedSide())
    prover = _Prover(source, other)
    found = prover.all(names)
    found += _given_away(source, prover) if cpp else []
    differences = unlike(source.program, other.program, driver)
    return [*found, *(Verdict(name, "refuted", why) for name, why in differences)]


def _given_away(source: Interpreter, prover: _Prover) -> list[Verdict]:
    """Verdicts on the bodies of lambdas that functions give away."""
    other = prover.other
    found: dict[int, Verdict] = {}
    names = [f.full_name for f, _ in source.program.lambdas.values()]
    while open_ := sorted(source.passed - found.keys()):
        number = open_[0]
        if len(source.program.lambdas) != len(other.program.lambdas):
            found[number] = Verdict(names[number], "unknown", "the generated code has other lambdas")
            continue
        objects.alone(source, number)
        found[number] = replace(prover.all([objects.alone(other, number)])[0], function=names[number])
    return list(found.values())


@dataclass
class _Prover:
    """Verdicts on the functions of one driver, and which other functions each of them supposes to be proved."""

    source: Interpreter
    other: Interpreter
    done: dict[str, Verdict] = field(default_factory=dict)
    needs: dict[str, set[str]] = field(default_factory=dict)

    def all(self, names: list[str]) -> list[Verdict]:
        """Verdicts on the functions. One that supposes another one is as good as that."""
        todo = list(names)
        while todo:
            name = todo.pop()
            if name not in self.done:
                self.done[name], self.needs[name] = self._alone(name)
                todo += self.needs[name]
        while weak := [n for n in self.done if self.done[n].what == "proved" and self._missing(n)]:
            for n in weak:
                missing = self._missing(n)
                why = f"it calls '{missing[0]}', which is not proved"
                self.done[n] = replace(self.done[n], what="unknown", why=why)
        return [self.done[n] for n in names]

    def _missing(self, name: str) -> list[str]:
        return sorted(n for n in self.needs[name] if self.done[n].what != "proved")

    def _alone(self, name: str) -> tuple[Verdict, set[str]]:
        """The verdict on one function, at first without looking into others that have loops or call themselves."""
        found = Verdict(name, "unknown")
        EFFORT.begin()
        for apart in (True, False):
            for program in (self.source, self.other):
                program.apart, program.supposed = apart, set()
            found = _verdict(name, self.source, self.other)
            supposed = self.source.supposed | self.other.supposed
            if found.what == "proved" or not supposed:
                return found, supposed
        return found, set()


def _verdict(name: str, source: Interpreter, other: Interpreter) -> Verdict:
    bounded = False
    try:
        for program in (source, other):
            program.answers, program.given = {}, ()
        source.hints, other.assumed = [], []
        if has_loops(source, name):
            EFFORT.phase()
            done, bounded = by_induction(name, source, other)
            if done and not bounded:
                return Verdict(name, "proved")
        if not source.apart or has_loops(source, name):  # turns of loops make many paths: a few are looked at first
            source.hints, other.assumed = [], []
            EFFORT.phase()
            with suppress(Unknown):
                _search(name, source, other)
        source.hints, other.assumed = [], []
        EFFORT.phase()
        bounded = _by_paths(name, source, other)
    except Different as difference:
        return Verdict(name, "refuted", str(difference))
    except Unknown as reason:
        return Verdict(name, "unknown", str(reason))
    except RecursionError:
        return Verdict(name, "unknown", "a path with too many conditions")
    if bounded:
        return Verdict(name, "unknown", f"no difference, but {BOUND}", bounded=True)
    return Verdict(name, "proved")


def _by_paths(name: str, source: Interpreter, other: Interpreter) -> bool:
    """Compare each path from the start to the end; whether some were cut off. Raises Different or Unknown."""
    mine, open_ = all_paths(source, name)
    other.assumed = list({h.get_id(): h for h in source.hints}.values())
    theirs, also = all_paths(other, name)
    if not mine:
        raise Unknown("no path through the function ends soon")
    solver = solver_of()
    near: dict[int, list[Path]] = {}
    for a, b in together(solver, Tree(mine), Tree(theirs)) if theirs else ():
        near.setdefault(id(a), []).append(b)
    for a in mine:
        covered(a, near.get(id(a), []))
        for b in near.get(id(a), []):
            compare(a, b)
    return open_ or also


def _search(name: str, source: Interpreter, other: Interpreter) -> None:
    """Raise Different for a difference on the first paths: there may be too many. Nothing follows if there is none."""
    paths = (w for w in each_path(source, name) if w is not None)
    for a in list(islice(paths, SOME)):
        other.assumed, other.given = list({h.get_id(): h for h in source.hints}.values()), a.conditions
        try:
            covered(a, all_paths(other, name, check=partial(compare, a))[0])
        finally:
            other.given = ()


def summary(verdicts: list[Verdict]) -> Iterator[str]:
    """Lines for people, and how many there are of each kind."""
    for v in verdicts:
        yield f"{v.function}: {v.what}{f': {v.why}' if v.why else ''}"
    kinds = [v.what for v in verdicts]
    yield ", ".join(f"{kinds.count(k)} {k}" for k in ("proved", "refuted", "unknown"))


# ---- declarations outside of functions: a function is proved for any values of variables, so what these begin with is
# compared alone


def unlike(source: Program, other: Program, driver: Driver) -> Iterator[tuple[str, str]]:
    """(name, what is wrong) of each variable and function that one side has in another path, or alone."""
    mine, theirs = (_variables(program, driver) for program in (source, other))
    for name in sorted(mine.keys() | theirs.keys()):
        if name not in theirs:
            yield name, "the generated code has no such variable"
        elif name not in mine:
            yield name, "the source has no such variable"
        elif mine[name][0] != theirs[name][0]:
            yield name, f"its type is {mine[name][0]}, in the generated code {theirs[name][0]}"
        elif mine[name] != theirs[name]:
            yield name, "it begins with another value in the generated code"
    own, printed = (_records(program, driver) for program in (source, other))
    for name in sorted(own.keys() & printed.keys()):
        if own[name] != printed[name]:
            yield name, f"its members are {own[name]}, in the generated code {printed[name]}"
    macros = source.unit.macros
    for name, text in other.unit.macros.items():
        if text not in macros.get(name, text):
            yield name, "the generated code defines it in another path"
    for f in other.functions:
        if f.full_name not in source.names and not (f.name.startswith(HAL) or other.unit.cpp):
            yield f.full_name, "the source has no such function"


def _variables(program: Program, driver: Driver) -> dict[str, tuple[str, str]]:
    """(type without namespaces, text of the first value) of variables outside of functions and static ones, by name."""
    variables: dict[str, tuple[str, str]] = {}
    for d in program.statics:
        variable = d.variable
        if variable.name not in driver.dialect.devices:
            name = f"{variable.function}: {variable.name}" if variable.function else variable.qualified
            offsets = [_offset(x, driver) for x in (d.value.all() if d.value else ()) if isinstance(x, ir.OffsetOf)]
            first = variables.get(name, ("", ""))[1] or d.first_text(offsets)
            variables[name] = d.type_text, first
    return variables


def _records(program: Program, driver: Driver) -> dict[str, str]:
    """Members of structs, unions and classes that other files may know, too, by name; groups have layouts."""
    named = (r for r in program.records if r.name.isidentifier() and r.name not in driver.dialect.groups)
    return {r.name: _members(r) for r in named if r.members}


def _members(record: ir.Record) -> str:
    """Members in order, with their types; those of a struct without a name in its place."""
    return "; ".join(f"{_type(m.type)} {m.name}{'' if m.bits is None else f': {m.bits}'}" for m in record.members)


def _type(t: ir.CType) -> str:
    """A member's type; in place of a struct without a name its members."""
    inner = t.element if t.kind == "array" else t
    if "(" not in t.text or inner.record is None:
        return t.plain_text
    return f"{{{_members(inner.record)}}}" + (f"[{t.count}]" if inner is not t else "")


def _offset(c: ir.OffsetOf, driver: Driver) -> int | None:
    """An offset of a field as the layout has it."""
    group, name = c.members[0].owner, c.members[0].name
    if group in driver.dialect.groups:
        return driver.layout.groups[group].offset_of((group, name))
    return c.constant
