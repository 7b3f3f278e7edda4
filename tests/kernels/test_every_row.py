"""Every row of the registry serves a drawn layer, and each variant of kernels computes right what its kind means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest

from edgebuild.base.target import load_target
from edgebuild.model import kernels, ops
from edgebuild.model.ir import Graph
from edgebuild.model.kernels import kernel_of
from edgebuild.model.kernels.row import CONVOLUTION, DEPTHWISE, KernelLayer, Row
from edgebuild.model.ops import pointwise
from edgebuild.model.ops.base import Form, Kernel
from edgebuild.model.plan.search import form_of
from tests.graphs import thrown
from tests.kernels.test_candidates import layers
from tests.kernels.test_gathered import network
from tests.kernels.test_lines import eights, product_of_two
from tests.kernels.test_nibbles import layers as of_four_bits
from tests.kernels.test_processors import NEEDS, SUMS, check_each, variants_of

LARGE = {"channels": (1040, 2100), "together": (1, 2), "columns": (1300,)}  # sums over 2^23
PROCESSORS = ("microbit", "mps2-an385", "m4-flash-model", "mps2-an500", "mps3-an547", "riscv-virt")
PARTS, EACH = 6, 1  # layers of a kind for each of its variants in a part
MORE = {"avg_pool2d": 300, "max_pool2d": 300, "transpose": 60, "clamp": 60, "requantize": 200}
# Rows that only layers made for them reach, and the test that makes these.
ELSEWHERE = {
    "blocks.elements.linear_pieces": "test_curves.py",
    "arm_mve.dense_rows": "test_vectors.py",
    "arm_mve.sum_kernels.depthwise_row": "test_vectors.py",
    "arm_mve.sum_kernels.depthwise_channels": "test_vectors.py",
    "blocks.elements.rescaled": "test_processors.py",
    "blocks.elements.along_cycles": "../rolling/test_in_place.py",
    "blocks.elements.in_blocks": "../rolling/test_in_place.py",
    "arm_mve.spread_in_blocks": "../rolling/test_in_place.py",
    "xpulp.pixels": "test_xpulp.py",
}


def differences(graphs: list[Graph]) -> list[Graph]:
    """The same of sums of two computed operands."""
    own, attrs = [g for g in graphs if g.ops[0].kind == "add"], pointwise.attributes("difference")
    ops_of = [(g, replace(g.ops[0], kind="pointwise", attrs=attrs | g.ops[0].attrs)) for g in own]
    return [replace(g, ops=(op,)) for g, op in ops_of if not any(t.constant for t in g.operands(op))]


@cache
def drawn() -> tuple[Graph, ...]:
    """Layers of all kinds, and those that rows with rare conditions serve."""
    graphs = [g for g in layers() if len(g.ops) == 1 and not ops.SPECS[g.ops[0].kind].view]
    graphs += [g for kind, count in MORE.items() for g in thrown(kind, count) if len(g.ops) == 1]
    graphs += differences(graphs)
    large = [network(seed, kind, **LARGE) for kind in ("conv2d", "dense") for seed in range(6)]
    large += [network(seed, "dense", columns=(1301,)) for seed in range(20)]  # that words do not divide
    large += [network(seed, "conv2d", channels=(4, 8, 12), together=(1, 2, 3)) for seed in range(40)]
    return (*graphs, *map(eights, range(20)), *map(product_of_two, range(60)), *large, *of_four_bits(30))


def place_of(row: Row) -> str:
    """The function of a row's kernel, below `kernels`."""
    make = row.make
    inside = [cell.cell_contents for cell in getattr(make, "__closure__", None) or () if callable(cell.cell_contents)]
    make = inside[0] if inside and make.__qualname__.startswith("of_sums") else make
    make = make.func if isinstance(make, partial) else getattr(make, "__func__", make)
    return f"{make.__module__.rsplit('.kernels.', 1)[-1]}.{make.__qualname__.split('.')[0]}"


def recorded(row: Row, number: int, served: set[int]) -> Row:
    """The row, which notes that it made a kernel."""

    def make(layer: KernelLayer) -> Kernel | None:
        kernel = row.make(layer)
        served.update([number] if kernel is not None else [])
        return kernel

    return replace(row, make=make)


def forms_of(core: frozenset[str]) -> Iterator[Form]:
    """Whole and row by row, for speed, with a library, and with operands that are gathered first."""
    plain = Form(core=core)
    yield plain
    yield replace(plain, rings=(0, 0))
    yield replace(plain, wish=replace(plain.wish, optimize="speed", calls="cmsis-nn"))
    yield replace(plain, granularity=4)


def test_every_row_serves_a_drawn_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that no test reaches is a kernel that nobody has seen to be right."""
    served, rows = set[int](), kernels.ROWS
    monkeypatch.setattr(kernels, "ROWS", tuple(recorded(row, n, served) for n, row in enumerate(rows)))
    for core in {row.core for row in rows}:
        own = {n for n, row in enumerate(rows) if row.core == core}
        for form in forms_of(core):
            kinds = {row.kind for n, row in enumerate(rows) if n in own - served}
            kinds |= set(SUMS) | {"dense"} if kinds & {CONVOLUTION, DEPTHWISE} else set()
            for graph in drawn():
                if graph.ops[0].kind in (kinds & set(SUMS) if form.rolled else kinds) and not own <= served:
                    kernel_of(graph.ops[0], replace(graph), form)
    places = [place_of(row) for row in rows]
    missing = [
        f"row {n}, {places[n]} for {rows[n].kind}"
        for n in range(len(rows))
        if n not in served and places[n] not in ELSEWHERE
    ]
    assert not missing, f"add layers to `drawn` in {Path(__file__).name} that these rows serve: {missing}"


@pytest.mark.parametrize("place, file", ELSEWHERE.items())
def test_the_other_tests_are_there(place: str, file: str) -> None:
    assert any(place_of(row) == place for row in kernels.ROWS) and (Path(__file__).parent / file).is_file()


def of_each_variant(target: str, part: int) -> list[tuple[Graph, str]]:
    """A few layers of each kind for each variant that serves them; other ones in each part."""
    form, by_variant = form_of(load_target(target)), dict[tuple[str, str], list[Graph]]()
    for graph in map(replace, drawn()):
        (op,) = graph.ops
        for variant in variants_of(graph, form) - {"portable"}:
            by_variant.setdefault((op.kind, variant), []).append(graph)
    return [(graph, variant) for (_, variant), graphs in by_variant.items() for graph in graphs[part::PARTS][:EACH]]


@pytest.mark.one_in(PARTS)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target, part", [(target, part) for target in PROCESSORS for part in range(PARTS)])
def test_every_variant_of_every_kind(target: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that other variants better on these layers. Each target's first part runs by day."""
    chosen = of_each_variant(target, part)
    assert len(chosen) > 40, len(chosen)
    check_each(target, chosen, tmp_path, monkeypatch, tile="off")
