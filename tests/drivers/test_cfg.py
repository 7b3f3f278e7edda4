# ruff: noqa: E501  (C on one line reads better here)
"""Our control flow against clang's own: which access can follow which.

Each field is accessed once per function, so its name identifies the access in `debug.DumpCFG`.
"""

from __future__ import annotations

import gc
import re
import weakref
from pathlib import Path

import pytest

from edgebuild.base.request import DriverRequest
from edgebuild.base.target import hal_dir
from edgebuild.driver.analysis.cdfg import Function, Node
from edgebuild.driver.analysis.walk import read_functions
from edgebuild.driver.pipeline import compile_driver
from edgebuild.driver.source.sources import read_sources
from tests.conftest import run

GROUP = "bfGroup G { " + " ".join(f"uint8 f{i};" for i in range(12)) + " };\nmake_device(G, g, 0x40000000);\n"
BODIES = {
    "straight": "g->f0 = g->f1; x = g->f2 + g->f3;",
    "branch": "if (g->f0) g->f1 = 1; else if (g->f2) { g->f3 = 2; } g->f4 = 3;",
    "loops": "while (g->f0) { if (g->f1) break; if (g->f2) continue; g->f3 = 1; } do { x += g->f4; } while (g->f5); g->f6 = 1;",
    "for_whole": "for (x = g->f0; x < g->f1; x += g->f2) { if (g->f3) continue; g->f4 = 1; } g->f5 = 2;",
    "for_condition": "for (; g->f0;) { g->f1 = 1; } g->f2 = 1;",
    "for_step": "for (;; x += g->f0) { if (g->f1) break; g->f2 = 1; } g->f3 = 1;",
    "for_init": "for (x = g->f0;;) { if (g->f1) break; if (g->f2) continue; } g->f3 = 1;",
    "switch_": "switch (g->f0) { case 1: g->f1 = 1; case 2: g->f2 = 1; break; case 3: if (g->f3) break; default: g->f4 = 1; } g->f5 = 1;",
    "switch_open": "switch (g->f0) { case 1: g->f1 = 1; break; case 4: g->f2 = 1; } g->f3 = 1;",
    "logic": "x = (g->f0 && g->f1) || g->f2; if (g->f3 || (g->f4 && x)) g->f5 = 1; g->f6 = 1;",
    "choice": "x = g->f0 ? g->f1 : g->f2; x = (g->f3, g->f4); x = g->f5 ? (g->f6 ? 1 : g->f7) : 3; g->f8 = 1;",
    "jumps": "again: g->f0 = 1; if (g->f1) goto again; if (g->f2) goto out; g->f3 = 1; out: g->f4 = 1;",
    "returns": "if (g->f0) return g->f1; while (g->f2) { if (g->f3) return 2; } g->f4 = 1;",
    "statements": "x = ({ if (g->f0) x = g->f1; g->f2; }); g->f3 = 1;",
    "nested": "for (int i = 0; i < g->f0; i++) { for (int k = g->f1; k; k--) { if (g->f2) goto out; switch (g->f3) { case 0: continue; "
    "case 1: break; default: g->f4 = 1; } } g->f5 = 1; } out: g->f6 = 1;",
}


@pytest.mark.needs("clang")
@pytest.mark.parametrize("name", BODIES)
def test_same_as_clang(name: str, tmp_path: Path) -> None:
    file = tmp_path / "case.c"
    file.write_text(GROUP + f"int {name}(int x)\n{{ {BODIES[name]} return x; }}\n")
    source = read_sources([file], "riscv32-unknown-elf")
    function = read_functions(source).functions[name]
    header = hal_dir() / "include" / "edgebuild_bf.h"
    text = run(
        "clang",
        "--target=riscv32-unknown-elf",
        "-fsyntax-only",
        "-w",
        "-std=gnu11",
        "-include",
        header,
        "-Xclang",
        "-analyze",
        "-Xclang",
        "-analyzer-checker=debug.DumpCFG",
        file,
    )
    theirs = their_successors(text[text.index(f"int {name}(int x)") :])
    ours = our_successors(function)
    assert len(ours) > 3
    assert ours == theirs


def our_successors(f: Function) -> set[tuple[str, str]]:
    def label(n: Node) -> str:
        if n.access:
            return f"{n.access.kind} {n.access.field[1]}"
        return n.kind if n.kind in ("entry", "exit") else ""

    return {
        (label(n), after)
        for n in f.nodes
        if label(n) and n.kind != "exit"
        for after in next_labels(n, lambda n: n.succ, label)
    }


def next_labels(node, successors, label) -> set[str]:  # type: ignore[no-untyped-def]
    labels, seen, todo = set(), set(), list(successors(node))
    while todo:
        n = todo.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        if label(n):
            labels.add(label(n))
        else:
            todo += successors(n)
    return labels


class Block:
    def __init__(self, label: str = "") -> None:
        self.label = label
        self.next: list[Block] = []


def their_successors(text: str) -> set[tuple[str, str]]:
    """The blocks of DumpCFG, each element that is an access being a node of a chain."""
    firsts: dict[str, Block] = {}
    lasts: dict[str, Block] = {}
    successors: dict[str, list[str]] = {}
    fields: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if match := re.match(r" \[B(\d+)(?: \((ENTRY|EXIT)\))?\]", line):
            name = match[1]
            firsts[name] = lasts[name] = Block({"ENTRY": "entry", "EXIT": "exit"}.get(match[2] or "", ""))
        elif match := re.match(r"\s+(\d+): (.*)", line):
            reference = f"B{name}.{match[1]}"
            if inner := re.search(r"->(f\d+)$", match[2]):
                fields[reference] = inner[1]
            kind = ""
            if inner := re.match(r"\[(B[\d.]+)\] \(ImplicitCastExpr, LValueToRValue", match[2]):
                kind, of = "r", inner[1]
            elif inner := re.match(r"\[(B[\d.]+)\] = ", match[2]):
                kind, of = "w", inner[1]
            if kind and of in fields:
                block = Block(f"{kind} {fields[of]}")
                lasts[name].next = [block]
                lasts[name] = block
        elif match := re.match(r"\s+Succs \(\d+\): (.*)", line):
            successors[name] = list(re.findall(r"(?<!\()B(\d+)(?!\()", match[1]))
    for name, after in successors.items():
        lasts[name].next += [firsts[s] for s in after]
    edges: set[tuple[str, str]] = set()
    todo, seen = list(firsts.values()), set()
    while todo:
        block = todo.pop()
        if id(block) in seen:
            continue
        seen.add(id(block))
        todo += block.next
        if block.label and block.label != "exit":
            edges |= {(block.label, after) for after in next_labels(block, lambda b: b.next, lambda b: b.label)}
    return edges


def test_nothing_of_a_driver_outlives_it(tmp_path: Path) -> None:
    """Answers about its graph once stayed in the process, with the graph and the parsed source."""
    (tmp_path / "x.bf.c").write_text("bfGroup G { bit a; bit b; };\nmake_device(G, g, 0x40000000);\n" + TWO)
    _, driver = compile_driver(DriverRequest((tmp_path / "x.bf.c",), "x", "pulpino"))
    graph = weakref.ref(driver.cdfg.functions["t"])
    assert graph() is not None
    del driver
    gc.collect()
    assert graph() is None


TWO = "void t(int n) { while (n--) { g->a = 1; g->b = 0; } }\n"
