"""Facts of targets that a cluster needs: the clock of the core, and the order of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path

from ...base.errors import fail
from ...base.request import ModelRequest
from ...base.target import Target, load_target
from ...clock.configs import clock_plan
from ...clock.emit import target_tree
from .. import ops
from ..ir import Graph, Op
from ..kernels import kernel_of
from ..kernels.unstated import PER_TURN
from ..ops.base import Form, is_float
from ..plan.distribute.forms import Cluster, Device
from ..plan.search import arena_memories
from ..plan.section import Section

# Instructions of steps whose kernels state none, or state those of integers, as simulators count them.
#
# Without an FPU a product takes a call, which is short where a factor is 0: behind a ReLU layers take half as long as
# at the input. PER_MAC_* are means of the layers of two float networks, PER_ELEMENT of a network with many Concats.
# Both come from `edgebuild verify MODEL --target T --layers`: paper_mw and paper_cif, and swiftnet_like of tests/zoo.

HARDWARE = frozenset(["fpu", "fpu64", "f"])  # features of cores that multiply floats
WIDE = 16  # channels from which on a convolution spends its time in its innermost loop
PER_MAC_FPU = {"conv2d": 6.1, "dense": 6.0, "depthwise_conv2d": 15.3}
NARROW_FPU = 8.8  # of a convolution of few channels: from 5 to 13, as the compiler unrolls it
PER_MAC_SOFT = {
    "rv32": {"conv2d": 175.0, "dense": 142.0, "depthwise_conv2d": 158.0},
    "armv6-m": {"conv2d": 147.0, "dense": 110.0, "depthwise_conv2d": 162.0},
    "": {"conv2d": 80.0, "dense": 57.0, "depthwise_conv2d": 84.0},
}
# Of float, over what is stated: of pools, and of means.
OVER_FPU = {"max_pool2d": 1.6, "avg_pool2d": 1.6, "mean": 1.2}
OVER_SOFT = {
    "rv32": {"max_pool2d": 6.3, "avg_pool2d": 6.3, "mean": 15.0},
    "armv6-m": {"max_pool2d": 14.0, "avg_pool2d": 14.0, "mean": 14.0},
    "": {"max_pool2d": 10.5, "avg_pool2d": 10.5, "mean": 11.3},
}
GATHERED = 0.8  # of each byte that is looked up; what is stated is for each place
REQUANTIZED = 0.66  # of what is stated, with long products in one instruction
PER_ELEMENT = {"concat": 0.7, "transpose": 3.0}
PER_ELEMENT_RV32 = {"concat": 2.2, "transpose": 3.7}


def counted(section: Section, graph: Graph) -> float:
    """Instructions of a step; those of the plan where its kernels state them."""
    total = section.instructions
    for op, form, calls in zip(section.ops, section.forms, section.calls_of, strict=True):
        stated = kernel_of(op, graph, form).estimate
        turns = prod(ops.nest(op, graph).extents.values())
        if not stated:
            total += (_per_turn(op, graph, form) - PER_TURN) * turns
        else:
            total += (_factor(op, graph, form) - 1) * stated * calls
        total += GATHERED * graph.result(op).bytes if op.kind == "gather" else 0.0
    return total


def _family(form: Form) -> str:
    return _family_of(form.core)


def _family_of(core: frozenset[str]) -> str:
    return next((f for f in PER_MAC_SOFT if f and any(word.startswith(f) for word in core)), "")


def _factor(op: Op, graph: Graph, form: Form) -> float:
    """Ratio of counted instructions to those that a kernel states."""
    if is_float(graph.result(op)):
        return (OVER_FPU if form.core & HARDWARE else OVER_SOFT[_family(form)]).get(op.kind, 1.0)
    return REQUANTIZED if op.kind == "requantize" and _family(form) != "armv6-m" else 1.0


def _per_turn(op: Op, graph: Graph, form: Form) -> float:
    x = graph.operands(op)[1 if op.kind == "partial_sum" else 0]
    if is_float(graph.result(op)) and ops.nest(op, graph).macs:
        kind = op.kind if op.kind != "partial_sum" else "conv2d" if len(x.shape) == 4 else "dense"
        if not form.core & HARDWARE:
            costs = PER_MAC_SOFT[_family(form)]
            return costs.get(kind, costs["dense"])
        return NARROW_FPU if kind == "conv2d" and x.shape[-1] < WIDE else PER_MAC_FPU.get(kind, PER_TURN)
    moved = PER_ELEMENT_RV32 if _family(form) == "rv32" else PER_ELEMENT
    return moved.get(op.kind, PER_TURN)


def per_mac_of_floats(core: frozenset[str]) -> float:
    """Instructions of a multiply-accumulate in float, before kernels are known."""
    if core & HARDWARE:
        return float(PER_TURN)
    return PER_MAC_SOFT[_family_of(core)]["conv2d"]


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
