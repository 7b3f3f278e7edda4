"""Sizes of a linked program, by sections, memories and models; together they are what binutils' `size` counts.

A local symbol belongs to the source before it in the table of symbols, a global one to the model whose name it begins
with. A source `N.c` is that of a model where the program has `N_invoke`, and of a driver where the caller names it.
All other bytes, padding among them, are the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgebuild.base.dataclass import dataclass
from edgebuild.base.errors import fail, from_os
from edgebuild.base.target import Memory

REST = "rest"
KINDS = ("text", "data", "bss")


@dataclass(frozen=True)
class Sizes:
    """Bytes, as `size` has them: code and constants, data with an image, and data without one."""

    text: int = 0
    data: int = 0
    bss: int = 0

    @property
    def flash(self) -> int:
        return self.text + self.data

    @property
    def ram(self) -> int:
        return self.data + self.bss


@dataclass(frozen=True)
class ProgramSizes:
    """Sizes of a program, of its parts, which sum up to it, and bytes in use of each memory of its target."""

    total: Sizes
    parts: Mapping[str, Sizes]
    memories: Mapping[str, int]


@dataclass(frozen=True)
class _Section:
    kind: str
    start: int
    size: int
    load: int  # where its image lies


def program_sizes(elf: Path, drivers: Sequence[str] = (), memories: Sequence[Memory] = ()) -> ProgramSizes:
    """Read the sizes of a linked program. Raises EdgebuildError for what is none."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with elf.open("rb") as stream:
            file = ELFFile(stream)
            sections = _sections(file)
            owners = dict(_owned(file, sections, drivers))
    except OSError as error:
        raise from_os(error, "cannot read it", str(elf)) from error
    except (ELFError, ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise fail(f"not a linked program: {error}", file=str(elf), hints=["an ELF file is expected"]) from error
    counts = {kind: sum(s.size for s in sections.values() if s.kind == kind) for kind in KINDS}
    parts = {owner: Counter[str]() for owner in sorted(set(owners.values()))}
    for number, section in sections.items():
        for owner, size in _shares(section, {k: v for k, v in owners.items() if k[0] == number}):
            parts[owner][section.kind] += size
    rest = {kind: counts[kind] - sum(part[kind] for part in parts.values()) for kind in KINDS}
    named = {owner: Sizes(**{kind: part[kind] for kind in KINDS}) for owner, part in parts.items()}
    return ProgramSizes(Sizes(**counts), {**named, REST: Sizes(**rest)}, _in_memories(sections, memories))


def _sections(file: Any) -> dict[int, _Section]:
    """The sections that `size` counts, by number, with its rules."""
    loads = [s for s in file.iter_segments() if s["p_type"] == "PT_LOAD"]
    sections = {}
    for number, section in enumerate(file.iter_sections()):
        flags, start, size = section["sh_flags"], section["sh_addr"], section["sh_size"]
        if not flags & 2 or not size:  # SHF_ALLOC
            continue
        has_image = section["sh_type"] != "SHT_NOBITS"
        kind = "text" if flags & 4 or not flags & 1 else "data" if has_image else "bss"  # SHF_EXECINSTR, SHF_WRITE
        inside = (s for s in loads if s["p_vaddr"] <= start < s["p_vaddr"] + max(s["p_memsz"], 1))
        segment = next(inside, None)
        load = start if segment is None else segment["p_paddr"] + start - segment["p_vaddr"]
        sections[number] = _Section(kind, start, size, load)
    return sections


Place = tuple[int, int, int]  # section, first address, size


def _owned(file: Any, sections: Mapping[int, _Section], drivers: Sequence[str]) -> Iterator[tuple[Place, str]]:
    """Places of symbols, and the model or driver that each belongs to."""
    table = file.get_section_by_name(".symtab")
    symbols = list(table.iter_symbols()) if table is not None else []
    models = {s.name.removesuffix("_invoke") for s in symbols if s.name.endswith("_invoke") and s["st_size"]}
    names = sorted({*models, *drivers}, key=len, reverse=True)
    source = ""
    for s in symbols:
        kind, bind = s["st_info"]["type"], s["st_info"]["bind"]
        if kind == "STT_FILE":
            source = re.sub(r"(_weights)?\.(c|cpp|S)$", "", s.name)
        if kind not in ("STT_FUNC", "STT_OBJECT") or s["st_shndx"] not in sections or not s["st_size"]:
            continue
        local = source if bind == "STB_LOCAL" and source in names else ""
        owner = local or next((n for n in names if bind != "STB_LOCAL" and s.name.startswith(f"{n}_")), "")
        if owner:
            start = s["st_value"] & ~1 if kind == "STT_FUNC" and file["e_machine"] == "EM_ARM" else s["st_value"]
            yield (s["st_shndx"], start, s["st_size"]), owner


def _shares(section: _Section, owners: Mapping[Place, str]) -> Iterator[tuple[str, int]]:
    """Bytes of a section by owner; a byte of two symbols counts once."""
    at = section.start
    for (_, start, size), owner in sorted(owners.items()):
        first, end = max(at, start), min(start + size, section.start + section.size)
        if end > first:
            yield owner, end - first
            at = end


def _in_memories(sections: Mapping[int, _Section], memories: Sequence[Memory]) -> dict[str, int]:
    used = {}
    for memory in memories:
        end = memory.origin + memory.size
        ranges = [(s.start, s.size) for s in sections.values()]
        ranges += [(s.load, s.size) for s in sections.values() if s.kind == "data" and s.load != s.start]
        used[memory.name] = sum(size for at, size in ranges if memory.origin <= at < end)
    return used


def as_json(sizes: ProgramSizes) -> dict[str, Any]:
    def row(s: Sizes) -> dict[str, int]:
        return {**asdict(s), "flash": s.flash, "ram": s.ram}

    parts = {name: row(part) for name, part in sizes.parts.items()}
    return {"schema": 1, **row(sizes.total), "parts": parts, "memories": dict(sizes.memories)}


def table(sizes: ProgramSizes, base: ProgramSizes | None = None) -> str:
    """Rows of a program's parts; with `base`, how many bytes each has more than there."""
    before = {} if base is None else {**base.parts, "total": base.total}
    now = {**sizes.parts, "total": sizes.total}
    names = [*(n for n in dict.fromkeys([*now, *before]) if n not in (REST, "total")), REST, "total"]
    heads = ["", *KINDS, "flash", "ram", *(["flash +", "ram +"] if base else [])]
    rows = [heads]
    for name in names:
        s, b = now.get(name, Sizes()), before.get(name, Sizes())
        more = [f"{s.flash - b.flash:+,}", f"{s.ram - b.ram:+,}"] if base else []
        rows.append([name, *(f"{n:,}" for n in (s.text, s.data, s.bss, s.flash, s.ram)), *more])
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
    return "\n".join([*lines, *(f"{name}: {used:,} B in use" for name, used in sizes.memories.items())])
