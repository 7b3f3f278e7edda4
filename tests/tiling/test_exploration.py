"""The exploration: the thesis' running example, limits that are kept, and firmware that computes the same."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebuild.base import progress
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.emit.report import tiling_words
from edgebuild.model.ir import Graph, Op, Tensor, dump
from edgebuild.model.plan import choose, search
from edgebuild.model.plan.tiling.explore import Evaluated, Limits, Rectangle, critical, explore
from edgebuild.model.plan.tiling.paths import Tiling, counts, even, paths, tiled
from edgebuild.model.verify import verify
from tests.conftest import ROOT
from tests.rolling.test_rolling import planned, running_example

MODELS = ROOT.parent / "shared" / "models"
METHODS = frozenset(["fdt", "ffmt"])


def named(graph: Graph, tensor: str) -> set[tuple[str, ...]]:
    """Method, ops and end of the paths around a tensor."""
    chains = paths(graph, tensor, METHODS)
    return {(p.method, *(op.name for op in p.ops), "fan-in" if p.fan_in else "concat") for p in chains}


def test_critical_buffers_are_chains_to_zero() -> None:
    """A fork, a chain that hangs in the air (top and gap), and a buffer that touches at another time."""
    pieces = [
        Rectangle("right", 70, 100, 3, 4),
        Rectangle("middle", 50, 70, 3, 3),
        Rectangle("thin", 10, 50, 3, 3),
        Rectangle("lowest", 0, 10, 3, 3),
        Rectangle("wide", 30, 50, 2, 3),
        Rectangle("ground", 0, 30, 2, 2),
        Rectangle("top", 80, 100, 0, 0),
        Rectangle("gap", 0, 79, 0, 0),
        Rectangle("earlier", 0, 70, 1, 1),
    ]
    assert critical(pieces) == ("thin", "ground", "right", "middle", "wide", "lowest")
    assert set(critical(pieces[6:])) == {"top", "gap"}  # no chain at all: what is live beside the highest


def test_paths_of_the_running_example() -> None:
    """Stahl 2024, section 4.3.3: from the largest critical buffer only these remain; FFMT ends at the 1x1 pool."""
    graph = running_example()
    assert named(graph, "pointwise") == {
        ("fdt", "pointwise", "pool", "concat"),
        ("fdt", "pointwise", "pool", "flat", "concat"),
        ("fdt", "pointwise", "pool", "flat", "dense", "fan-in"),
    }
    assert ("ffmt", "conv", "depthwise", "pointwise", "concat") in named(graph, "depthwise")


def test_the_running_example_takes_16384_bytes_with_three_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """24576 B whole. With three parts the fan-out takes less than the two layers before it, 2 x 8192 B."""
    monkeypatch.setattr(search, "ALONE", 0.0)  # no op by rows: the thesis leaves operands where they are
    monkeypatch.setattr(search, "NEAR", 0.0)
    graph = running_example()
    (path,) = (p for p in paths(graph, "pointwise", METHODS) if len(p.ops) == 2)
    assert [n for (n,) in counts(graph, path)] == list(range(2, 26))
    assert [past - first for first, past in even(64, 3)] == [22, 21, 21]
    sizes = {n: planned(tiled(graph, Tiling(path, (n,))), tile="off").arena_bytes for n in (2, 3, 4)}
    assert planned(graph, tile="off").arena_bytes == 24576
    assert sizes[2] > sizes[3] == sizes[4] == 16384


def test_memory_asked_for_takes_the_least_code() -> None:
    """The thesis' path is chosen where its memory is asked for, in equal parts, which share kernels.

    On a core that multiplies floats: where a product takes a hundred instructions, calls of 16 parts are nothing.
    """
    chosen = planned(running_example(), "mps2-an386", tile="fdt", ram=16384)
    assert chosen.arena_bytes == 16384 and chosen.extra_macs == 0 and chosen.tiling is not None
    (choice,) = chosen.tiling.tilings
    assert choice.tiling is not None and choice.tiling.counts == (4,)
    assert [op.name for op in choice.tiling.path.ops] == ["pointwise", "pool"]
    assert planned(running_example(), "mps2-an386", tile="fdt").arena_bytes < 12000


def test_pairs_that_only_fdt_can_tile() -> None:
    """Two dense layers, and an embedding with its mean (section 4.2), are found by their index relations."""

    def constant(name: str, *shape: int) -> Tensor:
        return Tensor(name, shape, "float32", None, np.ones(shape, np.float32))

    first = Op("dense", "first", ("x", "w"), ("y",), {"clamp": (0.0, None)})
    second = Op("dense", "second", ("y", "v"), ("z",), {"clamp": (None, None)})
    shapes = {"x": (1, 8), "y": (1, 32), "z": (1, 4)}
    tensors = {n: Tensor(n, s, "float32") for n, s in shapes.items()}
    tensors |= {"w": constant("w", 32, 8), "v": constant("v", 4, 32)}
    assert ("fdt", "first", "second", "fan-in") in named(Graph("f", (first, second), tensors, ("x",), ("z",)), "y")
    look, average = (
        Op("gather", "look", ("t", "x"), ("y",), {"axis": 0, "batch": 0}),
        Op("mean", "mean", ("y",), ("z",), {"axes": (1,)}),
    )
    tensors = {"x": Tensor("x", (1, 20), "int32"), "t": constant("t", 50, 16)}
    tensors |= {"y": Tensor("y", (1, 20, 16), "float32"), "z": Tensor("z", (1, 16), "float32")}
    assert ("fdt", "look", "mean", "concat") in named(Graph("f", (look, average), tensors, ("x",), ("z",)), "y")


def test_no_more_is_computed_twice_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "ALONE", 0.0)  # no op by rows, which would take less than these parts
    monkeypatch.setattr(search, "NEAR", 0.0)
    parts_alone = lambda choice, name, ram: choice.parts(search.METHODS[name], name, ram)  # noqa: E731
    monkeypatch.setattr(choose._Choice, "one_method", parts_alone)
    graph = running_example()
    assert planned(graph, tile="ffmt", max_mac_overhead=1.0).extra_macs <= ops.macs(graph) // 100
    freely = planned(graph, tile="ffmt", max_mac_overhead=100.0)
    assert freely.arena_bytes < 24576
    assert ops.macs(freely.graph) == ops.macs(graph) + freely.extra_macs
    assert "parts along rows or columns" in tiling_words(freely)


def test_the_same_twice() -> None:
    first, second = (planned(running_example(), tile="fdt") for _ in range(2))
    assert dump(first.graph) == dump(second.graph) and first.places == second.places


def test_interrupted_the_best_until_then_is_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user presses Ctrl-C while the first tiled graph is looked at: it is kept, and no other is tried."""
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(progress, "_stopped", False)
    progress.watch()
    graph, asked = running_example(), 0

    def evaluate(candidate: Graph) -> Evaluated:
        nonlocal asked
        asked += 1
        if asked > 1:
            signal.raise_signal(signal.SIGINT)
        live = (9184, 16384, 24576, 16640, 280)
        order = tuple(op for op in graph.ops if op.kind != "reshape")
        life = {op.outputs[0]: (i, i + 1) for i, op in enumerate(order)} | {"x": (-1, 0)}
        sizes = {name: graph.tensors[name].bytes for name in life}
        pieces = (Rectangle("depthwise", 0, 8192, 1, 2), Rectangle("pointwise", 8192, 24576, 2, 3))
        alive = [sum(sizes[n] for n, (first, last) in life.items() if first < i <= last) for i in range(len(order) + 1)]
        return Evaluated(candidate, 24576 - asked, order, life, sizes, live, alive, pieces)

    try:
        outcome = explore(graph, evaluate, METHODS, Limits(0, 1 << 20))
    finally:
        signal.signal(signal.SIGINT, before)
    assert asked == 2 and outcome.graph is not graph and len(outcome.tilings) >= 1


@pytest.mark.skipif(not MODELS.exists(), reason="the public models are not at hand")
@pytest.mark.parametrize(
    ("name", "ffmt", "fdt"), [("paper_txt", 0, 76.2), ("paper_mw", 61.3, 35.5), ("paper_cif", 61.8, 5.7)]
)
def test_savings_reach_the_published_ones(name: str, ffmt: float, fdt: float) -> None:
    """Stahl 2024, table 4.1, within 2 points; there FFMT does up to 32.5 % of the MACs again, here none."""
    graph = prepare(MODELS / f"{name}.tflite")
    whole = planned(graph, tile="off").arena_bytes
    for tile, published in (("ffmt", ffmt), ("fdt", fdt)):
        in_parts = planned(graph, tile=tile)
        assert 100 - 100 * in_parts.arena_bytes / whole >= published - 2
        assert in_parts.extra_macs <= 0


@pytest.mark.one_in(4)
@pytest.mark.needs("gcc")
@pytest.mark.skipif(not MODELS.exists(), reason="the public models are not at hand")
@pytest.mark.parametrize("tile", ["fdt", "ffmt"])
@pytest.mark.parametrize("name", ["paper_mw", "person_detect"])
def test_firmware_computes_the_same(name: str, tile: str) -> None:
    """Under the sanitizers on this machine: float to 1e-5, int8 bit by bit; the report says what it cost."""
    check(MODELS / f"{name}.tflite", "host", {"tile": tile})


@pytest.mark.one_in(9)
@pytest.mark.skipif(not MODELS.exists(), reason="the public models are not at hand")
@pytest.mark.parametrize(
    "target",
    [
        pytest.param("mps2-an386", marks=pytest.mark.needs("qemu-system-arm", "arm-none-eabi-gcc")),
        pytest.param("riscv-virt", marks=pytest.mark.needs("qemu-system-riscv32", "riscv64-unknown-elf-gcc")),
    ],
)
@pytest.mark.parametrize("tile", ["fdt", "ffmt"])
@pytest.mark.parametrize("name", ["paper_txt", "paper_mw", "paper_cif", "mlperf_kws"])
def test_on_the_processors(name: str, tile: str, target: str) -> None:
    check(MODELS / f"{name}.tflite", target, {"tile": tile, "max_mac_overhead": 60})


def check(model: Path, target: str, options: dict[str, Any]) -> None:
    pytest.importorskip("onnxruntime")
    artifacts = compile_model(model_request(model, "model", target, options))
    report = json.loads(artifacts[-1].data)
    result = verify(model, load_target(target), artifacts)
    assert result["equal"] and result["arena_bytes"] == report["ram"]["arena_bytes"]
    extra = sum(row["extra_macs"] for row in report["tiling"])
    assert report["macs"]["generated"] == report["macs"]["model"] + extra
