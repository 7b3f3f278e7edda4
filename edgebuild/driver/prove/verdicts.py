"""The verdict on each function: proved, refuted with the difference, or unknown with the reason.

Each way through the source is compared with each way through the generated code that the same inputs can take. Both
must have the same events in the same order, find the same values in all fields at each of them and at the end, and
return the same. Loops are proved by induction (`loops`), and where that does not do, turn by turn. Of a loop that
waits, a few turns are then followed, and the verdict says `bounded`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import z3

from edgebuild.base.artifacts import Artifact
from edgebuild.driver.prove.compare import TIME_MS, compare, covered
from edgebuild.driver.prove.hardware import Different, Unknown
from edgebuild.driver.prove.loops import by_induction, has_loops
from edgebuild.driver.prove.sides import SideSource
from edgebuild.driver.prove.views import views_of
from edgebuild.driver.prove.volatiles import Generated
from edgebuild.driver.prove.ways import Tree, Way, all_ways, each_way, together
from edgebuild.driver.source import clang
from edgebuild.driver.stages import Driver

SOME = 8  # ways that are looked at first where induction fails


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
    source = SideSource(driver.source.unit, driver.dialect, driver.layout, views)
    other = Generated(unit, driver.dialect, driver.layout, views)
    found = [_verdict(name, source, other) for name in names]
    return [*found, *_given_away(source, other)] if cpp else found


def _given_away(source: SideSource, other: Generated) -> list[Verdict]:
    """Verdicts on the bodies of lambdas that functions give away."""
    found: dict[int, Verdict] = {}
    names = [source.unit.function_name(c) for c, _ in source.unit.lambdas.values()]
    while open_ := sorted(getattr(source, "passed", set()) - found.keys()):
        number = open_[0]
        if len(source.unit.lambdas) != len(other.unit.lambdas):
            found[number] = Verdict(names[number], "unknown", "the generated code has other lambdas")
            continue
        source.alone(number)
        found[number] = replace(_verdict(other.alone(number), source, other), function=names[number])
    return list(found.values())


def _verdict(name: str, source: SideSource, other: Generated) -> Verdict:
    bounded = False
    try:
        for program in (source, other):
            program.answers, program.given = {}, ()
        source.hints, other.assumed = [], []
        if has_loops(source, name):
            done, bounded = by_induction(name, source, other)
            if done:
                return Verdict(name, "proved", "", bounded)
            source.hints, other.assumed = [], []
            _search(name, source, other)
        bounded = _by_ways(name, source, other)
    except Different as difference:
        return Verdict(name, "refuted", str(difference))
    except Unknown as reason:
        return Verdict(name, "unknown", str(reason))
    except RecursionError:
        return Verdict(name, "unknown", "a way with too many conditions")
    return Verdict(name, "proved", "", bounded)


def _by_ways(name: str, source: SideSource, other: Generated) -> bool:
    """Compare each way from the start to the end; whether some were cut off. Raises Different or Unknown."""
    mine, also = all_ways(source, name)
    other.assumed = list({h.get_id(): h for h in source.hints}.values())
    theirs, open_ = all_ways(other, name)
    if not mine:
        raise Unknown("no way through the function ends soon")
    solver = z3.Solver()
    solver.set("timeout", TIME_MS)
    near: dict[int, list[Way]] = {}
    for a, b in together(solver, Tree(mine), Tree(theirs)) if theirs else ():
        near.setdefault(id(a), []).append(b)
    for a in mine:
        covered(a, near.get(id(a), []))
        for b in near.get(id(a), []):
            compare(a, b)
    return open_ or also


def _search(name: str, source: SideSource, other: Generated) -> None:
    """Raise Different for a difference on the first ways: there may be too many. Nothing follows if there is none."""
    ways = (w for w in each_way(source, name) if w is not None)
    for a in list(islice(ways, SOME)):
        other.assumed, other.given = list({h.get_id(): h for h in source.hints}.values()), a.conditions
        theirs, _ = all_ways(other, name)
        other.given = ()
        covered(a, theirs)
        for b in theirs:
            compare(a, b)


def summary(verdicts: list[Verdict]) -> Iterator[str]:
    """Lines for people, and how many there are of each kind."""
    for v in verdicts:
        turns = " (a few turns of its loops)" if v.bounded else ""
        yield f"{v.function}: {v.what}{turns}{f': {v.why}' if v.why else ''}"
    kinds = [v.what for v in verdicts]
    yield ", ".join(f"{kinds.count(k)} {k}" for k in ("proved", "refuted", "unknown"))
