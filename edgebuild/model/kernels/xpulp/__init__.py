"""Cores with the XpulpV2 instructions: CV32E40P (`corev`), RI5CY in GAP8 and PULP clusters (`gap8`)."""

from __future__ import annotations

from functools import partial

from ..row import CONVOLUTION, DEPTHWISE, Row, of_sums
from . import convolution, depthwise, elements
from .encoding import ENCODINGS

ROWS = (
    *(
        Row(CONVOLUTION, frozenset({encoding}), of_sums(partial(convolution.convolution, encoding, block)), shifts=True)
        for encoding in ENCODINGS
        for block in convolution.BLOCKS
    ),
    *(
        Row(DEPTHWISE, frozenset({code}), of_sums(partial(depthwise.depthwise, code)), shifts=True)
        for code in ENCODINGS
    ),
    *(Row("add", frozenset({code}), partial(elements.total, code)) for code in ENCODINGS),
    *(Row("transpose", frozenset({code}), partial(elements.pixels, code)) for code in ENCODINGS),
)
