"""Accesses through members of objects, and of groups that are passed by pointer, become one as those of a device do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver
from tests.drivers.cases import svd

HEAD = """bfGroup Ctl { bit en; uint3 mode; uint4 div; }; bfGroup Dev { bfGroup Ctl CTL; uint8 x; uint8 y; };
make_device(Dev, dev, 0x40000000);
struct ctx { bfGroup Dev *hw; int n; };
extern int other(void);
"""
FUNCTIONS = {
    # function: bus accesses, each counted once
    "int t(struct ctx *p) { return p->hw->x + p->hw->y; }": 1,
    "void t(struct ctx *p, int m) { p->hw->x = m; p->hw->y = m; }": 1,
    "void t(struct ctx *p, int m) { p->hw->x = m; p->n = m; p->hw->y = m; }": 4,  # what is stored may be p->hw
    "void t(bfGroup Ctl *c, int m) { c->mode = m; c->div = m + 1; c->en = 1; }": 1,
    "void t(bfGroup Ctl *c, int m) { bfGroup Ctl *d = c; d->mode = m; d->div = m + 1; d->en = 1; }": 1,
    "void t(struct ctx *p, int m) { bfGroup Ctl *c = &p->hw->CTL; c->mode = m; c->div = m; c->en = 1; }": 1,
    "int t(struct ctx *p) { int a = p->hw->x; a += other(); return a + p->hw->y; }": 2,
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_neighbours_become_one(function: str, tmp_path: Path) -> None:
    file = tmp_path / "chip.svd"
    file.write_text(svd("CTL@0: en:0:1 mode:1:3 div:4:4\nXY@4: x:0:8 y:8:8"))
    (tmp_path / "chip.overlay.yaml").write_text('fields: {"C.*": {plain: true}}')
    (tmp_path / "t.bf.c").write_text(HEAD + function + "\n")
    artifacts, _ = compile_driver(DriverRequest((tmp_path / "t.bf.c",), "n", "pulpino", f"fixed:{file}"))
    report = json.loads(next(a.data for a in artifacts if a.name == "n_report.json"))
    assert report["functions"][0]["accesses_after"] == FUNCTIONS[function]
