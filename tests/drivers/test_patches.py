"""Patch files of svdtools: each word, what they say of flags, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver
from edgebuild.driver.registers.beside import files_beside
from edgebuild.driver.registers.fixed import read_map
from edgebuild.driver.registers.regmap import FieldInfo, RegisterInfo
from tests.drivers.cases import svd

CHIP = svd(
    "U_SR@0: OVR:0:1 RDY:1:1 ERR:2:1 E_A:3:1 E_B:4:1\nU_CR@4: EN:0:1 MODE:1:2 LVL:4:3\nDR@8: D:0:8\nOLD@12: X:0:1"
)
PATCH = """
_svd: chip.svd
_modify: {name: PART, C: {name: UART}}
_copy: {UART2: {from: C, baseAddress: 0x40001000}}
_add:
  TIM: {baseAddress: 0x40002000, registers: {CNT: {addressOffset: 0, fields: {CNT: {bitOffset: 0, bitWidth: 16}}}}}
_include: [more.yaml]
"UART*":
  _strip: U_
  _delete: [OLD]
  _add: {ICR: {addressOffset: 0x10, access: write-only, fields: {OVRC: {bitOffset: 0, bitWidth: 1}}}}
  _derive: {TDR: {_from: DR, addressOffset: 0x14}}
  SR:
    _modify: {ERR: {name: FAULT, access: read-only}}
    _merge: {E: "E_*"}
    "OVR,?~NOT": {_W0C: {Clear: [0, clears]}, _read: {No: [0, none], Yes: [1, lost]}}
  "{CR,CR9}":
    _include: cr.yaml
  "?~GONE": {X: [0, 1]}
"""
MORE = "UART2: {DR: {D: {_RM: {}, _write: {}}, _modify: {D: {bitOffset: 1}}}}"
CR = "MODE: {Off: [0, no], On: [1, yes], Any: [-1, else]}\n_split: LVL\n"


def patched(folder: Path, patch: str = PATCH) -> Path:
    for name, text in (("chip.svd", CHIP), ("more.yaml", MORE), ("cr.yaml", CR), ("part.yaml", patch)):
        (folder / name).write_text(text)
    return folder / "part.yaml"


def test_each_word_changes_the_description(tmp_path: Path) -> None:
    map_ = read_map(patched(tmp_path))
    uart, second, timer = map_.blocks
    assert (map_.name, [b.name for b in map_.blocks], second.base) == ("PART", ["UART", "UART2", "TIM"], 0x40001000)
    registers: dict[str, RegisterInfo] = {r.name: r for r in uart.registers}
    assert {n: r.offset for n, r in registers.items()} == {"SR": 0, "CR": 4, "DR": 8, "ICR": 16, "TDR": 20}
    fields: dict[str, FieldInfo] = {f"{r.name}.{f.name}": f for r in uart.registers for f in r.fields}
    assert {n: (f.lsb, f.width) for n, f in fields.items()} == {
        "SR.OVR": (0, 1), "SR.RDY": (1, 1), "SR.FAULT": (2, 1), "SR.E": (3, 2), "CR.EN": (0, 1), "CR.MODE": (1, 2),
        "CR.LVL0": (4, 1), "CR.LVL1": (5, 1), "CR.LVL2": (6, 1), "DR.D": (0, 8), "ICR.OVRC": (0, 1), "TDR.D": (0, 8),
    }  # fmt: skip
    assert (fields["SR.OVR"].modified, fields["SR.FAULT"].access) == ("zeroToClear", "r")
    assert fields["CR.MODE"].values == (("Off", 0), ("On", 1)) and fields["ICR.OVRC"].access == "w"
    other = {f"{r.name}.{f.name}": f for r in second.registers for f in r.fields}
    assert (other["DR.D"].lsb, other["DR.D"].read_action, fields["DR.D"].read_action) == (1, "modify", "")
    assert timer.registers[0].fields[0].width == 16
    (tmp_path / "more.yaml").write_text(MORE.replace("bitOffset: 1", "bitOffset: 0x2"))  # a map is kept, until this
    changed = next(r for r in read_map(tmp_path / "part.yaml").blocks[1].registers if r.name == "DR")
    assert changed.fields[0].lsb == 2


def test_a_driver_uses_the_flags_of_a_patch(tmp_path: Path) -> None:
    path = patched(tmp_path)
    (tmp_path / "d.bf.c").write_text("""bfGroup Sr { bit OVR; bit RDY; }; bfGroup U { bfGroup Sr SR; };
make_device(U, u, 0x40000000); void f(void) { u->SR.OVR = 0; }""")
    artifacts, driver = compile_driver(DriverRequest((tmp_path / "d.bf.c",), "d", "mps2-an385", f"fixed:{path}"))
    assert driver.warnings == () and b"HAL_READ" not in next(a.data for a in artifacts if a.name == "d_hal.h")
    assert {Path(f).name for f in files_beside(path)} == {"chip.svd", "more.yaml", "cr.yaml"}
    assert {Path(f).name for f in driver.files} >= {"chip.svd", "more.yaml", "cr.yaml", "part.yaml"}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("A: {}", "part.yaml:1:1: error: no patch of svdtools: `_svd: FILE` is missing"),
        ("", "part.yaml: error: the file is empty"),
        ("_svd: none.svd", "none.svd: error: cannot read it"),
        ("_svd: chip.svd\nD: {}", "part.yaml:2:4: error: no peripheral is called 'D'"),
        ("_svd: chip.svd\nC: {DR: {E: [0, 1]}}", "part.yaml:2:13: error: no field is called 'E'"),
        ("_svd: chip.svd\nC: {_add: {DR: {addressOffset: 0}}}", "there is a register 'DR' already"),
        ("_svd: chip.svd\n_add: {T: {registers: {}}}", "part.yaml:2:11: error: <peripheral> 'T' without <baseAddress>"),
        ("_svd: chip.svd\nC: {DR: {D: {_W9C: {}}}}", "'_W9C'"),
        ("_svd: chip.svd\nC: {_include: [part.yaml]}", "more than 4096 files, or 20 that include one another"),
        ("_svd: chip.svd\nC: {'D*': {_include: part.yaml}, 'DR': {_include: part.yaml}}", "more than 4096 files"),
        ("_svd: chip.svd\nC: {DR: {_modify: {D: {bitWidth: 99999999}}, _split: D}}", "99999999 bits is too long"),
        ("_svd: &a [*a]", "values, 20 deep"),
        ("_svd: chip.svd\n'" + "{D,E}" * 60 + "': {}", "no peripheral is called"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported_where_it_is(patch: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(EdgebuildError, match=re.escape(message)):
        read_map(patched(tmp_path, patch))


def test_an_alias_of_many_is_refused(tmp_path: Path) -> None:
    rows = [
        "a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8]",
        *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, 8)),
    ]
    with pytest.raises(EdgebuildError, match="at most 100000 values"):
        read_map(patched(tmp_path, "\n".join(["_svd: chip.svd", *rows])))


def test_a_wrong_register_is_reported_to_who_uses_it(tmp_path: Path) -> None:
    map_ = read_map(patched(tmp_path, "_svd: chip.svd\nC: {DR: {_modify: {D: {bitWidth: x}}}}"))
    assert [(name, str(error).partition("part.yaml")[2]) for name, error in map_.mistakes] == [
        ("C.DR", ":2:34: error: <bitWidth> 'x' is not a number")
    ]
