"""Schedules: equal to brute force on small graphs, proven and fast on the shapes that networks have."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgebuild.model.plan.memory.check import CheckFailed, check_schedule
from edgebuild.model.plan.memory.problem import Schedule, Task, TaskGraph
from edgebuild.model.plan.memory.schedule import cut_bound, decide, flow_of, merged, profile, schedule
from memory import graphs

SEEDS = st.integers(0, 2**32)


def checked(graph: TaskGraph, effort: int = 50_000) -> Schedule:
    result = schedule(graph, effort)
    check_schedule(graph, result)
    return result


@settings(max_examples=150, deadline=None)
@given(SEEDS, st.integers(1, 8))
def test_equals_brute_force(seed: int, tasks: int) -> None:
    graph = graphs.random_graph(Random(seed), tasks)
    result = checked(graph)
    assert result.optimal
    assert result.peak == graphs.least_peak(graph)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 3))
def test_series_parallel_graphs_by_merging_and_by_search(seed: int, depth: int) -> None:
    graph = graphs.series_parallel(Random(seed), depth)
    flow = flow_of(graph)
    order = merged(flow, range(len(graph.tasks)))
    peak = max(during for during, _ in profile(flow, order.tasks))
    assert order.best
    answer, _ = decide(flow, flow.reversed(), 0, flow.all, peak, 20_000)
    assert answer is not None and answer.order is not None
    if peak > max(map(flow.least, range(len(graph.tasks)))):
        answer, _ = decide(flow, flow.reversed(), 0, flow.all, peak - 1, 20_000)
        assert answer is not None and answer.order is None and answer.next_limit <= peak
    assert checked(graph).peak == peak


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(1, 8))
def test_cut_bounds_hold_and_time_can_run_backward(seed: int, tasks: int) -> None:
    graph = graphs.random_graph(Random(seed), tasks)
    flow, result = flow_of(graph), checked(graph)
    assert max(cut_bound(f, f.all, 0) for f in (flow, flow.reversed())) <= result.peak
    backward = [during for during, _ in profile(flow.reversed(), result.order[::-1])]
    assert tuple(reversed(backward)) == result.profile


def test_order_of_two_uneven_branches() -> None:
    """The example of Stahl's thesis, figure 4.5: the branches have to be interleaved for 110 instead of 120."""
    branch = {"a1": 50, "b1": 30, "c1": 40, "a2": 10, "b2": 40, "c2": 40}
    one = [Task(n.upper(), (r,), (n,)) for r, n in (("x", "a1"), ("a1", "b1"), ("b1", "c1"))]
    two = [Task(n.upper(), (r,), (n,)) for r, n in (("x", "a2"), ("a2", "b2"), ("b2", "c2"))]
    graph = TaskGraph((*one, *two, Task("D", ("c1", "c2"), ("y",))), {"x": 0, "y": 0, **branch}, ("x",), ("y",))
    result = checked(graph)
    assert (result.peak, result.optimal) == (110, True)
    assert result.order != tuple(range(7))


def test_a_chain_has_one_order() -> None:
    tasks = tuple(Task(f"t{i}", (f"s{i}",), (f"s{i + 1}",), ((f"s{i}", f"s{i + 1}"),)) for i in range(4))
    result = checked(TaskGraph(tasks, {f"s{i}": n for i, n in enumerate((5, 3, 2, 4, 1))}, ("s0",), ("s4",)))
    assert result == Schedule((0, 1, 2, 3), (5, 3, 4, 4), 5, 5, True, "given order",
                              (("s0", "s1"), ("s1", "s2"), ("s2", "s3"), ("s3", "s4")))  # fmt: skip


def test_no_tasks() -> None:
    assert checked(TaskGraph((), {})).order == ()


@pytest.mark.parametrize("seed", range(5))
def test_an_optimal_order_is_returned_unchanged(seed: int) -> None:
    graph = graphs.shuffled(graphs.cells(Random(seed), 3, 12), Random(seed))
    order = checked(graph).order
    again = checked(replace(graph, tasks=tuple(graph.tasks[i] for i in order)))
    assert again.order == tuple(range(len(order)))
    assert again.method == "given order"


@pytest.mark.parametrize("seed", range(6))
def test_sixty_nodes_in_irregular_cells_are_proven_optimal(seed: int) -> None:
    """The size of SwiftNet, 3 cells and 62 nodes, for which the thesis reports 37 s."""
    graph = graphs.shuffled(graphs.cells(Random(seed), 3, 20), Random(seed))
    assert checked(graph).optimal


@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_nodes_in_searched_cells_are_proven_optimal(seed: int) -> None:
    graph = graphs.shuffled(graphs.searched_cells(Random(seed), 17), Random(seed))
    assert len(graph.tasks) == 272
    assert checked(graph).optimal


@pytest.mark.parametrize("count, depth, jitter", [(4, 3, 5), (9, 3, 40), (9, 4, 5), (16, 3, 5)])
@pytest.mark.parametrize("slices", [False, True])
def test_tiles_of_a_shared_tensor_are_proven_optimal(count: int, depth: int, jitter: int, slices: bool) -> None:
    assert checked(graphs.tiles(count, depth, jitter, slices)).optimal


@pytest.mark.parametrize("count, depth", [(16, 4), (25, 6)])
def test_many_deep_tiles_come_near_the_bound(count: int, depth: int) -> None:
    result = checked(graphs.tiles(count, depth, 40), 2_000)
    assert result.bound <= result.peak <= 1.03 * result.bound
    assert result.optimal == (result.peak == result.bound)


def test_without_effort_the_bound_still_holds() -> None:
    graph = graphs.shuffled(graphs.searched_cells(Random(0), 6), Random(0))
    hasty, best = checked(graph, 1), checked(graph)
    assert hasty.bound <= best.peak <= hasty.peak
    assert best.peak < hasty.peak and not hasty.optimal


@pytest.mark.slow
def test_a_recurrence_of_many_steps_is_scheduled() -> None:
    """Its slices of the input all may run first, so each step is a parallel composition within that of the next."""
    steps, tasks, sizes = 600, list[Task](), {"x": 4800, "h0": 16}
    for t in range(steps):
        sizes |= {f"x{t}": 8, f"g{t}": 64, f"h{t + 1}": 16}
        tasks.append(Task(f"slice{t}", ("x",), (f"x{t}",)))
        tasks.append(Task(f"gates{t}", (f"x{t}", f"h{t}"), (f"g{t}",)))
        tasks.append(Task(f"state{t}", (f"g{t}", f"h{t}"), (f"h{t + 1}",)))
    result = checked(TaskGraph(tuple(tasks), sizes, ("x", "h0"), (f"h{steps}",)))
    assert result.bound <= result.peak <= 4800 + 16 + 64 + 16


CORRUPTIONS = {
    "not-a-permutation": lambda s: replace(s, order=(*s.order[:-1], s.order[0])),
    "broken-dependency": lambda s: replace(s, order=s.order[::-1]),
    "wrong-profile": lambda s: replace(s, profile=(s.profile[0] - 1, *s.profile[1:])),
    "wrong-peak": lambda s: replace(s, peak=s.peak - 1, bound=0, optimal=False),
    "wrong-bound": lambda s: replace(s, bound=s.peak + 1),
    "not-optimal": lambda s: replace(s, bound=s.peak - 1, optimal=True),
    "wrong-in-place": lambda s: replace(s, in_place=(("in", "c0n0"),)),
}


@pytest.mark.parametrize("verdict", CORRUPTIONS)
def test_the_checker_finds(verdict: str) -> None:
    graph = graphs.cells(Random(1), 2, 6)
    with pytest.raises(CheckFailed) as failure:
        check_schedule(graph, CORRUPTIONS[verdict](checked(graph)))
    assert failure.value.verdict == verdict


@pytest.mark.parametrize(
    "tasks, sizes, message",
    [
        ((Task("t", ("a",), ("b",)),), {"a": 1, "b": 1}, "before it is written"),
        ((Task("t", (), ("b",)),), {}, "no size for"),
        ((Task("t", (), ("b",), (("a", "b"),)),), {"b": 1}, "in-place pair"),
    ],
)
def test_nonsense_is_refused(tasks: tuple[Task, ...], sizes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TaskGraph(tasks, sizes)
