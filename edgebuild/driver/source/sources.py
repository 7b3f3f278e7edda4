"""From files to one text: sources one after the other, headers with groups in place, macros around accesses expanded.

One text has one set of positions, so that everything after this works on byte offsets. `#line` keeps the user's own."""

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
from clang.cindex import Cursor, CursorKind, SourceLocation

from ...base.errors import Diagnostic, EdgebuildError, caret, fail
from ...base.inputs import TEXT, read_bytes, read_text
from ...base.request import CPP_SUFFIXES
from ...base.text import quoted
from . import clang
from .dialect import Dialect, Offset, check_memory, group_of, read_dialect, read_offsets
from .lowering import Program

# What the compiler reads, looked at before: it would read a device without an end, wait for a pipe, or expand macros
# and headers until the machine has no memory left.
#
# Headers that a directive names in plain words are looked at by name. Then a process with limits of memory and time
# parses everything once, for nobody but the compiler knows what macros make.

# Strings stay, comments become a blank; a line that ends in a backslash goes on in the next one.
WORDS = re.compile(r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?\*/""", re.S)
DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:|\?\?=)[ \t]*(?:include|include_next|import|embed)\b([^\n]*)$", re.M)
INCLUDED = re.compile(r"""[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)""")
MEMORY, SECONDS, WAIT = 512 << 20, 10, 60  # that the process which runs first may take: of the processor, of the clock
DEEP, NODES = 200, 500_000  # of the syntax tree: levels, which walks go down in Python, and nodes of one source


def check_headers(files: Sequence[Path], folders: Sequence[Path]) -> None:
    """Refuse a device, a pipe or a file that is too large, wherever one of the files or what it includes names it.

    `folders`: where headers are besides beside the file that names them.
    Headers of the compiler and of the C library are passed over. Raises EdgebuildError.
    """
    for _ in _included(files, named, folders):
        pass


def _included(
    files: Sequence[Path], names: Callable[[str], Iterable[str]], folders: Sequence[Path] = ()
) -> Iterator[str]:
    """The texts of files and of all that they include; `names` are those of a text. A header may be in any encoding."""
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
    """The files that directives of the text name in plain words."""
    spliced = re.sub(r"\\[ \t]*\r?\n", "", text.replace("??/", "\\"))
    plain = WORDS.sub(lambda m: m[0] if m[0][0] in "\"'" else " ", spliced)
    operands = [m[1] for t in (text, spliced, plain) for m in DIRECTIVE.finditer(t)]
    names = [INCLUDED.match(operand) for operand in operands]
    return {m[1] or m[2] for m in names if m}


def _is_there(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # no name that the system knows
        return False


def check_bounded(file: Path, parse: Callable[[], object]) -> None:
    """Raise EdgebuildError unless the parse of a file and its headers ends within the limits, in a process of its own.

    Errors in the file are none here: they are reported when it is read.
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
    """Raise EdgebuildError where the text makes a tree of more than `DEEP` levels or of more than `NODES` nodes."""
    level, nodes = [c for c in unit.top if unit.own(c)], 0
    for _ in range(DEEP):
        nodes += len(level)
        if nodes > NODES:
            text = f"more than {NODES:,} statements and expressions, with macros expanded"
            raise clang.error_at(level[-1], unit.text, text, "make several drivers of it")
        level = [below for c in level for below in clang.children(c)]
    if level:
        raise clang.error_at(level[0], unit.text, f"statements and expressions nest more than {DEEP} levels here",
                             "split the expression, or write a function or a switch")  # fmt: skip


def _mapped() -> int:
    """Bytes of the address space that this process has already."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 2 << 30


# Uses of groups that libclang's tree does not show: in templates and generic lambdas, once their types are known.
#
# The text is parsed once more, with members that cannot be used and groups that cannot be copied. clang then tells
# every use. What the tree shows, too, is read by the analysis; each other one would be left out of the generated code.

K = CursorKind
UNAVAILABLE = re.compile(r"'(\w+)' is unavailable: bfGroup (\w+)")
DELETED = re.compile(r"deleted (?:constructor|operator|copy|move)")


def no_hidden_uses(unit: clang.Unit, dialect: Dialect, parse: Callable[[bytes], clang.Unit]) -> None:
    """Raise EdgebuildError where C++ uses a group in a way that the tree does not show. `parse` takes wrong texts."""
    marks = _marks(unit, dialect)
    shown = _shown(unit, dialect)
    hidden: dict[int, Diagnostic] = {}
    marked = parse(_marked(unit.text, marks))  # has to live as long as its errors
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
    """Pieces that are put into the text, by where."""
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
    """The place in the text that a place of the marked text stands for."""
    added = 0
    for place in sorted(marks):
        if place + added < offset:
            added += len(marks[place])
    return offset - added


def _shown(unit: clang.Unit, dialect: Dialect) -> set[int]:
    """Places where the tree shows that a member is named, or a group copied in a function that is read."""
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
    """Raise EdgebuildError where a field stands outside of all functions that are read, as in a template."""
    read = [clang.span(f) for f in unit.functions]
    for top in clang.children(unit.tu.cursor):
        for c in clang.preorder(top) if unit.own(top) else ():
            at = clang.span(c)[0]
            own = c.kind == K.MEMBER_REF_EXPR and _names_member(c, unit, dialect)
            if own and not any(start <= at < end for start, end in read):
                text = "a field is used where the generator cannot follow, as in a template or an initialiser"
                raise clang.error_at(c, unit.text, text, "  move it into a function or a method of its own")


# Accesses out of macros: the statements around them are printed as they are without macros.
#
# An access is replaced in the text, so the text has to show where each part of it begins and ends. `UART->CR1.EN = 1`
# does that though UART is a macro; `ENABLE(h)` does not. clang prints declarations only, so that a unit with whole
# functions is parsed first. The smallest statements with such an access go into the text; all else stays as it was.

ASSIGNMENTS = (K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR)
VALUES = (K.COMPOUND_LITERAL_EXPR, K.INIT_LIST_EXPR)
LOOPS = (K.WHILE_STMT, K.DO_STMT, K.FOR_STMT, K.CXX_FOR_RANGE_STMT)
BLOCKS = (
    K.COMPOUND_STMT,
    K.IF_STMT,
    K.SWITCH_STMT,
    *LOOPS,
    K.CASE_STMT,
    K.DEFAULT_STMT,
    K.LABEL_STMT,
)
ENDED = (
    K.DO_STMT,
    K.RETURN_STMT,
    K.BREAK_STMT,
    K.CONTINUE_STMT,
    K.GOTO_STMT,
)  # by a semicolon of their own
BLANKS = rb"\s|/\*.*?\*/|//[^\n]*\n"
SEMICOLON = re.compile(rb"(?:%s)*;" % BLANKS, re.S)
DEFINED = re.compile(rb"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)
NAME = re.compile(r"\b[A-Za-z_]\w*")


@dataclass(frozen=True)
class Printed:
    """A piece of the text, and what it is without macros. `hidden`: macros that have the name of something in it."""

    start: int
    end: int
    text: str
    hidden: tuple[str, ...]


def functions_to_print(unit: clang.Unit, dialect: Dialect) -> list[Cursor]:
    """The functions with an access of which a part comes out of a macro and has no text of its own."""
    return [f for f in unit.functions if _hides(f, unit.text, dialect)]


def whole(f: Cursor, text: bytes) -> Printed:
    """A function without macros. Its head stays as it is: C takes attributes in front of the name only."""
    start, end = clang.span(f)
    printed, body = clang.pretty(f), _body(f)
    if body is None or f.kind == K.CONSTRUCTOR or in_macro(body.extent.start):
        return _printed(start, end, printed, text)
    return _printed(clang.span(body)[0], end, printed[printed.index("{") :], text)


def statements(f: Cursor, g: Cursor, unit: clang.Unit, printed: clang.Unit, dialect: Dialect) -> list[Printed]:
    """The pieces of the function `f` that are printed as in `g`, the same function without macros."""
    body, other = _body(f), _body(g)
    if body is None or other is None or in_macro(body.extent.start):
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
    inside = re.sub(r"(?m)(^|[{;:] *)asm\b", r"\1__asm__", inside)  # known in every mode of C
    return Printed(start, end, inside, tuple(sorted(names.intersection(NAME.findall(inside)))))


def _body(f: Cursor) -> Cursor | None:
    return next((c for c in clang.children(f) if c.kind == K.COMPOUND_STMT), None)


def _smallest(x: Cursor, y: Cursor, text: bytes, dialect: Dialect) -> Iterator[tuple[Cursor, Cursor]]:
    """Pairs of statements, or of conditions, that can be replaced alone; `x` has what has to be."""
    parts, others = clang.children(x), clang.children(y)
    hiding = [i for i, c in enumerate(parts) if _hides(c, text, dialect)]
    same = [c.kind for c in parts] == [c.kind for c in others]
    if x.kind not in BLOCKS or not same or not hiding or not all(_alone(x, parts, i, text) for i in hiding):
        yield x, y
        return
    for i in hiding:
        yield from _smallest(parts[i], others[i], text, dialect)


def _alone(x: Cursor, parts: list[Cursor], i: int, text: bytes) -> bool:
    """Whether the text of a part of a statement is all of it and nothing else."""
    (start, end), (first, last) = clang.span(parts[i]), clang.span(x)
    if in_macro(x.extent.start) and in_macro(parts[i].extent.start):
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
    if in_macro(c.location):
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
    return in_macro(c.extent.start)


def in_macro(location: SourceLocation) -> bool:
    """Whether a macro's expansion has the place: clang marks such places in the highest of the 32 bits."""
    return bool(location.int_data >> 31)


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">][^\n]*$', re.M)
DIALECT = re.compile(r"\b(bfGroup|make_device)\b")
Parse = Callable[[str, bytes], clang.Unit]
ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[^\n]*$", re.M)
DEEPEST, MOST = 200, 10_000  # headers in one another, as compilers have it, and in all
MACROS = re.compile(rb"^[ \t]*#[ \t]*(define|include)\b|\bbf_(?:write|raw)\b", re.M)


@dataclass(frozen=True)
class LineMark:
    """`#line`: the number and the file of the line behind it. Generated code has a macro for the file."""

    number: int
    file: str

    def __str__(self) -> str:
        return f"#line {self.number} {quoted(self.file)}"

    @property
    def bare(self) -> str:
        """The mark with a macro for the file's name (`file_names`): the same bytes wherever the file lies."""
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
        spans, at = list[tuple[int, int, LineMark]](), 0
        for piece in self.pieces:
            end = at + len(piece if isinstance(piece, bytes) else str(piece).encode())
            if isinstance(piece, LineMark):
                spans.append((at, end, piece))
            at = end
        return tuple(spans)

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
    """A source in plain C or C++ as it is. Raises EdgebuildError as `read_sources` does."""
    cpp = _is_cpp((path,))
    _checked((path,), triple, options, cpp)
    unit = clang.parse(str(path), read_bytes(path), triple, _flags((path,), options), cpp)
    check_tree(unit)
    return unit


def macros_among(names: Sequence[str], path: Path, triple: str, options: tuple[str, ...]) -> set[str]:
    """Those of these names that are macros behind a source in plain C. What is no name of C, as `8BIT`, is none."""
    names = [name for name in names if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)]
    asked = "".join(f"\n#ifdef {name}\nextern int eb_macro_{name};\n#endif" for name in names)
    unit = clang.parse(str(path), read_bytes(path) + asked.encode() + b"\n", triple, _flags((path,), options))
    seen = {c.spelling for c in unit.top}
    return {name for name in names if f"eb_macro_{name}" in seen}


def _checked(sources: Sequence[Path], triple: str, options: tuple[str, ...], cpp: bool) -> list[Path]:
    """The folders of headers. Raises EdgebuildError where something is no text, or takes too much to parse."""
    places, front = ([Path(b) for a, b in pairwise(options) if a == flag] for flag in ("-I", "-include"))
    check_headers([*sources, *front], places)
    for path in sources:
        check_bounded(path, partial(_parsed, path, triple, _flags(sources, options), cpp))
    return places


def _flags(sources: Sequence[Path], options: tuple[str, ...]) -> tuple[str, ...]:
    folders = dict.fromkeys(str(p.parent) for p in sources)
    return (*(word for f in folders for word in ("-I", f)), *options)


def _parsed(path: Path, triple: str, flags: tuple[str, ...], cpp: bool) -> None:
    """Parse a source as it is, whatever is wrong in it."""
    text = f'#include "{os.path.abspath(path)}"\n'.encode()
    clang.parse("edgebuild_reach.c", text, triple, (*flags, "-ferror-limit=0"), cpp, wrong=True)


def _is_cpp(sources: Sequence[Path]) -> bool:
    """Whether the sources are C++. Raises EdgebuildError where they are of two languages, or of another one."""
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
        return header if Path(match[1]).name == clang.SUPPORT or has_groups(header) else None


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


def has_groups(header: Path) -> bool:
    """Whether a header speaks the dialect, or includes one that does."""

    def names(text: str) -> Iterator[str]:
        return (m[1] for m in INCLUDE.finditer(text) if Path(m[1]).name != clang.SUPPORT)

    return header.is_file() and any(DIALECT.search(text) for text in _included([header], names))


def _without_macros(name: str, unit: clang.Unit, dialect: Dialect, text: Lined, parse: Parse) -> Lined:
    """The text with the statements printed in which an access comes out of a macro."""
    functions = functions_to_print(unit, dialect)
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
    message = f"'{name}' is a macro of {other.name}, which stands in front of this source in the same unit"
    hints = (*caret(text.split("\n")[line - 1], column, len(name)), "  use another name, or make two drivers")
    return fail(message, file=str(path), line=line, column=column, hints=hints)
