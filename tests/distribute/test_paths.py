"""Shortest paths under several constraints, against all paths of random layered graphs."""

from __future__ import annotations

import random
from itertools import pairwise, product

import pytest

from edgebuild.model.plan.distribute.joint import Arc, Constraint, shortest

Layers = list[list[Arc]]


def layered(seed: int, alone: int = 1) -> tuple[Layers, list[Constraint]]:
    """Up to five layers of at most three nodes, with parallel arcs; flash limits of two to five unequal devices.

    `alone`: of so many of them an arc may fill one alone.
    """
    draw = random.Random(seed)
    sizes = [1, *(draw.randint(1, 3) for _ in range(draw.randint(1, 4))), 1]
    layers: Layers = []
    for before, after in pairwise(sizes):
        pairs = [p for p in product(range(before), range(after)) for _ in range(draw.randint(1, 3))]
        layers.append(
            [Arc(t, h, *(float(draw.randint(0, 9)) for _ in range(3)), None, draw.randrange(alone)) for t, h in pairs]
        )
        draw.shuffle(layers[-1])
    shares = [draw.uniform(0.1, 2) for _ in range(draw.randint(2, 5))]
    parts = [s / sum(shares) for s in shares]
    limits = [draw.uniform(4, 24) for _ in parts]
    return layers, [Constraint(k, s, w) for k, (s, w) in enumerate(zip(parts, limits, strict=True))]


def least(layers: Layers, constraints: list[Constraint]) -> float | None:
    paths: list[tuple[int, tuple[Arc, ...]]] = [(0, ())]
    for arcs in layers:
        paths = [(a.head, (*path, a)) for node, path in paths for a in arcs if a.tail == node]
    kept = [p for _, p in paths if all(sum(c.use(a) for a in p) <= c.limit + 1e-6 for c in constraints)]
    return min((sum(a.cost for a in p) for p in kept), default=None)


@pytest.mark.parametrize("alone", [1, 2, 5])
@pytest.mark.parametrize("block", range(4))
def test_unequal_devices_take_the_shortest_path_of_all(block: int, alone: int) -> None:
    reachable = 0
    for seed in range(block * 50, block * 50 + 50):
        layers, constraints = layered(seed, alone)
        (path, bound), best = shortest(layers, constraints), least(layers, constraints)
        assert (path.cost if path else None) == best, seed
        if path is None:
            assert bound == float("inf")
            continue
        reachable += 1
        assert path.cost == bound
        assert [a.head for a in path.arcs[:-1]] == [a.tail for a in path.arcs[1:]]
        assert all(sum(c.use(a) for a in path.arcs) <= c.limit + 1e-6 for c in constraints)
        assert shortest(layers, constraints, path.cost)[0] is not None
        assert shortest(layers, constraints, path.cost - 0.5)[0] is None
    assert reachable > 10
