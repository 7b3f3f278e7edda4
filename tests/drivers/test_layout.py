"""The layout: the heuristic, and the exact optimiser beside enumeration."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from edgebuild.base.request import DriverRequest
from edgebuild.cli import main
from edgebuild.driver.analysis.conflicts import Leaf
from edgebuild.driver.layout import optimize
from edgebuild.driver.layout import registers as problems
from edgebuild.driver.layout.optimize import solve, solve_exactly
from edgebuild.driver.layout.registers import Bins, Bus, Problem, heuristic, improved, singles
from edgebuild.driver.pipeline import Driver, analyse
from tests.drivers.scenarios import GPIO

HEURISTIC = (
    """bfGroup G { uint8 a; uint8 b; uint8 c; uint8 d; uint8 e; uint8 f; };
make_device(G, g, 0x40000000);
"""
    + "".join(f"void f{i}(void) {{ g->d = 1; g->e = 2; }}\n" for i in range(5))
    + """
void m0(void) { g->a = 1; g->b = 2; g->c = 3; } void m1(void) { g->a = 1; g->b = 2; g->c = 3; }
void k0(void) { g->a = 1; g->c = 3; } void k1(void) { g->a = 1; g->c = 3; }
"""
)


def make(folder: Path, text: str, layout: str = "optimize", target: str = "pulpino") -> Driver:
    file = folder / "x.c"
    file.write_text(text)
    return analyse(DriverRequest((file,), "x", target, layout))


def bins(driver: Driver, group: str = "G") -> set[frozenset[str]]:
    return {frozenset(s.name for s in r.slots) for r in driver.layout.groups[group].registers}


def test_heuristic_places_combinations_by_use(tmp_path: Path) -> None:
    """The thesis' example: {d, e} is used most, then {a, b, c} before {a, c}."""
    driver = make(tmp_path, HEURISTIC, "heuristic")
    assert {frozenset("abc"), frozenset("de"), frozenset("f")} <= bins(driver)


def test_exact_is_never_worse_and_proves_it(tmp_path: Path) -> None:
    exact, heuristic = make(tmp_path, HEURISTIC), make(tmp_path, HEURISTIC, "heuristic")
    assert exact.layout.optimal and exact.layout.cost == exact.layout.bound
    assert exact.layout.cost <= heuristic.layout.cost


def random_problem(seed: int) -> Problem:
    """Seven fields; regions of one to four of them, and one that sets nearly all."""
    r = random.Random(seed)
    leaves = tuple(Leaf(f"f{i}", ("G", f"f{i}"), r.choice([1, 1, 3, 8, 12, 16]), (), ()) for i in range(7))
    uses: Counter[tuple[str, frozenset[str]]] = Counter()
    for size in (6, *(r.choice([1, 1, 2, 2, 3, 4]) for _ in range(8))):
        uses[(r.choice("rw"), frozenset(leaf.name for leaf in r.sample(leaves, size)))] += r.choice([1, 1, 5])
    return Problem(leaves, uses, Bus(), 1)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(12))
def test_exact_agrees_with_enumeration(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All 877 partitions, by brute force: the best one, and the best one of each size of the map."""
    problem = random_problem(seed)
    possible = [p for p in partitions(problem.leaves) if fits(p, problem)]
    solution = solve_exactly(problem, [heuristic(problem)])
    assert solution is not None and solution.optimal
    assert problem.accesses(solution.bins) == solution.bound == min(map(problem.accesses, possible))
    monkeypatch.setattr(problems, "STEPS", 2000)
    assert problem.accesses(improved(problem, heuristic(problem))) == solution.bound
    for largest in (8, 12, 16, 24):
        small = solve_exactly(problem, [singles(problem)], largest)
        best = min((problem.accesses(p) for p in possible if problem.bytes(p) <= largest), default=None)
        assert (small is None) == (best is None)
        if small is not None and best is not None:
            assert problem.bytes(small.bins) <= largest
            assert small.bound <= best <= problem.accesses(small.bins)
            assert not small.optimal or problem.accesses(small.bins) == best


@pytest.mark.parametrize("seed", range(4))
def test_bound_holds_where_the_solver_gives_up(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step at all: neither a register nor a bound comes from the integer programs that look for registers."""
    problem = random_problem(seed)
    cheapest = optimize._Pricing.cheapest

    def hurried(*args: Any) -> Any:
        monkeypatch.setattr(optimize, "LIMIT", "max_deterministic_time:0.2")
        return cheapest(*args)

    monkeypatch.setattr(optimize, "LIMIT", "max_deterministic_time:0 cp_model_presolve:false")
    monkeypatch.setattr(optimize._Pricing, "cheapest", hurried)
    solution = solve_exactly(problem, [singles(problem)])
    least = min(problem.accesses(p) for p in partitions(problem.leaves) if fits(p, problem))
    assert solution is not None and solution.bound <= least


def partitions(items: tuple[Leaf, ...]) -> Iterator[Bins]:
    if not items:
        yield ()
        return
    first, rest = items[0], items[1:]
    for p in partitions(rest):
        yield ((first,), *p)
        for i, part in enumerate(p):
            yield (*p[:i], (first, *part), *p[i + 1 :])


def fits(bins_: Bins, problem: Problem) -> bool:
    return all(sum(leaf.width for leaf in b) <= problem.bus.width for b in bins_)


@pytest.mark.parametrize(("calls", "company"), [({}, "ab"), ({"q": 9}, "bc"), ({"p": 9}, "ab")])
def test_profile_decides_who_shares_a_register(calls: dict[str, int], company: str, tmp_path: Path) -> None:
    """`b` can share with `a` or with `c`, at the price of a read in front of the other pair's writes."""
    (tmp_path / "calls.yaml").write_text(f"functions: {calls}\n" if calls else "functions: {r: 1}\n")
    (tmp_path / "x.c").write_text(
        "bfGroup G { uint16 a; uint16 b; uint16 c; };\nmake_device(G, g, 0x40000000);\n"
        "void p(void) { g->a = 1; g->b = 2; }\nvoid q(void) { g->b = 1; g->c = 2; }\n"
        "int r(void) { return g->a + g->b; }\n"
    )
    request = DriverRequest((tmp_path / "x.c",), "x", "pulpino", profile=tmp_path / "calls.yaml")
    driver = analyse(request)
    assert frozenset(company) in bins(driver)
    assert str(tmp_path / "calls.yaml") in driver.files


def test_bus_is_what_the_target_says(tmp_path: Path) -> None:
    text = "bfGroup G { bit a; bit b; };\nmake_device(G, g, 0x40000000);\n"
    text += "void f(void) { g->a = 1; }\nvoid h(void) { g->b = 1; }\n"
    (tmp_path / "board.yaml").write_text("inherits: pulpino\ndescription: a bus with strobes\nbus: bytes\n")
    words, parts = make(tmp_path, text), make(tmp_path, text, target=str(tmp_path / "board.yaml"))
    assert (words.layout.bus.bytes, words.layout.bytes) == (False, 8)
    assert (parts.layout.bus.bytes, parts.layout.bytes, parts.target) == (True, 2, "board")


@pytest.mark.parametrize("seed", range(4))
def test_front_agrees_with_enumeration(seed: int) -> None:
    """The last layout of each size is the best of that size; no size is left out at which accesses grow."""
    problem = random_problem(seed)
    possible = [p for p in partitions(problem.leaves) if fits(p, problem)]
    front = [problem.rank(b)[::-1] for b in optimize._by_size(problem)]
    best = {size: min(problem.accesses(p) for p in possible if problem.bytes(p) <= size) for size, _ in front}
    assert [accesses for _, accesses in front] == [best[size] for size, _ in front]
    assert front[-1][0] == min(map(problem.bytes, possible))
    assert set(optimize._undominated([problem.rank(p)[::-1] for p in possible])) <= set(front)


def test_picture_of_map_against_accesses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GPIO: each smaller map packs one more field of every pad with another, for one more access."""
    svg = tmp_path / "gpio.svg"
    command = ["driver", str(GPIO), "--name", "gpio", "--target", "pulpino", "-o", str(tmp_path / "out")]
    assert main([*command, "--pareto", str(svg)]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    points = [(int(line.split()[0]), int(line.split()[2])) for line in lines]
    assert points[0] == (900, 9) and points[-1][0] <= 900 - 3 * 128
    assert all(a[0] > b[0] and a[1] < b[1] for a, b in pairwise(points))
    circles = [e for e in ET.parse(svg).iter() if e.tag.endswith("circle")]
    assert len(circles) == len(points)
    assert main([*command, "--layout", "fixed:x.svd", "--pareto", str(svg)]) == 1


@pytest.mark.parametrize("seed", range(24))
def test_no_partition_is_better(seed: int) -> None:
    """All partitions by brute force: accesses count, then read-modify-writes, then bytes."""
    r = random.Random(seed)
    leaves = tuple(Leaf(f"f{i}", ("G", f"f{i}"), r.choice([1, 3, 8, 16]), (), ()) for i in range(7))
    uses: Counter[tuple[str, frozenset[str]]] = Counter()
    for _ in range(r.choice([4, 7])):
        at, size = r.randrange(7), r.choice([1, 2, 2, 3])
        uses[(r.choice("rww"), frozenset(leaf.name for leaf in leaves[at : at + size]))] += r.choice([1, 1, 5])
    problem = Problem(tuple(x for x in leaves if any(x.name in names for _, names in uses)), uses, Bus(), 1)
    ranked = [(rank(p, problem), p) for p in partitions(problem.leaves) if fits(p, problem)]
    least = min(cost for cost, _ in ranked)
    solution = solve(problem, exact=True)
    assert (solution.bound, rank(solution.bins, problem)) == (least[0], least)


def rank(bins_: Bins, problem: Problem) -> tuple[int, int, int]:
    """Accesses, read-modify-writes, and bytes."""
    modifies = sum(
        bool(names & mine) and not mine <= names
        for mine in ({leaf.name for leaf in b} for b in bins_)
        for kind, names in problem.uses
        if kind == "w"
    )
    return problem.accesses(bins_), modifies, problem.bytes(bins_)


def test_large_class_by_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """120 fields of one byte: a function writes each four, and two functions read each pair across two of the fours."""
    leaves = tuple(Leaf(f"f{i}", ("G", f"f{i}"), 8, (), ()) for i in range(120))
    fours = [leaves[i : i + 4] for i in range(0, 120, 4)]
    uses = Counter({("w", frozenset(x.name for x in four)): 1 for four in fours})
    uses |= {("r", frozenset({a[3].name, b[0].name})): 2 for a, b in pairwise(fours)}
    problem = Problem(leaves, uses, Bus(), 1)
    monkeypatch.setattr(problems, "STEPS", 2000)
    solution = solve(problem, exact=True)
    assert set(solution.bins) == set(fours) and solution.bound < problem.accesses(heuristic(problem))


def test_chained_pairs_stay_alone() -> None:
    """Each field is written with the one before and with the one after: whoever shares must keep the third."""
    leaves = tuple(Leaf(f"f{i}", ("G", f"f{i}"), 5, (), ()) for i in range(6))
    uses = Counter({("w", frozenset({a.name, b.name})): 1 for a, b in pairwise(leaves)})
    uses[("w", frozenset({"f5", "f0"}))] = 1
    problem = Problem(leaves, uses, Bus(), 1)
    assert set(solve(problem, exact=True).bins) == set(singles(problem))
    uses[("w", frozenset({"f2", "f3"}))] = 5
    assert leaves[2:4] in solve(Problem(leaves, uses, Bus(), 1), exact=True).bins
