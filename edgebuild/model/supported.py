"""The supported operators of model files, by format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .formats import exported
from .formats.format import Operators
from .ops import SPECS
from .ops.base import Spec


def supported(names: Sequence[str] = ()) -> str:
    """Text that lists the operators of these formats, or of all, by their names in files, with their limits.

    Kinds of ops that only passes create are left out.
    """
    ordered = sorted(exported(), reverse=True)
    return "\n".join(line for name in names or ordered for line in _lines(name))


def limits_of(spec: Spec) -> list[str]:
    """The limits of a kind as sentences for users: the docstrings of its checks."""
    return [" ".join((limit.__doc__ or "").split()) for limit in spec.limits]


def as_json(names: Sequence[str] = ()) -> dict[str, Any]:
    """By format: kinds of ops with names in files and limits; by domain, operators that are rewritten to others."""
    return {
        name: {
            "operators": [{"kind": spec.kind, "names": own, "limits": limits_of(spec)} for own, spec in _listed(name)],
            "read_as_others": {domain: list(others) for domain, others in _operators(name).others.items()},
        }
        for name in names or sorted(exported(), reverse=True)
    }


def _operators(name: str) -> Operators:
    list_operators = exported()[name].operators
    assert list_operators is not None
    return list_operators()


def _listed(name: str) -> list[tuple[list[str], Spec]]:
    """Each kind's names in files, with its spec, sorted by the first name."""
    operators = _operators(name)
    listed = [(names, spec) for kind, spec in SPECS.items() if (names := operators.names(kind))]
    return sorted(listed, key=lambda row: row[0][0])


def _lines(name: str) -> Iterator[str]:
    operators = _operators(name)
    yield f"{operators.title}:"
    for names, spec in _listed(name):
        yield f"  {', '.join(names)}"
        yield from (f"    - {limit}" for limit in limits_of(spec))
    for domain, others in operators.others.items():
        if domain:
            yield f"{domain}:"
        yield f"  {', '.join(others)}"
    if operators.note:
        yield f"  {operators.note}"
