"""The exact search against one that tries everything, and against what others found."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from statistics import fmean

import pytest

from edgebuild.base.target import load_target
from edgebuild.cli import main
from edgebuild.model.ir import Nest, Window
from edgebuild.model.mapping import map_layers
from edgebuild.model.plan.hierarchy.mapper import NoMapping, best, best_of, dory, loma
from edgebuild.model.plan.hierarchy.nest import (
    Channel,
    Compute,
    Hardware,
    Mapped,
    MappingCost,
    Move,
    Operand,
    OperandCost,
    ShapeRow,
    TiledLayer,
    cost,
    layer_of,
)
from edgebuild.model.plan.memory.problem import aligned
from tests.hierarchy.layers27 import BEST, FILE, layers


def used(layer: TiledLayer, counted: MappingCost) -> dict[str, int]:
    """Bytes that the buffers take in each space."""
    sizes = Counter[str]()
    for operand, moved in zip(layer.operands, counted.operands, strict=True):
        sizes[operand.space] += moved.buffers * aligned(moved.tile_bytes)
    return sizes


HUGE = {"activations": 1 << 30, "weights": 1 << 30}


def together(compute: float, calls: int, moved: list[OperandCost], buffers: tuple[int, ...]) -> float:
    """Copies by single buffers, and computing beside the copies by double ones."""
    alone = sum(m.cycles for m, b in zip(moved, buffers, strict=True) if b == 1)
    double = [m for m, b in zip(moved, buffers, strict=True) if b == 2]
    if not double:
        return alone + compute
    ends = sum(m.cycles / m.transfers for m in double)
    return alone + max(compute + ends, sum(m.cycles for m in double) + compute / calls)


Judge = Callable[[float, int, list[OperandCost], tuple[int, ...]], float]


def naive(layer: TiledLayer, room: dict[str, int], judge: Judge = together) -> float | None:
    """The least of all tile sizes, orders, depths and buffers: cycles, from figures counted copy by copy, or others."""
    least = None
    numbers = (1, 2) if layer.operands[0].channel.overlap else (1,)
    for sizes in product(*(range(1, layer.nest.extents[a] + 1) for a in layer.axes)):
        tile = dict(zip(layer.axes, sizes, strict=True))
        cut = [a for a in layer.axes if tile[a] < layer.nest.extents[a]]
        for order in permutations(cut):
            deep = [cost(layer, Mapped(tile, order, (Move("", d, 1),) * 3)) for d in range(len(order) + 1)]
            for chosen in product(deep, repeat=3):
                moved = [figures.operands[i] for i, figures in enumerate(chosen)]
                for buffers in product(numbers, repeat=3):
                    if any(b == 2 and m.transfers == 1 for b, m in zip(buffers, moved, strict=True)):
                        continue
                    filled = dict.fromkeys(room, 0)
                    for operand, m, b in zip(layer.operands, moved, buffers, strict=True):
                        filled[operand.space] += -(-m.tile_bytes // 4) * 4 * b
                    if all(size <= room[s] for s, size in filled.items()):
                        total = judge(chosen[0].compute, chosen[0].calls, moved, buffers)
                        least = total if least is None else min(least, total)
    return least


def some_layer(seed: int) -> tuple[TiledLayer, dict[str, int]]:
    """A small random layer on random hardware with random memory."""
    r = random.Random(seed)
    groups = r.random() < 0.3
    k = r.randint(1, 3)
    fy, fx = r.choice((1, 2, 3)), r.choice((1, 3))
    stride = r.choice((1, 1, 2))
    sizes = {
        "K": k,
        "C": k if groups else r.randint(1, 3),
        "FY": fy,
        "FX": fx,
        "OY": r.randint(2, 3),
        "OX": r.randint(1, 3),
    }
    row = ShapeRow(
        "layer",
        **sizes,
        pad_y=r.randrange(fy) // 2,
        pad_x=r.randrange(fx) // 2,
        stride=stride,
        groups=k if groups else 1,
    )
    channel = Channel(
        r.choice((1, 2, 16)), r.choice((0, 20)), r.choice((0, 3, 70)), r.choice((1, 2, 3)), overlap=r.random() < 0.3
    )
    shared = r.random() < 0.5
    spaces = {"I": "a", "O": "a", "W": "a" if shared else "w"}

    def cycles(v):  # type: ignore[no-untyped-def]
        return v["K"] * v["OY"] * v["OX"] * (v["C"] * v["FY"] * v["FX"] + 3)

    hardware = Hardware(spaces, dict.fromkeys("IWO", channel), cycles, cycles, {}, r.random() < 0.5, r.choice((0, 7)))
    layer = layer_of(row, hardware)
    whole = used(
        layer,
        cost(layer, Mapped({a: layer.nest.extents[a] for a in layer.axes}, (), tuple(Move(n, 0, 1) for n in "IWO"))),
    )
    return layer, {space: max(12, int(size * r.uniform(0.2, 1.3))) for space, size in whole.items()}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(200))
def test_exact_search_equals_the_naive_one(seed: int) -> None:
    layer, room = some_layer(seed)
    want = naive(layer, room)
    if want is None:
        with pytest.raises(NoMapping):
            best(layer, room)
        return
    _, figures = best(layer, room)
    assert figures.total == pytest.approx(want)
    assert all(size <= room[s] for s, size in used(layer, figures).items())


def test_taps_are_those_that_see_the_image() -> None:
    """Of windows with any stride, dilation and padding, for all rows and for parts of them."""
    r = random.Random(5)
    for _ in range(200):
        size, pad, rows = r.randint(1, 12), r.randint(0, 4), r.randint(1, 9)
        n, stride, dilation = r.randint(1, 4), r.randint(1, 3), r.randint(1, 3)
        window = Window("y", "fy", stride, dilation, pad, size)
        image = Operand("I", (window,), (size,), 1, "a", Channel(1))
        nest = Nest({"y": rows, "fy": n}, ("y",), ((window,),))
        compute = Compute(lambda lengths: 1.0, rows=("y", "fy"))
        layer = TiledLayer("layer", nest, (image,), ("y",), compute)
        first = r.randrange(rows)
        past = r.randint(first + 1, rows)
        inside = [False] * 20 + [True] * size + [False] * 60
        seen = [sum(inside[20 - pad + row * stride + t * dilation] for t in range(n)) for row in range(first, past)]
        assert layer.taps((first, past)) == Counter(seen)


def test_the_27_layers_of_the_thesis() -> None:
    totals = {layer.name: best(layer, room)[1].total for layer, room in layers()}
    assert {name for name, total in totals.items() if total > BEST[name][1]} == set()
    whole = {layer.name: best(layer, HUGE)[1].compute for layer, _ in layers()}
    assert whole == {name: compute for name, (compute, _) in BEST.items()}


def test_the_baselines_are_never_better() -> None:
    for layer, room in layers():
        exact = best(layer, room)[1].total
        assert exact <= dory(layer, room, False)[1].total
        assert exact <= loma(layer, room, 6)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", [name for name in BEST if name[0] in "AC"])
def test_no_other_tile_size_is_better(name: str) -> None:
    layer, room = next(row for row in layers() if row[0].name == name)
    every = tuple(tuple(range(1, layer.nest.extents[a] + 1)) for a in layer.axes)
    assert best_of(layer, room, every)[1].total == best(layer, room)[1].total


def test_what_the_search_leaves_of_dorys_cycles() -> None:
    """Means over a set of the thesis: how far below DORY's rule our search is, and endless memory, the bound of all."""
    gains: dict[str, list[tuple[float, float]]] = {}
    for layer, room in layers():
        if layer.name[0] not in "AC":
            continue
        exact, rule = best(layer, room)[1].total, dory(layer, room, False)[1].total
        gains.setdefault(layer.name[0], []).append((1 - exact / rule, 1 - best(layer, HUGE)[1].total / rule))
    means = {name: [round(100 * fmean(c), 1) for c in zip(*rows, strict=True)] for name, rows in gains.items()}
    assert means == {"A": [18.6, 37.1], "C": [22.2, 26.4]}  # docs/memory-levels.md


def test_more_memory_is_never_slower() -> None:
    for layer, _ in layers()[:4]:
        totals = [best(layer, {"activations": n << 10, "weights": 1 << 16})[1].total for n in (6, 12, 24, 48, 96, 192)]
        assert totals == sorted(totals, reverse=True)


def test_two_buffers_help_where_copies_overlap() -> None:
    layer, room = layers()[3]
    operands = tuple(replace(o, channel=replace(o.channel, overlap=True)) for o in layer.operands)
    assert best(replace(layer, operands=operands), room)[1].total < best(layer, room)[1].total


def test_many_operands_move_alike() -> None:
    layer, room = layers()[3]
    x, *_, y = layer.operands
    read = tuple(replace(x, name=f"x{i}", channel=replace(x.channel, overlap=True)) for i in range(12))
    mapped, figures = best(replace(layer, operands=(*read, y)), {space: 12 * size for space, size in room.items()})
    assert len({(move.depth, move.buffers) for move in mapped.moves[:-1]}) == 1
    assert figures.calls > 1 and figures.total > 0


def test_map_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", str(FILE), "--target", "diana", "--limit", "activations=24K", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)["layers"]
    by_name = {row["name"]: row for row in rows}
    assert by_name["A.L3"]["tile"] == {"K": 16, "OY": 8, "OX": 64}
    for row in rows:  # no overlap on this target: the total is the sum
        assert row["total_cycles"] == row["compute_cycles"] + sum(row["dma_cycles"].values())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--target", "microbit"], "has no memory levels"),
        (["--target", "diana", "--search", "best"], "option 'search': 'best' is not known"),
        (["--target", "diana", "--limit", "L7=3K"], "no memory 'L7'"),
        (["--target", "diana", "--limit", "activations=16"], "does not fit: the smallest tile needs"),
    ],
)
def test_bad_input(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["map", str(FILE), *arguments]) == 1
    assert text in capsys.readouterr().err


NO_EXTENT = r":2:\d+: error: .*K is .*from 1 to 16384"


@pytest.mark.parametrize(
    ("size", "text"), [("0", NO_EXTENT), ("-3", NO_EXTENT), ("16385", NO_EXTENT), ("1e99", ":2:18: error: .*too large")]
)
def test_extents_that_no_layer_has(size: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "layers.yaml"
    file.write_text(f"layers:\n  - {{name: a, K: {size}, C: 3, FY: 1, FX: 1, OY: 2, OX: 2}}\n")
    assert main(["map", str(file), "--target", "gap8"]) == 1
    assert re.search(r"layers\.yaml" + text, capsys.readouterr().err, re.DOTALL)


def test_layers_that_cannot_be(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "layers.yaml"
    file.write_text("layers:\n  - {name: a, K: 4, C: 3, FY: 1, FX: 1, OY: 2, OX: 2, groups: 2}\n")
    assert main(["map", str(file), "--target", "diana"]) == 1
    assert f"{file}:2" in capsys.readouterr().err


def test_levels_of_a_target_are_checked(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from edgebuild.base.errors import EdgebuildError

    for change, text in (
        ("dma: {d: {between: [RAM, L9]}}", "no memory 'L9'"),
        (
            "dma: {copier: {between: [RAM, L1]}}\nmemories: {X: {origin: 3G, size: 1K, roles: [], level: 4}}",
            "no DMA reaches",
        ),
        ("memories: {RAM: {origin: 1G, size: 1G, roles: [arena, data, stack], bytes_per_cycle: 0}}", "above 0"),
        ("engines: {e: {array: {Q: 4}, activations: 1K, weights: 1K, cycles: K}}", "unknown axis 'Q'"),
        ("engines: {e: {array: {K: 4}, activations: 1K, weights: 1K, cycles: K * Z}}", "unknown letter 'Z'"),
        (
            "engines: {e: {array: {K: 4}, activations: 1K, weights: 1K, cycles: K, patterns: [conf2d]}}",
            "unknown word 'conf2d'",
        ),
    ):
        file = tmp_path / "t.yaml"
        file.write_text(f"inherits: host\ndescription: t\n{change}\n")
        with pytest.raises(EdgebuildError, match=text):
            load_target(str(file))


def test_every_op_of_a_model_is_mapped(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from tests.zoo.builders import ZOO, quantized

    file = tmp_path / "model.onnx"
    file.write_bytes(quantized(ZOO["resnet8"]()).SerializeToString())
    mapped = map_layers(file, load_target("gap8"), "exact", "L1=16K")
    assert len(mapped) > 8 and all(f.cost is not None and f.cost.calls > 0 for f in mapped)
