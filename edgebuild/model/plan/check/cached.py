"""The part of `replay` for cached memories: what the core sees, and what is there.

The worst cache is assumed. It has all lines, so the core never sees what a DMA unit wrote until the lines are
invalidated. It writes nothing back until it is told to, but might do so at any time.
"""

from __future__ import annotations

import numpy as np

from ...ir import Array
from ..printed import CLEAN, CacheStep

STALE = -3


class BrokenPlan(Exception):
    """A plan that would compute something else than its graph. Always a bug of the planner."""


class CachedMemory:
    """A memory behind a cache. `view`: owners of bytes as the core sees them; `there`: as the DMA unit does."""

    def __init__(self, view: Array, line: int) -> None:
        self.view, self.line = view, line
        self.there, self.dirty = view.copy(), np.zeros(len(view), bool)

    def written(self, at: Array) -> None:
        """The core wrote these bytes."""
        self.dirty[at] = True

    def store(self, at: Array) -> None:
        """A DMA unit begins to write these bytes. Raises BrokenPlan where the cache may write back over them."""
        lines = np.unique(at // self.line)
        if any(self.dirty[n * self.line : (n + 1) * self.line].any() for n in lines):
            raise BrokenPlan("the DMA unit writes bytes whose lines the cache may write back")
        self.view[at] = STALE

    def keep(self, step: CacheStep) -> None:
        """Clean or invalidate all lines that a range touches. Raises BrokenPlan where invalidating loses something."""
        first = step.place.offset // self.line * self.line
        past = -(-(step.place.offset + step.bytes) // self.line) * self.line
        if step.kind == CLEAN:
            for at in range(first, past, self.line):
                if self.dirty[at : at + self.line].any():
                    self.there[at : at + self.line] = self.view[at : at + self.line]
        elif self.dirty[first:past].any():
            raise BrokenPlan(f"what the core wrote beside {step.what} is lost")
        else:
            self.view[first:past] = self.there[first:past]
        self.dirty[first:past] = False
