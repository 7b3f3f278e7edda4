"""libclang: parsing, translation of its diagnostics, and functions that its Python classes lack."""

from __future__ import annotations

import ctypes
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from clang import cindex
from clang.cindex import Cursor, CursorKind, SourceLocation, TranslationUnit, Type, TypeKind

from ...base import errors
from ...base.artifacts import Artifact
from ...base.errors import Diagnostic, EdgebuildError, MissingTool
from ...base.target import hal_dir

SUPPORT, TYPES = "edgebuild_bf.h", "edgebuild_types.h"
LANGUAGES = {False: ("-x", "c", "-std=gnu11"), True: ("-x", "c++", "-std=gnu++17", "-Wno-c++11-narrowing")}
FLAGS = (
    "-DEDGEBUILD_ANALYSIS",
    "-D__EDGEBUILD__",
    "-Wno-microsoft-fixed-enum",
    "-Wno-fixed-enum-extension",
    "-Wno-unused-value",
    "-fno-spell-checking",
    "-ferror-limit=20",
)

# clang_getCursorBinaryOperatorKind (Index.h, CXBinaryOperatorKind)
BINARY = (
    "", ".*", "->*", "*", "/", "%", "+", "-", "<<", ">>", "<=>", "<", ">", "<=", ">=", "==", "!=", "&", "^", "|",
    "&&", "||", "=", "*=", "/=", "%=", "+=", "-=", "<<=", ">>=", "&=", "^=", "|=", ",",
)  # fmt: skip
UNARY = ("", "post++", "post--", "++", "--", "&", "*", "+", "-", "~", "!", "real", "imag", "extension", "co_await")


TYPE = re.compile(r"bit|uint([1-9]|[1-5][0-9]|6[0-4])")  # of a bit field


@dataclass(frozen=True)
class Place:
    """A position in the unit's text; printed as file, line and column of the user's file."""

    file: str
    line: int
    column: int
    offset: int

    def says(self, text: str, *hints: str, severity: str = "error") -> Diagnostic:
        """A diagnostic at this place."""
        return Diagnostic(text, self.file, self.line, self.column, hints=hints, severity=severity)


@dataclass(frozen=True)
class Unit:
    """A parsed text. `files` are all headers that were read."""

    text: bytes
    tu: TranslationUnit
    files: tuple[str, ...]
    cpp: bool = False
    own_types: frozenset[str] = frozenset()  # names of bit-field types that the text itself declares

    @property
    def errors(self) -> list[cindex.Diagnostic]:
        return [d for d in self.tu.diagnostics if d.severity >= cindex.Diagnostic.Error]

    @cached_property
    def top(self) -> list[Cursor]:
        """All declarations of the text and of its headers, those in namespaces included."""
        return list(_opened(self.tu.cursor, SCOPES)) if self.cpp else children(self.tu.cursor)

    @cached_property
    def functions(self) -> list[Cursor]:
        """The functions that the text itself defines, those of classes included."""
        bodies = _opened(self.tu.cursor, SCOPES + CLASSES) if self.cpp else self.top
        return [c for c in bodies if c.kind in FUNCTIONS and c.is_definition() and self.own(c)]

    @cached_property
    def lambdas(self) -> dict[int, tuple[Cursor, Cursor]]:
        """The lambdas in functions of the text: (lambda, enclosing function), by the offset of their begin."""
        inside = ((c, f) for f in self.functions for c in preorder(f)) if self.cpp else iter(())
        return {span(c)[0]: (c, f) for c, f in inside if c.kind == CursorKind.LAMBDA_EXPR}

    def own(self, c: Cursor) -> bool:
        """Whether a declaration is in the text itself, and not in an included header."""
        start = c.extent.start
        return start.file is not None and start.file.name == self.tu.spelling

    @cached_property
    def macros(self) -> dict[str, str]:
        """Definitions of macros by name; several definitions of one name are joined."""
        definitions: dict[str, str] = {}
        define = r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)"
        for m in re.finditer(define, self.text.decode("utf-8", "replace"), re.MULTILINE):
            definitions[m[1]] = definitions.get(m[1], "") + " ".join(m[2].split())
        return definitions

    @cached_property
    def _names(self) -> dict[str, str]:
        """Names of the text's own functions in C++, by USR. Names of overloads include their parameters."""
        plain = [(c.get_usr(), qualified(c), c) for c in self.functions]
        times = Counter(name for _, name, _ in plain)
        return {
            usr: name if times[name] == 1 else f"{name}({c.displayname.partition('(')[2]}" for usr, name, c in plain
        }

    def function_name(self, c: Cursor) -> str:
        """The name of a function: in C++ with its classes and namespaces, if the text defines it.

        A lambda, and the operator that a call of it names, is named after its function and position.
        """
        if self.cpp and (c.kind == CursorKind.LAMBDA_EXPR or c.spelling == "operator()"):
            lambda_, around = self.lambdas.get(offset(c.location), (None, c))
            here = place(c.location)
            if lambda_ is not None:
                return f"{self.function_name(around)}::lambda:{here.line}:{here.column}"
        return self._names.get(c.get_usr(), c.spelling) if self.cpp else str(c.spelling)

    @cached_property
    def _members(self) -> dict[int, tuple[str, str]]:
        return {}

    def member(self, decl: Cursor) -> tuple[str, str]:
        """(the struct that a declaration is in, or "", and its own name); `data[0]` is the declaration's address."""
        key = decl.data[0]
        if key not in self._members:
            parent = decl.semantic_parent
            is_struct = parent is not None and parent.kind != CursorKind.CLASS_DECL  # groups are structs
            self._members[key] = (parent.spelling if is_struct else "", decl.spelling)
        return self._members[key]


SCOPES = (CursorKind.NAMESPACE, CursorKind.LINKAGE_SPEC, CursorKind.UNEXPOSED_DECL)
CLASSES = (CursorKind.CLASS_DECL, CursorKind.STRUCT_DECL)
OUTSIDE = (CursorKind.TRANSLATION_UNIT, CursorKind.NAMESPACE, CursorKind.LINKAGE_SPEC)
FUNCTIONS = (
    CursorKind.FUNCTION_DECL,
    CursorKind.CXX_METHOD,
    CursorKind.CONSTRUCTOR,
    CursorKind.DESTRUCTOR,
    CursorKind.CONVERSION_FUNCTION,
)


def _opened(scope: Cursor, kinds: tuple[CursorKind, ...]) -> Iterator[Cursor]:
    for c in children(scope):
        yield c
        if c.kind in kinds:
            yield from _opened(c, kinds)


def qualified(c: Cursor) -> str:
    """`drv::Uart::open`."""
    parent = c.semantic_parent
    inside = parent is not None and parent.kind in (CursorKind.NAMESPACE, *CLASSES) and parent.spelling
    return f"{qualified(parent)}::{c.spelling}" if inside else str(c.spelling)


@cache
def library() -> Any:
    try:
        lib = cindex.conf.lib
    except cindex.LibclangError as error:
        raise MissingTool(Diagnostic(f"libclang cannot be loaded: {error}", hints=("pip install libclang",))) from error
    for name, result in (
        ("clang_getCursorBinaryOperatorKind", ctypes.c_int),
        ("clang_getCursorUnaryOperatorKind", ctypes.c_int),
        ("clang_Cursor_Evaluate", ctypes.c_void_p),
    ):
        function = getattr(lib, name)
        function.argtypes, function.restype = [Cursor], result
    lib.clang_EvalResult_getKind.argtypes = [ctypes.c_void_p]
    lib.clang_EvalResult_getAsLongLong.argtypes = [ctypes.c_void_p]
    lib.clang_EvalResult_getAsLongLong.restype = ctypes.c_longlong
    lib.clang_EvalResult_dispose.argtypes = [ctypes.c_void_p]
    lib.clang_getPresumedLocation.argtypes = [SourceLocation, ctypes.POINTER(cindex._CXString), *[ctypes.c_void_p] * 2]
    lib.clang_getCursorPrettyPrinted.argtypes = [Cursor, ctypes.c_void_p]
    lib.clang_getCursorPrettyPrinted.restype = cindex._CXString
    lib.clang_getCursorPrintingPolicy.argtypes = [Cursor]
    lib.clang_getCursorPrintingPolicy.restype = ctypes.c_void_p
    lib.clang_PrintingPolicy_dispose.argtypes = [ctypes.c_void_p]
    return lib


def parse(
    name: str,
    text: bytes,
    triple: str,
    flags: tuple[str, ...],
    cpp: bool = False,
    unsaved: tuple[Artifact, ...] = (),
    wrong: bool = False,
    own_types: frozenset[str] = frozenset(),
) -> Unit:
    """Parse `text` as the file `name`. `unsaved`: headers that need not exist as files (if `name` has no folder).

    `own_types`: names of bit-field types that the text declares itself; after an error, they are detected.
    Raises EdgebuildError with clang's errors, unless errors are allowed (`wrong`)."""
    library()
    support = hal_dir() / "include" / SUPPORT
    args = [
        *LANGUAGES[cpp],
        *FLAGS,
        f"--target={triple}",
        "-ffreestanding",
        "-include",
        str(support),
        "-I",
        str(support.parent),
        "-isystem",
        str(hal_dir() / "analysis"),
        *(standard_headers(triple) if cpp else ()),
        *builtin_headers(),
        *library_headers(triple),
        *flags,
    ]
    types = str(support.parent / TYPES)
    files = [(name, text.decode("utf-8", "surrogateescape")), *((f"./{a.name}", a.data.decode()) for a in unsaved)]
    files += [(types, field_types(lambda n: n not in own_types))] if own_types else []
    try:
        tu = cindex.Index.create().parse(name, args=args, unsaved_files=files)
    except cindex.TranslationUnitLoadError as error:
        raise EdgebuildError(Diagnostic("clang cannot read it", file=name)) from error
    read = dict.fromkeys(str(i.include) for i in tu.get_includes())
    tu.text = text
    unit = Unit(text, tu, tuple(f for f in read if f), cpp, own_types)
    declared = frozenset(c.spelling for c in unit.top if TYPE.fullmatch(c.spelling) and not _is_in(c, types))
    if unit.errors and declared - own_types:
        return parse(name, text, triple, flags, cpp, unsaved, wrong, own_types | declared)
    if unit.errors and not wrong:
        raise EdgebuildError(*dict.fromkeys(_diagnostic(d, text, _is_in(d, name)) for d in unit.errors))
    return unit


def types_in(text: str, own: frozenset[str]) -> str:
    """The typedefs of the bit-field types that a text uses and does not declare itself."""
    used = set(re.findall(r"\b(?:bit|uint\d+)\b", text)) - own
    return field_types(used.__contains__)


def field_types(wanted: Callable[[str], bool]) -> str:
    """The typedefs of the bit-field types whose names are wanted."""
    text = (hal_dir() / "include" / TYPES).read_text(encoding="utf-8")
    return "".join(f"{m[0]}\n" for m in re.finditer(r"typedef [a-z ]+ (\w+);", text) if wanted(m[1]))


def _is_in(d: Any, name: str) -> bool:
    """Whether a diagnostic is about the file `name`, and not about an included header."""
    return d.location.file is not None and bool(d.location.file.name == name)


def _diagnostic(d: Any, text: bytes, own: bool) -> Diagnostic:
    for note in d.children if own else ():  # a device of an unknown group: report its declaration
        here = place(note.location)
        if note.spelling.startswith("forward declaration of") and text[here.offset :].startswith(b"make_device"):
            return here.says(f"make_device: {d.spelling}", *caret(here, text))
    here = place(d.location)
    remedy = ("  name its folder: -I DIR",) if d.spelling.endswith("file not found") else ()
    return here.says(d.spelling, *(caret(here, text) if own else ()), *remedy)


def place(location: SourceLocation) -> Place:
    name, line, column = cindex._CXString(), ctypes.c_uint(), ctypes.c_uint()
    library().clang_getPresumedLocation(location, ctypes.byref(name), ctypes.byref(line), ctypes.byref(column))
    raw = cindex.conf.lib.clang_getCString(name)
    file = raw.decode() if isinstance(raw, bytes) else str(raw or "")
    return Place(file, line.value, column.value, offset(location))


def caret(here: Place, text: bytes, length: int = 1) -> tuple[str, ...]:
    """The line of the source and a mark below it; empty if the text lacks the line."""
    if not 0 <= here.offset <= len(text):
        return ()
    start = text.rfind(b"\n", 0, here.offset) + 1
    end = text.find(b"\n", here.offset)
    line = text[start : end if end >= 0 else len(text)].decode("utf-8", "replace")
    before = text[start : here.offset].decode("utf-8", "replace")
    return errors.caret(line, len(before) + 1, length)


def wrong(here: Place, text: bytes, message: str, *hints: str, length: int = 1) -> EdgebuildError:
    """An error at a place of the unit's text, with its line and a caret."""
    return EdgebuildError(here.says(message, *caret(here, text, length), *hints))


def error_at(cursor: Cursor, text: bytes, message: str, *hints: str) -> EdgebuildError:
    return EdgebuildError(diagnostic_at(cursor, text, message, *hints))


def diagnostic_at(cursor: Cursor, text: bytes, message: str, *hints: str, severity: str = "error") -> Diagnostic:
    here = place(cursor.location if cursor.kind.is_declaration() else cursor.extent.start)
    length = span(cursor)[1] - here.offset
    if cursor.kind.is_declaration():
        length = len(cursor.spelling)
    return Diagnostic(
        message, here.file, here.line, here.column, hints=(*caret(here, text, length), *hints), severity=severity
    )


def binary(cursor: Cursor) -> str:
    return BINARY[library().clang_getCursorBinaryOperatorKind(cursor)]


def unary(cursor: Cursor) -> str:
    return UNARY[library().clang_getCursorUnaryOperatorKind(cursor)]


def constant(cursor: Cursor) -> int | None:
    """The value of an integer constant expression."""
    lib = library()
    result = lib.clang_Cursor_Evaluate(cursor)
    if not result:
        return None
    try:
        value = int(lib.clang_EvalResult_getAsLongLong(result)) if lib.clang_EvalResult_getKind(result) == 1 else None
    finally:
        lib.clang_EvalResult_dispose(result)
    open_ = getattr(cursor._tu, "offsets", ())
    if open_ and any(span(c) in open_ for c in preorder(cursor) if is_offset(c)):
        return None  # not constant before the layout is chosen
    return value


def is_offset(cursor: Cursor) -> bool:
    """Whether the cursor is an `offsetof(TYPE, member)`."""
    if cursor.kind != CursorKind.UNEXPOSED_EXPR:
        return False
    kinds = [c.kind for c in children(cursor)]
    return CursorKind.MEMBER_REF in kinds and CursorKind.TYPE_REF in kinds


def nameless(record: Cursor) -> Cursor | None:
    """The implicit field that holds a struct or union without a tag and a name; None for other declarations."""
    if not cindex.conf.lib.clang_Cursor_isAnonymousRecordDecl(record):
        return None
    fields = record.semantic_parent.type.get_fields()
    return next((f for f in fields if f.type.get_declaration() == record), None)


def pretty(cursor: Cursor) -> str:
    """The cursor's text printed from the syntax tree, with macros expanded."""
    lib = library()
    policy = lib.clang_getCursorPrintingPolicy(cursor)
    try:
        text = lib.clang_getCursorPrettyPrinted(cursor, policy)
        raw = cindex.conf.lib.clang_getCString(text)
        return raw.decode() if isinstance(raw, bytes) else str(raw)
    finally:
        lib.clang_PrintingPolicy_dispose(policy)


# Properties that are read often are cached in the cursor, since each call goes through ctypes. Children are cached, so
# that they keep the properties that cindex itself caches in them (kind, type, extent, the referenced cursor).

_visit = ctypes.CFUNCTYPE(ctypes.c_int, Cursor, Cursor, ctypes.py_object)(
    lambda child, _, siblings: siblings.append(child) or 1
)


def children(cursor: Cursor) -> list[Cursor]:
    """The cursor's children, always the same objects."""
    try:
        return cursor._children
    except AttributeError:
        below: list[Cursor] = []
        cindex.conf.lib.clang_visitChildren(cursor, _visit, below)
        for child in below:
            child._tu, child._around = cursor._tu, cursor
        cursor._children = below
        return below


def preorder(cursor: Cursor) -> Iterator[Cursor]:
    """The cursor and all below it, always the same objects."""
    yield cursor
    for child in children(cursor):
        yield from preorder(child)


MACRO_PARTS = re.compile(rb"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|/\*.*?\*/|//[^\n]*|\w+|[()]", re.S)


def offset(location: SourceLocation) -> int:
    """Offset in bytes. `location.offset` would also compute line and column, which is slow."""
    in_bytes = ctypes.c_uint()
    cindex.conf.lib.clang_getInstantiationLocation(location, None, None, None, ctypes.byref(in_bytes))
    return in_bytes.value


def span(cursor: Cursor) -> tuple[int, int]:
    """Begin and end of the cursor's text, in bytes."""
    try:
        return cursor._span
    except AttributeError:
        extent = cursor.extent
        begin, end = offset(extent.start), offset(extent.end)
        if in_macro(extent.end) and (around := getattr(cursor, "_around", None)) is not None:
            outer = span(around)  # an end in a macro's argument is given as the begin of the macro's name
            whole = macro_end(cursor._tu.text, end)
            if around.extent == extent:
                begin, end = outer
            elif begin < end or outer[0] < begin or outer[1] > whole:
                end = whole
        cursor._span = begin, end
        return cursor._span


def in_macro(location: SourceLocation) -> bool:
    """Whether a location is in a macro's expansion: clang marks these in the highest of the 32 bits."""
    return bool(location.int_data >> 31)


def macro_end(text: bytes, begin: int) -> int:
    """The end of the macro at an offset of a text, with its arguments if it has any."""
    depth = 0
    for m in MACRO_PARTS.finditer(text, begin):
        depth += {b"(": 1, b")": -1}.get(m[0], 0)
        if not depth:
            behind = text[m.end() :].lstrip()
            if m[0] == b")" or not behind.startswith(b"("):
                return m.end()
    return begin


def record(type_: Type) -> tuple[str, bool]:
    """(name of the struct or union that a type is or points to, whether it points); ("", False) for other types."""
    try:
        return type_._record
    except AttributeError:
        canonical = type_.get_canonical()
        pointer = canonical.kind == TypeKind.POINTER
        if pointer:
            canonical = canonical.get_pointee()
        declaration = canonical.get_declaration() if canonical.kind == TypeKind.RECORD else None
        is_struct = declaration is not None and declaration.kind != CursorKind.CLASS_DECL  # groups are structs
        type_._record = (declaration.spelling, pointer) if is_struct and declaration is not None else ("", False)
        return type_._record


@cache
def _expression_kind(kind: CursorKind) -> bool:
    return bool(kind.is_expression())


def members(class_: Cursor) -> list[Cursor]:
    """Members and bases of a class; for an instance of a template, which shows none, those of the template."""
    if children(class_):
        return children(class_)
    template = cindex.conf.lib.clang_getSpecializedCursorTemplate(class_)
    return children(template) if template is not None else []


def is_expression(cursor: Cursor) -> bool:
    return _expression_kind(cursor.kind)


EXPRESSION_WRAPPERS = (CursorKind.PAREN_EXPR, CursorKind.UNEXPOSED_EXPR)


def bare(cursor: Cursor) -> Cursor:
    """The expression inside of parentheses and implicit conversions."""
    try:
        return cursor._bare
    except AttributeError:
        inside = children(cursor) if cursor.kind in EXPRESSION_WRAPPERS else []
        cursor._bare = bare(inside[0]) if len(inside) == 1 else cursor
        return cursor._bare


def is_reference(type_: Type) -> bool:
    return type_.get_canonical().kind in (TypeKind.LVALUEREFERENCE, TypeKind.RVALUEREFERENCE)


# ---- folders of headers


def builtin_headers() -> list[str]:
    """`-isystem` of an installed compiler's freestanding headers, which the libclang package lacks."""
    headers = sorted(Path("/usr/lib").glob("llvm-*/lib/clang/*/include/stddef.h"))
    headers += sorted(Path("/usr/lib").glob("clang/*/include/stddef.h"))
    headers += sorted(Path("/usr/lib/gcc").glob("*/*/include/stddef.h"))
    return ["-isystem", str(headers[0].parent)] if headers else []


# Folders of C libraries' headers, by the beginning of the triple.
LIBRARIES = {
    "thumb": ("/usr/lib/arm-none-eabi/include", "/usr/arm-none-eabi/include"),
    "riscv": ("/usr/lib/picolibc/riscv64-unknown-elf/include", "/usr/riscv64-unknown-elf/include"),
}


def library_headers(triple: str) -> list[str]:
    """`-isystem` of the triple's C library, if one is installed."""
    places = (p for start, paths in LIBRARIES.items() if triple.startswith(start) for p in paths)
    folder = next((p for p in places if Path(p).is_dir()), None)
    return ["-isystem", folder] if folder else []


COMPILERS = {"thumb": "arm-none-eabi-g++", "riscv": "riscv64-unknown-elf-g++"}


@cache
def standard_headers(triple: str) -> tuple[str, ...]:
    """`-isystem` of the C++ standard library of the target's compiler, if that is installed."""
    import shutil  # late: C does not need it
    import subprocess

    compiler = next((shutil.which(c) for start, c in COMPILERS.items() if triple.startswith(start)), None)
    if compiler is None:
        return ()
    command = [compiler, "-x", "c++", "-E", "-v", os.devnull]
    printed = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False, stdin=subprocess.DEVNULL
    ).stderr
    places = (line.strip() for line in printed.splitlines() if line.startswith(" /"))
    return tuple(word for p in places if "c++" in Path(p).parts for word in ("-isystem", os.path.normpath(p)))
