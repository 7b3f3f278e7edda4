"""Clusters from YAML: `devices: [{name, target, flash, ram, share}]`, `source: NAME`, `medium: {kind, bits_per_s}`.

`flash_holds: products`: the flash of a device holds generated code, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from ....base.errors import did_you_mean, fail
from ....base.facts import read_facts
from ....base.options import parse_size
from .problem import Cluster, Device, Medium

KINDS = ("star", "bus", "switch")
OBJECTIVES = ("traffic", "latency", "memory")
HOLDS = ("weights", "products")  # what the flash of a device is for: code, too, or not
MOST_DEVICES = 16
INSTRUCTIONS = 3.0  # of a multiply-accumulate, before kernels are known


def _as_written(node: Any) -> str:
    """A size, with or without a unit."""
    return node.value if isinstance(node.value, str) else ""


@dataclass(frozen=True)
class DeviceFacts:
    """A device as the file describes it. `share`: its part of split work; where none has one, flash decides.

    `clock_hz`: of its core, default that of the target; `macs_per_us`: for plans, default from the clock.
    """

    name: str
    target: str
    flash: Annotated[str, _as_written]
    ram: Annotated[str, _as_written]
    share: float | None = None
    macs_per_us: float | None = None
    clock_hz: float | None = None

    def __post_init__(self) -> None:
        if any(x is not None and not x > 0 for x in (self.share, self.macs_per_us, self.clock_hz)):
            raise ValueError(f"device '{self.name}': share, macs_per_us and clock_hz are above 0")


@dataclass(frozen=True)
class MediumFacts:
    """The medium that joins the devices. `message_us`: time of each message besides its bytes."""

    kind: str
    bits_per_s: float
    message_us: float = 0.0
    mtu: int = 0
    broadcast: bool = False
    timeout_ms: float = Medium.timeout_ms

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(
                f"medium '{self.kind}' is not known{did_you_mean(self.kind, KINDS)}; known: star, bus, switch"
            )
        if self.kind == "star" and self.broadcast:
            raise ValueError("in a star each message reaches one device; leave broadcast out, or say kind: bus")
        if self.bits_per_s <= 0 or self.message_us < 0 or self.mtu < 0 or not 0 < self.timeout_ms < 2e6:
            raise ValueError("a medium has a rate above 0, and no negative times or sizes; timeout_ms is below 2e6")


@dataclass(frozen=True)
class ClusterFacts:
    """The file."""

    devices: tuple[DeviceFacts, ...]
    source: str
    medium: MediumFacts
    objective: str = Cluster.objective
    flash_holds: str = HOLDS[0]

    def __post_init__(self) -> None:
        if self.flash_holds not in HOLDS:
            near = did_you_mean(self.flash_holds, HOLDS)
            raise ValueError(f"flash_holds '{self.flash_holds}' is not known{near}; known: {', '.join(HOLDS)}")
        if self.objective not in OBJECTIVES:
            near = did_you_mean(self.objective, OBJECTIVES)
            raise ValueError(f"objective '{self.objective}' is not known{near}; known: {', '.join(OBJECTIVES)}")


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
    names = [d.name for d in facts.devices]
    twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
    if twice is not None:
        raise fail(f"two devices are named '{twice}'", file=str(path))
    if not 1 <= len(names) <= MOST_DEVICES:
        raise fail(f"{len(names)} devices; a cluster has 1 to {MOST_DEVICES}", file=str(path))
    if facts.source not in names:
        text = f"source '{facts.source}' is no device{did_you_mean(facts.source, names)}"
        raise fail(text, file=str(path), hints=[f"devices: {', '.join(names)}"])
    if count is not None and not names.index(facts.source) < count <= len(names):
        hint = f"the file has {len(names)} devices, and the source must be among those that are used"
        raise fail(f"option 'devices': {count}", file=str(path), hints=[hint])
    sizes = [(parse_size(f"flash of {d.name}", d.flash), parse_size(f"ram of {d.name}", d.ram)) for d in facts.devices]
    stated = any(d.share is not None for d in facts.devices)
    clocks = [d.clock_hz or clock_of(d.target) for d in facts.devices]
    speeds = [
        d.macs_per_us or hz / instructions_of(d.target) / 1e6 for d, hz in zip(facts.devices, clocks, strict=True)
    ]
    devices = tuple(
        Device(d.name, d.target, flash, ram, (d.share or 1.0) if stated else float(flash), speed, hz)
        for d, (flash, ram), speed, hz in zip(facts.devices, sizes, speeds, clocks, strict=True)
    )[:count]
    m = facts.medium
    medium = Medium(m.kind, m.bits_per_s, m.message_us, m.mtu, m.broadcast, m.timeout_ms)
    with_code = facts.flash_holds == "products"
    return Cluster(devices, names.index(facts.source), medium, facts.objective, with_code), stated
