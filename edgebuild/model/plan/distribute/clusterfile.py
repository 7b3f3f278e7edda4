"""Clusters from YAML: `devices: [{name, target, flash, ram, share}]`, `source: NAME`, `medium: {kind, bits_per_s}`.

`flash_holds: products`: the flash of a device holds generated code, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from ....base.errors import EdgebuildError, did_you_mean, fail
from ....base.facts import one_of, read_facts, read_node, read_text, wrong
from ....base.options import parse_size
from ....base.target import load_target
from .forms import Cluster, Device, Medium

KINDS = ("star", "bus", "switch")
OBJECTIVES = ("traffic", "latency", "memory")
HOLDS = ("weights", "products")  # what the flash of a device is for: code, too, or not
MOST_DEVICES = 16
MOST_SHARE = 1e9  # sums of shares stay numbers
FASTEST, SLOWEST = 1e15, 1e-3  # of rates, clocks and speeds: times stay numbers
LONGEST = 1e12  # microseconds of a message
LEAST_WAIT = 0.001  # milliseconds: generated code counts whole microseconds
INSTRUCTIONS = 3.0  # of a multiply-accumulate, before kernels are known


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
    if not 1 <= len(items) <= MOST_DEVICES:
        raise wrong(node, f"{len(items)} devices; a cluster has 1 to {MOST_DEVICES}")
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
        if self.share is not None and self.share > MOST_SHARE:
            raise ValueError(f"device '{self.name}': share is at most {MOST_SHARE:g}")


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
        if self.bits_per_s <= 0 or self.message_us < 0 or self.mtu < 0 or not LEAST_WAIT <= self.timeout_ms < 2e6:
            text = "a medium has a rate above 0, and no negative times or sizes; timeout_ms is from 0.001 to 2e6"
            raise ValueError(text)
        if not SLOWEST <= self.bits_per_s <= FASTEST or self.message_us > LONGEST:
            text = f"bits_per_s is from {SLOWEST:g} to {FASTEST:g}, message_us at most {LONGEST:g}"
            raise ValueError(text)


@dataclass(frozen=True)
class ClusterFacts:
    """The file."""

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

    Raises EdgebuildError for what is wrong in the file: more than 16 devices, names twice, a source that is none.
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
