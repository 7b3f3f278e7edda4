"""Join a driver's files to one text: sources in order, headers with groups in place, macros around accesses expanded.

Later stages work on byte offsets in this text. `#line` directives keep the positions in the user's files."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from zlib import crc32

from clang import cindex
from clang.cindex import Cursor, CursorKind

from ...base.errors import Diagnostic, EdgebuildError, caret, fail
from ...base.inputs import TEXT, read_bytes, read_text
from ...base.request import CPP_SUFFIXES
from ...base.text import quoted
from . import clang
from .dialect import Dialect, Offset, check_memory, group_of, read_dialect, read_offsets
from .lowering import Program

# Checks before the compiler runs in this process: it would read an endless device, wait for a pipe, or expand macros
# and headers until memory is exhausted.
#
# Headers that are named literally are checked by name. Then a process with limits of memory and time parses everything
# once, since only the compiler can expand macros.

# Strings stay, comments become a blank.
WORDS = re.compile(r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?\*/""", re.S)
DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:|\?\?=)[ \t]*(?:include|include_next|import|embed)\b([^\n]*)$", re.M)
INCLUDED = re.compile(r"""[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)""")
MEMORY, SECONDS, WAIT = 512 << 20, 10, 60  # limits of that process: bytes, seconds of processor time and of wall time
MAX_DEPTH, MAX_NODES = 200, 500_000  # limits of the syntax tree: levels (Python's recursion), nodes of one source


def check_headers(files: Sequence[Path], folders: Sequence[Path]) -> None:
    """Raise EdgebuildError for a device, a pipe or a too large file among the files and the headers that they include.

    `folders`: searched for headers after the including file's folder. Headers of the compiler and of the C library are
    not checked.
    """
    for _ in _included(files, named, folders):
        pass


def _included(
    files: Sequence[Path], names: Callable[[str], Iterable[str]], folders: Sequence[Path] = ()
) -> Iterator[str]:
    """The texts of files and of the files that they include. `names`: lists the includes of a text."""
    seen, todo = set[str](), [*files]
    while todo:
        path = todo.pop()
        if (real := os.path.realpath(path)) in seen:
            continue
        seen.add(real)
        text = read_bytes(path).decode("utf-8", "replace")
        yield text
        todo += [p for name in names(text) for p in (at / name for at in (path.parent, *folders)) if _is_there(p)]


def named(text: str) -> set[str]:
    """The files that include directives of the text name literally."""
    spliced = re.sub(r"\\[ \t]*\r?\n", "", text.replace("??/", "\\"))
    plain = WORDS.sub(lambda m: m[0] if m[0][0] in "\"'" else " ", spliced)
    operands = [m[1] for t in (text, spliced, plain) for m in DIRECTIVE.finditer(t)]
    names = [INCLUDED.match(operand) for operand in operands]
    return {m[1] or m[2] for m in names if m}


def _is_there(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # an invalid file name
        return False


def check_bounded(file: Path, parse: Callable[[], object]) -> None:
    """Raise EdgebuildError unless a child process parses a file and its headers within the limits.

    Errors in the file are reported later, when it is read.
    """
    if not hasattr(os, "fork"):
        return
    import resource

    child = os.fork()
    if not child:
        status = 1
        with suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_AS, (_mapped() + MEMORY,) * 2)
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(WAIT)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            parse()
            status = 0
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not status:
        return
    limit = f"clang needs more than {MEMORY >> 20} MiB for it, with its headers and macros"
    if -status in (signal.SIGALRM, signal.SIGXCPU, signal.SIGKILL):
        limit = f"clang needs more than {SECONDS} s for it, with its headers and macros"
    elif -status in (signal.SIGSEGV, signal.SIGBUS):
        limit = "it nests too deeply for clang, with its headers and macros"
    hints = ["look for macros or headers that hold one another several times",
             "and for a header that is a device, a pipe, or too large"]  # fmt: skip
    raise fail(limit, file=str(file), hints=hints)


def check_tree(unit: clang.Unit) -> None:
    """Raise EdgebuildError if the text's syntax tree has more than `MAX_DEPTH` levels or `MAX_NODES` nodes."""
    level, nodes = [c for c in unit.top if unit.own(c)], 0
    for _ in range(MAX_DEPTH):
        nodes += len(level)
        if nodes > MAX_NODES:
            text = f"more than {MAX_NODES:,} statements and expressions, with macros expanded"
            raise clang.error_at(level[-1], unit.text, text, "make several drivers of it")
        level = [below for c in level for below in clang.children(c)]
    if level:
        raise clang.error_at(level[0], unit.text, f"statements and expressions nest more than {MAX_DEPTH} levels here",
                             "split the expression, or write a function or a switch")  # fmt: skip


def _mapped() -> int:
    """Bytes of address space that this process has mapped."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 2 << 30


# Uses of groups that libclang's tree does not show: in instances of templates and generic lambdas.
#
# The text is parsed once more, with members marked unavailable and copies of groups deleted: clang reports every use as
# an error. Uses that the tree also shows are analysed; the others would be missing in the generated code.

K = CursorKind
UNAVAILABLE = re.compile(r"'(\w+)' is unavailable: bfGroup (\w+)")
DELETED = re.compile(r"deleted (?:constructor|operator|copy|move)")


def no_hidden_uses(unit: clang.Unit, dialect: Dialect, parse: Callable[[bytes], clang.Unit]) -> None:
    """Raise EdgebuildError where C++ uses a group and the tree does not show it. `parse` must tolerate errors."""
    marks = _marks(unit, dialect)
    shown = _shown(unit, dialect)
    hidden: dict[int, Diagnostic] = {}
    marked = parse(_marked(unit.text, marks))  # must outlive its errors
    for error in marked.errors:
        here = clang.place(error.location)
        own = error.location.file is not None and error.location.file.name == unit.tu.spelling
        if own:
            here = replace(here, offset=_unmarked(here.offset, marks))
            if here.offset in shown:
                continue
        hints = clang.caret(here, unit.text) if own else ()
        hidden.setdefault(here.offset, here.says(_message(error), *hints))
    if hidden:
        remedy = "  name the group's type, as in `void f(bfGroup G *p)`, once for each group"
        first, *others = hidden.values()
        raise EdgebuildError(replace(first, hints=(*first.hints, remedy)), *others)


def _message(error: cindex.Diagnostic) -> str:
    where = ", as where a parameter of a template or of a generic lambda is one, or in front of a switch's value"
    member = UNAVAILABLE.match(error.spelling)
    if member:
        return f"a field of a group, '{member[2]}::{member[1]}', is used where the generator cannot follow{where}"
    if DELETED.search(error.spelling):
        return f"a group is copied where the generator cannot follow{where}"
    return f"{error.spelling}: groups have no members in templates and in generic lambdas"


def _marks(unit: clang.Unit, dialect: Dialect) -> dict[int, str]:
    """The insertions into the text, by byte offset."""
    marks: dict[int, str] = {}
    for c in unit.top:
        if c.kind != K.STRUCT_DECL or not c.is_definition() or c.spelling not in dialect.groups:
            continue
        name = c.spelling
        text = f" {name}() = default; {name}(const {name} &) = delete; {name} &operator=(const {name} &) = delete; "
        marks[unit.text.index(b"{", clang.span(c)[0]) + 1] = text
        for m in clang.children(c):
            if m.kind == K.FIELD_DECL:
                marks[clang.span(m)[0]] = f'__attribute__((unavailable("bfGroup {name}"))) '
    return marks


def _marked(text: bytes, marks: dict[int, str]) -> bytes:
    pieces, at = list[bytes](), 0
    for place in sorted(marks):
        pieces += [text[at:place], marks[place].encode()]
        at = place
    return b"".join([*pieces, text[at:]])


def _unmarked(offset: int, marks: dict[int, str]) -> int:
    """The offset in the text, of an offset in the marked text."""
    added = 0
    for place in sorted(marks):
        if place + added < offset:
            added += len(marks[place])
    return offset - added


def _shown(unit: clang.Unit, dialect: Dialect) -> set[int]:
    """Offsets where the tree shows the name of a member, or the copy of a group in a function that is read."""
    shown: set[int] = set()
    for top in clang.children(unit.tu.cursor):
        if unit.own(top):
            shown |= {clang.offset(c.location) for c in clang.preorder(top) if _names_member(c, unit, dialect)}
    for f in unit.functions:
        shown |= {clang.offset(c.location) for c in clang.preorder(f) if _copies(c, dialect)}
    return shown


def _names_member(c: Cursor, unit: clang.Unit, dialect: Dialect) -> bool:
    has_target = c.kind in (K.MEMBER_REF_EXPR, K.MEMBER_REF) and c.referenced is not None
    return has_target and unit.member(c.referenced)[0] in dialect.groups


def _copies(c: Cursor, dialect: Dialect) -> bool:
    if c.kind == K.DECL_REF_EXPR and c.spelling == "operator=":
        return True
    name, pointer = group_of(c.type, dialect) if c.kind in (K.VAR_DECL, K.CALL_EXPR) else ("", False)
    return bool(name) and not pointer


def no_unread_uses(unit: clang.Unit, dialect: Dialect) -> None:
    """Raise EdgebuildError where a field is used outside of all functions that are read, as in a template."""
    read = [clang.span(f) for f in unit.functions]
    for top in clang.children(unit.tu.cursor):
        for c in clang.preorder(top) if unit.own(top) else ():
            at = clang.span(c)[0]
            own = c.kind == K.MEMBER_REF_EXPR and _names_member(c, unit, dialect)
            if own and not any(start <= at < end for start, end in read):
                text = "a field is used where the generator cannot follow, as in a template or an initialiser"
                raise clang.error_at(c, unit.text, text, "  move it into a function or a method of its own")


# Accesses in macros: the statements with them are printed with their macros expanded.
#
# An access is rewritten in the text, so the text must show where each part of it begins and ends. `UART->CR1.EN = 1`
# does, even if UART is a macro; `ENABLE(h)` does not. clang can only print declarations. So whole functions are printed
# and parsed first. Then only the smallest statements with such an access are replaced in the text.

ASSIGNMENTS = (K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR)
VALUES = (K.COMPOUND_LITERAL_EXPR, K.INIT_LIST_EXPR)
LOOPS = (K.WHILE_STMT, K.DO_STMT, K.FOR_STMT, K.CXX_FOR_RANGE_STMT)
BLOCKS = (K.COMPOUND_STMT, K.IF_STMT, K.SWITCH_STMT, *LOOPS, K.CASE_STMT, K.DEFAULT_STMT, K.LABEL_STMT)
ENDED = (K.DO_STMT, K.RETURN_STMT, K.BREAK_STMT, K.CONTINUE_STMT, K.GOTO_STMT)  # statements that end in a semicolon
BLANKS = rb"\s|/\*.*?\*/|//[^\n]*\n"
SEMICOLON = re.compile(rb"(?:%s)*;" % BLANKS, re.S)
DEFINED = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)
NAME = re.compile(r"\b[A-Za-z_]\w*")


@dataclass(frozen=True)
class Printed:
    """A piece of the text, and its text with macros expanded. `hidden`: macros whose names occur in that."""

    start: int
    end: int
    text: str
    hidden: tuple[str, ...]


def whole(f: Cursor, text: bytes) -> Printed:
    """A function with macros expanded. Its head stays: C allows attributes only in front of the name."""
    start, end = clang.span(f)
    printed, body = clang.pretty(f), _body(f)
    if body is None or f.kind == K.CONSTRUCTOR or clang.in_macro(body.extent.start):
        return _printed(start, end, printed, text)
    return _printed(clang.span(body)[0], end, printed[printed.index("{") :], text)


def statements(f: Cursor, g: Cursor, unit: clang.Unit, printed: clang.Unit, dialect: Dialect) -> list[Printed]:
    """The pieces of the function `f` to replace by their text in `g`, the same function with macros expanded."""
    body, other = _body(f), _body(g)
    if body is None or other is None or clang.in_macro(body.extent.start):
        return [whole(f, unit.text)]
    return [_piece(x, y, unit, printed) for x, y in _smallest(body, other, unit.text, dialect)]


def _piece(x: Cursor, y: Cursor, unit: clang.Unit, printed: clang.Unit) -> Printed:
    (start, end), (first, last) = clang.span(x), clang.span(y)
    inside = " ".join(line.strip() for line in printed.text[first:last].decode().split("\n"))
    needs = (clang.is_expression(x) or x.kind in ENDED) and not SEMICOLON.match(unit.text, end)
    condition = unit.text[end:].lstrip()[:1] == b")"
    inside += ";" * (needs and not condition) + "\n" * unit.text.count(b"\n", start, end)
    return _printed(start, end, inside, unit.text)


def _printed(start: int, end: int, inside: str, text: bytes) -> Printed:
    names = {m[1].decode() for m in DEFINED.finditer(text)}
    inside = re.sub(r"(?m)(^|[{;:] *)asm\b", r"\1__asm__", inside)  # a keyword in every C standard
    return Printed(start, end, inside, tuple(sorted(names.intersection(NAME.findall(inside)))))


def _body(f: Cursor) -> Cursor | None:
    return next((c for c in clang.children(f) if c.kind == K.COMPOUND_STMT), None)


def _smallest(x: Cursor, y: Cursor, text: bytes, dialect: Dialect) -> Iterator[tuple[Cursor, Cursor]]:
    """The smallest parts of `x` (statements or conditions) with all accesses to replace, each with its part of `y`."""
    parts, others = clang.children(x), clang.children(y)
    hiding = [i for i, c in enumerate(parts) if _hides(c, text, dialect)]
    same = [c.kind for c in parts] == [c.kind for c in others]
    if x.kind not in BLOCKS or not same or not hiding or not all(_alone(x, parts, i, text) for i in hiding):
        yield x, y
        return
    for i in hiding:
        yield from _smallest(parts[i], others[i], text, dialect)


def _alone(x: Cursor, parts: list[Cursor], i: int, text: bytes) -> bool:
    """Whether the span of part `i` covers exactly this part, so that it can be replaced by itself."""
    (start, end), (first, last) = clang.span(parts[i]), clang.span(x)
    if clang.in_macro(x.extent.start) and clang.in_macro(parts[i].extent.start):
        return False
    before = clang.span(parts[i - 1])[1] if i else first
    after = clang.span(parts[i + 1])[0] if i + 1 < len(parts) else last
    if not before <= start < end <= after:
        return False
    if x.kind == K.COMPOUND_STMT:
        return first < start and end < last
    if x.kind == K.IF_STMT and i == len(parts) - 1 and i > 1:
        return b"else" in text[before:start]
    bodies = {K.DO_STMT: 0, K.IF_STMT: 1}
    if i == bodies.get(x.kind, len(parts) - 1):
        return first < start
    return text[first:start].rstrip()[-1:] in (b"(", b";") and text[end:last].lstrip()[:1] in (b")", b";")


def _hides(f: Cursor, text: bytes, dialect: Dialect) -> bool:
    return any(_hidden(c, text, dialect) for c in clang.preorder(f))


def _hidden(c: Cursor, text: bytes, dialect: Dialect) -> bool:
    if c.kind == K.MEMBER_REF_EXPR:
        return bool(_of_group(c, dialect) or group_of(c.type, dialect)[0]) and _hidden_member(c, text)
    if c.kind == K.ARRAY_SUBSCRIPT_EXPR:
        return bool(group_of(c.type, dialect)[0]) and _hidden_element(c, text)
    if c.kind in VALUES:
        return bool(group_of(c.type, dialect)[0]) and any(map(_begins_in_macro, (c, *clang.children(c))))
    if c.kind in (*ASSIGNMENTS, K.UNARY_OPERATOR) and _begins_in_macro(c):
        parts = clang.preorder(c)
        return not _plain_operator(c, text) and any(_of_group(x, dialect) or _is_group(x, dialect) for x in parts)
    return False


def _of_group(c: Cursor, dialect: Dialect) -> bool:
    """Whether the cursor is a member of a group: a field, or a group in it."""
    decl = c.referenced if c.kind == K.MEMBER_REF_EXPR else None
    parent = decl.semantic_parent if decl is not None else None
    return parent is not None and parent.spelling in dialect.groups


def _is_group(c: Cursor, dialect: Dialect) -> bool:
    name, pointer = group_of(c.type, dialect)
    return bool(name) and not pointer


def _hidden_member(c: Cursor, text: bytes) -> bool:
    if clang.in_macro(c.location):
        return True
    base = clang.children(c)[:1]
    if not base or not _begins_in_macro(c):
        return False
    return text[clang.span(base[0])[1] : clang.offset(c.location)].strip() not in (b".", b"->")


def _hidden_element(c: Cursor, text: bytes) -> bool:
    base, index = clang.children(c)
    if not _begins_in_macro(base) and not _begins_in_macro(index):
        return False
    (_, left), (start, end) = clang.span(base), clang.span(index)
    return (text[left:start].strip(), text[end : clang.span(c)[1]].strip()) != (b"[", b"]")


def _plain_operator(c: Cursor, text: bytes) -> bool:
    """Whether the text shows the operator beside its operands."""
    start, end = clang.span(c)
    operands = clang.children(c)
    if c.kind != K.UNARY_OPERATOR:
        between = text[clang.span(operands[0])[1] : clang.span(operands[1])[0]]
        return between.strip() == clang.binary(c).encode()
    first, last = clang.span(operands[0])
    around = text[start:first].strip() + text[last:end].strip()
    return around == clang.unary(c).removeprefix("post").encode()


def _begins_in_macro(c: Cursor) -> bool:
    return clang.in_macro(c.extent.start)


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">][^\n]*$', re.M)
DIALECT = re.compile(r"\b(bfGroup|make_device)\b")
Parse = Callable[[str, bytes], clang.Unit]
ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[^\n]*$", re.M)
MAX_NESTED, MAX_HEADERS = 200, 10_000  # limits of nested headers (that of compilers), and of headers in all
MACROS = re.compile(rb"^[ \t]*#[ \t]*(define|include)\b|\bbf_(?:write|raw)\b", re.M)


@dataclass(frozen=True)
class LineMark:
    """A `#line`: number and file of the next line. In generated code, a macro stands for the file."""

    number: int
    file: str

    def __str__(self) -> str:
        return f"#line {self.number} {quoted(self.file)}"

    @property
    def bare(self) -> str:
        """The mark with a macro for the file's name (`file_names`), independent of the file's folder."""
        return f"#line {self.number} {file_macro(self.file)}"


def file_macro(file: str) -> str:
    """The macro for a file's name. A checksum distinguishes names that differ only in characters outside of words."""
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

    Messages and debug information then have full paths; `__FILE__` stays the bare name. If two files have one name,
    their macro is not defined.
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
    """A text of pieces of files, with `#line` marks between them."""

    pieces: tuple[bytes | LineMark, ...]

    @cached_property
    def data(self) -> bytes:
        return b"".join(p if isinstance(p, bytes) else str(p).encode() for p in self.pieces)

    @cached_property
    def lines(self) -> tuple[tuple[int, int, LineMark], ...]:
        """(begin, end, mark) of each `#line`, in bytes."""
        spans, at = list[tuple[int, int, LineMark]](), 0
        for piece in self.pieces:
            end = at + len(piece if isinstance(piece, bytes) else str(piece).encode())
            if isinstance(piece, LineMark):
                spans.append((at, end, piece))
            at = end
        return tuple(spans)

    def mark(self, at: int) -> LineMark:
        """The file and line of an offset, which must be after a `#line`."""
        _, end, line = [x for x in self.lines if x[1] <= at][-1]
        return LineMark(line.number + self.data.count(b"\n", end, at) - 1, line.file)

    def part(self, start: int, end: int) -> list[bytes | LineMark]:
        """The pieces between two offsets, neither of which is inside of a `#line`."""
        out, at = list[bytes | LineMark](), start
        for first, past, line in self.lines:
            if start <= first and past <= end:
                out += [self.data[at:first], line]
                at = past
        return [*out, self.data[at:end]]


@dataclass(frozen=True)
class Source:
    """The first stage: a parsed unit and its declarations. `files`: all files that were read, the sources first."""

    unit: clang.Unit
    dialect: Dialect
    files: tuple[str, ...]
    lines: tuple[tuple[int, int, LineMark], ...]  # (begin, end, mark) of each `#line` of the text
    offsets: tuple[Offset, ...] = ()

    @cached_property
    def program(self) -> Program:
        """The unit, lowered to typed values."""
        return Program(self.unit)


def read_sources(sources: Sequence[Path], triple: str, options: tuple[str, ...] = ()) -> Source:
    """Parse the sources of a driver. `options`: -I, -D, -include and others of a C preprocessor.

    Raises EdgebuildError if a file cannot be read, or is not valid C.
    """
    cpp = _is_cpp(sources)
    given = {re.split(r"[=(]", o[2:])[0] for o in options if o.startswith("-D")}
    check_macros([(p, read_text(p)) for p in sources] if len(sources) > 1 else [], given)
    name, flags = str(sources[0]), _flags(sources, options)
    reader = _Reader(_checked(sources, triple, options, cpp))
    text = Lined(tuple(piece for path in sources for piece in reader.read(path)))
    unit = clang.parse(name, text.data, triple, flags, cpp)
    check_tree(unit)
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


def parse_plain(path: Path, triple: str, options: tuple[str, ...]) -> clang.Unit:
    """Parse a source in plain C or C++. Raises EdgebuildError as `read_sources` does."""
    cpp = _is_cpp((path,))
    _checked((path,), triple, options, cpp)
    unit = clang.parse(str(path), read_bytes(path), triple, _flags((path,), options), cpp)
    check_tree(unit)
    return unit


def macros_among(names: Sequence[str], path: Path, triple: str, options: tuple[str, ...]) -> set[str]:
    """The names that are defined as macros at the end of a source in plain C."""
    names = [name for name in names if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)]
    asked = "".join(f"\n#ifdef {name}\nextern int eb_macro_{name};\n#endif" for name in names)
    unit = clang.parse(str(path), read_bytes(path) + asked.encode() + b"\n", triple, _flags((path,), options))
    seen = {c.spelling for c in unit.top}
    return {name for name in names if f"eb_macro_{name}" in seen}


def _checked(sources: Sequence[Path], triple: str, options: tuple[str, ...], cpp: bool) -> list[Path]:
    """The folders of headers. Raises EdgebuildError if a file is no text, or exceeds the limits of parsing."""
    kinds = (("-I", "-isystem", "-iquote", "-idirafter"), ("-include", "-imacros"))
    places, front = ([Path(b) for a, b in pairwise(options) if a in kind] for kind in kinds)
    check_headers([*sources, *front], places)
    for path in sources:
        check_bounded(path, partial(_parsed, path, triple, _flags(sources, options), cpp))
    return places


def _flags(sources: Sequence[Path], options: tuple[str, ...]) -> tuple[str, ...]:
    folders = dict.fromkeys(str(p.parent) for p in sources)
    return (*(word for f in folders for word in ("-I", f)), *options)


def _parsed(path: Path, triple: str, flags: tuple[str, ...], cpp: bool) -> None:
    """Parse a source as it is, and ignore its errors."""
    text = f'#include "{os.path.abspath(path)}"\n'.encode()
    clang.parse("edgebuild_reach.c", text, triple, (*flags, "-ferror-limit=0"), cpp, wrong=True)


def _is_cpp(sources: Sequence[Path]) -> bool:
    """Whether the sources are C++. Raises EdgebuildError if they mix languages, or have another suffix."""
    for path in sources:
        if path.suffix not in (".c", *CPP_SUFFIXES):
            text = f"'{path.name}' is not a driver source; C files end in .c, and C++ in .cpp, .cc or .cxx"
            raise fail(text, file=str(path))
    languages = {path.suffix in CPP_SUFFIXES for path in sources}
    if len(languages) > 1:
        raise fail("C and C++ in one driver: make it two drivers", file=str(sources[0]))
    return languages == {True}


class _Reader:
    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders
        self.files: list[Path] = []
        self.once: set[str] = set()
        self.open: list[str] = []  # the stack of files being read, the outermost first
        self.bytes = self.headers = 0

    def read(self, path: Path) -> Iterator[bytes | LineMark]:
        """The file's text with `#line` in front, and with headers that have groups in place of their includes."""
        real, text = os.path.realpath(path), read_text(path)
        if path not in self.files:
            self.files.append(path)
        if ONCE.search(text):
            if real in self.once:
                return
            self.once.add(real)
            text = ONCE.sub("", text)
        self.bytes, self.headers = self.bytes + len(text), self.headers + 1
        if self.bytes > TEXT or self.headers > MAX_HEADERS:
            raise fail(f"more than {TEXT >> 20} MiB or {MAX_HEADERS} headers are included", file=str(path))
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
                continue  # the command line includes it
            line = text.count("\n", 0, match.start()) + 1
            yield from self._included(header, path, line)
            yield b"\n"
            yield LineMark(line, str(path))
            yield b"\n"
        yield text[at:].encode() + (b"\n" if not text.endswith("\n") else b"")
        self.open.pop()

    def _included(self, header: Path, path: Path, line: int) -> Iterator[bytes | LineMark]:
        """The text of a header in place of line `line` of `path`.

        A header that includes itself is left to Clang, which evaluates its guards.
        """
        if os.path.realpath(header) in self.open:
            yield f'#include "{os.path.abspath(header)}"'.encode()
        elif len(self.open) >= MAX_NESTED:
            raise fail(f"headers include one another more than {MAX_NESTED} deep", file=str(path), line=line)
        else:
            yield from self.read(header)

    def _header(self, path: Path, match: re.Match[str]) -> Path | None:
        """The file that an `#include` names, if its text replaces the line; else None."""
        places = [path.parent, *self.folders] if '"' in match[0] else self.folders
        header = next((p / match[1] for p in places if (p / match[1]).is_file()), path.parent / match[1])
        return header if Path(match[1]).name == clang.SUPPORT or has_groups(header) else None


GROUP = re.compile(r"\bbfGroup(?:\s+\w+)?\s*\{")  # without a name: refused later
SHORT = re.compile(r"\b(?:(?:ro|wo|w1c|w1s|w0c|rc)(?=\s+\w)|reset(?=\s*\())")


def _long_words(text: str) -> str:
    """The text with the dialect's short words (`ro`) written out (`bf_ro`) in groups; elsewhere they are names."""
    out, at = list[str](), 0
    for group in GROUP.finditer(text):
        if group.start() >= at:
            end = _closed(text, group)
            out += [text[at : group.start()], SHORT.sub(r"bf_\g<0>", text[group.start() : end])]
            at = end
    return "".join([*out, text[at:]])


def _closed(text: str, group: re.Match[str]) -> int:
    """The index after the brace that closes a group; groups may be nested."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, group.end()):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    return group.end()


def has_groups(header: Path) -> bool:
    """Whether a header uses the dialect, or includes one that does."""

    def names(text: str) -> Iterator[str]:
        return (m[1] for m in INCLUDE.finditer(text) if Path(m[1]).name != clang.SUPPORT)

    return header.is_file() and any(DIALECT.search(text) for text in _included([header], names))


def _without_macros(name: str, unit: clang.Unit, dialect: Dialect, text: Lined, parse: Parse) -> Lined:
    """The text with macros expanded in statements whose accesses come out of macros."""
    functions = [f for f in unit.functions if _hides(f, unit.text, dialect)]
    if not functions:
        return text
    pieces = [whole(f, text.data) for f in functions]
    printed = parse(name, _replaced(text, pieces).data)
    by_usr = {g.get_usr(): g for g in printed.functions}
    return _replaced(text, [p for f in functions for p in statements(f, by_usr[f.get_usr()], unit, printed, dialect)])


def _replaced(text: Lined, printed: list[Printed]) -> Lined:
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


# ---- the sources of a driver are one unit, so a macro of one must not change the meaning of another


DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n\\]|\\.|\\\n)*)", re.M)
UNDEF = re.compile(r"^[ \t]*#[ \t]*undef[ \t]+(\w+)", re.M)
TEST = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b([^\n]*)", re.M)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def check_macros(texts: Sequence[tuple[Path, str]], given: Collection[str]) -> None:
    """Raise EdgebuildError where a source tests a macro that an earlier source defines: alone, it would lack that.

    `given`: macros that are defined for all sources.
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
    message = f"'{name}' is a macro of {other.name}, which stands in front of this source in the same unit"
    hints = (*caret(text.split("\n")[line - 1], column, len(name)), "  use another name, or make two drivers")
    return fail(message, file=str(path), line=line, column=column, hints=hints)
