"""Bits of silicon that are of no field: a load finds anything there, and what a store puts there is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers.cases import svd
from tests.drivers.mutants import compiled
from tests.drivers.test_proof_bus import Compiled, changed

pytest.importorskip("z3")
from tests.drivers.test_proof import verdicts

SOURCE = """bfGroup A { bit X; uint4 Y; }; bfGroup B { bit P; uint4 W; bit Q; }; bfGroup C { uint3 E; };
bfGroup D { bfGroup A CR; bfGroup B XR; bfGroup C IR; }; make_device(D, d, 0x40000000); make_device(D, e, 0x40001000);
void part(int n) { d->CR.Y = n; }
int both(int n) { int old = d->CR.Y; d->CR.Y = old + n; return old; }
void whole(int n) { d->CR = (bfGroup A){ .Y = n }; }
void held(int n) { bfGroup A a = d->CR; a.Y = n; d->CR = a; }
void turns(int n) { bfGroup A a = d->CR; while (n--) a.Y = n; d->CR = a; }
void start(int n) { bfGroup A a = { .X = 1, .Y = 2 }; while (n--) { a.Y = n; d->CR = a; } }
void copy(void) { d->CR = e->CR; }
void clear(void) { d->IR.E = 2; }
void beside(int n) { d->XR.P = n; }
int look(void) { return d->CR.Y; }
void same(void) { bfGroup B b = d->XR; b.Q = 1; d->XR = b; }
"""
REGISTERS = "CR@0: X:0:1 Y:4:4\nXR@4: P:0:1 Q:2:1 W:4:4:w\nIR@8: E:0:3:w:oneToClear"
OVERLAY = 'fields: {"C.XR.W": {back: "0"}}\ndevices: {e: C}\n'


@pytest.fixture(scope="module")
def rests(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    folder = tmp_path_factory.mktemp("rests")
    reset = "</addressOffset><resetValue>0x300</resetValue>"
    (folder / "chip.svd").write_text(svd(REGISTERS).replace("</addressOffset>", reset))
    (folder / "chip.overlay.yaml").write_text(OVERLAY)
    return compiled(folder, SOURCE, "pulpino", f"fixed:{folder / 'chip.svd'}")


def test_what_puts_them_back_is_proved(rests: Compiled) -> None:
    assert [v for v in verdicts(rests) if v.what != "proved"] == []


ACROSS = """bfGroup W { uint4 L; uint8 M; uint4 H; }; bfGroup D { bfGroup W WR; }; make_device(D, d, 0x40000000);
void low(int n) { d->WR.L = n; }
void middle(int n) { d->WR.M = n; }
void high(int n) { d->WR.H = n; }
"""


def test_a_field_that_crosses_words_is_followed(tmp_path: Path) -> None:
    """Its half is put back with the bits beside it, or both halves are stored."""
    wide = "</addressOffset><size>64</size><resetValue>0x8000000000000001</resetValue>"
    text = svd("WR@0: L:2:4 M:28:8 H:40:4").replace("</addressOffset>", wide)
    (tmp_path / "chip.svd").write_text(text)
    across = compiled(tmp_path, ACROSS, "pulpino", f"fixed:{tmp_path / 'chip.svd'}")
    assert {v.function: v.what for v in verdicts(across)} == dict.fromkeys(("low", "middle", "high"), "proved")
    header = next(a.data.decode() for a in across[1] if a.name == "case_hal.h")
    for mask, wrong, functions in (
        ("r & 0xFFFFFFC3u", "r & 0xEFFFFFC3u", {"low"}),  # half of the field
        ("r & 0xFFFFFFC3u", "r & 0xF7FFFFC3u", {"low"}),  # beside it
        ("r & 0xFFFFFFF00FFFFFFFull", "r & 0xFFFFFFF01FFFFFFFull", {"middle"}),
        ("r & 0xFFFFFFF00FFFFFFFull", "r & 0xFFFFFFE00FFFFFFFull", {"middle"}),
        ("r & 0xFFFFF0FFu", "r & 0xFFFFF0FEu", {"high"}),
        ("r & 0xFFFFF0FFu", "r & 0x7FFFF0FFu", {"high"}),
    ):
        assert mask in header
        results = verdicts(changed(across, "case_hal.h", header, header.replace(mask, wrong)), frozenset(functions))
        assert [v.what for v in results] == ["refuted"], wrong


WRITE, UPDATE, STORE = "HAL_WRITE_D_CR_Y(", "HAL_UPDATE_D_CR_Y(", "HAL_STORE_D_CR("
WRONG = [  # function of the generated code, what it has, what it has in place of that, functions that are wrong then
    (WRITE, "r & 0xFFFFFF0Fu", "r & 0xFFFFFB0Fu", {"part"}),
    (WRITE, "r & 0xFFFFFF0Fu", "r & 0x7FFFFF0Fu", {"part"}),
    (WRITE, "r & 0xFFFFFF0Fu", "r & 0xFFFFFF07u", {"part"}),
    (WRITE, "r & 0xFFFFFF0Fu", "r & 1u", {"part"}),
    (WRITE, "r & 0xFFFFFF0Fu", "r & 1u | 0x300u", {"part"}),
    (WRITE, "| (value << 4)", "| (value << 4) | 0x100u", {"part"}),
    (UPDATE, "r & 0xFFFFFF0Fu", "r & 0xFFFFFB0Fu", {"both"}),
    ("HAL_PUT_D_CR_Y(", "0x300u", "0x100u", {"whole"}),
    ("HAL_PUT_D_CR_Y(", "0x300u", "0x700u", {"whole"}),
    ("HAL_PUT_D_CR_Y(", " | 0x300u", "", {"whole"}),
    ("HAL_MAKE_D_CR_X_CR_Y(", "0x300u", "0x302u", {"start"}),
    ("HAL_WITH_D_CR_Y(", "r & 0xFFFFFF0Fu", "r & 0xFFFFFB0Fu", {"held", "turns"}),
    (STORE, "(unsigned int)r;", "(unsigned int)(r & 0xFFu);", {"held", "turns", "start", "copy"}),
    (STORE, "(unsigned int)r;", "(unsigned int)(r | 0x300u);", {"held", "turns", "copy"}),
    ("HAL_WRITE_D_IR_E(", " | 0x300u", "", {"clear"}),
    ("HAL_WRITE_D_XR_P(", "r & 0xFFFFFF0Eu", "r & 0xFFFFFF1Eu", {"beside"}),  # what reads of a write-only field
    ("HAL_WRITE_D_XR_P(", "r & 0xFFFFFF0Eu", "r & 0xFFFFFF06u", {"beside"}),
    ("HAL_READ_D_CR_Y(", "(r >> 4) & 0xFu", "(r >> 4) & 0x1Fu", {"look"}),
    ("HAL_GET_D_CR_Y(", "(r >> 4) & 0xFu", "(r >> 3) & 0xFu", {"both"}),
]  # fmt: skip


@pytest.mark.parametrize(("function", "old", "new", "wrong"), WRONG)
def test_what_changes_them_is_refuted(function: str, old: str, new: str, wrong: set[str], rests: Compiled) -> None:
    header = next(a.data.decode() for a in rests[1] if a.name == "case_hal.h")
    text = next(t for t in header.split("static inline") if function in t.partition("{")[0])
    assert text.count(old) == 1, text
    results = verdicts(changed(rests, "case_hal.h", text, text.replace(old, new)), frozenset(wrong))
    assert {v.function: v.what for v in results} == dict.fromkeys(wrong, "refuted")
