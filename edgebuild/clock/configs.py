"""Legal clock configurations of a clock tree, reasons why a requested one is illegal, and their costs.

Among the PLL settings with equal SYSCLK the one with the lowest VCO is chosen, since current and lock time rise with
it. Among these, the one whose reference is nearest to the preferred one.

Costs of running, switching and idling are modelled from the currents of the datasheet; nothing here is measured.
Currents between the points of a table follow the slope of their own voltage scale. A scale with one point has the
slope of the scale below, times the ratio of the core voltages: dynamic current is proportional to V and f. Units: mW,
microseconds, microjoules (mW * us / 1000 = uJ)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..base.errors import did_you_mean, fail
from .tree import ClockTree, Power, Scale, VcoRange

# Costs of switching between clock configurations and of idling. Microseconds, microjoules, mW.


@dataclass(frozen=True)
class SwitchCost:
    time_us: float
    energy_uj: float


FREE = SwitchCost(0.0, 0.0)
Switches = Mapping[tuple[str, str], SwitchCost]


@dataclass(frozen=True)
class IdleMode:
    """A mode of the chip between the end of an inference and the next deadline.

    `energy_uj` and `min_time_us`: entering, waking, and restoring the configuration in which inferences start. So an
    idle time s >= min_time_us costs energy_uj + power_mw * (s - min_time_us) / 1000.
    `returns`: the mode does not change the clock, so the plan must switch to the start's configuration itself.
    """

    name: str
    power_mw: float
    energy_uj: float
    min_time_us: float
    returns: bool = False

    def cost(self, idle_us: float) -> float:
        return self.energy_uj + self.power_mw * (idle_us - self.min_time_us) / 1000


NEAR = 0.98  # a SYSCLK without an exact setting gets the next lower one, down to this share of it
DIVIDERS = (1, 2, 4, 8, 16)
USB_HZ = 48_000_000


@dataclass(frozen=True)
class PllSetting:
    """The dividers of the PLL, with the resulting VCO and SYSCLK in Hz."""

    m: int
    n: int
    p: int
    q: int
    vco_hz: int
    sysclk_hz: int
    bypass: bool = False  # SYSCLK is the oscillator, past the PLL


@dataclass(frozen=True)
class Config:
    """One way to clock the core. `pll` None: SYSCLK is an oscillator, with the PLL off."""

    sysclk_hz: int
    pll: PllSetting | None
    scale: Scale
    overdrive: bool
    wait_states: (
        int | None
    )  # enough for SYSCLK and for the oscillator, so that the quick mux needs no change; None: unknown

    @property
    def name(self) -> str:
        """`216MHZ`, or in kHz if that is no whole number. The C name is `EB_CLOCK_` with this behind it."""
        mhz, rest = divmod(self.sysclk_hz, 1_000_000)
        return f"{self.sysclk_hz // 1000}KHZ" if rest else f"{mhz}MHZ"


@dataclass(frozen=True)
class ClockPlan:
    """All configurations of a firmware. `configs[0]` runs from the oscillator `rest`, the others rise in SYSCLK.

    `oscillator`: HSE, HSI or MSI, which feeds the PLL at `base_hz`. `bypass`: the HSE is an external clock signal.
    The bus dividers are the same in all configurations: the largest that any needs. So no bus exceeds its limit during
    a switch, and a peripheral's clock is a fixed fraction of SYSCLK.
    """

    tree: ClockTree
    oscillator: str
    base_hz: int
    bypass: bool
    configs: tuple[Config, ...]
    apb1: int | None  # None: limits unknown
    apb2: int | None

    def config(self, name: str) -> Config:
        return next(c for c in self.configs if c.name == name)

    @property
    def rest(self) -> tuple[str, int]:
        """The oscillator that SYSCLK comes from while the PLL is off, and its frequency, Hz."""
        hsi = self.tree.registers is not None and self.tree.registers.rest
        return ("HSI", self.tree.hsi_hz or 0) if hsi else (self.oscillator, self.base_hz)

    @property
    def feed(self) -> str:
        """The source of the PLL's clock, for messages."""
        kind = "" if self.oscillator != "HSE" else ", fed in" if self.bypass else ", crystal"
        return f"{self.oscillator} {mhz(self.base_hz)}{kind}"


def mhz(hz: float) -> str:
    return f"{hz / 1e6:.6g} MHz"


def parse_setting(text: str, option: str = "explain") -> tuple[int, ...]:
    """M, N, P and optionally Q from `25,216,2`. Raises EdgebuildError for anything else."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in ((3,) if option == "explain" else (3, 4)) or not all(
        re.fullmatch(r"\d{1,6}", p) for p in parts
    ):
        raise fail(f"option '{option}': '{text}' is not M,N,P", hints=["three whole numbers, such as 25,216,2"])
    return tuple(map(int, parts))


def check_hse(tree: ClockTree, hz: int) -> bool:
    """Whether this HSE must be an external clock signal (bypass). Raises EdgebuildError if no crystal fits, either."""
    low, high = tree.hse.crystal_hz
    bypass = tree.hse.bypass_hz
    if low <= hz <= high:
        return tree.hse.default_bypass
    if bypass and bypass[0] <= hz <= bypass[1]:
        return True
    fed = f"a clock fed in from {mhz(bypass[0])} to {mhz(bypass[1])}" if bypass else "a clock fed in: limits unknown"
    raise fail(
        f"{tree.device}: an HSE of {mhz(hz)} is not possible", hints=[f"a crystal from {mhz(low)} to {mhz(high)}", fed]
    )


def divided(tree: ClockTree, text: str) -> tuple[ClockTree, tuple[int, int] | None]:
    """(tree with the AHB divider from AHB,APB1,APB2; dividers of APB1 and APB2, or None if the text is empty).

    Raises EdgebuildError for dividers that the chip does not have.
    """
    if not text:
        return tree, None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3 or not all(part in map(str, DIVIDERS) for part in parts):
        choice = ", ".join(map(str, DIVIDERS))
        raise fail(f"option 'dividers': '{text}' is not AHB,APB1,APB2", hints=[f"each is one of {choice}"])
    first, apb1, apb2 = map(int, parts)
    fields = " ".join(tree.registers.dividers) if tree.registers else ""
    if tree.buses is None or "ppre1" not in fields:
        raise fail(f"option 'dividers': the buses of {tree.device} have none to choose", hints=["leave it out"])
    if "ppre2" not in fields and apb1 != apb2:
        raise fail(f"option 'dividers': {tree.device} has one divider for both APBs", hints=[f"{first},{apb1},{apb1}"])
    return replace(tree, buses=replace(tree.buses, ahb=first)), (apb1, apb2)


def violation(tree: ClockTree, base_hz: int, m: int, n: int, p: int) -> str | None:
    """Why this PLL setting is illegal, in one line; None if it is legal."""
    pll = tree.pll
    if not pll.m[0] <= m <= pll.m[1]:
        return f"M is {m}, outside of {pll.m[0]} to {pll.m[1]}"
    if not pll.n[0] <= n <= pll.n[1]:
        return f"N is {n}, outside of {pll.n[0]} to {pll.n[1]}"
    codes = pll.codes or {}
    for letter, value, possible in (("M", m, codes.get("m", {m})), ("N", n, codes.get("n", {n})), ("P", p, pll.p)):
        if value not in possible:
            return f"{letter} is {value}, not one of {', '.join(map(str, possible))}"
    reference, vco, out = base_hz / m, base_hz * n / m, base_hz * n / (m * p)
    ranges = [r for r in pll.vco if r.in_hz[0] <= reference <= r.in_hz[1]]
    if not ranges:
        spans = " or ".join(f"{mhz(r.in_hz[0])} to {mhz(r.in_hz[1])}" for r in pll.vco)
        return f"the reference would be {mhz(reference)}, outside of {spans}"
    if not any(r.out_hz[0] <= vco <= r.out_hz[1] for r in ranges):
        low, high = min(r.out_hz[0] for r in ranges), max(r.out_hz[1] for r in ranges)
        side = f"below {low / 1e6:g}" if vco < low else f"above {high / 1e6:g}"
        return f"VCO would be {mhz(vco)}, {side}"
    if out < pll.out_hz[0]:
        return f"the PLL's output would be {mhz(out)}, below {pll.out_hz[0] / 1e6:g}"
    if reason := _sysclk_violation(tree, out):
        return reason
    scale, _ = _supply(tree, out, base_hz)
    if scale.max_vco_hz and vco > scale.max_vco_hz:
        return f"VCO would be {mhz(vco)}, above {scale.max_vco_hz / 1e6:g} at scale {scale.name}"
    return None


def _sysclk_violation(tree: ClockTree, hz: float) -> str | None:
    limit = max(max(s.max_hz, s.max_hz_overdrive or 0) for s in tree.regulator.scales)
    if hz > limit:
        return f"SYSCLK would be {mhz(hz)}, above {limit / 1e6:g}"
    if tree.flash:
        scale, _ = _supply(tree, hz, hz)
        fastest = ahb(tree) * tree.flash.max_hz[scale.flash][-1]
        if hz > fastest:
            return f"SYSCLK would be {mhz(hz)}, above {fastest / 1e6:g}, the flash's limit at {scale.flash}"
    return None


def explain(tree: ClockTree, base_hz: int, m: int, n: int, p: int) -> str:
    """A line with the clocks of a setting, or the reason why it is illegal."""
    head = f"M={m} N={n} P={p} at {mhz(base_hz)}: "
    reason = violation(tree, base_hz, m, n, p)
    if reason:
        return head + "illegal: " + reason
    c = _config(tree, base_hz, _setting(tree, base_hz, m, n, p))
    parts = [
        f"SYSCLK {mhz(base_hz * n / (m * p))}",
        f"VCO {mhz(base_hz * n / m)}",
        f"reference {mhz(base_hz / m)}",
        f"scale {c.scale.name}" + (" with over-drive" if c.overdrive else ""),
        "wait states unknown" if c.wait_states is None else f"{c.wait_states} wait states",
    ]
    return head + "legal: " + ", ".join(parts)


def settings(tree: ClockTree, base_hz: int) -> Iterator[PllSetting]:
    """All legal PLL settings."""
    for m in range(tree.pll.m[0], tree.pll.m[1] + 1):
        if not any(r.in_hz[0] <= base_hz / m <= r.in_hz[1] for r in tree.pll.vco):
            continue
        for n in range(tree.pll.n[0], tree.pll.n[1] + 1):
            for p in tree.pll.p:
                if violation(tree, base_hz, m, n, p) is None:
                    yield _setting(tree, base_hz, m, n, p)


def preferred(tree: ClockTree, base_hz: int, candidates: Iterable[PllSetting]) -> dict[int, PllSetting]:
    """The setting with the least power and lock time for each SYSCLK, ascending."""

    def rank(s: PllSetting) -> tuple[float, float, int]:
        return s.vco_hz, abs(base_hz / s.m - tree.pll.reference_hz), s.m

    best: dict[int, PllSetting] = {}
    for s in candidates:
        if s.sysclk_hz not in best or rank(s) < rank(best[s.sysclk_hz]):
            best[s.sysclk_hz] = s
    return dict(sorted(best.items()))


def behind(tree: ClockTree, source: str) -> ClockTree:
    """The tree with the limits of the PLL for this oscillator."""
    pll = tree.pll
    return replace(tree, pll=replace(pll, m=pll.hsi_m)) if source == "hsi" and pll.hsi_m else tree


def clock_plan(
    tree: ClockTree,
    hse_hz: int | None = None,
    offer_hz: tuple[int, ...] = (),
    source: str = "hse",
    usb: bool = False,
    pll: str = "",
    dividers: str = "",
) -> ClockPlan:
    """The configurations for this HSE (default: the tree's) at the requested SYSCLKs (default: the tree's).

    `source`: hse, hsi or msi, which feeds the PLL. `usb`: every PLL setting has an output Q of 48 MHz.
    `pll`: M,N,P or M,N,P,Q, the only setting for its SYSCLK; without `offer_hz`, the only one of all.
    `dividers`: AHB,APB1,APB2 in place of the smallest that the limits of the buses allow.
    Raises EdgebuildError for an impossible HSE, and for a requested SYSCLK or bus clock that is impossible.
    """
    base, bypass = base_of(tree, hse_hz, source)
    tree, apbs = divided(behind(tree, source), dividers)
    legal = settings(tree, base)
    if usb:
        if tree.pll.q is None:
            raise tree.unknown("the PLL's output Q is", "48 MHz for USB cannot be promised")
        legal = (s for s in legal if base * s.n == USB_HZ * s.q * s.m)
    best = preferred(tree, base, legal)
    if usb and not best:
        reason = f"no PLL setting has 48 MHz for USB from the {source.upper()} at {mhz(base)}"
        raise fail(f"option 'usb': {reason}", hints=["another crystal or source, or no usb"])
    if tree.pll.bypass and best and not usb:  # the PLL still runs, at its slowest setting
        best[base] = replace(next(iter(best.values())), sysclk_hz=base, bypass=True)
    if pll:
        fixed = _fixed(tree, base, parse_setting(pll, "pll"))
        if usb and base * fixed.n != USB_HZ * fixed.q * fixed.m:
            raise fail(f"option 'pll': Q is {fixed.q}, which gives no 48 MHz for USB", hints=["M,N,P,Q, or no usb"])
        best[fixed.sysclk_hz], offer_hz = fixed, (*offer_hz, fixed.sysclk_hz)
    rest = ClockPlan(tree, source.upper(), base, bypass, (), None, None).rest[1]
    chosen: dict[int, Config] = {rest: _config(tree, rest, None)}
    for wanted in offer_hz or tree.offer_hz:
        least = 0 if usb and not offer_hz else NEAR * wanted
        near = max((f for f in best if least <= f <= wanted), default=0)
        if offer_hz and not near and wanted != rest:
            text = " with 48 MHz for USB" * usb + f" from the {source.upper()} at {mhz(base)}"
            raise _unreachable(tree, wanted, text, list(best))
        if near and near not in chosen:
            chosen[near] = _config(tree, base, best[near])
    configs = (chosen.pop(rest), *sorted(chosen.values(), key=lambda c: c.sysclk_hz))
    apb1, apb2 = _bus_dividers(tree, configs)
    if apbs:
        for name, divider, needed in zip(("APB1", "APB2"), apbs, (apb1, apb2), strict=True):
            if divider < (needed or 1):
                over = mhz(configs[-1].sysclk_hz / ahb(tree) / divider)
                reason = f"{name} would be {over} at {mhz(configs[-1].sysclk_hz)}, above its limit"
                raise fail(f"option 'dividers': {reason}", hints=[f"{needed} or larger is right"])
        apb1, apb2 = apbs
    return ClockPlan(tree, source.upper(), base, bypass, configs, apb1, apb2)


def _fixed(tree: ClockTree, base: int, numbers: tuple[int, ...]) -> PllSetting:
    """The PLL setting of the option `pll`. Raises EdgebuildError if it is illegal."""
    m, n, p, *q = numbers
    reason = violation(tree, base, m, n, p)
    if not reason and q and q[0] not in (tree.pll.q or ()):
        reason = f"Q is {q[0]}, not one of {', '.join(map(str, tree.pll.q or ['unknown']))}"
    if reason:
        raise fail(f"option 'pll': {reason}", hints=[f"{tree.device} from {mhz(base)}"])
    setting = _setting(tree, base, m, n, p)
    return replace(setting, q=q[0]) if q else setting


def base_of(tree: ClockTree, hse_hz: int | None, source: str) -> tuple[int, bool]:
    """(the PLL's input clock in Hz, whether it is an external signal). Raises EdgebuildError if it is impossible."""
    if source == "hse":
        hz = tree.hse.default_hz if hse_hz is None else hse_hz
        return hz, check_hse(tree, hz)
    if hse_hz is not None:
        raise fail(f"option 'hse': the PLL runs from the {source.upper()}", hints=["leave out hse, or source"])
    inner = tree.hsi_hz if source == "hsi" else tree.msi_hz
    if inner is None:
        raise tree.unknown(f"the frequency of the {source.upper()} is", "the PLL cannot run from it")
    return inner, False


def _unreachable(tree: ClockTree, wanted: int, how: str, possible: list[int]) -> Exception:
    reason = _sysclk_violation(tree, wanted)
    near = sorted(possible, key=lambda f: abs(f - wanted))[:2]
    text = f"{tree.device}: no PLL setting gives {mhz(wanted)}{how}"
    nearest = "nearest: " + ", ".join(map(mhz, sorted(near))) if near else "no PLL setting does that at any clock"
    return fail(text + (f": {reason}" if reason else ""), hints=[nearest])


def _setting(tree: ClockTree, base: int, m: int, n: int, p: int) -> PllSetting:
    dividers = tree.pll.q or (0,)
    q = next((q for q in dividers if base * n <= USB_HZ * q * m), dividers[-1])
    return PllSetting(m, n, p, q, base * n // m, base * n // (m * p))


def ahb(tree: ClockTree) -> int:
    """The divider of the AHB: HCLK is SYSCLK / this."""
    return tree.buses.ahb if tree.buses else 1


def _supply(tree: ClockTree, sysclk_hz: float, base_hz: float) -> tuple[Scale, bool]:
    """(lowest voltage scale for this clock, whether it needs over-drive).

    It must also suffice for the oscillators, unless the scale only holds while the PLL is on (`with_pll`).
    """
    scales = tree.regulator.scales
    hz = sysclk_hz if tree.regulator.with_pll else max(sysclk_hz, base_hz, min(tree.hsi_hz or 0, scales[-1].max_hz))
    flash, divider = tree.flash, ahb(tree)
    feeding = [s for s in scales if hz <= s.max_hz]
    fast = [s for s in feeding if flash is None or hz <= divider * flash.max_hz[s.flash][-1]]
    if plain := next(iter(fast or feeding), None):
        return plain, False
    return next(s for s in scales if s.max_hz_overdrive and hz <= s.max_hz_overdrive), True


def _config(tree: ClockTree, base: int, pll: PllSetting | None) -> Config:
    """The configuration with a PLL setting, or with the PLL off (None)."""
    sysclk = pll.sysclk_hz if pll else base
    scale, overdrive = _supply(tree, sysclk, base)
    fastest = max(sysclk, base, tree.hsi_hz or 0)  # any may be SYSCLK with these wait states: after Stop, the HSI
    return Config(sysclk, pll, scale, overdrive, wait_states(tree, scale, fastest / ahb(tree)))


def wait_states(tree: ClockTree, scale: Scale, hclk_hz: float) -> int | None:
    """The fewest wait states for this HCLK; None if the tree does not state them."""
    if tree.flash is None:
        return None
    table = tree.flash.max_hz[scale.flash]
    return next((n for n, limit in enumerate(table) if hclk_hz <= limit), len(table) - 1)


def vco_range(tree: ClockTree, base_hz: int, s: PllSetting) -> VcoRange:
    """The range of the oscillator that a legal setting uses."""
    return next(
        r for r in tree.pll.vco if r.in_hz[0] <= base_hz / s.m <= r.in_hz[1] and r.out_hz[0] <= s.vco_hz <= r.out_hz[1]
    )


def bus_clocks(plan: ClockPlan, c: Config) -> list[float | None]:
    """APB1 and APB2, Hz; None: unknown."""
    buses, hz = plan.tree.buses, c.sysclk_hz / ahb(plan.tree)
    if buses and buses.capped:
        return [min(hz, buses.apb1_hz), min(hz, buses.apb2_hz)]
    return [hz / d if d else None for d in (plan.apb1, plan.apb2)]


def _bus_dividers(tree: ClockTree, configs: tuple[Config, ...]) -> tuple[int | None, int | None]:
    buses = tree.buses
    if buses is None or buses.capped:
        return (1, 1) if buses else (None, None)

    def smallest(plain: int, overdrive: int) -> int:
        limits = [(c.sysclk_hz / buses.ahb, (overdrive or plain) if c.overdrive else plain) for c in configs]
        limits.append(((tree.hsi_hz or 0) / buses.ahb, plain))
        return next(d for d in DIVIDERS if all(hz <= limit * d for hz, limit in limits))

    return smallest(buses.apb1_hz, buses.overdrive_apb1_hz), smallest(buses.apb2_hz, buses.overdrive_apb2_hz)


# Cycles of the emitted code without its waits, at the clock of the HSE: of a whole switch, and of one quick mux.
# Instructions were counted in a simulator (tests/clocks/test_clock_sequences.py); two cycles for each are assumed.
SWITCH_CYCLES = 620
MUX_CYCLES = 104


@dataclass(frozen=True)
class PowerModel:
    """Costs of one plan with the code in one placement (`flash`, `itcm`, ... as named in the tree)."""

    plan: ClockPlan
    placement: str

    def __post_init__(self) -> None:
        power = require_power(self.plan.tree)
        if self.placement not in power.run_ma:
            near = did_you_mean(self.placement, power.run_ma)
            raise fail(
                f"{self.plan.tree.device}: no currents for code in '{self.placement}'{near}",
                hints=["known: " + ", ".join(power.run_ma)],
            )

    @property
    def _power(self) -> Power:
        return require_power(self.plan.tree)

    def run_mw(self, config: Config) -> float:
        """Supply power in mW while code runs in this configuration."""
        table = _rows(self._power.run_ma[self.placement], config.scale)
        return self._power.vdd_v * _current(self.plan.tree, table, config.sysclk_hz, config.scale)

    def sleep_mw(self, config: Config) -> float:
        """Supply power in mW in Sleep mode, with the clocks of this configuration running."""
        table = self._power.sleep_ma
        if table is None:
            raise self.plan.tree.unknown("currents in Sleep mode are", "there is no energy model of it")
        return self._power.vdd_v * _current(self.plan.tree, table, config.sysclk_hz, config.scale)

    def lfo_mw(self, config: Config) -> float:
        """Power in mW while SYSCLK is the HSE by the quick mux, and PLL, scale and over-drive of `config` stay on.

        No datasheet has this state. If it was not measured, it is assumed to be the current at the HSE's frequency and
        the lowest scale, scaled with the core voltage, plus the PLL's own current.
        """
        if self._power.lfo_ma:
            return self._power.vdd_v * _between(self._power.lfo_ma, config.sysclk_hz)
        low = self.plan.configs[0]
        ratio = (config.scale.core_v or 1.0) / (low.scale.core_v or 1.0) if config.scale.core_v else 1.0
        return self.run_mw(low) * ratio + self._power.vdd_v * self._pll_ma(config)

    def _pll_ma(self, config: Config) -> float:
        if config.pll is None:
            return 0.0
        spread = vco_range(self.plan.tree, self.plan.base_hz, config.pll).current_ma
        if spread is None:
            return 1.0  # no figure for this chip; other chips: 0.45 to 1.6 mA
        return _between({f: (a + b) / 2 for f, (a, b) in spread.items()}, config.pll.vco_hz)

    def lock_us(self, config: Config) -> float:
        """The longest lock time of the PLL at this setting in microseconds; 0 with the PLL off."""
        if config.pll is None:
            return 0.0
        lock = vco_range(self.plan.tree, self.plan.base_hz, config.pll).lock_us
        if lock is None:
            raise self.plan.tree.unknown("the lock time of the PLL is", "the cost of a switch is not known")
        return _between({f: most for f, (_, most) in lock.items()}, config.pll.vco_hz)

    def switch(self, start: Config, end: Config) -> SwitchCost:
        """Cost of `eb_clock_switch`, with the longest times of the datasheet, so that deadlines hold."""
        if start == end:
            return FREE
        time = SWITCH_CYCLES / self.plan.base_hz * 1e6 + self.lock_us(end)
        if over := self.plan.tree.overdrive:
            time += over.disable_us[1] * start.overdrive + over.enable_us[1] * end.overdrive
        return self._at_hse(time)

    def mux(self) -> SwitchCost:
        """Cost of one quick change between PLL and HSE, with the PLL left running."""
        return self._at_hse(MUX_CYCLES / self.plan.base_hz * 1e6)

    def wake(self, end: Config, wake_us: float) -> SwitchCost:
        """Cost of the way from Stop back to `end`: the chip's wake-up, the HSE's start, and the switch."""
        crystal = self.plan.oscillator == "HSE" and not self.plan.bypass
        start = float(self.plan.tree.hse.crystal_start_us) if crystal else 0.0
        relock = self.switch(self.plan.configs[0], end)
        first = self._at_hse(wake_us + start)
        return SwitchCost(first.time_us + relock.time_us, first.energy_uj + relock.energy_uj)

    def switches(self) -> Switches:
        """Costs of switches between all pairs of different configurations, by name."""
        all_ = self.plan.configs
        return {(a.name, b.name): self.switch(a, b) for a in all_ for b in all_ if a != b}

    def idle_modes(self, start: Config) -> tuple[IdleMode, ...]:
        """Idle modes of a plan that begins in `start`, until its next deadline.

        busy: poll, clocks as they are; gated: Sleep, clocks as they are; sleep: Sleep on the HSE with the PLL off;
        and the chip's Stop modes. Entering `sleep` costs that from the worst configuration.
        """
        low = self.plan.configs[0]
        modes = [IdleMode("busy", self.run_mw(start), 0.0, 0.0, returns=True)]
        if self._power.sleep_ma is not None:
            modes.append(IdleMode("gated", self.sleep_mw(start), 0.0, 0.0, returns=True))
            enter = max((self.switch(c, low) for c in self.plan.configs), key=lambda s: s.time_us)
            leave = self.switch(low, start)
            energy, time = enter.energy_uj + leave.energy_uj, enter.time_us + leave.time_us
            modes.append(IdleMode("sleep", self.sleep_mw(low), energy, time))
        for name, stop in (self._power.stop or {}).items():
            wake = self.wake(start, stop.wake_us)
            modes.append(IdleMode(f"stop_{name}", stop.ma * self._power.vdd_v, wake.energy_uj, wake.time_us))
        return tuple(modes)

    def _at_hse(self, time_us: float) -> SwitchCost:
        return SwitchCost(time_us, time_us * self.run_mw(self.plan.configs[0]) / 1000)


def require_power(tree: ClockTree) -> Power:
    """The tree's currents. Raises EdgebuildError if there are none: energy cannot be modelled for this chip."""
    if tree.power is None:
        raise tree.unknown("currents are", "energy cannot be modelled; choose another objective")
    return tree.power


def _rows(by_scale: Mapping[str, Mapping[int, float]], scale: Scale) -> Mapping[int, float]:
    return by_scale["any"] if "any" in by_scale else by_scale[scale.name]


def _current(tree: ClockTree, table: Mapping[int, float], hz: int, scale: Scale) -> float:
    """mA at this clock and scale, from a table by frequency whose rows were taken at the lowest possible scale."""
    scales = tree.regulator.scales
    place = scales.index(scale)
    floor = scales[place - 1].max_hz if place else 0
    top = scale.max_hz if scale is not scales[-1] else max(scale.max_hz, scale.max_hz_overdrive or 0)
    own = {f: ma for f, ma in table.items() if floor < f <= top} or dict(table)
    if len(own) > 1:
        least = min(own)  # below it, at least proportional to the clock: rounded mA make slopes too steep
        return max(_between(own, hz), own[least] * min(hz / least, 1.0))
    (f, ma), *_ = own.items()
    if place == 0 or len(table) == 1:
        return ma * hz / f
    below = scales[place - 1]
    low = sorted((g, a) for g, a in table.items() if g <= below.max_hz)[-2:]
    if len(low) < 2:
        return ma * hz / f
    ratio = scale.core_v / below.core_v if scale.core_v and below.core_v else 1.0
    slope = (low[1][1] - low[0][1]) / (low[1][0] - low[0][0]) * ratio
    return ma + slope * (hz - f)


def _between(table: Mapping[int, float], hz: float) -> float:
    """Linear interpolation; outside of the points, linear extrapolation of the outer pieces."""
    points = sorted(table.items())
    if len(points) == 1:
        return points[0][1]
    upper = next((i for i, (f, _) in enumerate(points) if hz <= f), len(points) - 1)
    (f0, a0), (f1, a1) = points[max(upper, 1) - 1], points[max(upper, 1)]
    return a0 + (a1 - a0) * (hz - f0) / (f1 - f0)


# The table of configurations that `edgebuild clock` prints.

HEADINGS = ("config", "SYSCLK", "from", "M", "N", "P", "Q", "VCO", "scale", "OD", "WS", "APB1", "APB2", "lock us", "mA",
            "nJ/cycle")  # fmt: skip


def table(plan: ClockPlan, placement: str | None = None) -> str:
    """The table as text: frequencies in MHz; modelled currents, by default with the code in the first placement."""
    tree = plan.tree
    model = PowerModel(plan, placement or next(iter(tree.power.run_ma))) if tree.power else None
    rows = [HEADINGS, *(_row(plan, c, model) for c in plan.configs)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    legal = list(settings(tree, plan.base_hz))
    lines.insert(0, f"{tree.description}; {plan.feed}")
    lines.append(f"{len(legal)} PLL settings are legal and give {len(preferred(tree, plan.base_hz, legal))} SYSCLKs.")
    if tree.power and model:
        lines.append(f"Currents: modelled, {tree.power.of}, code in {model.placement}, {tree.power.vdd_v:g} V.")
    return "\n".join(lines) + "\n"


def figures(plan: ClockPlan, placement: str | None = None) -> list[dict[str, Any]]:
    """Figures of each configuration: Hz, dividers of the PLL if it runs, wait states, and the modelled power in mW."""
    power = plan.tree.power
    model = PowerModel(plan, placement or next(iter(power.run_ma))) if power else None
    return [
        {
            "name": c.name,
            "sysclk_hz": c.sysclk_hz,
            "pll": {"m": c.pll.m, "n": c.pll.n, "p": c.pll.p, "vco_hz": c.pll.vco_hz} if c.pll else None,
            "wait_states": c.wait_states,
            "power_mw": model.run_mw(c) if model else None,
        }
        for c in plan.configs
    ]


def _row(plan: ClockPlan, c: Config, model: PowerModel | None) -> tuple[str, ...]:
    s = c.pll
    dividers = [str(x) for x in (s.m, s.n, s.p, s.q or "-")] if s else ["-"] * 4
    buses = [f"{hz / 1e6:g}" if hz else "?" for hz in bus_clocks(plan, c)]
    cost = ["?", "?"]
    if model:
        mw = model.run_mw(c)
        cost = [f"{mw / (plan.tree.power.vdd_v if plan.tree.power else 1.0):.1f}", f"{mw / c.sysclk_hz * 1e6:.3f}"]
    lock = "-"
    if s:
        stated_us = vco_range(plan.tree, plan.base_hz, s).lock_us
        lock = f"{PowerModel.lock_us(model, c):.0f}" if model and stated_us else "?"
    source = plan.rest[0] if s is None else plan.oscillator if s.bypass else "PLL"
    vco = f"{s.vco_hz / 1e6:g}" if s else "-"
    waits = "?" if c.wait_states is None else str(c.wait_states)
    over = "yes" if c.overdrive else "-"
    return (c.name, f"{c.sysclk_hz / 1e6:g}", source, *dividers, vco, c.scale.name, over, waits, *buses, lock, *cost)
