"""Facts of targets that a cluster needs: the clock of the core, and the order of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ...base.errors import fail
from ...base.target import Target, load_target
from ...clock.configs import clock_plan
from ...clock.emit import target_tree
from ..plan.distribute.problem import Device

BIG = frozenset(["-mbig-endian", "-EB", "-mbe32", "-mbe8"])  # of gcc and clang


@cache
def clock_of(name: str) -> float:
    """Instructions a second of a target: its fastest clock, or that of the board in the simulator; else 168 MHz."""
    target = load_target(name)
    if target.clocks:
        return float(max(c.sysclk_hz for c in clock_plan(target_tree(target)).configs))
    return float(target.runner.tick_hz if target.runner and target.runner.tick_hz else Device.hz)


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
