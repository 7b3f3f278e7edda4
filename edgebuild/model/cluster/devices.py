"""Facts of targets that a cluster needs: the clock of the core, and the order of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from ...base.errors import fail
from ...base.request import ModelRequest
from ...base.target import Target, load_target
from ...clock.configs import clock_plan
from ...clock.emit import target_tree
from ..ir import Graph
from ..plan.distribute.forms import Cluster, Device
from ..plan.search import arena_memories
from .counted import per_mac_of_floats

# Instructions of a multiply-accumulate where the device runs no kernel yet, on the high side of those of whole networks
# (`./sconsw bench-kernels`); PLAIN: of other cores.
PER_MAC = {"mve": 0.3, "dsp": 1.3, "rv32": 2.6, "armv6-m": 4.5}
PLAIN = 3.0
BYTE, MESSAGE = 24.0, 1200.0  # instructions for each byte and message of both sides; see predict.py
BIG = frozenset(["-mbig-endian", "-EB", "-mbe32", "-mbe8"])  # of gcc and clang


@cache
def clock_of(name: str) -> float:
    """Instructions a second of a target: its fastest clock, or that of the board in the simulator; else 168 MHz."""
    target = load_target(name)
    if target.clocks:
        return float(max(c.sysclk_hz for c in clock_plan(target_tree(target)).configs))
    return float(target.runner.tick_hz if target.runner and target.runner.tick_hz else Device.hz)


@cache
def instructions_of(name: str, floats: bool = False) -> float:
    """Instructions of a multiply-accumulate in kernels for the core of a target; most figures are README.md's."""
    core = load_target(name).core
    if floats:
        return per_mac_of_floats(frozenset([*core.features, core.isa]))
    costs = [cost for word, cost in PER_MAC.items() if word in core.features or core.isa.startswith(word)]
    return min(costs, default=PLAIN)


def with_work(cluster: Cluster) -> Cluster:
    """The cluster whose medium says what messages cost the slowest device: two checksums, two heads."""
    each = 1e6 / min(d.hz for d in cluster.devices)
    return replace(cluster, medium=replace(cluster.medium, byte_work_us=BYTE * each, message_work_us=MESSAGE * each))


def within_target(device: Device, graph: Graph) -> Device:
    """The device with no more flash and RAM than its target has: beside stack and states, and for weights."""
    target = load_target(device.target)
    request = ModelRequest(Path(graph.file), device.name, device.target)
    ram = sum(m.capacity or 0 for m in arena_memories(graph, target, request))
    return replace(device, flash=min(device.flash, target.memory("weights").size), ram=min(device.ram, ram))


def limited(stated: Sequence[Device], used: Sequence[Device]) -> list[str]:
    """Lines on devices of which the cluster file says more than their targets have."""
    devices = []
    for s, d in zip(stated, used, strict=True):
        if s.ram > d.ram:
            devices.append(f"device '{d.name}': {d.target} has {d.ram} B of RAM beside stack and states, not {s.ram} B")
        if s.flash > d.flash:
            devices.append(f"device '{d.name}': {d.target} has {d.flash} B of flash, not {s.flash} B")
    return devices


def byte_order(target: Target) -> str:
    """`big` or `little`, as the flags of its compiler say."""
    return "big" if BIG.intersection(target.toolchain.cflags) else "little"


def check_byte_order(devices: Sequence[Device], file: str) -> None:
    """Raise EdgebuildError where devices cannot read each other's numbers."""
    orders = {d.name: byte_order(load_target(d.target)) for d in devices}
    big = [name for name in orders if orders[name] == "big"]
    if big and len(devices) > 1:
        little = [name for name in orders if name not in big]
        text = f"device '{big[0]}' is big endian" + (f", device '{little[0]}' little endian" if little else "")
        raise fail(text, file=file, hints=["messages are in little endian: use targets that are"])
