"""Decisions of a plan for a layer: the forms in which it reads and makes tensors, and what is sent before."""

from __future__ import annotations

from ....base.dataclass import dataclass
from .forms import ALL, Cluster, Network, Split
from .transfers import Cost


@dataclass(frozen=True)
class Conversion:
    """A tensor is brought from one form into another before a layer (or behind it, for partial sums)."""

    tensor: int
    have: Split
    want: Split


@dataclass(frozen=True)
class Decision:
    """How a layer runs: conversions of its inputs, the method, the forms in which it reads and makes its tensors."""

    layer: int
    method: str
    before: tuple[Conversion, ...]
    reads: tuple[Split, ...]
    makes: Split  # Z for a fan-in
    keeps: Split  # what the result is held in afterwards


@dataclass(frozen=True)
class ClusterPlan:
    """Decisions of all layers; `gather` brings the results to the source. No plan in the limits is below `bound`."""

    network: Network
    cluster: Cluster
    decisions: tuple[Decision, ...]
    gather: tuple[Conversion, ...]
    cost: Cost
    compute_us: float
    bound: float  # of the objective: bytes, or microseconds
    proved: bool


def has(have: Split, want: Split) -> bool:
    """Whether a tensor in one form can be read as in the other without a transfer."""
    if have.ring:
        have = have.plain
    if have in (want, ALL):
        return True
    return have.letter == want.letter == "F" and all(
        (a <= c and d <= b) or c >= d for (a, b), (c, d) in zip(have.ranges, want.ranges, strict=True)
    )
