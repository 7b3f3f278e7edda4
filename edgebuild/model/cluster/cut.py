"""Cut a graph by a plan for several devices into an ordinary graph for each device.

Devices hold pieces of a tensor: some of its rows and channels. An op of a layer becomes the op that makes a device's
piece of the result, with its part of the weights. Where the plan changes the form of a tensor, the sender gets a
`send` after a slice, and the receiver a `receive` before an insert. All messages have one order, which each device
keeps for its own messages, so no two devices wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np

from .. import ops
from ..ir import ITEM_BYTES, Graph, Op, Tensor
from ..ops.base import Ranges, check_limits, is_float
from ..ops.moves import EVERYONE, neighbours
from ..ops.spatial import bias_quant
from ..plan.distribute import forms
from ..plan.distribute.forms import (
    ALL,
    SOURCE,
    SUMS,
    ClusterPlan,
    Decision,
    Range,
    Split,
    Transfer,
    block,
    has,
    routed,
    split,
    transfers,
)
from ..plan.tiling.paths import OPEN, graph_of_part, last_axis, needed, one_part, part_of, place

METHODS_OF_PARTS = ("fan-out", "parts", "rows")


def project(graph: Graph, plan: ClusterPlan) -> tuple[tuple[Graph, ...], tuple[Message, ...]]:
    """The graphs of all devices, and all messages in their order. The graph of an idle device has no ops."""
    devices = [_Device(graph, k, k == plan.cluster.source) for k in range(len(plan.cluster.devices))]
    cut = _Cut(graph, plan, devices)
    for step, decision in enumerate(plan.decisions):
        cut.layer(step, replace(decision, keeps=decision.keeps.plain))
    for c in plan.gather:
        cut.convert(len(plan.decisions), c.tensor, c.have, c.want)
    return tuple(d.finished(cut) for d in devices), tuple(cut.messages)


@dataclass
class _Device:
    """The ops of a device so far, and its pieces of the plan's tensors, by form."""

    graph: Graph
    number: int
    is_source: bool
    ops: list[Op] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    pieces: dict[tuple[str, Split], Piece] = field(default_factory=dict)
    copies: dict[tuple[str, Ranges], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.is_source:
            for name in self.graph.inputs:
                self.tensors[name] = t = self.graph.tensors[name]
                self.pieces[name, SOURCE] = Piece(name, tuple((0, n) for n in t.shape))

    def new(self, t: Tensor) -> str:
        name, count = t.name, 1
        while name in self.tensors:
            count += 1
            name = f"{t.name} ({count})"
        self.tensors[name] = replace(t, name=name)
        return name

    def piece(self, name: str, ranges: Ranges) -> str:
        """A new tensor for a piece of the model's tensor."""
        return self.new(self.part(name, ranges))

    def part(self, name: str, ranges: Ranges) -> Tensor:
        t = self.graph.tensors[name]
        whole = all(r == (0, n) for r, n in zip(ranges, t.shape, strict=True))
        return t if whole else part_of(t, ranges, f"{name}[{place(ranges, t.shape)}]")

    def op(self, kind: str, inputs: Sequence[str], output: str, **attrs: object) -> str:
        self.ops.append(Op(kind, f"{output} {kind}", tuple(inputs), (output,), attrs))
        return output

    def cut_out(self, piece: Piece, wanted: Ranges) -> str:
        """The elements `wanted` of a piece: the piece itself, a view of it, or a copy."""
        if piece.ranges == wanted:
            return piece.name
        if (piece.name, wanted) not in self.copies:
            t = self.tensors[piece.name]
            inner = tuple((a - first, b - first) for (a, b), (first, _) in zip(wanted, piece.ranges, strict=True))
            size = tuple(b - a for a, b in inner)
            start = sum(a * prod(t.shape[d + 1 :]) for d, (a, _) in enumerate(inner)) * ITEM_BYTES[t.dtype]
            kind = "span" if neighbours(t.shape, inner) and start % 4 == 0 else "slice"
            copied = self.new(replace(part_of(t, inner, f"{piece.name} {place(inner, t.shape)}"), data=None))
            self.op(kind, (piece.name,), copied, begin=tuple(a for a, _ in inner), size=size)
            self.copies[piece.name, wanted] = copied
        return self.copies[piece.name, wanted]

    def constant(self, name: str, ranges: Ranges) -> str:
        tensor = self.part(name, ranges)
        self.tensors[tensor.name] = tensor
        return tensor.name

    def send(self, message: Message, piece: Piece, ranges: Ranges) -> None:
        to = message.transfer.receivers
        x = self.cut_out(piece, ranges)
        token = self.new(Tensor(f"message {message.number}", (0,), "int8"))
        device = to[0] if len(to) == 1 else EVERYONE
        self.op("send", (x,), token, message=message.number, device=device, wire=message.item)

    def receive(self, message: Message, t: Tensor) -> str:
        received = self.new(t)
        sender = message.transfer.sender
        return self.op("receive", (), received, message=message.number, device=sender, wire=message.item, shape=t.shape)

    def assemble(self, name: str, wanted: Ranges, parts: Sequence[tuple[str, Ranges]]) -> str:
        """Join parts that cover a tensor into one."""
        if len(parts) == 1 and parts[0][1] == wanted:
            return parts[0][0]
        so_far, shape = "", tuple(past - first for first, past in wanted)
        for i, (part, ranges) in enumerate(parts):
            begin = tuple(a - first for (a, _), (first, _) in zip(ranges, wanted, strict=True))
            joined = self.piece(name, wanted) if i == len(parts) - 1 else self.new(
                replace(part_of(self.graph.tensors[name], wanted, f"{name} with {i + 1} parts"), data=None)
            )  # fmt: skip
            so_far = self.op("insert", (so_far, part) if so_far else (part,), joined, shape=shape, begin=begin)
        return so_far

    def finished(self, cut: _Cut) -> Graph:
        """The graph; the model's inputs and outputs lie at the source under their own names."""
        graph = self.graph
        if not self.is_source:
            return replace(_device_graph(graph, self.ops, self.tensors), inputs=(), outputs=(), states=())
        other = {cut.piece_of(self, name, SOURCE).name: name for name in graph.outputs}
        swap = {**{new: old for old, new in other.items() if new in self.tensors}, **other}

        def names(some: Sequence[str]) -> tuple[str, ...]:
            return tuple(swap.get(n, n) for n in some)

        self.ops = [replace(op, inputs=names(op.inputs), outputs=names(op.outputs)) for op in self.ops]
        tensors = {swap.get(n, n): replace(t, name=swap.get(n, n)) for n, t in self.tensors.items()}
        return _device_graph(graph, self.ops, tensors, graph.outputs)


def _device_graph(
    graph: Graph, ops_new: Sequence[Op], tensors: Mapping[str, Tensor], outputs: Sequence[str] = ()
) -> Graph:
    """The graph of a device, without ops whose results are neither read, sent nor outputs."""
    kept_ops, wanted = list[Op](), set(outputs)
    for op in reversed(ops_new):
        if ops.SPECS[op.kind].link or op.outputs[0] in wanted:
            kept_ops.append(op)
            wanted.update(op.inputs)
    ops_new = kept_ops[::-1]
    used = [n for op in ops_new for n in (*op.inputs, *op.outputs)]
    kept = {n: tensors[n] for n in dict.fromkeys([*used, *(n for n in graph.inputs if n in tensors)])}
    return replace(graph, ops=tuple(ops_new), tensors=kept, removed=(), removed_macs=0)


@dataclass
class _Cut:
    """Cuts the graph for all devices together, layer by layer."""

    graph: Graph
    plan: ClusterPlan
    devices: list[_Device]
    messages: list[Message] = field(default_factory=list)
    passing: dict[tuple[int, int], Piece] = field(default_factory=dict)  # pieces to forward, by hub and receiver

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {t.name: number for number, t in enumerate(self.plan.network.tensors)}

    def piece_of(self, device: _Device, name: str, want: Split) -> Piece:
        """The piece that a device reads if the plan needs no transfer."""
        if (name, want) in device.pieces:
            return device.pieces[name, want]
        wanted = self.block(self.numbers[name], want, device.number)
        covering = (
            p
            for (n, f), p in device.pieces.items()
            if n == name and (has(f, want) or (wanted is not None and _common(p.ranges, wanted) == wanted))
        )
        return next(covering)

    def block(self, tensor: int, form: Split, device: int) -> Ranges | None:
        """The ranges of a tensor in this form that a device has; None: it has none."""
        t = self.plan.network.tensors[tensor]
        rows, channels = block(t, form, device, self.plan.cluster.source)
        return ranges_of(self.graph.tensors[t.name], rows, channels) if rows[0] < rows[1] else None

    # ---- layers

    def layer(self, step: int, d: Decision) -> None:
        layer = self.plan.network.layers[d.layer]
        for c in d.before:
            self.convert(step, c.tensor, c.have, c.want)
        op = self.graph.ops[d.layer]
        reads = {self.plan.network.tensors[t].name: f for t, f in zip(layer.inputs, d.reads, strict=True)}
        if d.makes == SUMS:
            self.fan_in(step, d, op, reads)
            return
        for device in self.devices:
            ranges = self.block(layer.output, d.makes, device.number)
            if ranges is not None and layer.joins and d.method == "parts":
                device.pieces[op.outputs[0], d.keeps] = self.joined(device, layer, op, ranges, reads)
            elif ranges is not None:
                device.pieces[op.outputs[0], d.keeps] = self.part(device, d.method, op, ranges, reads)

    def part(self, device: _Device, method: str, op: Op, ranges: Ranges, reads: Mapping[str, Split]) -> Piece:
        """The op that makes a piece of the result."""
        nest = ops.nest(op, self.graph)
        cut = dict(zip(nest.out, ranges, strict=True)) if method in METHODS_OF_PARTS else {}
        cut = {axis: r for axis, r in cut.items() if r != (0, nest.extents[axis])}
        part_op, wanted, _ = one_part(self.graph, op, cut) if cut else (op, self.everything(op), ())
        inputs = [self.operand(device, n, r, reads) for n, r in zip(op.inputs, wanted, strict=True)]
        y = device.piece(op.outputs[0], ranges)
        device.ops.append(replace(part_op, inputs=tuple(inputs), outputs=(y,)))
        return Piece(y, ranges)

    def joined(self, device: _Device, layer: forms.Layer, op: Op, ranges: Ranges, reads: Mapping[str, Split]) -> Piece:
        """A piece of a concatenation, from the operands that reach into it."""
        parts = []
        for name, start in zip(op.inputs, layer.joins, strict=True):
            here = (start, start + self.graph.tensors[name].shape[-1])
            common = _common(ranges, (*ranges[:-1], here))
            if common is not None:
                inner = (*common[:-1], (common[-1][0] - start, common[-1][1] - start))
                parts.append((self.operand(device, name, inner, reads), common))
        return Piece(device.assemble(op.outputs[0], ranges, parts), ranges)

    def everything(self, op: Op) -> tuple[Ranges, ...]:
        return tuple(tuple((0, n) for n in t.shape) for t in self.graph.operands(op))

    def operand(self, device: _Device, name: str, wanted: Ranges, reads: Mapping[str, Split]) -> str:
        if self.graph.tensors[name].constant:
            return device.constant(name, wanted)
        return device.cut_out(self.piece_of(device, name, reads[name]), wanted)

    # ---- sums

    def fan_in(self, step: int, d: Decision, op: Op, reads: Mapping[str, Split]) -> None:
        """Each device sums over its channels; owners add the sums that the others send, and requantise them."""
        layer, network = self.plan.network.layers[d.layer], self.plan.network
        y = self.graph.result(op)
        every = tuple((0, n) for n in y.shape)
        sums = {k: Piece(self.sums(k, d, op, reads), every) for k in range(len(self.devices))}
        between = d.keeps
        if d.keeps == ALL:
            tensor = network.tensors[layer.output]
            between = Split("P", split(tensor.channels, self.plan.cluster.shares))
        whole = transfers(network.tensors[layer.output], SUMS, d.keeps, self.plan.cluster, layer.partial)
        owned = {k: self.block(layer.output, between, k) for k in range(len(self.devices))}
        joined = {k: self.devices[k].cut_out(sums[k], r) for k, r in owned.items() if r is not None}
        for m in self.numbered(step, y.name, [t for t in whole if t.sums], layer.partial):
            ranges = ranges_of(y, m.transfer.rows, m.transfer.channels)
            self.forward(m, sums, ranges, joined)
        for k, name in joined.items():
            own = owned[k]
            assert own is not None
            self.devices[k].pieces[y.name, between] = Piece(self.finish(self.devices[k], op, name, own), own)
        if between != d.keeps:
            self.convert(step, layer.output, between, d.keeps)

    def sums(self, k: int, d: Decision, op: Op, reads: Mapping[str, Split]) -> str:
        """Partial sums of the whole result. One device starts from the bias: the source if it has a channel."""
        device, (x, w), y = self.devices[k], self.graph.operands(op)[:2], self.graph.result(op)
        nest = ops.nest(op, self.graph)
        kind, quant = ("float32", None) if is_float(y) else ("int32", bias_quant(x, w))
        total = device.new(Tensor(f"{y.name} sums", y.shape, kind, last_axis(quant, y)))
        x_number, source = self.plan.network.layers[d.layer].inputs[0], self.plan.cluster.source
        ranges = self.block(x_number, d.reads[0], k)
        summing = [i for i in range(len(self.devices)) if self.block(x_number, d.reads[0], i) is not None]
        if ranges is None:  # a device with so small a share that it has no channel
            zeros = f"{y.name} nothing"
            device.tensors[zeros] = Tensor(zeros, y.shape, kind, None, np.zeros(y.shape, kind))
            return device.op("copy", (zeros,), total)
        axis = nest.operands[0][-1].axis
        part = self.operand(device, x.name, ranges, reads)
        weights = device.constant(w.name, needed(nest, 1, {axis: ranges[-1]}, w.shape))
        if k == (source if source in summing else summing[0]) and len(op.inputs) > 2:
            start = device.constant(op.inputs[2], tuple((0, n) for n in self.graph.tensors[op.inputs[2]].shape))
        else:
            start = f"{y.name} no bias"
            device.tensors[start] = Tensor(start, y.shape[-1:], kind, None, np.zeros(y.shape[-1:], kind))
        device.ops.append(Op("partial_sum", f"{op.name} sums", (start, part, weights), (total,), op.attrs))
        return total

    def forward(self, m: Message, sums: Mapping[int, Piece], ranges: Ranges, joined: dict[int, str]) -> None:
        """Send sums from the device that made them to their owner, or through the hub."""
        sender, (receiver,) = m.transfer.sender, m.transfer.receivers
        self.devices[sender].send(m, self.forwarded(m) or sums[sender], ranges)
        t = next(iter(sums.items()))
        model = self.devices[t[0]].tensors[t[1].name]
        got = self.devices[receiver].receive(m, part_of(model, ranges, f"{model.name} {m.number}"))
        if m.transfer.passes_to is not None:
            self.passing[receiver, m.transfer.passes_to] = Piece(got, ranges)
            return
        device, sums_here = self.devices[receiver], joined[receiver]
        sent = device.new(replace(device.tensors[sums_here], name=f"{model.name} to {m.number}"))
        joined[receiver] = device.op("join_sums", (sums_here, got), sent)

    def finish(self, device: _Device, op: Op, name: str, ranges: Ranges) -> str:
        y, clamp = self.graph.result(op), op.attrs["clamp"]
        if is_float(y) and clamp == OPEN:
            return name
        final = device.piece(y.name, ranges)
        return device.op("clamp" if is_float(y) else "finish_sum", (name,), final, clamp=clamp)

    # ---- transfers

    def forwarded(self, m: Message) -> Piece | None:
        """The piece that the hub has received to forward by this message, if there is one."""
        key = m.transfer.sender, m.transfer.receivers[0]
        return self.passing.pop(key) if key in self.passing else None

    def numbered(self, step: int, tensor: str, some: Sequence[Transfer], item: int) -> list[Message]:
        start, hops = len(self.messages), routed(some, self.plan.cluster)
        sent = [Message(start + i, step, tensor, t, item) for i, t in enumerate(hops)]
        self.messages += sent
        return sent

    def convert(self, step: int, tensor: int, have: Split, want: Split) -> None:
        """Bring a tensor from one form into another."""
        shape: forms.Sizes = self.plan.network.tensors[tensor]
        t = self.graph.tensors[shape.name]
        parts: dict[int, list[tuple[str, Ranges]]] = {k: [] for k in range(len(self.devices))}
        for device in self.devices:
            own, wanted = self.block(tensor, have, device.number), self.block(tensor, want, device.number)
            common = _common(own, wanted) if own is not None and wanted is not None else None
            if common is not None:
                parts[device.number].append((device.cut_out(self.piece_of(device, t.name, have), common), common))
        for m in self.numbered(step, t.name, transfers(shape, have, want, self.plan.cluster), shape.item):
            ranges = ranges_of(t, m.transfer.rows, m.transfer.channels)
            sender = self.devices[m.transfer.sender]
            sender.send(m, self.forwarded(m) or self.piece_of(sender, t.name, have), ranges)
            for k in m.transfer.receivers:
                name = self.devices[k].receive(m, part_of(t, ranges, f"{t.name} {m.number}"))
                if m.transfer.passes_to is not None:
                    self.passing[k, m.transfer.passes_to] = Piece(name, ranges)
                else:
                    parts[k].append((name, ranges))
        for device in self.devices:
            wanted = self.block(tensor, want, device.number)
            if wanted is not None:
                inside = [(n, r) for n, r in parts[device.number] if _common(r, wanted) == r]
                device.pieces[t.name, want] = Piece(device.assemble(t.name, wanted, inside), wanted)


def _common(a: Ranges, b: Ranges) -> Ranges | None:
    ranges = tuple((max(p, r), min(q, s)) for (p, q), (r, s) in zip(a, b, strict=True))
    return ranges if all(first < past for first, past in ranges) else None


# ---- Pieces of tensors, and messages between devices


@dataclass(frozen=True)
class Message:
    """A transfer with its number. `step`: the layer before which it is sent (after it, for sums)."""

    number: int
    step: int
    tensor: str
    transfer: Transfer
    item: int  # bytes of an element on the wire


def ranges_of(t: Tensor, rows: Range, channels: Range) -> Ranges:
    """Rows and channels as ranges of all dimensions."""
    ranges = [(0, n) for n in t.shape]
    if len(t.shape) == 4 and t.shape[0] == 1:
        ranges[1] = rows
    if ranges:
        ranges[-1] = channels
    return tuple(ranges)


def can_be_cut(graph: Graph, op: Op, dim: int) -> bool:
    """Whether the op can make each half of its result along a dimension from parts of its operands."""
    nest = ops.nest(op, graph)
    half = graph.result(op).shape[dim] // 2
    if half == 0:
        return False
    for cut in ((0, half), (half, graph.result(op).shape[dim])):
        _, reads, _ = one_part(graph, op, {nest.out[dim]: cut})
        if any(first >= past for ranges in reads for first, past in ranges):
            return False
        part, small = graph_of_part(op, graph, {nest.out[dim]: cut})
        if ops.result_shape(part, small) != small.result(part).shape or check_limits(ops.SPECS[op.kind], part, small):
            return False
    return True


@dataclass(frozen=True)
class Piece:
    """A part of a model's tensor: `name` of the device's tensor that holds it, and its ranges in the model's."""

    name: str
    ranges: Ranges
