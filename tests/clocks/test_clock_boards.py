"""Clock settings of boards that Zephyr supports: each is accepted, and the C leaves its dividers in the registers."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.clock.configs import bus_clocks, clock_plan
from edgebuild.clock.tree import load_clock_tree

pytest.importorskip("unicorn", reason="the register model runs under unicorn")
from tests.clocks.machine import Machine, Model, build, exercise
from tests.clocks.register_model import PLL, RegisterModel
from tests.clocks.small_models import SmallModel
from tests.clocks.vendor_model import VendorModel


class Board(NamedTuple):
    """A board's file in numbers. `dividers`: AHB,APB1,APB2 where they are other than the smallest possible."""

    chip: str
    source: str
    base: int
    pll: tuple[int, ...]  # M, N, P, or R where SYSCLK is that; of old families the multiplier twice, over 2
    sysclk: int
    dividers: str = ""


# Q is left out where nothing takes 48 MHz from there: the model holds it to that limit.
# boards/st/*/*.dts of github.com/zephyrproject-rtos/zephyr, as stored in November 2026; MHz.
F103, F303 = (1, 18, 2), (1, 18, 2)
BOARDS = {
    "nucleo_f030r8": Board("stm32f030", "hse", 8, (1, 12, 2), 48),
    "nucleo_f072rb": Board("stm32f072", "hse", 8, (1, 12, 2), 48, "1,2,2"),
    "nucleo_f091rc": Board("stm32f072", "hse", 8, (1, 12, 2), 48),
    "nucleo_f103rb": Board("stm32f103", "hse", 8, F103, 72),
    "stm32vl_disco": Board("stm32f100", "hsi", 8, (2, 12, 2), 24, "1,2,1"),
    "nucleo_f207zg": Board("stm32f207", "hse", 8, (8, 240, 2, 5), 120),
    "nucleo_f302r8": Board("stm32f334", "hse", 8, F303, 72),
    "nucleo_f303re": Board("stm32f303xe", "hse", 8, F303, 72),
    "nucleo_f334r8": Board("stm32f334", "hse", 8, F303, 72),
    "stm32f3_disco": Board("stm32f303xc", "hse", 8, F303, 72),
    "nucleo_f401re": Board("stm32f401", "hse", 8, (8, 336, 4, 7), 84),
    "nucleo_f411re": Board("stm32f411", "hse", 8, (8, 384, 4, 8), 96),
    "stm32f4_disco": Board("stm32f405", "hse", 8, (8, 336, 2, 7), 168),
    "nucleo_f722ze": Board("stm32f722", "hse", 8, (4, 216, 2, 9), 216),
    "nucleo_f767zi": Board("stm32f767", "hse", 8, (4, 216, 2, 9), 216),
    "nucleo_g031k8": Board("stm32g071", "hsi", 16, (1, 8, 2), 64),
    "nucleo_g071rb": Board("stm32g071", "hsi", 16, (1, 8, 2, 2), 64),
    "nucleo_g0b1re": Board("stm32g071", "hsi", 16, (1, 8, 2, 2), 64),
    "nucleo_g431rb": Board("stm32g431", "hse", 24, (6, 85, 2), 170),
    "nucleo_h723zg": Board("stm32h723", "hse", 8, (4, 275, 1, 4), 550),
    "nucleo_h743zi": Board("stm32h743v", "hse", 8, (2, 240, 2, 2), 480),
    "nucleo_h753zi": Board("stm32h743v", "hse", 8, (1, 24, 2, 4), 96, "1,1,1"),
    "nucleo_l031k6": Board("stm32l072", "hsi", 16, (1, 4, 2), 32),
    "nucleo_l053r8": Board("stm32l072", "hse", 8, (1, 8, 2), 32),
    "nucleo_l073rz": Board("stm32l072", "hse", 8, (1, 8, 2), 32),
    "nucleo_l152re": Board("stm32l152", "hsi", 16, (1, 4, 2), 32),
    "nucleo_l432kc": Board("stm32l4x2", "hsi", 16, (1, 20, 4), 80),
    "nucleo_l476rg": Board("stm32l4x6", "hsi", 16, (1, 20, 4, 8), 80),
    "nucleo_l4r5zi": Board("stm32l4r5", "hsi", 16, (4, 40, 2), 80),
    "nucleo_l552ze_q": Board("stm32l552", "msi", 4, (1, 55, 2, 2), 110),
    "nucleo_u575zi_q": Board("stm32u575", "msi", 4, (1, 80, 2, 2), 160),
    "nucleo_wb55rg": Board("stm32wb55", "hse", 32, (), 32),
    "esp32c3_devkitm": Board("esp32c3", "hse", 40, (1, 12, 3), 160),
    "nrf5340dk": Board("nrf5340", "hse", 64, (), 64),
    "ch32v203_hsi": Board("ch32v203", "hsi", 8, (1, 36, 2), 144, "1,2,1"),  # SetSysClockTo144_HSI of openwch/ch32v20x
    "ch32v307_hsi": Board("ch32v307", "hsi", 8, (2, 36, 2), 72, "1,2,1"),  # where start-up code left the HSI whole
    "hifive1_320": Board("fe310", "hse", 16, (2, 40, 1), 320),
}


def decoded(model: Model) -> tuple[str, tuple[float, ...]]:
    """The oscillator and M, N, P, Q as the registers have them."""
    if isinstance(model, SmallModel):
        return "hse", (*model.dividers(), 0)
    if isinstance(model, VendorModel):
        return model.chip.pll_from(model._get), model.chip.dividers(model._get)
    source = ("hsi", "hse")[model._pll_from()]
    reference, vco, out = model._pll()
    return source, (model._hz(model._pll_from()) / reference, vco / reference, vco / out, model._pll_q())


@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.parametrize("name", BOARDS)
def test_a_boards_setting_is_in_the_registers(name: str, tmp_path: Path) -> None:
    board = BOARDS[name]
    tree = load_clock_tree(board.chip)
    hse = board.base * 1_000_000 if board.source == "hse" else None
    pll = ",".join(map(str, board.pll))
    offer = () if pll else (board.sysclk * 1_000_000,)
    plan = clock_plan(tree, hse, offer, board.source, pll=pll, dividers=board.dividers)
    assert {c.sysclk_hz for c in plan.configs} >= {board.sysclk * 1_000_000}
    machine = Machine(plan, build(plan, tmp_path))
    machine.call("eb_clock_init")
    machine.expect(plan.configs[-1].name)
    assert machine.model.source == ("hse" if not pll else PLL if isinstance(machine.model, RegisterModel) else "pll")
    if not pll:
        return
    source, (m, n, p, q) = decoded(machine.model)
    twice = 2 if (p, board.pll[2]) == (1, 2) else 1
    seen = (m, n * twice, p * twice) + ((q,) if len(board.pll) > 3 else ())
    assert source == board.source and seen == pytest.approx(board.pll)


def test_a_board_over_the_limit_of_its_bus() -> None:
    """nucleo_f446re has 48 MHz at APB1, whose limit is 45: here the bus has half of that."""
    plan = clock_plan(load_clock_tree("stm32f446"), 8_000_000, pll="8,384,4,8")
    assert (plan.configs[-1].sysclk_hz, plan.apb1, plan.apb2) == (96_000_000, 4, 2)
    with pytest.raises(EdgebuildError, match="APB1 would be 48 MHz at 96 MHz, above its limit"):
        clock_plan(load_clock_tree("stm32f446"), 8_000_000, pll="8,384,4,8", dividers="1,2,1")


@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.parametrize(
    ("chip", "base", "pll", "dividers", "fields", "apb1_hz"),
    [
        ("stm32f767", 8_000_000, "4,216,2", "2,4,8", (0b1000, 0b101, 0b110), 27_000_000),  # RM0410, RCC_CFGR
        ("stm32l552", 8_000_000, "2,55,2", "2,1,2", (0b1000, 0, 0b100), 55_000_000),  # RM0438; the AHB takes no step
    ],
)
def test_dividers_of_the_buses_are_in_the_registers(
    chip: str, base: int, pll: str, dividers: str, fields: tuple[int, ...], apb1_hz: int, tmp_path: Path
) -> None:
    plan = clock_plan(load_clock_tree(chip), base, pll=pll, dividers=dividers)
    probe = "uint32_t apb1(void); uint32_t apb1(void) { return eb_clock_apb1_hz(); }"
    machine = Machine(plan, build(plan, tmp_path, probe=probe))
    machine.call("eb_clock_init")
    machine.expect(plan.configs[-1].name)
    value = machine.model.values["RCC_CFGR"]
    spans = [plan.tree.registers.field("RCC_CFGR", name) for name in ("HPRE", "PPRE1", "PPRE2")]  # type: ignore[union-attr]
    assert tuple(value >> low & (1 << width) - 1 for low, width in spans) == fields
    machine.call("apb1")
    assert machine.returned() == apb1_hz == bus_clocks(plan, plan.configs[-1])[0]


@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.parametrize(
    ("chip", "source", "place", "before", "after"),  # headers of hal_stm32, fe7d2e2
    [
        ("stm32u575", "msi", "RCC_ICSCR1.MSISRANGE", 0, 4),  # 48 MHz; RCC_MSIRANGE_4 is 4 MHz
        ("stm32g071", "hsi", "RCC_CR.HSIDIV", 3, 0),  # HSI / 8
        ("stm32l072", "hsi", "RCC_CR.HSIDIVEN", 1, 0),
        ("stm32h743", "hsi", "RCC_CR.HSIDIV", 2, 0),
    ],
)
def test_an_oscillator_runs_at_its_clock_whatever_the_boot_loader_chose(
    chip: str, source: str, place: str, before: int, after: int, tmp_path: Path
) -> None:
    plan = clock_plan(load_clock_tree(chip), source=source)
    machine = Machine(plan, build(plan, tmp_path))
    register, _, name = place.partition(".")
    low, width = plan.tree.registers.field(register, name)  # type: ignore[union-attr]
    machine.model.values[register] |= before << low
    machine.call("eb_clock_init")
    machine.expect(plan.configs[-1].name)
    assert machine.model.values[register] >> low & (1 << width) - 1 == after


@pytest.mark.parametrize(
    ("chip", "dividers", "reason"),
    [
        ("stm32f767", "1,2", "'1,2' is not AHB,APB1,APB2"),
        ("stm32f767", "3,2,2", "'3,2,2' is not AHB,APB1,APB2"),
        ("stm32f072", "1,2,1", "one divider for both APBs"),
        ("esp32c3", "1,2,1", "the buses of esp32c3 have none to choose"),
    ],
)
def test_dividers_that_a_chip_does_not_have(chip: str, dividers: str, reason: str) -> None:
    with pytest.raises(EdgebuildError, match="option 'dividers': .*" + reason):
        clock_plan(load_clock_tree(chip), dividers=dividers)


@pytest.mark.needs("arm-none-eabi-gcc")
def test_the_crystal_past_the_pll(tmp_path: Path) -> None:
    """hifive1 runs at 16 MHz. FE310-G002 manual, chapter Clock Generation, pllcfg: pllsel, pllrefsel and pllbypass."""
    plan = clock_plan(load_clock_tree("fe310"), 16_000_000, (16_000_000, 320_000_000))
    machine = Machine(plan, build(plan, tmp_path))
    exercise(machine)
    machine.switch("16MHZ")
    assert [machine.model.values["PRCI_PLLCFG"] >> bit & 1 for bit in (16, 17, 18)] == [1, 1, 1]
    machine.switch("320MHZ")
    assert [machine.model.values["PRCI_PLLCFG"] >> bit & 1 for bit in (16, 17, 18)] == [1, 1, 0]


@pytest.mark.parametrize(
    ("chip", "pll", "reason"),
    [
        ("stm32f401", "8,336,2", "SYSCLK would be 168 MHz, above 84"),
        ("stm32f103", "1,5,2", "N is 5, not one of 4, 6, 8"),
        ("stm32g071", "1,16,2,9", "Q is 9, not one of 2, 3"),
        ("stm32f401", "8,336", "'8,336' is not M,N,P"),
    ],
)
def test_a_setting_that_is_not_legal(chip: str, pll: str, reason: str) -> None:
    with pytest.raises(EdgebuildError, match="option 'pll': .*" + reason):
        clock_plan(load_clock_tree(chip), 8_000_000, pll=pll)


@pytest.mark.parametrize("name", sorted(name for name, board in BOARDS.items() if not board.dividers))
def test_prescalers_are_those_of_the_board(name: str) -> None:
    """The largest clocks of the buses that the limits allow."""
    board = BOARDS[name]
    expected = {"stm32f103": (2, 1), "stm32f207": (4, 2), "stm32f334": (2, 1), "stm32f303xe": (2, 1),
                "stm32f303xc": (2, 1), "stm32f401": (2, 1), "stm32f411": (2, 1), "stm32f405": (4, 2),
                "stm32f722": (4, 2), "stm32f767": (4, 2), "stm32h723": (2, 2), "stm32h743v": (2, 2)}  # fmt: skip
    hse = board.base * 1_000_000 if board.source == "hse" else None
    pll = ",".join(map(str, board.pll))
    plan = clock_plan(
        load_clock_tree(board.chip), hse, () if pll else (board.sysclk * 1_000_000,), board.source, pll=pll
    )
    assert (plan.apb1, plan.apb2) == expected.get(board.chip, (1, 1))
