"""Layouts: equal to brute force on small problems, and as good as is known on the hard public ones."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebuild.base import cache
from edgebuild.base.errors import EdgebuildError
from edgebuild.cli import main
from edgebuild.model.plan.memory import exact
from edgebuild.model.plan.memory.check import CheckFailed, check_layout
from edgebuild.model.plan.memory.exact import Walks, split
from edgebuild.model.plan.memory.layout import layout, read
from edgebuild.model.plan.memory.problem import Buffer, BufferMemory, DoesNotFit, Layout, MemoryProblem, Phase, Place
from memory import graphs
from tests.conftest import ROOT

BENCH = ROOT.parent / "shared" / "layout-bench"
CHAIN = MemoryProblem(
    tuple(Buffer(n, size, i, i + 2) for i, (n, size) in enumerate(zip("abcd", (5, 3, 2, 4), strict=True)))
)


def checked(problem: MemoryProblem, capacity: int | None = None) -> Layout:
    result = layout(problem, capacity)
    check_layout(problem, result)
    return result


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 6))
def test_equals_brute_force(seed: int, buffers: int) -> None:
    problem = graphs.random_problem(Random(seed), buffers)
    result = checked(problem)
    assert result.optimal
    assert result.height == graphs.least_height(problem)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_equals_brute_force_under_phases(seed: int, buffers: int) -> None:
    problem = graphs.phased_problem(Random(seed), buffers)
    result = checked(problem)
    assert result.optimal
    assert graphs.fits(problem, result.height)
    assert result.height == 0 or not graphs.fits(problem, result.height - 1)


def test_a_chain_that_placing_by_size_gets_wrong() -> None:
    """Figure 4.8 of Stahl's thesis: 10 when the two largest come first, 8 at best."""
    (sections,) = split(CHAIN.buffers)
    by_size = exact._first_fit(sections, exact.static_order(sections, "Z"))
    assert exact.height(sections, by_size) == 10
    result = checked(CHAIN)
    assert (result.height, result.bound, result.optimal) == (8, 8, True)


def test_easy_problems_do_without_the_solver() -> None:
    before = set(sys.modules)
    checked(CHAIN)
    assert not any(m.startswith("ortools") for m in set(sys.modules) - before)


def test_the_same_every_time() -> None:
    problem = graphs.random_problem(Random(5), 40)
    assert layout(problem) == layout(problem)


def test_alignment() -> None:
    buffers = (Buffer("a", 5, 0, 2, 16), Buffer("b", 3, 0, 2, 16), Buffer("c", 11, 0, 2, 1))
    result = checked(MemoryProblem(buffers))
    assert result.height == 19 and result.optimal


def long_problem(random: Random, parts: int) -> MemoryProblem:
    """Small problems one after the other, each with a buffer that joins it to the next."""
    buffers, at = list[Buffer](), 0
    for part in range(parts):
        small = graphs.random_problem(random, 8).buffers
        buffers += [replace(b, name=f"{part}_{b.name}", lower=b.lower + at, upper=b.upper + at) for b in small]
        begin, at = at, at + max(b.upper for b in small)
        buffers.append(Buffer(f"join{part}", 1, begin, at + 1))
    return MemoryProblem(tuple(buffers))


def test_many_buffers_are_searched_by_windows() -> None:
    problem = long_problem(Random(1), 90)
    (part,) = split(problem.buffers)
    result = layout(problem, effort=0.01)  # less than a search of all at once takes
    check_layout(problem, result)
    assert result.optimal
    assert result.height < exact.height(part, exact.best(part, 0))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 6), st.booleans(), st.integers(0, 3))
def test_windows_decide_small_problems(seed: int, buffers: int, phased: bool, less: int) -> None:
    random = Random(seed)
    problem = graphs.phased_problem(random, min(buffers, 4)) if phased else graphs.random_problem(random, buffers)
    least = graphs.least_height(problem)
    for part in split(problem.buffers):
        piled, top = list[int](), 0
        for b in part.buffers:
            piled.append(-(-top // b.align) * b.align)
            top = piled[-1] + b.size
        answer = exact.repaired(part, piled, least - less, exact.Budget(1.0))
        if answer.offsets is not None:
            places = {b.name: Place("memory", at) for b, at in zip(part.buffers, answer.offsets, strict=True)}
            tall = exact.height(part, answer.offsets)
            check_layout(MemoryProblem(part.buffers), Layout(places, {"memory": tall}, 0, False, ""))
            assert tall <= least - less
        else:
            assert less


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_the_exact_search_decides(seed: int, buffers: int) -> None:
    """With alignments, and where a greedy rule would have been enough too."""
    problem = graphs.random_problem(Random(seed), buffers)
    for sections in split(problem.buffers):
        if not sections.bound:
            continue
        part = replace(problem, buffers=sections.buffers)
        height = graphs.least_height(part)
        answer = exact.decide(sections, height, exact.Budget(5), 5)
        assert answer.offsets is not None
        places = {b.name: Place("memory", at) for b, at in zip(part.buffers, answer.offsets, strict=True)}
        check_layout(part, Layout(places, {"memory": exact.height(sections, answer.offsets)}, 0, False, ""))
        assert exact.decide(sections, height - 1, exact.Budget(5), 5).refuted


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 7))
def test_walks_decide_small_problems(seed: int, buffers: int) -> None:
    """A layout at the least height, never one below it, and never a wrong proof; buffers of several alignments."""
    problem = graphs.random_problem(Random(seed), buffers)
    for sections in split(problem.buffers):
        part = replace(problem, buffers=sections.buffers)
        height = graphs.least_height(part)
        for wanted in (height, height + 1, height - 1):
            walks = Walks(sections, wanted, exact.ORDERS)
            for _ in range(40):
                if walks.offsets is None and not walks.refuted:
                    walks.search()
            if wanted < height:
                assert walks.offsets is None
                continue
            assert walks.offsets is not None and not walks.refuted
            places = {b.name: Place("memory", at) for b, at in zip(part.buffers, walks.offsets, strict=True)}
            assert exact.height(sections, walks.offsets) <= wanted
            check_layout(part, Layout(places, {"memory": exact.height(sections, walks.offsets)}, 0, False, ""))


@pytest.mark.parametrize("letter", "DJK")
def test_walks_alone_fill_public_instances(letter: str) -> None:
    """And the same way each time: a search counts its steps."""
    (sections, *_) = sorted(split(bench(letter).buffers), key=lambda part: -len(part.buffers))
    layouts = list[list[int] | None]()
    for _ in range(2):
        walks = Walks(sections, 1_048_576, exact.ORDERS)
        while walks.offsets is None:
            assert walks.search() <= 3 * len(sections.buffers)
        layouts.append(walks.offsets)
    assert layouts[0] == layouts[1]


def test_a_capacity_is_no_reason_to_leave_a_layout_at_the_bound() -> None:
    """Of C one walk finds a layout at its bound, and 14 one at the published capacity."""
    result = checked(bench("C"), 1_048_576)
    assert result.height == result.bound == 1_039_360 and result.optimal


def test_walks_know_what_does_not_fit_above_the_lowest() -> None:
    """Two at once above 7 of 10 bytes, in a section whose third is small: it may be first, and nothing fails there."""
    (sections,) = split((Buffer("a", 2, 0, 1), Buffer("b", 2, 0, 1), Buffer("c", 1, 0, 1)))
    walks = Walks(sections, 10, exact.ORDERS)
    state = walks.at_first.copy()
    state.low[:] = [7, 7, 0]
    failed = walks.tighten(state)
    assert failed is not None and sorted(failed.tolist()) == [0, 1]
    state.low[:] = [6, 6, 0]
    assert walks.tighten(state) is None


def test_the_exact_search_lets_a_phase_begin_anywhere() -> None:
    grows = Buffer("grows", 5, 0, 2, 4, (), (Phase(0, 1, 1, 4), Phase(1, 2, 0, 5)))
    (sections,) = split((Buffer("flag", 1, 0, 1, 4), grows))
    assert exact.decide(sections, 5, exact.Budget(5), 5).offsets == [0, 0]


class TestSeveralMemories:
    fast, slow = BufferMemory("fast", 8), BufferMemory("slow")

    def test_all_in_the_first_if_it_fits(self) -> None:
        result = checked(replace(CHAIN, memories=(self.fast, self.slow)))
        assert result.heights == {"fast": 8, "slow": 0} and result.optimal

    def test_what_does_not_fit_is_moved(self) -> None:
        result = checked(replace(CHAIN, memories=(replace(self.fast, capacity=6), self.slow)))
        assert result.heights == {"fast": 6, "slow": 3} and not result.optimal
        assert result.places["b"] == Place("slow", 0)

    def test_a_buffer_stays_where_it_may_lie(self) -> None:
        pinned = replace(CHAIN.buffers[0], memories=("slow",))
        problem = MemoryProblem((pinned, *CHAIN.buffers[1:]), (self.fast, self.slow))
        assert checked(problem).heights == {"fast": 6, "slow": 5}

    def test_too_much(self) -> None:
        with pytest.raises(DoesNotFit) as failure:
            layout(replace(CHAIN, memories=(BufferMemory("ram", 7),)))
        error = failure.value
        assert (error.memory, error.needed, error.capacity, error.proven) == ("ram", 8, 7, True)
        assert error.buffers == ("a", "b")

    def test_live_bytes_fit_but_no_layout_does(self) -> None:
        """Found by brute force: the live sum is a bound that cannot be reached, and that is proven."""
        for seed in range(1000):
            problem = graphs.random_problem(Random(seed), 6)
            sections = split(problem.buffers)
            bound = max((s.bound for s in sections), default=0)
            if graphs.least_height(problem) > bound:
                break
        with pytest.raises(DoesNotFit) as failure:
            layout(problem, bound)
        assert failure.value.proven and failure.value.needed == bound + 1


CORRUPTIONS = {
    "missing-place": lambda p: {k: v for k, v in p.items() if k != "a"},
    "wrong-memory": lambda p: {**p, "a": Place("elsewhere", p["a"].offset)},
    "negative-offset": lambda p: {**p, "a": Place("memory", -1)},
    "misaligned": lambda p: {**p, "a": Place("memory", p["a"].offset + 1)},
    "overlap": lambda p: {**p, "b": p["a"]},
    "wrong-height": lambda p: {**p, "d": Place("memory", 100)},
}


@pytest.mark.parametrize("verdict", CORRUPTIONS)
def test_the_checker_finds(verdict: str) -> None:
    problem = MemoryProblem((replace(CHAIN.buffers[0], align=4), *CHAIN.buffers[1:]))
    result = checked(problem)
    with pytest.raises(CheckFailed) as failure:
        check_layout(problem, replace(result, places=CORRUPTIONS[verdict](dict(result.places))))
    assert failure.value.verdict == verdict


def test_the_checker_knows_the_capacity() -> None:
    with pytest.raises(CheckFailed, match="over-capacity"):
        check_layout(replace(CHAIN, memories=(BufferMemory("memory", 7),)), checked(CHAIN))


def bench(letter: str) -> MemoryProblem:
    files = list(BENCH.glob(f"{letter}.*.csv"))
    if not files:
        pytest.skip("the layout benchmark is not beside the checkout")
    return read(files[0])


@pytest.mark.parametrize("letter", "ABCEFGHIK")
def test_public_instances_reach_their_bound(letter: str) -> None:
    problem = bench(letter)
    result = checked(problem, 1_039_360 if letter == "C" else 1_048_576)
    assert result.height == result.bound and result.optimal


@pytest.mark.parametrize("letter", "DJ")
def test_public_instances_below_their_published_capacity(letter: str) -> None:
    problem = bench(letter)
    assert checked(problem, 1_040_384).height <= 1_040_384


@pytest.mark.slow
@pytest.mark.parametrize("letter", "DJ")
def test_public_instances_at_less_than_was_published(letter: str) -> None:
    assert checked(bench(letter), 1_028_096).height <= 1_028_096


def write(folder: Path, text: str) -> Path:
    (folder / "case.csv").write_text(text)
    return folder / "case.csv"


class TestFiles:
    text = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"

    def test_solves_and_writes(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path, out = write(tmp_path, self.text), tmp_path / "out.csv"
        assert main(["layout", str(path), "-o", str(out)]) == 0
        assert capsys.readouterr().out == "height 12 B\nbound 12 B\noptimal\nmethod greedy\n"
        lines = out.read_text().splitlines()
        assert lines[0] == "id,lower,upper,size,offset"
        assert [line.rsplit(",", 1)[0] for line in lines[1:]] == self.text.splitlines()[1:]
        assert read(out) == read(path)

    def test_capacity_decides(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = write(tmp_path, self.text)
        assert main(["layout", str(path), "--capacity", "12", "--json", str(tmp_path / "l.json")]) == 0
        figures = {"height": 12, "bound": 12, "optimal": True, "method": "greedy"}
        assert json.loads((tmp_path / "l.json").read_text()) == figures
        assert main(["layout", str(path), "--capacity", "11"]) == 1
        assert "proven to be impossible: at least 12 B" in capsys.readouterr().err

    def test_no_buffers(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["layout", str(write(tmp_path, "id,lower,upper,size\n"))]) == 0
        assert capsys.readouterr().out == "height 0 B\nbound 0 B\noptimal\nmethod none\n"

    @pytest.mark.parametrize(
        "text, message",
        [
            ("", "case.csv:1: error: no column 'id'"),
            ("id,lower,upper\n", "case.csv:1: error: no column 'size'"),
            ("id,lower,upper,size\na,0,x,4\n", "case.csv:2: error: upper is 'x', not a whole number"),
            ("id,lower,upper,size\na,0,2\n", "case.csv:2: error: no value for size"),
            ("id,lower,upper,size\na,2,2,4\n", "case.csv:2: error: upper 2 is not above lower 2"),
            ("id,lower,upper,size\na,0,2,-4\n", "case.csv:2: error: size -4 is negative"),
            ("id,lower,upper,size\n,0,2,4\n", "case.csv:2: error: no value for id"),
            ("id,lower,upper,size\na,0,2,4\n\na,0,2,4\n", "case.csv:4: error: a second buffer 'a'"),
        ],
    )
    def test_bad_files(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(EdgebuildError) as error:
            read(write(tmp_path, text))
        assert message in str(error.value)

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(EdgebuildError, match="cannot be read"):
            read(tmp_path / "none.csv")


def test_an_answer_that_took_long_is_kept_without_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other names are the same question; an answer that is none is not taken."""
    monkeypatch.setenv("EDGEBUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    cache._secret.cache_clear()
    random, searched = Random(3), list[int]()
    sizes = [(random.randrange(1, 40) * 4, t, t + random.randrange(1, 9)) for t in range(30)]
    original = exact._search
    monkeypatch.setattr(exact, "_search", lambda *a: (searched.append(1), original(*a))[1])

    def solve(name: str) -> tuple[exact.LayoutAnswer, float]:
        (part,) = split([Buffer(f"{name}{n}", *row, align=4) for n, row in enumerate(sizes)])
        budget = exact.Budget(5)
        monkeypatch.setattr(exact, "suits", lambda sections: False)  # CP-SAT has to answer
        return exact.decide(part, part.bound, budget, 5), budget.left

    first = solve("a")
    assert solve("b") == first and len(searched) == 1
    for wrong in ([0] * len(sizes), [-4] * len(sizes), first[0].offsets[1:], ["0"] * len(sizes), None):
        monkeypatch.setattr(
            exact, "remembered", lambda question, w=wrong: {"offsets": w, "refuted": False, "left": 1.0}
        )
        if wrong is not None:
            assert solve("c") == first
    monkeypatch.setattr(exact, "remembered", lambda question: {"offsets": None, "refuted": "yes", "left": 1.0})
    assert solve("d") == first and len(searched) == 6
