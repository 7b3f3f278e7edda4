"""Clocks of the ESP32-C3, the nRF5340 and the FE310 as models that raise on whatever their manuals forbid.

Addresses and bits are those of `headers.yaml`, limits those below. Time passes with every access.
"""

from __future__ import annotations

from typing import ClassVar

from edgebuild.clock.configs import ClockPlan
from tests.clocks.register_model import ACCESS_CYCLES, HEADERS, HSE_START_US, Violation

NEVER = float("inf")


class SmallModel:
    """Registers by name, and SYSCLK, MHz. `fixed`: what the program must not write."""

    reset: ClassVar[dict[str, int]] = {}
    fixed: tuple[str, ...] = ()
    source = "pll"

    def __init__(self, plan: ClockPlan) -> None:
        rows = HEADERS[plan.tree.device]["registers"]
        self.fields: dict[str, list[int]] = {
            f"{r}.{f}": at for r, (_, fields) in rows.items() for f, at in fields.items()
        }
        self.names: dict[int, str] = {address: name for name, (address, _) in rows.items()}
        self.values = dict.fromkeys(rows, 0)
        self.crystal = plan.base_hz / 1e6
        self.now, self.crystal_at, self.lock_at = 0.0, NEVER, NEVER
        self.pll_never_locks = False
        self.put(self.reset)

    def read(self, address: int) -> int:
        name = self._register(address)
        self.now += ACCESS_CYCLES / self.mhz()
        return self.values[name] | sum(on << self.fields[f][0] for f, on in self.flags().items() if f.startswith(name))

    def write(self, address: int, value: int) -> None:
        name = self._register(address)
        self.now += ACCESS_CYCLES / self.mhz()
        flags = sum(self._mask(f) for f in self.flags() if f.startswith(name))
        allowed = flags | sum(self._mask(f) for f in self.fields if f.startswith(name) and f not in self.fixed)
        if (self.values[name] ^ value) & ~allowed:
            raise Violation(
                f"{name}: bits that do not belong to the change: {(self.values[name] ^ value) & ~allowed:#x}"
            )
        before = {f: self.get(f) for f in self.fields}
        self.values[name] = value & ~flags
        self.changed({f for f, was in before.items() if self.get(f) != was})
        self.mhz()

    def settled(self) -> tuple[int, str, bool, int, bool]:
        on = self.source == "pll"
        return int(self.mhz() * 1e6 + 1e-3), "only", False, self.latency(), on

    def latency(self) -> int:
        return 0

    def flags(self) -> dict[str, bool]:
        return {}

    def changed(self, fields: set[str]) -> None: ...

    def mhz(self) -> float:
        raise NotImplementedError

    def dividers(self) -> tuple[int, int, int]:
        """M, N and P of the clock tree."""
        raise NotImplementedError

    def get(self, place: str) -> int:
        low, _ = self.fields[place]
        return (self.values[place.partition(".")[0]] & self._mask(place)) >> low

    def put(self, places: dict[str, int]) -> None:
        for place, value in places.items():
            register = place.partition(".")[0]
            self.values[register] = self.values[register] & ~self._mask(place) | value << self.fields[place][0]

    def _mask(self, place: str) -> int:
        low, width = self.fields[place]
        return ((1 << width) - 1) << low

    def _register(self, address: int) -> str:
        if address not in self.names:
            raise Violation(f"no register at {address:#x}")
        return self.names[address]


class Esp32C3(SmallModel):
    reset: ClassVar = {"SYSTEM_SYSCLK_CONF.PRE_DIV_CNT": 1}
    down = tuple(f"RTC_CNTL_OPTIONS0.{f}_FORCE_PD" for f in ("BB_I2C", "BBPLL_I2C", "BBPLL"))
    fixed = down
    period = "SYSTEM_CPU_PER_CONF.CPUPERIOD_SEL"

    def changed(self, fields: set[str]) -> None:
        if self.period in fields and self.get("SYSTEM_SYSCLK_CONF.SOC_CLK_SEL") == 1:
            raise Violation("the PLL's divider changed while SYSCLK comes from it")

    def mhz(self) -> float:
        source = self.get("SYSTEM_SYSCLK_CONF.SOC_CLK_SEL")
        self.source = {0: "hse", 1: "pll"}[source]
        if source == 1 and any(self.get(f) for f in self.down):
            raise Violation("SYSCLK from a PLL without power")
        if self.get(self.period) > 1:
            raise Violation("no such divider of the PLL")
        return 80.0 * (1 + self.get(self.period)) if source else 40 / (self.get("SYSTEM_SYSCLK_CONF.PRE_DIV_CNT") + 1)

    def dividers(self) -> tuple[int, int, int]:
        return 1, 12, 480 // round(self.mhz())

    def stop_mode(self) -> None:
        self.put({"SYSTEM_SYSCLK_CONF.SOC_CLK_SEL": 0})


class Nrf53(SmallModel):
    reset: ClassVar = {"CLOCK_HFCLKCTRL.HCLK": 1, "CLOCK_HFCLKSRC.SRC": 1}
    fixed = ("CLOCK_HFCLKSTAT.SRC", "CLOCK_HFCLKSTAT.STATE")

    def flags(self) -> dict[str, bool]:
        return dict.fromkeys(self.fixed, self.now >= self.crystal_at)

    def changed(self, fields: set[str]) -> None:
        if "CLOCK_TASKS_HFCLKSTART.TASKS_HFCLKSTART" in fields:
            self.put({"CLOCK_TASKS_HFCLKSTART.TASKS_HFCLKSTART": 0})
            if self.get("CLOCK_HFCLKSRC.SRC") != 1:
                raise Violation("HFCLK started without the crystal")
            self.crystal_at = min(self.crystal_at, self.now + HSE_START_US)
        if "CLOCK_HFCLKCTRL.HCLK" in fields and self.now < self.crystal_at:
            raise Violation("HCLK changed before the crystal runs")

    def mhz(self) -> float:
        divider = self.get("CLOCK_HFCLKCTRL.HCLK")
        self.source = {0: "pll", 1: "hse"}[divider]
        return 128.0 / (divider + 1)

    def stop_mode(self) -> None:
        self.put({"CLOCK_HFCLKCTRL.HCLK": 1})
        self.crystal_at = NEVER


class Fe310(SmallModel):
    """LOCK is wrong in the first half of the time that the PLL needs."""

    reset: ClassVar = {
        "PRCI_PLLCFG.BYPASS": 1, "PRCI_PLLCFG.REFSEL": 1, "PRCI_PLLCFG.PLLR": 1, "PRCI_PLLCFG.PLLF": 0x2F,
        "PRCI_PLLCFG.PLLQ": 1, "PRCI_HFROSCCFG.ENABLE": 1, "PRCI_HFROSCCFG.DIV": 4, "PRCI_PLLOUTDIV.DIVBY1": 1,
        "QSPI0_SCKDIV.DIV": 3,
    }  # fmt: skip
    fixed = ("PRCI_PLLCFG.LOCK", "PRCI_HFROSCCFG.READY", "PRCI_HFXOSCCFG.READY")
    lock_us = 100.0

    def flags(self) -> dict[str, bool]:
        since = self.now - self.lock_at + self.lock_us
        lock = self.now >= self.lock_at or 0 <= since < self.lock_us / 2
        return dict(zip(self.fixed, (lock, True, self.now >= self.crystal_at), strict=True))

    def changed(self, fields: set[str]) -> None:
        pll = {f"PRCI_PLLCFG.{f}" for f in ("PLLR", "PLLF", "PLLQ", "REFSEL", "BYPASS")}
        if fields & pll and self.get("PRCI_PLLCFG.SEL"):
            raise Violation(f"{', '.join(sorted(fields & pll))} changed while SYSCLK comes from the PLL")
        if "PRCI_HFXOSCCFG.ENABLE" in fields:
            self.crystal_at = self.now + HSE_START_US if self.get("PRCI_HFXOSCCFG.ENABLE") else NEVER
        if "PRCI_PLLCFG.BYPASS" in fields:
            self.lock_at = NEVER if self.get("PRCI_PLLCFG.BYPASS") or self.pll_never_locks else self.now + self.lock_us
        elif fields & pll and not self.get("PRCI_PLLCFG.BYPASS"):
            raise Violation("the PLL's setting changed while it runs")
        if not self.get("PRCI_HFROSCCFG.ENABLE"):
            raise Violation("the ring oscillator switched off while it is used")

    def mhz(self) -> float:
        hz = 72 / (self.get("PRCI_HFROSCCFG.DIV") + 1)
        self.source = "pll" if self.get("PRCI_PLLCFG.SEL") else "hsi"
        if self.source == "pll":
            hz = self._pll()
        if hz > 320 or hz / 2 / (self.get("QSPI0_SCKDIV.DIV") + 1) > 50:
            raise Violation(f"SYSCLK at {hz:g} MHz, the flash at SYSCLK over {2 * (self.get('QSPI0_SCKDIV.DIV') + 1)}")
        return hz

    def _pll(self) -> float:
        locked = self.get("PRCI_PLLCFG.BYPASS") or self.now >= self.lock_at
        if not locked or not self.get("PRCI_PLLCFG.REFSEL") or self.now < self.crystal_at:
            raise Violation("SYSCLK from the PLL before it is locked to the crystal")
        if self.get("PRCI_PLLCFG.BYPASS"):
            return self.crystal
        reference = self.crystal / (self.get("PRCI_PLLCFG.PLLR") + 1)
        vco = reference * 2 * (self.get("PRCI_PLLCFG.PLLF") + 1)
        out = vco / 2 ** self.get("PRCI_PLLCFG.PLLQ")
        if (
            not 6 <= reference <= 12
            or not 384 <= vco <= 768
            or not 48 <= out <= 384
            or not self.get("PRCI_PLLCFG.PLLQ")
        ):
            raise Violation(f"a reference of {reference:g} MHz, VCO {vco:g}, out {out:g}")
        if not self.get("PRCI_PLLOUTDIV.DIVBY1"):
            raise Violation("the clock behind the PLL is divided")
        return out

    def dividers(self) -> tuple[int, int, int]:
        half = 2 ** (self.get("PRCI_PLLCFG.PLLQ") - 1)
        return self.get("PRCI_PLLCFG.PLLR") + 1, self.get("PRCI_PLLCFG.PLLF") + 1, half

    def latency(self) -> int:
        return self.get("QSPI0_SCKDIV.DIV")

    def stop_mode(self) -> None:
        self.values = dict.fromkeys(self.values, 0)
        self.put(self.reset)
        self.crystal_at = self.lock_at = NEVER


SMALL = {"esp32c3": Esp32C3, "nrf5340": Nrf53, "fe310": Fe310}
