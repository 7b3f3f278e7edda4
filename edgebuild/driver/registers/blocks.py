"""The peripheral of a register description that a device of the source is."""

from __future__ import annotations

from pathlib import Path

from edgebuild.base.errors import did_you_mean
from edgebuild.driver.registers.overlay import Overlay
from edgebuild.driver.registers.regmap import Block, RegisterMap
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Device


def block_of(device: Device, map_: RegisterMap, overlay: Overlay, path: Path, text: bytes) -> Block:
    """The peripheral at the device's address, or the one that the overlay names for it.

    SystemRDL has addresses within a part, so there a name is enough, and so is a single block. `text` is that of the
    source. Raises EdgebuildError where the device is nothing of this, or lies elsewhere.
    """
    if device.name in overlay.devices:
        return next(b for b in map_.blocks if b.name == overlay.devices[device.name])
    here = [block for block in map_.blocks if block.base == device.address]
    for name in (device.name.upper(), device.group.upper()):  # several may share an address, as views of one part
        for block in here:
            if name in (block.name.upper(), block.name.upper().rstrip("0123456789")):
                return block
    if here:
        return here[0]
    named = (b for b in map_.blocks if device.name.lower() == b.name.lower())
    other = next(named, map_.blocks[0] if len(map_.blocks) == 1 else None)
    if other and path.suffix.lower() == ".rdl":
        return other
    if other:
        wrong = f"device '{device.name}' is at {device.address:#x}, and {other.name} of {path.name} at {other.base:#x}"
        hint = f"if it has the registers of {other.name}, the overlay says 'devices: {{{device.name}: {other.name}}}'"
        raise clang.wrong(device.where, text, wrong, f"  {hint}", length=len(device.name))
    near = did_you_mean(device.name.upper(), [b.name for b in map_.blocks])
    raise clang.wrong(
        device.where, text, f"device '{device.name}': {path.name} has nothing at {device.address:#x}{near}"
    )
