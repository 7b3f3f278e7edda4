"""Constants that a register does not take: SVD's `writeConstraint` says which values may be written."""

from __future__ import annotations

from collections.abc import Iterator

from edgebuild.base.errors import Diagnostic
from edgebuild.driver.analysis.cdfg import Access, Cdfg, Site
from edgebuild.driver.merge.merging import Merged
from edgebuild.driver.source.ir import Expression


def refused(cdfg: Cdfg, merged: Merged) -> list[Diagnostic]:
    """A warning for each constant that the source writes to a field which does not take it."""
    found = []
    for a, value in (w for f in cdfg.functions.values() for s in f.sites for w in _writes(s)):
        slot, number = merged.register(a).slot(merged.ref(a).leaf), value.constant
        if number is None or not slot.accepts:
            continue
        stored = number & ((1 << slot.width) - 1)
        if any(low <= stored <= high for low, high in slot.accepts):
            continue
        ranges = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in slot.accepts)
        text = f"'{slot.key}' takes {ranges} by its description, and {stored} is written"
        found.append(Diagnostic(text, a.where.file, a.where.line, a.where.column, severity="warning"))
    return found


def _writes(site: Site) -> Iterator[tuple[Access, Expression]]:
    if site.form == "assign" and site.write and site.right is not None:
        yield site.write, site.right
    if site.form in ("group", "make"):
        yield from ((a, v) for a, v in site.parts if v is not None)
