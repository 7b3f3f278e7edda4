"""Transfers that bring a tensor from one form into another, and their cost on a medium."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .problem import ALL, Cluster, Form, Tensor, split


@dataclass(frozen=True)
class Transfer:
    """`bytes` from one device to others; more than one receiver only where the medium has broadcasts."""

    sender: int
    receivers: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Cost:
    """Payload bytes that the medium carries, and microseconds that it takes."""

    bytes: int = 0
    time_us: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.bytes + other.bytes, self.time_us + other.time_us)


def transfers(tensor: Tensor, have: Form, want: Form, cluster: Cluster, partial: int = 4) -> tuple[Transfer, ...]:
    """In order of sender and receiver. Partial sums (Z) go to the owners of what becomes of them."""
    if have in (want, ALL):
        return ()
    if have.letter != "Z":
        return tuple(_parts(tensor, have, want, cluster))
    return (
        _reduced_everywhere(tensor, cluster, partial) if want == ALL else tuple(_sums(tensor, want, cluster, partial))
    )


def _reduced_everywhere(tensor: Tensor, cluster: Cluster, partial: int) -> tuple[Transfer, ...]:
    """Reduce and scatter along channels, then gather everywhere."""
    between = Form("P", split(tensor.channels, cluster.shares))
    return (*_sums(tensor, between, cluster, partial), *_parts(tensor, between, ALL, cluster))


def _sums(tensor: Tensor, want: Form, cluster: Cluster, partial: int) -> Iterator[Transfer]:
    """Every device sends to each owner the partial sums of what that owns."""
    devices = range(len(cluster.devices))
    for sender in devices:
        for receiver in devices:
            count = _elements(tensor, want, receiver, cluster.source)
            if sender != receiver and count:
                yield Transfer(sender, (receiver,), count * partial)


def _elements(tensor: Tensor, form: Form, device: int, source: int) -> int:
    if form.letter == "S":
        return tensor.elements if device == source else 0
    first, past = form.ranges[device]
    return (past - first) * (tensor.row if form.letter == "F" else tensor.elements // tensor.channels)


def _parts(tensor: Tensor, have: Form, want: Form, cluster: Cluster) -> Iterator[Transfer]:
    devices = range(len(cluster.devices))
    owned = _owned(tensor, have, cluster)
    for sender in devices:
        rows, channels = owned[sender]
        if _area(rows) == 0 or _area(channels) == 0:
            continue
        missing = {d: _missing(tensor, have, want, d, cluster.source, rows, channels) for d in devices if d != sender}
        if want == ALL and cluster.medium.broadcast and any(missing.values()):
            yield Transfer(sender, tuple(missing), max(missing.values()))
        else:
            yield from (Transfer(sender, (d,), size) for d, size in missing.items() if size)


Range = tuple[int, int]


def _area(r: Range) -> int:
    return max(0, r[1] - r[0])


def _common(a: Range, b: Range) -> Range:
    return max(a[0], b[0]), min(a[1], b[1])


def _owned(tensor: Tensor, have: Form, cluster: Cluster) -> list[tuple[Range, Range]]:
    """Rows and channels of which each device is the one that sends them; rows that several have are the first one's."""
    every_row, every_channel, none = (0, tensor.rows), (0, tensor.channels), (0, 0)
    found, reached = [], 0
    for device in range(len(cluster.devices)):
        if have.letter == "S":
            found.append((every_row if device == cluster.source else none, every_channel))
        elif have.letter == "P":
            found.append((every_row, have.ranges[device]))
        else:
            first, past = have.ranges[device]
            mine = (max(first, reached), past)
            reached = max(reached, past)
            found.append((mine, every_channel))
    return found


def _missing(tensor: Tensor, have: Form, want: Form, device: int, source: int, rows: Range, channels: Range) -> int:
    """Bytes of these rows and channels that a device wants and has not got."""
    wanted_rows, wanted_channels = (0, tensor.rows), (0, tensor.channels)
    match want.letter:
        case "S" if device != source:
            return 0
        case "P":
            wanted_channels = want.ranges[device]
        case "F":
            wanted_rows = want.ranges[device]
    rows, channels = _common(rows, wanted_rows), _common(channels, wanted_channels)
    got = 0
    if have.letter == "F":
        got = _area(_common(rows, have.ranges[device]))
    count = (_area(rows) - got) * _area(channels) * (tensor.row // tensor.channels)
    return count * tensor.item


def cost(found: tuple[Transfer, ...], cluster: Cluster) -> Cost:
    """Bytes and time of transfers that are made one after the other, on a switch port by port."""
    medium, hub = cluster.medium, cluster.source
    hops = [2 if medium.kind == "star" and hub != t.sender and hub not in t.receivers else 1 for t in found]
    total = sum(t.bytes * hop for t, hop in zip(found, hops, strict=True))
    per_byte = 8e6 / medium.bits_per_s
    if medium.kind != "switch":
        return Cost(total, total * per_byte + sum(hops) * medium.message_us)
    ports: dict[tuple[int, str], tuple[int, int]] = {}
    for t in found:
        for port in ((t.sender, "out"), *((r, "in") for r in t.receivers)):
            size, count = ports.get(port, (0, 0))
            ports[port] = size + t.bytes, count + 1
    return Cost(total, max((s * per_byte + n * medium.message_us for s, n in ports.values()), default=0.0))
