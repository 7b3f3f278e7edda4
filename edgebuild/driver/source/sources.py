"""From files to one text: sources one after the other, headers with groups in place, macros around accesses expanded.

One text has one set of positions, so that everything after this works on byte offsets. `#line` keeps the user's own.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from zlib import crc32

from edgebuild.base.dataclass import dataclass
from edgebuild.base.errors import caret, fail
from edgebuild.base.inputs import TEXT, read_bytes, read_text
from edgebuild.base.request import CPP_SUFFIXES
from edgebuild.base.text import quoted
from edgebuild.driver.source import clang, macros
from edgebuild.driver.source.dialect import Dialect, Offset, check_memory, read_dialect, read_offsets
from edgebuild.driver.source.hidden import no_hidden_uses, no_unread_uses
from edgebuild.driver.source.lowering import Program
from edgebuild.driver.source.reach import check_headers

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">][^\n]*$', re.M)
DIALECT = re.compile(r"\b(bfGroup|make_device)\b")
Parse = Callable[[str, bytes], clang.Unit]
ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[^\n]*$", re.M)
DEEPEST, MOST = 200, 10_000  # headers in one another, as compilers have it, and in all
MACROS = re.compile(rb"^[ \t]*#[ \t]*(define|include)\b|\bbf_write\b", re.M)


@dataclass(frozen=True)
class LineMark:
    """`#line`: the number and the file of the line behind it. Generated code has a macro for the file."""

    number: int
    file: str

    def __str__(self) -> str:
        return f"#line {self.number} {quoted(self.file)}"

    @property
    def bare(self) -> str:
        """The same bytes wherever the file lies: a macro for its name (`file_names`), which a build may define."""
        return f"#line {self.number} {file_macro(self.file)}"


def file_macro(file: str) -> str:
    """The macro of a file's name. Of names that differ in other characters only, the checksum tells which it is."""
    name = Path(file).name
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"EB_FILE_{plain}" if plain == name.replace(".", "_") else f"EB_FILE_{plain}_{crc32(os.fsencode(name)):08x}"


def file_names(lines: Sequence[tuple[int, int, LineMark]]) -> str:
    """Definitions of the macros for files, for the head of generated code: their names without folders."""
    names = dict.fromkeys(Path(line.file).name for _, _, line in lines)
    define = "#ifndef {0} /* a build defines it as the path */\n#define {0} {1}\n#endif\n"
    return "".join(define.format(file_macro(name), quoted(name)) for name in names)


def path_flags(lines: Sequence[tuple[int, int, LineMark]]) -> str:
    """Options of gcc and clang that define these macros as paths of this machine, one on a line of an `@file`.

    Compilers then name files that editors open, and debuggers find them; `__FILE__` stays as it is without. Of two
    files of one name nothing is said.
    """
    paths = {line.file: os.path.abspath(line.file) for _, _, line in lines}
    counts = Counter(map(file_macro, paths))
    flags = []
    for file, path in paths.items():
        if counts[file_macro(file)] == 1:
            flags.append(f"-D{file_macro(file)}={quoted(path)}")
            flags += [f"-fmacro-prefix-map={path}={Path(file).name}"] if "=" not in path else []
    words = (re.sub(r'(["\\])', r"\\\1", flag) for flag in flags)
    return "".join(f'"{word}"\n' for word in words)


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

    def mark(self, at: int) -> LineMark:
        """The line of a place that is behind a `#line`."""
        _, end, line = [x for x in self.lines if x[1] <= at][-1]
        return LineMark(line.number + self.data.count(b"\n", end, at) - 1, line.file)

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
    offsets: tuple[Offset, ...] = ()

    @cached_property
    def program(self) -> Program:
        """The unit as typed values."""
        return Program(self.unit)


def read_sources(sources: Sequence[Path], triple: str, options: tuple[str, ...] = ()) -> Source:
    """`options`: -I, -D and -include of a C preprocessor.

    Raises EdgebuildError if a file cannot be read or is not valid C.
    """
    cpp = _is_cpp(sources)
    given = {re.split(r"[=(]", o[2:])[0] for o in options if o.startswith("-D")}
    check_macros([(p, read_text(p)) for p in sources] if len(sources) > 1 else [], given)
    places = [Path(b) for a, b in pairwise(options) if a == "-I"]
    name, flags = str(sources[0]), _flags(sources, options)
    front = [Path(b) for a, b in pairwise(options) if a == "-include"]
    check_headers([*sources, *front], places, partial(_preprocess, sources, triple, flags, cpp))
    reader = _Reader(places)
    text = Lined(tuple(piece for path in sources for piece in reader.read(path)))
    unit = clang.parse(name, text.data, triple, flags, cpp)
    dialect = read_dialect(unit)
    if MACROS.search(text.data):
        parse = partial(clang.parse, triple=triple, flags=flags, cpp=cpp)
        expanded = _without_macros(name, unit, dialect, text, parse)
        if expanded is not text:
            text, unit = expanded, parse(name, expanded.data)
            dialect = read_dialect(unit)
    if cpp:
        again = (*flags, "-ferror-limit=0")
        no_hidden_uses(unit, dialect, partial(clang.parse, name, triple=triple, flags=again, cpp=True, wrong=True))
    files = dict.fromkeys([*map(str, reader.files), *unit.files])
    check_memory(unit, dialect)
    offsets = read_offsets(unit, dialect)
    if cpp:
        no_unread_uses(unit, dialect)
    return Source(unit, dialect, tuple(files), text.lines, offsets)


def _flags(sources: Sequence[Path], options: tuple[str, ...]) -> tuple[str, ...]:
    folders = dict.fromkeys(str(p.parent) for p in sources)
    return (*(word for f in folders for word in ("-I", f)), *options)


def _preprocess(sources: Sequence[Path], triple: str, flags: tuple[str, ...], cpp: bool) -> None:
    """Read the sources as they are, whatever is wrong in them."""
    for path in sources:
        text = f'#include "{os.path.abspath(path)}"\n'.encode()
        clang.parse("edgebuild_reach.c", text, triple, (*flags, "-ferror-limit=0"), cpp, wrong=True)


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
        self.once: set[str] = set()
        self.open: list[str] = []  # the file that is being read, and those that include it
        self.bytes = self.headers = 0

    def read(self, path: Path) -> Iterator[bytes | LineMark]:
        """The file's text with `#line` in front; headers that have to do with groups are in it."""
        real, text = os.path.realpath(path), read_text(path)
        if path not in self.files:
            self.files.append(path)
        if ONCE.search(text):
            if real in self.once:
                return
            self.once.add(real)
            text = ONCE.sub("", text)
        self.bytes, self.headers = self.bytes + len(text), self.headers + 1
        if self.bytes > TEXT or self.headers > MOST:
            raise fail(f"more than {TEXT >> 20} MiB or {MOST} headers are included", file=str(path))
        self.open.append(real)
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
            line = text.count("\n", 0, match.start()) + 1
            yield from self._included(header, path, line)
            yield b"\n"
            yield LineMark(line, str(path))
            yield b"\n"
        yield text[at:].encode() + (b"\n" if not text.endswith("\n") else b"")
        self.open.pop()

    def _included(self, header: Path, path: Path, line: int) -> Iterator[bytes | LineMark]:
        """The text of a header in place of line `line` of `path`.

        A header that is being read already has guards, which Clang evaluates: it gets a line that includes the file.
        """
        if os.path.realpath(header) in self.open:
            yield f'#include "{os.path.abspath(header)}"'.encode()
        elif len(self.open) >= DEEPEST:
            raise fail(f"headers include one another more than {DEEPEST} deep", file=str(path), line=line)
        else:
            yield from self.read(header)

    def _header(self, path: Path, match: re.Match[str]) -> Path | None:
        """The file that an `#include` names, if it takes the place of the line."""
        places = [path.parent, *self.folders] if '"' in match[0] else self.folders
        header = next((p / match[1] for p in places if (p / match[1]).is_file()), path.parent / match[1])
        return header if Path(match[1]).name == clang.SUPPORT or _has_groups(header) else None


GROUP = re.compile(r"\bbfGroup(?:\s+\w+)?\s*\{")  # one without a name is refused later
SHORT = re.compile(r"\b(?:(?:ro|wo|w1c|w1s|w0c|rc)(?=\s+\w)|reset(?=\s*\())")


def _long_words(text: str) -> str:
    """The text with the short words of the dialect written out in groups; elsewhere they are names like any other."""
    out, at = list[str](), 0
    for group in GROUP.finditer(text):
        if group.start() >= at:
            end = _closed(text, group)
            out += [text[at : group.start()], SHORT.sub(r"bf_\g<0>", text[group.start() : end])]
            at = end
    return "".join([*out, text[at:]])


def _closed(text: str, group: re.Match[str]) -> int:
    """The place behind the brace that closes a group, which may have groups inside."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, group.end()):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    return group.end()


def _has_groups(header: Path) -> bool:
    """Whether a header speaks the dialect, or includes one that does."""
    seen, todo = set[str](), [header]
    while todo:
        path = todo.pop()
        if (real := os.path.realpath(path)) in seen or not path.is_file():
            continue
        seen.add(real)
        text = read_bytes(path).decode("utf-8", "replace")  # one that stays a header may be in any encoding
        if DIALECT.search(text):
            return True
        todo += [path.parent / m[1] for m in INCLUDE.finditer(text) if Path(m[1]).name != clang.SUPPORT]
    return False


def _without_macros(name: str, unit: clang.Unit, dialect: Dialect, text: Lined, parse: Parse) -> Lined:
    """The text with the statements printed in which an access comes out of a macro."""
    functions = macros.functions_to_print(unit, dialect)
    if not functions:
        return text
    pieces = [macros.whole(f, text.data) for f in functions]
    printed = parse(name, _replaced(text, pieces).data)
    found = {g.get_usr(): g for g in printed.functions}
    return _replaced(
        text, [p for f in functions for p in macros.statements(f, found[f.get_usr()], unit, printed, dialect)]
    )


def _replaced(text: Lined, printed: list[macros.Printed]) -> Lined:
    pieces, at = list[bytes | LineMark](), 0
    for p in printed:
        pieces += [*text.part(at, p.start)]
        if p.hidden:
            pieces += [b"\n", *(f'#pragma push_macro("{n}")\n#undef {n}\n'.encode() for n in p.hidden)]
            pieces += [text.mark(p.start), b"\n"]
        pieces += [p.text.encode()]
        if p.hidden:
            pieces += [b"\n", *(f'#pragma pop_macro("{n}")\n'.encode() for n in p.hidden), text.mark(p.end), b"\n"]
        at = p.end
    return Lined((*pieces, *text.part(at, len(text.data))))


# ---- sources of one driver are one unit, so a macro of one must not change what another one means


DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n\\]|\\.|\\\n)*)", re.M)
UNDEF = re.compile(r"^[ \t]*#[ \t]*undef[ \t]+(\w+)", re.M)
TEST = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b([^\n]*)", re.M)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def check_macros(texts: Sequence[tuple[Path, str]], given: Collection[str]) -> None:
    """Raise EdgebuildError where a source asks for a macro that one before it defines in another way.

    Compiled by itself it would find none. `given`: macros that all of them find.
    """
    before: dict[str, tuple[Path, str]] = {}
    for path, text in texts:
        bare = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
        own = {m[1]: (m.start(), " ".join(m[2].split())) for m in reversed([*DEFINE.finditer(bare)])}
        for test in TEST.finditer(bare):
            for word in re.finditer(r"[A-Za-z_]\w*", test[1]):
                name = word[0]
                if name not in before or name in given:
                    continue
                place, value = own.get(name, (len(bare), ""))
                if place > test.start() and (name not in own or value != before[name][1]):
                    raise _changed(path, text, test.start(1) + word.start(), name, before[name][0])
        before |= {name: (path, value) for name, (_, value) in own.items()}
        for name in UNDEF.findall(bare):
            before.pop(name, None)


def _changed(path: Path, text: str, at: int, name: str, other: Path) -> Exception:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    said = f"'{name}' is a macro of {other.name}, which stands in front of this source in the same unit"
    hints = (*caret(text.split("\n")[line - 1], column, len(name)), "  use another name, or make two drivers")
    return fail(said, file=str(path), line=line, column=column, hints=hints)
