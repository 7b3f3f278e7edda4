"""Broken movements: the replay of the plan refuses each, and so does the running program by the model of a DMA unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.plan.check.replay import BrokenPlan, replay
from edgebuild.model.plan.dma.assembly import mapped_plan
from edgebuild.model.plan.dma.tiles import MappedOp
from edgebuild.model.plan.hierarchy.nest import Mapped, Move, TiledLayer
from edgebuild.model.plan.printed import Copy, CoreWork, Operation, Wait
from edgebuild.model.plan.search import Plan
from tests.hierarchy.test_moved import changed, equal_by_mode

X, Y = (0, 1), (4, 5)  # channels of input and result


def convolution() -> Graph:
    """3x3 on 12x6x8 to 8 channels, padded."""
    rng = np.random.default_rng(1)
    quant = Quant((0.1,), (3,))
    weights = rng.integers(-100, 100, (8, 3, 3, 8)).astype(np.int8)
    tensors = {
        "x": Tensor("x", (1, 12, 6, 8), "int8", quant),
        "w": Tensor("w", weights.shape, "int8", Quant((0.01,), (0,)), weights),
        "y": Tensor("y", (1, 12, 6, 8), "int8", quant),
    }
    attrs = {"stride": (1, 1), "dilation": (1, 1), "pad": (1, 1, 1, 1), "clamp": (None, None)}
    return Graph("conv", (Op("conv2d", "conv", ("x", "w"), ("y",), attrs),), tensors, ("x",), ("y",))


def four_tiles(layer: TiledLayer) -> Mapped:
    """Rows in four tiles, two buffers for input and result."""
    return Mapped({"y": 3, "x": 6, "k": 8}, ("y",), (Move("x", 1, 2), Move("weights", 0, 1), Move("y", 1, 2)))


def without_waits(moved: MappedOp, channels: tuple[int, int]) -> MappedOp:
    """All waits for these channels but those behind the last call are left out."""
    end = max(k for k, o in enumerate(moved.script) if isinstance(o, tuple))
    script = (o for o in moved.script[:end] if not isinstance(o, Wait) or o.channel not in channels)
    return replace(moved, script=(*script, *moved.script[end:]))


def into_the_buffer_in_use(moved: MappedOp) -> MappedOp:
    first = next(c.near for c in moved.copies if c.channel == 0)
    second = next(c.near for c in moved.copies if c.channel == 1)
    swapped = {0: second, 1: first}
    copies = [
        replace(c, near=swapped[c.channel]) if c.channel in X and i > 1 else c for i, c in enumerate(moved.copies)
    ]
    return moved.with_copies(copies)


def buffers_that_overlap(moved: MappedOp) -> MappedOp:
    """The result's buffers lie 8 bytes lower, over the end of the constants."""
    copies = [replace(c, near=c.near - 8) if c.channel in Y else c for c in moved.copies]
    return with_results(moved, lambda c: c.at[1] - 8).with_copies(copies)


def with_results(moved: MappedOp, at: Callable[[CoreWork], int]) -> MappedOp:
    """Each call writes its result to another place."""
    calls = (tuple(replace(c, at=(c.at[0], at(c), *c.at[2:])) for c in o) if isinstance(o, tuple) else o
             for o in moved.script)  # fmt: skip
    return replace(moved, script=tuple(calls))


def a_result_over_its_operand(moved: MappedOp) -> MappedOp:
    """Each tile of the result stands where the tile of the operand does that it is computed from."""
    places = {call.at[1]: call.at[0] for call in moved.calls}
    copies = [replace(c, near=places[c.near]) if c.channel in Y else c for c in moved.copies]
    return with_results(moved, lambda c: places[c.at[1]]).with_copies(copies)


def a_border_tile_too_long(moved: MappedOp) -> MappedOp:
    last = max(i for i, c in enumerate(moved.copies) if c.channel in X)
    copies = [replace(c, bytes=c.bytes + 48) if i == last else c for i, c in enumerate(moved.copies)]
    return moved.with_copies(copies)


def without_the_last_wait(moved: MappedOp) -> MappedOp:
    end = max(k for k, o in enumerate(moved.script) if isinstance(o, tuple))
    last = (o for o in moved.script[end:] if not isinstance(o, Wait) or o.channel not in Y)
    return replace(moved, script=(*moved.script[:end], *last))


def stored_before_the_call(moved: MappedOp) -> MappedOp:
    script = list[Operation]()
    for o in moved.script:
        stores = isinstance(o, Copy) and not o.fetch
        script.insert(max(k for k, c in enumerate(script) if isinstance(c, tuple)) if stores else len(script), o)
    return replace(moved, script=tuple(script))


MUTATIONS: dict[str, Callable[[MappedOp], MappedOp]] = {
    "no wait for the input": lambda m: without_waits(m, X),
    "no wait before a result's buffer is used again": lambda m: without_waits(m, Y),
    "ahead into the buffer in use": into_the_buffer_in_use,
    "buffers that overlap": buffers_that_overlap,
    "a result over its operand": a_result_over_its_operand,
    "a border tile too long": a_border_tile_too_long,
    "no last wait": without_the_last_wait,
    "stored before the call": stored_before_the_call,
}


def planned() -> Plan:
    request = ModelRequest(Path("x"), "g0", "host", tile="off", map="layer")
    return mapped_plan(convolution(), load_target("host"), request, four_tiles)


def feed(folder: Path) -> bytes:
    rng = np.random.default_rng(2)
    inputs = [rng.integers(-128, 128, (1, 12, 6, 8)).astype(np.int8) for _ in range(2)]
    (folder / "in.bin").write_bytes(b"".join(x.tobytes() for x in inputs))
    return b"".join(ops.run(convolution(), x)["y"].tobytes() for x in inputs)


@pytest.mark.needs("gcc")
def test_the_sound_plan_passes(tmp_path: Path) -> None:
    assert all(equal_by_mode(planned(), feed, tmp_path))


REFUSALS = {
    "no wait for the input": "does not find its part of x in L1",
    "no wait before a result's buffer is used again": "writes bytes that are being copied",
    "ahead into the buffer in use": "two copies under way meet at x or",
    "buffers that overlap": "writes its part of y over its",
    "a result over its operand": "writes its part of y over its part of x that it reads",
    "a border tile too long": "a copy leaves x",
    "no last wait": "leaves copies that nobody waits for",
    "stored before the call": "writes bytes that are being copied",
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_replay_refuses(name: str) -> None:
    """By the check that is made for it: others would refuse some of these plans, too, for what comes of them."""
    p = changed(planned(), MappedOp, MUTATIONS[name])
    with pytest.raises(BrokenPlan, match=REFUSALS[name]):
        replay(p.graph, p.steps, p.places, p.target)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_running_program_is_caught(name: str, tmp_path: Path) -> None:
    assert not all(equal_by_mode(changed(planned(), MappedOp, MUTATIONS[name]), feed, tmp_path))
