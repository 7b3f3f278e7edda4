"""The operators that users may have in a model file, by format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .formats import formats
from .ops import SPECS
from .ops.base import Spec


def supported(names: Sequence[str] = ()) -> str:
    """The operators of these formats, or of all, under the names of their files, those with the same limits together.

    Kinds of operators that only passes make are not among them.
    """
    ordered = sorted(formats(), reverse=True)
    return "\n".join(line for name in names or ordered for line in _lines(name))


def limits_of(spec: Spec) -> list[str]:
    """The limits of a kind, in words for users."""
    return [" ".join((limit.__doc__ or "").split()) for limit in spec.limits]


def _lines(name: str) -> Iterator[str]:
    operators = formats()[name].operators()
    yield f"{operators.title}:"
    listed = [(names, spec) for kind, spec in SPECS.items() if (names := operators.names(kind))]
    for names, spec in sorted(listed, key=lambda row: row[0][0]):
        yield f"  {', '.join(names)}"
        yield from (f"    - {limit}" for limit in limits_of(spec))
    for domain, others in operators.others.items():
        if domain:
            yield f"{domain}:"
        yield f"  {', '.join(others)}"
    if operators.note:
        yield f"  {operators.note}"
