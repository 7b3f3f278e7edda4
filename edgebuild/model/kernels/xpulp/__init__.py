"""Cores with the XpulpV2 instructions: CV32E40P (`corev`), RI5CY in GAP8 and PULP clusters (`gap8`)."""

from __future__ import annotations

from functools import partial

from ..micro import Function
from ..row import CONVOLUTION, DEPTHWISE, Row, of_sums
from . import convolution, depthwise, dot, elements
from .encoding import ENCODINGS

ROWS = (
    *(
        Row(CONVOLUTION, frozenset({encoding}), of_sums(partial(convolution.convolution, encoding, block)))
        for encoding in ENCODINGS
        for block in convolution.BLOCKS
    ),
    *(Row(DEPTHWISE, frozenset({code}), of_sums(partial(depthwise.depthwise, code))) for code in ENCODINGS),
    *(Row("add", frozenset({code}), partial(elements.total, code)) for code in ENCODINGS),
)
PLANES = {f"eb_{encoding}_planes": partial(depthwise.planes, encoding) for encoding in ENCODINGS}


def assembled(name: str) -> Function | None:
    """The function of this name, which says all that there is to know of it; None if it is none of these."""
    if not name.startswith(tuple(f"eb_{encoding}_" for encoding in ENCODINGS)):
        return None
    if (d := dot.of_name(name)) is not None:
        return dot.function(d)
    if (w := depthwise.of_name(name)) is not None:
        return depthwise.function(w)
    return PLANES[name]() if name in PLANES else elements.of_name(name)
