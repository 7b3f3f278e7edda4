"""Options as fields of a request: the table that commands, request files, SCons and CMake share.

    @dataclass(frozen=True)
    class ModelRequest:
        ram: int | None = option(None, SIZE, "largest arena", metavar="BYTES")

The field has the option's name, its type and its default. The name is written `ram` in a request file, `--ram` on the
command line and `RAM` in build scripts. A field without `option` is no option.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import did_you_mean, fail

C_WORDS = frozenset(
    """auto bool break case char class const constexpr continue default delete do double else enum extern float for
    friend goto if inline int long main namespace new operator private protected public register restrict return short
    signed sizeof static struct switch template this throw try typedef typename union unsigned using virtual void
    volatile while""".split()  # noqa: SIM905
)
LARGEST = 1e12  # largest number of an option: products of several such numbers still do not overflow

Value = str | int | float | bool | None  # as a user or a request file writes it
Read = Callable[[str, Value], Any]  # (option's name, value) to what the request holds; raises EdgebuildError


@dataclass(frozen=True)
class Kind:
    """The kind of an option's value: its reader, and properties for commands and build systems."""

    read: Read
    metavar: str = ""
    words: tuple[str, ...] = ()  # the accepted values; empty: any that `read` accepts
    switch: bool = False  # whether it has no value on the command line
    is_file: bool = False  # whether it is a path, relative to the file or folder of its writer
    separator: str = ""  # between the values of a list; empty: a single value
    prefixes: tuple[str, ...] = ("",)  # with `is_file`: only text after one of these prefixes is a path


@dataclass(frozen=True)
class Option:
    """One option of a request: its kind, and its line of help."""

    kind: Kind
    help: str

    def moved(self, value: Value, move: Callable[[str], str]) -> Value:
        """The value with its paths, if it has any, rewritten by `move`."""
        text = str(value)
        prefix = next((p for p in self.kind.prefixes if text.startswith(p)), None)
        if not self.kind.is_file or value is None or prefix is None:
            return value
        rest, separator = text.removeprefix(prefix), self.kind.separator
        paths = rest.split(separator) if separator else [rest]
        return prefix + separator.join(map(move, paths))


def option(default: Any, kind: Kind, text: str, metavar: str = "") -> Any:
    """A field of a request that is an option. `text`: the line of the command's help."""
    kind = dataclasses.replace(kind, metavar=metavar) if metavar else kind
    return dataclasses.field(default=default, metadata={"option": Option(kind, text)})


def options_of(request: type) -> Mapping[str, Option]:
    """The options of a request class by name, in the order of its fields, and those of its inner requests (`EACH`)."""
    own = {f.name: f.metadata["option"] for f in dataclasses.fields(request) if "option" in f.metadata}
    each, but = getattr(request, "EACH", (None, ()))
    return own if each is None else own | {name: o for name, o in options_of(each).items() if name not in but}


def checked(request: type, given: Mapping[str, Value]) -> dict[str, Any]:
    """Read the values of options for the fields of `request`; None keeps the default.

    Raises EdgebuildError for an unknown option or a value of the wrong form.
    """
    accepted = options_of(request)
    for name in given:
        if name not in accepted:
            raise fail(f"unknown option '{name}'{did_you_mean(name, accepted)}")
    return {name: accepted[name].kind.read(name, value) for name, value in given.items() if value is not None}


def add_options(parser: argparse.ArgumentParser, request: type, names: Collection[str] | None = None) -> None:
    """Add the options of `request` (or only `names`) to a command's parser, as strings; `given` collects them."""
    for name, o in options_of(request).items():
        if names is not None and name not in names:
            continue
        flag = "--" + name.replace("_", "-")
        if o.kind.switch:
            parser.add_argument(flag, action="store_true", default=None, help=o.help)
        else:
            metavar, repeated = o.kind.metavar or None, "append" if o.kind.separator else "store"
            parser.add_argument(flag, action=repeated, choices=o.kind.words or None, metavar=metavar, help=o.help)


def given(arguments: argparse.Namespace, request: type, names: Collection[str] | None = None) -> dict[str, Value]:
    """The values of `request`'s options on the command line. Lists may be given several times, and are joined."""
    values = {name: getattr(arguments, name, None) for name in options_of(request) if names is None or name in names}
    separators = {name: o.kind.separator for name, o in options_of(request).items()}
    return {name: separators[name].join(v) if isinstance(v, list) else v for name, v in values.items()}


# ---- readers of values


def parse_size(option: str, value: Value) -> int:
    """Bytes from `16384`, `0x4000`, `16K` or `1M` (K and M are powers of two)."""
    match = re.fullmatch(r"(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})\s*([kKmM]?)(?:i?[bB])?", str(value).strip())
    if isinstance(value, bool) or not match:
        raise fail(f"option '{option}': '{value}' is not a size", hints=["write bytes: 16384, 0x4000, 16K, 1M"])
    number = match[1] if match[1].lower().startswith("0x") else match[1].lstrip("0") or "0"
    return int(number, 0) << {"": 0, "k": 10, "m": 20}[match[2].lower()]


def parse_hz(option: str, value: Value) -> int:
    """Hz from `8000000`, `8e6`, `8MHz`, `8M` or `32768Hz` (decimal units)."""
    match = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*(|k|M)(?:Hz)?", str(value).strip(), re.IGNORECASE)
    try:
        number = float(match[1]) * {"": 1, "k": 1e3, "m": 1e6}[match[2].lower()] if match else 0.0
    except ValueError:
        number = 0.0
    if not 0 < number < 1e10:
        raise fail(f"option '{option}': '{value}' is not a frequency", hints=["such as 8000000, 8MHz or 25M"])
    return round(number)


def _hz_list(option: str, value: Value) -> tuple[int, ...]:
    return tuple(parse_hz(option, word) for word in str(value).split(","))


def _number(option: str, value: Value) -> float:
    try:
        number = float(value) if value is not None and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not 0 <= number <= LARGEST:
        raise fail(f"option '{option}': '{value}' is not a number from 0 to {LARGEST:.0e}")
    return number


def _numbers(option: str, value: Value) -> float | tuple[float, ...]:
    """One number, or several separated by commas."""
    words = str(value).split(",")
    return _number(option, value) if len(words) == 1 else tuple(_number(option, word.strip()) for word in words)


def _switch(option: str, value: Value) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word not in ("1", "on", "true", "yes", "0", "off", "false", "no"):
        raise fail(f"option '{option}': '{value}' is neither on nor off", hints=["one of: on, off"])
    return word in ("1", "on", "true", "yes")


def words(*choices: str, convert: Callable[[str], Any] = str) -> Kind:
    """One of some words, in any case; `convert` turns the word into the request's value."""

    def read(option: str, value: Value) -> Any:
        word = str(value).lower()
        if word not in choices:
            near = did_you_mean(word, choices)
            raise fail(f"option '{option}': '{value}' is not known{near}", hints=[f"one of: {', '.join(choices)}"])
        return convert(word)

    return Kind(read, words=choices)


def words_or_file(prefixes: tuple[str, ...], *choices: str) -> Kind:
    """One of some words, or a path after one of `prefixes`."""

    def read(option: str, value: Value) -> str:
        text = str(value)
        if text not in choices and not any(text.startswith(p) and len(text) > len(p) for p in prefixes):
            forms = ", ".join([*choices, *(f"{p}FILE" for p in prefixes)])
            raise fail(f"option '{option}': '{value}' is not known", hints=[f"one of: {forms}"])
        return text

    return Kind(read, is_file=True, prefixes=prefixes)


def _shapes(option: str, value: Value) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Shapes by name from `x=1,3,96,96`; several are separated by blanks."""
    shapes = []
    for word in str(value).split():
        name, _, sizes = word.rpartition("=")
        if not name or not re.fullmatch(r"[1-9][0-9]{0,8}(,[1-9][0-9]{0,8})*", sizes):
            raise fail(f"option '{option}': '{word}' is not a shape", hints=["write NAME=SIZES, as x=1,3,96,96"])
        shapes.append((name, tuple(int(n) for n in sizes.split(","))))
    return tuple(shapes)


def _bindings(option: str, value: Value) -> tuple[tuple[str, tuple[int | float, ...]], ...]:
    """Numbers by name from `sr=16000`; several numbers are separated by commas, several inputs by blanks."""
    bindings = []
    for word in str(value).split():
        name, _, numbers = word.rpartition("=")
        try:
            read = tuple(_literal(n) for n in numbers.split(","))
        except ValueError:
            read = ()
        if not name or not read:
            raise fail(f"option '{option}': '{word}' is no binding", hints=["write NAME=NUMBERS, as sr=16000"])
        bindings.append((name, read))
    return tuple(bindings)


def _literal(word: str) -> int | float:
    """A number, or true or false; whole numbers stay exact. Raises ValueError for anything else."""
    if re.fullmatch(r"[+-]?[0-9]{1,19}", word):
        return int(word)
    number = {"true": 1, "false": 0}.get(word.lower(), float("nan")) if word.isalpha() else float(word)
    if not math.isfinite(number):
        raise ValueError(word)
    return number


def _sizes(option: str, value: Value) -> tuple[tuple[str, int], ...]:
    """Bytes by name from `L1=48K,L2=300K`."""
    limits = []
    for word in str(value).split(","):
        name, _, size = word.partition("=")
        if not name or not size:
            raise fail(f"option '{option}': '{word}' is not a limit", hints=["write NAME=BYTES, as L1=48K,L2=300K"])
        limits.append((name.strip(), parse_size(option, size)))
    return tuple(limits)


@dataclass(frozen=True)
class SharedBuffer:
    """A buffer of the application in the arena of a group of models.

    `alive`: when its content is needed: with a model (`kws`), in one of its phases (`kws.input`: while the input is
    written, `kws.run`, `kws.output`), or `idle`. Empty: always. `memory`: a name; empty: any memory for arenas.
    """

    name: str
    bytes: int
    alive: tuple[str, ...] = ()
    memory: str = ""
    align: int = 16


BUFFER_WORDS = ("bytes", "alive", "memory", "align")


def shared_buffer(name: str, given: Mapping[str, str]) -> SharedBuffer:
    """A buffer from `bytes` and optionally `alive` (joined by +), `memory` and `align`. Raises EdgebuildError."""
    for key in given:
        if key not in BUFFER_WORDS:
            hints = ["known: " + ", ".join(BUFFER_WORDS)]
            raise fail(f"buffer '{name}': unknown '{key}'{did_you_mean(key, BUFFER_WORDS)}", hints=hints)
    sizes = {key: parse_size(f"buffers: {key} of {name}", given.get(key, "16")) for key in ("bytes", "align")}
    if "bytes" not in given or not 0 < sizes["bytes"] <= LARGEST:
        raise fail(f"buffer '{name}' has no bytes", hints=["as audio=4K"])
    if sizes["align"] not in [1 << n for n in range(17)]:
        raise fail(f"buffer '{name}': alignment {sizes['align']}", hints=["a power of two up to 65536"])
    alive = tuple(word for word in given.get("alive", "").split("+") if word)
    return SharedBuffer(name, sizes["bytes"], alive, given.get("memory", ""), sizes["align"])


def _buffers(option: str, value: Value) -> tuple[SharedBuffer, ...]:
    """Buffers from `audio=4K,alive=kws.input+vww,memory=RAM,align=32`; several are separated by blanks."""
    buffers = []
    for word in str(value).split():
        pairs = [pair.partition("=") for pair in word.split(",")]
        if not all(key and sign and text for key, sign, text in pairs):
            hints = ["write NAME=BYTES,alive=MODEL+MODEL,memory=NAME,align=BYTES; all but the first may be left out"]
            raise fail(f"option '{option}': '{word}' is no buffer", hints=hints)
        buffers.append(shared_buffer(pairs[0][0], {"bytes": pairs[0][2], **{key: text for key, _, text in pairs[1:]}}))
    return tuple(buffers)


SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
RESERVED = re.compile(r"(__|_[A-Z]|eb_)\w*|mem(cmp|cpy|move|set)|u?int\w*_t|(max_align|ptrdiff|size|wchar)_t|NULL")


def _symbols(option: str, value: Value) -> tuple[tuple[str, str], ...]:
    """Arrays by tensor from `audio` ("": the only tensor) or `x=audio`; several are separated by blanks."""
    arrays = []
    for word in str(value).split():
        tensor, _, symbol = word.rpartition("=")
        if not SYMBOL.fullmatch(symbol) or symbol in C_WORDS or RESERVED.fullmatch(symbol):
            hints = ["write the name of an array of yours in C, or TENSOR=NAME"]
            raise fail(f"option '{option}': '{word}' names no array", hints=hints)
        arrays.append((tensor, symbol))
    return tuple(arrays)


SYMBOLS = Kind(_symbols, "SYMBOL", separator=" ")
BUFFERS = Kind(_buffers, "NAME=BYTES...", separator=" ")
SIZES = Kind(_sizes, "NAME=BYTES,...", separator=",")
SHAPES = Kind(_shapes, "X=1,3,96,96", separator=" ")
BINDINGS = Kind(_bindings, "X=1", separator=" ")
NAMES = Kind(lambda option, value: tuple(str(value).split()), "NAME...", separator=" ")
TEXT = Kind(lambda option, value: str(value), "NAME")
SIZE = Kind(parse_size, "BYTES")
HZ = Kind(parse_hz, "HZ")
HZ_LIST = Kind(_hz_list, "HZ,...", separator=",")
NUMBER = Kind(_number)
NUMBERS = Kind(_numbers, separator=",")
SWITCH = Kind(_switch, switch=True)
FILE = Kind(lambda option, value: Path(str(value)), "F", is_file=True)
FILES = Kind(lambda option, value: tuple(map(Path, str(value).split(","))), "F,...", is_file=True, separator=",")
WORDS = Kind(lambda option, value: tuple(str(value).split(",")), "W,...", separator=",")
