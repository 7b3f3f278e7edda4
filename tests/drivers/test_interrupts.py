"""Declared interrupts: layouts without races, sections, and what the source itself does wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest
from edgebuild.driver.analysis import cdfg
from edgebuild.driver.pipeline import compile_driver
from tests.drivers.cases import svd
from tests.drivers.machine import Bench, build
from tests.drivers.pairs import lost

HEAD = """bfGroup G { uint3 a; uint3 b; uint3 c; uint3 d; uint3 e; uint3 f; };
make_device(G, g, 0x40000000);
"""
ISR = "bf_interrupt void isr(void)"


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_nothing_is_lost(tmp_path: Path) -> None:
    assert lost(tmp_path, 5, 20) == []


@pytest.mark.slow
@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("seed", range(1000, 1050))
def test_nothing_is_lost_in_a_thousand_pairs(seed: int, tmp_path: Path) -> None:
    assert lost(tmp_path, seed, 20) == []


def test_what_a_handler_sees_keeps_its_order(tmp_path: Path) -> None:
    """Were both reads of `a` one, a handler between them would be before the store and after it."""
    source = f"{HEAD}int t(void) {{ int x = g->a; g->b = 2; return x + 4 * g->a; }}\n"
    one = build(tmp_path, f"{source}void isr(void) {{ g->a = 1; g->b = 1; }}")
    two = build(tmp_path, f"{source}{ISR} {{ g->a = 1; g->b = 1; }}")
    for b, reads in ((one, 1), (two, 2)):
        b.call("t")
        assert sum(a.kind == "r" for a in b.model.trace) == reads


FAULTS: dict[str, Callable[..., Any]] = {
    "contexts": lambda graph: dict.fromkeys(graph.functions, frozenset([cdfg.MAIN])),
    "preempts": lambda theirs, mine: False,
    "guarded": lambda f: frozenset(f.nodes),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_check_of_merges_knows_what_a_handler_sees(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It finds that out by itself: a mistake of the analysis is none of the check's."""
    source = f"{HEAD}int t(void) {{ int x = g->a; g->b = 2; return x + 4 * g->a; }}\n{ISR} {{ g->a = 1; g->b = 1; }}"
    (tmp_path / "d.bf.c").write_text(source)
    request = DriverRequest((tmp_path / "d.bf.c",), "d", "mps2-an385", "optimize")
    compile_driver(request)
    monkeypatch.setattr(cdfg, name, FAULTS[name])
    with pytest.raises(AssertionError, match="an interrupt may see another order"):
        compile_driver(request)


def test_contexts_share_no_register(tmp_path: Path) -> None:
    """Read together, the two fields would else be in one register."""
    reads = "".join(f"int both{i}(void) {{ return g->a + g->b; }}\n" for i in range(6))
    source = f"{HEAD}{reads}void t(void) {{ g->a = 1; }}\n"
    one = build(tmp_path, source + "void isr(void) { g->b = 1; }")
    two = build(tmp_path, source + f"{ISR} {{ g->b = 1; }}")
    for b, same in ((one, True), (two, False)):
        layout = b.driver.layout.groups["G"]
        assert (layout.register_of("a") == layout.register_of("b")) == same


CHIP = "CR@0: en:0:1 mode:1:2 div:8:8"
SILICON = "bfGroup C { bit en; uint2 mode; uint8 div; };\nmake_device(C, c, 0x40000000);\n"


def silicon(folder: Path, source: str, overlay: str = "") -> Bench:
    (folder / "chip.svd").write_text(svd(CHIP))
    (folder / "chip.overlay.yaml").write_text('fields: {"C.*": {plain: true' + overlay + "}}")
    return build(folder, SILICON + source, layout=f"fixed:{folder / 'chip.svd'}")


def test_two_contexts_that_write_one_register(tmp_path: Path) -> None:
    source = "void t(void) { c->en = 1; }\n" + f"{ISR} {{ c->div = 3; }}\n"
    with pytest.raises(EdgebuildError) as caught:
        silicon(tmp_path, source)
    text = str(caught.value)
    assert "register 'CR' is changed here and by isr() in an interrupt (line 4)" in text
    assert "'C.CR.en: {shared: true}'" in text and caught.value.diagnostics[0].line == 3
    silicon(tmp_path, source, ", shared: true")
    section = source.replace("c->en = 1;", "bf_critical { c->en = 1; }")
    silicon(tmp_path, section)
    silicon(tmp_path, source.replace("c->en = 1;", '__asm__ volatile("# csrci mstatus, 8"); c->en = 1;'))
    helper = "static void set(void) { c->div = 3; }\n"
    with pytest.raises(EdgebuildError, match="by set"):
        silicon(tmp_path, helper + source.replace("c->div = 3;", "set();"))


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_sections_are_not_crossed(tmp_path: Path) -> None:
    b = silicon(tmp_path, "void t(void) { c->en = 1; bf_critical { c->mode = 2; c->div = 7; } }")
    b.call("t")
    assert [str(a) for a in b.model.trace if a.kind == "w"] == ["w en=1 mode=0 div=0", "w en=1 mode=2 div=7"]


def test_a_race_of_the_source(tmp_path: Path) -> None:
    source = f"{HEAD}void t(void) {{ g->a += 1; }}\n{ISR} {{ g->a = 0; }}\n"
    b = build(tmp_path, source)
    assert any("by isr() in an interrupt (line 4)" in w.text and w.line == 3 for w in b.driver.warnings)
    assert not build(tmp_path, source.replace("uint3 a", "uint3 bf_shared a")).driver.warnings


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("void t(void) { bf_critical { return; } }", "return out of bf_critical"),
        ("void t(void) { bf_critical { c->en = 1; break; } }", "break out of bf_critical"),
        ("bf_interrupt_of(UART) void isr(void) { }", "has no interrupt 'UART'; did you mean 'UART0'"),
    ],
)
def test_errors(source: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "chip.svd").write_text(
        svd(CHIP).replace("<registers>", "<interrupt><name>UART0</name><value>1</value></interrupt><registers>", 1)
    )
    with pytest.raises(EdgebuildError, match=expected):
        build(tmp_path, SILICON + source, layout=f"fixed:{tmp_path / 'chip.svd'}")
