"""A plan run on real values, without a compiler: memories as bytes, calls in their order, each kernel by its meaning.

`replay` shows that every call finds the bytes that it needs. This shows that the kernels that were chosen make of them
what the ops of the model do. Operands are read where the kernel's own form says that they are (`Form.rings`), and what
it computes is what it states about itself: its kind (`Kernel.computes`) and the numbers that are printed into it. The
result of every call is compared with the reference of the op, and the outputs with those of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from random import Random
from typing import Any

import numpy as np

from ... import ops
from ...ir import Array, Graph, Op, Tensor
from ...ir.axes import Same, Window, input_range
from ...kernels import kernel_of
from ...ops.base import PIXELS, Kernel
from ..memory.problem import Place
from ..printed import Step, newest_name, scratch_name
from .machine import Addresses, BrokenPlan, Callee, Relations, calls_of, follows, kept_by

ALWAYS = 3_000_000  # steps of innermost loops up to which every plan is interpreted
LETTERS = {"H", "W", "C", "SY", "SX", "PY", "PX", "DY", "DX"}  # of a window, among the numbers of a kernel
SIZES = ("N", "OH", "OW", "K", "FH", "FW", "M", "CG", "KG")  # that follow from the shapes of operands and result
CLOSE = 1e-4  # of the largest value: floats may be added up in another order


def small(graph: Graph) -> bool:
    """Whether to interpret plans of this graph costs next to nothing."""
    return sum(prod(ops.nest(op, graph).extents.values()) for op in graph.ops) <= ALWAYS


def interpret(
    model: Graph,
    graph: Graph,
    steps: Sequence[Step],
    places: Mapping[str, Place],
    streamed: str | None = None,
) -> None:
    """Raise BrokenPlan unless every call has the values that its op has, and every output those of the `model`.

    The `graph` that is planned may be another: ops of the model may be cut into parts. `streamed`: the input whose rows
    the application brings.
    """
    rng = Random(0)  # numpy takes 15 ms to import its own
    inputs = [_values(rng, graph.tensors[name]) for name in graph.inputs]
    with np.errstate(all="ignore"):  # what is not wanted may be anything
        expected, wanted = ops.run(graph, *inputs), ops.run(model, *inputs)
        for name in graph.outputs:
            compare(f"output {name} of the graph in parts", expected[name], wanted[name])
        try:
            _Machine(graph, streamed, places, expected, rng).run(steps, inputs)
        except (ArithmeticError, LookupError, ValueError) as error:
            raise BrokenPlan(f"a kernel cannot be run on what it finds: {error}") from error


def compare(name: str, got: Array, want: Array) -> None:
    """Integers are equal; floats are as near as an order of adding up lets them be."""
    got = got.reshape(want.shape)
    if want.dtype.kind != "f":
        same = np.array_equal(got, want)
    else:
        largest = float(np.max(np.abs(want), initial=0.0, where=np.isfinite(want)))
        same = np.allclose(got, want, rtol=CLOSE, atol=CLOSE * largest, equal_nan=True)
    if not same:
        far = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
        raise BrokenPlan(f"{name} has wrong values, off by up to {far:g}")


def _values(rng: Random, t: Tensor) -> Array:
    """Values for an input; indices are 0 or 1."""
    if t.dtype == "float32":
        return (np.frombuffer(rng.randbytes(4 * t.elements), np.int32) / 2**30).astype(np.float32).reshape(t.shape)
    if t.dtype in ("int8", "uint8"):
        return np.frombuffer(rng.randbytes(t.elements), t.dtype).reshape(t.shape)
    return (np.frombuffer(rng.randbytes(t.elements), np.uint8) & 1).astype(t.dtype).reshape(t.shape)


@dataclass
class _Machine:
    graph: Graph
    streamed: str | None
    places: Mapping[str, Place]
    expected: Mapping[str, Array]
    rng: Random

    def __post_init__(self) -> None:
        graph = self.graph
        self.relations = Relations(graph)
        size = max((p.offset for p in self.places.values()), default=0)
        size += 4 * max((t.bytes for t in graph.tensors.values()), default=0)
        memories = {p.memory for p in self.places.values()}
        self.memories = {name: np.frombuffer(self.rng.randbytes(size), np.uint8).copy() for name in sorted(memories)}
        self.taken_up: dict[str, list[list[Array]]] = {}  # by result: what the calls of a reduction have read

    def run(self, steps: Sequence[Step], inputs: Sequence[Array]) -> None:
        everywhere = Addresses.of(self.graph, None, self.places)
        for name, value in zip(self.graph.inputs, inputs, strict=True):
            if name != self.streamed:
                self.write(everywhere, name, None, value)
        for section in steps:
            addresses = Addresses.of(self.graph, section, self.places)
            kernels = [kernel_of(op, self.graph, f) for op, f in zip(section.ops, section.forms, strict=True)]
            callees = [Callee.of(self.graph, op, f) for op, f in zip(section.ops, section.forms, strict=True)]
            for number, row in calls_of(self.relations, section):
                if number < len(section.ops):
                    self.call(section, addresses, callees[number], kernels[number], row)
                elif (ring := kept_by(section, number)) is not None:
                    _, (source, there), (memory, at) = addresses.keep(ring)
                    self.memories[memory][at] = self.memories[source][there]
                elif self.streamed is not None and row is not None:
                    value = self.expected[self.streamed]
                    self.write(addresses, self.streamed, row, value[:, row : row + 1])
        for name in self.graph.outputs:
            stored = self.relations.part(name, 0, self.relations.rows(name))
            memory, at = everywhere.of_bytes(stored)
            compare(f"output {name}", self.typed(self.memories[memory][at], name), self.expected[name])

    def typed(self, data: Array, tensor: str) -> Array:
        return data.view(self.graph.tensors[tensor].dtype)

    def write(self, addresses: Addresses, tensor: str, row: int | None, value: Array) -> None:
        rows = (0, self.relations.rows(tensor)) if row is None else (row, row + 1)
        memory, at = addresses.of_bytes(self.relations.part(tensor, *rows))
        data = np.ascontiguousarray(value.astype(self.graph.tensors[tensor].dtype)).ravel().view(np.uint8)
        if len(data) != len(at):
            raise BrokenPlan(f"what is written of {tensor} has {len(data)} B, not {len(at)}")
        self.memories[memory][at] = data

    def read(self, addresses: Addresses, callee: Callee, position: int, rows: tuple[int, int], count: int) -> Array:
        """Rows of an operand, of which it has `count`, where the kernel finds them."""
        name, form = callee.op.inputs[position], callee.form
        view = self.relations.views[name]
        size = self.graph.tensors[name].bytes // count
        order = callee.operands.index(position)
        ring = (form.rings or ())[order] if order < len(form.rings or ()) else 0
        kept = addresses.kept.get(view.storage, 0) if any(form.apart[order : order + 1]) else 2**31
        home, newest = (self.places.get(n) for n in (self.home(view.storage), newest_name(view.storage)))
        found = []
        for row in range(*rows):
            place = home if row < kept else newest
            if place is None:
                raise BrokenPlan(f"row {row} of {name} has no place")
            at = place.offset + ((row % ring * size if ring else view.start + row * size) if row < kept else 0)
            found.append(self.memories[place.memory][at : at + size])
        return self.typed(np.concatenate(found or [np.zeros(0, np.uint8)]), name)

    def home(self, storage: str) -> str:
        return self.section_inside.get(storage, storage)

    def call(self, section: Step, addresses: Addresses, callee: Callee, kernel: Kernel, row: int | None) -> None:
        """Make what a kernel makes in one call, and compare it with what its op should."""
        self.section_inside = section.rolled.inside if section.rolled else {}
        op, graph = callee.op, self.graph
        if row is not None and callee.reduces:
            self.take_up(addresses, callee, kernel, row)
            return
        small_op, small_graph = _as_stated(op, graph, kernel)
        out = tuple((0, n) for n in graph.result(op).shape)
        out = out if row is None else (out[0], (row, row + 1), *out[2:])
        operands, shapes = [], {}
        rows = self.rows_read(callee, small_op, row)
        for position, t in enumerate(graph.operands(op)):
            if t.data is not None:
                operands.append(t.data)
                continue
            first, past = rows.get(position, (0, self.relations.rows(t.name)))
            shape = (t.shape[0], past - first, *t.shape[2:]) if len(t.shape) > 1 else t.shape
            shapes[position] = tuple((0, n) if d != 1 else (first, past) for d, n in enumerate(t.shape))
            read = self.read(addresses, callee, position, (first, past), self.relations.rows(t.name))
            operands.append(read.reshape(shape))
        if rows:
            small_op, small_graph = _of_rows(small_op, small_graph, operands, out, shapes)
        value = ops.SPECS[small_op.kind].reference(small_op, small_graph, *operands)
        if row is not None and not rows:
            value = value.reshape(graph.result(op).shape)[:, row : row + 1]
        self.finish(addresses, op, row, value)
        if callee.over == PIXELS:
            self.pixel_by_pixel(addresses, op, operands[0], value)

    def pixel_by_pixel(self, addresses: Addresses, op: Op, x: Array, value: Array) -> None:
        """Make the result once more as a kernel does that reads each pixel just before it writes it."""
        self.write(addresses, op.inputs[0], None, x)
        (memory, there), (_, at) = (addresses.of_bytes(self.relations.part(n, 0, self.relations.rows(n)))
                                    for n in (op.inputs[0], op.outputs[0]))  # fmt: skip
        data, pixels = self.memories[memory], prod(value.shape[:-1])
        results = np.ascontiguousarray(value.astype(self.graph.result(op).dtype)).view(np.uint8).reshape(pixels, -1)
        operand = np.ascontiguousarray(x).view(np.uint8).reshape(pixels, -1)
        for pixel, (read, written) in enumerate(zip(there.reshape(pixels, -1), at.reshape(pixels, -1), strict=True)):
            if not np.array_equal(data[read], operand[pixel]):
                raise BrokenPlan(f"{op.name} finds pixel {pixel} of {op.inputs[0]} overwritten")
            data[written] = results[pixel]

    def rows_read(self, callee: Callee, stated: Op, row: int | None) -> dict[int, tuple[int, int]]:
        """Of every operand the rows that the kernel reads for a row of the result; none: to read all does no harm."""
        if row is None or not all(_rowwise(callee, i) for i in callee.operands):
            return {}
        nest = ops.nest(stated, self.graph)
        found = {i: input_range(nest, i, 1, row, row + 1) for i in callee.operands}
        return found if all(first < past for first, past in found.values()) else {}

    def take_up(self, addresses: Addresses, callee: Callee, kernel: Kernel, row: int) -> None:
        """A call of a reduction. Its sums stand for what it has read, in bytes that nothing else may touch."""
        op, graph = callee.op, self.graph
        place, size = self.places[scratch_name(op.outputs[0])], callee.scratch
        mark = np.full(size, 1 + row % 251, np.uint8)
        mine = self.memories[place.memory][place.offset : place.offset + size]
        if row and not np.array_equal(mine, np.full(size, 1 + (row - 1) % 251, np.uint8)):
            raise BrokenPlan(f"{op.name} finds its sums of row {row} spoilt")
        mine[:] = mark
        last = int(kernel.shape["rows"]) - 1  # type: ignore[arg-type]
        taken = self.taken_up.setdefault(op.outputs[0], [])
        taken.append([self.read(addresses, callee, i, (row, row + 1), callee.form.rows) for i in callee.operands])
        if row != last:
            return
        pieces = zip(*self.taken_up.pop(op.outputs[0]), strict=True)
        whole = iter([np.concatenate(piece) for piece in pieces])
        operands = [t.data if t.data is not None else next(whole).reshape(t.shape) for t in graph.operands(op)]
        stated, small_graph = _as_stated(op, graph, kernel)
        self.finish(addresses, op, None, ops.SPECS[stated.kind].reference(stated, small_graph, *operands))

    def finish(self, addresses: Addresses, op: Op, row: int | None, value: Array) -> None:
        y, want = op.outputs[0], self.expected[op.outputs[0]]
        want = want if row is None else want[:, row : row + 1]
        where = op.name if row is None else f"row {row} of {op.name}"
        if value.size != want.size:
            raise BrokenPlan(f"{where}: the kernel makes {value.size} values, not {want.size}")
        compare(where, value, want)
        self.write(addresses, y, row, value)


def _rowwise(callee: Callee, position: int) -> bool:
    dims = callee.relation.operands[position]
    return follows(callee.relation, position) and isinstance(dims[1], Same | Window)


def _as_stated(op: Op, graph: Graph, kernel: Kernel) -> tuple[Op, Graph]:
    """The op that a kernel computes by its own numbers, where it has them in the letters of a window.

    Raises BrokenPlan where it is made for other sizes: it would leave out values, or read those of neighbours.
    """
    kind, attrs = kernel.computes if kernel.computes is not None else (op.kind, dict[str, Any]())
    s, x = kernel.shape, (graph.operands(op) or (graph.result(op),))[0]
    stated = dict(op.attrs)
    if s.keys() >= LETTERS and (s["H"], s["W"], s["C"]) == x.shape[1:]:
        numbers = {"stride": (s["SY"], s["SX"]), "dilation": (s["DY"], s["DX"])}
        numbers |= {"pad": (s["PY"], s["PX"], *tuple(op.attrs.get("pad", ()))[2:])}
        stated |= {name: value for name, value in numbers.items() if name in op.attrs}
        mine = {name: s[name] for name in SIZES if name in s}
        if (wrong := {n: v for n, v in mine.items() if v != _sizes(op, graph).get(n, v)}) != {}:
            raise BrokenPlan(f"the kernel of {op.name} is made for {wrong}")
    return replace(op, kind=kind, attrs={**stated, **attrs}), graph


def _sizes(op: Op, graph: Graph) -> dict[str, int]:
    """Values of the letters of SIZES, as far as the op has them."""
    x, *others = graph.operands(op)
    y, groups = graph.result(op).shape, int(op.attrs.get("groups", 1))
    found = dict(zip(("N", "OH", "OW", "K"), y, strict=False))
    if others and others[0].data is None:  # a sum goes on: its image is the second operand
        return found
    taps = op.attrs["window"] if "window" in op.attrs else others[0].shape[1:3] if others else ()
    found |= dict(zip(("FH", "FW"), taps, strict=False))
    return found | {"M": y[-1] // x.shape[-1], "CG": x.shape[-1] // groups, "KG": y[-1] // groups}


def _of_rows(
    op: Op, graph: Graph, operands: Sequence[Array], out: tuple[tuple[int, int], ...], read: Mapping[int, object]
) -> tuple[Op, Graph]:
    """The op that makes rows `out` of its result from parts of its operands."""
    first = read.get(0, tuple((0, n) for n in graph.operands(op)[0].shape))
    attrs = ops.SPECS[op.kind].part(op, graph, out, first)  # type: ignore[arg-type]
    y = graph.result(op)
    tensors = {t.name: replace(t, shape=v.shape) for t, v in zip(graph.operands(op), operands, strict=True)}
    tensors[y.name] = replace(y, shape=tuple(past - start for start, past in out))
    return replace(op, attrs=attrs), replace(graph, ops=(), tensors=tensors, inputs=(), outputs=())
