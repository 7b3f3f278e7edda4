"""Cycles of a core from the cost that plans are chosen by."""

from __future__ import annotations

from ...base.target import Target

# Cycles by `edgebuild verify --cycles`, as a multiple of the cost that plans are chosen by: the mean of kws, the
# autoencoder and person detection, of which each is within 12 %. No figure: no table of the core in hal/cycles.
PER_COST = {
    "cortex-m0": 1.30,
    "cortex-m0plus": 1.26,
    "cortex-m3": 1.65,
    "cortex-m4": 1.39,
    "cortex-m7": 0.77,
    "cortex-m33": 1.38,
    "cortex-m55": 1.10,
    "cortex-m85": 0.90,
}


def cycles_of(target: Target, cost: float) -> float | None:
    """Estimated cycles of work of some cost; None where the core has no figure."""
    per_cost = PER_COST.get(target.cycle_table)
    return cost * per_cost if per_cost is not None else None
