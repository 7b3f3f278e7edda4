"""Which command measures each number of the README and of docs.

A table is registered by its page and the first cell of its header: for each row, figures by the names of its columns.
A sentence is registered by a pattern whose groups are its numbers. What is a given (a limit that the code states, a
figure of a datasheet or of a paper, the size of an example) stands in `given.py` with its kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .measure import (
    MODEL_FILES,
    Figures,
    bench,
    bench_row,
    build,
    compiled,
    object_bytes,
    peers,
    rtl,
    sample_cluster,
    sample_model,
)
from .pages import Number, Table, page_texts, tables

Label = tuple[str, ...]  # the leading cells of a row
MODELS = {"DS-CNN keyword spotting": "kws", "ResNet-8": "resnet", "person detection": "person", "autoencoder": "ad"}
CORES = {"M4": "mps2-an386", "M7": "mps2-an500", "M0+": "m0plus-model", "M3": "mps2-an385", "M55": "mps3-an547",
         "RV32IMC": "riscv-virt", "M4, flash": "m4-flash-model"}  # fmt: skip
FILES = {"kws": "mlperf_kws", "resnet": "mlperf_resnet", "person": "person_detect", "ad": "mlperf_ad"}
BOARD_MODELS = {"keyword spotting": "kws", "ResNet-8": "resnet", "visual wake words": "vww", "autoencoder": "ad"}
TIMES = 0.5  # share by which a time of this machine may differ from the page's
PEER = "TFLM"


@dataclass(frozen=True)
class Checked:
    """A number of a page beside what its command measures."""

    number: Number
    measured: float
    tolerance: float = 0.0

    @property
    def holds(self) -> bool:
        return self.number.equals(self.measured, self.tolerance)

    def __str__(self) -> str:
        n = self.number
        verdict = "" if self.holds else "   DIFFERS"
        return f"{n.page}:{n.line}: {n.what}: says {n.text}, measured {self.measured:,.6g}{verdict}"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self.number), "measured": self.measured, "holds": self.holds}


@dataclass(frozen=True)
class MeasuredTable:
    """A table whose cells with numbers are all measured: `figures` of a row's leading cells, by column."""

    page: str
    head: str  # first cell of the header
    figures: Callable[[Label], Figures]
    tolerance: float = 0.0

    def __str__(self) -> str:
        return f"{self.page}: {self.head}"

    def table(self) -> Table:
        (table,) = [t for t in tables(self.page, page_texts()[self.page]) if t.header[0] == self.head]
        return table

    def cells(self) -> Iterator[tuple[Label, str, Number]]:
        """Leading cells of a row, column, and number, for every number of the table."""
        for row, label, column, text in self.table().numbers():
            yield label, column, Number(self.page, row.line, f"{', '.join(label)}: {column}", text)

    def run(self) -> list[Checked]:
        return [Checked(number, self.figures(label)[column], self.tolerance) for label, column, number in self.cells()]


@dataclass(frozen=True)
class Sentence:
    """A sentence whose numbers are the groups of `pattern`; blanks stand for any white space."""

    page: str
    pattern: str
    figures: Callable[[], Sequence[float]]
    tolerance: float = 0.0

    def __str__(self) -> str:
        return f"{self.page}: {self.pattern}"

    def numbers(self) -> list[Number]:
        text = page_texts()[self.page]
        match = re.search(self.pattern.replace(" ", r"\s+"), text)
        assert match is not None, f"{self.page} has no sentence like {self.pattern!r}"
        numbers = []
        for group in range(1, len(match.groups()) + 1):
            before = text[max(match.start(), match.start(group) - 40) : match.end(group)]
            line = text.count("\n", 0, match.start(group)) + 1
            numbers.append(Number(self.page, line, " ".join(before.split()), match[group]))
        return numbers

    def run(self) -> list[Checked]:
        return [Checked(n, value, self.tolerance) for n, value in zip(self.numbers(), self.figures(), strict=True)]


Check = MeasuredTable | Sentence


def options_of_text(text: str) -> dict[str, object]:
    """`--tile off --ram 4012` as options of a request."""
    pairs = re.findall(r"--([\w-]+) (\S+)", text)
    return {name.replace("-", "_"): int(value) if value.isdigit() else value for name, value in pairs}


# ---- README


def small_and_fast(label: Label) -> Figures:
    """A row of the first table: one build on the Cortex-M4, or the peer's."""
    name, how = label
    if how.startswith(PEER):
        peer = peers()["tflm"]["rows"][MODELS[name]]
        return {"arena": peer["arena"], "code": peer["code"], "instructions per MAC": peer["M4"]}
    return build(MODELS[name], CORES["M4"], cycles=True, **options_of_text(how))


def other_cores(label: Label) -> Figures:
    """A row of the second table: `--tile off` on another core, beside the peer's instructions."""
    core, name = label
    figures = build(MODELS[name], CORES[core], tile="off")
    peer = peers()["tflm"]["rows"][MODELS[name]].get(core)
    return {**figures, "here": figures["instructions per MAC"], **({PEER: peer} if peer else {})}


def beside_boards(label: Label) -> Figures:
    """A row of the third table: modelled cycles per MAC of `--tile off`, beside boards of others.

    The last column multiplies ours by what the model misses of the one board that it was compared with.
    """
    core, name = label
    model = MODELS[name]
    boards = peers()["boards"]["rows"][model]
    here = build(model, CORES["M4, flash" if core == "M4" else core], cycles=True, tile="off")["cycles per MAC"]
    row = {who: boards[f"{core} {who}"] for who in ("ST", "Plumerai", "Bosch") if f"{core} {who}" in boards}
    if core == "M4":
        row["with the model's error"] = here * boards["M4 microTVM"] / bench("peers")["rows"][model]["flash"]
    return {**row, "here": here}


SHARES = ("arena", "code", "instructions per MAC")


def shares(figure: str) -> list[float]:
    """This figure of the second build of each model of the first table, in percent of the peer's."""
    rows = MeasuredTable("README.md", "int8 model, Cortex-M4", small_and_fast).table().rows
    labels = list(dict.fromkeys((row.cells[0], row.cells[1]) for row in rows))
    by_model = {name: [how for model, how in labels if model == name] for name in MODELS}
    return [100 * small_and_fast((name, tiled))[figure] / small_and_fast((name, peer))[figure]
            for name, (peer, _, tiled) in by_model.items()]  # fmt: skip


def several_devices(label: Label) -> Figures:
    """A row of the table of devices: milliseconds by the number of devices and the medium."""
    name, *_ = label
    rows = {row["link"]: row for row in bench("distribute")["speeds"] if row["model"] == FILES[MODELS[name]]}
    spi, can = rows["SPI at 20 MHz"], rows["CAN FD at 5 Mbit/s"]
    row = {"one chip": spi["1"], "two, SPI 20 MHz": spi["2"], "four, SPI": spi["4"], "two, CAN FD 5 Mbit/s": can["2"],
           "four, CAN FD": can["4"]}  # fmt: skip
    return {column: value for column, value in row.items() if value != "no gain"}


# ---- docs


def by_core(label: Label) -> Figures:
    """A row of figures.md: `--tile off` on every core."""
    (row,) = [row for row in bench("cycles") if row["name"] == FILES[MODELS[label[0]]]]
    renamed = {"M4, flash of F4": "M4, flash"}
    return {renamed.get(core, core): run["cycles"] for core, run in row["cores"].items() if run and "cycles" in run}


def on_vexriscv(label: Label) -> Figures:
    """A row of rtl.md: a network on the RTL, and the model."""
    row = bench_row("rtl", "rows", model=label[0])
    columns = {"instructions per MAC": "instructions", "cycles per MAC on the RTL": "cycles", "modelled": "modelled"}
    return {column: row[key] / row["macs"] for column, key in columns.items()}


def on_accelerators(label: Label) -> Figures:
    """A row of add-an-accelerator.md: cycles of a network on the RTL of two samples."""
    samples = ("systolic", "ne16")
    return {s: bench_row("engines", "rows", model=label[0], accelerator=s)["cycles"] for s in samples}


def on_cv32e40p(label: Label) -> Figures:
    """A row of rtl.md: what was counted on RTL that is no part of the project, as rtl.yaml has it."""
    (row,) = [row for row in rtl()[0]["networks"] if row["name"] == label[0]]
    return {"cycles on the RTL": row["cycles"], "modelled": row["modelled"]}


def against_board(label: Label) -> Figures:
    """A row of figures.md: layers of CMSIS-NN through the model, and the board."""
    model = BOARD_MODELS[label[0]]
    measured = bench("peers")
    row = {"no wait states": measured["rows"][model]["no wait states"], "flash": measured["rows"][model]["flash"]}
    return {
        **row,
        "board": measured["board"][model],
        **({"edgebuild, flash": measured["here"][model]} if model in measured["here"] else {}),
    }


def board_errors() -> list[float]:
    """How far modelled layers of CMSIS-NN lie below the board: least and most; the same of ratios; in percent."""
    measured = bench("peers")
    below = [100 * (1 - row["flash"] / measured["board"][model]) for model, row in measured["rows"].items()]
    ratios = [100 * (measured["furthest"][column][0] - 1) for column in ("flash", "no wait states")]
    return [min(below), max(below), *ratios]


def planning(label: Label) -> Figures:
    """A row of figures.md: seconds and MB by the number of ops."""
    ops = int(label[0])
    chain, residual = (bench_row("planning", network=kind, ops=ops) for kind in ("chain", "residual"))
    return {"chain": chain["seconds"], "memory of chain": chain["mb"],
            "residual": residual["seconds"], "memory of residual": residual["mb"]}  # fmt: skip


def decoupling(label: Label) -> Figures:
    """A row of clocks.md: percent that decoupling saves of the energy of full clock with busy idling, at 10 % slack."""
    settings = {"F767, arena in DTCM": "stm32f767", "F767, arena in SRAM1": "stm32f767, arena in SRAM1",
                "F429": "stm32f429", "F411": "stm32f411"}  # fmt: skip
    return {column: 100 * _decoupled(setting, label[0]) for column, setting in settings.items()}


def _decoupled(setting: str, network: str) -> float:
    hse = 50_000_000 if setting.startswith("stm32f767") else 8_000_000
    row = bench_row("clocks", "networks", setting=setting, network=network, slack=0.1, hse_hz=hse)
    return float(row["shares"]["decoupling"])


def literature() -> list[float]:
    """The least and the most that decoupling saves against a baseline that goes channel by channel, in percent."""
    rows = bench("clocks")["networks"]
    savings = [
        100 * r["shares"]["decoupling"] for r in rows if "channel by channel" in r["setting"] and r["slack"] == 0.1
    ]
    return [min(savings), max(savings)]


def less_flash(label: Label) -> Figures:
    """A row of tiling.md: the keyword network on RV32IMC under a limit of flash."""
    figures = build("kws", CORES["RV32IMC"], tile="off", **options_of_text(label[0]))
    return {
        "flash of the linked model": figures["constants"] + figures["code"],
        "instructions": figures["instructions"],
    }


def by_optimize(label: Label) -> Figures:
    """A row of tiling.md: ResNet-8 with and without Winograd's transformation."""
    options = {"tile": "off", **options_of_text(label[0])}
    m4 = build("resnet", CORES["M4"], cycles=True, **options)
    cycles = {
        core: build("resnet", CORES[core], cycles=True, **options)["cycles per MAC"] for core in ("M4, flash", "M7")
    }
    return {"M4": m4["cycles per MAC"], "M4, flash of L4": cycles["M4, flash"], "M7": cycles["M7"],
            "weights": m4["constants"], "arena": m4["arena"]}  # fmt: skip


def below_dory(label: Label) -> Figures:
    """A row of memory-levels.md: mean gain of the exact search over DORY's rule, in percent."""
    letter = label[0].split()[1].rstrip(",")
    rows = [row for row in bench("hierarchy")["layers27"] if row["name"].startswith(letter)]
    endless = [1 - row["compute"] / row["dory"] for row in rows]
    return {"below DORY's rule, mean": 100 * bench("hierarchy")["below_dory"][letter],
            "with endless memory": 100 * sum(endless) / len(endless)}  # fmt: skip


def in_levels(label: Label) -> Figures:
    """A row of memory-levels.md: a network on `pulp-cluster` in each way of mapping."""
    name = {
        "MobileNetV1 0.25-96": "mobilenet_v1",
        "ResNet-8": "resnet8",
        "MobileNetV2 0.35-144": "mobilenet_v2_035_144",
    }[label[0]]
    layer, dory, auto = (_mapped(name, method) for method in ("layer", "dory", "auto"))
    return {"moved: layer": layer["activation_bytes"], "moved: auto": auto["activation_bytes"],
            "million cycles: layer": layer["total"] / 1e6, "dory": dory["total"] / 1e6,
            "auto": auto["total"] / 1e6, "gap": auto["gap_percent"]}  # fmt: skip


def _mapped(name: str, method: str) -> Mapping[str, Any]:
    return bench_row("hierarchy", "networks", name=name, target="pulp-cluster", method=method)


def on_gap8(label: Label) -> Figures:
    """A row of memory-levels.md: a MobileNet on `gap8`."""
    row = bench_row("hierarchy", "gap8", name=label[0])
    return {"simulated": row["simulated"], "modelled": row["modelled"], "DORY, measured": row["measured_by_the_paper"]}


HTVM = {"autoencoder": 0.36, "DS-CNN keyword spotting": 1.92, "ResNet-8": 1.21}  # ms; Hamdi 2023, table 3.1


def on_diana(label: Label) -> Figures:
    """A row of memory-levels.md: a public network with scales that are powers of two on `diana`."""
    report = compiled(MODEL_FILES[MODELS[label[0]]], "diana", map="auto", scales="power-of-two")
    return {"cycles, modelled": report["hierarchy"]["cycles"]["total"], "HTVM, measured, ms": HTVM[label[0]]}


def sample_in_levels(label: Label) -> Figures:
    """A row of the sample: its network on a target in one way of mapping."""
    target, method = label
    report = sample_model("mobilenet_in_levels", target, map=method)["hierarchy"]
    return {"million cycles, modelled": report["cycles"]["total"] / 1e6,
            "above the bound": report["cycles"]["gap_percent"],
            "activations moved": report["activation_bytes"], "copies": report["moved"]["transfers"]}  # fmt: skip


def sample_on_two(label: Label) -> Figures:
    """A row of the sample: its network on boards like those of its cluster file."""
    boards, *objective = label
    count = {"two": 2, "four": 4}.get(boards, 2)
    report = sample_cluster("autoencoder_on_two", count, (objective or ["traffic"])[0])
    time = report["time_us"]
    if not objective:
        return {"most weights on one, B": report["weights_bytes"], "modelled, ms": time["one_device"] / 1000}
    return {"most weights on one, B": max(d["weights_bytes"] for d in report["devices"]),
            "arena of the source, B": report["devices"][0]["arena_bytes"],
            "on the wire, B": report["wire"]["payload_bytes"], "modelled, ms": time["cluster"] / 1000}  # fmt: skip


def digits() -> Figures:
    return build("digits", CORES["M4"])


def devices_of_four(name: str, unit: float) -> list[float]:
    """Traffic of a large network on four devices: point to point, and on a bus; in `unit` bytes."""
    rows = [row for row in bench("distribute")["memory"] if row["model"] == name]
    return [row["traffic"] * 1e6 / unit for row in rows]


def plans(form: str, figure: str) -> list[float]:
    """A figure of the plans of the thesis' networks on six devices."""
    rows = {row["network"]: row for row in bench("distribute")["plans"] if row["form"] == form}
    return [rows[name][figure] for name in ("yolov2", "alexnet", "vgg16", "extraction")]


def furthest_time() -> float:
    """Of all simulated runs: the largest relative difference of predicted and simulated time, in percent."""
    return max(100 * abs(row["error"]) for row in bench("distribute")["times"] if row.get("error") is not None)


def constants_of_kws() -> float:
    rom = build("kws", CORES["M4"], tile="off")
    return (rom["constants"] - rom["header"]) / rom["tensors"]


FOUR = r"([\d.]+) / ([\d.]+) / ([\d.]+) / ([\d.]+) MB"


def checks() -> list[Check]:
    """Every registered number, page by page."""
    wide, small = "mobilenet_v2_100_224", "mobilenet_v2_035_144"
    return [
        MeasuredTable("README.md", "int8 model, Cortex-M4", small_and_fast),
        MeasuredTable("README.md", "core", other_cores),
        MeasuredTable("README.md", "cycles per MAC", beside_boards),
        Sentence("README.md", r"take (\d+) to (\d+) % of TensorFlow Lite Micro's memory and (\d+) to (\d+) % of its "
                 r"code\. They execute (\d+) to (\d+) %", lambda: [f(shares(k)) for k in SHARES for f in (min, max)]),
        MeasuredTable("README.md", "int8 model", several_devices),
        Sentence("README.md", r"need (\d+) accesses in place of (\d+)",
                 lambda: (bench("drivers")["g100_accesses"], bench("drivers")["original"]["g100_accesses"])),
        Sentence("README.md", r"they send (\d+) kB", lambda: devices_of_four(small, 1e3)[:1]),
        MeasuredTable("docs/figures.md", "cycles per MAC", by_core),
        MeasuredTable("docs/figures.md", "CMSIS-NN, cycles per MAC", against_board),
        Sentence("docs/figures.md", r"lie (\d+) to (\d+) % below them\. The ratio of any two models is within (\d+) % "
                 r"of the board's; without wait states it is within (\d+) %", board_errors),
        MeasuredTable("docs/figures.md", "ops", planning, tolerance=TIMES),
        MeasuredTable("docs/rtl.md", "network on VexRiscv", on_vexriscv),
        MeasuredTable("docs/clocks.md", "decoupling saves, at 10 % slack, modelled", decoupling),
        Sentence("docs/clocks.md", r"decoupling saves ([\d.]+) to ([\d.]+) %", literature),
        MeasuredTable("docs/add-an-accelerator.md", "network on RTL", on_accelerators),
        MeasuredTable("docs/rtl.md", "network on CV32E40P", on_cv32e40p),
        MeasuredTable("docs/tiling.md", "DS-CNN keyword spotting, RV32IMC", less_flash),
        MeasuredTable("docs/tiling.md", "ResNet-8, cycles per MAC", by_optimize),
        Sentence("docs/tiling.md", r"those of DS-CNN ([\d.]+) times as much", lambda: [constants_of_kws()]),
        MeasuredTable("docs/memory-levels.md", "layers of the thesis", below_dory),
        MeasuredTable("docs/memory-levels.md", "network", in_levels),
        MeasuredTable("docs/memory-levels.md", "on gap8, million cycles", on_gap8),
        MeasuredTable("docs/memory-levels.md", "on diana", on_diana),
        Sentence("docs/memory-levels.md", r"takes ([\d.]+) million modelled cycles, and ([\d.]+) % more than the bound",
                 lambda: (_mapped(wide, "auto")["total"] / 1e6, _mapped(wide, "auto")["gap_percent"])),
        Sentence("docs/memory-levels.md", r"0\.35-144 moves ([\d,]+) B of activations on pulp-cluster, "
                 r"where layer by layer it moves ([\d,]+) B".replace("pulp-cluster", "`pulp-cluster`"),
                 lambda: [_mapped(small, m)["activation_bytes"] for m in ("auto", "layer")]),
        Sentence("docs/distribute.md", r"1\.0 at 224x224 .*? \| ([\d.]+) / ([\d.]+) MB sent",
                 lambda: devices_of_four(wide, 1e6)),
        Sentence("docs/distribute.md", r"0\.35 at 144x144 on four devices, .*? \| ([\d.]+) / ([\d.]+) kB sent",
                 lambda: devices_of_four(small, 1e3)),
        Sentence("docs/distribute.md", r"two steps \| " + FOUR, lambda: plans("float", "joint")),
        Sentence("docs/distribute.md", r"the same in int8, at most " + FOUR, lambda: plans("int8", "weights")),
        Sentence("docs/distribute.md", r"of weights each \| " + FOUR, lambda: plans("int8", "joint")),
        Sentence("docs/distribute.md", r"at the same weights \| " + FOUR, lambda: plans("int8", "fdto")),
        Sentence("docs/distribute.md", r"`cluster\.c` has ([\d,]+) bytes on Cortex-M4",
                 lambda: [object_bytes("cluster.c", CORES["M4"], "-O2")]),
        Sentence("docs/distribute.md", r"\| (\d+) of (\d+) equal",
                 lambda: (bench("distribute")["brute"]["equal"], bench("distribute")["brute"]["networks"])),
        Sentence("docs/distribute.md", r"16 devices, proved \| ([\d.]+) s",
                 lambda: [bench("distribute")["exact"]["cpu_s"]], tolerance=TIMES),
        Sentence("docs/distribute.md", r"they differ by at most ([\d.]+) %", lambda: [furthest_time()]),
        Sentence("docs/distribute.md", r"and sends ([\d,]+) bytes point to point",
                 lambda: devices_of_four(small, 1)[:1]),
        Sentence("docs/tutorial.md", r"arena bytes +([\d,]+)\n +stack bytes +([\d,]+)\n +flash bytes +([\d,]+)\n"
                 r" +code bytes +([\d,]+)\n +ram bytes +([\d,]+)\n +instructions +([\d,]+)\n +macs +([\d,]+)",
                 lambda: [digits()[key] for key in ("arena", "stack", "flash", "code", "ram", "instructions", "macs")]),
        MeasuredTable("sample_projects/mobilenet_in_levels/README.md", "target", sample_in_levels),
        MeasuredTable("sample_projects/autoencoder_on_two/README.md", "boards", sample_on_two),
    ]  # fmt: skip
