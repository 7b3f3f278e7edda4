"""Clock registers of more STM32 families as models that raise on whatever the manuals forbid.

Addresses and bits are those of `headers.yaml`, limits those below, so that nothing is taken from the clock trees. Time
passes with every access, so that a program that does not wait is caught.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edgebuild.clock.configs import ClockPlan
from tests.clocks.register_model import (
    ACCESS_CYCLES,
    HEADERS,
    HSE_START_US,
    MUX_US,
    PLL_STOP_US,
    STEP_US,
    RangeModel,
    RegisterModel,
    Violation,
)
from tests.clocks.rp2_model import MAX_MHZ, Rp2Model
from tests.clocks.small_models import SMALL, SmallModel

NEVER = float("inf")
Get = Callable[[str], int]
Dividers = tuple[float, float, float, float]  # oscillator to reference, reference to VCO, VCO to SYSCLK, VCO to 48 MHz


@dataclass(frozen=True)
class Chip:
    """Facts of a family. Fields are named `REGISTER.FIELD`. MHz.

    `sources` by the value of the mux; `pll_from` and `dividers` decode the PLL's fields. `scales`: by the value of the
    voltage field its name, highest SYSCLK, VCO and wait-state table; `boosted`: only with the boost on.
    """

    sources: Mapping[int, str]
    pll_from: Callable[[Get], str]
    dividers: Callable[[Get], Dividers]
    reference: tuple[float, float]
    vco: tuple[float, float]
    sysclk: tuple[float, float]
    scales: Mapping[int, tuple[str, float, float, tuple[float, ...]]]
    buses: tuple[tuple[str, float], ...]
    reset: Mapping[str, int]
    start: str = "hsi"
    frozen: tuple[str, ...] = ()  # fields that must not change while the PLL runs
    vos: str = ""
    vos_flag: tuple[str, int] = ("", 1)  # the flag of the voltage, and what it is when it is there
    pwr_clock: str = ""
    boost: str = ""
    boosted: Mapping[int, tuple[str, float, float, tuple[float, ...]]] = field(default_factory=dict)
    boost_flag: str = ""
    boost_over: float = NEVER  # SYSCLK over which the boost must be on
    hpre: str = "RCC_CFGR.HPRE"
    mux: str = "RCC_CFGR.SW"
    shown: str = "RCC_CFGR.SWS"
    pll: str = "PLL"
    hsi: float = 16.0
    latency: str = "FLASH_ACR.LATENCY"
    latency_needs: str = ""
    step_over: float = NEVER
    names: Mapping[str, str] = field(default_factory=dict)  # of the oscillators' fields in RCC_CR


def old(hse_only_prediv: bool, prediv: str, usb: str, mul: str = "PLLMUL", **more: object) -> Chip:
    """F0, F1 and F3: a multiplier in CFGR, a divider in front of it, HSI / 2 on many."""

    def source(get: Get) -> str:
        code = get("RCC_CFGR.PLLSRC")
        return {0: "hsi", 1: "hse" if hse_only_prediv else "hsi", 2: "hse"}[code]

    def dividers(get: Get) -> Dividers:
        before = get(prediv) + 1
        halved = hse_only_prediv and source(get) == "hsi"
        code = get(f"RCC_CFGR.{mul}")
        times = 6.5 if mul == "PLLMULL" and code == 13 and "OTGFSPRE" in usb else min(code + 2, 16)
        return 2 if halved else before, times, 1, {"": NEVER, "1": 1}.get(usb) or (1 if get(usb) else 1.5)

    facts: dict[str, object] = {
        "sources": {0: "hsi", 1: "hse", 2: "pll"}, "pll_from": source, "dividers": dividers, "hsi": 8.0,
        "reset": {"RCC_CR": 0x83}, "frozen": (f"RCC_CFGR.{mul}", "RCC_CFGR.PLLSRC", prediv),
    }  # fmt: skip
    return Chip(**(facts | more))  # type: ignore[arg-type]


def risc_v(codes: tuple[float, ...], usb: tuple[float, ...], top: float, apb1: float) -> Chip:
    """GD32VF103, CH32V203 and CH32V307: multipliers and dividers for USB by their codes; clocks as those of the F1."""

    def dividers(get: Get) -> Dividers:
        hse, wide = get("RCC_CFGR.PLLSRC"), len(codes) > 16
        parts = "RCC_CFGR2" in HEADERS[name]["registers"]
        divider = get("RCC_CFGR2.PREDIV1") + 1 if parts else get("RCC_CFGR.PLLXTPRE") + 1
        if parts and get("RCC_CFGR.PLLXTPRE") != get("RCC_CFGR2.PREDIV1") % 2:
            raise Violation("PLLXTPRE is not bit 0 of PREDIV1")
        times = codes[get("RCC_CFGR.PLLMUL") + (16 * get("RCC_CFGR.PLLMUL_4") if wide else 0)]
        halved = 2 - get(whole) if whole in frozen else 2
        return divider if hse else halved, times, 1, usb[get("RCC_CFGR.USBPRE")] if usb else NEVER

    name = {108: "gd32vf103"}.get(int(top), "ch32v203" if usb else "ch32v307")
    whole = "EXTEN_CTR.HSI_PRE"  # of WCH, whose start-up code sets it
    frozen = ("RCC_CFGR.PLLMUL", "RCC_CFGR.PLLSRC", "RCC_CFGR.PLLXTPRE", *(() if name[0] == "g" else (whole,)))
    reset = {"RCC_CR": 0x83, "EXTEN_CTR": 0x10}
    return Chip({0: "hsi", 1: "hse", 2: "pll"}, lambda get: "hse" if get("RCC_CFGR.PLLSRC") else "hsi", dividers,
                (3, 25), (18, top), (18, top), {0: ("only", top, 1e3, (top,))},
                (("RCC_CFGR.PPRE1", apb1), ("RCC_CFGR.PPRE2", top)), reset,
                hsi=8.0, latency="", frozen=frozen)  # fmt: skip


def newer(r: str, half: bool, q: str = "RCC_PLLCFGR.PLLQ", **more: object) -> Chip:
    """G0, L5 and WB: PLLCFGR with M, N and R; voltage ranges."""
    step = 2 if half else 1

    def dividers(get: Get) -> Dividers:
        if not get("RCC_PLLCFGR.PLLREN"):
            raise Violation("the output R is off")
        on = get("RCC_PLLCFGR.PLLQEN")
        return (
            get("RCC_PLLCFGR.PLLM") + 1,
            get("RCC_PLLCFGR.PLLN"),
            step * (get(r) + 1),
            step * (get(q) + 1) if on else NEVER,
        )

    facts: dict[str, object] = {
        "pll_from": lambda get: {1: "msi", 2: "hsi", 3: "hse"}[get("RCC_PLLCFGR.PLLSRC")], "dividers": dividers,
        "frozen": tuple(f"RCC_PLLCFGR.{f}" for f in ("PLLSRC", "PLLM", "PLLN", "PLLR", "PLLQ")),
        "vos": "PWR_CR.VOS", "vos_flag": ("PWR_SR2.VOSF", 0), "pwr_clock": "RCC_APB1ENR.PWREN",
    }  # fmt: skip
    return Chip(**(facts | more))  # type: ignore[arg-type]


def low_power(**more: object) -> Chip:
    """L0 and L1: ranges 3 to 1, a table of multipliers."""
    multipliers = (3, 4, 6, 8, 12, 16, 24, 32, 48)

    def dividers(get: Get) -> Dividers:
        if get("RCC_CFGR.PLLDIV") == 0:
            raise Violation("PLLDIV is 0")
        return 1, multipliers[get("RCC_CFGR.PLLMUL")], get("RCC_CFGR.PLLDIV") + 1, 2

    facts: dict[str, object] = {
        "sources": {0: "msi", 1: "hsi", 2: "hse", 3: "pll"}, "start": "msi", "dividers": dividers,
        "pll_from": lambda get: "hse" if get("RCC_CFGR.PLLSRC") else "hsi",
        "reference": (2, 24), "vco": (6, 96), "sysclk": (2, 32),
        "frozen": ("RCC_CFGR.PLLMUL", "RCC_CFGR.PLLDIV", "RCC_CFGR.PLLSRC"), "vos": "PWR_CR.VOS",
        "vos_flag": ("PWR_CSR.VOSF", 0), "pwr_clock": "RCC_APB1ENR.PWREN",
        "scales": {3: ("range3", 4.2, 24, (2.1, 4.2)), 2: ("range2", 16, 48, (8, 16)), 1: ("range1", 32, 96, (16, 32))},
        "buses": (("RCC_CFGR.PPRE1", 32), ("RCC_CFGR.PPRE2", 32)), "reset": {"RCC_CR": 0x300, "PWR_CR": 0x1000},
    }  # fmt: skip
    return Chip(**(facts | more))  # type: ignore[arg-type]


def h7(
    scales: Mapping[int, tuple[str, float, float, tuple[float, ...]]], vco: float, top: float, **more: object
) -> Chip:
    """PLL1 with a range of references and one of VCOs that must be set as they are; HCLK is half of SYSCLK at most."""

    def dividers(get: Get) -> Dividers:
        if not get("RCC_PLLCFGR.DIVP1EN"):
            raise Violation("the output P is off")
        p = get("RCC_PLL1DIVR.P1") + 1
        return get("RCC_PLLCKSELR.DIVM1"), get("RCC_PLL1DIVR.N1") + 1, p, get("RCC_PLL1DIVR.Q1") + 1

    buses = (("RCC_D1CFGR.D1PPRE", top / 4), ("RCC_D2CFGR.D2PPRE1", top / 4), ("RCC_D2CFGR.D2PPRE2", top / 4),
             ("RCC_D3CFGR.D3PPRE", top / 4))  # fmt: skip
    facts: dict[str, object] = {
        "sources": {0: "hsi", 2: "hse", 3: "pll"}, "dividers": dividers, "hsi": 64.0, "pll": "PLL1",
        "pll_from": lambda get: {0: "hsi", 2: "hse"}[get("RCC_PLLCKSELR.PLLSRC")], "reference": (1, 16),
        "vco": (150, vco), "sysclk": (1.5, top), "scales": scales, "buses": buses, "hpre": "RCC_D1CFGR.HPRE",
        "reset": {"RCC_CR": 0x5, "FLASH_ACR": 0x37, "PWR_D3CR": 0x4000, "PWR_CR3": 0x6, "RCC_PLLCFGR": 0x01FF0000,
                  "RCC_PLLCKSELR": 0x02020200, "RCC_PLL1DIVR": 0x01010280},
        "frozen": ("RCC_PLLCKSELR.PLLSRC", "RCC_PLLCKSELR.DIVM1", "RCC_PLL1DIVR.N1", "RCC_PLLCFGR.PLL1RGE",
                   "RCC_PLLCFGR.PLL1VCOSEL"),
        "vos": "PWR_D3CR.VOS", "vos_flag": ("PWR_D3CR.VOSRDY", 1),
    }  # fmt: skip
    return Chip(**(facts | more))  # type: ignore[arg-type]


def _u5_dividers(get: Get) -> Dividers:
    if not get("RCC_PLL1CFGR.PLL1REN"):
        raise Violation("the output R is off")
    q = get("RCC_PLL1DIVR.PLL1Q") + 1
    return get("RCC_PLL1CFGR.PLL1M") + 1, get("RCC_PLL1DIVR.PLL1N") + 1, get("RCC_PLL1DIVR.PLL1R") + 1, q


def _f2_dividers(get: Get) -> Dividers:
    q = get("RCC_PLLCFGR.PLLQ")
    return get("RCC_PLLCFGR.PLLM"), get("RCC_PLLCFGR.PLLN"), 2 * get("RCC_PLLCFGR.PLLP") + 2, q


ANY = {0: ("only", 72.0, 1e3, (24.0, 48.0, 72.0))}
F0 = {0: ("only", 48.0, 1e3, (24.0, 48.0))}
APB = (("RCC_CFGR.PPRE1", 36.0), ("RCC_CFGR.PPRE2", 72.0))
ONE = (("RCC_CFGR.PPRE", 48.0),)
RANGES_G0 = {2: ("range2", 16.0, 128.0, (8.0, 16.0)), 1: ("range1", 64.0, 344.0, (24.0, 48.0, 64.0))}
RANGES_WB = {2: ("range2", 16.0, 128.0, (6.0, 12.0, 16.0)), 1: ("range1", 64.0, 344.0, (18.0, 36.0, 54.0, 64.0))}
RANGES_L5 = {2: ("range2", 26.0, 128.0, (8.0, 16.0, 26.0)), 1: ("range1", 80.0, 344.0, (20.0, 40.0, 60.0, 80.0)),
             0: ("range0", 110.0, 344.0, (20.0, 40.0, 60.0, 80.0, 100.0, 110.0))}  # fmt: skip
RANGES_U5 = {0: ("range4", 25.0, 0.0, (8.0, 16.0, 24.0, 25.0)),
             1: ("range3", 55.0, 330.0, (12.5, 25.0, 37.5, 50.0, 55.0)),
             2: ("range2", 110.0, 544.0, (25.0, 50.0, 75.0, 100.0, 110.0)),
             3: ("range1", 160.0, 544.0, (32.0, 64.0, 96.0, 128.0, 160.0))}  # fmt: skip
H743 = {1: ("3", 200.0, 836.0, (45.0, 90.0, 100.0)), 2: ("2", 300.0, 836.0, (55.0, 110.0, 150.0)),
        3: ("1", 400.0, 836.0, (70.0, 140.0, 185.0, 210.0, 225.0))}  # fmt: skip
H743V = {k: (name, hz, 960.0, waits) for k, (name, hz, _, waits) in H743.items()}
BOOSTED = {3: ("0", 480.0, 960.0, (70.0, 140.0, 185.0, 210.0, 240.0))}
H723 = {1: ("3", 170.0, 836.0, (35.0, 70.0, 85.0)), 2: ("2", 300.0, 836.0, (50.0, 100.0, 150.0)),
        3: ("1", 400.0, 836.0, (67.0, 133.0, 200.0)), 0: ("0", 550.0, 836.0, (70.0, 140.0, 210.0, 275.0))}  # fmt: skip
PREDIV = "RCC_CFGR2.PREDIV"
CHIPS = {
    "stm32f072": old(False, PREDIV, "1", reference=(1, 24), vco=(16, 48), sysclk=(16, 48), scales=F0, buses=ONE),
    "stm32f030": old(True, PREDIV, "1", reference=(1, 24), vco=(16, 48), sysclk=(16, 48), scales=F0, buses=ONE),
    "stm32f103": old(True, "RCC_CFGR.PLLXTPRE", "RCC_CFGR.USBPRE", "PLLMULL", reference=(1, 25), vco=(16, 72),
                     sysclk=(16, 72), scales=ANY, buses=APB),
    "stm32f101": old(True, "RCC_CFGR.PLLXTPRE", "", "PLLMULL", reference=(1, 25), vco=(16, 36), sysclk=(16, 36),
                     scales={0: ("only", 36.0, 1e3, (24.0, 36.0))}, buses=APB),
    "stm32f100": old(True, "RCC_CFGR2.PREDIV1", "", "PLLMULL", reference=(1, 24), vco=(16, 24), sysclk=(16, 24),
                     scales={0: ("only", 24.0, 1e3, (24.0,))}, buses=APB, latency=""),
    "stm32f107": old(True, "RCC_CFGR2.PREDIV1", "RCC_CFGR.OTGFSPRE", "PLLMULL", reference=(3, 12), vco=(18, 72),
                     sysclk=(18, 72), scales=ANY, buses=APB),
    "stm32f303xc": old(True, PREDIV, "RCC_CFGR.USBPRE", reference=(1, 24), vco=(16, 72), sysclk=(16, 72), scales=ANY,
                       buses=APB),
    "stm32f303xe": old(False, PREDIV, "RCC_CFGR.USBPRE", reference=(1, 24), vco=(16, 72), sysclk=(16, 72), scales=ANY,
                       buses=APB),
    "stm32f334": old(True, PREDIV, "", reference=(1, 24), vco=(16, 72), sysclk=(16, 72), scales=ANY, buses=APB),
    "stm32f207": Chip({0: "hsi", 1: "hse", 2: "pll"}, lambda get: "hse" if get("RCC_PLLCFGR.PLLSRC") else "hsi",
                      _f2_dividers, (0.95, 2.1), (192, 432), (24, 120),
                      {0: ("only", 120.0, 1e3, (30.0, 60.0, 90.0, 120.0))},
                      (("RCC_CFGR.PPRE1", 30.0), ("RCC_CFGR.PPRE2", 60.0)),
                      {"RCC_CR": 0x83, "RCC_PLLCFGR": 0x24003010},
                      frozen=("RCC_PLLCFGR.PLLM", "RCC_PLLCFGR.PLLN", "RCC_PLLCFGR.PLLP", "RCC_PLLCFGR.PLLSRC")),
    "stm32g071": newer("RCC_PLLCFGR.PLLR", False, sources={0: "hsi", 1: "hse", 2: "pll"}, reference=(2.66, 16),
                       vco=(96, 344), sysclk=(12, 64), scales=RANGES_G0, buses=(("RCC_CFGR.PPRE", 64.0),),
                       reset={"RCC_CR": 0x500, "RCC_PLLCFGR": 0x1000, "PWR_CR": 0x200}),
    "stm32l552": newer("RCC_PLLCFGR.PLLR", True, sources={0: "msi", 1: "hsi", 2: "hse", 3: "pll"}, start="msi",
                       reference=(4, 16), vco=(64, 344), sysclk=(8, 110), scales=RANGES_L5, step_over=80.0,
                       buses=(("RCC_CFGR.PPRE1", 110.0), ("RCC_CFGR.PPRE2", 110.0)),
                       reset={"RCC_CR": 0x63, "RCC_PLLCFGR": 0x1000, "PWR_CR": 0x400}),
    "stm32wb55": newer("RCC_PLLCFGR.PLLR", False, sources={0: "msi", 1: "hsi", 2: "hse", 3: "pll"}, start="msi",
                       reference=(2.66, 16), vco=(96, 344), sysclk=(12, 64), scales=RANGES_WB, pwr_clock="",
                       buses=(("RCC_CFGR.PPRE1", 64.0), ("RCC_CFGR.PPRE2", 64.0), ("RCC_EXTCFGR.C2HPRE", 32.0)),
                       reset={"RCC_CR": 0x61, "RCC_PLLCFGR": 0x22041000, "PWR_CR": 0x200, "FLASH_ACR": 0x600}),
    "stm32l072": low_power(),
    "stm32l152": low_power(latency_needs="FLASH_ACR.ACC64"),
    "stm32h743": h7(H743, 836, 400),
    "stm32h743v": h7(H743V, 960, 480, boost="SYSCFG_PWRCR.ODEN", boosted=BOOSTED),
    "stm32h723": h7(H723, 836, 550),
    "stm32u575": Chip({0: "msi", 1: "hsi", 2: "hse", 3: "pll"},
                      lambda get: {1: "msi", 2: "hsi", 3: "hse"}[get("RCC_PLL1CFGR.PLL1SRC")], _u5_dividers, (4, 16),
                      (128, 544), (11, 160), RANGES_U5, (("RCC_CFGR2.PPRE1", 160.0), ("RCC_CFGR2.PPRE2", 160.0)),
                      {"RCC_CR": 0x35, "FLASH_ACR": 0, "PWR_VOSR": 0x8000, "RCC_PLL1DIVR": 0x01010280}, start="msi",
                      frozen=("RCC_PLL1CFGR.PLL1M", "RCC_PLL1CFGR.PLL1SRC", "RCC_PLL1DIVR.PLL1N",
                              "RCC_PLL1CFGR.PLL1RGE"),
                      vos="PWR_VOSR.VOS", vos_flag=("PWR_VOSR.VOSRDY", 1), pwr_clock="RCC_AHB3ENR.PWREN",
                      boost="PWR_VOSR.BOOSTEN", boost_flag="PWR_VOSR.BOOSTRDY", boost_over=55.0,
                      hpre="RCC_CFGR2.HPRE", mux="RCC_CFGR1.SW", shown="RCC_CFGR1.SWS", pll="PLL1",
                      names={"MSION": "MSISON", "MSIRDY": "MSISRDY"}),
    "gd32vf103": risc_v((*range(2, 15), 6.5, 16, 16, *range(17, 33)), (1.5, 1, 2.5, 2), 108, 54),
    "ch32v203": risc_v((*range(2, 17), 18), (1, 2, 3), 144, 72),
    "ch32v307": risc_v((18, *range(3, 15), 6.5, 15, 16), (), 144, 72),
}  # fmt: skip
MSI_MHZ = {"stm32l072": 2.097, "stm32l152": 2.097}


class VendorModel:
    def __init__(self, plan: ClockPlan, regulator_us: float) -> None:
        device = plan.tree.device
        self.chip, self.bypass, self.regulator_us = CHIPS[device], plan.bypass, regulator_us
        self.map: dict[str, dict[str, list[int]]] = {n: f for n, (_, f) in HEADERS[device]["registers"].items()}
        self.names: dict[int, str] = {a: name for name, (a, _) in HEADERS[device]["registers"].items()}
        self.values = {name: self.chip.reset.get(name, 0) for name in self.map}
        self.mhz = {"hsi": self.chip.hsi, "msi": MSI_MHZ.get(device, 4.0),
                    "hse": plan.base_hz / 1e6 if plan.oscillator == "HSE" else 8.0}  # fmt: skip
        self.now, self.accesses = 0.0, 0
        self.source = self.chip.start
        self.pending = (0.0, self.source)
        self.hse_at = self.pll_at = NEVER
        self.hsi_at = self.msi_at = self.pll_gone = self.vos_at = self.boost_at = self.stepped = 0.0
        self.lower = self._scale_of(self.values)
        self.latency_seen, self.pll_never_locks = True, False
        flags = [self.chip.shown, self.chip.vos_flag[0], self.chip.boost_flag]
        flags += [f"RCC_CR.{self._cr(o + 'RDY')}" for o in ("HSI", "HSE", "MSI", self.chip.pll)]
        self.flags = {f for f in flags if f and f.partition(".")[2] in self.map[f.partition(".")[0]]}
        self.flags |= {"PWR_CSR1.ACTVOSRDY"} & {f"{r}.{f}" for r, fields in self.map.items() for f in fields}

    # ---- what the program sees

    def read(self, address: int) -> int:
        name = self._name(address)
        self._pass_time()
        if name == "FLASH_ACR":
            self.latency_seen = True
        return self.values[name] | sum(
            self._flag(f) << self._span(f)[0] for f in self.flags if f.startswith(name + ".")
        )

    def write(self, address: int, value: int) -> None:
        name = self._name(address)
        self._pass_time()
        mine = [f for f in self.map[name] if f"{name}.{f}" not in self.flags]
        flags = sum(self._mask(f"{name}.{f}") for f in self.map[name] if f"{name}.{f}" in self.flags)
        allowed = sum(self._mask(f"{name}.{f}") for f in mine)
        old = self.values[name]
        if (old ^ value) & ~(allowed | flags):
            raise Violation(f"{name}: bits that do not belong to the change: {(old ^ value) & ~(allowed | flags):#x}")
        before = dict(self.values)
        self.values[name] = value & ~flags
        self._changed(
            before, {f"{name}.{f}" for f in mine if self._get(f"{name}.{f}") != self._get(f"{name}.{f}", before)}
        )
        self._check()

    def stop_mode(self) -> None:
        """As after Stop: on the HSI, all else off; dividers, wait states and the voltage kept."""
        self.source, self.pending = "hsi", (self.now, "hsi")
        for oscillator in ("HSEON", self.chip.pll + "ON"):
            self.values["RCC_CR"] &= ~self._mask("RCC_CR." + oscillator)
        self.values["RCC_CR"] |= self._mask("RCC_CR.HSION")
        if self.chip.boost_flag:
            self.values["PWR_VOSR"] &= ~self._mask(self.chip.boost)
        code = next(k for k, v in self.chip.sources.items() if v == "hsi")
        register = self.chip.mux.partition(".")[0]
        self.values[register] = (
            self.values[register] & ~self._mask(self.chip.mux) | code << self._span(self.chip.mux)[0]
        )
        self.hse_at = self.pll_at = NEVER
        self.pll_gone = self.now

    def settled(self) -> tuple[int, str, bool, int, bool]:
        """SYSCLK in Hz, scale, over-drive (none here), wait states, PLL on: the state that the program left."""
        latency = self._get(self.chip.latency) if self.chip.latency else 0
        on = bool(self._get(f"RCC_CR.{self.chip.pll}ON"))
        return int(self._mhz(self.source) * 1e6 + 1e-3), self._scale_of(self.values)[0], False, latency, on

    # ---- what it does

    def _changed(self, before: Mapping[str, int], fields: set[str]) -> None:
        chip, pll_on = self.chip, f"RCC_CR.{self.chip.pll}ON"
        running = bool(self._get(pll_on, before)) or self.now < self.pll_gone
        if chip.pwr_clock and any(f.startswith("PWR_") for f in fields) and not self._get(chip.pwr_clock):
            raise Violation("PWR written while it has no clock")
        if running and fields & set(chip.frozen):
            raise Violation(f"{', '.join(sorted(fields & set(chip.frozen)))} changed while the PLL is on")
        if "RCC_CR.HSEBYP" in fields and (self._get("RCC_CR.HSEON") or self._get("RCC_CR.HSEON", before)):
            raise Violation("HSEBYP changed while the HSE is on")
        for name in ("hsi", "msi", "hse"):
            switch = f"RCC_CR.{self._cr(name.upper() + 'ON')}"
            if switch in fields:
                used = name in (self.source, self.pending[1]) or (
                    self._get(pll_on) and chip.pll_from(self._get) == name
                )
                if not self._get(switch) and used:
                    raise Violation(f"{name} switched off while it is used")
                self._set_ready(name, bool(self._get(switch)))
        if pll_on in fields and self._get(pll_on):
            self._start_pll()
        elif pll_on in fields:
            if "pll" in (self.source, self.pending[1]):
                raise Violation("PLL switched off while SYSCLK comes from it")
            self.pll_at, self.pll_gone = NEVER, self.now + PLL_STOP_US
        if fields & {chip.vos, chip.boost}:
            if self.now < self.vos_at:
                raise Violation("voltage changed before the last change was done")
            if chip.vos in fields and running:
                raise Violation("voltage changed while the PLL is on")
            if chip.vos in fields and chip.boost and (self._get(chip.boost, before) or self._get(chip.boost)):
                raise Violation("voltage changed with the boost on")
            self.lower = min(self._scale_of(before), self._scale_of(self.values), key=lambda s: s[1])
            if chip.boost in fields and chip.boost_flag:
                self.boost_at = self.now + 10.0
            else:
                self.vos_at = self.now + self.regulator_us
        if chip.latency in fields:
            if chip.latency_needs and not self._get(chip.latency_needs):
                raise Violation(f"wait states without {chip.latency_needs}")
            self.latency_seen = False
        if chip.mux in fields:
            self._switch(before)
        if chip.hpre in fields and self.now < self.stepped and self._get(chip.hpre, before) == 8:
            raise Violation("the AHB at its full clock before the step was over")

    def _switch(self, before: Mapping[str, int]) -> None:
        wanted = self.chip.sources.get(self._get(self.chip.mux))
        if wanted is None:
            raise Violation("the mux has no such source")
        if not self._ready(wanted):
            raise Violation(f"switched to the {wanted} before it was ready")
        if not self.latency_seen:
            raise Violation("clock changed before the wait states were read back")
        self.pending = (self.now + MUX_US, wanted)
        if max(self._mhz(self.source), self._mhz(wanted)) > self.chip.step_over:
            if self._get(self.chip.hpre) != 8:
                raise Violation("a fast clock without a step at half of it")
            self.stepped = self.pending[0] + STEP_US

    def _start_pll(self) -> None:
        chip, source = self.chip, self.chip.pll_from(self._get)
        if self.now < self.pll_gone:
            raise Violation("PLL switched on before it had stopped")
        if not self._ready(source):
            raise Violation("PLL switched on before its source was ready")
        before, times, after, _ = chip.dividers(self._get)
        reference = self.mhz[source] / before if before else NEVER
        vco = reference * times
        for what, mhz, (low, high) in (("reference", reference, chip.reference), ("VCO", vco, chip.vco),
                                       ("output", vco / after, chip.sysclk)):  # fmt: skip
            if not low - 1e-6 <= mhz <= high + 1e-6:
                raise Violation(f"the PLL's {what} is {mhz:g} MHz")
        if vco > self._scale()[2] + 1e-6:
            raise Violation(f"the VCO is at {vco:g} MHz at {self._scale()[0]}")
        if chip.pll == "PLL1":
            self._check_range(reference, vco)
        self.pll_at = NEVER if self.pll_never_locks else self.now + 100.0

    def _check_range(self, reference: float, vco: float) -> None:
        u5 = "RCC_PLL1CFGR" in self.map
        name = "RCC_PLL1CFGR.PLL1RGE" if u5 else "RCC_PLLCFGR.PLL1RGE"
        low, high = (
            {0: (4, 8), 1: (4, 8), 2: (4, 8), 3: (8, 16)} if u5 else {0: (1, 2), 1: (2, 4), 2: (4, 8), 3: (8, 16)}
        )[self._get(name)]
        if not low <= reference <= high:
            raise Violation(f"PLL1RGE is for {low} to {high} MHz, the reference is {reference:g}")
        if not u5:
            medium = bool(self._get("RCC_PLLCFGR.PLL1VCOSEL"))
            if not (150 <= vco <= 420 and reference <= 2 if medium else vco >= 192 and reference >= 2):
                raise Violation(f"PLL1VCOSEL does not fit to a VCO of {vco:g} MHz")

    # ---- what must hold at any moment

    def _check(self) -> None:
        name, most, _, waits = self._scale()
        for source in {self.source, self.pending[1]}:
            mhz = self._mhz(source)
            if mhz > most + 1e-6:
                raise Violation(f"{mhz:g} MHz at {name}, limit {most:g}")
            hclk = mhz / self._divider(self.chip.hpre)
            if self.chip.pll == "PLL1" and "PWR_D3CR" in self.map and hclk > waits[-1] + 1e-6:
                raise Violation(f"HCLK at {hclk:g} MHz, limit {waits[-1]:g}")
            if self.chip.latency:
                latency = self._get(self.chip.latency)
                if hclk > waits[min(latency, len(waits) - 1)] + 1e-6:
                    raise Violation(f"flash at {hclk:g} MHz with {latency} wait states at {name}")
            if mhz > self.chip.boost_over and not (self._get(self.chip.boost) and self.now >= self.boost_at):
                raise Violation(f"{mhz:g} MHz without the boost")
            for bus, limit in self.chip.buses:
                if hclk / self._divider(bus) > limit + 1e-6:
                    raise Violation(f"the bus of {bus} at {hclk / self._divider(bus):g} MHz")

    # ---- helpers

    def _cr(self, name: str) -> str:
        return self.chip.names.get(name, name)

    def _name(self, address: int) -> str:
        if address not in self.names:
            raise Violation(f"no register at {address:#x}")
        return self.names[address]

    def _pass_time(self) -> None:
        self.accesses += 1
        self.now += ACCESS_CYCLES / self._mhz(self.source)
        if self.now >= self.pending[0]:
            self.source = self.pending[1]

    def _set_ready(self, name: str, on: bool) -> None:
        late = name == "hse" and "HSEBYP" in self.map["RCC_CR"] and bool(self._get("RCC_CR.HSEBYP")) != self.bypass
        setattr(self, name + "_at", self.now + (HSE_START_US if name == "hse" else 2.0) if on and not late else NEVER)

    def _ready(self, name: str) -> bool:
        on = {"hse": "HSEON", "hsi": "HSION", "msi": self._cr("MSION"), "pll": self.chip.pll + "ON"}[name]
        return bool(self._get(f"RCC_CR.{on}") if on in self.map["RCC_CR"] else True) and self.now >= getattr(
            self, name + "_at"
        )

    def _flag(self, place: str) -> int:
        chip = self.chip
        if place == chip.shown:
            return next(k for k, v in chip.sources.items() if v == self.source)
        if place == chip.vos_flag[0]:
            return chip.vos_flag[1] if self.now >= self.vos_at else 1 - chip.vos_flag[1]
        if place == chip.boost_flag:
            return self._get(chip.boost) if self.now >= self.boost_at else 1 - self._get(chip.boost)
        if place == f"RCC_CR.{chip.pll}RDY":
            return int(self._ready("pll") or (not self._get(f"RCC_CR.{chip.pll}ON") and self.now < self.pll_gone))
        if place == "PWR_CSR1.ACTVOSRDY":
            return 1  # the supply is the reset's
        return int(
            self._ready(next(o for o in ("hsi", "hse", "msi") if place == f"RCC_CR.{self._cr(o.upper() + 'RDY')}"))
        )

    def _span(self, place: str) -> list[int]:
        register, _, name = place.partition(".")
        return self.map[register][name]

    def _mask(self, place: str) -> int:
        low, width = self._span(place)
        return ((1 << width) - 1) << low

    def _get(self, place: str, values: Mapping[str, int] | None = None) -> int:
        low, width = self._span(place)
        return ((values or self.values)[place.partition(".")[0]] >> low) & ((1 << width) - 1)

    def _divider(self, place: str) -> int:
        code, wide = self._get(place), self._span(place)[1] == 4
        flag, dividers = (8, (2, 4, 8, 16, 64, 128, 256, 512)) if wide else (4, (2, 4, 8, 16))
        return dividers[code - flag] if code & flag else 1

    def _scale_of(self, values: Mapping[str, int]) -> tuple[str, float, float, tuple[float, ...]]:
        code = self._get(self.chip.vos, values) if self.chip.vos else 0
        boosted = self.chip.boost and self._get(self.chip.boost, values)
        scale = (self.chip.boosted if boosted and self.chip.boosted else self.chip.scales).get(code)
        if scale is None:
            raise Violation(f"the voltage {code} is reserved, or is not to be boosted")
        return scale

    def _scale(self) -> tuple[str, float, float, tuple[float, ...]]:
        """The voltage that is there now."""
        return self.lower if self.now < self.vos_at else self._scale_of(self.values)

    def _mhz(self, source: str) -> float:
        if source != "pll":
            return self.mhz[source]
        before, times, after, _ = self.chip.dividers(self._get)
        return self.mhz[self.chip.pll_from(self._get)] / before * times / after


def model_of(plan: ClockPlan, regulator_us: float) -> RegisterModel | VendorModel | Rp2Model | SmallModel:
    """The model of the plan's chip after reset. `regulator_us`: until a new voltage is there."""
    if plan.tree.device in SMALL:
        return SMALL[plan.tree.device](plan)
    if plan.tree.device in MAX_MHZ:
        return Rp2Model(plan)
    if plan.tree.device in CHIPS:
        return VendorModel(plan, regulator_us)
    return (RegisterModel if plan.tree.regulator.with_pll else RangeModel)(plan, regulator_us)
