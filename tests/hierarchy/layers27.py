"""Layers of the Turin thesis: cycles by equation 4.1 for the whole layer, and the best total that is known."""

from __future__ import annotations

from edgebuild.build.papers import FOLDER
from edgebuild.build.papers import thesis_layers as layers

__all__ = ["BEST", "FILE", "layers"]
FILE = FOLDER / "layers27.yaml"
BEST = {
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
