"""Targets: what is true of a chip or a board, read from YAML.

A target file may name one parent with `inherits:` (core <- family <- board). Maps merge key by
key, everything else replaces what the parent said. Unknown keys, wrong types and impossible
values are errors at their line and column; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebuild.base.errors import did_you_mean, fail
from edgebuild.base.facts import compose, entries, keys_of, wrong
from edgebuild.base.formula import parse_formula
from edgebuild.base.installation import hal_dir as hal_dir
from edgebuild.base.levels import ACCESS, LETTERS, PATTERNS, REQUANTISE, Dma, Engine

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node

ROLES = ("code", "weights", "arena", "data", "stack")
FEATURES = ("dsp", "fpu", "fpu64", "mve", "rv32", "m", "a", "c", "f")
WEIGHTS = ("asm", "c")
BUSES = ("words", "bytes")


@dataclass(frozen=True)
class Core:
    """The processor. `features` are words of FEATURES, in the file's order."""

    isa: str
    features: tuple[str, ...]


@dataclass(frozen=True)
class Memory:
    """One memory; `name` is also that of the linker's region. Bytes.

    `level` 1 is the nearest to the core; 0: the memory takes no part in the movement of tiles. `access: dma` says that
    the core itself cannot reach it.
    """

    name: str
    origin: int
    size: int
    roles: tuple[str, ...]
    tightly_coupled: bool = False  # beside the core: no bus, no cache, never a wait
    level: int = 0
    bytes_per_cycle: float = 0  # 0: not said
    latency: int = 0  # cycles
    access: str = "cpu"
    cached: bool = False


@dataclass(frozen=True)
class Toolchain:
    """How to compile and link. `libc` and `libm` count only for a program that needs the C library."""

    prefix: str
    cc: str
    cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    libs: tuple[str, ...]  # after the objects, always
    libc: tuple[str, ...]  # flags for compiling and linking against the C library
    libm: tuple[str, ...]  # libraries of floating-point models, in front of `libs`
    package: str  # the Debian package that has the compiler

    @property
    def compiler(self) -> str:
        """The compiler's command."""
        return self.prefix + self.cc


@dataclass(frozen=True)
class Runner:
    """How to run a program. `command` has `{elf}` where the program's file goes."""

    command: tuple[str, ...]
    sources: tuple[str, ...]  # below the hal folder: semihosting
    tick_hz: int  # rate of the instruction counter's timer; 0: it counts instructions itself
    timeout_s: int
    package: str


@dataclass(frozen=True)
class Firmware:
    """Parts of a bare program besides the user's code; paths are below the hal folder."""

    startup: tuple[str, ...]
    linker: str
    stack: int  # bytes reserved at the bottom of the memory with the role `stack`


@dataclass(frozen=True)
class Target:
    """One chip or board. `files` are the YAML files with its facts, the outermost first, the clock tree last."""

    name: str
    description: str
    files: tuple[str, ...]
    core: Core
    memories: tuple[Memory, ...]
    toolchain: Toolchain
    runner: Runner | None
    firmware: Firmware | None
    weights: str
    clocks: str  # the clock tree, by name or file; empty: clocks are not managed
    bus: str  # of the devices: "words" only, or parts of a register by "bytes"; a wrong guess would destroy bits
    dma: tuple[Dma, ...] = ()
    engines: tuple[Engine, ...] = ()
    cores: int = 1  # that run kernels together
    macs_per_cycle: tuple[float, float] | None = None  # of sums over channels, and of channels one by one; measured

    @property
    def levels(self) -> tuple[Memory, ...]:
        """The memories that take part in the movement of tiles, the nearest to the core first."""
        return tuple(sorted((m for m in self.memories if m.level), key=lambda m: m.level))

    def memory(self, role: str) -> Memory:
        """The first memory with this role."""
        return next(m for m in self.memories if role in m.roles)


def clock_tree_file(name_or_path: str) -> Path:
    """Where a clock tree stands; whether or not there is such a file."""
    is_path = "/" in name_or_path or "\\" in name_or_path or name_or_path.endswith((".yaml", ".yml"))
    return Path(name_or_path) if is_path else hal_dir() / "clocks" / f"{name_or_path}.yaml"


def target_names() -> list[str]:
    """The targets that ship, without those that only serve as parents, sorted."""
    found = []
    for file in sorted((hal_dir() / "targets").glob("*.yaml")):
        abstract = entries(_map(file)).get("abstract")
        if abstract is None or not _flag(abstract):
            found.append(file.stem)
    return found


def load_target(name_or_path: str) -> Target:
    """Read a target by its name, or from a file (anything with a slash or ending in .yaml).

    Raises EdgebuildError with file, line and column for whatever is wrong.
    """
    is_path = "/" in name_or_path or "\\" in name_or_path or name_or_path.endswith((".yaml", ".yml"))
    file = Path(name_or_path) if is_path else hal_dir() / "targets" / f"{name_or_path}.yaml"
    if not file.is_file():
        if is_path:
            raise fail("no such target file", file=name_or_path)
        names = target_names()
        raise fail(
            f"unknown target '{name_or_path}'{did_you_mean(name_or_path, names)}",
            hints=["known: " + ", ".join(names), "or the path of a target's .yaml file"],
        )
    files: list[str] = []
    node = _inherited(file, files)
    target = _target(file.stem, tuple(files), node)
    _check_memories(target, node)
    if target.clocks and (tree := clock_tree_file(target.clocks)).is_file():
        target = replace(target, files=(*target.files, str(tree)))
    return target


# ---- from nodes to values


def _target(name: str, files: tuple[str, ...], node: MappingNode) -> Target:
    top = _fields(
        node,
        ("description", "core", "memories", "toolchain"),
        ("inherits", "abstract", "runner", "firmware", "weights", "clocks", "bus", *_LEVEL_KEYS),
    )
    if (abstract := top.get("abstract")) is not None and _flag(abstract):
        raise wrong(
            abstract,
            f"'{name}' is only a parent of targets and cannot be built for",
            "known: " + ", ".join(target_names()),
        )
    core = _fields(top["core"], ("isa",), ("features",))
    return Target(
        name,
        _text(top["description"]),
        files,
        Core(_text(core["isa"]), _words(core.get("features"), FEATURES)),
        tuple(_memory(name, entry) for name, entry in entries(top["memories"]).items()),
        _toolchain(top["toolchain"]),
        _runner(top["runner"]) if "runner" in top else None,
        _firmware(top["firmware"]) if "firmware" in top else None,
        _word(top["weights"], WEIGHTS) if "weights" in top else "asm",
        _clocks(top["clocks"]) if "clocks" in top else "",
        _word(top["bus"], BUSES) if "bus" in top else "words",
        tuple(_dma(name, entry) for name, entry in entries(top["dma"]).items()) if "dma" in top else (),
        tuple(_engine(name, entry) for name, entry in entries(top["engines"]).items()) if "engines" in top else (),
        _at_least_one(top["cores"]) if "cores" in top else 1,
        _rates(top["macs_per_cycle"]) if "macs_per_cycle" in top else None,
    )


def _memory(name: str, node: Node) -> Memory:
    keys = _fields(node, ("origin", "size", "roles"), ("tightly_coupled", *_MEMORY_KEYS))
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise wrong(node, f"memory name '{name}' is no name for a linker region", "letters, digits and _")
    coupled = "tightly_coupled" in keys and _flag(keys["tightly_coupled"])
    return Memory(
        name,
        _size(keys["origin"]),
        _size(keys["size"]),
        _words(keys["roles"], ROLES),
        coupled,
        _at_least_one(keys["level"]) if "level" in keys else 0,
        _positive(keys["bytes_per_cycle"]) if "bytes_per_cycle" in keys else 0,
        _size(keys["latency"]) if "latency" in keys else 0,
        _word(keys["access"], ACCESS) if "access" in keys else "cpu",
        "cached" in keys and _flag(keys["cached"]),
    )


_MEMORY_KEYS = ("level", "bytes_per_cycle", "latency", "access", "cached")
_LEVEL_KEYS = ("dma", "engines", "cores", "macs_per_cycle")


def _dma(name: str, node: Node) -> Dma:
    numbers = ("channels", "dimensions", "start_cycles", "piece_cycles", "align", "largest")
    keys = _fields(node, ("between",), (*numbers, "overlap", "port"))
    given: dict[str, Any] = {key: _size(keys[key]) for key in numbers if key in keys}
    for key in ("channels", "dimensions", "align"):
        if given.get(key) == 0:
            raise wrong(keys[key], f"{key} is 0", "at least 1")
    overlap = "overlap" not in keys or _flag(keys["overlap"])
    port = _text(keys["port"]) if "port" in keys else Dma.port
    return replace(Dma(name, _texts(keys["between"]), overlap=overlap, **given), port=port)


def _engine(name: str, node: Node) -> Engine:
    keys = _fields(node, ("array", "activations", "weights", "cycles"), ("patterns", "requantise"))
    try:
        cycles = parse_formula(_text(keys["cycles"]), LETTERS)
    except ValueError as error:
        raise wrong(keys["cycles"], str(error)) from None
    array = {}
    for axis, entry in entries(keys["array"]).items():
        if axis not in LETTERS:
            raise wrong(entry, f"unknown axis '{axis}' of the array", "known: " + " ".join(LETTERS))
        array[axis] = _at_least_one(entry)
    return Engine(
        name,
        array,
        _at_least_one(keys["activations"]),
        _at_least_one(keys["weights"]),
        cycles,
        _words(keys.get("patterns"), PATTERNS),
        _word(keys["requantise"], REQUANTISE) if "requantise" in keys else "multiply",
    )


def _rates(node: Node) -> tuple[float, float]:
    keys = _fields(node, ("over_channels", "channelwise"))
    return _positive(keys["over_channels"]), _positive(keys["channelwise"])


def _positive(node: Node) -> float:
    """A number above 0, such as 8 or 0.5."""
    if not isinstance(node.value, str) or not re.fullmatch(r"[0-9]*\.?[0-9]+", node.value) or not float(node.value):
        raise wrong(node, f"expected a number above 0{_seen(node)}")
    return float(node.value)


def _at_least_one(node: Node) -> int:
    number = _size(node)
    if number < 1:
        raise wrong(node, "expected a number from 1 upwards, not 0")
    return number


def _toolchain(node: Node) -> Toolchain:
    keys = _fields(node, ("prefix", "cc"), ("arch", "cflags", "ldflags", "libs", "libc", "libm", "package"))
    arch = _texts(keys.get("arch"))
    return Toolchain(
        _text(keys["prefix"]),
        _text(keys["cc"]),
        arch + _texts(keys.get("cflags")),
        arch + _texts(keys.get("ldflags")),
        _texts(keys.get("libs")),
        _texts(keys.get("libc")),
        _texts(keys.get("libm")),
        _text(keys["package"]) if "package" in keys else "",
    )


def _runner(node: Node) -> Runner:
    keys = _fields(node, ("command",), ("sources", "tick_hz", "timeout_s", "package"))
    return Runner(
        _texts(keys["command"]),
        _texts(keys.get("sources")),
        _size(keys["tick_hz"]) if "tick_hz" in keys else 0,
        _size(keys["timeout_s"]) if "timeout_s" in keys else 60,
        _text(keys["package"]) if "package" in keys else "",
    )


def _firmware(node: Node) -> Firmware:
    keys = _fields(node, ("startup", "linker", "stack"))
    return Firmware(_texts(keys["startup"]), _text(keys["linker"]), _size(keys["stack"]))


def _clocks(node: Node) -> str:
    """The name of a clock tree that ships, or a file's path, which is relative to the file that says it."""
    text = _text(node)
    return str(Path(node.start_mark.name).parent / text) if text.endswith((".yaml", ".yml")) else text


def _check_memories(target: Target, node: MappingNode) -> None:
    """Every role that the target's programs need has a memory, and no two memories overlap."""
    where = entries(node)["memories"]
    needed = ROLES if target.firmware else ("code", "weights", "arena")
    for role in needed:
        if not any(role in m.roles for m in target.memories):
            raise wrong(where, f"no memory has the role '{role}'", "roles: " + ", ".join(ROLES))
    by_origin = sorted(target.memories, key=lambda m: m.origin)
    for low, high in pairwise(by_origin):
        if low.origin + low.size > high.origin:
            raise wrong(
                entries(where)[high.name],
                f"memory {high.name} begins inside of {low.name}",
                f"{low.name} ends at {low.origin + low.size:#x}, {high.name} begins at {high.origin:#x}",
            )
    names = [m.name for m in target.memories]
    for dma, entry in zip(target.dma, entries(entries(node)["dma"]).values() if target.dma else (), strict=True):
        for name in dma.between:
            if name not in names:
                hint = "memories: " + ", ".join(names)
                raise wrong(entries(entry)["between"], f"no memory '{name}'{did_you_mean(name, names)}", hint)
    for memory in target.levels[1:]:
        if not any(memory.name in dma.between for dma in target.dma):
            text = f"no DMA reaches {memory.name}, which has level {memory.level}"
            raise wrong(entries(where)[memory.name], text, "add it to `between` of one in `dma:`")
    stack = target.firmware.stack if target.firmware else 0
    if stack % 8:
        raise wrong(
            entries(entries(node)["firmware"])["stack"],
            f"a stack of {stack} bytes",
            "a multiple of 8, as the calling conventions ask for",
        )


# ---- YAML: nodes with line marks, inheritance, and readers of scalars


def _map(file: Path) -> MappingNode:
    from yaml.nodes import MappingNode

    node = compose(file)
    if not isinstance(node, MappingNode):
        raise fail("a target is a map of keys, such as 'core:' and 'memories:'", file=str(file), line=1)
    return node


def _inherited(file: Path, files: list[str]) -> MappingNode:
    """The file's node merged over those of its parents; appends every file read to `files`."""
    files.append(str(file))
    node = _map(file)
    parent = entries(node).get("inherits")
    if parent is None:
        return node
    name = _text(parent)
    for folder in (file.parent, hal_dir() / "targets"):
        candidate = folder / f"{name}.yaml"
        if str(candidate) in files:
            raise wrong(parent, f"'{name}' inherits from itself", " <- ".join(files))
        if candidate.is_file():
            return _merged(_inherited(candidate, files), node)
    known = [f.stem for f in (hal_dir() / "targets").glob("*.yaml")]
    raise wrong(parent, f"unknown parent '{name}'{did_you_mean(name, known)}")


def _merged(base: MappingNode, over: MappingNode, top: bool = True) -> MappingNode:
    from yaml.nodes import MappingNode

    keys = {key.value: key for key, _ in base.value + over.value}
    below, above = entries(base), entries(over)
    if top:  # a board is no parent because its family is one
        below.pop("abstract", None)
    values = []
    for name in {**below, **above}:
        old, new = below.get(name), above.get(name)
        if isinstance(old, MappingNode) and isinstance(new, MappingNode):
            new = _merged(old, new, top=False)
        values.append((keys[name], new if new is not None else old))
    return MappingNode(over.tag, values, over.start_mark, over.end_mark)


def _fields(node: Node, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Node]:
    """The map's values by key; all of `required`, and no key that is in neither list."""
    found = keys_of(node, required + optional)
    for name in required:
        if name not in found:
            raise wrong(node, f"missing key '{name}'")
    return found


def _text(node: Node) -> str:
    if node.tag != "tag:yaml.org,2002:str":
        raise wrong(node, f"expected text{_seen(node)}")
    return str(node.value)


def _flag(node: Node) -> bool:
    if node.tag != "tag:yaml.org,2002:bool":
        raise wrong(node, f"expected true or false{_seen(node)}")
    return str(node.value).lower() in ("true", "yes", "on")


def _size(node: Node) -> int:
    """Bytes, hertz, an address: 4096, 0x1000, 4K, 2M, 1G (powers of 1024)."""
    match = re.fullmatch(r"(0x[0-9a-fA-F_]+|[0-9_]+)([KMG]?)", str(node.value)) if isinstance(node.value, str) else None
    if not match:
        raise wrong(node, f"expected a number{_seen(node)}", "such as 4096, 0x1000, 256K or 2M")
    return int(match[1], 0 if match[1].startswith("0x") else 10) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def _texts(node: Node | None) -> tuple[str, ...]:
    from yaml.nodes import SequenceNode

    if node is None:
        return ()
    if not isinstance(node, SequenceNode):
        raise wrong(node, f"expected a list [a, b]{_seen(node)}")
    return tuple(_text(item) for item in node.value)


def _word(node: Node, known: Iterable[str]) -> str:
    known, text = tuple(known), _text(node)
    if text not in known:
        raise wrong(node, f"unknown word '{text}'{did_you_mean(text, known)}", "known: " + ", ".join(known))
    return text


def _words(node: Node | None, known: tuple[str, ...]) -> tuple[str, ...]:
    _texts(node)  # is it a list of texts at all
    return tuple(_word(item, known) for item in node.value) if node is not None else ()


def _seen(node: Node) -> str:
    return f", not '{node.value}'" if isinstance(node.value, str) else ", not a map or list"
