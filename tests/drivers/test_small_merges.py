"""Accesses through members of objects, of groups that are passed by pointer, and across small helpers become one."""

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


HELPERS = (
    HEAD
    + """bfGroup Other { bit lamp; bit rse(self) data; bit ro busy; bit wse(self) go; };
make_device(Other, other_, 0x40001000);
static int seen;
static void lamp(int x) { other_->lamp = x; }
__attribute__((__weak__)) void hook(int x) { other_->lamp = x; }
static void same(int x) { dev->x = x; }
static void deep(int x) { if (x) lamp(x); seen++; }
static void wait(void) { while (other_->busy) ; }
static void again(int x) { other_->lamp = x; if (x) again(x - 1); }
static void go(void) { other_->go = 1; }
static int take(void) { return other_->data; }
static void outside(void) { lamp(1); (void)other(); }
"""
)
CALLS = {
    # statements between `dev->x = m` and `dev->y = m`: accesses of the function
    "lamp(m);": 1,
    "deep(m);": 1,
    "hook(m);": 4,  # the program may have another one
    "seen = other_->busy;": 2,
    "same(m);": 4,
    "wait();": 4,
    "again(m);": 4,
    "go();": 4,
    "take();": 4,
    "outside();": 4,
    "bf_critical { lamp(m); }": 4,
}


def merged(folder: Path, call: str, order: str, handler: str = "") -> int:
    """Accesses of a function that writes two neighbours with a call in between."""
    rows = "CTL@0: en:0:1 mode:1:3 div:4:4\nXY@4: x:0:8 y:8:8"
    other = svd("O@0: lamp:0:1 busy:1:1:r\nP@4: data:0:1\nQ@8: go:0:1").partition("<peripherals>")[2]
    other = other.partition("</peripherals>")[0].replace("<name>C</name>", "<name>OTHER_</name>")
    other = other.replace("0x40000000", "0x40001000")
    (folder / "chip.svd").write_text(svd(rows).replace("</peripherals>", f"{other}</peripherals>"))
    (folder / "chip.overlay.yaml").write_text(f'fields: {{"*": {{{order}}}}}')
    source = f"{HELPERS}{handler}void t(int m) {{ dev->x = m; {call} dev->y = m; }}\n"
    (folder / "t.bf.c").write_text(source)
    request = DriverRequest((folder / "t.bf.c",), "n", "pulpino", f"fixed:{folder / 'chip.svd'}")
    artifacts, _ = compile_driver(request)
    report = json.loads(next(a.data for a in artifacts if a.name == "n_report.json"))
    return int(next(f["accesses_after"] for f in report["functions"] if f["name"] == "t"))


@pytest.mark.parametrize("call", CALLS)
def test_across_helpers(call: str, tmp_path: Path) -> None:
    """A helper that waits, has effects, or accesses the field itself must find what was written before it."""
    assert merged(tmp_path, call, "memory: true") == CALLS[call]


def test_silicon_keeps_its_order_across_helpers(tmp_path: Path) -> None:
    assert merged(tmp_path, "lamp(m);", "plain: true") == 4


def test_what_a_handler_sees_is_written_before_a_helper(tmp_path: Path) -> None:
    handler = "bf_interrupt void isr(void) { if (dev->x) lamp(1); }\n"
    assert merged(tmp_path, "lamp(m);", "memory: true", handler) == 4


def test_a_write_of_a_field_whose_reads_have_effects(tmp_path: Path) -> None:
    """Only reads of it may not move over a helper."""
    source = """bfGroup G { uint1 seen; uint32 rse(seen) data; uint32 other; }; make_device(G, g, 0x40000000);
    static void helper(unsigned x) { g->other = x; }
    void t(unsigned x) { g->data = x; helper(x); g->data = 2; }\n"""
    (tmp_path / "t.bf.c").write_text(source)
    artifacts, _ = compile_driver(DriverRequest((tmp_path / "t.bf.c",), "n", "pulpino"))
    report = json.loads(next(a.data for a in artifacts if a.name == "n_report.json"))
    assert {f["name"]: f["accesses_after"] for f in report["functions"]} == {"helper": 1, "t": 1}


def test_a_cleanup_function_is_called_at_the_end_of_the_scope(tmp_path: Path) -> None:
    source = """bfGroup G { uint8 x; uint8 y; }; make_device(G, g, 0x40000000); extern int other(int);
    static inline void leave(int *p) { (void)other(*p); }
    #define LOCK(name) int name __attribute__((cleanup(leave))) = other(1)
    void t(void) { { LOCK(lock); g->x = 1; } g->y = 2; }\n"""
    (tmp_path / "t.bf.c").write_text(source)
    artifacts, _ = compile_driver(DriverRequest((tmp_path / "t.bf.c",), "n", "pulpino"))
    text = next(a.data.decode() for a in artifacts if a.name == "n.c")
    assert "LOCK(lock); HAL_WRITE_G_x(g, 1); } HAL_WRITE_G_y(g, 2);" in text


def test_no_store_moves_over_a_volatile_access(tmp_path: Path) -> None:
    """Whether `volatile` stands at the object, in its typedef, or in that of a member."""
    head = "typedef volatile unsigned vu; typedef struct { vu m; } M;\nbfGroup G { bit a; bit b; };\n"
    for i, place in enumerate(("*(volatile unsigned *)64", "*(vu *)64", "flag", "((M *)64)->m", "((const vu *)64)[n]")):
        access = f"n = {place}" if "const" in place else f"{place} = 1"
        source = tmp_path / f"v{i}.bf.c"
        body = f"void f(int n) {{ g->a = 1; {access}; g->b = 1; }}\n"
        source.write_text(f"{head}vu flag;\nmake_device(G, g, 0x40000000);\n{body}")
        _, driver = compile_driver(DriverRequest((source,), "v", "pulpino"))
        assert [len(r.accesses) for _, r in driver.merged.all()] == [1, 1], place
