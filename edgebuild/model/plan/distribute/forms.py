"""The values of distribution: tensors, layers, devices, the medium, and the forms in which devices hold a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from ....base.dataclass import dataclass

Ranges = tuple[tuple[int, int], ...]  # half open, one a device


@dataclass(frozen=True)
class Sizes:
    """`rows` of `row` elements each, with `channels` innermost; `item` bytes an element, of type `dtype`."""

    name: str
    rows: int
    row: int
    channels: int
    item: int = 1
    dtype: str = "int8"

    @property
    def elements(self) -> int:
        return self.rows * self.row

    @property
    def bytes(self) -> int:
        return self.elements * self.item


@dataclass(frozen=True)
class RowWindow:
    """Output row r reads the input rows from r * stride - pad on, `size` of them, dilation included."""

    size: int = 1
    stride: int = 1
    pad: int = 0

    def needed(self, first: int, past: int, rows: int) -> tuple[int, int]:
        """The rows of an input of `rows` rows that the output rows [first, past) read."""
        if first >= past:
            return (0, 0)
        low, high = first * self.stride - self.pad, (past - 1) * self.stride - self.pad + self.size
        return max(0, low), max(0, min(rows, high))


@dataclass(frozen=True)
class Layer:
    """One step. `inputs` and `output` are numbers of tensors.

    `weights`: bytes that a split along channels divides; `table`: those that each device needs which runs a part.
    `fan_out`: a part of the output channels needs all of the
    input and a part of the weights. `fan_in`: a part of the input channels gives partial sums of the whole output.
    `by_channel`: channel k of the output needs channel k of the inputs only. `window`: the rows of input 0 that a row
    of the output needs; None if it may need all. `partial`: bytes of a partial sum on the wire. `rolls`: the step can
    run row by row, except for its partial sums. `joins`: the inputs' channels follow each other in the output,
    and these are the first ones of each; empty where they do not.
    """

    name: str
    kind: str
    inputs: tuple[int, ...]
    output: int
    weights: int = 0
    macs: int = 0
    fan_out: bool = False
    fan_in: bool = False
    by_channel: bool = False
    window: RowWindow | None = None
    partial: int = 4
    rolls: bool = False
    joins: tuple[int, ...] = ()
    table: int = 0

    @property
    def flash(self) -> int:
        """Bytes of a device that runs all of it."""
        return self.weights + self.table


@dataclass(frozen=True)
class Network:
    """Layers in a valid order. Inputs and results lie at the source device."""

    tensors: tuple[Sizes, ...]
    layers: tuple[Layer, ...]
    inputs: tuple[int, ...]
    results: tuple[int, ...]

    @property
    def weights(self) -> int:
        return sum(layer.flash for layer in self.layers)


@dataclass(frozen=True)
class Medium:
    """`star`: the source is the hub and forwards. `bus`: one transmission at a time. `switch`: a port each.

    `broadcast`: one transmission may reach all. `mtu`: most bytes of a frame, 0 for no limit.
    `timeout_ms`: how long generated code waits for a message. `byte_work_us`, `message_work_us`: what devices compute
    for each, which adds to the time of plans.
    """

    kind: str = "switch"
    bits_per_s: float = 100e6
    message_us: float = 0.0
    mtu: int = 0
    broadcast: bool = False
    timeout_ms: float = 1000.0
    byte_work_us: float = 0.0
    message_work_us: float = 0.0


@dataclass(frozen=True)
class Device:
    """Limits in bytes. `share`: its part of split work, relative to the others; `macs_per_us`: its speed, modelled.

    `hz`: instructions a second.
    """

    name: str
    target: str
    flash: int
    ram: int
    share: float = 1.0
    macs_per_us: float = 56.0  # 168 MHz at 3 instructions a multiply-accumulate
    hz: float = 168e6


@dataclass(frozen=True)
class Cluster:
    """`with_code`: the flash of devices holds code, too, and not weights alone."""

    devices: tuple[Device, ...]
    source: int
    medium: Medium
    objective: str = "traffic"  # or latency, or memory
    with_code: bool = False

    @property
    def shares(self) -> tuple[float, ...]:
        total = sum(d.share for d in self.devices)
        return tuple(d.share / total for d in self.devices)


@dataclass(frozen=True)
class Split:
    """How devices hold a tensor.

    S: the source has it. A: all have it. P: each has the channels `ranges[d]`. F: each has the rows `ranges[d]`, which
    may overlap where halos are computed twice. Z: each has partial sums of all of it.

    `ring`: the step that makes the tensor and its one reader run row by row together, and so many rows of it are kept;
    0: all.
    """

    letter: str
    ranges: Ranges = ()
    ring: int = 0

    @cached_property
    def _hash(self) -> int:
        return hash((self.letter, self.ranges, self.ring))

    def __hash__(self) -> int:  # a search looks forms up far more often than it makes them
        return self._hash

    @property
    def plain(self) -> Split:
        return Split(self.letter, self.ranges) if self.ring else self


SOURCE, ALL, SUMS = Split("S"), Split("A"), Split("Z")


def split(total: int, shares: Sequence[float]) -> Ranges:
    """`total` units in consecutive ranges, in proportion to the shares."""
    edges, so_far = [0], 0.0
    for share in shares:
        so_far += share
        edges.append(round(total * so_far))
    edges[-1] = total
    return tuple(pairwise(edges))


def held(tensor: Sizes, form: Split, device: int, source: int, partial: int = 4) -> int:
    """Bytes of a tensor in this form on a device."""
    if form.ring and form.ring < tensor.rows:
        first, past = form.ranges[device] if form.letter == "F" else (0, tensor.rows)
        some = replace(tensor, rows=min(form.ring, past - first))
        ranges = tuple((0, min(form.ring, b - a)) for a, b in form.ranges) if form.letter == "F" else form.ranges
        return held(some, Split(form.letter, ranges), device, source)
    match form.letter:
        case "S":
            return tensor.bytes if device == source else 0
        case "A":
            return tensor.bytes
        case "P":
            first, past = form.ranges[device]
            return tensor.bytes * (past - first) // tensor.channels
        case "F":
            first, past = form.ranges[device]
            return (past - first) * tensor.row * tensor.item
        case _:
            return tensor.elements * partial
