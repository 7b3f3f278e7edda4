"""RCC, PWR and FLASH of the STM32F4, F7, L4 and G4 as models that raise on whatever the manuals forbid.

It knows the facts of a clock tree and nothing of how configurations are chosen or switched. Time passes with every
register access, so that flags come up late, as they do in the chip: a program that does not wait is caught.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from edgebuild.clock.configs import ClockPlan
from edgebuild.clock.tree import Scale

HEADERS = yaml.safe_load((Path(__file__).parent / "headers.yaml").read_text())  # registers in the vendors' headers
ACCESS_CYCLES = 8  # of SYSCLK, from one register access to the next: a poll loop
MUX_US = 0.3  # until SWS follows SW, longer than one access at any clock
PLL_STOP_US = 5.0
HSE_START_US = 20.0
FLAGS = {"RCC_CR": ("HSIRDY", "HSERDY", "PLLRDY"), "RCC_CFGR": ("SWS",)}
HSI, HSE, PLL, MSI = 0, 1, 2, 3
MSI_HZ = 4e6  # of the STM32L4, after reset
STEP_US = 1.0  # that the AHB runs at half of a fast clock (RM0440, 7.2.7)


class Violation(Exception):
    """The program did what the chip does not allow."""


class RegisterModel:
    RESET: Mapping[str, int] = {"RCC_CR": 0x83, "RCC_PLLCFGR": 0x24003010, "PWR_CR": 0xC000}
    SELECTED = (HSI, HSE, PLL)  # by the value of SW

    def __init__(self, plan: ClockPlan, regulator_us: float) -> None:
        tree = plan.tree
        assert tree.registers and tree.flash and tree.buses
        self.tree, self.bypass = tree, plan.bypass
        self.hse_hz = plan.base_hz if plan.oscillator == "HSE" else 8_000_000  # that is not to be used
        self.registers, self.flash, self.buses = tree.registers, tree.flash, tree.buses
        self.names = {r.address: name for name, r in self.registers.map.items()}
        reset = {name: self.RESET.get(name, 0) for name in self.registers.map}
        fitting = {n: sum(((1 << w) - 1) << low for low, w in r.fields.values()) for n, r in self.registers.map.items()}
        self.values = {n: v & fitting[n] if n == "PWR_CR" else v for n, v in reset.items()}
        self.regulator_us = regulator_us  # may take longer than the PLL or not: no sheet says
        self.now = 0.0
        self.accesses = 0
        self.source, self.pending = HSI, (0.0, HSI)  # SYSCLK's source, and the one it changes to at a time
        self.hse_ready = self.pll_ready = self.regulator_ready = self.od_ready = self.od_switched = float("inf")
        self.pll_stopped = 0.0
        self.od_off = self.od_unswitched = 0.0
        self.latency_seen = True
        self.pll_never_locks = False  # a broken chip, for tests of bounded waits

    # ---- what the program sees

    def read(self, address: int) -> int:
        name = self._name(address)
        self._pass_time()
        if name == "FLASH_ACR":
            self.latency_seen = True
        return self.values[name] | self._flags(name)

    def write(self, address: int, value: int) -> None:
        name = self._name(address)
        self._pass_time()
        if name in ("PWR_CSR", "PWR_SR2"):
            raise Violation(f"{name} has nothing to write")
        old = self.values[name]
        fields = self.registers.map[name].fields
        writable = sum(((1 << w) - 1) << low for f, (low, w) in fields.items() if f not in FLAGS.get(name, ()))
        flags = sum(((1 << w) - 1) << low for f, (low, w) in fields.items() if f in FLAGS.get(name, ()))
        if (old ^ value) & ~(writable | flags):
            raise Violation(f"{name}: bits that do not belong to the change: {(old ^ value) & ~(writable | flags):#x}")
        self.values[name] = value & ~flags
        getattr(self, "_wrote_" + name.lower())(old, value)
        self._check()

    def stop_mode(self) -> None:
        """As after Stop: on HSI, all else off, over-drive gone, wait states and voltage setting kept."""
        self.source, self.pending = HSI, (self.now, HSI)
        for register, field in (("RCC_CR", "HSEON"), ("RCC_CR", "PLLON"), ("RCC_CFGR", "SW")):
            self._clear(register, field)
        self.values["RCC_CFGR"] |= self.SELECTED.index(HSI)
        if self.tree.overdrive:
            self._clear("PWR_CR", "ODEN")
            self._clear("PWR_CR", "ODSWEN")
        self.hse_ready = self.pll_ready = self.regulator_ready = self.od_ready = self.od_switched = float("inf")
        self.pll_stopped = self.od_off = self.od_unswitched = self.now

    # ---- what it does

    def _wrote_rcc_apb1enr(self, old: int, new: int) -> None:
        pass

    def _wrote_rcc_cr(self, old: int, new: int) -> None:
        rose, fell = self._edges("RCC_CR", old, new)
        if "HSEBYP" in rose | fell and (self._get("RCC_CR", "HSEON") or self._hse_on(old)):
            raise Violation("HSEBYP changed while the HSE is on")
        if "HSION" in fell and HSI in (self.source, self.pending[1]):
            raise Violation("HSI switched off while SYSCLK comes from it")
        if "HSEON" in fell:
            if HSE in (self.source, self.pending[1]) or self._get("RCC_CR", "PLLON"):
                raise Violation("HSE switched off while it is used")
            self.hse_ready = float("inf")
        if "HSEON" in rose:
            matches = bool(self._get("RCC_CR", "HSEBYP")) == self.bypass
            self.hse_ready = self.now + HSE_START_US if matches else float("inf")
        if "PLLON" in fell:
            if PLL in (self.source, self.pending[1]):
                raise Violation("PLL switched off while SYSCLK comes from it")
            if self.tree.overdrive and (self._get("PWR_CR", "ODEN") or self.now < self.od_off):
                raise Violation("PLL switched off with over-drive on")
            self.pll_ready = self.regulator_ready = float("inf")
            self.pll_stopped = self.now + PLL_STOP_US
        if "PLLON" in rose:
            self._start_pll()

    def _start_pll(self) -> None:
        if self.now < self.pll_stopped:
            raise Violation("PLL switched on before it had stopped")
        if self._pll_from() == HSE and self.now < self.hse_ready:
            raise Violation("PLL switched on before its source was ready")
        if self._pll_from() == HSI and not self._get("RCC_CR", "HSION"):
            raise Violation("PLL switched on with its source off")
        reference, vco, out = self._pll()
        r = self.tree.pll.vco[0]
        if not r.in_hz[0] <= reference <= r.in_hz[1]:
            raise Violation(f"the PLL's reference is {reference / 1e6} MHz")
        if not r.out_hz[0] <= vco <= r.out_hz[1]:
            raise Violation(f"the VCO is at {vco / 1e6} MHz")
        if not self.tree.pll.out_hz[0] <= out <= self.tree.pll.out_hz[1]:
            raise Violation(f"the PLL's output is {out / 1e6} MHz")
        if vco / self._pll_q() > 48e6 + 1:  # a hertz for floating point
            raise Violation("the 48 MHz output is over its limit")
        lock = max(most for _, most in r.lock_us.values()) if r.lock_us else 40.0  # where no sheet was at hand
        self.pll_ready = float("inf") if self.pll_never_locks else self.now + lock
        self.regulator_ready = self.now + self.regulator_us

    def _wrote_rcc_pllcfgr(self, old: int, new: int) -> None:
        if old != new and (self._get("RCC_CR", "PLLON") or self.now < self.pll_stopped):
            raise Violation("PLLCFGR written while the PLL is on")

    def _wrote_rcc_cfgr(self, old: int, new: int) -> None:
        wanted = self.SELECTED[self._get("RCC_CFGR", "SW")]
        if wanted == self.pending[1]:
            return
        if wanted == HSI and not self._get("RCC_CR", "HSION"):
            raise Violation("switched to the HSI while it is off")
        if wanted == HSE and self.now < self.hse_ready:
            raise Violation("switched to the HSE before it was ready")
        if wanted == PLL and self.now < self.pll_ready:
            raise Violation("switched to the PLL before it had locked")
        if wanted == PLL and self.now < self.regulator_ready:
            raise Violation("switched to the PLL before the voltage was ready")
        if not self.latency_seen:
            raise Violation("clock changed before the wait states were read back")
        self.pending = (self.now + MUX_US, wanted)

    def _wrote_pwr_cr(self, old: int, new: int) -> None:
        if not self._get("RCC_APB1ENR", "PWREN"):
            raise Violation("PWR_CR written while PWR has no clock")
        rose, fell = self._edges("PWR_CR", old, new)
        if "VOS" in rose | fell and (self._get("RCC_CR", "PLLON") or self.now < self.pll_stopped):
            raise Violation("voltage scale changed while the PLL is on")
        self._vos_scale()
        if (rose | fell) & {"ODEN", "ODSWEN"} and PLL in (self.source, self.pending[1]):
            raise Violation("over-drive changed while SYSCLK comes from the PLL")
        if "ODEN" in rose:
            if self._vos_scale().max_hz_overdrive is None or not self._get("RCC_CR", "PLLON"):
                raise Violation("over-drive at a scale that has none")
            self.od_ready = self.now + self._overdrive_us(True) / 2
        if "ODSWEN" in rose:
            if self.now < self.od_ready:
                raise Violation("ODSWEN set before ODRDY")
            self.now += self._overdrive_us(True) / 2  # the clock stands still
            self.od_switched = self.now + ACCESS_CYCLES * 2 / self._hz(self.source) * 1e6
        if "ODSWEN" in fell:
            self.od_switched = float("inf")
            self.od_unswitched = self.now + self._overdrive_us(False) / 2
        if "ODEN" in fell:
            if self._get("PWR_CR", "ODSWEN") or self.now < self.od_unswitched:
                raise Violation("ODEN cleared before ODSWRDY was gone")
            self.od_ready = float("inf")
            self.od_off = self.now + self._overdrive_us(False) / 2

    def _wrote_flash_acr(self, old: int, new: int) -> None:
        latency = ((1 << self.registers.field("FLASH_ACR", "LATENCY")[1]) - 1) << 0
        if (old ^ new) & latency:
            self.latency_seen = False

    # ---- what must hold at any moment

    def _check(self) -> None:
        for source in {self.source, self.pending[1]}:
            hz = self._hz(source)
            overdrive = self._overdriven()
            scale = self._scale()
            limit = (scale.max_hz_overdrive or scale.max_hz) if overdrive else scale.max_hz
            hclk = hz / self._divider("HPRE", 8, (2, 4, 8, 16, 64, 128, 256, 512))
            if hclk > limit + 1:  # a hertz for floating point
                over = "with" if overdrive else "without"
                raise Violation(f"{hclk / 1e6} MHz at scale {scale.name} {over} over-drive, limit {limit / 1e6}")
            table = self.flash.max_hz[scale.flash]
            latency = self._get("FLASH_ACR", "LATENCY")
            if latency >= max(map(len, self.flash.max_hz.values())):
                raise Violation(f"{latency} wait states are reserved")
            if hclk > table[min(latency, len(table) - 1)] + 1:
                raise Violation(f"flash at {hclk / 1e6} MHz with {latency} wait states")
            for field, plain, more in (
                ("PPRE1", self.buses.apb1_hz, self.buses.overdrive_apb1_hz),
                ("PPRE2", self.buses.apb2_hz, self.buses.overdrive_apb2_hz),
            ):
                bus = hclk / self._divider(field, 4, (2, 4, 8, 16))
                if bus > ((more or plain) if overdrive else plain) + 1:
                    raise Violation(f"the bus of {field} at {bus / 1e6} MHz")

    def settled(self) -> tuple[int, str, bool, int, bool]:
        """SYSCLK in Hz, scale by VOS, over-drive, wait states, PLL on: the state that the program left."""
        return (
            round(self._hz(self.source)),
            self._vos_scale().name,
            self._overdriven(),
            self._get("FLASH_ACR", "LATENCY"),
            bool(self._get("RCC_CR", "PLLON")),
        )

    # ---- helpers

    def _name(self, address: int) -> str:
        if address not in self.names:
            raise Violation(f"no register at {address:#x}")
        return self.names[address]

    def _pass_time(self) -> None:
        self.accesses += 1
        self.now += ACCESS_CYCLES / self._hz(self.source) * 1e6
        if self.now >= self.pending[0]:
            self.source = self.pending[1]

    def _flags(self, name: str) -> int:
        flags: dict[str, int] = {}
        if name == "RCC_CR":
            pll = self.now >= self.pll_ready if self._get("RCC_CR", "PLLON") else self.now < self.pll_stopped
            flags = {"HSIRDY": self._get("RCC_CR", "HSION"), "HSERDY": self.now >= self.hse_ready, "PLLRDY": pll}
        elif name == "RCC_CFGR":
            flags = {"SWS": self.SELECTED.index(self.source)}
        elif name == "PWR_CSR":
            flags = {"VOSRDY": self.now >= self.regulator_ready}
            if self.tree.overdrive:
                switched = self.now >= self.od_switched or self.now < self.od_unswitched
                flags |= {"ODRDY": self.now >= self.od_ready or self.now < self.od_off, "ODSWRDY": switched}
        return sum(int(v) << self.registers.field(name, f)[0] for f, v in flags.items())

    def _get(self, register: str, field: str) -> int:
        low, width = self.registers.field(register, field)
        return (self.values[register] >> low) & ((1 << width) - 1)

    def _clear(self, register: str, field: str) -> None:
        low, width = self.registers.field(register, field)
        self.values[register] &= ~(((1 << width) - 1) << low)

    def _hse_on(self, cr: int) -> bool:
        return bool(cr >> self.registers.field("RCC_CR", "HSEON")[0] & 1)

    def _edges(self, name: str, old: int, new: int) -> tuple[set[str], set[str]]:
        """Names of the fields whose value rose, and fell."""
        rose: set[str] = set()
        fell: set[str] = set()
        for field, (low, width) in self.registers.map[name].fields.items():
            a, b = (old >> low) & ((1 << width) - 1), (new >> low) & ((1 << width) - 1)
            if field not in FLAGS.get(name, ()) and a != b:
                (rose if b > a else fell).add(field)
        return rose, fell

    def _vos_scale(self) -> Scale:
        vos = self._get("PWR_CR", "VOS")
        scale = next((s for s in self.tree.regulator.scales if s.vos == vos), None)
        if scale is None:
            raise Violation(f"VOS {vos} is reserved")
        return scale

    def _overdriven(self) -> bool:
        return self.tree.overdrive is not None and self.now >= self.od_switched

    def _overdrive_us(self, on: bool) -> float:
        assert self.tree.overdrive
        return (self.tree.overdrive.enable_us if on else self.tree.overdrive.disable_us)[1]

    def _divider(self, field: str, flag: int, dividers: tuple[int, ...]) -> int:
        code = self._get("RCC_CFGR", field)
        return dividers[code - flag] if code & flag else 1

    def _scale(self) -> Scale:
        """The voltage that is there now: with the PLL off the lowest, whatever VOS says."""
        return self._vos_scale() if self._get("RCC_CR", "PLLON") else self.tree.regulator.scales[0]

    def _pll_from(self) -> int:
        return HSE if self._get("RCC_PLLCFGR", "PLLSRC") else HSI

    def _pll_q(self) -> float:
        q = self._get("RCC_PLLCFGR", "PLLQ")
        if q < 2:
            raise Violation("the PLL's Q is reserved")
        return q

    def _pll(self) -> tuple[float, float, float]:
        """Hz of the reference, the VCO and the output."""
        reference = self._hz(self._pll_from()) / max(self._get("RCC_PLLCFGR", "PLLM"), 1)
        vco = reference * self._get("RCC_PLLCFGR", "PLLN")
        return reference, vco, vco / (2 * self._get("RCC_PLLCFGR", "PLLP") + 2)

    def _hz(self, source: int) -> float:
        if source == PLL:
            return self._pll()[2]
        return {HSI: float(self.tree.hsi_hz or 0), HSE: float(self.hse_hz), MSI: MSI_HZ}[source]


class RangeModel(RegisterModel):
    """The STM32L4 and G4: voltage ranges that hold with the PLL off, too; on the G4 a boost, and a step over 80 MHz."""

    RESET = {"RCC_CR": 0x63, "RCC_PLLCFGR": 0x1000, "PWR_CR": 0x200, "PWR_CR5": 0x100}  # noqa: RUF012
    SELECTED = (MSI, HSI, HSE, PLL)

    def __init__(self, plan: ClockPlan, regulator_us: float) -> None:
        super().__init__(plan, regulator_us)
        self.boosts = "PWR_CR5" in self.registers.map
        self.source, self.pending = (HSI, (0.0, HSI)) if self.boosts else (MSI, (0.0, MSI))
        if self.boosts:
            self.values |= {"RCC_CR": 0x500, "RCC_CFGR": 1}
        self.raised, self.lower = 0.0, self._range()  # until then the range before holds
        self.stepped = 0.0

    def _wrote_pwr_cr(self, old: int, new: int) -> None:
        if not self._get("RCC_APB1ENR", "PWREN"):
            raise Violation("PWR_CR written while PWR has no clock")
        rose, fell = self._edges("PWR_CR", old, new)
        if "VOS" in rose | fell:
            if self.now < self.raised:
                raise Violation("voltage range changed before the last change was done")
            before = next(s for s in self.tree.regulator.scales if s.vos == (old >> 9) & 3)
            self.lower = min(before, self._range(), key=lambda s: s.max_hz)
            self.raised = self.now + self.regulator_us

    def _wrote_pwr_cr5(self, old: int, new: int) -> None:
        if not self._get("RCC_APB1ENR", "PWREN"):
            raise Violation("PWR_CR5 written while PWR has no clock")

    def _wrote_rcc_pllcfgr(self, old: int, new: int) -> None:
        super()._wrote_rcc_pllcfgr(old, new)
        if not self._get("RCC_PLLCFGR", "PLLREN"):
            raise Violation("the output R is off")

    def _wrote_rcc_cfgr(self, old: int, new: int) -> None:
        halved = self._get("RCC_CFGR", "HPRE") == 8
        before, changing = self.source, self.SELECTED[new & 3] != self.pending[1]
        if self.tree.regulator.step_hz and (old >> 4 & 15) == 8 and not halved and self.now < self.stepped:
            raise Violation("the AHB at its full clock before the step was over")
        super()._wrote_rcc_cfgr(old, new)
        if changing and self.tree.regulator.step_hz:
            if max(self._hz(before), self._hz(self.pending[1])) > self.tree.regulator.step_hz and not halved:
                raise Violation("a fast clock without a step at half of it")
            self.stepped = self.pending[0] + STEP_US

    def _start_pll(self) -> None:
        super()._start_pll()
        self.regulator_ready = self.now  # the range does not wait for the PLL
        most = self._scale().max_vco_hz
        if most and self._pll()[1] > most:
            raise Violation(f"the VCO is at {self._pll()[1] / 1e6} MHz at range 2")

    def _flags(self, name: str) -> int:
        if name == "PWR_SR2":
            return int(self.now < self.raised) << self.registers.field(name, "VOSF")[0]
        return super()._flags(name)

    def _range(self) -> Scale:
        boost = self.boosts and not self._get("PWR_CR5", "R1MODE")
        vos = self._get("PWR_CR", "VOS")
        fitting = [s for s in self.tree.regulator.scales if s.vos == vos]
        if not fitting:
            raise Violation(f"VOS {vos} is reserved")
        return next((s for s in fitting if s.boost == boost), fitting[0])

    def _vos_scale(self) -> Scale:
        return self._range()

    def _scale(self) -> Scale:
        return self.lower if self.now < self.raised else self._range()

    def _pll_from(self) -> int:
        source = self._get("RCC_PLLCFGR", "PLLSRC")
        if source not in (2, 3):
            raise Violation(f"the PLL's source is {source}")
        return HSI if source == 2 else HSE

    def _pll_q(self) -> float:
        return 2.0 * self._get("RCC_PLLCFGR", "PLLQ") + 2 if self._get("RCC_PLLCFGR", "PLLQEN") else float("inf")

    def _pll(self) -> tuple[float, float, float]:
        reference = self._hz(self._pll_from()) / (self._get("RCC_PLLCFGR", "PLLM") + 1)
        vco = reference * self._get("RCC_PLLCFGR", "PLLN")
        return reference, vco, vco / (2 * self._get("RCC_PLLCFGR", "PLLR") + 2)
