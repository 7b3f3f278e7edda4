"""`edgebuild reproduce`: the tables of papers, with the same figures of this version beside them.

Networks of papers are tables of layers. Their graphs have random weights from a seed, since only shapes matter.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...base.facts import read_facts
from ...base.progress import say
from ...base.request import DriverRequest, ModelRequest
from ...base.target import Target, hal_dir, load_target
from ...model import ops
from ...model.formats.compose import same_pad
from ...model.ir import Graph, Op, Quant, Tensor, verify

ACTIVATION = Quant((6 / 255,), (-128,))  # of results of ReLU6
SIGNED = Quant((0.05,), (3,))
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Row:
    """A layer, or `repeats` equal layers, of which only the first has the stride.

    `of`: name of the result that it reads; empty: that of the row before. `name`: of its own result. `valid`: no
    padding. `expand`: factor of an inverted residual block. `parts`: names of the results that `concat` joins.
    """

    kind: str
    channels: int = 0
    window: tuple[int, int] = (1, 1)
    stride: int = 1
    repeats: int = 1
    expand: int = 1
    relu: bool = True
    valid: bool = False
    of: str = ""
    name: str = ""
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class NetworkTable:
    """`input`: rows, columns, channels; or the number of indices into a table of `words` rows. `real`: in float32."""

    input: tuple[int, ...]
    layers: tuple[Row, ...]
    words: int = 0
    real: bool = False


@dataclass(frozen=True)
class NetworkFile:
    networks: Mapping[str, NetworkTable]


def paper_network(name: str, width: float = 1.0, size: int = 0) -> Graph:
    """The graph of a network in networks.yaml. `width`: factor of all channels; `size`: rows and columns of the input.

    Results that no other layer reads are the outputs.
    """
    table = read_facts(NetworkFile, FOLDER / "networks.yaml").networks[name]
    shape = (size, size, *table.input[2:]) if size else table.input
    net = Net(name, shape, table.words, table.real)
    x, names = "input", dict[str, str]()
    for row in table.layers:
        channels = round(row.channels * width)
        for repeat in range(row.repeats):
            stride = row.stride if repeat == 0 else 1
            x = names[row.of] if row.of else x
            x = BLOCKS[row.kind](net, x, row, channels, stride, [names[part] for part in row.parts])
        names[row.name] = x
    return net.graph()


class Net:
    """A graph under construction. Each method adds a layer that reads tensor `x` and returns the result's name."""

    def __init__(self, name: str, shape: tuple[int, ...], words: int = 0, real: bool = False) -> None:
        self.name, self.random, self.words, self.real = name, np.random.default_rng(0), words, real
        dtype = "int32" if words else "float32" if real else "int8"
        self.tensors = {"input": Tensor("input", (1, *shape), dtype, SIGNED if dtype == "int8" else None)}
        self.ops: list[Op] = []

    def conv(
        self,
        x: str,
        channels: int,
        window: tuple[int, int] = (1, 1),
        stride: int = 1,
        relu: bool = True,
        valid: bool = False,
    ) -> str:
        shape = (channels, *window, self.tensors[x].shape[3])
        return self._windowed("conv2d", x, shape, window, stride, relu, valid)

    def depthwise(self, x: str, stride: int = 1, window: tuple[int, int] = (3, 3), relu: bool = True) -> str:
        return self._windowed("depthwise_conv2d", x, (1, *window, self.tensors[x].shape[3]), window, stride, relu)

    def max_pool(self, x: str, window: tuple[int, int]) -> str:
        """Append a max pooling with windows that do not overlap and return its name."""
        _, rows, columns, channels = self.tensors[x].shape
        attrs = {"window": window, "stride": window, "pad": (0, 0, 0, 0), "clamp": (None, None)}
        shape = (1, rows // window[0], columns // window[1], channels)
        return self._op("max_pool2d", [x], shape, self._quant(x), **attrs)

    def mean(self, x: str) -> str:
        """Append the mean of each channel and return its name."""
        shape = self.tensors[x].shape
        return self._op("mean", [x], (1, shape[-1]), self._quant(x), axes=tuple(range(1, len(shape) - 1)))

    def dense(self, x: str, features: int, relu: bool = False) -> str:
        """Append a dense layer over all elements of `x` and return its name."""
        if len(self.tensors[x].shape) > 2:
            x = self.flat(x)
        shape = (features, self.tensors[x].shape[1])
        return self._sum("dense", x, shape, (1, features), relu)

    def flat(self, x: str) -> str:
        shape = (1, prod(self.tensors[x].shape))
        return self._op("reshape", [x], shape, self._quant(x), shape=shape)

    def embedding(self, x: str, features: int) -> str:
        table = self._constant(f"w{len(self.ops)}", self._weights((self.words, features)), SIGNED)
        return self._op("gather", [table, x], (*self.tensors[x].shape, features), SIGNED, axis=0, batch=0)

    def add(self, x: str, y: str) -> str:
        return self._op("add", [x, y], self.tensors[x].shape, SIGNED, clamp=(None, None))

    def residual(self, x: str, channels: int, stride: int, expand: int) -> str:
        """An inverted residual block; it has a skip connection if the shape stays (Sandler et al., CVPR 2018)."""
        inputs = self.tensors[x].shape[3]
        y = self.conv(x, inputs * expand) if expand > 1 else x
        y = self.conv(self.depthwise(y, stride), channels, relu=False)
        return self.add(x, y) if stride == 1 and inputs == channels else y

    def concat(self, parts: list[str]) -> str:
        """Append a concatenation along the last axis and return its name."""
        shape = self.tensors[parts[0]].shape
        last = sum(self.tensors[part].shape[-1] for part in parts)
        return self._op("concat", parts, (*shape[:-1], last), SIGNED, axis=len(shape) - 1)

    def graph(self, output: str = "") -> Graph:
        """The graph with this output; by default with all results that no op reads."""
        read = {name for op in self.ops for name in op.inputs}
        outputs = tuple(op.outputs[0] for op in self.ops if op.outputs[0] not in read)
        graph = Graph(self.name, tuple(self.ops), self.tensors, ("input",), (output,) if output else outputs)
        verify(graph, ops.result_shape)
        return graph

    def _windowed(
        self,
        kind: str,
        x: str,
        shape: tuple[int, ...],
        window: tuple[int, int],
        stride: int,
        relu: bool,
        valid: bool = False,
    ) -> str:
        size, steps = self.tensors[x].shape[1:3], (stride, stride)
        reach = [0, 0] if not valid else [window[0] - 1, window[1] - 1]
        rows, columns = (-(-(n - less) // stride) for n, less in zip(size, reach, strict=True))
        pad = (0, 0, 0, 0) if valid else same_pad(size, window, steps, (1, 1))
        channels = shape[0] if kind == "conv2d" else shape[3]
        attrs = {"stride": steps, "dilation": (1, 1), "pad": pad}
        return self._sum(kind, x, shape, (1, rows, columns, channels), relu, **attrs)

    def _sum(
        self, kind: str, x: str, weights: tuple[int, ...], shape: tuple[int, ...], relu: bool, **attrs: object
    ) -> str:
        fan_in = prod(weights[1:3] if kind == "depthwise_conv2d" else weights[1:])
        step = self._quant(x).scale[0]
        scale, number = 1.0 / (40 * fan_in**0.5 * step), len(self.ops)
        w = self._constant(f"w{number}", self._weights(weights), Quant((scale,), (0,)))
        bias = self.random.integers(-900, 900, shape[-1], np.int32)
        b = self._constant(f"b{number}", bias, Quant((scale * step,), (0,)))
        clamp = (0.0, 6.0) if relu else (None, None)
        return self._op(kind, [x, w, b], shape, ACTIVATION if relu else SIGNED, **attrs, clamp=clamp)

    def _quant(self, x: str) -> Quant:
        return self.tensors[x].quant or SIGNED

    def _weights(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.random.integers(-127, 128, shape, np.int8)

    def _constant(self, name: str, data: np.ndarray, quant: Quant) -> str:
        data = data.astype(np.float32) / 127 if self.real else data
        self.tensors[name] = Tensor(name, data.shape, str(data.dtype), None if self.real else quant, data)
        return name

    def _op(self, kind: str, inputs: list[str], of: tuple[int, ...], quant: Quant, **attrs: object) -> str:
        """Append an op whose result has the shape `of`, and return the name of the result."""
        name = f"{kind}_{len(self.ops)}"
        self.tensors[name] = Tensor(name, of, "float32") if self.real else Tensor(name, of, "int8", quant)
        self.ops.append(Op(kind, name, tuple(inputs), (name,), attrs))
        return name


BLOCKS: dict[str, Callable[[Net, str, Row, int, int, list[str]], str]] = {
    "conv": lambda net, x, row, channels, stride, _: net.conv(x, channels, row.window, stride, row.relu, row.valid),
    "depthwise": lambda net, x, row, channels, stride, _: net.depthwise(x, stride, row.window, row.relu),
    "separable": lambda net, x, row, channels, stride, _: net.conv(net.depthwise(x, stride), channels),
    "residual": lambda net, x, row, channels, stride, _: net.residual(x, channels, stride, row.expand),
    "max_pool": lambda net, x, row, channels, stride, _: net.max_pool(x, row.window),
    "mean": lambda net, x, row, channels, stride, _: net.mean(x),
    "dense": lambda net, x, row, channels, stride, _: net.dense(x, row.channels, row.relu),
    "flat": lambda net, x, row, channels, stride, _: net.flat(x),
    "embedding": lambda net, x, row, channels, stride, _: net.embedding(x, channels),
    "concat": lambda net, x, row, channels, stride, parts: net.concat(parts),
}


Figures = Mapping[str, float | None]  # by the key of a column; None: no figure

HSE_HZ = 50_000_000
LIMITS = {"A": 24 << 10, "B": 64 << 10, "C": 128 << 10, "G1": 256 << 10, "G2": 24 << 10}  # bytes of activations
LPF_LIMIT = 9
MB = 4e-6  # MB per value of 4 bytes
DEVICES = 0x1A100000  # address of PULPino's peripherals
RISCV = ("riscv64-unknown-elf-gcc", "-march=rv32im", "-mabi=ilp32", "-msmall-data-limit=0", "-Os", "-ffreestanding",
         "-ffunction-sections", "-std=gnu11", "-w")  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of a table. `basis`: how our figure is measured or modelled."""

    title: str
    unit: str
    basis: str


@dataclass(frozen=True)
class Paper:
    """A table of a paper. `rows`: the paper's figures by row and column. `case`: title of the first column."""

    source: str
    note: str
    case: str
    figures: Mapping[str, Column]
    rows: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class PaperFile:
    papers: Mapping[str, Paper]


@cache
def papers() -> Mapping[str, Paper]:
    return read_facts(PaperFile, FOLDER / "papers.yaml").papers


# ---- this version's figures for the rows of each paper


def _fdt(cases: list[str]) -> Iterator[Figures]:
    from ...model.passes.canonicalize import canonicalize
    from ...model.plan.choose import plan

    for case in cases:
        graph, host = canonicalize(paper_network(case)), load_target("host")
        request = ModelRequest(Path(case), case, host.name)
        tilings = {"off": 0.0, "ffmt": 50.0, "fdt": 0.0, "rolling": 0.0}  # {tiling: limit of MACs computed twice, %}
        plans = {
            tiling: plan(graph, host, replace(request, tile=tiling, max_mac_overhead=more))
            for tiling, more in tilings.items()
        }
        whole, macs = plans["off"].arena_bytes, _macs(graph)
        saved = {tiling: 100 * (1 - plans[tiling].arena_bytes / whole) for tiling in tilings if tiling != "off"}
        yield {"untiled": whole / 1e3, **saved, "ffmt_macs": 100 * plans["ffmt"].extra_macs / macs}


def _macs(graph: Any) -> int:
    from ...model import ops

    return sum(ops.nest(op, graph).mac_count for op in graph.ops)


def _dory(cases: list[str]) -> Iterator[Figures]:
    from ...model.mapping import modelled
    from ...model.passes.canonicalize import canonicalize
    from ...model.plan.search import Planner

    for case in cases:
        width, _, size = case.partition("-")
        graph = canonicalize(paper_network("MobileNetV1", float(width), int(size)))
        request = ModelRequest(Path(case), "network", "gap8", tile="off", map="auto")
        cycles, _ = modelled(Planner(graph, load_target("gap8"), request))
        assert cycles is not None  # all three fit the chip
        macs = _macs(graph)
        yield {"macs": macs / 1e6, "cycles": cycles / 1e6, "rate": macs / cycles}


def thesis_layers() -> list[tuple[Any, dict[str, int]]]:
    """The layers of Hamdi 2023 on `diana`, each with its limit of bytes by memory."""
    from ...model.plan.dma.levels import engine_hardware, rooms
    from ...model.plan.hierarchy.nest import layer_of, read_layers

    target = load_target("diana")
    engine = target.engines[0]
    hardware, room = engine_hardware(target, engine), rooms(target, engine)
    rows = read_layers(FOLDER / "layers27.yaml")
    return [(layer_of(r, hardware), {**room, "activations": LIMITS[r.name.partition(".")[0]]}) for r in rows]


def _zigzag(cases: list[str]) -> Iterator[Figures]:
    from ...model.plan.hierarchy.mapper import best, dory, loma

    for case in cases:
        layers = [(layer, room) for layer, room in thesis_layers() if layer.name.startswith(f"{case}.")]
        totals = [best(*each)[1].total for each in layers]
        rules = {
            "dory": [dory(*each, False)[1].total for each in layers],
            "loma": [loma(*each, LPF_LIMIT) for each in layers],
        }
        saved = {
            name: 100 * statistics.mean(1 - a / b for a, b in zip(totals, others, strict=True))
            for name, others in rules.items()
        }
        yield {"layers": len(layers), **saved}


@dataclass(frozen=True)
class Setting:
    """A chip, the frequency of its HSE, and whether the baseline computes depthwise layers channel by channel."""

    name: str
    target: Target
    hse_hz: int
    channelwise: bool = False


def as_in_the_thesis() -> Setting:
    """The arena is in SRAM1 behind the data cache instead of the DTCM. A depthwise kernel computes channel by channel,
    as that of Lin et al. (MCUNet, NeurIPS 2020), with which Alvanaki compares."""
    f767, roles = load_target("stm32f767"), {"DTCM": ("stack", "data")}
    memories = tuple(replace(m, roles=roles.get(m.name, m.roles)) for m in f767.memories)
    name = "stm32f767, arena in SRAM1, channel by channel"
    return Setting(name, replace(f767, memories=memories), HSE_HZ, channelwise=True)


@cache
def energy_choices(network: str, setting: Setting, stalls: float = 1.0) -> Any:
    """All costs of a network's steps. `stalls`: factor of the assumed stall cycles."""
    from ...model.clocked import choices, power_model
    from ...model.energy.layer_cost import require_timing

    graph, target = paper_network(network), setting.target
    request = ModelRequest(Path(network), network, target.name, objective="energy", hse=setting.hse_hz)
    model = power_model(target, request)
    timing = require_timing(model)
    cycles = timing.flash_line_cycles * stalls, timing.sram_line_cycles * stalls
    timing = replace(timing, flash_line_cycles=cycles[0], sram_line_cycles=cycles[1])
    model = replace(model, plan=replace(model.plan, tree=replace(model.plan.tree, timing=timing)))
    every = choices(graph, target, request, model)
    return _channel_by_channel(every) if setting.channelwise else every


def _channel_by_channel(every: Any) -> Any:
    """Choices in which the first form of a depthwise step is the kernel that decoupling splits, for one channel.

    The baseline then has the same kernel as the decoupled forms, as in the literature, and not a faster one.
    """
    from ...model.clocked import Choices, uses_of
    from ...model.energy.layer_cost import layers_of, require_timing, work

    class ChannelByChannel(Choices):
        @property
        def plain(self) -> Any:
            return layers_of([[each[0]] for each in self.forms], self.model)

    forms, timing = [], require_timing(every.model)
    for section, each in zip(every.whole.steps, every.forms, strict=True):
        uses = uses_of(every.whole, section, 1)
        if section.ops[0].kind == "depthwise_conv2d" and any(u.kernel.traffic.rounds for u in uses):
            each = (replace(work(section.name, uses, timing, 0).in_one_phase, buffer_bytes=0), *each[1:])
        forms.append(each)
    return ChannelByChannel(every.whole, every.model, tuple(forms))


def _daedvfs(cases: list[str]) -> Iterator[Figures]:
    from ...model.energy.select import compare

    rows = list[Figures]()
    tight = dict[str, float]()
    for case in cases:
        network, _, slack = case.partition(", ")
        if not slack:
            break
        steps = energy_choices(network, as_in_the_thesis())
        compared = compare(steps.plain, steps.layers, steps.model, float(slack.split()[0]) / 100)
        energy = compared.plan.energy_uj
        rows.append({name: 100 * compared.saving(name) for name in ("busy", "gated")})
        yield {**rows[-1], "relaxed": 100 * (1 - energy / tight.setdefault(network, energy))}
    yield {name: max(row[name] or 0.0 for row in rows) for name in ("busy", "gated")}


def _deeperthings(cases: list[str]) -> Iterator[Figures]:
    from ...model.formats import shapes
    from ...model.plan.distribute import by_name

    for case in cases:
        counts = shapes.counts(shapes.read_shapes(FOLDER / "shapes" / f"{case}.yaml"))
        footprint, switch = by_name.full(counts, 10)
        tail = counts[16:] if case == "yolov2" else counts
        yield {
            "single": by_name.single(counts) * MB,
            "full": footprint * MB,
            "first": switch + 1,
            "sequential": by_name.sequential(counts) * MB,
            "fdto": by_name.fan_out(tail, 6) * MB,
            "owp": by_name.optimized(tail, 6)[0] * MB,
        }


def _drivers(cases: list[str]) -> Iterator[Figures]:
    """Layouts, sizes of the linked drivers, and a run of the thesis' two scenarios."""
    from ...driver.emit.products import register_map
    from ...driver.pipeline import compile_driver

    with tempfile.TemporaryDirectory() as name:
        folder, sizes, states = Path(name), dict[str, int](), list[str]()
        for driver in ("gpio", "spi"):
            source = hal_dir() / "drivers" / f"pulpino_{driver}.bf.c"
            artifacts, compiled = compile_driver(DriverRequest((source,), driver, "pulpino"))
            for a in artifacts:
                (folder / a.name).write_bytes(a.data)
            sizes[driver] = compiled.layout.groups[compiled.dialect.devices[driver].group].size
            for block in register_map(driver, compiled).blocks:
                states += [
                    f"set({block.base + r.offset:#x}u, {1 << f.lsb:#x}u);"
                    for r in block.registers for f in r.fields if f.name in ("state", "rxCount")
                ]  # fmt: skip
        ours = [
            {"map": sizes[driver], **_run_drivers(folder, driver, scenario, states)}
            for driver, scenario in (("gpio", "g100"), ("spi", "s25"))
        ]
    yield from ours
    both = zip(ours[0], ours[0].values(), ours[1].values(), strict=True)
    yield {key: None if a is None or b is None else a + b for key, a, b in both}


def _run_drivers(folder: Path, driver: str, scenario: str, states: list[str]) -> dict[str, float | None]:
    """Figures of the scenario minus those of an empty program. `states`: C that makes the SPI idle with a word."""
    empty, full = (_program(folder, run, states) for run in ("(void)0", f"{scenario}()"))
    instructions, accesses = (b - a for a, b in zip(empty[1], full[1], strict=True))
    return {"bytes": full[0][driver], "accesses": accesses, "time": instructions}


def _program(folder: Path, run: str, states: list[str]) -> tuple[dict[str, int], tuple[int, int]]:
    """(bytes of the drivers in a program that runs `run`, (its instructions, its accesses to peripherals))."""
    from ...model.verify.harness import run_tool, xpulp_simulator

    drivers = hal_dir() / "drivers"
    objects = []
    for source in (folder / "gpio.c", folder / "spi.c", drivers / "pulpino_scenarios.c"):
        words = [f"-DRUN={run}", f"-DSET={' '.join(states)}", f"-I{drivers}", "-I."]
        run_tool([*RISCV, *words, "-c", "-o", f"{source.stem}.o", str(source)], folder, "gcc-riscv64-unknown-elf")
        objects.append(f"{source.stem}.o")
    places = ["-nostdlib", "-Wl,-Ttext=0x20001000", "-Wl,-Tdata=0x40000000"]
    run_tool([*RISCV, *places, "-o", "drivers.elf", *objects, "-lgcc"], folder, "gcc-riscv64-unknown-elf")
    output = run_tool([str(xpulp_simulator(folder)), "corev", "drivers.elf", "1", hex(DEVICES)], folder, "")
    instructions, accesses = map(int, output.split())
    return driver_bytes(folder / "drivers.elf"), (instructions, accesses)


def driver_bytes(elf: Path) -> dict[str, int]:
    """Bytes of both drivers' functions. Local ones belong to their file in the symbol table, `spi_...` to the SPI."""
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    sizes, file = {"gpio": 0, "spi": 0}, ""
    with elf.open("rb") as stream:
        tables = [t for t in ELFFile(stream).iter_sections() if isinstance(t, SymbolTableSection)]
        for symbol in (s for table in tables for s in table.iter_symbols()):
            kind, is_local = symbol["st_info"]["type"], symbol["st_info"]["bind"] == "STB_LOCAL"
            file = Path(symbol.name).stem if kind == "STT_FILE" else file
            driver = file if is_local else "spi" if symbol.name.startswith("spi_") else "gpio"
            if kind == "STT_FUNC" and driver in sizes and symbol.name not in ("g100", "s25", "_start"):
                sizes[driver] += symbol["st_size"]
    return sizes


COMPUTED: dict[str, Callable[[list[str]], Iterator[Figures]]] = {
    "fdt": _fdt, "dory": _dory, "zigzag": _zigzag, "daedvfs": _daedvfs, "deeperthings": _deeperthings,
    "drivers": _drivers,
}  # fmt: skip


# ---- the table


def reproduce(name: str) -> dict[str, Any]:
    """A paper's table as JSON: `source`, `note`, `figures` by column, and `rows` with the paper's figures and ours."""
    paper, rows = papers()[name], []
    for case, ours in zip(paper.rows, COMPUTED[name](list(paper.rows)), strict=True):
        say(f"{name}: {case}")
        rows.append({"case": case, "paper": dict(paper.rows[case]), "ours": dict(ours)})
    return {"name": name, **{k: v for k, v in asdict(paper).items() if k != "rows"}, "rows": rows}


def as_text(table: Mapping[str, Any]) -> str:
    """The table as text: the paper's figure and ours in each column; `~` marks modelled ones."""
    columns = table["figures"]
    head = [["", *(c["title"] for c in columns.values())],
            [table["case"], *(f"paper/ours {c['unit']}".strip() for c in columns.values())]]  # fmt: skip
    body = [[row["case"], *(_pair(row, key, column) for key, column in columns.items())] for row in table["rows"]]
    widths = [max(map(len, cells)) for cells in zip(*head, *body, strict=True)]
    lines = ["  ".join(f"{cell:{'<' if i == 0 else '>'}{widths[i]}}" for i, cell in enumerate(cells)).rstrip()
             for cells in (*head, *body)]  # fmt: skip
    bases = [f"  {c['title']}: {c['basis']}" for c in columns.values()]
    note = f"\n{table['note']}\n~ modelled. Of ours:"
    return "\n".join([f"{table['name']}: {table['source']}", "", *lines, note, *bases, ""])


def _pair(row: Mapping[str, Any], key: str, column: Mapping[str, Any]) -> str:
    paper, ours = f"{row['paper'][key]:,g}" if key in row["paper"] else "-", _short(row["ours"].get(key))
    mark = "~" if column["basis"].startswith("modelled") and ours != "-" else ""
    return f"{paper} / {mark}{ours}" if (paper, ours) != ("-", "-") else ""


def _short(value: float | None) -> str:
    """A number with three digits; `-` for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
