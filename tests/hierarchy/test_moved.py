"""Ops in tiles of any size, order, depth and number of buffers: bit-exact, whenever the bytes of a copy arrive."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import Target, hal_dir, load_target
from edgebuild.model.compile import emit
from edgebuild.model.emit import runs
from edgebuild.model.emit.code import program
from edgebuild.model.emit.runs import under_way
from edgebuild.model.emit.weights_file import HEADER, arenas
from edgebuild.model.ir import Graph
from edgebuild.model.plan.dma.assembly import mapped_plan
from edgebuild.model.plan.dma.tiles import MappedOp
from edgebuild.model.plan.hierarchy.mapper import Costs
from edgebuild.model.plan.hierarchy.nest import Mapped, Move, TiledLayer
from edgebuild.model.plan.printed import Copy, Start, Wait
from edgebuild.model.plan.search import Plan
from edgebuild.model.verify.harness import dma_units
from tests.graphs import examples, random_inputs, single_ops, small_graphs
from tests.ops.host import FLAGS, MAIN, call, checked
from tests.ops.test_host import compare

KINDS = (
    "conv2d", "depthwise_conv2d", "dense", "max_pool2d", "avg_pool2d", "add", "mul", "pad", "mean", "concat",
    "softmax",
)  # fmt: skip
MODES = ("eager", "lazy", "random:7")
PER_KIND, NETWORKS, VECTORS = 3, 7, 2


def any_mapping(layer: TiledLayer, r: random.Random) -> Mapped:
    """Any mapping whose calls find their operands contiguous; of few calls, so that programs stay small."""
    for _ in range(60):
        tile = {a: r.randint(1, layer.nest.extents[a]) for a in layer.axes}
        counts = {a: -(-layer.nest.extents[a] // tile[a]) for a in layer.axes}
        order = [a for a in layer.axes if counts[a] > 1]
        r.shuffle(order)
        depths = [r.choice([0, *(i + 1 for i, a in enumerate(order) if a in o.axes)]) for o in layer.operands]
        costs = Costs(layer, tuple((tile[a],) for a in layer.axes))
        outer = [frozenset(order[:d]) & o.axes for o, d in zip(layer.operands, depths, strict=True)]
        allowed = all(costs.copies(o, s).allowed.all() for o, s in zip(layer.operands, outer, strict=True))
        if allowed and prod(counts.values()) <= 40:
            moves = [Move(o.name, d, r.choice((1, 2)) if d else 1) for o, d in zip(layer.operands, depths, strict=True)]
            return Mapped(tile, tuple(order), tuple(moves))
    return Mapped({a: layer.nest.extents[a] for a in layer.axes}, (), tuple(Move(o.name, 0, 1) for o in layer.operands))


def planned(graph: Graph, name: str, seed: int) -> Plan:
    request = ModelRequest(Path("random"), name, "host", tile="off", map="layer")
    r = random.Random(seed)
    return mapped_plan(graph, with_cores(seed), request, lambda layer: any_mapping(layer, r))


def with_cores(seed: int) -> Target:
    """The build machine as one core or as several, which share tiles and rows."""
    return replace(load_target("host"), cores=(1, 8, 2, 3, 5)[seed % 5])


def build(plans: Sequence[Plan], vectors: int, folder: Path, ports: Sequence[str] = ()) -> None:
    """One program with all of them and the model of a DMA unit. `ports`: more sources."""
    for p in plans:
        for artifact in emit(p, ""):
            (folder / artifact.name).write_bytes(artifact.data)
    includes = "\n".join(f'#include "{p.name}.h"' for p in plans)
    cached = [
        (p, symbol, size)
        for p in plans
        for m, (symbol, size) in arenas(p).items()
        if p.moves and p.target.memory_named(m).cached
    ]
    calls = [f"    eb_dma_model_cached({symbol}, {size});" for _, symbol, size in cached]
    includes += "".join(f"\nextern int8_t {symbol}[];" for _, symbol, _ in cached)
    includes += '\n#include "eb_dma_model.h"'
    calls += [f"    eb_dma_model_unit({mask}, {align}, {most});" for mask, align, most in dma_units(plans[0].target)]
    for p in plans:
        number = {m.name: i for i, m in enumerate(p.target.memories)}
        weights = (p.weights_memory, (f"{p.name}_weights", len(program(p).weights.blob)))
        parts = (*arenas(p).items(), *([weights] if weights[1][1] > HEADER else []))
        for memory, (symbol, size) in parts:
            includes += f'\nextern int8_t part_{symbol}[] __asm__("{symbol}");'
            calls.append(f"    eb_dma_model_memory(part_{symbol}, {size}, {number[memory]});")
    calls += [call(p, vectors) for p in plans]
    (folder / "main.c").write_text(MAIN.format(includes=includes, calls="\n".join(calls)))
    (folder / "weights.c").write_text("\n".join(f'#include "{p.name}_weights.c"' for p in plans) + "\n")
    sources = ["main.c", "weights.c", *(f"{p.name}.c" for p in plans), str(hal_dir() / "src/dma_model.c"), *ports]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fsanitize-sections=.bss.edgebuild.*"]
    checked(["gcc", *FLAGS.split(), *sanitizers, f"-I{hal_dir() / 'include'}", *sources, "-o", "program"], folder)


def run(folder: Path, mode: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["./program", "in.bin", "out.bin"],
        cwd=folder,
        text=True,
        capture_output=True,
        env={**os.environ, "EB_DMA": mode},
    )


def equal_by_mode(p: Plan, feed: Callable[[Path], bytes], folder: Path) -> list[bool]:
    """Whether its program computes what `feed`, which writes two inputs to `in.bin`, returns: in each of MODES."""
    build([p], 2, folder)
    want = feed(folder)
    return [run(folder, mode).returncode == 0 and (folder / "out.bin").read_bytes() == want for mode in MODES]


def check(
    graphs: Sequence[Graph], folder: Path, make: Callable[[Graph, str, int], Plan] = planned, ports: Sequence[str] = ()
) -> list[Plan]:
    """Make plans by name and seed, run all in all modes, compare with the ops' own meaning."""
    import numpy as np

    plans = [make(graph, f"g{i}", i) for i, graph in enumerate(graphs)]
    build(plans, VECTORS, folder, ports)
    inputs = [random_inputs(graph, VECTORS, seed) for seed, graph in enumerate(graphs)]
    with open(folder / "in.bin", "wb") as file:
        for vectors in inputs:
            file.writelines(np.ascontiguousarray(x).tobytes() for vector in vectors for x in vector)
    for mode in MODES:
        done = run(folder, mode)
        assert done.returncode == 0, mode + done.stderr[:4000]
        data, at = (folder / "out.bin").read_bytes(), 0
        for graph, vectors in zip(graphs, inputs, strict=True):
            for vector in vectors:
                row = []
                for t in (graph.tensors[n] for n in graph.outputs):
                    row.append(np.frombuffer(data, t.dtype, t.elements, at).reshape(t.shape))
                    at += t.bytes
                compare(graph, vector, row)
    return plans


def changed(p: Plan, kind: type[Any], change: Callable[[Any], Any]) -> Plan:
    """The plan with its steps of a kind changed."""
    steps = (replace(s, moves=change(s.moves)) if isinstance(s.moves, kind) else s for s in p.steps)
    return replace(p, steps=tuple(steps))


def transfers(p: Plan, kind: type[Any] = Start) -> list[tuple[int, Any]]:
    """Copies of constants, waits or operations of caches between steps, with the step that each stands before."""
    ends = len(p.steps), [t for s in p.steps[-1:] for t in s.after]
    return [
        (i, t) for i, ts in (*((i, s.before) for i, s in enumerate(p.steps)), ends) for t in ts if isinstance(t, kind)
    ]


def with_transfers(p: Plan, change: Callable[[Any], Any]) -> Plan:
    """The plan with each of them changed, or left out where `change` gives None."""

    def changed(ts: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(transfer for transfer in map(change, ts) if transfer is not None)

    return replace(p, steps=tuple(replace(s, before=changed(s.before), after=changed(s.after)) for s in p.steps))


def in_tiles(plans: Sequence[Plan]) -> int:
    """How many ops run in more than one tile."""
    return sum(isinstance(m, MappedOp) and len(m.calls) > 1 for p in plans for m in p.moves.values())


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("kind", KINDS)
def test_layers_in_random_tiles(kind: str, tmp_path: Path) -> None:
    check(examples(single_ops(kind), PER_KIND), tmp_path)


@pytest.mark.needs("gcc")
def test_networks_in_random_tiles(tmp_path: Path) -> None:
    assert in_tiles(check(examples(small_graphs(), NETWORKS), tmp_path)) >= NETWORKS


@pytest.mark.slow
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("kind", KINDS)
def test_many_layers_in_random_tiles(kind: str, tmp_path: Path) -> None:
    check(examples(single_ops(kind), 50), tmp_path)


@pytest.mark.needs("gcc")
def test_more_copies_at_once_than_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two slots nearly every op has to wait until one is free."""
    monkeypatch.setattr(runs, "SLOTS", 2)
    plans = check(examples(single_ops("conv2d"), 6), tmp_path)
    layers = [m for p in plans for m in p.moves.values() if isinstance(m, MappedOp)]
    assert any(under_way(m.script) > 2 for m in layers)


def test_copies_at_once() -> None:
    """Those before the first that nobody waited for do not count; a wait ends all copies of its channel."""
    copies = tuple(Copy(channel, True, "x", 0, 0, 0, 1) for channel in (0, 2, 2, 1, 0, 1))
    assert under_way([*copies[:3], Wait(0), Wait(2), (), *copies[3:], Wait(1), Wait(0)]) == 3
    assert under_way([*copies[:3], Wait(2), copies[3]]) == 4
    assert under_way([()]) == 0
