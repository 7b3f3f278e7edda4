"""Functions of many accesses: questions about their graph are answered from sets, not by a walk for each pair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgebuild.base.request import DriverRequest
from edgebuild.driver.analysis.cdfg import Access, Node, Reachability
from edgebuild.driver.analysis.conflicts import Graph
from edgebuild.driver.merge import check
from edgebuild.driver.pipeline import compile_driver

FIELDS, ACCESSES = 30, 300
HEAD = (
    "bfGroup G { " + " ".join(f"uint{1 + i % 8} f{i};" for i in range(FIELDS)) + " };\nmake_device(G, g, 0x40000000);\n"
)
BODIES = {
    "straight": ("", "g->f{0} = x + {1};", ""),
    "reads": ("", "x += g->f{0};", ""),
    "branches": ("", "if (x > {1}) g->f{0} = x;", ""),
    "loop": ("while (x--) {", "if (x & {1}) g->f{0} = x; else g->f{0} = 1;", "}"),
    "line": ("while (x--) {", "g->f{0} = x + {1};", "}"),
    "switch_": ("switch (x) {", "case {1}: g->f{0} = x; break;", "}"),
}


@pytest.mark.parametrize("shape", BODIES)
def test_walks_do_not_follow_the_pairs_of_accesses(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, line, after = BODIES[shape]
    lines = "\n".join(line.format(i % FIELDS, i) for i in range(ACCESSES))
    file = tmp_path / "many.bf.c"
    file.write_text(f"{HEAD}int f(int x)\n{{\n{before}\n{lines}\n{after}\nreturn x;\n}}\n")
    visits, walks = list[int](), list[Node]()
    settled, blocks, reached = Reachability._fixed_point, Graph.blocks, check._reached

    def settled_counted(
        self: Reachability, values: list[int], order: list[int], value: Callable[[int], int]
    ) -> list[int]:
        def step(n: int) -> int:
            visits.append(n)
            return value(n)

        return settled(self, values, order, step)

    def blocks_counted(self: Graph, node: Node, moved: Access, joined: bool) -> str:
        visits.append(0)
        return blocks(self, node, moved, joined)

    def reached_counted(start: Node, stop: Node, back: bool = False) -> set[Node]:
        walks.append(start)
        return reached(start, stop, back)

    monkeypatch.setattr(Reachability, "_fixed_point", settled_counted)
    monkeypatch.setattr(Graph, "blocks", blocks_counted)
    monkeypatch.setattr(check, "_reached", reached_counted)
    _, driver = compile_driver(DriverRequest((file,), "many", "pulpino", "heuristic"))
    f = driver.cdfg.functions["f"]
    assert len(f.accesses) >= ACCESSES
    once = 20 if shape != "line" else 8 * ACCESSES  # in a loop, once for each access
    assert len(visits) <= once * len(f.nodes)
    assert len(walks) <= 4 * len(f.accesses)
