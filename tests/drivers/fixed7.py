"""Seven fields of one control register whose place is fixed: one access each against all in one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.drivers.cases import svd
from tests.drivers.machine import Bench, build

REGISTERS = "CTRL@8: EN:0:1 PARITY:1:2 STOP:3:1 LENGTH:4:1 OVER8:5:1 TXEN:6:1 RXEN:7:1 LOOP:8:1 DIV:16:16"
OVERLAY = 'fields: {"C.CTRL.*": {plain: true}}'
GROUP = """bfGroup Uart { bit en; uint2 parity; bit stop; bit length; bit over8; bit txen; bit rxen; };
make_device(Uart, uart, 0x40000000);
"""
MERGED = (
    GROUP
    + """void setup(int parity, int length)
{
    uart->parity = parity;
    uart->stop = 1;
    uart->length = length;
    uart->over8 = 0;
    uart->txen = 1;
    uart->rxen = 1;
    uart->en = 1;
}
"""
)
SEPARATE = (
    GROUP
    + """#define BARRIER __asm__ volatile("")
void setup(int parity, int length)
{
    uart->parity = parity;
    BARRIER;
    uart->stop = 1;
    BARRIER;
    uart->length = length;
    BARRIER;
    uart->over8 = 0;
    BARRIER;
    uart->txen = 1;
    BARRIER;
    uart->rxen = 1;
    BARRIER;
    uart->en = 1;
}
"""
)


def bench(folder: Path, source: str, isa: str) -> Bench:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "chip.svd").write_text(svd(REGISTERS))
    (folder / "chip.overlay.yaml").write_text(OVERLAY)
    return build(folder, source, layout=f"fixed:{folder / 'chip.svd'}", isa=isa)


def measure(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for core, isa in (("rv32imc", "rv32imc"), ("cortex_m3", "cortex-m3")):
        for name, source in (("separate", SEPARATE), ("merged", MERGED)):
            b = bench(folder / core / name, source, isa)
            b.model.values.update(DIV=0x1234, EN=0)
            b.call("setup", 2, 3)
            state = {k: v for k, v in b.model.values.items() if v}
            assert state == {"DIV": 0x1234, "EN": 1, "PARITY": 2, "STOP": 1, "LENGTH": 1, "TXEN": 1, "RXEN": 1}, state
            suffix = "" if name == "merged" else "_separate"
            result[f"fixed7_accesses{suffix}"] = len(b.model.trace)
            result[f"fixed7_{core}_bytes{suffix}"] = b.machine.symbols["setup"][1]
            result[f"fixed7_{core}_instructions{suffix}"] = b.machine.instructions
    return result
