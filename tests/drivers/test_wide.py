"""Registers that are wider than the bus: each word is a store or a load of its own, and only those that are needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgebuild.base.artifacts import Artifact
from edgebuild.base.errors import EdgebuildError
from edgebuild.driver.pipeline import triple_of
from edgebuild.driver.prove.verdicts import prove
from tests.drivers.machine import Bench, build

WIDE = """<device><name>CHIP</name><peripherals><peripheral><name>P</name><baseAddress>0x40000000</baseAddress>
<registers>
<register><name>W</name><addressOffset>0</addressOffset><size>64</size><fields>
<field><name>LOW</name><bitRange>[31:0]</bitRange></field><field><name>MID</name><bitRange>[39:32]</bitRange></field>
<field><name>TOP</name><bitRange>[63:40]</bitRange></field></fields></register>
<register><name>V</name><addressOffset>8</addressOffset><size>64</size><fields>
<field><name>A</name><bitRange>[7:0]</bitRange></field><field><name>B</name><bitRange>[31:8]</bitRange></field>
<field><name>C</name><bitRange>[47:32]</bitRange></field></fields></register>
<register><name>X</name><addressOffset>16</addressOffset><size>64</size><fields>
<field><name>LONG</name><bitRange>[39:0]</bitRange></field><field><name>REST</name><bitRange>[63:40]</bitRange></field>
</fields></register>
<register><name>Z</name><addressOffset>24</addressOffset><size>64</size></register>
</registers></peripheral></peripherals></device>
"""
SOURCE = """bfGroup W { uint32 LOW; uint8 MID; uint24 TOP; };
bfGroup V { uint8 A; uint24 B; uint16 C; };
bfGroup X { uint40 LONG; uint24 REST; };
bfGroup P { bfGroup W W; bfGroup V V; bfGroup X X; uint64 Z; };
make_device(P, p, 0x40000000);
"""


def built(folder: Path, body: str) -> Bench:
    (folder / "chip.svd").write_text(WIDE)
    (folder / "chip.overlay.yaml").write_text('fields: {"P.*.*": {plain: true}}')
    return build(folder, SOURCE + body, layout=f"fixed:{folder / 'chip.svd'}")


# statements, and the accesses: kind, offset
WORDS = [
    ("p->W.LOW = n;", "w0"),
    ("p->W.MID = n; p->W.TOP = n + 1;", "w4"),
    ("return p->W.MID;", "r4"),
    ("p->W.LOW = n; p->W.MID = n;", "w0 r4 w4"),
    ("p->V.A = n; p->V.C = n;", "r8 w8 w12"),
    ("return p->V.A + p->V.B + p->V.C;", "r8 r12"),
    ("p->X.REST = n;", "r20 w20"),
    ("p->X.LONG = (unsigned long long)n << 20;", "r16 r20 w16 w20"),
    ("p->Z = n; p->Z = n + 1;", "w24 w28 w24 w28"),
    ("p->X.LONG += n;", "r16 r20 r16 r20 w16 w20"),
]


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize(("body", "expected"), WORDS)
def test_words_of_the_bus(body: str, expected: str, tmp_path: Path) -> None:
    pytest.importorskip("z3")
    b = built(tmp_path, f"int t(int n) {{ {body} return 0; }}")
    b.model.values.update(MID=0x12, B=0x345678, REST=0xABCDEF)
    b.call("t", 7)
    assert " ".join(f"{a.kind}{a.offset}" for a in b.model.trace) == expected
    assert b.model.values["B"] == 0x345678
    assert b.model.values["REST"] == (7 if "REST" in body else 0xABCDEF)
    files = tuple(Artifact(name, data) for name, data in b.files.items())
    assert [v.what for v in prove(b.driver, triple_of("pulpino"), files)] == ["proved"]
    if "Z" in body or "LONG =" in body:  # the second half is not stored
        wrong = re.sub(rb"\*\(volatile[^;]*>> 32\);", b";", b.files["case_hal.h"])
        assert wrong != b.files["case_hal.h"]
        files = tuple(Artifact(f.name, wrong if f.name == "case_hal.h" else f.data) for f in files)
        assert [v.what for v in prove(b.driver, triple_of("pulpino"), files)] == ["refuted"]


def test_a_write_of_all_of_it_is_no_single_store(tmp_path: Path) -> None:
    with pytest.raises(EdgebuildError) as caught:
        built(tmp_path, "void t(int n) { p->W = (bfGroup W){ .LOW = n }; }")
    assert "the bus takes 32 at once: access its fields one by one" in str(caught.value)
