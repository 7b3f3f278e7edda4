"""The Jinja environment of all templates. Templates only print; values are computed before."""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
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

# Bytecode of templates, cached beside that of the package's modules: compiling those of a core takes half a second.
#
# Python keeps the bytecode of modules in `__pycache__`. Templates use the same folder, so write access to it grants no
# more than it does already. Python's switches apply: PYTHONPYCACHEPREFIX moves the files, and with
# PYTHONDONTWRITEBYTECODE none are written.
#
# A file is only used for the same template, environment, Jinja and Python, and if its digest is right. If the folder
# cannot be written, templates are compiled each time.

LENGTH = hashlib.sha256().digest_size


class CompiledTemplates(jinja2.BytecodeCache):
    """One file per template: a digest, then the code. `environment`: the module that creates Jinja's environment."""

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
        """Write the file atomically, for concurrent readers and writers."""
        if sys.dont_write_bytecode:
            return
        code, file = marshal.dumps(bucket.code), self._file(bucket)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(str(file), self._digest(bucket, code) + code)
        except OSError:
            pass  # the folder cannot be written, or the disk is full

    def _file(self, bucket: Bucket) -> Path:
        return self.folder / f"template-{bucket.key}.{sys.implementation.cache_tag}.pyc"

    def _digest(self, bucket: Bucket, code: bytes) -> bytes:
        return hashlib.sha256(b"\0".join([self.versions, bucket.checksum.encode(), code])).digest()


PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = ("model/emit/templates", "model/ops", "model/kernels", "clock/templates", "driver/templates", "build/forms")


# Conditions of gcc, clang and armclang; of TI's compilers; of IAR's.
BIG_ENDIAN = (
    "(defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__) || defined(__big_endian__) \\\n"
    "    || (defined(__LITTLE_ENDIAN__) && !__LITTLE_ENDIAN__)"
)


class Used:
    """Collects the C names that a template uses: `use.eb_clamp` and `use['arm_mve.h']` are these names."""

    def __init__(self) -> None:
        self.names = set[str]()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return name


def times(text: str, factor: object) -> str:
    """C for a product; a factor of 1 is left out. The factor may be a parameter, whose value is not read."""
    return text if type(factor) is int and factor == 1 else f"{text} * {factor}"


def plus(text: str, term: object) -> str:
    """C for a sum; a term of 0 is left out, a negative one is subtracted."""
    if type(term) is int and term <= 0:
        return f"{text} - {-term}" if term else text
    return f"{text} + {term}"


def minus(text: str, term: object) -> str:
    """C for a difference; a term of 0 is left out."""
    return plus(text, -term) if type(term) is int else f"{text} - {term}"


def size(number: object) -> object:
    """C for a number of bytes: parameters are cast, because they are signed and compilers would warn."""
    return number if type(number) is int else f"(uint32_t){number}"


def terms(steps: Iterable[int], names: str | Sequence[str]) -> str:
    """C for the sum of indices times their steps. `names`: of the indices, or the prefix of numbered names."""
    named = [(f"{names}{n}" if isinstance(names, str) else names[n], step) for n, step in enumerate(steps)]
    return " + ".join(times(name, step) for name, step in named if step) or "0"


def pixel(row: str, width: object, column: str, channels: object) -> str:
    """C for the offset of a pixel in its tensor, in elements."""
    place = column if row == "0" else f"{times(row, width)} + {column}"
    if type(channels) is int and channels == 1:
        return place
    return times(place if place.isidentifier() else f"({place})", channels)


def at_row(text: str, ring: int, only: str = "") -> str:
    """C for the index of a row in a ring of `ring` rows; 0: in a whole tensor.

    `only`: C for the index in a ring of one row, if the row's number is also used elsewhere.

    The ring must be a number, not a parameter, because a remainder by a variable is slow.
    """
    row = text if text.isidentifier() else f"({text})"
    if only and index(ring) == 1:
        return only
    return f"{row} % {index(ring)}" if ring else row


def row_at(row: str, s: Any, size: object = None, base: str = "x") -> str:
    """C for the address of a row of the operand, by the values of `spatial.rolled`. See `Form.separate`.

    `size`: elements of a row; default: W * C.
    """
    size = s.W * s.C if size is None else size
    place = f"{base} + {times(at_row(row, s.ring), size)}"
    if not s.separate:
        return place
    return f"({row} < kept ? {base if s.ring == 1 else place} : newest)"


def pixel_at(row: str, s: Any, column: str, base: str = "x", only: str = "") -> str:
    """C for the address of a pixel of the operand. `only`: as in `at_row`."""
    if not s.separate:
        return f"{base} + {pixel(at_row(row, s.ring, only), s.W, column, s.C)}"
    return f"{row_at(row, s, base=base)} + {pixel('0', 0, column, s.C)}"


def over(text: str, divisor: object) -> str:
    """C for a quotient; a divisor of 1 is left out."""
    return text if type(divisor) is int and divisor == 1 else f"{text} / {divisor}"


def phase(down: str, across: str, rows: object, columns: object) -> str:
    """C for the number of a pixel in a repeating pattern of `rows` x `columns`."""
    summands = [] if type(rows) is int and rows == 1 else [times(f"{down} % {rows}", columns)]
    across = across if across.isidentifier() else f"({across})"
    summands += [] if type(columns) is int and columns == 1 else [f"{across} % {columns}"]
    return f"({' + '.join(summands)})" if summands else "0"


def turns(body: str, head: str) -> str:
    """C in braces after `head`; without a head, the lines move one step to the left instead.

    So the same lines serve as the body of a loop, or as code that runs once.
    """
    if not head:
        return "".join(line.removeprefix("    ") for line in body.splitlines(keepends=True))
    margin = body[: len(body) - len(body.lstrip(" ")) - 4]
    return f"{margin}{head}{'' if head == '{' else ' {'}\n{body}{margin}}}\n"


def nested(body: str, extents: Iterable[object], names: str | Iterable[str]) -> str:
    """C in nested loops, one for each extent. The body is indented like the outermost loop.

    `names`: of the loop variables, as in `terms`.
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
    """A number for a comment, where printing a letter does not count as a use of it."""
    return getattr(value, "text", value)


def fitted(text: str) -> str:
    """C whose statements fit into `COLUMNS`: longer ones are broken into several lines.

    Directives, comments and lines with strings are not changed.
    """
    return "\n".join(line if len(line) <= COLUMNS else _broken(line) for line in text.split("\n"))


def _broken(line: str) -> str:
    """A statement, broken after a comma, before an operator of `?:`, or else at any blank."""
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
    """Loads files with several templates: `FILE:NAME` is the part of FILE.j2 after the line `%% NAME`."""

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

    def list_templates(self) -> list[str]:
        """The names of all files and of their pieces."""
        names = [name for name in super().list_templates() if name.endswith((".j2", ".pdsc"))]
        for name in list(names):
            pieces = re.findall(r"^%% (.+)$", self.get_source(environment(), name)[0], re.MULTILINE)
            names += [f"{name.removesuffix('.j2')}:{piece}" for piece in pieces]
        return names


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
    """The environment of SVG and HTML, which escapes all printed values."""
    return environment().overlay(autoescape=True, finalize=lambda value: Markup(xml(str(value))))


def template(name: str) -> jinja2.Template:
    jinja = pictures() if name.endswith((".svg.j2", ".html.j2", ".pdsc")) else environment()
    return jinja.get_template(name)


def render(file: str, /, **view: Any) -> str:
    return template(file).render(licence=LICENCE, **view)


if __name__ == "__main__":  # writes the bytecode of all templates, as installers of packages do with modules
    sys.dont_write_bytecode = False
    for name in environment().list_templates():
        with suppress(jinja2.TemplateSyntaxError):  # part of a file that is only rendered whole
            template(name)
