"""Races between contexts: updates that an interrupt loses, in the generated code and in the source itself."""

from __future__ import annotations

from edgebuild.base.errors import Diagnostic
from edgebuild.driver.analysis.cdfg import Access, Cdfg
from edgebuild.driver.analysis.conflicts import Region
from edgebuild.driver.analysis.contexts import contexts, guarded, preempts
from edgebuild.driver.analysis.simplify import Facts
from edgebuild.driver.merge.merging import Merged
from edgebuild.driver.source.dialect import Dialect


def races(dialect: Dialect, cdfg: Cdfg, merged: Merged) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """(errors, warnings). An error: a register is read, changed and written while another context may write it too.

    A warning: the source does that itself, with one field.
    """
    errors: list[Diagnostic] = []
    warnings: list[Diagnostic] = []
    if not any(f.interrupt is not None for f in cdfg.functions.values()):
        return errors, warnings
    runs = contexts(cdfg)
    off = {name: guarded(f) for name, f in cdfg.functions.items()}
    writes = [
        (name, r) for name, r in merged.all() if r.kind == "w" and not _meant(Facts(dialect, merged.conflicts.refs), r)
    ]
    for name, region in writes:
        a = region.place
        if a.node in off[name]:
            continue
        changes = next((x for x in region.accesses if x.site.form in ("compound", "step")), None)
        reads = merged.window(region).read or changes is not None
        for other, theirs in writes if reads else ():
            if not preempts(runs[other], runs[name]) or not _one_register(merged, region, theirs):
                continue
            mine = changes and any(x.field == changes.field for x in theirs.accesses)
            if not mine and not merged.keeps(region, theirs):
                continue  # it writes back nothing that the other one stores
            text = _text(merged, a, other, theirs)
            if mine and not merged.window(region).read:
                warnings.append(_at(a, f"{text}; bf_critical protects it, bf_shared says that it is meant", "warning"))
            else:
                key = merged.register(a).slot(merged.ref(a).leaf).key
                way = f"the overlay '{key}: {{shared: true}}'" if key else "bf_shared"
                errors.append(_at(a, f"{text}; bf_critical protects it, {way} says that it is meant", "error"))
            break
    return errors, warnings


def _meant(facts: Facts, region: Region) -> bool:
    return all(facts.of(a).shared for a in region.accesses)


def _one_register(merged: Merged, a: Region, b: Region) -> bool:
    x, y = a.place, b.place
    apart = x.chain.device and y.chain.device and x.chain.device != y.chain.device
    same = merged.ref(x).group == merged.ref(y).group and merged.register(x).name == merged.register(y).name
    return same and not apart


def _text(merged: Merged, a: Access, other: str, theirs: Region) -> str:
    name, line = merged.register(a).name, theirs.place.where.line
    return f"register '{name}' is changed here and by {other}() in an interrupt (line {line}): an update may be lost"


def _at(a: Access, text: str, severity: str) -> Diagnostic:
    return Diagnostic(text, a.where.file, a.where.line, a.where.column, severity=severity)
