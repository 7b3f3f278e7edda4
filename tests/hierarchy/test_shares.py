"""Rows of a run that cores share: parts cover a row, and a plan whose parts do not is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.ops.base import Form
from edgebuild.model.plan.check.replay import BrokenPlan, replay
from edgebuild.model.plan.dma.assembly import SearchPath, assembled, search_of
from edgebuild.model.plan.dma.residency import Step
from edgebuild.model.plan.dma.streamed import shared_row
from edgebuild.model.plan.printed import Share, StreamedRun
from edgebuild.model.plan.search import Plan, Planner
from tests.hierarchy.test_moved import changed, check, with_cores

WINDOWS = [  # columns, window, stride, dilation, padding at the left and at the right
    (17, 3, 1, 1, 1, 1),
    (24, 3, 2, 1, 0, 1),
    (9, 5, 1, 1, 2, 2),
    (20, 3, 1, 2, 2, 2),
    (5, 3, 3, 1, 1, 0),
    (16, 1, 2, 1, 0, 0),
]


def windowed(kind: str, columns: int, window: int, stride: int, dilation: int, left: int, right: int) -> Graph:
    """One op of 8 channels, and a clamp of its result."""
    rng, quant = np.random.default_rng(columns), Quant((0.1,), (3,))
    wide = (columns + left + right - (window - 1) * dilation - 1) // stride + 1
    attrs = {"stride": (1, stride), "pad": (1, left, 1, right), "dilation": (1, dilation), "clamp": (None, None)}
    shape = (8, 3, window, 8) if kind == "conv2d" else (1, 3, window, 8)
    weights = rng.integers(-100, 100, shape).astype(np.int8)
    tensors = {
        "x": Tensor("x", (1, 10, columns, 8), "int8", quant),
        "w": Tensor("w", shape, "int8", Quant((0.01,), (0,)), weights),
        "t": Tensor("t", (1, 10, wide, 8), "int8", quant),
        "y": Tensor("y", (1, 10, wide, 8), "int8", quant),
    }
    bounds = {"clamp": (-20.0, None), "as_stored": True}
    steps = Op(kind, "sums", ("x", "w"), ("t",), attrs), Op("clamp", "clamped", ("t",), ("y",), bounds)
    return Graph(kind, steps, tensors, ("x",), ("y",))


def parts_of(graph: Graph, count: int) -> tuple[Share, ...] | None:
    return shared_row(graph.ops[0], graph, Form(rings=(4,), rows=10), count)


@pytest.mark.parametrize("kind", ["conv2d", "depthwise_conv2d"])
@pytest.mark.parametrize("sizes", WINDOWS)
@pytest.mark.parametrize("count", [2, 3, 8])
def test_parts_cover_a_row(kind: str, sizes: tuple[int, ...], count: int) -> None:
    graph = windowed(kind, *sizes)
    every, shares = graph.tensors["t"].shape[2], parts_of(graph, count)
    if min(every, count) < 2:
        assert shares is None
        return
    assert shares is not None
    parts = [(share, part) for share in shares for part in range(share.first, share.past)]
    assert [part for _, part in parts] == list(range(len(parts))) and len(parts) <= count
    columns = [c for share, part in parts for c in range(part * share.width, min((part + 1) * share.width, every))]
    assert columns == list(range(every))
    assert len(shares) <= 5, "parts inside of a row have one kernel"


def test_parts_with_sizes_of_their_own_share_weights() -> None:
    """Planes of RV32 load the sizes of a part from a table, which is not that of the part at the border."""
    graph = windowed("depthwise_conv2d", *WINDOWS[0])
    shares = shared_row(graph.ops[0], graph, Form(frozenset({"rv32"}), rings=(4,), rows=10), 3)
    assert shares is not None
    tables = {name: {c.data.tobytes() for s in shares for c in s.kernel.constants if c.name == name}
              for name in ("w", "numbers")}  # fmt: skip
    assert len(tables["w"]) == 1 < len(tables["numbers"])


def in_one_run(graph: Graph, name: str, seed: int) -> Plan:
    """The whole graph as a run, of which all cores of `with_cores` make one row at a time."""
    planner = Planner(graph, with_cores(seed), ModelRequest(Path("x"), name, "host", tile="off", map="auto"))
    search, nothing = search_of(planner, 60 << 10), frozenset[str]()
    fed = search.streamer.run(0, 2, nothing, 1, planner.target.cores)
    assert fed is not None and (planner.target.cores == 1 or fed.shares > 1)
    return assembled(planner, search, SearchPath((Step(0, 2, nothing, fed),), ()))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("kind", ["conv2d", "depthwise_conv2d"])
def test_shared_rows_are_those_of_one_core(kind: str, tmp_path: Path) -> None:
    plans = check([windowed(kind, *sizes) for sizes in WINDOWS], tmp_path, in_one_run)
    shared = [s for p in plans for m in p.moves.values() if isinstance(m, StreamedRun) for s in m.parts[0] if s.width]
    assert any(s.step and s.before for s in shared) and any(s.first and not s.step for s in shared)


def overlapping(share: Share) -> Share:
    return replace(share, width=share.width + 1)


def short(share: Share) -> Share:
    return replace(share, width=share.width - 1)


def without_the_last(share: Share) -> Share:
    return replace(share, past=share.past - 1)


@pytest.mark.parametrize("change", [overlapping, short, without_the_last])
def test_replay_refuses(change: Callable[[Share], Share]) -> None:
    plan = in_one_run(windowed("conv2d", *WINDOWS[0]), "g0", 1)

    def other(run: StreamedRun) -> StreamedRun:
        return replace(run, parts=tuple(tuple(change(s) for s in parts) for parts in run.parts))

    broken, room = changed(plan, StreamedRun, other), plan.layout.heights["L1"]
    replay(plan.graph, plan.steps, plan.places, plan.target, room)
    with pytest.raises(BrokenPlan):
        replay(plan.graph, broken.steps, plan.places, plan.target, room)
