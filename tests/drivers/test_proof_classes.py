# ruff: noqa: E501  (C++ on one line reads better here)
"""The proof follows operators of classes, members that are references, and arrays of variable length."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.artifacts import Artifact
from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver

pytest.importorskip("z3")
from tests.drivers.test_proof import verdicts

HEAD = """bfGroup G { uint4 c; uint8 d; };
make_device(G, r, 0x40000000);
make_device(G, r2, 0x40001000);
"""
FAULTS = [  # a source, and what is wrong in its generated code
    ("struct H { G *g; G *operator->() const { return g; } }; void t() { H h{r}; h->c = 5; h->d = 2; }", {"h{r}": "h{r2}", ", 2)": ", 3)"}),
    (("struct H { G *g; G &operator*() const { return *g; } unsigned operator()(int a) const { return g->c + a; } };"
     "void t() { H h{r}; (*h).c = 5; r->d = h(3); }"), {"h{r}": "h{r2}", "h(3)": "h(4)"}),
    ("struct V { int v; }; static int operator+(const V &a, int b) { return a.v + b; } void t(int k) { V v{k}; r->c = v + 2; }",
     {"v + 2": "v + 3", "a.v + b": "a.v - b"}),
    ("struct D { G &g; int n; explicit D(G &x, int k) : g(x), n(k) {} void go() { g.c = 1; g.d = n; } }; void t(int k) { D d(*r, k); d.go(); }",
     {"d(*r,": "d(*r2,", "n(k)": "n(k + 1)"}),
    ("void t(int n) { int a[n + 1]; a[0] = r->d; a[n] = 3; r->c = a[0]; }", {"a[0] = HAL": "a[1] = HAL", "a[n] = 3": "a[n] = 4"}),
]  # fmt: skip


@pytest.mark.parametrize(("source", "faults"), FAULTS)
def test_proved_and_refuted(source: str, faults: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "x.bf.cpp").write_text(HEAD + source)
    artifacts, driver = compile_driver(DriverRequest((tmp_path / "x.bf.cpp",), "x", "riscv-virt"))
    assert [v for v in verdicts((driver, artifacts)) if v.what != "proved"] == []
    text = next(a for a in artifacts if a.name == "x.cpp").data.decode()
    for right, wrong in faults.items():
        assert right in text
        changed = (Artifact(a.name, text.replace(right, wrong).encode()) if a.name == "x.cpp" else a for a in artifacts)
        assert "refuted" in [v.what for v in verdicts((driver, tuple(changed)))]
