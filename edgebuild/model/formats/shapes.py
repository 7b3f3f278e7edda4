"""Networks given as a table of layers, without weights: `layers: [{name, kind, x, y, c, o, u, v, stride, pad}]`.

x, y, c: columns, rows and channels of the input; o: output channels; u, v: columns and rows of the window. `inputs`:
names of the layers that are read; default: the layer before. Kinds: conv, depthwise, pool, dense, add, concat, reorg
(blocks of stride x stride pixels become channels), and other, which keeps the shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path

from ...base.errors import Diagnostic, EdgebuildError, fail
from ...base.facts import read_facts
from ..plan.distribute.by_name import Counts
from ..plan.distribute.forms import Layer, Network, RowWindow, Sizes

KINDS = ("conv", "depthwise", "pool", "dense", "add", "concat", "reorg", "other")


@dataclass(frozen=True)
class Shape:
    """A row of the table. `inputs`: names of the layers that it reads; default: the layer before."""

    name: str
    kind: str
    x: int
    y: int
    c: int
    o: int
    u: int
    v: int
    stride: int
    pad: int
    inputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown kind '{self.kind}'; known: {', '.join(KINDS)}")
        if min(self.x, self.y, self.c, self.o, self.u, self.v, self.stride) < 1 or self.pad < 0:
            raise ValueError(f"layer '{self.name}': sizes and strides are at least 1, padding at least 0")
        outputs = self.c * (self.stride**2 if self.kind == "reorg" else 1)
        if self.kind not in ("conv", "dense") and self.o != outputs:
            raise ValueError(f"layer '{self.name}': {self.kind} of {self.c} channels gives {outputs}, not {self.o}")
        if min(self.out) < 1:
            raise ValueError(f"layer '{self.name}': the window {self.u}x{self.v} is larger than its padded input")

    @property
    def out(self) -> tuple[int, int, int]:
        """Columns, rows and channels of the output."""
        if self.kind in ("add", "concat", "other"):
            return self.x, self.y, self.o
        if self.kind == "dense":
            return 1, 1, self.o
        return ((self.x + 2 * self.pad - self.u) // self.stride + 1,
                (self.y + 2 * self.pad - self.v) // self.stride + 1, self.o)  # fmt: skip

    @property
    def weights(self) -> int:
        """Number of weights, without biases."""
        match self.kind:
            case "conv" | "dense":
                return self.u * self.v * self.c * self.o
            case "depthwise":
                return self.u * self.v * self.c
        return 0

    @property
    def macs(self) -> int:
        return self.weights * self.out[0] * self.out[1]


@dataclass(frozen=True)
class Table:
    """The content of a shapes file: layers in order."""

    layers: tuple[Shape, ...]


def read_shapes(path: Path) -> tuple[Shape, ...]:
    """The rows of a shapes file. Raises EdgebuildError for unknown keys, wrong values and shapes that do not match."""
    rows = read_facts(Table, path).layers
    if not rows:
        raise fail("no layers", file=str(path))
    for number, row in enumerate(rows):
        if any(row.name == before.name for before in rows[:number]):
            raise fail("two layers have this name", file=str(path), node=row.name, kind=row.kind)
    errors = [d for number in range(len(rows)) for d in _unchained(rows, number, str(path))]
    if errors:
        raise EdgebuildError(*errors)
    return rows


def reads(rows: Sequence[Shape], number: int) -> tuple[int, ...]:
    """Numbers of the layers that a layer reads; -1 is the network's input."""
    names = {r.name: i for i, r in enumerate(rows[:number])}
    return tuple(names[n] for n in rows[number].inputs) if rows[number].inputs else (number - 1,)


def _unchained(rows: Sequence[Shape], number: int, file: str) -> Iterator[Diagnostic]:
    row = rows[number]
    unknown = [n for n in row.inputs if n not in {r.name for r in rows[:number]}]
    if unknown:
        yield from fail(f"reads '{unknown[0]}', which no layer before it is", file=file, node=row.name).diagnostics
        return
    sources = [rows[i].out for i in reads(rows, number) if i >= 0]
    want = (row.x, row.y, row.c)
    if row.kind == "concat" and sources:
        sources = [(*sources[0][:2], sum(c for *_, c in sources))]
    for have in sources:
        if have != want and not (row.kind == "dense" and prod(have) == prod(want)):
            text = f"reads {'x'.join(map(str, want))}, but the layer before gives {'x'.join(map(str, have))}"
            yield from fail(text, file=file, node=row.name, kind=row.kind).diagnostics


def counts(rows: tuple[Shape, ...], dense: bool = False) -> tuple[Counts, ...]:
    """Counts of chapter 5 of the thesis, of convolutions and, if `dense`, of dense layers."""
    counted_rows = []
    for r in rows:
        x, y, o = r.out
        counted = r.kind == "conv" or (dense and r.kind == "dense")
        counted_rows.append(Counts(r.x * r.y * r.c, x * y * o, r.weights) if counted else Counts(0, 0, 0, False))
    return tuple(counted_rows)


def network(rows: tuple[Shape, ...], item: int, partial: int, dense: bool = True) -> Network:
    """The rows as a network to distribute. `item`: bytes of a weight or activation; `partial`: of a partial sum."""
    first, dtype = rows[0], "int8" if item == 1 else "float32"
    tensors, layers = [Sizes("input", first.y, first.x * first.c, first.c, item, dtype)], []
    for number, r in enumerate(rows):
        if r.kind == "dense" and not dense:
            break
        x, y, o = r.out
        tensors.append(Sizes(r.name, y, x * o, o, item, dtype))
        sums = r.kind in ("conv", "dense")
        inputs = tuple(i + 1 for i in reads(rows, number))
        carried = r.kind in ("depthwise", "pool", "add", "other")
        starts = accumulate((tensors[t].channels for t in inputs[:-1]), initial=0)
        layer = Layer(
            r.name, r.kind, inputs, number + 1, r.weights * item, r.macs, sums, sums, carried, _window(r), partial,
            joins=tuple(starts) if r.kind == "concat" and len(set(inputs)) == len(inputs) else (),
        )  # fmt: skip
        layers.append(layer)
    return Network(tuple(tensors), tuple(layers), (0,), (len(layers),))


def _window(r: Shape) -> RowWindow | None:
    match r.kind:
        case "dense":
            return None
        case "add" | "concat" | "other":
            return RowWindow()
        case "reorg":
            return RowWindow(r.stride, r.stride, 0)
    return RowWindow(r.v, r.stride, r.pad)
