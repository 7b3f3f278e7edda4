# ruff: noqa: E501  (C on one line reads better here)
"""The proof follows jumps: into blocks, loops and branches, by case labels and by goto."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.artifacts import Artifact
from tests.drivers.cases import Case

pytest.importorskip("z3")
from tests.drivers.test_proof import compiled, verdicts

HEAD = """bfGroup G { uint4 c; uint8 d; bit wse(self) go; };
make_device(G, r, 0x40000000);
"""
JUMPS = {  # a function t, and the faults in its generated code that nothing but a jump leads to
    "a block": ("void t(int x) { switch (x) { case 0: break; { case 1: r->go = 1; } break; default: r->d = 1; } }", "(r, 1); } break"),
    "a branch": ("void t(int x, int y) { switch (x) { case 0: if (y) { case 1: r->go = 1; } else { case 2: r->d = 3; } } }", "r, 3"),
    "a range": ("void t(int x) { switch (x) { case 2 ... 5: r->d = x; break; case -3 ... -1: r->go = 1; } }", "d(r, (unsigned int)x)"),
    "no block": ("void t(int x) { switch (x) case 1: r->go = 1; }", "(r, 1)"),
    "the second one of two": ("void t(int x) { switch (x) { default: r->d = 2; case 5: r->go = 1; } }", "(r, 1)"),
    "a loop": ("void t(int n, int x) { switch (n & 3) { case 0: do { r->go = 1; case 2: r->d = x; case 1: r->go = 0; } while (--n > 0); } }",
               "d(r, (unsigned int)x)"),
    "a block by goto": ("void t(int x, int y) { if (x) goto in; r->go = 1; if (y) { r->c = 3; in: r->d = x; } }", "d(r, (unsigned int)x)"),
    "the end": ("int t(int x) { if (x) goto end; r->go = 1; end: r->c = 5; return r->d; }", "c(r, 5)"),
}  # fmt: skip


@pytest.mark.parametrize("what", JUMPS)
def test_jumps_are_followed(what: str, tmp_path: Path) -> None:
    source, fault = JUMPS[what]
    driver, artifacts = compiled(Case(0, what, HEAD + source), tmp_path)
    assert [v for v in verdicts((driver, artifacts)) if v.what != "proved"] == []
    text = next(a for a in artifacts if a.name == "case.c").data.decode()
    assert fault in text
    wrong = text.replace(
        fault, fault.replace("x)", "2)").replace("1)", "0)").replace("5)", "4)").replace("r, 3", "r, 2")
    )
    changed = tuple(Artifact(a.name, wrong.encode()) if a.name == "case.c" else a for a in artifacts)
    assert [v.what for v in verdicts((driver, changed))] == ["refuted"]
