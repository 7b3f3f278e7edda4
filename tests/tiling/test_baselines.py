"""The layouts of other tools, on networks where their results are known by hand."""

from __future__ import annotations

from tests.baselines import lifetimes, tflm, tvm
from tests.graphs import examples, small_graphs
from tests.rolling.test_rolling import running_example


def live(graph_lives: dict[str, tuple[int, int, int]]) -> int:
    steps = range(1 + max((last for _, _, last in graph_lives.values()), default=0))
    return max(sum(size for size, first, last in graph_lives.values() if first <= at <= last) for at in steps)


def test_layouts_of_other_tools_hold_what_is_live() -> None:
    for graph in examples(small_graphs(), 20):
        least = live(lifetimes(graph))
        assert least <= tflm(graph) and least <= tvm(graph) + 16


def test_the_running_example() -> None:
    """16,384 B of the fan-out beside 8,192 B before it; TVM's blocks are those two, as both take turns."""
    graph = running_example()
    assert tflm(graph) == 24576
    assert 24576 <= tvm(graph) <= 24576 + 512  # and small ones
