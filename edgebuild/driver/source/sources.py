"""From files to one text: sources one after the other, headers with groups in place, macros around accesses expanded.

One text has one set of positions, so that everything after this works on byte offsets. `#line` keeps the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from clang.cindex import Cursor, CursorKind

from edgebuild.base.errors import fail
from edgebuild.base.request import CPP_SUFFIXES
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect, group_of, read_dialect

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">][^\n]*$', re.M)
DIALECT = re.compile(r"\b(bfGroup|make_device)\b")
ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[^\n]*$", re.M)
MACROS = re.compile(rb"^[ \t]*#[ \t]*(define|include)\b|\bbf_write\b", re.M)


@dataclass(frozen=True)
class LineMark:
    """`#line`: the number and the file of the line behind it. Generated code names the file without its folder."""

    number: int
    file: str

    def __str__(self) -> str:
        return f'#line {self.number} "{self.file}"'

    @property
    def bare(self) -> str:
        """The same bytes wherever the file lies."""
        return str(LineMark(self.number, Path(self.file).name))


@dataclass(frozen=True)
class Lined:
    """Pieces of files, one after the other, with `#line` between them."""

    pieces: tuple[bytes | LineMark, ...]

    @cached_property
    def data(self) -> bytes:
        return b"".join(p if isinstance(p, bytes) else str(p).encode() for p in self.pieces)

    @cached_property
    def lines(self) -> tuple[tuple[int, int, LineMark], ...]:
        """Where each `#line` begins and ends."""
        found, at = list[tuple[int, int, LineMark]](), 0
        for piece in self.pieces:
            end = at + len(piece if isinstance(piece, bytes) else str(piece).encode())
            if isinstance(piece, LineMark):
                found.append((at, end, piece))
            at = end
        return tuple(found)

    def part(self, start: int, end: int) -> list[bytes | LineMark]:
        """The pieces between two places, neither of which is inside of a `#line`."""
        out, at = list[bytes | LineMark](), start
        for first, past, line in self.lines:
            if start <= first and past <= end:
                out += [self.data[at:first], line]
                at = past
        return [*out, self.data[at:end]]


@dataclass(frozen=True)
class Source:
    """The first stage: a parsed unit and what it declares. `files`: all that was read, the sources first."""

    unit: clang.Unit
    dialect: Dialect
    files: tuple[str, ...]
    lines: tuple[tuple[int, int, LineMark], ...]  # each `#line` of the unit's text: where it begins and ends


def read_sources(sources: Sequence[Path], triple: str, options: tuple[str, ...] = ()) -> Source:
    """`options`: -I, -D and -include of a C preprocessor.

    Raises EdgebuildError if a file cannot be read or is not valid C.
    """
    cpp = _is_cpp(sources)
    reader = _Reader([Path(b) for a, b in pairwise(options) if a == "-I"])
    text = Lined(tuple(piece for path in sources for piece in reader.read(path)))
    folders = list(dict.fromkeys(str(p.parent) for p in sources))
    flags = (*(word for f in folders for word in ("-I", f)), *options)
    name = str(sources[0])
    unit = clang.parse(name, text.data, triple, flags, cpp)
    dialect = read_dialect(unit)
    if MACROS.search(text.data):
        expanded = _expanded(unit, dialect, text)
        if expanded.data != text.data:
            text = _with_lines(unit, clang.parse(name, expanded.data, triple, flags, cpp), expanded)
            unit = clang.parse(name, text.data, triple, flags, cpp)
            dialect = read_dialect(unit)
    files = dict.fromkeys([*map(str, reader.files), *unit.files])
    return Source(unit, dialect, tuple(files), text.lines)


def _is_cpp(sources: Sequence[Path]) -> bool:
    """Whether the sources are C++. Raises EdgebuildError where they are of two languages, or of another one."""
    for path in sources:
        if path.suffix not in (".c", *CPP_SUFFIXES):
            text = f"'{path.name}' is not a driver source; C files end in .c, and C++ in .cpp, .cc or .cxx"
            raise fail(text, file=str(path))
    found = {path.suffix in CPP_SUFFIXES for path in sources}
    if len(found) > 1:
        raise fail("C and C++ in one driver: make it two drivers", file=str(sources[0]))
    return found == {True}


class _Reader:
    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders
        self.files: list[Path] = []
        self.once: set[Path] = set()

    def read(self, path: Path) -> Iterable[bytes | LineMark]:
        """The file's text with `#line` in front; headers that have to do with groups are in it."""
        text = _load(path)
        if path not in self.files:
            self.files.append(path)
        if ONCE.search(text):
            if path in self.once:
                return
            self.once.add(path)
            text = ONCE.sub("", text)
        text = _long_words(text)
        yield LineMark(1, str(path))
        yield b"\n"
        at = 0
        for match in INCLUDE.finditer(text):
            header = self._header(path, match)
            if header is None:
                continue
            yield text[at : match.start()].encode()
            at = match.end()
            if Path(match[1]).name == clang.SUPPORT:
                continue  # stands in front of everything already
            yield from self.read(header)
            yield b"\n"
            yield LineMark(text.count("\n", 0, match.start()) + 1, str(path))
            yield b"\n"
        yield text[at:].encode() + (b"\n" if not text.endswith("\n") else b"")

    def _header(self, path: Path, match: re.Match[str]) -> Path | None:
        """The file that an `#include` names, if it takes the place of the line."""
        places = [path.parent, *self.folders] if '"' in match[0] else self.folders
        header = next((p / match[1] for p in places if (p / match[1]).is_file()), path.parent / match[1])
        return header if Path(match[1]).name == clang.SUPPORT or _has_groups(header, set()) else None


GROUP = re.compile(r"\bbfGroup\s+\w+\s*\{[^}]*\}")
SHORT = re.compile(r"\b(?:(?:ro|wo|w1c|w1s|w0c|rc)(?=\s+\w)|reset(?=\s*\())")


def _long_words(text: str) -> str:
    """The text with the short words of the dialect written out in groups; elsewhere they are names like any other."""
    return GROUP.sub(lambda group: SHORT.sub(r"bf_\g<0>", group[0]), text)


def _has_groups(header: Path, seen: set[Path]) -> bool:
    """Whether a header speaks the dialect, or includes one that does."""
    if header in seen or not header.is_file():
        return False
    seen.add(header)
    text = _load(header)
    return bool(DIALECT.search(text)) or any(
        _has_groups(header.parent / m[1], seen) for m in INCLUDE.finditer(text) if Path(m[1]).name != clang.SUPPORT
    )


def _load(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise fail(f"cannot read it: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise fail("is not UTF-8 text", file=str(path)) from error


def _expanded(unit: clang.Unit, dialect: Dialect, text: Lined) -> Lined:
    """The text with each function printed without macros in which an access comes out of one."""
    pieces, at = list[bytes | LineMark](), 0
    for f in unit.functions:
        if not _access_in_macro(f, dialect):
            continue
        start, end = clang.span(f)
        first, last = clang.place(f.extent.start), clang.place(f.extent.end)
        printed = f"\n{clang.pretty(f)}\n".encode()
        pieces += [*text.part(at, start), b"\n", LineMark(first.line, first.file), printed]
        pieces += [LineMark(last.line, first.file), b"\n"]
        at = end
    return Lined((*pieces, *text.part(at, len(text.data))))


def _with_lines(unit: clang.Unit, printed: clang.Unit, text: Lined) -> Lined:
    """The printed text with `#line` in front of each statement that is no longer on the line of the source."""
    places: dict[int, clang.Place] = {}
    for f, g in zip(unit.functions, printed.functions, strict=False):
        before, after = _statements(f), _statements(g)
        if f.spelling != g.spelling or len(before) != len(after):
            continue
        for x, y in zip(before, after, strict=True):
            at = clang.span(y)[0]
            start = printed.text.rfind(b"\n", 0, at) + 1
            here, there = clang.place(x.extent.start), clang.place(y.extent.start)
            if not printed.text[start:at].strip() and (here.file, here.line) != (there.file, there.line):
                places.setdefault(start, here)
    pieces, last = list[bytes | LineMark](), 0
    for start, here in sorted(places.items()):
        pieces += [*text.part(last, start), LineMark(here.line, here.file), b"\n"]
        last = start
    return Lined((*pieces, *text.part(last, len(text.data))))


def _statements(f: Cursor) -> list[Cursor]:
    """The statements of a function's blocks, in the order of the text."""
    blocks = (c for c in clang.preorder(f) if c.kind == CursorKind.COMPOUND_STMT)
    return [s for block in blocks for s in clang.children(block)]


def _access_in_macro(f: Cursor, dialect: Dialect) -> bool:
    for c in clang.preorder(f):
        if c.kind in (CursorKind.MEMBER_REF_EXPR, CursorKind.ARRAY_SUBSCRIPT_EXPR):
            decl = c.referenced
            mine = (
                decl is not None
                and decl.semantic_parent is not None
                and decl.semantic_parent.spelling in dialect.groups
            )
            if (mine or group_of(c.type, dialect)[0]) and clang.from_macro(c):
                return True
        elif c.kind in OPERATORS and clang.from_macro_start(c) and _has_field(c, dialect):
            return True
    return False


OPERATORS = (CursorKind.BINARY_OPERATOR, CursorKind.COMPOUND_ASSIGNMENT_OPERATOR, CursorKind.UNARY_OPERATOR)


def _has_field(c: Cursor, dialect: Dialect) -> bool:
    return any(
        x.kind == CursorKind.MEMBER_REF_EXPR
        and x.referenced is not None
        and x.referenced.semantic_parent.spelling in dialect.groups
        for x in clang.preorder(c)
    )
