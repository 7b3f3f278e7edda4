"""Layouts that grow: what is there keeps its address."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from tests.drivers.machine import build

FIRST = """bfGroup Ch { uint8 v; bit on; }; bfGroup D { bit a; uint4 b; uint8 e[4]; bfGroup Ch ch[4]; };
make_device(D, d, 0x40000000);
void t(int i) { d->a = 1; d->b = 2; d->e[i] = 3; d->ch[i].on = 1; d->ch[i].v = 7; }
"""
SECOND = FIRST.replace("bit a;", "uint12 more; bit a; bit then;").replace(
    "d->a = 1;", "d->more = 5; d->then = 1; d->a = 1;"
)


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("target", ["pulpino", "riscv-virt"])
def test_addresses_stay(target: str, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    old = build(one, FIRST, target=target)
    new = build(two, SECOND, target=target, layout=f"extend:{one / 'case_report.json'}")
    for group, layout in old.driver.layout.groups.items():
        grown = new.driver.layout.groups[group]
        assert layout.subs == grown.subs
        for r in layout.registers:
            assert [(s.name, s.lsb, s.width) for s in r.slots] == [
                (s.name, s.lsb, s.width) for s in grown.register_of(r.slots[0].name).slots
            ]
            assert grown.register_of(r.slots[0].name).offset == r.offset
    traces = []
    for b in (old, new):
        b.call("t", 2)
        traces.append([str(a) for a in b.model.trace])
    assert [x for x in traces[1] if "more" not in x and "then" not in x] == traces[0]
    assert any("more=5" in x and "then=1" in x for x in traces[1]), "what is new is laid out for the fewest accesses"


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_what_does_not_fit(tmp_path: Path) -> None:
    build(tmp_path, FIRST)
    layout = f"extend:{tmp_path / 'case_report.json'}"
    for source, text in (
        (FIRST.replace("uint4 b", "uint5 b"), "'b' has 1 x 5 bits, and 1 x 4 in the layout"),
        (FIRST.replace("ch[4]", "ch[5]"), r"'D.ch' is \[5\], and \[4\] in the layout"),
        (
            FIRST.replace("bit on;", "bit on; uint32 wide;").replace("d->a = 1;", "d->ch[i].wide = 1;"),
            "'D.ch' has no room",
        ),
    ):
        with pytest.raises(EdgebuildError, match=text):
            build(tmp_path, source, layout=layout)
    report = (tmp_path / "case_report.json").read_text()
    damages = (
        (report, "{}"),
        ('"lsb": ', '"lsb": 0.5'),
        ('"lsb": 1', '"lsb": 0'),
        ('"offset": 0', '"offset": 1'),
        ('"name": "b"', '"name": "b;"'),
        ('"bits": ', '"size": '),
        ('"count": ', '"count": -'),
    )
    for old, new in damages:
        assert report.replace(old, new) != report, old
        (tmp_path / "x.json").write_text(report.replace(old, new))
        with pytest.raises(EdgebuildError, match="is not the report of a driver"):
            build(tmp_path, FIRST, layout=f"extend:{tmp_path / 'x.json'}")
