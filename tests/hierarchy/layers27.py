"""Layers of the Turin thesis: cycles by equation 4.1 for the whole layer, and the best total that is known."""

from __future__ import annotations

from pathlib import Path

from edgebuild.base.target import load_target
from edgebuild.model.plan.dma.levels import engine_hardware, rooms
from edgebuild.model.plan.hierarchy.nest import TiledLayer, layer_of, read_layers

FILE = Path(__file__).parent / "layers27.yaml"
LIMITS = {"A": 24 << 10, "B": 64 << 10, "C": 128 << 10, "G1": 256 << 10, "G2": 24 << 10}  # bytes of activations
KNOWN = {
    "A.L1": (13632, 17956),
    "A.L2": (13632, 17956),
    "A.L3": (18176, 32460),
    "A.L4": (27264, 46278),
    "A.L5": (18176, 32460),
    "A.L6": (4544, 6098),
    "A.L7": (27264, 46278),
    "A.L8": (40896, 69350),
    "A.L9": (9088, 16812),
    "A.L10": (18176, 35262),
    "A.L11": (5712, 12668),
    "A.L12": (4760, 10887),
    "A.L13": (7890, 24360),
    "B.L1": (23800, 34884),
    "B.L2": (30464, 47750),
    "B.L3": (10600, 18190),
    "C.L1": (59648, 68784),
    "C.L2": (44736, 59288),
    "C.L3": (44736, 59288),
    "C.L4": (46600, 63552),
    "G1.L1": (246528, 257234),
    "G1.L2": (55040, 63698),
    "G1.L3": (150272, 159442),
    "G1.L4": (87808, 96978),
    "G1.L5": (573120, 587986),
    "G2.L1": (8416, 10648),
    "G2.L2": (13760, 30470),
}


def layers() -> list[tuple[TiledLayer, dict[str, int]]]:
    """The layers, and the bytes that each may use."""
    target = load_target("diana")
    engine = target.engines[0]
    hardware, room = engine_hardware(target, engine), rooms(target, engine)
    rows = read_layers(FILE)
    return [(layer_of(r, hardware), {**room, "activations": LIMITS[r.name.partition(".")[0]]}) for r in rows]
