"""The picture of an arena: a box for every buffer, none for views."""

from __future__ import annotations

import re

import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import prepare
from edgebuild.model.emit.picture import picture
from edgebuild.model.plan.choose import plan
from tests.conftest import ROOT

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"


@pytest.mark.parametrize("tile", ["rolling", "off"])
def test_every_buffer_has_a_box(tile: str) -> None:
    """Rings and the newest rows beside them, tensors that grow into others, scratch."""
    made = plan(prepare(DIGITS), load_target("host"), model_request(DIGITS, "net", "host", {"tile": tile}))
    own = [b for b in made.buffers if b.view_of is None]
    assert any(b.rows for b in own) if tile == "rolling" else any(b.overlaps for b in own)
    shown = picture(made)
    places = re.findall(r": (\d+) B at (\d+), steps (\d+) to (\d+)</title>", shown)
    assert [tuple(map(int, p)) for p in places] == [(b.bytes, b.place.offset, b.first, b.last) for b in own]
    rects = [
        tuple(map(float, r))
        for r in re.findall(r'</title><rect x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', shown)
    ]
    up, ground = max(r[3] for r in rects) / max(b.bytes for b in own), max(r[1] + r[3] for r in rects)
    for b, (x, y, width, height) in zip(own, rects, strict=True):
        assert height == pytest.approx(b.bytes * up, abs=0.2) and width > 0 and 56 <= x <= x + width <= 712.1
        assert ground - y - height == pytest.approx(b.place.offset * up, abs=0.6)
    texts = re.findall(r"<text x=[^>]*>([^<]*)</text>", shown)
    assert sum("rows" in text for text in texts) == sum(b.rows > 0 for b in own)
    assert texts.count("newest row") == sum(b.newest for b in own)
