"""Cores with the XpulpV2 instructions: CV32E40P (`corev`), RI5CY in GAP8 and PULP clusters (`gap8`)."""

from __future__ import annotations

from functools import partial

from ..row import CONVOLUTION, DEPTHWISE, Row, of_sums
from . import depthwise, dot, elements
from .encoding import ENCODINGS

ROWS = (
    *(
        Row(CONVOLUTION, frozenset({encoding}), of_sums(partial(dot.convolution, encoding, block)), shifts=True)
        for encoding in ENCODINGS
        for block in dot.BLOCKS
    ),
    *(
        Row(DEPTHWISE, frozenset({code}), of_sums(partial(depthwise.depthwise, code)), shifts=True)
        for code in ENCODINGS
    ),
    *(Row("add", frozenset({code}), partial(elements.total, code)) for code in ENCODINGS),
    *(Row("transpose", frozenset({code}), partial(elements.pixels, code)) for code in ENCODINGS),
)
