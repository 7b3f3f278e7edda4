"""Channels that stay or go together: equivalence classes of (tensor, index of its last dimension)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ..ir import Array


class Ties:
    """Disjoint sets of channels (union-find). `sizes`: the number of channels of every tensor."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        starts = np.cumsum([0, *sizes.values()])
        self._start = dict(zip(sizes, starts.tolist(), strict=False))
        self._parent = list(range(int(starts[-1])))
        self._pinned: set[int] = set()

    def tie(self, a: str, in_a: Array, b: str, in_b: Array) -> None:
        """Channel in_a[i] of `a` and in_b[i] of `b` stay or go together."""
        for i, j in zip((in_a + self._start[a]).tolist(), (in_b + self._start[b]).tolist(), strict=True):
            self._parent[self._root(i)] = self._root(j)

    def tie_repeated(self, a: str, b: str) -> None:
        """The same elements in the same order, last dimensions of two sizes: the smaller repeats in the larger."""
        few, many = sorted((self.sizes[a], self.sizes[b]))
        if many % few:
            self.pin(a)
            self.pin(b)
            return
        small, large = (a, b) if self.sizes[a] == few else (b, a)
        channels = np.arange(many)
        self.tie(small, channels % few, large, channels)

    def pin(self, name: str, channels: Iterable[int] | None = None) -> None:
        """These channels stay, by default all; and so do those that are or will be tied to them."""
        every = range(self.sizes[name]) if channels is None else channels
        self._pinned |= {self._start[name] + int(c) for c in every}

    def kept(self, block: int) -> dict[str, Array]:
        """The channels of every tensor that stay, ascending: at least one, and such a number that `block` divides it.

        A tensor whose number is neither was given back more by a neighbour that it is tied to.
        """
        roots = np.array([self._root(i) for i in range(len(self._parent))])
        stays = np.isin(roots, roots[list(self._pinned)])
        for name, size in self.sizes.items():
            own = slice(self._start[name], self._start[name] + size)
            count = int(stays[own].sum())
            missing = min(size, -(-max(count, 1) // block) * block) - count
            stays |= np.isin(roots, roots[own][~stays[own]][:missing])
        return {name: np.flatnonzero(stays[at : at + self.sizes[name]]) for name, at in self._start.items()}

    def _root(self, i: int) -> int:
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i
