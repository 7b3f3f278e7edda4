"""Clocks of the RP2040 and RP2350 as a model that raises on whatever the datasheets forbid.

Addresses and bits are those of `headers.yaml`, limits those below, so that nothing is taken from the clock trees. Time
passes with every access, so that a program that does not wait is caught.
"""

from __future__ import annotations

from edgebuild.clock.configs import ClockPlan
from tests.clocks.register_model import ACCESS_CYCLES, HEADERS, HSE_START_US, MUX_US, Violation

NEVER = float("inf")
ROSC_MHZ = 6.5
DELAY_US = 6000.0  # of the crystal's counter; tests do not wait for it
LOCK_US, RESET_US = 60.0, 100.0
MAX_MHZ = {"rp2040": 133.0, "rp2350": 150.0}
ENABLED, RANGE = 0xFAB, 0xAA0  # of XOSC_CTRL
POWER = ("PD", "VCOPD", "POSTDIVPD")
READ_ONLY = {"RESETS_RESET_DONE", "CLK_REF_SELECTED", "CLK_SYS_SELECTED", "XOSC_STATUS"}


class Rp2Model:
    """SYSCLK is CLK_REF or the PLL; CLK_REF is the ring oscillator or the crystal."""

    def __init__(self, plan: ClockPlan) -> None:
        rows = HEADERS[plan.tree.device]["registers"]
        self.fields: dict[str, dict[str, list[int]]] = {name: fields for name, (_, fields) in rows.items()}
        self.names: dict[int, str] = {address: name for name, (address, _) in rows.items()}
        self.crystal_mhz, self.most = plan.base_hz / 1e6, MAX_MHZ[plan.tree.device]
        self.values = dict.fromkeys(rows, 0)
        self.now, self.accesses = 0.0, 0
        self.reset_at = self.xosc_at = self.lock_at = NEVER
        self.pll_never_locks = False
        for place, value in (("RESETS_RESET.PLL_SYS", 1), ("CLK_REF_DIV.INT", 1), ("CLK_SYS_DIV.INT", 1),
                             ("PLL_SYS_CS.REFDIV", 1), ("PLL_SYS_PRIM.POSTDIV", 0x77), ("XOSC_CTRL.ENABLE", 0xD1E),
                             *((f"PLL_SYS_PWR.{name}", 1) for name in POWER)):  # fmt: skip
            self._put(place, value)
        self.from_crystal = self.from_pll = False, False  # now, and from `crystal_at` and `pll_at` on
        self.crystal_at = self.pll_at = 0.0

    def read(self, address: int) -> int:
        name = self._name(address)
        self._pass_time()
        flags = {
            "RESETS_RESET_DONE": ("PLL_SYS", self.now >= self.reset_at),
            "XOSC_STATUS": ("STABLE", self.now >= self.xosc_at),
            "PLL_SYS_CS": ("LOCK", self.now >= self.lock_at),
            "CLK_REF_SELECTED": ("XOSC", self.from_crystal[0]),
        }
        if name == "CLK_SYS_SELECTED":
            return 2 if self.from_pll[0] else 1
        flag, on = flags.get(name, ("", False))
        return self.values[name] | (on << self.fields[name][flag][0] if flag else 0)

    def write(self, address: int, value: int) -> None:
        name = self._name(address)
        self._pass_time()
        if name in READ_ONLY:
            raise Violation(f"{name} has nothing to write")
        if name.startswith("PLL_SYS") and self.now < self.reset_at:
            raise Violation(f"{name} written while the PLL is in reset")
        flags = self._mask("PLL_SYS_CS.LOCK") if name == "PLL_SYS_CS" else 0
        allowed = sum(self._mask(f"{name}.{f}") for f in self.fields[name]) | flags
        old = self.values[name]
        if (old ^ value) & ~allowed:
            raise Violation(f"{name}: bits that do not belong to the change: {(old ^ value) & ~allowed:#x}")
        before = {f"{name}.{f}": self._get(f"{name}.{f}") for f in self.fields[name]}
        self.values[name] = value & ~flags
        self._changed({place for place, was in before.items() if self._get(place) != was})
        self._check()

    def stop_mode(self) -> None:
        """As after dormant: on the ring oscillator, the crystal and the PLL off."""
        self._put("CLK_SYS_CTRL.SRC", 0)
        self._put("CLK_REF_CTRL.SRC", 0)
        self._put("XOSC_CTRL.ENABLE", 0xD1E)
        for name in POWER:
            self._put(f"PLL_SYS_PWR.{name}", 1)
        self.from_crystal = self.from_pll = False, False
        self.xosc_at = self.lock_at = NEVER

    def settled(self) -> tuple[int, str, bool, int, bool]:
        on = not self._get("PLL_SYS_PWR.PD")
        return int(self._mhz(self.from_crystal[0], self.from_pll[0]) * 1e6 + 1e-3), "only", False, 0, on

    # ---- what it does

    def _changed(self, places: set[str]) -> None:
        used = any(self.from_pll)
        if places & {"PLL_SYS_CS.REFDIV", "PLL_SYS_FBDIV_INT.FBDIV"} and not self._get("PLL_SYS_PWR.VCOPD"):
            raise Violation("the PLL's dividers changed while its oscillator runs")
        if used and any(p.startswith("PLL_SYS") or p == "CLK_SYS_CTRL.AUXSRC" for p in places):
            raise Violation(f"{', '.join(sorted(places))} changed while SYSCLK comes from the PLL")
        if "RESETS_RESET.PLL_SYS" in places:
            self.reset_at = NEVER if self._get("RESETS_RESET.PLL_SYS") else self.now + RESET_US
        if places & {"XOSC_CTRL.FREQ_RANGE", "XOSC_STARTUP.DELAY"} and self._get("XOSC_CTRL.ENABLE") == ENABLED:
            raise Violation("the crystal's range or delay changed while it runs")
        if "XOSC_CTRL.ENABLE" in places:
            right = self._get("XOSC_CTRL.ENABLE") == ENABLED and self._get("XOSC_CTRL.FREQ_RANGE") == RANGE
            if right and self._get("XOSC_STARTUP.DELAY") * 256 / self.crystal_mhz < DELAY_US:
                raise Violation("the crystal is taken for stable too early")
            self.xosc_at = self.now + HSE_START_US if right else NEVER
        if "CLK_REF_CTRL.SRC" in places:
            crystal = self._get("CLK_REF_CTRL.SRC") == 2
            if crystal and self.now < self.xosc_at:
                raise Violation("CLK_REF from the crystal before it was stable")
            self.from_crystal, self.crystal_at = (self.from_crystal[0], crystal), self.now + MUX_US
        if places & {"PLL_SYS_PWR.PD", "PLL_SYS_PWR.VCOPD"}:
            self._power()
        if "CLK_SYS_CTRL.SRC" in places:
            pll = self._get("CLK_SYS_CTRL.SRC") == 1
            ready = self.now >= self.lock_at and not self._get("PLL_SYS_PWR.POSTDIVPD")
            if pll and (not ready or self._get("CLK_SYS_CTRL.AUXSRC")):
                raise Violation("SYSCLK from the PLL before that was ready")
            self.from_pll, self.pll_at = (self.from_pll[0], pll), self.now + MUX_US

    def _power(self) -> None:
        if self._get("PLL_SYS_PWR.PD") or self._get("PLL_SYS_PWR.VCOPD"):
            self.lock_at = NEVER
            return
        reference, times = (
            self.crystal_mhz / max(self._get("PLL_SYS_CS.REFDIV"), 1),
            self._get("PLL_SYS_FBDIV_INT.FBDIV"),
        )
        if not self.from_crystal[0]:
            raise Violation("the PLL started without the crystal")
        if reference < 5 or not 16 <= times <= 320 or not 750 <= reference * times <= 1600:
            raise Violation(f"a reference of {reference:g} MHz, times {times}")
        self.lock_at = NEVER if self.pll_never_locks else self.now + LOCK_US

    def _check(self) -> None:
        for crystal in set(self.from_crystal):
            for pll in set(self.from_pll):
                if (mhz := self._mhz(crystal, pll)) > self.most + 1e-6:
                    raise Violation(f"SYSCLK at {mhz:g} MHz, limit {self.most:g}")

    def _mhz(self, crystal: bool, pll: bool) -> float:
        reference = (self.crystal_mhz if crystal else ROSC_MHZ) / self._get("CLK_REF_DIV.INT")
        if pll:
            first, second = divmod(self._get("PLL_SYS_PRIM.POSTDIV"), 16)
            if not 1 <= second <= first <= 7:
                raise Violation(f"dividers {first} and {second} behind the PLL")
            vco = self.crystal_mhz / self._get("PLL_SYS_CS.REFDIV") * self._get("PLL_SYS_FBDIV_INT.FBDIV")
            reference = vco / first / second
        return reference / (self._get("CLK_SYS_DIV.INT") + self._get("CLK_SYS_DIV.FRAC") / 256)

    # ---- helpers

    def _name(self, address: int) -> str:
        if address not in self.names:
            raise Violation(f"no register at {address:#x}")
        return self.names[address]

    def _pass_time(self) -> None:
        self.accesses += 1
        self.now += ACCESS_CYCLES / self._mhz(self.from_crystal[0], self.from_pll[0])
        if self.now >= self.crystal_at:
            self.from_crystal = self.from_crystal[1], self.from_crystal[1]
        if self.now >= self.pll_at:
            self.from_pll = self.from_pll[1], self.from_pll[1]

    def _mask(self, place: str) -> int:
        register, _, name = place.partition(".")
        low, width = self.fields[register][name]
        return ((1 << width) - 1) << low

    def _get(self, place: str) -> int:
        register, _, name = place.partition(".")
        return (self.values[register] & self._mask(place)) >> self.fields[register][name][0]

    def _put(self, place: str, value: int) -> None:
        register, _, name = place.partition(".")
        self.values[register] = self.values[register] & ~self._mask(place) | value << self.fields[register][name][0]
