"""What a build asks for: the request, as a value and as the `NAME.req.json` that both build systems write.

    {
      "schema": 1,
      "kind": "model",
      "name": "kws",
      "source": "../models/kws.tflite",
      "target": "mps2-an386",
      "output": ".",
      "options": {"objective": "ram", "ram": "16K"}
    }

Of a driver, "kind" is "driver" and "source" is a list; its options are `layout`, `profile` and `register_width`. Of a
clock configuration, "kind" is "clock" and "source" is an empty list, since the target says it all; its options are
`hse` and `sysclk`.
Paths are relative to the folder of the request file. Options have the names of the command's, with `_` for `-`, and
their values are strings as the user wrote them, or numbers.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgebuild.errors import did_you_mean, fail

SCHEMA = 1

OBJECTIVES = ("ram", "latency", "energy")
TILINGS = ("off", "fdt", "ffmt", "rolling", "auto")
ARENAS = ("static", "caller")
WEIGHTS = ("auto", "asm", "c")
OPTIMIZE = ("speed", "balanced", "size")
BACKENDS = ("edgebuild", "cmsis-nn")

Option = str | int | float | bool | None


@dataclass(frozen=True)
class ModelRequest:
    """A model to be compiled for a target. The defaults are those of the command."""

    source: Path
    name: str  # a C identifier, the prefix of all that is generated
    target: str  # a known target, or the path of a YAML file
    objective: str = "latency"
    tile: str | None = None  # None: as auto where it has to be, because the model does not fit or RAM is the objective
    ram: int | None = None  # bytes; None: what the target has
    max_mac_overhead: float | None = None  # percent of the model's MACs that tiling may compute twice
    qos: float | None = None  # milliseconds for one inference
    stream_input: str | None = None  # "rows": the application brings the input row by row
    arena: str = "static"
    time_limit: float | None = None  # seconds; None: one worker and a deterministic limit
    weights: str = "auto"  # how weights are linked; auto: as the target says
    optimize: str = "balanced"  # kernels: fewer instructions or less code
    portable: bool = False  # kernels in plain C, whatever the processor has
    backend: str = "edgebuild"  # cmsis-nn: its kernels too, where they are better
    cmsis_nn: Path | None = None  # folder of CMSIS-NN, which is found and never bundled
    choices: tuple[str, ...] = ()  # LAYER=VARIANT, as `edgebuild tune` found them
    hse: int | None = None  # Hz of the board's external clock; None: the clock tree's usual one
    calibration: Path | None = None  # what `edgebuild calibrate` fitted; None: the clock tree's own constants

    @property
    def called_library(self) -> Path | None:
        """The folder of the kernel library that generated code may call."""
        return self.cmsis_nn if self.backend == "cmsis-nn" else None

    @property
    def files(self) -> tuple[Path, ...]:
        """What is read besides the target's files."""
        return (self.source, *([self.calibration] if self.calibration else []))


def model_outputs(name: str) -> tuple[str, ...]:
    """The files that a model of this name becomes, whatever it holds: an unused one is there and empty."""
    suffixes = (".c", ".h", "_weights.S", "_weights.bin", "_weights.c", "_memory.ld", "_clock.h", "_report.json")
    return tuple(name + suffix for suffix in suffixes)


def model_request(source: Path, name: str, target: str, options: Mapping[str, Option]) -> ModelRequest:
    """Check the options and turn them into a request.

    Options that are None keep their default. Raises EdgebuildError for an unknown option or a value of the wrong form.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise fail(f"name: '{name}' is not a C identifier", hints=["it becomes the prefix of functions and files"])
    values: dict[str, Any] = {}
    for option, value in options.items():
        if option not in _OPTIONS:
            raise fail(f"unknown option '{option}'{did_you_mean(option, _OPTIONS)}")
        if value is not None:
            values[option] = _OPTIONS[option](option, value)
    return ModelRequest(source=source, name=name, target=target, **values)


@dataclass(frozen=True)
class DriverRequest:
    """Sources to be made into a driver. `layout`: optimize, heuristic, or fixed:FILE (.svd or .rdl)."""

    sources: tuple[Path, ...]
    name: str  # a C identifier, the prefix of the products' files
    target: str
    layout: str = "optimize"
    width: int = 32  # of a register, in bits
    profile: Path | None = None  # how often functions run


DRIVER_OPTIONS = ("layout", "profile", "register_width")


def driver_outputs(name: str) -> tuple[str, ...]:
    """The files that a driver of this name becomes."""
    suffixes = (".c", "_hal.h", "_regs.h", "_systemc.h", ".svd", ".rdl", "_report.json", "_report.txt")
    return tuple(name + suffix for suffix in suffixes)


def driver_request(sources: tuple[Path, ...], name: str, target: str, options: Mapping[str, Option]) -> DriverRequest:
    """Check the options and turn them into a request. Raises EdgebuildError for what is not known."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise fail(f"name: '{name}' is not a C identifier", hints=["it becomes the prefix of the products' files"])
    for option in options:
        if option not in DRIVER_OPTIONS:
            raise fail(f"unknown option '{option}'{did_you_mean(option, DRIVER_OPTIONS)}")
    layout, width = str(options.get("layout") or "optimize"), str(options.get("register_width") or 32)
    if layout not in ("optimize", "heuristic") and not layout.startswith("fixed:"):
        raise fail(f"option 'layout': '{layout}' is not known", hints=["one of: optimize, heuristic, fixed:FILE"])
    if width not in ("8", "16", "32"):
        raise fail(f"option 'register_width': '{width}' is not known", hints=["one of: 8, 16, 32"])
    profile = Path(str(options["profile"])) if options.get("profile") else None
    if profile and layout.startswith("fixed:"):
        raise fail("option 'profile': a fixed layout leaves nothing to choose")
    return DriverRequest(sources, name, target, layout, int(width), profile)


@dataclass(frozen=True)
class ClockRequest:
    """The clock configurations of a target, Hz. The name is that of the build's folder; products have fixed names."""

    name: str
    target: str
    hse: int | None = None  # None: the clock tree's usual one
    sysclk: tuple[int, ...] = ()  # empty: those of the clock tree


CLOCK_OPTIONS = ("hse", "sysclk")
CLOCK_OUTPUTS = ("clock_config.c", "clock_config.h")


def clock_request(name: str, target: str, options: Mapping[str, Option]) -> ClockRequest:
    """Check the options and turn them into a request. Raises EdgebuildError for what is not known."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise fail(f"name: '{name}' is not a C identifier", hints=["it becomes the name of a folder"])
    for option in options:
        if option not in CLOCK_OPTIONS:
            raise fail(f"unknown option '{option}'{did_you_mean(option, CLOCK_OPTIONS)}")
    hse, sysclk = options.get("hse"), options.get("sysclk")
    wanted = tuple(parse_hz("sysclk", word) for word in str(sysclk).split(",")) if sysclk is not None else ()
    return ClockRequest(name, target, None if hse is None else parse_hz("hse", hse), wanted)


@dataclass(frozen=True)
class RequestFile:
    """A request for a model as it was read, and the folder its products go to."""

    model: ModelRequest
    output: Path


@dataclass(frozen=True)
class DriverFile:
    """A request for a driver as it was read, and the folder its products go to."""

    driver: DriverRequest
    output: Path


@dataclass(frozen=True)
class ClockFile:
    """A request for clock configurations as it was read, and the folder its products go to."""

    clock: ClockRequest
    output: Path


def read_request(path: Path) -> RequestFile | DriverFile | ClockFile:
    """Read and check a request file. Raises EdgebuildError that names the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise fail(f"cannot read the request: {error.strerror}", file=str(path)) from error
    except ValueError as error:
        raise fail(f"not a request: {error}", file=str(path)) from error
    _check_shape(data, str(path))
    folder = os.path.dirname(os.path.abspath(path))

    def place(relative: str) -> Path:
        # By text, not by asking the file system: the writer made it relative by text, and a link may lie in between.
        return Path(os.path.normpath(os.path.join(folder, relative)))

    target = data["target"]
    is_file = target.endswith((".yaml", ".yml"))
    target = str(place(target)) if is_file else target
    if data["kind"] == "clock":
        return ClockFile(clock_request(data["name"], target, data["options"]), place(data["output"]))
    if data["kind"] == "driver":
        options = dict(data["options"])
        way, colon, file = str(options.get("layout") or "").partition(":")
        if colon:
            options["layout"] = f"{way}:{place(file)}"
        if options.get("profile"):
            options["profile"] = str(place(str(options["profile"])))
        driver = driver_request(tuple(place(s) for s in data["source"]), data["name"], target, options)
        return DriverFile(driver, place(data["output"]))
    options = dict(data["options"])
    for option in PATH_OPTIONS:
        if options.get(option):
            options[option] = str(place(str(options[option])))
    model = model_request(place(data["source"]), data["name"], target, options)
    return RequestFile(model, place(data["output"]))


_MEMBERS: dict[str, type] = {
    "kind": str,
    "name": str,
    "options": dict,
    "output": str,
    "schema": int,
    "target": str,
}


def _check_shape(data: Any, file: str) -> None:
    if not isinstance(data, dict):
        raise fail("not a request: a JSON object is expected", file=file)
    for key in sorted(data.keys() - {*_MEMBERS, "source"}):
        raise fail(f"unknown member '{key}'{did_you_mean(key, [*_MEMBERS, 'source'])}", file=file)
    if data.get("kind") not in ("model", "driver", "clock", None):
        raise fail(f"kind '{data['kind']}' is not known; use 'model', 'driver' or 'clock'", file=file)
    for key, kind in _MEMBERS.items():
        if not isinstance(data.get(key), kind):
            raise fail(f"member '{key}' must be there and of type {kind.__name__}", file=file)
    _check_source(data["kind"], data.get("source"), file)
    if data["schema"] != SCHEMA:
        raise fail(f"schema {data['schema']} is not known here", file=file, hints=[f"this version reads {SCHEMA}"])


def _check_source(kind: str, source: Any, file: str) -> None:
    if kind == "model":
        fits, what = isinstance(source, str), "a file"
    elif kind == "driver":
        fits = isinstance(source, list) and bool(source) and all(isinstance(s, str) for s in source)
        what = "a list of files"
    else:
        fits, what = source == [], "an empty list: the target has the facts"
    if not fits:
        raise fail(f"member 'source' must be there and be {what}", file=file)


def parse_size(option: str, value: Option) -> int:
    """Bytes from `16384`, `0x4000`, `16K` or `1M` (K and M are powers of two)."""
    match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|[0-9]+)\s*([kKmM]?)(?:i?[bB])?", str(value).strip())
    if isinstance(value, bool) or not match:
        raise fail(f"option '{option}': '{value}' is not a size", hints=["write bytes: 16384, 0x4000, 16K, 1M"])
    return int(match[1], 0) << {"": 0, "k": 10, "m": 20}[match[2].lower()]


def parse_hz(option: str, value: Option) -> int:
    """Hz from `8000000`, `8e6`, `8MHz`, `8M` or `32768Hz` (decimal units)."""
    match = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*(|k|M)(?:Hz)?", str(value).strip(), re.IGNORECASE)
    try:
        number = float(match[1]) * {"": 1, "k": 1e3, "m": 1e6}[match[2].lower()] if match else 0.0
    except ValueError:
        number = 0.0
    if not 0 < number < 1e10:
        raise fail(f"option '{option}': '{value}' is not a frequency", hints=["such as 8000000, 8MHz or 25M"])
    return round(number)


def _positive(option: str, value: Option) -> float:
    try:
        number = float(value) if value is not None and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise fail(f"option '{option}': '{value}' is not a number from 0 upwards")
    return number


def _one_of(*words: str) -> Callable[[str, Option], str]:
    def check(option: str, value: Option) -> str:
        word = str(value).lower()
        if word not in words:
            raise fail(
                f"option '{option}': '{value}' is not known{did_you_mean(word, words)}",
                hints=[f"one of: {', '.join(words)}"],
            )
        return word

    return check


def _flag(option: str, value: Option) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word not in ("1", "on", "true", "yes", "0", "off", "false", "no"):
        raise fail(f"option '{option}': '{value}' is neither on nor off", hints=["one of: on, off"])
    return word in ("1", "on", "true", "yes")


def _path(option: str, value: Option) -> Path:
    return Path(str(value))


_OPTIONS: dict[str, Callable[[str, Option], Any]] = {
    "arena": _one_of(*ARENAS),
    "backend": _one_of(*BACKENDS),
    "calibration": _path,
    "cmsis_nn": _path,
    "hse": parse_hz,
    "max_mac_overhead": _positive,
    "objective": _one_of(*OBJECTIVES),
    "optimize": _one_of(*OPTIMIZE),
    "portable": _flag,
    "qos": _positive,
    "ram": parse_size,
    "stream_input": _one_of("rows"),
    "tile": _one_of(*TILINGS),
    "time_limit": _positive,
    "weights": _one_of(*WEIGHTS),
}
MODEL_OPTIONS = tuple(_OPTIONS)
PATH_OPTIONS = tuple(option for option, check in _OPTIONS.items() if check is _path)
