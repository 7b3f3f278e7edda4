"""Legal clock configurations of a clock tree: which settings there are, and why a wanted one is not among them.

Of all PLL settings that give the same SYSCLK the one with the lowest VCO is taken, since current and lock time rise
with it. Of these it is the one whose reference comes nearest to the preferred one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from edgebuild.base.errors import fail
from edgebuild.clock.tree import ClockTree, Scale, VcoRange

# Costs of switching between clock configurations and of idling. Microseconds, microjoules, mW.


@dataclass(frozen=True)
class SwitchCost:
    time_us: float
    energy_uj: float


FREE = SwitchCost(0.0, 0.0)
Switches = Mapping[tuple[str, str], SwitchCost]


@dataclass(frozen=True)
class IdleMode:
    """How the time until the deadline is spent, and the next inference begun.

    `energy_uj` and `min_time_us` are those of entering, waking and restoring the start's configuration, so the mode is
    possible for an idle time s >= min_time_us and costs energy_uj + power_mw * (s - min_time_us) / 1000.
    `returns`: the mode leaves the clock alone, so it is the start's configuration that has to be switched to first.
    """

    name: str
    power_mw: float
    energy_uj: float
    min_time_us: float
    returns: bool = False

    def cost(self, idle_us: float) -> float:
        return self.energy_uj + self.power_mw * (idle_us - self.min_time_us) / 1000


NEAR = 0.98  # a SYSCLK that no setting gives exactly is served by the next one below it, down to this share
DIVIDERS = (1, 2, 4, 8, 16)
USB_HZ = 48_000_000


@dataclass(frozen=True)
class PllSetting:
    """The dividers and what they give, Hz."""

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
    )  # enough for SYSCLK and the oscillator, so that the quick mux needs no change; None: unknown

    @property
    def name(self) -> str:
        """`216MHZ`, or in kHz where that is no whole number; the C name is `EB_CLOCK_` and this."""
        mhz, rest = divmod(self.sysclk_hz, 1_000_000)
        return f"{self.sysclk_hz // 1000}KHZ" if rest else f"{mhz}MHZ"


@dataclass(frozen=True)
class ClockPlan:
    """All that a firmware may switch between. `configs[0]` is the oscillator `rest`, the others rise in SYSCLK.

    `oscillator`: HSE, HSI or MSI, which feeds the PLL at `base_hz`. `bypass`: the HSE is a ready clock that is fed in.
    The bus dividers are the same for all of them: the largest that any needs. So no bus is over its limit at any
    moment of a switch, and a peripheral's clock is a fixed fraction of SYSCLK.
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
        """Where the clock of the PLL comes from, in words."""
        kind = "" if self.oscillator != "HSE" else ", fed in" if self.bypass else ", crystal"
        return f"{self.oscillator} {mhz(self.base_hz)}{kind}"


def mhz(hz: float) -> str:
    return f"{hz / 1e6:.6g} MHz"


def parse_setting(text: str, option: str = "explain") -> tuple[int, ...]:
    """M, N and P from `25,216,2`, and Q if it is there."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in ((3,) if option == "explain" else (3, 4)) or not all(
        re.fullmatch(r"\d{1,6}", p) for p in parts
    ):
        raise fail(f"option '{option}': '{text}' is not M,N,P", hints=["three whole numbers, such as 25,216,2"])
    return tuple(map(int, parts))


def check_hse(tree: ClockTree, hz: int) -> bool:
    """Whether this HSE must be a ready clock (bypass). Raises EdgebuildError if it cannot be either."""
    low, high = tree.hse.crystal_hz
    bypass = tree.hse.bypass_hz
    if low <= hz <= high:
        return tree.hse.default_bypass
    if bypass and bypass[0] <= hz <= bypass[1]:
        return True
    fed = f"a clock fed in from {mhz(bypass[0])} to {mhz(bypass[1])}" if bypass else "a clock fed in: limits unknown"
    raise fail(
        f"{tree.device}: an HSE of {mhz(hz)} is not possible",
        hints=[f"a crystal from {mhz(low)} to {mhz(high)}", fed],
    )


def divided(tree: ClockTree, text: str) -> tuple[ClockTree, tuple[int, int] | None]:
    """The tree with the AHB's divider of AHB,APB1,APB2, and those of the two others; None where the text is empty.

    Raises EdgebuildError for dividers that no field of the chip has.
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
    """One line: what the setting gives, or why it is illegal."""
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
    """For every SYSCLK the setting with the least power and lock time, in rising order."""

    def rank(s: PllSetting) -> tuple[float, float, int]:
        return s.vco_hz, abs(base_hz / s.m - tree.pll.reference_hz), s.m

    best: dict[int, PllSetting] = {}
    for s in candidates:
        if s.sysclk_hz not in best or rank(s) < rank(best[s.sysclk_hz]):
            best[s.sysclk_hz] = s
    return dict(sorted(best.items()))


def behind(tree: ClockTree, source: str) -> ClockTree:
    """The tree with the PLL as it is behind this oscillator."""
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
    """The configurations for this HSE (default: the tree's) at the SYSCLKs asked for (default: the tree's).

    `source`: hse, hsi or msi, behind which the PLL runs. `usb`: every PLL setting has an output Q of 48 MHz.
    `pll`: M,N,P or M,N,P,Q, which is the only setting of its SYSCLK, and where none are asked for the only one at all.
    `dividers`: AHB,APB1,APB2 in place of the smallest that the limits of the buses allow.
    Raises EdgebuildError for an impossible HSE, and for an asked-for SYSCLK or bus clock that cannot be made.
    """
    base, bypass = base_of(tree, hse_hz, source)
    tree, apbs = divided(behind(tree, source), dividers)
    legal = settings(tree, base)
    if usb:
        if tree.pll.q is None:
            raise tree.unknown("the PLL's output Q is", "48 MHz for USB cannot be promised")
        legal = (s for s in legal if base * s.n == USB_HZ * s.q * s.m)
    best = preferred(tree, base, legal)
    if tree.pll.bypass and best and not usb:  # the PLL runs all the same, at its slowest
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
    """The setting of an option. Raises EdgebuildError where it is not legal."""
    m, n, p, *q = numbers
    reason = violation(tree, base, m, n, p)
    if not reason and q and q[0] not in (tree.pll.q or ()):
        reason = f"Q is {q[0]}, not one of {', '.join(map(str, tree.pll.q or ['unknown']))}"
    if reason:
        raise fail(f"option 'pll': {reason}", hints=[f"{tree.device} from {mhz(base)}"])
    setting = _setting(tree, base, m, n, p)
    return replace(setting, q=q[0]) if q else setting


def base_of(tree: ClockTree, hse_hz: int | None, source: str) -> tuple[int, bool]:
    """The clock in front of the PLL, Hz, and whether it is fed in. Raises EdgebuildError where it is not possible."""
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
    """HCLK is SYSCLK over this."""
    return tree.buses.ahb if tree.buses else 1


def _supply(tree: ClockTree, sysclk_hz: float, base_hz: float) -> tuple[Scale, bool]:
    """The lowest voltage that feeds this clock, without over-drive if that is possible.

    It must also feed the oscillators, unless it waits for the PLL.
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
    """The configuration of a setting."""
    sysclk = pll.sysclk_hz if pll else base
    scale, overdrive = _supply(tree, sysclk, base)
    fastest = max(sysclk, base, tree.hsi_hz or 0)  # that runs with these: after Stop mode it may be the HSI
    return Config(sysclk, pll, scale, overdrive, wait_states(tree, scale, fastest / ahb(tree)))


def wait_states(tree: ClockTree, scale: Scale, hclk_hz: float) -> int | None:
    """The fewest wait states for this HCLK; None where the tree does not know."""
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
