"""Sizes of a linked program, by sections, memories and models; their sum is what binutils' `size` counts.

Each part also has a bound of its stack (`edgebuild.build.stack`). A local symbol belongs to the source before it in the
symbol table, a global one to the model or driver with whose name it begins. A source `N.c` is that of a model if the
program has `N_invoke`, and of a driver if the caller names it. All other bytes, also padding, are the rest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..base.errors import MissingTool, fail, from_os
from ..base.inputs import check_file, read_json
from ..base.target import Memory
from ..base.text import visible
from .stack import Bound, Code

REST = "rest"
TOTAL = "total"
KINDS = ("text", "data", "bss")
MAX_NAMED = 4  # most parts or symbols that are listed


@dataclass(frozen=True)
class Sizes:
    """Bytes as in `size`: code and constants, initialised data, and zeroed data."""

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
    """Sizes of a program, of its parts (which add up to it), and bytes of each part in each memory of its target.

    `stacks`: a bound for each part and for the whole program; if there are none, `TOTAL` has the reason. `symbols`:
    sizes by name, of local ones by SOURCE:NAME, for comparisons. `notes`: see `notes_of`.
    """

    total: Sizes
    parts: Mapping[str, Sizes]
    memories: Mapping[str, Mapping[str, int]]
    stacks: Mapping[str, Bound]
    symbols: Mapping[str, Sizes]
    notes: Sequence[Mapping[str, str]] = ()

    def used(self, what: str) -> int:
        """Bytes of flash, RAM or stack of the whole program."""
        return self.stacks[TOTAL].bytes if what == "stack" else int(getattr(self.total, what))


@dataclass(frozen=True)
class _Section:
    kind: str
    start: int
    size: int
    load: int  # load address of its image


@dataclass(frozen=True)
class Linked:
    """A program to analyse, with the names of its drivers and the memories of its target.

    `entry`: the function at which its stack begins; default: the program's entry. `stack_usage`: a folder with `.su`
    files. `objdump`: the disassembler; default: that of the compiler for its processor.
    """

    elf: Path
    drivers: Sequence[str] = ()
    memories: Sequence[Memory] = ()
    entry: str = ""
    stack_usage: Path | None = None
    objdump: str = ""


def program_sizes(program: Linked) -> ProgramSizes:
    """Read the sizes of a linked program. Raises EdgebuildError if it is none, or has no function `entry`."""
    with _read(program.elf) as file:
        sections = _sections(file)
        owners = dict(_owned(file, sections, program.drivers))
        symbols, notes = _symbols(file, sections), list(_notes(file))
        stacks = _stacks(program, {start: owner for (_, start, _), owner in owners.items()})
    names = [*sorted(set(owners.values())), REST]
    counts = {name: Counter[str]() for name in names}
    places = {name: Counter[str]() for name in names}
    for number, section in sections.items():
        shares = Counter[str]()
        for owner, size in _shares(section, {k: v for k, v in owners.items() if k[0] == number}):
            shares[owner] += size
        shares[REST] = section.size - shares.total()
        for owner, size in shares.items():
            counts[owner][section.kind] += size
            for memory in _memories_of(section, program.memories):
                places[owner][memory] += size
    parts = {name: Sizes(**{kind: counts[name][kind] for kind in KINDS}) for name in names}
    total = Sizes(**{kind: sum(s.size for s in sections.values() if s.kind == kind) for kind in KINDS})
    by_memory = {name: {m.name: places[name][m.name] for m in program.memories} for name in names}
    return ProgramSizes(total, parts, by_memory if program.memories else {}, stacks, symbols, notes)


@contextmanager
def _read(elf: Path) -> Iterator[Any]:
    """Open a program. Raises EdgebuildError if it is no ELF file, also for errors inside of the block."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        check_file(elf)
        with elf.open("rb") as stream:
            yield ELFFile(stream)
    except OSError as error:
        raise from_os(error, "cannot read it", str(elf)) from error
    except (ELFError, ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
        raise fail(f"not a linked program: {error}", file=str(elf), hints=["an ELF file is expected"]) from error


def _stacks(program: Linked, owners: Mapping[int, str]) -> dict[str, Bound]:
    """A bound for each part: of a model or driver, from its functions; of the rest, without these functions."""
    try:
        code = Code(program.elf, program.stack_usage, program.objdump)
    except MissingTool as error:
        return {TOTAL: Bound(0, tuple(d.hints[0] if d.hints else d.text for d in error.diagnostics))}
    named = {code.names[start]: start for start in code.starts if start in code.names}
    if program.entry and program.entry not in named:
        raise fail(f"there is no function '{program.entry}'", file=str(program.elf))
    entry = named[program.entry] if program.entry else code.entry
    stacks = {}
    for owner in sorted(set(owners.values())):
        bounds = [code.bound(start) for start in sorted(code.starts) if owners.get(start) == owner]
        reasons = tuple(dict.fromkeys(r for b in bounds for r in b.reasons))
        stacks[owner] = Bound(max((b.bytes for b in bounds), default=0), reasons)
    if entry is None or entry not in code.lines:
        return {**stacks, TOTAL: Bound(0, ("it has no code where it begins",))}
    return {**stacks, REST: code.bound(entry, frozenset(owners)), TOTAL: code.bound(entry)}


def notes_of(elf: Path) -> list[dict[str, str]]:
    """Facts about each model that `--note` wrote: its name, the digest of its file, target, version, and options.

    Raises EdgebuildError if the file is no ELF file.
    """
    with _read(elf) as file:
        return list(_notes(file))


def _notes(file: Any) -> Iterator[dict[str, str]]:
    section = file.get_section_by_name(".note.edgebuild")
    for note in section.iter_notes() if section is not None and section["sh_type"] == "SHT_NOTE" else ():
        if note["n_name"] == "edgebuild":
            lines = note["n_descdata"].decode().strip("\0").splitlines()
            yield {key: value for key, sign, value in (line.partition("=") for line in lines) if sign}


def _sized_symbols(file: Any, sections: Mapping[int, _Section]) -> Iterator[tuple[Any, str]]:
    """(function or object, the source file of a local one, or "")."""
    table = file.get_section_by_name(".symtab")
    source = ""
    for s in table.iter_symbols() if table is not None else ():
        kind = s["st_info"]["type"]
        if kind == "STT_FILE":
            source = s.name
        elif kind in ("STT_FUNC", "STT_OBJECT") and s["st_shndx"] in sections and s["st_size"]:
            yield s, source if s["st_info"]["bind"] == "STB_LOCAL" else ""


def _symbols(file: Any, sections: Mapping[int, _Section]) -> dict[str, Sizes]:
    """Sizes of functions and objects by name, of local ones by SOURCE:NAME."""
    counts: dict[str, Counter[str]] = {}
    for s, source in _sized_symbols(file, sections):
        name = f"{source}:{s.name}" if source else s.name
        counts.setdefault(name, Counter())[sections[s["st_shndx"]].kind] += s["st_size"]
    return {name: Sizes(**{kind: c[kind] for kind in KINDS}) for name, c in sorted(counts.items())}


def _sections(file: Any) -> dict[int, _Section]:
    """The sections that `size` counts, by number, classified by its rules."""
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
    """(place of a symbol, model or driver to which it belongs)."""
    symbols = list(_sized_symbols(file, sections))
    models = {s.name.removesuffix("_invoke") for s, _ in symbols if s.name.endswith("_invoke")}
    names = sorted({*models, *drivers}, key=len, reverse=True)
    for s, file_name in symbols:
        is_local = s["st_info"]["bind"] == "STB_LOCAL"
        source = re.sub(r"(_weights)?\.(c|cpp|S)$", "", file_name)
        local = source if source in names else ""
        owner = local or next((n for n in names if not is_local and s.name.startswith(f"{n}_")), "")
        if owner:
            is_thumb = s["st_info"]["type"] == "STT_FUNC" and file["e_machine"] == "EM_ARM"  # bit 0 of an address
            yield (s["st_shndx"], s["st_value"] & ~int(is_thumb), s["st_size"]), owner


def _shares(section: _Section, owners: Mapping[Place, str]) -> Iterator[tuple[str, int]]:
    """Bytes of a section by owner; a byte of two symbols counts once."""
    at = section.start
    for (_, start, size), owner in sorted(owners.items()):
        first, end = max(at, start), min(start + size, section.start + section.size)
        if end > first:
            yield owner, end - first
            at = end


def _memories_of(section: _Section, memories: Sequence[Memory]) -> Iterator[str]:
    """The memories that contain the section; for initialised data, also the memory of the image."""
    places = [section.start, *([section.load] if section.kind == "data" and section.load != section.start else [])]
    for at in places:
        yield from (m.name for m in memories if m.origin <= at < m.origin + m.size)


def as_json(sizes: ProgramSizes) -> dict[str, Any]:
    def row(name: str, s: Sizes) -> dict[str, Any]:
        bound = sizes.stacks.get(name, Bound(0, ("not known",)))
        row = {**asdict(s), "flash": s.flash, "ram": s.ram, "stack": None if bound.reasons else bound.bytes}
        more = {"stack_at_least": bound.bytes, "stack_unknown": list(bound.reasons)} if bound.reasons else {}
        return {**row, **more, **({"memories": dict(sizes.memories[name])} if name in sizes.memories else {})}

    parts = {name: row(name, part) for name, part in sizes.parts.items()}
    used = {m: sum(part[m] for part in sizes.memories.values()) for m in sizes.memories.get(REST, {})}
    symbols = {name: [s.text, s.data, s.bss] for name, s in sizes.symbols.items()}
    return {"schema": 1, **row(TOTAL, sizes.total), "parts": parts, "memories": used, "symbols": symbols,
            "notes": [*map(dict, sizes.notes)]}  # fmt: skip


def of_json(data: Any, file: str) -> ProgramSizes:
    """Read the result of `as_json`. Raises EdgebuildError for anything else."""

    def bound(row: Mapping[str, Any]) -> Bound:
        if row["stack"] is None:
            return Bound(int(row["stack_at_least"]), tuple(map(str, row["stack_unknown"])))
        return Bound(int(row["stack"]))

    def counted(row: Mapping[str, Any]) -> Sizes:
        return Sizes(*(int(row[kind]) for kind in KINDS))

    try:
        parts = {str(name): counted(row) for name, row in data["parts"].items()}
        stacks = {str(name): bound(row) for name, row in data["parts"].items()}
        symbols = {str(name): Sizes(*map(int, kinds)) for name, kinds in data["symbols"].items()}
        memories = {str(name): dict(row["memories"]) for name, row in data["parts"].items() if "memories" in row}
        notes = [{str(key): str(value) for key, value in note.items()} for note in data.get("notes", ())]
        return ProgramSizes(counted(data), parts, memories, {**stacks, TOTAL: bound(data)}, symbols, notes)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise fail("not the sizes of a program", file=file, hints=["`edgebuild size ELF --json F` writes F"]) from error


def earlier(file: Path, program: Linked) -> ProgramSizes:
    """The sizes of an earlier program, read from the program itself or from the file that `--json` wrote."""
    try:
        check_file(file)
        with file.open("rb") as stream:
            is_json = stream.read(1) == b"{"
    except OSError as error:
        raise from_os(error, "cannot read it", str(file)) from error
    if is_json:
        return of_json(read_json(file, "not the sizes of a program", "cannot read it"), str(file))
    return program_sizes(replace(program, elf=file))


def growth(what: str, now: ProgramSizes, before: ProgramSizes) -> list[str]:
    """The parts and symbols that take more flash, RAM or stack than before, the largest growth first."""
    if what == "stack":
        rows = [(n, b.bytes - before.stacks.get(n, Bound()).bytes) for n, b in now.stacks.items() if n != TOTAL]
    else:
        rows = (
            _growth_by_name(what, now.parts, before.parts)
            + _growth_by_name(what, now.symbols, before.symbols)[:MAX_NAMED]
        )
    return [f"{name} {more:+,} B" for name, more in sorted(rows, key=lambda r: -r[1])[: 2 * MAX_NAMED] if more > 0]


def _growth_by_name(what: str, now: Mapping[str, Sizes], before: Mapping[str, Sizes]) -> list[tuple[str, int]]:
    rows = [(name, getattr(s, what) - getattr(before.get(name, Sizes()), what)) for name, s in now.items()]
    return sorted(rows, key=lambda row: -row[1])


def table(sizes: ProgramSizes, base: ProgramSizes | None = None) -> str:
    """The table of a program's parts; with `base`, also each part's growth in bytes."""
    before = {} if base is None else {**base.parts, TOTAL: base.total}
    now = {**sizes.parts, TOTAL: sizes.total}
    names = [*(n for n in dict.fromkeys([*now, *before]) if n not in (REST, TOTAL)), REST, TOTAL]
    memories = list(sizes.memories.get(REST, ()))
    heads = ["", *KINDS, "flash", "ram", "stack", *memories, *(["flash +", "ram +", "stack +"] if base else [])]
    rows = [heads]
    for name in names:
        s, b = now.get(name, Sizes()), before.get(name, Sizes())
        stack = sizes.stacks.get(name, Bound(0, ("",) if name in now else ()))
        shown = "?" if stack.reasons else f"{stack.bytes:,}"
        of_memory = [f"{_in_memory(sizes, name, m):,}" for m in memories]
        more = [f"{s.flash - b.flash:+,}", f"{s.ram - b.ram:+,}", _more_stack(stack, base, name)] if base else []
        rows.append([name, *(f"{n:,}" for n in (s.text, s.data, s.bss, s.flash, s.ram)), shown, *of_memory, *more])
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
    unknown = {n: b for n, b in sizes.stacks.items() if b.reasons}
    lines += [f"stack of {n}: no bound, at least {b.bytes:,} B: {'; '.join(b.reasons)}" for n, b in unknown.items()]
    return "\n".join([*lines, *map(note_text, sizes.notes)])


def note_text(note: Mapping[str, str]) -> str:
    """A line with the facts in a model's note."""
    facts = ", ".join(f"{key} {value}" for key, value in note.items() if key != "model")
    return visible(f"{note.get('model', '?')}: {facts}")


def _in_memory(sizes: ProgramSizes, name: str, memory: str) -> int:
    rows = sizes.memories.values() if name == TOTAL else [sizes.memories.get(name, {})]
    return sum(row.get(memory, 0) for row in rows)


def _more_stack(stack: Bound, base: ProgramSizes | None, name: str) -> str:
    before = Bound() if base is None else base.stacks.get(name, Bound())
    return "?" if stack.reasons or before.reasons else f"{stack.bytes - before.bytes:+,}"
