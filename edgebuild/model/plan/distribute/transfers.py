"""Transfers that bring a tensor from one form into another, and their cost on a medium."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ....base.dataclass import dataclass
from .forms import ALL, Cluster, Medium, Sizes, Split, split

Range = tuple[int, int]


@dataclass(frozen=True)
class Transfer:
    """A block of a tensor from one device to others; more than one receiver only where the medium has broadcasts.

    `sums`: what is sent are partial sums, which the receiver adds to its own.
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
    """In order of sender and receiver. Partial sums (Z) go to the owners of what becomes of them."""
    if have in (want, ALL):
        return ()
    if have.letter != "Z":
        return tuple(_parts(tensor, have, want, cluster))
    return (
        _reduced_everywhere(tensor, cluster, partial) if want == ALL else tuple(_sums(tensor, want, cluster, partial))
    )


def _reduced_everywhere(tensor: Sizes, cluster: Cluster, partial: int) -> tuple[Transfer, ...]:
    """Reduce and scatter along channels, then gather everywhere."""
    between = Split("P", split(tensor.channels, cluster.shares))
    return (*_sums(tensor, between, cluster, partial), *_parts(tensor, between, ALL, cluster))


def _sums(tensor: Sizes, want: Split, cluster: Cluster, partial: int) -> Iterator[Transfer]:
    """Every device sends to each owner the partial sums of what that owns."""
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
    """Rows and channels of which each device is the one that sends them; rows that several have are the first one's."""
    every_row, every_channel, none = (0, tensor.rows), (0, tensor.channels), (0, 0)
    owned, reached = [], 0
    for device in range(len(cluster.devices)):
        if have.letter == "S":
            owned.append((every_row if device == cluster.source else none, every_channel))
        elif have.letter == "P":
            owned.append((every_row, have.ranges[device]))
        else:
            first, past = have.ranges[device]
            mine = (max(first, reached), past)
            reached = max(reached, past)
            owned.append((mine, every_channel))
    return owned


def _missing(
    tensor: Sizes, have: Split, want: Split, device: int, source: int, rows: Range, channels: Range
) -> tuple[int, Range, Range]:
    """Bytes, rows and channels of this block that a device wants and has not got: it may have the last rows of it."""
    wanted_rows, wanted_channels = block(tensor, want, device, source)
    rows, channels = _common(rows, wanted_rows), _common(channels, wanted_channels)
    if have.letter == "F" and _area(got := _common(rows, have.ranges[device])):
        rows = (rows[0], got[0])
    count = _area(rows) * _area(channels) * (tensor.row // tensor.channels)
    return count * tensor.item, rows, channels


def routed(transfers: Iterable[Transfer], cluster: Cluster) -> Iterator[Transfer]:
    """The same where the hub of a star forwards what is not for it, hop by hop."""
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
    """Transmissions that so many bytes take."""
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
