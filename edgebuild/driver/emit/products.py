"""Products of a driver: C, headers, register descriptions and the report."""

from __future__ import annotations

from edgebuild.base.artifacts import Artifact
from edgebuild.base.target import hal_dir
from edgebuild.base.templates import BIG_ENDIAN
from edgebuild.base.text import quoted
from edgebuild.driver.emit import export, report
from edgebuild.driver.emit.hal import LICENCE, Hal, support_structs
from edgebuild.driver.emit.rewrite import rewrite
from edgebuild.driver.source.sources import file_names
from edgebuild.driver.stages import Driver


def produce(name: str, driver: Driver) -> tuple[Artifact, ...]:
    hal = Hal(driver.layout)
    body = rewrite(driver.source, driver.dialect, driver.cdfg, driver.merged, hal)
    said = report.as_dict(name, driver)
    text = f'{LICENCE}#include "{name}_hal.h"\n{file_names(driver.source.lines)}{body}'
    files = {
        ".cpp" if driver.source.unit.cpp else ".c": text,
        "_hal.h": _hal_header(name, hal),
        "_regs.h": export.c_header(name, driver),
        "_systemc.h": export.systemc(name, driver),
        ".svd": export.svd(name, driver),
        ".rdl": export.rdl(name, driver),
        "_report.json": report.as_json(said),
        "_report.txt": report.as_text(said, driver),
    }
    return tuple(Artifact(name + suffix, text.encode()) for suffix, text in files.items())


def _byte_order(name: str) -> str:
    """Whole registers are the same words to all processors, but parts of them lie at other addresses in big endian."""
    text = f"{name}_hal.h accesses bytes of registers in little endian; no big-endian processor runs it"
    return f"#if {BIG_ENDIAN}\n#error {quoted(text)}\n#endif\n\n"


def _hal_header(name: str, hal: Hal) -> str:
    guard = f"{name.upper()}_HAL_H"
    words = (hal_dir() / "include" / "edgebuild_words.h").read_text()
    return (
        f"{LICENCE}#ifndef {guard}\n#define {guard}\n\n"
        f"{_byte_order(name) if hal.layout.bus.bytes else ''}{words}\n"
        f"/* Groups inside of groups at their places. Fields are reached through the functions below. */\n"
        f"{support_structs(hal.layout)}\n{hal.text()}\n#endif\n"
    )
