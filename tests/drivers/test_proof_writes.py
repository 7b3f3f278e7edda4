# ruff: noqa: E501  (C on one line reads better here)
"""The proof counts writes that have an effect, also those of the value that the field has."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.artifacts import Artifact
from tests.drivers.cases import Case

pytest.importorskip("z3")
from tests.drivers.test_proof import compiled, verdicts

SOURCE = """bfGroup S { uint4 B; }; bfGroup Cr { uint4 F; bit GO; uint4 G; };
bfGroup D { uint32 RR; bfGroup S ST; bfGroup Cr CR; };
make_device(D, d, 0x40000000);
int t(void) { d->RR = 5; d->CR.F = 1; d->RR = 5; d->CR.GO = 1; d->CR.F = 2; return d->ST.B; }
"""
REGISTERS = "RR@0: V:0:32\nST@4: B:0:4:r\nCR@8: F:0:4 GO:4:1 G:8:4"
OVERLAY = (
    "fields: {'C.RR*.*': {wse: ['C.ST.*']}, 'C.CR.[FG]': {plain: true}, 'C.CR.GO': {plain: true, wse: ['C.ST.*']}}"
)
FEED, GO = "HAL_WRITE_D_RR(d, 5);", "HAL_WRITE_D_CR_GO(d, 1);"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [(f"{FEED} H", f"{FEED} {FEED} H"), (f"{FEED} {GO}", GO), (f"{GO} H", f"{GO} {GO} H")],
    ids=["twice", "left out", "go twice"],
)
def test_a_write_of_what_is_there_counts(right: str, wrong: str, tmp_path: Path) -> None:
    """A watchdog is fed with the same value again and again; beside another field GO is put back, and that is no write."""
    driver, artifacts = compiled(Case(0, "feed", SOURCE, registers=REGISTERS, overlay=OVERLAY), tmp_path)
    assert [v for v in verdicts((driver, artifacts)) if v.what != "proved"] == []
    text = next(a for a in artifacts if a.name == "case.c").data.decode()
    assert right in text
    changed = (Artifact(a.name, text.replace(right, wrong).encode()) if a.name == "case.c" else a for a in artifacts)
    assert [v.what for v in verdicts((driver, tuple(changed)))] == ["refuted"]


def test_a_whole_register_is_stored_once(tmp_path: Path) -> None:
    """Of what was read only one field changes: a second store of it all is no store of the other fields."""
    source = """bfGroup Cr { uint4 F; bit E; uint4 G; }; bfGroup D { bfGroup Cr CR; };
make_device(D, d, 0x40000000);
void t(void) { bfGroup Cr c = d->CR; c.E = 1; d->CR = c; }
"""
    overlay = "fields: {'C.CR.*': {plain: true}}"
    driver, artifacts = compiled(Case(0, "w", source, registers="CR@0: F:0:4 E:4:1 G:8:4", overlay=overlay), tmp_path)
    assert [v.what for v in verdicts((driver, artifacts))] == ["proved"]
    text = next(a for a in artifacts if a.name == "case.c").data.decode()
    store = text[text.index("HAL_STORE") :].partition(";")[0]
    changed = tuple(
        Artifact(a.name, text.replace(store, f"{store}; {store}").encode()) if a.name == "case.c" else a
        for a in artifacts
    )
    assert [v.what for v in verdicts((driver, changed))] == ["refuted"]


def test_two_groups_of_one_kind_one_after_the_other(tmp_path: Path) -> None:
    """The register of the first holds the value that the second gets: its store was taken for one of the first."""
    source = """bfGroup Ch { bit EN; bit INV; uint2 MODE; }; bfGroup D { bfGroup Ch A; bfGroup Ch B; };
make_device(D, d, 0x40000000);
static void level(bfGroup Ch *c, int on, unsigned mode) { c->EN = on; if (mode < 4) c->MODE = mode; c->INV = !on; }
void t(unsigned a, unsigned b) { level(&d->A, a != 0, a); level(&d->B, b != 0, b); }
"""
    registers = "A@0: EN:0:1 INV:2:1 MODE:4:2\nB@20: EN:0:1 INV:2:1 MODE:4:2"
    driver, artifacts = compiled(Case(0, "two", source, registers=registers), tmp_path)
    assert {v.what for v in verdicts((driver, artifacts))} == {"proved"}
    text = next(a for a in artifacts if a.name == "case.c").data.decode()
    assert text.count("&d->B") == 1
    changed = (
        Artifact(a.name, text.replace("&d->B", "&d->A").encode()) if a.name == "case.c" else a for a in artifacts
    )
    assert [v.what for v in verdicts((driver, tuple(changed)))] == ["proved", "refuted"]
