"""The graph in which every part of a path is an op of its own (Stahl 2024, section 4.3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property

from ....base.dataclass import dataclass
from ... import ops
from ...ir import ITEM_BYTES, Graph, Op, Quant, Tensor
from ...ir.axes import Nest
from ...ops.base import Ranges, is_float
from ...ops.spatial import bias_quant
from .paths import PartRanges, Range, Tiling, free, needed, part_ranges

OPEN = (None, None)


def tiled(graph: Graph, tiling: Tiling) -> Graph:
    """The graph with the path's ops replaced by those of its parts. All other names stay."""
    ranges = part_ranges(graph, tiling)
    assert ranges is not None, "a tiling that cannot be cut was chosen"
    parts = _Parts(graph, tiling, ranges)
    for number, tile in enumerate(ranges.tiles):
        parts.tile(number, tile)
    if tiling.path.fan_in:
        parts.finish()
    gone = {op.outputs[0] for op in tiling.path.ops}
    last = tiling.path.ops[-1].outputs[0]
    kept: list[Op] = []
    for op in graph.ops:
        kept += parts.ops if op.outputs[0] == last else [] if op.outputs[0] in gone else [op]
    return graph.with_ops(kept, parts.tensors.values())


@dataclass
class _Parts:
    """Ops and tensors of the parts, as they are made."""

    graph: Graph
    tiling: Tiling
    ranges: PartRanges
    ops: list[Op] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    so_far: str | None = None  # the result, or its sums, with all parts made until now

    @cached_property
    def again(self) -> str:
        """A mark that tells the names of these parts from those of an earlier path through the same tensors."""
        names, mark = [op.outputs[0] for op in self.tiling.path.ops], ""
        while any(
            f"{name}{word}0{mark}" in self.graph.tensors for name in names for word in (":", " to ", " sums to ")
        ):
            mark += "'"
        return mark

    @property
    def result(self) -> Tensor:
        return self.graph.result(self.tiling.path.ops[-1])

    def tile(self, number: int, tile: tuple[int, ...]) -> None:
        """Add all ops of one part, and put it into the result."""
        path, before = self.tiling.path, ""
        for i, op in enumerate(path.ops):
            nest, cut = ops.nest(op, self.graph), self.ranges.of_tile(i, tile)
            inputs = []
            for position, name in enumerate(op.inputs):
                shape = self.graph.tensors[name].shape
                wanted = needed(nest, position, cut, shape)
                inputs.append(before if position == path.operands[i] else self.part(name, wanted, op, number))
            if path.fan_in and i == len(path.ops) - 1:
                self.add_to_sums(op, inputs, number)
                return
            before = self.compute(op, nest, cut, inputs, number)
        self.insert(before, self.ranges.of_tile(len(path.ops) - 1, tile), number)

    def compute(self, op: Op, nest: Nest, cut: Mapping[str, Range], inputs: list[str], number: int) -> str:
        y = self.graph.result(op)
        out: Ranges = tuple(cut.get(axis, (0, n)) for axis, n in zip(nest.out, y.shape, strict=True))
        x = self.graph.tensors[op.inputs[0]]
        attrs = ops.SPECS[op.kind].part(op, self.graph, out, needed(nest, 0, cut, x.shape))
        name = self.keep(
            replace(y, name=f"{y.name}:{number}{self.again}", shape=tuple(past - first for first, past in out))
        )
        self.ops.append(replace(op, name=f"{op.name}:{number}", inputs=tuple(inputs), outputs=(name,), attrs=attrs))
        return name

    def part(self, name: str, ranges: Ranges, op: Op, number: int) -> str:
        """A part of a constant, or of a tensor from outside of the path: a view of it if that can be, else a copy.

        It is named by the result of its reader, for ops of several paths may come from one node and share its name.
        """
        t = self.graph.tensors[name]
        if all(first == 0 and past == n for (first, past), n in zip(ranges, t.shape, strict=True)):
            return name
        size = tuple(past - first for first, past in ranges)
        where = place(ranges, t.shape)
        if t.data is not None:
            data = t.data[tuple(slice(*r) for r in ranges)]
            return self.keep(Tensor(f"{name}[{where}]", size, t.dtype, quant_of_part(t.quant, ranges), data))
        part_name = f"{name}[{where}] for {op.outputs[0]}:{number}{self.again}"
        if part_name in self.tensors:
            return part_name
        kind = "span" if free(t.shape, ranges, ITEM_BYTES[t.dtype]) else "slice"
        self.keep(replace(t, name=part_name, shape=size))
        attrs = {"begin": tuple(first for first, _ in ranges), "size": size}
        self.ops.append(Op(kind, f"{op.name}:{number} {kind}", (name,), (part_name,), attrs))
        return part_name

    def insert(self, part: str, cut: Mapping[str, Range], number: int) -> None:
        """Put a part into its place in the result."""
        y, last = self.result, number + 1 == self.tiling.parts
        name = y.name if last else self.keep(replace(y, name=f"{y.name} to {number}{self.again}"))
        nest = ops.nest(self.tiling.path.ops[-1], self.graph)
        begin = tuple(cut.get(axis, (0, 0))[0] for axis in nest.out)
        inputs = (part,) if self.so_far is None else (self.so_far, part)
        op_name = f"{self.tiling.path.ops[-1].name}:{number} insert"
        self.ops.append(Op("insert", op_name, inputs, (name,), {"shape": y.shape, "begin": begin}))
        self.so_far = name

    def add_to_sums(self, op: Op, inputs: list[str], number: int) -> None:
        """Add the products of a part to the sums of the whole result; the first part starts from the bias."""
        x, w, y = self.graph.operands(op)[0], self.graph.operands(op)[1], self.result
        real = is_float(y)
        kind, quant = ("float32", None) if real else ("int32", bias_quant(x, w))
        if self.so_far is None:
            self.so_far = inputs[2] if len(inputs) > 2 else self.no_bias(y, kind)
        direct = real and op.attrs["clamp"] == OPEN and number + 1 == self.tiling.parts
        sums_tensor = Tensor(f"{y.name} sums to {number}{self.again}", y.shape, kind, last_axis(quant, y))
        name = y.name if direct else self.keep(sums_tensor)
        sums = Op("partial_sum", f"{op.name}:{number}", (self.so_far, *inputs[:2]), (name,), op.attrs)
        self.ops.append(sums)
        self.so_far = name

    def no_bias(self, y: Tensor, dtype: str) -> str:
        import numpy as np

        return self.keep(Tensor(f"{y.name} no bias", y.shape[-1:], dtype, None, np.zeros(y.shape[-1:], dtype)))

    def finish(self) -> None:
        """Requantise and clamp the sums; float sums that have no clamp are the result."""
        op, y = self.tiling.path.ops[-1], self.result
        if self.so_far != y.name:
            assert self.so_far is not None
            kind = "clamp" if is_float(y) else "finish_sum"
            attrs = {"clamp": op.attrs["clamp"]}
            self.ops.append(Op(kind, f"{op.name} finish", (self.so_far,), (y.name,), attrs))

    def keep(self, t: Tensor) -> str:
        self.tensors[t.name] = t
        return t.name


def place(ranges: Ranges, shape: tuple[int, ...]) -> str:
    """Ranges as an index in words, `:,0-8`, for one constant may be cut differently; no `:` at the end."""
    words = [":" if past - first == n else f"{first}-{past}" for (first, past), n in zip(ranges, shape, strict=True)]
    while words and words[-1] == ":":
        words.pop()
    return ",".join(words)


def quant_of_part(quant: Quant | None, ranges: Ranges) -> Quant | None:
    if quant is None or quant.axis is None or quant.per_tensor:
        return quant
    first, past = ranges[quant.axis]
    return replace(quant, scale=quant.scale[first:past], zero_point=quant.zero_point[first:past])


def last_axis(quant: Quant | None, y: Tensor) -> Quant | None:
    """A quantisation per channel, the last dimension."""
    return replace(quant, axis=len(y.shape) - 1) if quant is not None and not quant.per_tensor else quant
