"""Clock trees as data: limits of a chip's oscillators, PLL, regulator, flash and buses, and its supply currents.

The facts are in `hal/clocks/NAME.yaml`; a target names its tree with `clocks: NAME`. Every block names the document of
its numbers (`source:`). A fact that no document states is `unknown`: commands that need it fail with that reason.
Units: Hz, microseconds, mA, volts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..base.errors import EdgebuildError, did_you_mean, fail
from ..base.facts import map_of, parse_formula, parts_of, read_facts, read_node, stated_in
from ..base.target import clock_tree_file, hal_dir
from ..base.text import WORD

Span = tuple[int, int]  # from, to: both included
Spread = tuple[float, float]  # least, most
CODES = tuple(f"{letter}_code" for letter in "mnpq")
LETTERS = (*"mnpq", *CODES, "hse", "hsi", "msi", "vos", "boost", "bypass", "base_mhz", "in_mhz")  # in formulas


@dataclass(frozen=True)
class Hse:
    """The external clock: a crystal, or a clock signal (bypass)."""

    crystal_hz: Span
    bypass_hz: Span | None
    default_hz: int
    default_bypass: bool
    source: str
    crystal_start_us: int = 2000  # typical, in all datasheets that were read


@dataclass(frozen=True)
class VcoRange:
    """One range of the PLL's oscillator. Lock times and currents: (least, most) by VCO frequency."""

    in_hz: Span
    out_hz: Span
    lock_us: Mapping[int, Spread] | None
    current_ma: Mapping[int, Spread] | None
    source: str


@dataclass(frozen=True)
class Pll:
    """reference = oscillator / M; VCO = reference * N; SYSCLK = VCO / P; the 48 MHz output = VCO / Q.

    P is R in the manuals of newer families. `hsi_m`: range of M with the HSI, if different. `codes`: for M, N, P or Q,
    the possible values and their register codes, which formulas use as letters such as n_code. `bypass`: the PLL can
    pass its oscillator through as SYSCLK.
    """

    m: Span
    n: Span
    p: tuple[int, ...]
    q: tuple[int, ...] | None
    vco: tuple[VcoRange, ...]
    reference_hz: int  # preferred reference: the higher, the less jitter
    out_hz: Span
    source: str
    hsi_m: Span | None = None
    bypass: bool = False
    codes: Mapping[str, Mapping[int, int]] | None = None


@dataclass(frozen=True)
class Scale:
    """A setting of the core's regulator, with the highest HCLK that it allows, also with over-drive."""

    name: str
    vos: int | None  # value of the VOS field
    max_hz: int
    max_hz_overdrive: int | None
    core_v: float | None
    flash: str  # name of the table of wait states at this voltage
    boost: bool = False  # value of the letter `boost` in formulas, as for R1MODE
    max_vco_hz: int | None = None  # limit of the VCO at this voltage


@dataclass(frozen=True)
class Regulator:
    """`scales`: from the lowest voltage to the highest. `with_pll`: while the PLL is off, the chip uses the first scale
    whatever VOS is. `step_hz`: switches to and from a faster SYSCLK need the AHB at half speed for a microsecond."""

    scales: tuple[Scale, ...]
    source: str
    with_pll: bool = False
    step_hz: int | None = None


@dataclass(frozen=True)
class Overdrive:
    """More voltage for the highest clocks; the clock stops while over-drive is switched."""

    enable_us: Spread
    disable_us: Spread
    source: str


@dataclass(frozen=True)
class Flash:
    """`max_hz[table][n]` is the highest HCLK with n wait states."""

    max_hz: Mapping[str, tuple[int, ...]]
    source: str


@dataclass(frozen=True)
class Buses:
    """Highest clocks of the peripheral buses; `overdrive_*`: with over-drive on. HCLK is SYSCLK / `ahb`.

    `capped`: hardware enforces the limits, so that a bus runs at SYSCLK or at its limit, whichever is lower.
    """

    apb1_hz: int
    apb2_hz: int
    source: str
    overdrive_apb1_hz: int = 0
    overdrive_apb2_hz: int = 0
    ahb: int = 1
    capped: bool = False


@dataclass(frozen=True)
class Wake:
    """A Stop mode: its current, and the time from the event to the first instruction (on HSI, PLL off)."""

    ma: float
    wake_us: float


@dataclass(frozen=True)
class Power:
    """Supply currents, typical, 25 C, peripherals off. `run_ma[placement][scale][hz]`; the scale is `any` if the
    datasheet has one row per frequency, from which the scale follows."""

    of: str  # the device of the datasheet; a stand-in if it is not the tree's
    vdd_v: float
    run_ma: Mapping[str, Mapping[str, Mapping[int, float]]]
    sleep_ma: Mapping[int, float] | None
    stop: Mapping[str, Wake] | None
    source: str
    lfo_ma: Mapping[int, float] | None = None  # on the HSE by the quick mux, by the PLL's SYSCLK; in no datasheet


@dataclass(frozen=True)
class Timing:
    """Execution time of code in cycles of HCLK; assumed if no datasheet states it, and then to be calibrated.

    A cache miss costs `flash_line_cycles` plus the wait states from flash, `sram_line_cycles` from RAM on the bus, and
    nothing from tightly coupled memory.
    """

    cycles_per_instruction: float
    line_bytes: int
    cache_bytes: int
    flash_line_cycles: float
    sram_line_cycles: float
    source: str


@dataclass(frozen=True)
class Register:
    """A register: its address, and its fields as (lowest bit, width)."""

    address: int
    fields: Mapping[str, Span]


@dataclass(frozen=True)
class Gpio:
    """GPIO ports: port A at `base`, the next one `stride` bytes further. Bit n at `enable` clocks port n."""

    base: int
    stride: int
    enable: int


@dataclass(frozen=True)
class Step:
    """One access of a register: fields to write, or to wait for, as formulas. Without fields it is a read."""

    register: str
    fields: Mapping[str, str]
    waits: bool

    @classmethod
    def parse(cls, text: str) -> Step:
        """A step from `RCC_CR.PLLON = 1`, `wait RCC_CR.PLLRDY = 1`, `REG.A = m, B = n - 1` or `read REG`.

        Raises ValueError for anything else.
        """
        *verb, place = text.split(maxsplit=1) if text.startswith(("wait ", "read ")) else (text,)
        register, dot, rest = place.strip().partition(".")
        pairs: list[str] = []
        for part in rest.split(","):  # a part without an equals sign continues a formula
            pairs[-1:] = [part] if not pairs else [pairs[-1], part] if "=" in part else [f"{pairs[-1]},{part}"]
        fields = (
            {name.strip(): value.strip() for name, _, value in (pair.partition("=") for pair in pairs)} if dot else {}
        )
        if (verb == ["read"]) == bool(dot) or not all(fields.values()) or not WORD.issuperset(register):
            raise ValueError(f"registers: '{text}' is no step, such as `wait RCC_CR.PLLRDY = 1`")
        return cls(register, fields, verb == ["wait"])


def pause_of(step: str) -> int:
    """Microseconds of a step `pause N`; 0 for other steps."""
    word, _, number = step.partition(" ")
    return int(number) if word == "pause" and number.isdecimal() else 0


@dataclass(frozen=True)
class Registers:
    """Registers that the emitted C writes to, and the sequences of accesses.

    `select`: values of the field `mux` for hsi, hse, msi and pll. `shown`: the status field with the same values, or
    with `one_hot` a bit for each. `pll`: formulas of the PLL's fields; without a register they are in RCC_PLLCFGR. The
    letters: m, n, p, q and their codes (`Pll`), vos, boost, bypass; hse, hsi, msi: 1 for the oscillator of the PLL;
    base_mhz, in_mhz: the oscillator and the reference. `accelerator`: fields of FLASH_ACR that are set once, for speed.
    `rest`: hsi, if SYSCLK cannot come from the oscillator of the PLL; `start` then starts that oscillator, too.
    `dividers`: the fields of the bus dividers, as codes of hpre, ppre1 and ppre2, and of one behind the HSI.

    The sequences consist of steps. `prepare` runs once, before all else. `stop` runs with SYSCLK from an oscillator,
    then `voltage`, then `start`. There `pll` writes the PLL's fields, `flash` the wait states, `overdrive` switches the
    over-drive, and `pause N` waits N microseconds. `oscillators`: steps that start an oscillator outside of RCC_CR.
    """

    select: Mapping[str, int]
    pll: Mapping[str, str]
    map: Mapping[str, Register]
    source: str
    accelerator: tuple[str, ...] = ()
    gpio: Gpio | None = None
    rest: str = ""
    mux: str = "RCC_CFGR.SW"
    shown: str = "RCC_CFGR.SWS"
    one_hot: bool = False
    latency: str = "FLASH_ACR.LATENCY"
    dividers: tuple[str, ...] = ("RCC_CFGR.HPRE = hpre, PPRE1 = ppre1, PPRE2 = ppre2",)
    prepare: tuple[str, ...] = ()
    stop: tuple[str, ...] = ("RCC_CR.PLLON = 0", "wait RCC_CR.PLLRDY = 0")
    voltage: tuple[str, ...] = ()
    start: tuple[str, ...] = ("pll", "RCC_CR.PLLON = 1", "flash", "wait RCC_CR.PLLRDY = 1")
    oscillators: Mapping[str, tuple[str, ...]] | None = None

    def __post_init__(self) -> None:
        for name in (*self.map, *(f"{register}_{f}" for register, r in self.map.items() for f in r.fields)):
            if not WORD.issuperset(name) or name[:1].isdigit():
                raise ValueError(f"registers: '{name}' becomes a macro of C; letters, digits and _ are right")
        chosen = [f"{place} = 0" for place in (self.mux, self.shown, self.latency) if place]
        for text in (*chosen, *self._steps()):
            step = Step.parse(text)
            fields = self.map[step.register].fields if step.register in self.map else {}
            if step.register not in self.map:
                raise ValueError(f"registers: '{text}' is of no register of the map")
            for name, value in step.fields.items():
                if name not in fields:
                    raise ValueError(f"registers: {step.register} has no field '{name}'{did_you_mean(name, fields)}")
                parse_formula(value, (*LETTERS, "hpre", "ppre1", "ppre2"))

    def _steps(self) -> list[str]:
        written = [f"{register}.{name} = {text}" for register, each in self.pll_fields.items() for name, text in each]
        starts = [step for each in (self.oscillators or {}).values() for step in each]
        lists = (self.dividers, self.prepare, self.stop, self.voltage, self.start)
        words = ("pll", "flash", "overdrive")
        return [*written, *starts, *(s for each in lists for s in each if s not in words and not pause_of(s))]

    @property
    def pll_fields(self) -> Mapping[str, list[tuple[str, str]]]:
        """The fields of the PLL and their formulas, by register."""
        by_register: dict[str, list[tuple[str, str]]] = {}
        for name, text in self.pll.items():
            register, _, field = name.rpartition(".")
            by_register.setdefault(register or "RCC_PLLCFGR", []).append((field, text))
        return by_register

    def field(self, register: str, name: str) -> Span:
        return self.map[register].fields[name]


@dataclass(frozen=True)
class ClockTree:
    """The clock tree of one chip. `offer_hz`: the default SYSCLKs of generated code."""

    device: str
    description: str
    hsi_hz: int | None
    hse: Hse
    pll: Pll
    regulator: Regulator
    overdrive: Overdrive | None
    flash: Flash | None
    buses: Buses | None
    power: Power | None
    timing: Timing | None
    registers: Registers | None
    offer_hz: tuple[int, ...]
    msi_hz: int | None = None  # the multi-range internal oscillator, in the range that is used

    def unknown(self, what: str, needed_for: str) -> EdgebuildError:
        """The error for a fact that this tree does not state, to be raised by the caller."""
        hint = "add the facts, with their source, to its clock tree"
        return fail(f"{self.device}: {what} unknown, so {needed_for}", hints=[hint])


def clock_names() -> list[str]:
    """Names of the clock trees that ship with edgebuild, sorted."""
    trees = [(f.stem, parts_of(map_of(f))) for f in (hal_dir() / "clocks").glob("*.yaml")]
    return sorted(name for stem, parts in trees for name in parts or [stem])


def load_clock_tree(name_or_path: str) -> ClockTree:
    """Read a tree by its name, or from a file (with a slash, or ending in .yaml). Raises EdgebuildError."""
    file = clock_tree_file(name_or_path)
    if file is None:
        shipped = clock_names()
        near = did_you_mean(name_or_path, shipped)
        raise fail(
            f"unknown clock tree '{name_or_path}'{near}",
            hints=["known: " + ", ".join(shipped), "targets name it: `clocks:`"],
        )
    stated = stated_in(name_or_path, hal_dir() / "clocks")
    tree = read_node(ClockTree, stated[1]) if stated else read_facts(ClockTree, file)
    _check(tree, str(file))
    return tree


def _check(tree: ClockTree, file: str) -> None:
    """Raise EdgebuildError unless references resolve, spans rise, and scales are in order."""
    for what, span in (("hse.crystal_hz", tree.hse.crystal_hz), ("pll.m", tree.pll.m), ("pll.n", tree.pll.n)):
        if span[0] > span[1]:
            raise fail(f"{what}: {list(span)} runs downwards", file=file)
    limits = [s.max_hz for s in tree.regulator.scales]
    if limits != sorted(limits):
        raise fail("regulator.scales: the lowest voltage comes first", file=file)
    for scale in tree.regulator.scales:
        if tree.flash and scale.flash not in tree.flash.max_hz:
            near = did_you_mean(scale.flash, tree.flash.max_hz)
            raise fail(f"scale {scale.name}: no wait states for '{scale.flash}'{near}", file=file)
        if scale.max_hz_overdrive and tree.overdrive is None:
            raise fail(f"scale {scale.name} has a limit with over-drive, which this chip does not have", file=file)
    if tree.registers:
        if not {"pll"} < set(tree.registers.select) <= {"hsi", "hse", "msi", "pll"}:
            raise fail("registers.select: the values for hsi, hse and pll are right", file=file)
        if tree.registers.rest not in ("", *({"hsi"} & set(tree.registers.select) if tree.hsi_hz else ())):
            raise fail("registers.rest: hsi is right, with a value in select and hsi_hz", file=file)
        for name in tree.registers.accelerator:
            if name not in tree.registers.map["FLASH_ACR"].fields:
                raise fail(f"registers.accelerator: FLASH_ACR has no field '{name}'", file=file)
