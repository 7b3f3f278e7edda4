# ruff: noqa: E501  (C on one line reads better here)
"""The proof tells reads of what may change by itself apart: by their order, and by what each of them finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.artifacts import Artifact
from tests.drivers.cases import Case

pytest.importorskip("z3")
from tests.drivers.test_proof import compiled, verdicts

HEAD = """bfGroup C { bit EN; uint4 DIV; }; bfGroup S { bit BUSY; uint4 LEVEL; }; bfGroup F { uint4 A; uint4 B; };
bfGroup D { bfGroup C CTRL; bfGroup S STATUS; bfGroup F CFG; };
make_device(D, d, 0x40000000);
"""
REGISTERS = "CTRL@0: EN:0:1 DIV:4:4\nSTATUS@4: BUSY:0:1:r LEVEL:4:4:r\nCFG@8: A:0:4 B:4:4"
LEVEL, EN = "HAL_READ_D_STATUS_LEVEL(d)", "HAL_WRITE_D_CTRL_EN(d, 1)"
FAULTS = {  # a function, what is wrong in its generated code, and what would be right
    "a read in front of a store": ("int t(void) { int x; d->CTRL.EN = 1; x = d->STATUS.LEVEL; return x; }",
                                   f"{EN}; x = {LEVEL};", f"x = {LEVEL}; {EN};"),
    "a read behind a store": ("int t(void) { int x = d->STATUS.LEVEL; d->CTRL.EN = 1; return x; }",
                              f"int x = {LEVEL}; {EN};", f"{EN}; int x = {LEVEL};"),
    "two reads as one": ("int t(void) { int x = d->STATUS.LEVEL; return x + d->STATUS.LEVEL; }", f"x + {LEVEL}", "x + x"),
    "what another read found": ("int t(void) { int x = d->STATUS.LEVEL, y = d->STATUS.LEVEL; return x - 2 * y; }", "x - 2 * y", "y - 2 * x"),
    "what a read behind a store found": ("int t(void) { int x = d->STATUS.LEVEL; d->CTRL.EN = 1; return x - d->STATUS.LEVEL; }", f"x - {LEVEL}", f"{LEVEL} - x"),
}  # fmt: skip


@pytest.mark.parametrize("what", FAULTS)
def test_faults_of_reads_are_refuted(what: str, tmp_path: Path) -> None:
    source, right, wrong = FAULTS[what]
    driver, artifacts = compiled(Case(0, what, HEAD + source, registers=REGISTERS), tmp_path)
    assert [v.what for v in verdicts((driver, artifacts))] == ["proved"]
    text = next(a for a in artifacts if a.name == "case.c").data.decode()
    assert right in text
    changed = (Artifact(a.name, text.replace(right, wrong).encode()) if a.name == "case.c" else a for a in artifacts)
    assert [v.what for v in verdicts((driver, tuple(changed)))] == ["refuted"]


RIGHT = """
int merged(void) { return d->STATUS.BUSY && d->STATUS.LEVEL > 2 ? d->STATUS.LEVEL : 0; }
int loop(void) { int n = 0; while (d->STATUS.BUSY && d->STATUS.LEVEL) { n += d->CFG.A; d->CFG.B = n; d->CFG.A += 1; } return n; }
void whole(void) { bfGroup S a = d->STATUS; bfGroup S b = d->STATUS; d->CTRL.DIV = a.LEVEL; d->CTRL.EN = b.BUSY; if (a.BUSY) d->CFG.A = 3; }
void back(void) { int a = d->CFG.A; d->CFG.B = a; }
"""


@pytest.mark.parametrize("overlay", ["", "fields: {'C.CTRL.*': {plain: true}}"])
def test_reads_that_are_one_are_proved(overlay: str, tmp_path: Path) -> None:
    build = compiled(Case(0, "reads", HEAD + RIGHT, registers=REGISTERS, overlay=overlay), tmp_path)
    assert [v for v in verdicts(build) if v.what != "proved"] == []


NUMBERS = """bfGroup R { uint8 DATA; bit OE; bit FE; }; bfGroup N { bfGroup R DR; uint2 MODE[8]; uint16 SR; };
make_device(N, n, 0x40000000);
int element(int i) { n->MODE[2] = 1; n->MODE[3] = 2; n->MODE[i] = 3; return n->MODE[i]; }
int data(void) { bfGroup R r = n->DR; return r.OE || r.FE ? -1 : r.DATA; }
unsigned number(void) { return bf_raw(n->DR) & 0x3FF; }
void store(unsigned x) { bf_raw(n->DR) = x & ~1u; n->SR = ~x; }
void zeros(void) { n->DR = (bfGroup R){0}; (void)n->DR; }
"""
CHIP = (
    "DR@0: OE:9:1 FE:8:1 DATA:0:8\nMODE@4: " + " ".join(f"MODE{i}:{2 * i}:2" for i in range(8)) + "\nSR@8: A:0:1 B:9:1"
)


def test_registers_as_numbers_are_proved(tmp_path: Path) -> None:
    overlay = "fields: {'C.DR.DATA': {read: modify, write: modify}}"
    driver, artifacts = compiled(Case(0, "numbers", NUMBERS, registers=CHIP, overlay=overlay), tmp_path)
    assert [v for v in verdicts((driver, artifacts)) if v.what != "proved"] == []
    text = next(a for a in artifacts if a.name == "case.c").data.decode()
    for right, wrong in ((" & ~1U)", ")"), ("& 1023", "& 1022"), ("HAL_READ_N_MODE(n, (unsigned int)i)", "HAL_READ_N_MODE(n, 3)"),
                         ("(void)HAL_LOAD", "(void)sizeof HAL_LOAD")):  # fmt: skip
        assert right in text, text
        new = (Artifact(a.name, text.replace(right, wrong).encode()) if a.name == "case.c" else a for a in artifacts)
        assert [v.what for v in verdicts((driver, tuple(new))) if v.what != "proved"] == ["refuted"], wrong
