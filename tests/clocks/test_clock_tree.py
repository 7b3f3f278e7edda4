"""Clock trees as data: all load, mistakes are reported where they stand, and what is unknown is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.target import hal_dir, load_target
from edgebuild.clock.configs import PowerModel, clock_plan
from edgebuild.clock.emit import clock_files, target_tree
from edgebuild.clock.tree import clock_names, load_clock_tree
from tests.clocks.register_model import HEADERS
from tests.clocks.trees import whole

COMPLETE = {"stm32f767", "stm32f429", "stm32f411"}


def changed(folder: Path, old: str, new: str) -> str:
    text = whole("stm32f767")
    assert text.count(old) >= 1
    file = folder / "tree.yaml"
    file.write_text(text.replace(old, new, 1))
    return str(file)


@pytest.mark.parametrize("name", clock_names())
def test_every_tree_loads_and_every_number_has_a_source(name: str) -> None:
    tree = load_clock_tree(name)
    assert tree.device == name
    blocks = (tree.hse, tree.pll, *tree.pll.vco, tree.regulator, tree.overdrive, tree.flash, tree.buses, tree.power)
    assert all(b.source for b in (*blocks, tree.timing, tree.registers) if b)
    assert len(clock_plan(tree).configs) > min(2, len(tree.offer_hz))


@pytest.mark.parametrize("name", sorted(COMPLETE))
def test_complete_trees_know_all_but_overdrive(name: str) -> None:
    tree = load_clock_tree(name)
    assert None not in (tree.flash, tree.buses, tree.power, tree.timing, tree.registers, tree.pll.vco[0].lock_us)
    assert load_target(name).clocks == name


def test_unknown_registers_are_refused() -> None:
    tree = replace(load_clock_tree("stm32h743"), registers=None)
    with pytest.raises(EdgebuildError, match="registers are unknown, so there is no code"):
        clock_files(clock_plan(tree))


@pytest.mark.parametrize("name", clock_names())
def test_addresses_and_bits_are_those_of_the_vendors_headers(name: str) -> None:
    registers = load_clock_tree(name).registers
    assert registers
    headers = HEADERS[name]["registers"]
    for register, (address, fields) in headers.items():
        assert registers.map[register].address == address, register
        assert {f: list(registers.map[register].fields[f]) for f in fields} == fields, register
    assert registers.map.keys() == headers.keys()


def test_unknown_currents_refuse_energy() -> None:
    with pytest.raises(EdgebuildError, match="currents are unknown, so energy cannot be modelled"):
        PowerModel(clock_plan(load_clock_tree("stm32l4x6")), "flash")


def test_unknown_placement_is_refused() -> None:
    with pytest.raises(EdgebuildError, match=r"no currents for code in 'itmc'; did you mean 'itcm'\?"):
        PowerModel(clock_plan(load_clock_tree("stm32f767")), "itmc")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hsi_hz: 16MHz", "hsi_hz: fast", "tree.yaml:1:9: error: expected a whole number, not 'fast'"),
        ("default_bypass: true", "default_bypass: maybe", "expected true or false"),
        ("regulator:", "regulators:", "unknown key 'regulators'; did you mean 'regulator'?"),
        ("m: [2, 63]", "m: [2, 63, 64]", "expected 2 values, not 3"),
        ("m: [2, 63]", "m: [63, 2]", "runs downwards"),
        ("m: [2, 63]", "m: unknown", "this fact cannot be unknown"),
        ("hsi_hz: 16MHz\n", "", "missing key 'hsi_hz'"),
        ("flash: 2.7-3.6V", "flash: 2.7-3.7V", "no wait states for '2.7-3.7V'; did you mean '2.7-3.6V'?"),
        ("accelerator: [PRFTEN", "accelerator: [PREFETCH", "FLASH_ACR has no field 'PREFETCH'"),
        ("select: {hsi: 0", "select: {lsi: 0", "the values for hsi, hse and pll are right"),
        ("PLLM: m", "PLLX: m", "RCC_PLLCFGR has no field 'PLLX'"),
        ("PLLM: m", "PLLM: m + x", "'x'"),
        ("PWR_CR.VOS = vos", "PWR_CR.VOX = vos", "PWR_CR has no field 'VOX'; did you mean 'VOS'?"),
        ("PWR_CR.VOS = vos", "PWR_CRX.VOS = vos", "is of no register of the map"),
        ("PWR_CR.VOS = vos", "wait for VOS", "is no step"),
        ("device: stm32f767", "device: [", "not YAML"),
        ("device: stm32f767", "device: a\ndevice: b", "key 'device' is given twice"),
    ],
)
def test_a_mistake_is_reported_where_it_is(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(EdgebuildError) as caught:
        load_clock_tree(changed(tmp_path, old, new))
    assert message in str(caught.value)
    assert "tree.yaml" in str(caught.value)


def test_lower_supply_voltage_means_more_wait_states(tmp_path: Path) -> None:
    text = whole("stm32f767").replace("flash: 2.7-3.6V}", "flash: 2.1-2.4V}")
    (tmp_path / "low.yaml").write_text(text)
    low, normal = clock_plan(load_clock_tree(str(tmp_path / "low.yaml"))), clock_plan(load_clock_tree("stm32f767"))
    assert low.config("216MHZ").wait_states == 9
    assert normal.config("216MHZ").wait_states == 7


def test_a_tree_beside_the_target(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(whole("stm32f411"))
    board = (hal_dir() / "targets" / "stm32f411.yaml").read_text()
    (tmp_path / "board.yaml").write_text(board.replace("clocks: stm32f411", "clocks: mine.yaml"))
    assert load_clock_tree(load_target(str(tmp_path / "board.yaml")).clocks).device == "stm32f411"


def test_an_unknown_tree_is_reported_where_a_target_names_it(tmp_path: Path) -> None:
    """In the target's own file, or in that of the parent that says it."""
    parent, child = tmp_path / "board.yaml", tmp_path / "child.yaml"
    text = (hal_dir() / "targets" / "stm32f767.yaml").read_text()
    parent.write_text(text.replace("clocks: stm32f767", "clocks: stm32f776"))
    child.write_text("inherits: board\ndescription: another\n")
    line = next(n for n, row in enumerate(parent.read_text().splitlines(), 1) if row.startswith("clocks:"))
    for file in (parent, child):
        with pytest.raises(EdgebuildError, match=rf"board\.yaml:{line}:9: error: unknown clock tree .* 'stm32f767'"):
            target_tree(load_target(str(file)))
