"""Build requests: as values, and as the file `NAME.req.json` that both build systems write.

    {
      "schema": 1,
      "kind": "model",
      "name": "kws",
      "source": "../models/kws.tflite",
      "target": "mps2-an386",
      "output": ".",
      "options": {"objective": "ram", "ram": "16K"}
    }

"kind" is "model", "group" (of models), "driver" or "clock". "source" of a group and of a driver is a list. That of a
clock configuration is an empty list, since the target has the facts. A group has the options of its models, too.
Paths are relative to the folder of the request file. Options have the names of the command's options, with `_` for
`-`. Their values are strings as the user wrote them, or numbers. The fields of the request classes are the one table
of options (`edgebuild.base.options`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .errors import Diagnostic, EdgebuildError, did_you_mean, fail, visible
from .facts import compose, entries, keys_of, wrong
from .inputs import read_json, read_text
from .options import (
    BINDINGS,
    BUFFERS,
    FILE,
    FILES,
    HZ,
    HZ_LIST,
    NAMES,
    NUMBER,
    NUMBERS,
    SHAPES,
    SIZE,
    SIZES,
    SWITCH,
    SYMBOLS,
    TEXT,
    WORDS,
    Kind,
    SharedBuffer,
    Value,
    checked,
    option,
    options_of,
    shared_buffer,
    words,
    words_or_file,
)
from .text import identifier

if TYPE_CHECKING:
    from yaml.nodes import Node

SCHEMA = 1
CPP_SUFFIXES = (".cpp", ".cc", ".cxx")  # of driver sources; generated code is then C++, too
PLACE = "_place.h"  # a header of a model in a group, with the place of its arena
IDLE = "idle"  # while no model of a group runs
PHASES = ("input", "run", "output")  # of a model: its input is written, it runs, its output is read
HSE = "frequency of the board's external clock, as 8000000 or 8MHz; default: that of the clock tree"


@dataclass(frozen=True)
class ModelRequest:
    """A model to be compiled for a target. The defaults are also those of the command."""

    SUFFIXES: ClassVar = (".c", ".h", "_arena.h", "_weights.S", "_weights.bin", "_weights.c", "_memory.ld", "_check.ld",
                          "_clock.h", "_report.json")  # fmt: skip

    source: Path
    name: str  # a C identifier, the prefix of all generated names and files
    target: str  # the name of a target, or the path of a YAML file
    objective: str = option("latency", words("ram", "latency", "energy"), "the quantity to minimise; default: latency")
    tile: str | None = option(
        None,
        words("off", "fdt", "ffmt", "rolling", "auto"),
        "how to tile layers; default: only if the model does not fit, or if RAM is the objective",
    )
    map: str = option(
        "off",
        words("off", "layer", "auto", "dory"),
        "move tiles between memory levels by DMA: layer by layer, jointly over layers, or by DORY's rule",
    )
    limit: tuple[tuple[str, int], ...] = option(
        (), SIZES, "with --map: use at most these bytes of a memory, as L1=48K,L2=300K"
    )
    ram: int | None = option(None, SIZE, "largest arena allowed, as 16384, 0x4000 or 16K; default: the target's RAM")
    flash: int | None = option(None, SIZE, "most bytes of constants and code allowed, as estimated; default: no limit")
    max_mac_overhead: float | None = option(
        None, NUMBER, "extra MACs that tiling may spend on recomputation; default: 0", metavar="PERCENT"
    )
    qos: float | tuple[float, ...] | None = option(
        None,
        NUMBERS,
        "deadline of one inference; with several, the application switches between them at run time",
        metavar="MS,...",
    )
    stream_input: str | None = option(
        None, words("rows"), "the application passes the input row by row; it is never whole in memory"
    )
    stream_output: str | None = option(
        None, words("rows"), "each output row goes to NAME_output_row() of the application as soon as it is computed"
    )
    arena: str = option(
        "static",
        words("static", "caller", "shared"),
        "caller: each function takes the arena as an argument; shared: NAME_place.h says where it lies, as in a group",
    )
    input_at: tuple[tuple[str, str], ...] = option(
        (),
        SYMBOLS,
        "read the input from this array of the application, not the arena; with several inputs, TENSOR=SYMBOL",
    )
    output_at: tuple[tuple[str, str], ...] = option(
        (), SYMBOLS, "write the output into this array of the application; with several outputs, TENSOR=SYMBOL"
    )
    time_limit: float | None = option(
        None, NUMBER, "time limit of the planner; results are reproducible only without it", metavar="S"
    )
    weights: str = option(
        "auto",
        words("auto", "asm", "c"),
        "store weights with .incbin (asm) or in string literals (c); default: the target's choice",
    )
    optimize: str = option(
        "balanced",
        words("speed", "balanced", "size"),
        "choose kernels for speed at any cost in flash, or for small code; default: balanced",
    )
    scales: str = option(
        "file",
        words("file", "power-of-two"),
        "power-of-two: round scales and adapt weights for engines that requantise by a shift; verify prints the loss",
    )
    steps: bool = option(False, SWITCH, "add NAME_step(), which runs one step of an inference at a time")
    max_slice: float | None = option(
        None, NUMBER, "split steps whose modelled time is longer, at rows; implies --steps", metavar="US"
    )
    selftest: bool = option(False, SWITCH, "add NAME_selftest(), which runs a test vector and compares the result")
    set_weights: bool = option(False, SWITCH, "add NAME_set_weights(), which replaces the weights at run time")
    note: bool = option(
        False, SWITCH, "add an ELF section .note.edgebuild with model, digest, options and version; it takes no flash"
    )
    portable: bool = option(False, SWITCH, "use kernels in plain C only, without the processor's special instructions")
    backend: str = option(
        "edgebuild", words("edgebuild", "cmsis-nn"), "cmsis-nn: call its kernels too, where they are better"
    )
    cmsis_nn: Path | None = option(
        None, FILE, "the folder of your copy of CMSIS-NN, which is not part of edgebuild", metavar="DIR"
    )
    choices: tuple[str, ...] = ()  # LAYER=VARIANT, from `edgebuild tune`
    hse: int | None = option(None, HZ, HSE)
    shape: tuple[tuple[str, tuple[int, ...]], ...] = option(
        (), SHAPES, "shapes of inputs that the model leaves open, separated by blanks"
    )
    bind: tuple[tuple[str, tuple[int | float, ...]], ...] = option(
        (), BINDINGS, "fix inputs to constants, as sr=16000; ops that depend on them alone are computed at compile time"
    )
    outputs: tuple[str, ...] = option((), NAMES, "end the model at these tensors; default: its own outputs")
    calibration: Path | None = option(None, FILE, "the cost model that `edgebuild calibrate --fit` wrote")

    cluster: Path | None = option(None, FILE, "a description of the devices that run the model together (YAML)")
    device: str | None = option(None, TEXT, "the device of the cluster to generate code for")

    @property
    def ineffective_options(self) -> tuple[str, ...]:
        """Messages on options that have no effect, each with the option that it depends on."""
        needs = {
            "--objective energy": (self.objective == "energy", ("qos", "calibration", "hse")),
            "--map": (self.map != "off", ("limit",)),
            "--backend cmsis-nn": (self.backend == "cmsis-nn", ("cmsis_nn",)),
            "a --tile that cuts ops": (self.tile not in ("off", "rolling"), ("max_mac_overhead",)),
        }
        given = {f.name for f in fields(self) if getattr(self, f.name) != f.default}
        return tuple(
            f"option '{name}' changes nothing without {condition}"
            for condition, (holds, names) in needs.items()
            for name in names
            if name in given and not holds
        )

    @property
    def stepwise(self) -> bool:
        return self.steps or self.max_slice is not None

    @property
    def called_library(self) -> Path | None:
        """The folder of the kernel library that generated code may call."""
        return self.cmsis_nn if self.backend == "cmsis-nn" else None

    @property
    def budgets_ms(self) -> tuple[float, ...]:
        """The time limits for one inference, in milliseconds."""
        return self.qos if isinstance(self.qos, tuple) else () if self.qos is None else (self.qos,)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read, without the target's."""
        return (self.source, *(f for f in (self.calibration, self.cluster) if f))


@dataclass(frozen=True)
class GroupRequest:
    """Models that share one arena, with buffers of the application in it. Options of models apply to each model."""

    SUFFIXES: ClassVar = (".h", "_arena.c", "_memory.ld", "_check.ld", "_report.json")
    EACH: ClassVar = (ModelRequest, ("arena", "cluster", "device", "input_at", "output_at"))

    models: tuple[ModelRequest, ...]
    name: str
    target: str
    share: str | None = option(
        None,
        words("exclusive", "pipeline", "concurrent"),
        "exclusive: one model at a time; pipeline: each passes its output on, in place; concurrent: all at once",
    )
    buffers: tuple[SharedBuffer, ...] = option(
        (),
        BUFFERS,
        "the application's buffers, as audio=4K,alive=kws.input+vww,memory=RAM,align=32, separated by blanks",
    )
    file: Path | None = None  # the YAML file that describes the group

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the generated files, with those of the models."""
        return group_outputs(self.name, [m.name for m in self.models])


@dataclass(frozen=True)
class DriverRequest:
    """The sources of a driver to be compiled for a target."""

    SUFFIXES: ClassVar = (
        ".c", "_hal.h", "_regs.h", "_systemc.h", "_mock.h", "_tlm.h", "_io.hpp", "_io.rs", ".svd", ".rdl",
        "_report.json", "_report.txt",
    )  # fmt: skip

    sources: tuple[Path, ...]
    name: str  # a C identifier, the prefix of the products' files
    target: str
    layout: str = option(
        "optimize",
        words_or_file(("fixed:", "extend:"), "optimize", "heuristic"),
        "optimize, heuristic, fixed:FILE (.svd, .rdl, .yaml), or extend:FILE (NAME_report.json); default: optimize",
        metavar="L",
    )
    register_width: int = option(
        32, words("8", "16", "32", convert=int), "width of the registers: 8, 16 or 32; default: 32", metavar="BITS"
    )
    profile: Path | None = option(
        None, FILE, "how often each function runs, which weighs its accesses in the layout (YAML)", metavar="FILE"
    )
    include_dirs: tuple[Path, ...] = option((), FILES, "folders of headers, as -I DIR", metavar="DIR,...")
    defines: tuple[str, ...] = option((), WORDS, "macros to define, as -D NAME=VALUE", metavar="NAME=VALUE,...")
    force_include: tuple[Path, ...] = option(
        (), FILES, "headers to include before the sources, as -include", metavar="F,..."
    )
    compiler: tuple[str, ...] = ()  # what build systems add to these: the preprocessor options of the library

    @property
    def flags(self) -> tuple[str, ...]:
        """The options for a C preprocessor."""
        return (
            *(w for d in self.include_dirs for w in ("-I", str(d))),
            *(f"-D{d}" for d in self.defines),
            *(w for f in self.force_include for w in ("-include", str(f))),
            *self.compiler,
        )


@dataclass(frozen=True)
class ClockRequest:
    """The clock configurations of a target, in Hz. `name`: the folder in the build; products have fixed names."""

    SUFFIXES: ClassVar = ()

    name: str
    target: str
    hse: int | None = option(None, HZ, HSE)
    sysclk: tuple[int, ...] = option((), HZ_LIST, "system clocks to switch between; default: those of the clock tree")
    source: str = option("hse", words("hse", "hsi", "msi"), "the oscillator that feeds the PLL; default: hse")
    pll: str = option(
        "", Kind(lambda option, value: str(value), "M,N,P[,Q]"), "use exactly this PLL setting for its SYSCLK"
    )
    dividers: str = option(
        "",
        Kind(lambda option, value: str(value), "AHB,APB1,APB2"),
        "dividers of the buses; default: the smallest within their limits",
    )
    usb: bool = option(False, SWITCH, "use only PLL settings with 48 MHz at output Q, for USB, SDIO and RNG")


Request = ModelRequest | GroupRequest | DriverRequest | ClockRequest
KINDS: Mapping[str, type[Request]] = {
    "model": ModelRequest,
    "group": GroupRequest,
    "driver": DriverRequest,
    "clock": ClockRequest,
}
CLOCK_OUTPUTS = ("clock_config.c", "clock_config.h")


# Headers of C11 (ISO/IEC 9899:2011, 7.1.2), and headers that those of glibc, newlib, picolibc and compilers include.
C_HEADERS = frozenset(
    re.findall(
        r"\w+",
        """assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg
        stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
        alloca arm_acle arm_mve endian features ieeefp malloc newlib picolibc reent strings unistd""",
    )
)


READING = ("shape", "bind", "outputs")  # options for the import of a model's file


def model_outputs(name: str) -> tuple[str, ...]:
    """Names of a model's generated files. They do not depend on the model: unused ones are empty."""
    return tuple(name + suffix for suffix in ModelRequest.SUFFIXES)


def group_outputs(name: str, models: Iterable[str]) -> tuple[str, ...]:
    """Names of a group's generated files, with those of the models."""
    each = (model + suffix for model in models for suffix in (*ModelRequest.SUFFIXES, PLACE))
    return (*(name + suffix for suffix in GroupRequest.SUFFIXES), *each)


def driver_outputs(name: str, cpp: bool = False) -> tuple[str, ...]:
    """Names of a driver's generated files. `cpp`: its sources are C++."""
    return tuple(name + (".cpp" if cpp and suffix == ".c" else suffix) for suffix in DriverRequest.SUFFIXES)


def model_request(source: Path, name: str, target: str, options: Mapping[str, Value]) -> ModelRequest:
    """Check the options and turn them into a request.

    Options that are None keep their default. Raises EdgebuildError for an unknown option or a value of the wrong form.
    """
    _check_prefix(name)
    request = ModelRequest(source, name, target, **checked(ModelRequest, options))
    if request.backend == "cmsis-nn":
        hints = ["give the folder of CMSIS-NN, which has Include/arm_nnfunctions.h in it: --cmsis-nn DIR"]
        if request.cmsis_nn is None:
            raise fail("option 'backend': cmsis-nn is not part of edgebuild", hints=hints)
        if not (request.cmsis_nn / "Include" / "arm_nnfunctions.h").is_file():
            text = "option 'cmsis_nn': no Include/arm_nnfunctions.h in it"
            raise fail(text, file=str(request.cmsis_nn), hints=hints)
    for _, array in (*request.input_at, *request.output_at):
        if f"{array}_".upper().startswith(f"{name}_".upper()):
            hints = [f"names that begin with {name}_ are those of the model, in letters of either case"]
            raise fail(f"an array of the application cannot be called {array}", hints=hints)
    return request


def group_request(sources: tuple[Path, ...], name: str, target: str, options: Mapping[str, Value]) -> GroupRequest:
    """The request for a group of models, named after their files; options of models go to each. See `grouped`."""
    of_models = options_of(ModelRequest)
    own = {o: value for o, value in options.items() if o not in of_models or o in GroupRequest.EACH[1]}
    each = {o: value for o, value in options.items() if o not in own}
    models = tuple(model_request(source, identifier(source.stem), target, each) for source in sources)
    return grouped(GroupRequest(models, name, target, **checked(GroupRequest, own)))


def grouped(group: GroupRequest) -> GroupRequest:
    """The group, with models that use its shared arena. Raises EdgebuildError for names that collide."""
    _check_prefix(group.name)
    if not group.share:
        raise fail("option 'share' is missing", hints=["one of: exclusive, pipeline, concurrent"])
    names = [m.name for m in group.models]
    for what, all_names in (("models", names), ("buffers", [b.name for b in group.buffers]), ("files", group.outputs)):
        upper = [n.upper() for n in all_names]
        if twice := next((n for i, n in enumerate(all_names) if n.upper() in upper[:i]), None):
            raise fail(f"two {what} of the name '{twice}'", hints=["letters differ by more than their case"])
    for b in group.buffers:
        check_buffer(b, group.name, names)
    return replace(group, models=tuple(replace(m, arena="shared") for m in group.models))


def check_buffer(b: SharedBuffer, group: str, models: Sequence[str]) -> None:
    """Raise EdgebuildError if the buffer's name collides, or `alive` names no phase of the models."""
    _check_name(b.name, "it becomes part of a function")
    function = f"{group}_{b.name}".upper()
    ours = tuple(f"{n}_".upper() for n in (f"{group}_arena", *models))
    if function.startswith(ours) or function.endswith("_ARENA"):
        raise fail(f"buffer '{b.name}': '{function.lower()}' may be a name of ours", hints=["choose another name"])
    moments = [IDLE, *models, *(f"{n}.{part}" for n in models for part in PHASES)]
    if wrong := next((word for word in b.alive if word not in moments), None):
        text = f"buffer '{b.name}': alive with '{wrong}', which is no model{did_you_mean(wrong, moments)}"
        raise fail(text, hints=[f"known: {', '.join(moments)}"])


def driver_request(sources: tuple[Path, ...], name: str, target: str, options: Mapping[str, Value]) -> DriverRequest:
    """Check the options and turn them into a request. Raises EdgebuildError for a wrong name, path or option."""
    _check_name(name, "it becomes the prefix of the products' files")
    for source in map(str, sources):
        if visible(source) != source or '"' in source or "\\" in source:
            raise fail("a path with a quote, a backslash or a control character cannot stand in #line", file=source)
    request = DriverRequest(sources, name, target, **checked(DriverRequest, options))
    if request.profile and request.layout.startswith("fixed:"):
        raise fail("option 'profile': a fixed layout leaves nothing to choose")
    return request


def clock_request(name: str, target: str, options: Mapping[str, Value]) -> ClockRequest:
    """Check the options and turn them into a request. Raises EdgebuildError for a wrong name or option."""
    _check_name(name, "it becomes the name of a folder")
    return ClockRequest(name, target, **checked(ClockRequest, options))


def _check_prefix(name: str) -> None:
    _check_name(name, "it becomes the prefix of functions and files")
    if name.lower() in C_HEADERS:  # some file systems ignore case
        raise fail(f"name: {name}.h would hide the C library's <{name.lower()}.h>", hints=["choose another name"])


def _check_name(name: str, why: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise fail(f"name: '{name}' is not a C identifier", hints=[why])


@dataclass(frozen=True)
class RequestFile:
    """A request that was read from a file, and the folder for its products."""

    request: Request
    output: Path


def read_request(path: Path) -> RequestFile:
    """Read and check a request file. Raises EdgebuildError with the file's name."""
    data = read_json(path, "not a request", "cannot read the request")
    return checked_request(data, str(path), os.path.dirname(os.path.abspath(path)))


def requests_in(file: Path) -> list[Path]:
    """Paths of requests, one on a line of the file; they are relative to its folder."""
    return [file.parent / line for line in read_text(file).splitlines() if line]


def checked_request(data: Any, file: str, folder: str) -> RequestFile:
    """The request in the JSON `data` of `file`, whose paths are relative to `folder`. Raises EdgebuildError."""
    _check_shape(data, file)

    def place(relative: str) -> str:
        # Joined textually, without resolving links: the writer made it relative in the same way.
        return os.path.normpath(os.path.join(folder, relative))

    name, target = data["name"], data["target"]
    target = place(target) if target.endswith((".yaml", ".yml")) else target
    return RequestFile(_request(data, name, target, place), Path(place(data["output"])))


def _request(data: dict[str, Any], name: str, target: str, place: Callable[[str], str]) -> Request:
    accepted = options_of(KINDS[data["kind"]])
    options = {o: accepted[o].moved(value, place) if o in accepted else value for o, value in data["options"].items()}
    if data["kind"] == "clock":
        return clock_request(name, target, options)
    if data["kind"] == "group":
        return group_request(tuple(Path(place(s)) for s in data["source"]), name, target, options)
    if data["kind"] == "driver":
        return driver_request(tuple(Path(place(s)) for s in data["source"]), name, target, options)
    return model_request(Path(place(data["source"])), name, target, options)


_MEMBERS: dict[str, type] = {"kind": str, "name": str, "options": dict, "output": str, "schema": int, "target": str}


def _check_shape(data: Any, file: str) -> None:
    if not isinstance(data, dict):
        raise fail("not a request: a JSON object is expected", file=file)
    if "\\u0000" in json.dumps(data):
        raise fail("not a request: no path or name has a zero byte in it", file=file)
    for key in sorted(data.keys() - {*_MEMBERS, "source"}):
        raise fail(f"unknown member '{key}'{did_you_mean(key, [*_MEMBERS, 'source'])}", file=file)
    for key, kind in _MEMBERS.items():
        if not isinstance(data.get(key), kind) or isinstance(data[key], bool):
            raise fail(f"member '{key}' must be there and of type {kind.__name__}", file=file)
    if data["kind"] not in KINDS:
        raise fail(f"kind '{data['kind']}' is not known; use 'model', 'group', 'driver' or 'clock'", file=file)
    _check_source(data["kind"], data.get("source"), file)
    if data["schema"] != SCHEMA:
        raise fail(f"schema {data['schema']} is not known here", file=file, hints=[f"this version reads {SCHEMA}"])


def _check_source(kind: str, source: Any, file: str) -> None:
    if kind == "model":
        fits, what = isinstance(source, str), "a file"
    elif kind in ("driver", "group"):
        fits = isinstance(source, list) and bool(source) and all(isinstance(s, str) for s in source)
        what = "a list of files"
    else:
        fits, what = source == [], "an empty list: the target has the facts"
    if not fits:
        raise fail(f"member 'source' must be there and be {what}", file=file)


T = TypeVar("T")


def read_group(file: Path, name: str, target: str) -> GroupRequest:
    """The group that a file in YAML describes. Raises EdgebuildError with file, line and column.

        share: exclusive            # or pipeline, concurrent
        models:
          kws: {file: kws.tflite, ram: 16K}
        buffers:
          audio: {bytes: 8K, alive: [kws.input]}
          log: {bytes: 512, memory: RAM, align: 32}

    A model has `file` and its options, as in request files. Paths are relative to the file.
    """
    node = compose(file)
    if node is None:
        raise EdgebuildError(Diagnostic("the file is empty", str(file), 1))
    keys = keys_of(node, ("share", "models", "buffers"))
    if missing := [key for key in ("share", "models") if key not in keys]:
        hints = {"share": "share: exclusive, pipeline or concurrent", "models": "models: {NAME: {file: MODEL}}"}
        raise wrong(node, f"missing key '{missing[0]}'", hints[missing[0]])
    share = _located(keys["share"], lambda: options_of(GroupRequest)["share"].kind.read("share", _word(keys["share"])))
    models = [_model(n, entry, file, target) for n, entry in entries(keys["models"]).items()]
    if not models:
        raise wrong(keys["models"], "no models")
    given = entries(keys["buffers"]) if "buffers" in keys else {}
    buffers = [_buffer(n, entry, name, [m.name for m in models]) for n, entry in given.items()]
    return _located(node, lambda: grouped(GroupRequest(tuple(models), name, target, share, tuple(buffers), file)))


def _model(name: str, node: Node, file: Path, target: str) -> ModelRequest:
    of_group = options_of(GroupRequest)
    options = keys_of(node, ("file", *(o for o in options_of(ModelRequest) if o in of_group)))
    if "file" not in options:
        raise wrong(node, f"model '{name}': missing key 'file'")
    source = _relative_path(file, _word(options.pop("file")))
    words = {
        o: of_group[o].moved(_word(value), lambda path: str(_relative_path(file, path))) for o, value in options.items()
    }
    return _located(node, lambda: model_request(source, name, target, words))


def _relative_path(file: Path, path: str) -> Path:
    return Path(os.path.normpath(file.parent / path))


def _buffer(name: str, node: Node, group: str, models: list[str]) -> SharedBuffer:
    words = {key: _word(value) for key, value in entries(node).items()}
    buffer = _located(node, lambda: shared_buffer(name, words))
    _located(node, lambda: check_buffer(buffer, group, models))
    return buffer


def _word(node: Node) -> str:
    """The text of a scalar; the items of a list, joined by +."""
    if isinstance(node.value, str):
        return node.value
    from yaml.nodes import SequenceNode  # late: most commands read no YAML

    if not isinstance(node, SequenceNode):
        raise wrong(node, "expected a word, or a list of words")
    return "+".join(map(_word, node.value))


def _located(node: Node, read: Callable[[], T]) -> T:
    """Call `read`; errors that it raises get the position of the node."""
    try:
        return read()
    except EdgebuildError as error:
        raise wrong(node, error.diagnostics[0].text, *error.diagnostics[0].hints) from None
