"""The one Jinja environment. Templates print; whatever has to be computed comes to them computed."""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import count
from operator import index
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket
from markupsafe import Markup

from .atomic import replace_file
from .text import COLUMNS, LICENCE, comment, quoted, remark, xml

# Templates as bytecode beside that of the package's modules: to compile those of a core takes half a second.
#
# Python keeps the bytecode of a module in `__pycache__` and runs it when the module is imported next. Templates do the
# same in the same folder, so whoever could change them could change the code itself. Python's own switches hold:
# PYTHONPYCACHEPREFIX moves them, and with PYTHONDONTWRITEBYTECODE none are written.
#
# Only what belongs to the same template, environment, Jinja and Python is read, and only if no byte of it is changed.
# Where the folder cannot be written, templates are compiled each time.

LENGTH = hashlib.sha256().digest_size


class CompiledTemplates(jinja2.BytecodeCache):
    """A file for each template: a digest, then the code. `environment`: the module that makes Jinja's environment."""

    def __init__(self, environment: Path) -> None:
        self.folder = Path(importlib.util.cache_from_source(str(environment))).parent
        self.versions = f"{sys.version} {jinja2.__version__}".encode() + environment.read_bytes()

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            data = self._file(bucket).read_bytes()
        except OSError:
            return
        if data[:LENGTH] == self._digest(bucket, data[LENGTH:]):
            bucket.code = marshal.loads(data[LENGTH:])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a whole file or none, so that others may read and write meanwhile."""
        if sys.dont_write_bytecode:
            return
        code, file = marshal.dumps(bucket.code), self._file(bucket)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(str(file), self._digest(bucket, code) + code)
        except OSError:
            pass  # nobody may write there, or the disk is full

    def _file(self, bucket: Bucket) -> Path:
        return self.folder / f"template-{bucket.key}.{sys.implementation.cache_tag}.pyc"

    def _digest(self, bucket: Bucket, code: bytes) -> bytes:
        return hashlib.sha256(b"\0".join([self.versions, bucket.checksum.encode(), code])).digest()


PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = ("model/emit/templates", "model/ops", "model/kernels", "clock/templates", "driver/templates", "build/forms")


# Of gcc, clang and armclang; of TI's compilers; of IAR's.
BIG_ENDIAN = (
    "(defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__) || defined(__big_endian__) \\\n"
    "    || (defined(__LITTLE_ENDIAN__) && !__LITTLE_ENDIAN__)"
)


class Used:
    """Names of C that others define: `use.eb_clamp` and `use['arm_mve.h']` are the names, and are noted."""

    def __init__(self) -> None:
        self.names = set[str]()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return name


def times(text: str, factor: object) -> str:
    """C for a product, without a factor of one. The factor may be a letter, which is not asked for its value."""
    return text if type(factor) is int and factor == 1 else f"{text} * {factor}"


def plus(text: str, term: object) -> str:
    """C for a sum, without a term of zero. A negative number is taken away."""
    if type(term) is int and term <= 0:
        return f"{text} - {-term}" if term else text
    return f"{text} + {term}"


def minus(text: str, term: object) -> str:
    """C for a difference, without a term of zero."""
    return plus(text, -term) if type(term) is int else f"{text} - {term}"


def size(number: object) -> object:
    """C for a number of bytes: parameters have a sign, which compilers warn of."""
    return number if type(number) is int else f"(uint32_t){number}"


def terms(steps: Iterable[int], names: str | Sequence[str]) -> str:
    """C for the sum of indexes times their steps. The indexes have these names, or this one with numbers behind it."""
    named = [(f"{names}{n}" if isinstance(names, str) else names[n], step) for n, step in enumerate(steps)]
    return " + ".join(times(name, step) for name, step in named if step) or "0"


def pixel(row: str, width: object, column: str, channels: object) -> str:
    """C for the place of a pixel behind that of its tensor, in elements."""
    place = column if row == "0" else f"{times(row, width)} + {column}"
    if type(channels) is int and channels == 1:
        return place
    return times(place if place.isidentifier() else f"({place})", channels)


def at_row(text: str, ring: int, only: str = "") -> str:
    """C for the place of a row in a ring of so many rows; 0: in a tensor that is there whole.

    `only`: C for that in a ring of one row, where the number of the row is used for something else, too.

    The ring is a number and no letter, because a remainder of a variable is slow.
    """
    row = text if text.isidentifier() else f"({text})"
    if only and index(ring) == 1:
        return only
    return f"{row} % {index(ring)}" if ring else row


def row_at(row: str, s: Any, size: object = None, base: str = "x") -> str:
    """C for the address of a row of the operand, by the letters of `spatial.rolled`. See `Form.separate`.

    `size`: elements of a row; not given: W * C.
    """
    size = s.W * s.C if size is None else size
    place = f"{base} + {times(at_row(row, s.ring), size)}"
    if not s.separate:
        return place
    return f"({row} < kept ? {base if s.ring == 1 else place} : newest)"


def pixel_at(row: str, s: Any, column: str, base: str = "x", only: str = "") -> str:
    """C for the address of a pixel of the operand. `only`: as for `at_row`."""
    if not s.separate:
        return f"{base} + {pixel(at_row(row, s.ring, only), s.W, column, s.C)}"
    return f"{row_at(row, s, base=base)} + {pixel('0', 0, column, s.C)}"


def over(text: str, divisor: object) -> str:
    """C for a quotient, without a divisor of one."""
    return text if type(divisor) is int and divisor == 1 else f"{text} / {divisor}"


def phase(down: str, across: str, rows: object, columns: object) -> str:
    """C for the number of a pixel in a pattern of rows and columns that repeats."""
    summands = [] if type(rows) is int and rows == 1 else [times(f"{down} % {rows}", columns)]
    across = across if across.isidentifier() else f"({across})"
    summands += [] if type(columns) is int and columns == 1 else [f"{across} % {columns}"]
    return f"({' + '.join(summands)})" if summands else "0"


def turns(body: str, head: str) -> str:
    """C that stands in braces behind `head`; without a head it moves a step to the left instead.

    So the same lines are the body of a loop, or run once.
    """
    if not head:
        return "".join(line.removeprefix("    ") for line in body.splitlines(keepends=True))
    margin = body[: len(body) - len(body.lstrip(" ")) - 4]
    return f"{margin}{head}{'' if head == '{' else ' {'}\n{body}{margin}}}\n"


def nested(body: str, extents: Iterable[object], names: str | Iterable[str]) -> str:
    """C in as many loops as there are extents; the body stands where the outermost of them begins. Names: see `terms`.

    Their variables are those names, or this one with numbers behind it.
    """
    margin, step, heads, ends = body[: len(body) - len(body.lstrip(" "))], "", "", ""
    for extent, name in zip(
        extents, (f"{names}{n}" for n in count()) if isinstance(names, str) else names, strict=False
    ):
        heads += f"{margin}{step}for (int32_t {name} = 0; {name} < {extent}; ++{name}) {{\n"
        ends = f"{margin}{step}}}\n{ends}"
        step += "    "
    return heads + "".join(step + line for line in body.splitlines(keepends=True)) + ends


def noted(value: object) -> object:
    """A number for a comment: a letter that stands nowhere else needs no parameter."""
    return getattr(value, "text", value)


def fitted(text: str) -> str:
    """C whose statements fit into the columns: longer ones go on in further lines.

    Directives, comments and lines with strings stay as they are.
    """
    return "\n".join(line if len(line) <= COLUMNS else _broken(line) for line in text.split("\n"))


def _broken(line: str) -> str:
    """A statement in lines that end behind a comma or in front of an operator of `?:`, or at any blank."""
    statement = line.lstrip(" ")
    margin = line[: len(line) - len(statement)]
    if statement.startswith(("#", "/", "* ", "*/")) or '"' in line:
        return line
    lines = list[str]()
    while len(line) > COLUMNS:
        ends = [line.rfind(mark, 0, COLUMNS) + before for mark, before in ((", ", 1), (" ? ", 0), (" : ", 0))]
        end = max(ends) if max(ends) > COLUMNS // 2 else line.rfind(" ", len(margin) + 4, COLUMNS)
        if end < 0:
            break
        lines.append(line[:end])
        line = f"{margin}    {line[end:].lstrip(' ')}"
    return "\n".join([*lines, line])


class Pieces(jinja2.FileSystemLoader):
    """Files with several templates: `FILE:NAME` is the part of FILE.j2 behind the line `%% NAME`."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        file, _, name = template.partition(":")
        text, path, unchanged = super().get_source(environment, f"{file}.j2" if name else file)
        if name:
            _, mark, rest = text.partition(f"%% {name}\n")
            if not mark:
                raise jinja2.TemplateNotFound(template)
            text, following, _ = rest.partition("\n%% ")
            text += following[:1]
        return text, path, unchanged


@cache
def environment() -> jinja2.Environment:
    templates = jinja2.Environment(
        bytecode_cache=CompiledTemplates(Path(__file__)),
        loader=Pieces([PACKAGE / folder for folder in FOLDERS]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        extensions=("jinja2.ext.do",),
    )
    for function in (times, plus, minus, size, terms, pixel, at_row, row_at, pixel_at, noted, turns, nested, over,
                     phase, comment, quoted, fitted):  # fmt: skip
        templates.filters[function.__name__] = function
    templates.globals |= {remark.__name__: remark, "big_endian": BIG_ENDIAN}
    return templates


@cache
def pictures() -> jinja2.Environment:
    """The environment of SVG and HTML: all that is printed is escaped."""
    return environment().overlay(autoescape=True, finalize=lambda value: Markup(xml(str(value))))


def render(template: str, **view: Any) -> str:
    jinja = pictures() if template.endswith((".svg.j2", ".html.j2", ".pdsc")) else environment()
    return jinja.get_template(template).render(licence=LICENCE, **view)
