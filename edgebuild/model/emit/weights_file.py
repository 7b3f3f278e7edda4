"""The weights file, and the sources that give the file and the arena their sections.

The file: 16 bytes of header, then the constants, each at a multiple of 4, or of 8 if its numbers have
64 bits. Header words, little endian: magic "EBW1", size of the file, a hash of the constants' layout (a
program refuses weights that were packed for another), CRC-32 of all that follows the header."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from ... import __version__
from ...base.levels import CACHE_LINE
from ...base.target import LISTS
from ...base.templates import render
from ...base.text import quoted
from ..ir import ITEM_BYTES, Array
from ..ops.base import Constant
from ..plan.search import Plan

HEADER, ALIGN, MAGIC = 16, 4, b"EBW1"
UNSHOWN = ("source", "name", "target", "note")  # fields of a request that are no options, or that notes omit
OCTAL = [f"\\{byte:03o}" for byte in range(256)]  # escapes of a C string


@dataclass(frozen=True)
class Weights:
    """The packed file, and the offset in bytes of each constant, by its type and bytes."""

    blob: bytes
    offsets: dict[tuple[str, bytes], int]

    def offset(self, constant: Constant) -> int:  # raises KeyError for constants that were not packed
        return self.offsets[_key(constant.data)]

    @property
    def linked_bytes(self) -> int:
        """Bytes of the file in the program: 0 without constants, because nothing refers to it."""
        return len(self.blob) if self.offsets else 0

    @property
    def constant_bytes(self) -> int:
        return len(self.blob) - HEADER if self.offsets else 0


def _key(data: Array) -> tuple[str, bytes]:
    return str(data.dtype), np.ascontiguousarray(data, data.dtype.newbyteorder("<")).tobytes()


def pack(constants: Iterable[Constant], align: int = ALIGN) -> Weights:
    """Pack the constants in order, equal ones once, each at a multiple of `align` bytes."""
    body, offsets = bytearray(), dict[tuple[str, bytes], int]()
    plan = hashlib.sha256()
    for constant in constants:
        key = _key(constant.data)
        if key not in offsets:
            body += bytes(-(HEADER + len(body)) % max(align, constant.data.itemsize))
            offsets[key] = HEADER + len(body)
            body += key[1]
        plan.update(f"{constant.name} {key[0]} {constant.data.shape} {offsets[key]}\n".encode())
    header = struct.pack("<4sI4sI", MAGIC, HEADER + len(body), plan.digest()[:4], zlib.crc32(bytes(body)))
    return Weights(header + bytes(body), offsets)


def bound_to(weights: Weights, code: str) -> Weights:
    """Weights whose hash covers the C, too, because it has numbers of the model: zero points, small constants."""
    digest = hashlib.sha256(weights.blob[8:12] + code.encode()).digest()[:4]
    return replace(weights, blob=weights.blob[:8] + digest + weights.blob[12:])


def uses_assembly(plan: Plan) -> bool:
    choice = plan.request.weights
    return (plan.target.weights if choice == "auto" else choice) == "asm"


def arenas(plan: Plan) -> dict[str, tuple[str, int]]:
    """Symbol and bytes of the arena in every memory that the plan uses; none if the caller provides it."""
    if plan.request.arena == "caller":
        return {}
    used = [m for m, height in plan.layout.heights.items() if height]
    return {m: (s, plan.layout.heights[m]) for m, s in zip(used, arena_symbols(plan.name, used), strict=True)}


def arena_symbols(name: str, memories: Iterable[str]) -> list[str]:
    """C symbols of a model's arenas in these memories."""
    return [f"{name}_arena_{m.lower()}" if i else f"{name}_arena" for i, m in enumerate(memories)]


def sections(plan: Plan) -> list[tuple[str, str, int, str]]:
    """Memory, symbol, bytes and input section of each arena; none if it is part of another.

    The section is `.bss.edgebuild.N.arena`, or that with the memory's name appended. The prefix lets linker scripts
    without knowledge of edgebuild place it with `*(.bss.*)`, before their heap.
    """
    shared = plan.request.arena == "shared"
    return sections_of(plan.name, {} if shared else {m: size for m, (_, size) in arenas(plan).items()})


def sections_of(name: str, heights: Mapping[str, int]) -> list[tuple[str, str, int, str]]:
    """Sections of arenas with these sizes by memory; the first has the plain name."""
    first = f".bss.edgebuild.{name}.arena"
    symbols = zip(heights.items(), arena_symbols(name, heights), strict=True)
    return [(m, symbol, size, f"{first}.{m.lower()}" if i else first) for i, ((m, size), symbol) in enumerate(symbols)]


def _view(plan: Plan, sha256: str) -> dict[str, object]:
    shown = [(symbol, size, section) for _, symbol, size, section in sections(plan)]
    view = {"name": plan.name, "file": plan.file, "arenas": shown, "align": weights_align(plan)}
    return {**view, "note": _note(plan, sha256) if plan.request.note else ()}


def _note(plan: Plan, sha256: str) -> list[str]:
    """An ELF note (owner `edgebuild`, type 1) in assembler, with a line for each input and option of the model.

    The section is not loaded, so it takes no memory, and `strip -R .note.edgebuild` removes it.
    """
    given = {f.name: getattr(plan.request, f.name) for f in fields(plan.request) if f.name not in UNSHOWN}
    changed = {f.name for f in fields(plan.request) if f.name in given and given[f.name] != f.default}
    options = [f"{name}={v.name if isinstance(v, Path) else v}" for name, v in given.items() if name in changed]
    rows = [f"model={plan.name}", f"sha256={sha256}", f"target={plan.target.name}", f"tool=edgebuild {__version__}"]
    lines = [f".ascii {quoted(row + chr(10))}" for row in [*rows, *options]]
    head = ['section ".note.edgebuild","",%note', ".balign 4", ".long 2f-1f, 4f-3f, 1", '1: .asciz "edgebuild"']
    return [*head, "2: .balign 4", "3:", *lines, "4: .balign 4"]


def weights_align(plan: Plan) -> int:
    """Alignment in bytes of weights and arenas."""
    lines = CACHE_LINE if any(m.cached for m in plan.target.memories) else 1
    return max(16, lines, plan.target.dma_align) if plan.moves else 16


def assembly(plan: Plan, weights: Weights, sha256: str) -> str:
    """Assembler for no preprocessor, so that its macros and files that a project includes everywhere do not matter."""
    native = plan.target.core.isa == "native"  # only these linkers need objects to say that the stack is not executable
    view = _view(plan, sha256)
    return render("weights:S", used=uses_assembly(plan), weights=bool(weights.offsets), native=native, **view)


def portable(plan: Plan, weights: Weights, sha256: str) -> str:
    """Weights and arenas in C, for compilers without `.incbin`; strings compile ten times faster than lists."""
    used = not uses_assembly(plan)
    rows = [weights.blob[i : i + 32] for i in range(0, len(weights.blob), 32)] if used and weights.offsets else []
    lines = ["".join(map(OCTAL.__getitem__, row)) for row in rows]
    return render("weights:c", used=used, lines=lines, **_view(plan, sha256))


# Linker scripts of a model: one places weights and arenas in the memories of the plan, one checks other scripts.


def fragment(plan: Plan) -> str:
    """The linker script for the plan's memories; only a comment if the target has no firmware to link."""
    return render(
        "linker:memory",
        name=plan.name,
        file=plan.file,
        used=plan.target.firmware is not None,
        weights_memory=plan.weights_memory,
        arenas=sections(plan),
    )


def check(plan: Plan) -> str:
    """Assertions that the user's linker script places arenas, state and DMA lists; only a comment on the host."""
    lists = [".bss.edgebuild.lists"] if any(LISTS in m.roles for m in plan.target.memories) else []
    return render(
        "linker:check",
        name=plan.name,
        file=plan.file,
        used=plan.target.core.isa != "native",  # native linkers take no scripts
        arrays=[(symbol, max(ALIGN, ITEM_BYTES[plan.graph.tensors[n].dtype])) for n, symbol in plan.graph.arrays],
        sections=[*(section for _, _, _, section in sections(plan)), f".bss.edgebuild.{plan.name}.state", *lists],
    )
