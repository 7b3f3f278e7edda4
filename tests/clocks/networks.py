"""Networks of the kind that the literature measures for energy, as int8 graphs with random weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from edgebuild.build.papers import paper_network
from edgebuild.model.ir import Graph

PAPER_NAMES = {"MobileNetV2-like": "MBV2", "VWW-like": "VWW", "person-detection-like": "PD"}
NETWORKS: dict[str, Callable[[], Graph]] = {
    name: partial(paper_network, of_paper) for name, of_paper in PAPER_NAMES.items()
}
