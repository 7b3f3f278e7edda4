"""The values of distribution: tensors, layers, devices, the medium, and the forms in which devices hold a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from ....base.errors import EdgebuildError, did_you_mean, fail
from ....base.facts import one_of, read_facts, read_node, read_text, wrong
from ....base.options import parse_size
from ....base.target import load_target

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

    `weights`: bytes that a split along channels divides; `table`: bytes that every device that runs a part needs.
    `fan_out`: a part of the output channels needs the whole input and a part of the weights. `fan_in`: a part of the
    input channels gives partial sums of the whole output. `by_channel`: channel k of the output needs channel k of the
    inputs only. `window`: the rows of input 0 that a row of the output needs; None if it may need all. `partial`: bytes
    of a partial sum on the wire. `rolls`: the step can run row by row, except for its partial sums. `joins`: first
    output channel of each input if the layer concatenates channels, else empty.
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
        """Bytes of flash of a device that runs all of it."""
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
    `timeout_ms`: how long generated code waits for a message. `byte_work_us`, `message_work_us`: time of the devices
    for each byte and message, which adds to the time of plans.
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
    """Devices and the medium that joins them. `with_code`: flash of devices holds code, too, not only weights."""

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

    `ring`: rows kept if the step that makes the tensor and its one reader run row by row together; 0: all.
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


# Transfers that bring a tensor from one form into another, and their cost on a medium.

Range = tuple[int, int]


@dataclass(frozen=True)
class Transfer:
    """A block of a tensor from one device to others; several receivers only if the medium has broadcasts.

    `sums`: the block has partial sums, which the receiver adds to its own.
    """

    sender: int
    receivers: tuple[int, ...]
    bytes: int
    rows: Range = (0, 0)
    channels: Range = (0, 0)
    sums: bool = False
    passes_to: int | None = None  # the device to which the receiver only forwards it


@dataclass(frozen=True)
class Cost:
    """Payload bytes that the medium carries, and microseconds that it takes."""

    bytes: int = 0
    time_us: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.bytes + other.bytes, self.time_us + other.time_us)


def transfers(tensor: Sizes, have: Split, want: Split, cluster: Cluster, partial: int = 4) -> tuple[Transfer, ...]:
    """Transfers in order of sender and receiver. Partial sums (Z) go to the devices that own the result."""
    if have in (want, ALL):
        return ()
    if have.letter != "Z":
        return tuple(_parts(tensor, have, want, cluster))
    if want != ALL:
        return tuple(_sums(tensor, want, cluster, partial))
    between = Split("P", split(tensor.channels, cluster.shares))  # reduce and scatter, then gather everywhere
    return (*_sums(tensor, between, cluster, partial), *_parts(tensor, between, ALL, cluster))


def _sums(tensor: Sizes, want: Split, cluster: Cluster, partial: int) -> Iterator[Transfer]:
    """Every device sends to each owner the partial sums of the owner's block."""
    devices = range(len(cluster.devices))
    for sender in devices:
        for receiver in devices:
            rows, channels = block(tensor, want, receiver, cluster.source)
            count = _area(rows) * _area(channels) * (tensor.row // tensor.channels)
            if sender != receiver and count:
                yield Transfer(sender, (receiver,), count * partial, rows, channels, sums=True)


def block(tensor: Sizes, form: Split, device: int, source: int) -> tuple[Range, Range]:
    """Rows and channels of a tensor in this form that a device has; none are (0, 0)."""
    rows, channels = (0, tensor.rows), (0, tensor.channels)
    match form.letter:
        case "S" if device != source:
            rows = (0, 0)
        case "P":
            channels = form.ranges[device]
        case "F":
            rows = form.ranges[device]
    return (rows, channels) if _area(rows) and _area(channels) else ((0, 0), (0, 0))


def _parts(tensor: Sizes, have: Split, want: Split, cluster: Cluster) -> Iterator[Transfer]:
    devices = range(len(cluster.devices))
    owned = _owned(tensor, have, cluster)
    for sender in devices:
        rows, channels = owned[sender]
        if _area(rows) == 0 or _area(channels) == 0:
            continue
        missing = {d: _missing(tensor, have, want, d, cluster.source, rows, channels) for d in devices if d != sender}
        missing = {d: m for d, m in missing.items() if m[0]}
        if want == ALL and cluster.medium.broadcast and missing:
            most = max(missing.values(), key=lambda m: m[0])
            yield Transfer(sender, tuple(d for d in devices if d != sender), *most)
        else:
            yield from (Transfer(sender, (d,), *m) for d, m in missing.items())


def _area(r: Range) -> int:
    return max(0, r[1] - r[0])


def _common(a: Range, b: Range) -> Range:
    return max(a[0], b[0]), min(a[1], b[1])


def _owned(tensor: Sizes, have: Split, cluster: Cluster) -> list[tuple[Range, Range]]:
    """Rows and channels that each device sends. Rows that several devices have are sent by the first."""
    owned, reached = [], 0
    for device in range(len(cluster.devices)):
        (first, past), channels = block(tensor, have, device, cluster.source)
        owned.append(((max(first, reached), past), channels))
        reached = max(reached, past) if have.letter == "F" else 0
    return owned


def _missing(
    tensor: Sizes, have: Split, want: Split, device: int, source: int, rows: Range, channels: Range
) -> tuple[int, Range, Range]:
    """Bytes, rows and channels of this block that a device wants and lacks; it may have the last rows already."""
    wanted_rows, wanted_channels = block(tensor, want, device, source)
    rows, channels = _common(rows, wanted_rows), _common(channels, wanted_channels)
    if have.letter == "F" and _area(got := _common(rows, have.ranges[device])):
        rows = (rows[0], got[0])
    count = _area(rows) * _area(channels) * (tensor.row // tensor.channels)
    return count * tensor.item, rows, channels


def routed(transfers: Iterable[Transfer], cluster: Cluster) -> Iterator[Transfer]:
    """Transfers hop by hop: the hub of a star forwards those between other devices."""
    hub = cluster.source
    for t in transfers:
        for receiver in t.receivers if cluster.medium.kind == "star" else ():
            if hub in (t.sender, receiver):
                yield replace(t, receivers=(receiver,))
            else:
                yield replace(t, receivers=(hub,), passes_to=receiver)
                yield replace(t, sender=hub, receivers=(receiver,))
        if cluster.medium.kind != "star":
            yield t


def frames(size: int, medium: Medium) -> int:
    """Number of transmissions for `size` bytes."""
    return max(1, -(-size // medium.mtu)) if medium.mtu else 1


def cost(transfers: tuple[Transfer, ...], cluster: Cluster) -> Cost:
    """Bytes and time of transfers that are made one after the other, on a switch port by port."""
    medium, hub = cluster.medium, cluster.source
    hops = [2 if medium.kind == "star" and hub != t.sender and hub not in t.receivers else 1 for t in transfers]
    total = sum(t.bytes * hop for t, hop in zip(transfers, hops, strict=True))
    per_byte = 8e6 / medium.bits_per_s + medium.byte_work_us
    if medium.kind != "switch":
        sent = sum(frames(t.bytes, medium) * hop for t, hop in zip(transfers, hops, strict=True))
        return Cost(total, total * per_byte + sent * medium.message_us + sum(hops) * medium.message_work_us)
    ports: dict[tuple[int, str], tuple[int, float]] = {}
    for t in transfers:
        for port in ((t.sender, "out"), *((r, "in") for r in t.receivers)):
            size, more = ports.get(port, (0, 0.0))
            ports[port] = size + t.bytes, more + frames(t.bytes, medium) * medium.message_us + medium.message_work_us
    return Cost(total, max((s * per_byte + more for s, more in ports.values()), default=0.0))


# Decisions of a plan for a layer: the forms in which it reads and makes tensors, and the conversions before.


@dataclass(frozen=True)
class Conversion:
    """A tensor is brought from one form into another before a layer (or after it, for partial sums)."""

    tensor: int
    have: Split
    want: Split


@dataclass(frozen=True)
class Decision:
    """How a layer runs: conversions of its inputs, the method, the forms in which it reads and makes its tensors."""

    layer: int
    method: str
    before: tuple[Conversion, ...]
    reads: tuple[Split, ...]
    makes: Split  # Z for a fan-in
    keeps: Split  # form in which the result is held afterwards


@dataclass(frozen=True)
class ClusterPlan:
    """Decisions of all layers; `gather` brings the results to the source."""

    network: Network
    cluster: Cluster
    decisions: tuple[Decision, ...]
    gather: tuple[Conversion, ...]
    cost: Cost
    compute_us: float


def has(have: Split, want: Split) -> bool:
    """Whether a tensor in one form can be read as in the other without a transfer."""
    if have.ring:
        have = have.plain
    if have in (want, ALL):
        return True
    return have.letter == want.letter == "F" and all(
        (a <= c and d <= b) or c >= d for (a, b), (c, d) in zip(have.ranges, want.ranges, strict=True)
    )


# Forms in which the search lets devices hold each tensor: by channels, by rows, or on one device alone.

CROWDED = 0.5  # of the source's RAM: inputs that are larger leave it little for other tensors
RUN = 4  # most layers in a row whose halos are computed twice


@dataclass(frozen=True)
class DeviceLimits:
    """Bytes of flash and RAM of each device. `thesis_arena`: RAM of a step is counted as in eq. 5.13 of the thesis."""

    flash: tuple[float, ...]
    ram: tuple[float, ...]
    thesis_arena: bool = False


@dataclass(frozen=True)
class TensorForms:
    """The forms of a problem's tensors.

    `recompute`: most layers in a row whose halos are computed twice. `stages`: others than the source may run layers
    alone.
    """

    network: Network
    cluster: Cluster
    limits: DeviceLimits
    recompute: int = field(default=RUN, kw_only=True)
    stages: bool = field(default=False, kw_only=True)

    @cached_property
    def readers(self) -> list[list[int]]:
        numbers: list[list[int]] = [[] for _ in self.network.tensors]
        for number, layer in enumerate(self.network.layers):
            for tensor in dict.fromkeys(layer.inputs):
                numbers[tensor].append(number)
        for tensor in self.network.results:
            numbers[tensor].append(len(self.network.layers))
        return numbers

    def channels(self, tensor: int) -> Split:
        return Split("P", split(self.network.tensors[tensor].channels, self.cluster.shares))

    @cached_property
    def channel_forms(self) -> list[tuple[Split, ...]]:
        """Splits of each tensor by channels: by shares, and as a reader that joins tensors needs them."""
        splits = []
        for tensor, readers in enumerate(self.readers):
            forms = [self.channels(tensor)] if self.divisible(tensor) else []
            for layer in (self.network.layers[n] for n in readers if n < len(self.network.layers)):
                if layer.joins and self.divisible(layer.output):
                    forms.append(self.joined(layer, layer.inputs.index(tensor)))
            splits.append(tuple(dict.fromkeys(forms)))
        return splits

    def divisible(self, tensor: int) -> bool:
        return self.network.tensors[tensor].channels >= len(self.cluster.devices)

    def joined(self, layer: Layer, position: int) -> Split:
        """The channels of an input that lie in the parts of the output."""
        start, count = layer.joins[position], self.network.tensors[layer.inputs[position]].channels
        ends = ([min(max(at - start, 0), count) for at in r] for r in self.channels(layer.output).ranges)
        return Split("P", tuple((first, past) for first, past in ends))

    def rows(self, tensor: int, factor: float = 1.0) -> Split:
        """Rows by shares. `factor`: factor of the source's share."""
        shares = [s * factor if k == self.cluster.source else s for k, s in enumerate(self.cluster.shares)]
        return Split("F", split(self.network.tensors[tensor].rows, [s / sum(shares) for s in shares]))

    @cached_property
    def source_row_factors(self) -> tuple[float, ...]:
        """Factors of the source's share of rows: 1, and also 0 if the inputs leave it little RAM."""
        inputs = sum(self.network.tensors[t].bytes for t in self.network.inputs)
        room = self.limits.ram[self.cluster.source] if self.limits.ram else float("inf")
        others = any(s for k, s in enumerate(self.cluster.shares) if k != self.cluster.source)
        return (1.0,) if not others or self.limits.thesis_arena or inputs < CROWDED * room else (1.0, 0.0)

    @cached_property
    def row_forms(self) -> list[tuple[Split, ...]]:
        """Splits of each tensor by rows: by shares, and the rows that up to `recompute` later layers need of it."""
        splits: list[tuple[Split, ...]] = [() for _ in self.network.tensors]
        for tensor in reversed(range(len(self.network.tensors))):
            enough = self.network.tensors[tensor].rows >= len(self.cluster.devices)
            forms = [self.rows(tensor, factor) for factor in self.source_row_factors] if enough else []
            current, ahead = tensor, list[int]()
            while len(ahead) < self.recompute and len(self.readers[current]) == 1:
                number = self.readers[current][0]
                if number == len(self.network.layers) or self.network.layers[number].window is None:
                    break
                ahead.append(number)
                current = self.network.layers[number].output
                if self.network.tensors[current].rows >= len(self.cluster.devices):
                    forms += [
                        self._back(self.rows(current, factor), ahead, tensor) for factor in self.source_row_factors
                    ]
            splits[tensor] = tuple(dict.fromkeys(forms))
        return splits

    def _back(self, form: Split, run: Sequence[int], tensor: int) -> Split:
        ranges = form.ranges
        for position, number in reversed(list(enumerate(run))):
            start = tensor if position == 0 else self.network.layers[run[position - 1]].output
            ranges = self.needed(self.network.layers[number], ranges, start)
        return Split("F", ranges)

    def needed(self, layer: Layer, ranges: Ranges, tensor: int) -> Ranges:
        assert layer.window is not None
        rows = self.network.tensors[tensor].rows
        return tuple(layer.window.needed(first, past, rows) for first, past in ranges)

    @cached_property
    def others(self) -> tuple[int, ...]:
        """Devices that may run layers alone, besides the source."""
        every = range(len(self.cluster.devices)) if self.stages else range(0)
        return tuple(k for k in every if k != self.cluster.source)

    def at(self, tensor: int, device: int) -> Split:
        return whole_on(self.network, self.cluster, tensor, device)

    def also_at(self, tensor: int, form: Split, device: int) -> Split | None:
        """The form of a tensor that some devices have whole, once one more has it; None: there is no such form."""
        rows, every = self.network.tensors[tensor].rows, range(len(self.cluster.devices))
        have = {k for k in every if form.ranges[k] == (0, rows)} if form.letter == "F" else {self.cluster.source}
        if form.ring or form.letter not in "SF" or any(r != (0, 0) for k, r in enumerate(form.ranges) if k not in have):
            return None
        return Split("F", tuple((0, rows) if k in have or k == device else (0, 0) for k in every))


def whole_on(network: Network, cluster: Cluster, tensor: int, device: int) -> Split:
    """The form of a tensor that one device has."""
    rows = network.tensors[tensor].rows
    if device == cluster.source:
        return SOURCE
    return Split("F", tuple((0, rows) if k == device else (0, 0) for k in range(len(cluster.devices))))


# Clusters from YAML: `devices: [{name, target, flash, ram, share}]`, `source: NAME`, `medium: {kind, bits_per_s}`.
#
# `flash_holds: products`: the flash of a device holds generated code, too.

KINDS = ("star", "bus", "switch")
OBJECTIVES = ("traffic", "latency", "memory")
HOLDS = ("weights", "products")  # contents of the flash of a device: weights alone, or code as well
MAX_DEVICES = 16
MAX_SHARE = 1e9  # sums of shares stay numbers
FASTEST, SLOWEST = 1e15, 1e-3  # of rates, clocks and speeds: times stay numbers
MAX_MESSAGE_US = 1e12  # microseconds of a message
MIN_WAIT = 0.001  # milliseconds: generated code counts whole microseconds
INSTRUCTIONS = 3.0  # of a multiply-accumulate, before kernels are chosen


def _bytes(node: Any) -> int:
    """A size, with or without a unit."""
    try:
        return parse_size("", node.value if isinstance(node.value, str) else "a list")
    except EdgebuildError as error:
        first = error.diagnostics[0]
        raise wrong(node, first.text.partition(": ")[2], *first.hints) from None


def _name(node: Any) -> str:
    """A name that a line of a report, and a comment, can show."""
    name = read_text(node)
    if not name or not name.isprintable():
        raise wrong(node, f"a device is named {name!r}", "names have at least one character, all of them printable")
    return name


def _target(node: Any) -> str:
    """A target that ships, or a file with one."""
    name = read_text(node)
    try:
        load_target(name)
    except EdgebuildError as error:
        first = error.diagnostics[0]
        if first.line:  # of the target's own file
            raise
        raise wrong(node, first.text + (f": {name}" if first.file else ""), *first.hints) from None
    return name


def _devices(node: Any) -> tuple[DeviceFacts, ...]:
    """The devices, whose names differ."""
    items = node.value if node.id == "sequence" else None
    if items is None:
        raise wrong(node, "expected a list of devices")
    if not 1 <= len(items) <= MAX_DEVICES:
        raise wrong(node, f"{len(items)} devices; a cluster has 1 to {MAX_DEVICES}")
    devices = list[DeviceFacts]()
    for item in items:
        devices.append(read_node(DeviceFacts, item))
        if any(devices[-1].name == before.name for before in devices[:-1]):
            raise wrong(item, f"two devices are named '{devices[-1].name}'")
    return tuple(devices)


def _with_node(node: Any) -> tuple[str, Any]:
    """A word and its place in the file."""
    return read_text(node), node


@dataclass(frozen=True)
class DeviceFacts:
    """A device as the file describes it. `share`: its part of split work; where none has one, flash decides.

    `clock_hz`: of its core, default that of the target; `macs_per_us`: for plans, default from the clock.
    """

    name: Annotated[str, _name]
    target: Annotated[str, _target]
    flash: Annotated[int, _bytes]
    ram: Annotated[int, _bytes]
    share: float | None = None
    macs_per_us: float | None = None
    clock_hz: float | None = None

    def __post_init__(self) -> None:
        if any(x is not None and not x > 0 for x in (self.share, self.macs_per_us, self.clock_hz)):
            raise ValueError(f"device '{self.name}': share, macs_per_us and clock_hz are above 0")
        if any(x is not None and not SLOWEST <= x <= FASTEST for x in (self.macs_per_us, self.clock_hz)):
            text = f"macs_per_us and clock_hz are from {SLOWEST:g} to {FASTEST:g}"
            raise ValueError(f"device '{self.name}': {text}")
        if self.share is not None and self.share > MAX_SHARE:
            raise ValueError(f"device '{self.name}': share is at most {MAX_SHARE:g}")


@dataclass(frozen=True)
class MediumFacts:
    """The medium that joins the devices. `message_us`: time of each message besides its bytes."""

    kind: Annotated[str, one_of(KINDS)]
    bits_per_s: float
    message_us: float = 0.0
    mtu: int = 0
    broadcast: bool = False
    timeout_ms: float = Medium.timeout_ms

    def __post_init__(self) -> None:
        if self.kind == "star" and self.broadcast:
            raise ValueError("in a star each message reaches one device; leave broadcast out, or say kind: bus")
        if self.bits_per_s <= 0 or self.message_us < 0 or self.mtu < 0 or not MIN_WAIT <= self.timeout_ms < 2e6:
            text = "a medium has a rate above 0, and no negative times or sizes; timeout_ms is from 0.001 to 2e6"
            raise ValueError(text)
        if not SLOWEST <= self.bits_per_s <= FASTEST or self.message_us > MAX_MESSAGE_US:
            text = f"bits_per_s is from {SLOWEST:g} to {FASTEST:g}, message_us at most {MAX_MESSAGE_US:g}"
            raise ValueError(text)


@dataclass(frozen=True)
class ClusterFacts:
    """A cluster as the file describes it."""

    devices: Annotated[tuple[DeviceFacts, ...], _devices]
    source: Annotated[tuple[str, Any], _with_node]
    medium: MediumFacts
    objective: Annotated[str, one_of(OBJECTIVES)] = Cluster.objective
    flash_holds: Annotated[str, one_of(HOLDS)] = HOLDS[0]


def read_cluster(
    path: Path,
    count: int | None = None,
    clock_of: Callable[[str], float] = lambda target: Device.hz,
    instructions_of: Callable[[str], float] = lambda target: INSTRUCTIONS,
) -> tuple[Cluster, bool]:
    """The cluster, of its first `count` devices if that is given, and whether the file says the shares.

    `clock_of`: the clock of a target, for devices that state none; `instructions_of`: those of a multiply-accumulate.

    Raises EdgebuildError for an invalid file: more than 16 devices, equal names, a source that is not among them.
    """
    facts = read_facts(ClusterFacts, path)
    names, (source, node) = [d.name for d in facts.devices], facts.source
    if source not in names:
        text = f"source '{source}' is no device{did_you_mean(source, names)}"
        raise wrong(node, text, f"devices: {', '.join(names)}")
    if count is not None and not names.index(source) < count <= len(names):
        hint = f"the file has {len(names)} devices, and the source must be among those that are used"
        raise fail(f"option 'devices': {count}", file=str(path), hints=[hint])
    stated = any(d.share is not None for d in facts.devices)
    clocks = [d.clock_hz or clock_of(d.target) for d in facts.devices]
    speeds = [
        d.macs_per_us or hz / instructions_of(d.target) / 1e6 for d, hz in zip(facts.devices, clocks, strict=True)
    ]
    devices = tuple(
        Device(d.name, d.target, d.flash, d.ram, (d.share or 1.0) if stated else float(d.flash), speed, hz)
        for d, speed, hz in zip(facts.devices, speeds, clocks, strict=True)
    )[:count]
    if not any(d.share for d in devices):  # without shares, flash decides
        raise fail("no device has flash", file=str(path), hints=["give at least one device more than 0 bytes"])
    m = facts.medium
    medium = Medium(m.kind, m.bits_per_s, m.message_us, m.mtu, m.broadcast, m.timeout_ms)
    with_code = facts.flash_holds == "products"
    return Cluster(devices, names.index(source), medium, facts.objective, with_code), stated
