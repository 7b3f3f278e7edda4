"""Sizes and symbols, read from the linked program."""

from __future__ import annotations

import re
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from ...base.dataclass import dataclass

HEAP = r"_?_?(malloc|calloc|realloc|free|sbrk)(_r)?"
LIBM = r"(exp|exp2|expm1|log|log2|log1p|pow|sqrt|tanh|sinh|cosh|sin|cos|tan|erf|round|frexp|ldexp|floor|ceil)[fl]?"
SOFT_DOUBLE = (
    r"__aeabi_(c?d(add|r?sub|mul|div|neg|cmp\w+|r?cmple|2\w+)|[a-z]+2d)"
    r"|__(add|sub|mul|div|neg|eq|ne|lt|le|gt|ge|unord|cmp)df[23]"
    r"|__(fix|fixuns)df[sd]i|__float(un)?[sd]idf|__extendsfdf2|__truncdfsf2"
)


@dataclass(frozen=True)
class ElfSizes:
    """Bytes. `flash` is code, constants and the image of initialised data; `ram` leaves out the stack."""

    flash: int
    ram: int
    arena: int
    weights: int
    forbidden: tuple[str, ...]  # functions that an integer network must not link


def read_sizes(elf: Path, model: str, allow_libm: bool) -> ElfSizes:
    """Measure a linked program that holds the model of this name. Sections named .debug and the like do not count."""
    with elf.open("rb") as stream:
        file = ELFFile(stream)
        flash = ram = 0
        for section in file.iter_sections():
            if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and section.name != ".stack":
                flash += section["sh_size"] if section["sh_type"] != "SHT_NOBITS" else 0
                ram += section["sh_size"] if section["sh_flags"] & SH_FLAGS.SHF_WRITE else 0
        symbols = {
            symbol.name: symbol
            for table in file.iter_sections()
            if isinstance(table, SymbolTableSection)
            for symbol in table.iter_symbols()
            if symbol["st_shndx"] != "SHN_UNDEF"
        }
    patterns = [HEAP, SOFT_DOUBLE] + ([] if allow_libm else [LIBM])
    forbidden = sorted(
        name
        for name, symbol in symbols.items()
        if symbol["st_info"]["type"] == "STT_FUNC" and any(re.fullmatch(p, name) for p in patterns)
    )
    sizes = {name: int(symbol["st_size"]) for name, symbol in symbols.items()}
    arena = sum(size for name, size in sizes.items() if re.fullmatch(rf"{model}_arena(_\w+)?", name))
    return ElfSizes(flash, ram, arena, sizes.get(f"{model}_weights", 0), tuple(forbidden))
