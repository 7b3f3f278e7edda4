"""Mistakes that people make when they write clock code, as edits of the emitted source."""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from edgebuild.clock.configs import clock_plan
from edgebuild.clock.tree import load_clock_tree
from tests.clocks.machine import REGULATORS_US, Machine, build, exercise
from tests.clocks.register_model import Violation

Row = list[str]  # hz, pll, pllcfgr, vos, [overdrive,] wait states; or hz, pll, vos, r1mode, pllcfgr, wait states


def rows(change: Callable[[random.Random, Row], bool]) -> Callable[[str, random.Random], str]:
    """Change one row of the table: the first in an order given by the seed for which `change` says it did."""

    def mutate(text: str, seed: random.Random) -> str:
        matches = list(re.finditer(r"(\[EB_CLOCK_\w+\] = \{)([^}]*)(\})", text))
        seed.shuffle(matches)
        for match in matches:
            row = match[2].split(", ")
            if row[1] == "true" and change(seed, row):
                return text[: match.start(2)] + ", ".join(row) + text[match.end(2) :]
        raise AssertionError("no row to change")

    return mutate


def edit(old: str, new: str) -> Callable[[str, random.Random], str]:
    def mutate(text: str, seed: random.Random) -> str:
        assert old in text, old
        return text.replace(old, new, 1)

    return mutate


def move(line: str, after: str) -> Callable[[str, random.Random], str]:
    """Take a piece of text away and put it in behind another."""

    def mutate(text: str, seed: random.Random) -> str:
        assert text.count(line) == 1 and text.count(after) == 1, (text.count(line), text.count(after))
        return text.replace(line, "").replace(after, after + line)

    return mutate


def fewer_wait_states(seed: random.Random, row: Row) -> bool:
    count = int(row[-1][:-1])
    row[-1] = f"{seed.randrange(count)}u" if count else ""
    return count > 0


def lower_scale(seed: random.Random, row: Row) -> bool:
    vos = int(row[3][:-1], 16) >> 14
    row[3] = f"{(vos - 1) << 14:#x}u"
    return vos > 1


def no_overdrive(seed: random.Random, row: Row) -> bool:
    had, row[4] = row[4], "false"
    return had == "true"


def needless_overdrive(seed: random.Random, row: Row) -> bool:
    had, row[4] = row[4], "true"
    return had == "false"


def other_multiplier(seed: random.Random, row: Row) -> bool:
    row[2] = f"{int(row[2][:-1], 16) + (seed.choice([-9, -5, 7, 12]) << 6):#x}u"
    return True


def other_divider(seed: random.Random, row: Row) -> bool:
    row[2] = f"{int(row[2][:-1], 16) ^ (seed.choice([1, 2, 3]) << 16):#x}u"
    return True


def other_reference(seed: random.Random, row: Row) -> bool:
    row[2] = f"{int(row[2][:-1], 16) ^ seed.choice([1, 2, 7, 8]):#x}u"
    return True


def internal_source(seed: random.Random, row: Row) -> bool:
    row[2] = f"{int(row[2][:-1], 16) & ~(1 << 22):#x}u"
    return True


def slow_range(seed: random.Random, row: Row) -> bool:
    had, row[2] = row[2], "0x400u"
    return had == "0x200u"


def no_boost(seed: random.Random, row: Row) -> bool:
    had, row[3] = row[3], "0x100u"
    return had == "0x0u"


def other_r(seed: random.Random, row: Row) -> bool:
    row[4] = f"{int(row[4][:-1], 16) ^ (1 << 25):#x}u"
    return True


RAISE_OVERDRIVE = "    if (s->overdrive && !overdrive_on()) {\n        return false;\n    }\n"
RAISE_WAIT_STATES = "    if (!set_wait_states(s->wait_states)) {\n        return false;\n    }\n"
WRITE_PLLCFGR = """    set(&RCC_PLLCFGR, RCC_PLLCFGR_PLLM | RCC_PLLCFGR_PLLN | RCC_PLLCFGR_PLLP | RCC_PLLCFGR_PLLSRC |
        RCC_PLLCFGR_PLLQ, s->pllcfgr);
"""
DIVIDERS = "    set(&RCC_CFGR, RCC_CFGR_HPRE | RCC_CFGR_PPRE1 | RCC_CFGR_PPRE2, 0x9400u);\n"
WRITE_VOS = "    set(&PWR_CR, PWR_CR_VOS, s->vos);\n"
PLL_ON = "    set(&RCC_CR, 0u, RCC_CR_PLLON);\n"


def published_order(text: str, seed: random.Random) -> str:
    """PLL to PLL as the literature lists it: voltage and wait states after the switch, over-drive never back on."""
    for step in (RAISE_OVERDRIVE, RAISE_WAIT_STATES, WRITE_VOS):
        text = text.replace(step, "")
    late = "    if (!run_from(FROM_PLL, s->hz)) {\n        return false;\n    }\n" + WRITE_VOS
    return text.replace(
        "    return run_from(FROM_PLL, s->hz);\n", late + "    return set_wait_states(s->wait_states);\n", 1
    )


MUTATIONS = {
    "too few wait states": rows(fewer_wait_states),
    "voltage too low": rows(lower_scale),
    "over-drive missing": rows(no_overdrive),
    "over-drive where it is not needed": rows(needless_overdrive),
    "another N": rows(other_multiplier),
    "another P": rows(other_divider),
    "another M": rows(other_reference),
    "PLL fed by the HSI": rows(internal_source),
    "PLLCFGR written while the PLL is on": edit(
        "    return run_from(source, hz) && pll_off();", "    return run_from(source, hz);"
    ),
    "PLLCFGR written after PLLON": move(WRITE_PLLCFGR, PLL_ON),
    "scale changed after PLLON": move(WRITE_VOS, PLL_ON),
    "PLL not waited for": edit(
        "    if (!wait_for(&RCC_CR, RCC_CR_PLLRDY, RCC_CR_PLLRDY, EB_CLOCK_FAULT_PLL)", "    if (0"
    ),
    "PLL's end not waited for": edit("    if (!wait_for(&RCC_CR, RCC_CR_PLLRDY, 0u, EB_CLOCK_FAULT_PLL)", "    if (0"),
    "voltage not waited for": edit(
        "    if (!wait_for(&PWR_CSR, PWR_CSR_VOSRDY, PWR_CSR_VOSRDY, EB_CLOCK_FAULT_VOLTAGE)", "    if (0"
    ),
    "mux not waited for": edit(
        "return wait_for(&RCC_CFGR, RCC_CFGR_SWS, source << 2, EB_CLOCK_FAULT_MUX);", "return true;"
    ),
    "HSE not waited for": edit(
        "return wait_for(&RCC_CR, RCC_CR_HSERDY, RCC_CR_HSERDY, EB_CLOCK_FAULT_OSCILLATOR);", "return true;"
    ),
    "ODRDY not waited for": edit(
        "    if (!wait_for(&PWR_CSR, PWR_CSR_ODRDY, PWR_CSR_ODRDY, EB_CLOCK_FAULT_VOLTAGE)", "    if (0"
    ),
    "ODSWEN forgotten": edit("    set(&PWR_CR, 0u, PWR_CR_ODSWEN);\n", ""),
    "over-drive before PLLON": move(RAISE_OVERDRIVE, WRITE_VOS),
    "over-drive kept when slowing down": edit("(PWR_CR & (PWR_CR_ODEN | PWR_CR_ODSWEN)) != 0u", "0"),
    "ODSWRDY not waited for when leaving": edit(
        "    if (!wait_for(&PWR_CSR, PWR_CSR_ODSWRDY, 0u, EB_CLOCK_FAULT_VOLTAGE)", "    if (0"
    ),
    "wait states after the switch": lambda text, seed: text.replace(RAISE_WAIT_STATES, "").replace(
        "    return run_from(FROM_PLL, s->hz);\n",
        "    return run_from(FROM_PLL, s->hz) && set_wait_states(s->wait_states);\n",
        1,
    ),
    "wait states not read back": edit(
        "return wait_for(&FLASH_ACR, FLASH_ACR_LATENCY, count, EB_CLOCK_FAULT_FLASH);", "return true;"
    ),
    "wait states left high": edit(": set_wait_states(OSCILLATOR_WAIT_STATES)", ": true"),
    "voltage left to the reset value": edit(WRITE_VOS, ""),
    "APB1 over its limit": edit(DIVIDERS, DIVIDERS.replace("0x9400u", "0x9000u")),
    "APB2 over its limit": edit(DIVIDERS, DIVIDERS.replace("0x9400u", "0x1400u")),
    "dividers forgotten": edit(DIVIDERS, ""),
    "PWR without a clock": edit("    set(&RCC_APB1ENR, 0u, RCC_APB1ENR_PWREN);\n", ""),
    "reserved bits overwritten": edit(WRITE_PLLCFGR, "    RCC_PLLCFGR = s->pllcfgr;\n"),
    "quick mux to a PLL that is off": edit(
        "current < EB_CLOCK_COUNT && SETTINGS[current].pll) {", "current < EB_CLOCK_COUNT) {"
    ),
    "PLL stopped by the quick mux": edit(
        "    (void)run_from(FROM_OSCILLATOR, OSCILLATOR_HZ);",
        "    (void)(run_from(FROM_OSCILLATOR, OSCILLATOR_HZ) && pll_off());",
    ),
    "the published order": published_order,
    "HSE not started after Stop": edit(
        "if (start_hse()) {\n        eb_clock_switch(to);", "{\n        eb_clock_switch(to);"
    ),
}
RAISED_LATE = "wait states raised after the range"
RANGED = {  # of the G474, whose voltage holds with the PLL off and whose AHB takes a step
    "too few wait states at a range": rows(fewer_wait_states),
    "range 2 too fast": rows(slow_range),
    "boost missing": rows(no_boost),
    "another R": rows(other_r),
    "range changed under the PLL": edit("    done = park(FROM_OSCILLATOR, OSCILLATOR_HZ);", "    done = true;"),
    "range not waited for": edit("    if (!wait_for(&PWR_SR2, PWR_SR2_VOSF, 0u, EB_CLOCK_FAULT_VOLTAGE)", "    if (0"),
    RAISED_LATE: edit("set_wait_states(OSCILLATOR_WAIT_STATES) && set_voltage", "set_voltage"),
    "range left as it was": edit("    set(&PWR_CR, PWR_CR_VOS, s->vos);\n", ""),
    "no step": edit("    if (step) {\n        set(&RCC_CFGR, RCC_CFGR_HPRE, AHB_HALVED);", "    if (0) {"),
    "step too short": edit("i < STEP_READS", "i < 2u"),
    "step only up": edit(" || (RCC_CFGR & RCC_CFGR_SWS) == FROM_PLL << 2;", ";"),
}


def drop(line: str) -> Callable[[str, random.Random], str]:
    return edit(line, "")


def unwaited(flag: str) -> Callable[[str, random.Random], str]:
    """Waits for a flag of a register are gone."""

    def mutate(text: str, seed: random.Random) -> str:
        changed = re.sub(rf"if \(!wait_for\(&\w+, {re.escape(flag)}, [^;{{]*\)\) {{", "if (0) {", text)
        assert changed != text, flag
        return changed

    return mutate


def column(place: int, bits: int) -> Callable[[str, random.Random], str]:
    """Bits of a column of the table are turned over."""

    def change(seed: random.Random, row: Row) -> bool:
        row[place] = f"{int(row[place][:-1], 16) ^ bits:#x}u"
        return True

    return rows(change)


NEWER = {  # chip and mistake, in families whose model is of the vendor's headers
    "F103: another multiplier": ("stm32f103", column(2, 1 << 21)),
    "F103: oscillator not halved": ("stm32f103", column(2, 1 << 17)),
    "F103: too few wait states": ("stm32f103", rows(fewer_wait_states)),
    "F103: APB1 at full clock": ("stm32f103", edit(", 0x400u);", ", 0u);")),
    "F103: PLL not waited for": ("stm32f103", unwaited("RCC_CR_PLLRDY")),
    "F303: another divider": ("stm32f303xe", column(3, 1)),
    "F207: another M": ("stm32f207", column(2, 3)),
    "G0: output R off": ("stm32g071", column(3, 1 << 28)),
    "G0: range not waited for": ("stm32g071", unwaited("PWR_SR2_VOSF")),
    "L0: range left as it was": ("stm32l072", drop("    set(&PWR_CR, PWR_CR_VOS, s->vos);\n")),
    "L1: wait states without ACC64": ("stm32l152", drop("    set(&FLASH_ACR, 0u, FLASH_ACR_ACC64);\n")),
    "L1: slow until the HSI runs": ("stm32l152", edit("    if (!set_wait_states(1u)) {", "    if (0) {")),
    "L5: no step": (
        "stm32l552",
        edit("    if (step) {\n        set(&RCC_CFGR, RCC_CFGR_HPRE, AHB_HALVED);", "    if (0) {"),
    ),
    "WB: CPU2 at full clock": ("stm32wb55", drop("    set(&RCC_EXTCFGR, RCC_EXTCFGR_C2HPRE, 0x80u);\n")),
    "U5: no boost": ("stm32u575", drop("    set(&PWR_VOSR, PWR_VOSR_BOOSTEN, s->boosten);\n")),
    "U5: boost left on": ("stm32u575", drop("    set(&PWR_VOSR, PWR_VOSR_BOOSTEN, 0u);\n")),
    "U5: another range of the reference": ("stm32u575", column(3, 3 << 2)),
    "U5: voltage not waited for": ("stm32u575", unwaited("PWR_VOSR_VOSRDY")),
    "H7: AHB at full clock": ("stm32h743v", edit("0x48u", "0x40u")),
    "H7: a range of the VCO": ("stm32h743v", column(6, 2)),
    "H7: no boost": ("stm32h743v", drop("    set(&SYSCFG_PWRCR, SYSCFG_PWRCR_ODEN, s->oden);\n")),
    "H7: boost left on": ("stm32h743v", drop("    set(&SYSCFG_PWRCR, SYSCFG_PWRCR_ODEN, 0u);\n")),
    "GD32V: another multiplier": ("gd32vf103", column(2, 1 << 29)),
    "GD32V: a divider written by half": ("gd32vf103", column(2, 1 << 17)),
    "CH32V: another multiplier": ("ch32v203", column(2, 1 << 18)),
    "RP2350: crystal taken for stable too early": (
        "rp2350",
        edit("XOSC_STARTUP_DELAY, 0x162u", "XOSC_STARTUP_DELAY, 0x62u"),
    ),
    "CH32V: PLL not waited for": ("ch32v307", unwaited("RCC_CR_PLLRDY")),
    "RP2040: another multiplier": ("rp2040", column(3, 1)),
    "RP2040: another divider": ("rp2040", column(4, 1 << 12)),
    "RP2350: PLL not waited for": ("rp2350", unwaited("PLL_SYS_CS_LOCK")),
    "RP2040: out of reset not waited for": ("rp2040", unwaited("RESETS_RESET_DONE_PLL_SYS")),
    "RP2040: crystal not waited for": ("rp2040", unwaited("XOSC_STATUS_STABLE")),
    "RP2350: dividers off": ("rp2350", drop("    set(&PLL_SYS_PWR, PLL_SYS_PWR_POSTDIVPD, 0u);\n")),
    "RP2350: PLL left on": (
        "rp2350",
        drop("    set(&PLL_SYS_PWR, 0u, PLL_SYS_PWR_PD | PLL_SYS_PWR_POSTDIVPD | PLL_SYS_PWR_VCOPD);\n"),
    ),
    "H7: voltage not waited for": ("stm32h743v", unwaited("PWR_D3CR_VOSRDY")),
    "ESP32-C3: another divider": ("esp32c3", column(2, 1)),
    "ESP32-C3: crystal halved": (
        "esp32c3",
        drop("    set(&SYSTEM_SYSCLK_CONF, SYSTEM_SYSCLK_CONF_PRE_DIV_CNT, 0u);\n"),
    ),
    "nRF53: crystal not waited for": ("nrf5340", unwaited("CLOCK_HFCLKSTAT_SRC | CLOCK_HFCLKSTAT_STATE")),
    "FE310: another multiplier": ("fe310", column(2, 1 << 4)),
    "FE310: no pause": ("fe310", edit("i < 1500u", "i < 1u")),
    "FE310: flash too fast": ("fe310", rows(fewer_wait_states)),
    "FE310: PLL left on": ("fe310", drop("    set(&PRCI_PLLCFG, 0u, PRCI_PLLCFG_BYPASS);\n")),
}
# Kinds that change a row of the table are tried on three rows.
SEEDED = [(kind, seed) for k, kind in enumerate(MUTATIONS) for seed in range(3 if k < 8 else 1)]
SEEDED += [(kind, 0) for kind in (*RANGED, *NEWER)]


def caught(kind: str, seed: int) -> Violation | None:
    """The register model's complaint about the C of its chip with this mistake in it; None if it has none."""
    every = (
        NEWER | {k: ("stm32g474", v) for k, v in RANGED.items()} | {k: ("stm32f767", v) for k, v in MUTATIONS.items()}
    )
    chip, mutate = every[kind]
    plan = clock_plan(load_clock_tree(chip), None if kind in NEWER else 8_000_000)
    if kind == RAISED_LATE:  # range 2 of the G474 needs no more wait states at its oscillators
        plan = clock_plan(load_clock_tree("stm32l4x6"), source="hsi")
    with tempfile.TemporaryDirectory() as folder:
        elf = build(
            plan,
            Path(folder),
            change=lambda text: mutate(text, random.Random(seed)),
            flags=("-DEB_CLOCK_TIMEOUT=3000u",),
        )
        try:
            for regulator_us in REGULATORS_US:
                exercise(Machine(plan, elf, regulator_us))
        except Violation as violation:
            return violation
    return None
