"""Targets: what ships loads, and every mistake in a file is told at its place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.facts import Rate, Size, read_facts
from edgebuild.base.target import Memory, describe, firmware_support, hal_dir, link_flags, load_target, target_names

PROMISED = ["host", "microbit", "mps2-an385", "mps2-an386", "mps2-an500", "mps3-an547", "pulpino", "riscv-virt"]

GOOD = """\
description: a board
core: {isa: armv7-m, features: [dsp]}
memories:
  FLASH: {origin: 0x08000000, size: 1M, roles: [code, weights]}
  RAM: {origin: 0x20000000, size: 64K, roles: [stack, data, arena]}
toolchain: {prefix: arm-none-eabi-, cc: gcc}
"""


def problem(tmp_path: Path, text: str) -> str:
    """The message for a target file with this text, its folder removed."""
    file = tmp_path / "board.yaml"
    file.write_text(text)
    with pytest.raises(EdgebuildError) as caught:
        load_target(str(file))
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_all_promised_targets_are_listed() -> None:
    assert {*PROMISED, "stm32f767"} <= set(target_names())
    assert not {"cortex-m", "cortex-m4", "riscv32"} & set(target_names())


@pytest.mark.parametrize("name", target_names())
def test_every_listed_target_loads_and_names_files_that_exist(name: str) -> None:
    target = load_target(name)
    assert target.name == name
    assert all(Path(file).is_file() for file in target.files)
    firmware, runner = target.firmware, target.runner
    paths = [*(firmware.startup if firmware else ()), *([firmware.linker] if firmware else [])]
    paths += runner.sources if runner else ()
    assert all((hal_dir() / path).is_file() for path in paths)
    assert runner is None or "{elf}" in runner.command


def test_a_board_inherits_from_its_core_and_that_from_its_family() -> None:
    target = load_target("mps2-an386")
    assert [Path(file).stem for file in target.files] == ["mps2-an386", "cortex-m4", "cortex-m"]
    assert target.core.features == ("dsp", "fpu")
    assert {"-mcpu=cortex-m4", "-O2"} <= set(target.toolchain.cflags)
    assert {"-mcpu=cortex-m4", "-nostdlib"} <= set(target.toolchain.ldflags)
    assert target.memory("arena") == Memory("RAM", 0x20000000, 4 << 20, ("stack", "data", "arena"))


def test_a_file_of_the_user_inherits_from_a_shipped_target(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("inherits: mps2-an386\nmemories: {RAM: {size: 32K}}\ntoolchain: {cflags: [-O3]}\n")
    target = load_target(str(file))
    assert (target.name, target.memory("arena").size, target.memory("arena").origin) == ("mine", 32768, 0x20000000)
    assert [f for f in target.toolchain.cflags if f.startswith("-O")] == ["-O3"], "lists replace"
    assert target.runner == load_target("mps2-an386").runner


def test_sizes_are_numbers_with_a_unit_or_hexadecimal(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    for text, value in [
        ("4096", 4096),
        ("0x1_000", 4096),
        ("4K", 4096),
        ("2M", 2 << 20),
        ("64KB", 65536),
        ("4KiB", 4096),
    ]:
        file.write_text(GOOD.replace("64K", text))
        assert load_target(str(file)).memory("arena").size == value


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("memories:", "memorys:", "board.yaml:3:1: error: unknown key 'memorys'; did you mean 'memories'?"),
        ("size: 64K", "sise: 64K", "board.yaml:5:29: error: unknown key 'sise'; did you mean 'size'?"),
        ("size: 64K, ", "", "board.yaml:5:8: error: missing key 'size'"),
        ("64K", "64Q", "board.yaml:5:35: error: expected a number, not '64Q'"),
        ("64K", "[1]", "board.yaml:5:35: error: expected a number, not a map or list"),
        ("[dsp]", "[dps]", "board.yaml:2:33: error: unknown word 'dps'; did you mean 'dsp'?"),
        ("[dsp]", "dsp", "board.yaml:2:32: error: expected a list [a, b], not 'dsp'"),
        ("a board", "7", "board.yaml:1:14: error: expected text, not '7'"),
        ("{isa: armv7-m, features: [dsp]}", "armv7-m", "board.yaml:2:7: error: expected a map (key: value), not '"),
        ("data, arena", "data", "board.yaml:4:3: error: no memory has the role 'arena'"),
        ("0x20000000", "0x08000004", "board.yaml:5:8: error: memory RAM begins inside of FLASH"),
        ("  RAM:", "  FLASH:", "board.yaml:5:3: error: key 'FLASH' is given twice"),
        ("  RAM:", "  RAM 1:", "board.yaml:5:10: error: memory name 'RAM 1' is no name for a linker region"),
        ("description", "inherits: cortex-m9\ndescription", "board.yaml:1:11: error: unknown parent 'cortex-m9'"),
        ("description", "inherits: board\ndescription", "board.yaml:1:11: error: 'board' inherits from itself"),
        ("description", "abstract: maybe\ndescription", "board.yaml:1:11: error: expected true or false"),
        ("description", "abstract: yes\ndescription", "board.yaml:1:11: error: 'board' is only a parent"),
        ("core: {", "core: {{", "board.yaml:"),
    ],
)
def test_a_mistake_is_refused_at_its_line_and_column(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    assert problem(tmp_path, GOOD.replace(old, new, 1)).startswith(message)


def test_a_mistake_in_a_parent_is_refused_in_the_parents_file(tmp_path: Path) -> None:
    (tmp_path / "family.yaml").write_text("abstract: true\n" + GOOD.replace("origin", "orgin", 1))
    assert problem(tmp_path, "inherits: family\n").startswith("family.yaml:5:11: error: unknown key 'orgin'")


FAMILY = (
    GOOD.replace("size: 64K, ", "")
    + "parts:\n  small: {memories: {RAM: {size: 4K}}}\n  large: {memories: {RAM: {size: 8K}}}\n"
)


def test_a_part_of_a_family_states_what_the_rest_of_the_file_does_not(tmp_path: Path) -> None:
    (tmp_path / "family.yaml").write_text(FAMILY)
    (tmp_path / "mine.yaml").write_text("inherits: large\ndescription: mine\n")
    target = load_target(str(tmp_path / "mine.yaml"))
    assert target.memory("arena").size == 8192
    assert [Path(f).name for f in target.files] == ["mine.yaml", "family.yaml"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FAMILY, "board.yaml:8:3: error: 'board' is a family, of which one part can be named"),
        ("inherits: board\n" + GOOD, "board.yaml:1:11: error: 'board' inherits from itself"),
        ("inherits: nordic\n", "board.yaml:1:11: error: 'nordic' is a family"),
        (GOOD + "parts: {a: 7}\n", "board.yaml:"),
    ],
)
def test_a_family_is_no_target_and_no_parent(tmp_path: Path, text: str, message: str) -> None:
    assert problem(tmp_path, text).startswith(message)


def test_a_mistake_in_a_part_is_refused_in_its_line(tmp_path: Path) -> None:
    (tmp_path / "family.yaml").write_text(FAMILY.replace("RAM: {size: 8K}", "RAM: {sise: 8K}"))
    assert problem(tmp_path, "inherits: large\n").startswith("family.yaml:9:28: error: unknown key 'sise'")
    (tmp_path / "family.yaml").write_text(FAMILY.replace("{memories: {RAM: {size: 8K}}}", "8K"))
    assert problem(tmp_path, "inherits: large\n").startswith("family.yaml:9:10: error: a part is a map of keys")


def test_what_is_no_map_or_no_yaml_is_refused(tmp_path: Path) -> None:
    assert "expected a map of keys" in problem(tmp_path, "- a\n- b\n")
    assert "expected a map of keys" in problem(tmp_path, "")
    assert problem(tmp_path, "a: [1\n").startswith("board.yaml:2:1: error: not YAML")


@pytest.mark.parametrize("at", ["0x402", "0", "0x1C", "0x28"])
def test_boot_words_that_nothing_would_read(at: str, tmp_path: Path) -> None:
    text = f"inherits: lpc1768\nfirmware: {{boot: [{{at: {at}, words: [1, 2]}}]}}\n"
    assert re.match(
        r"board\.yaml:2:19: error: (boot words have 32 bits|of the first 16 vectors)", problem(tmp_path, text)
    )


def test_a_mistyped_name_lists_the_right_ones() -> None:
    with pytest.raises(EdgebuildError, match=r"unknown target 'mps2-an368'; did you mean 'mps2-an38[56]'\?"):
        load_target("mps2-an368")
    with pytest.raises(EdgebuildError, match="no such target file"):
        load_target("boards/none.yaml")


def test_build_systems_get_regions_before_fragments_and_the_main_script_as_gccs_own_option() -> None:
    target = load_target("stm32f767")
    (script,) = firmware_support(target)
    assert script.name == "stm32f767_regions.ld"
    assert b"SRAM1 : ORIGIN = 0x20020000, LENGTH = 0x5c000" in script.data
    assert b'REGION_ALIAS("EB_ARENA", DTCM)' in script.data
    flags = link_flags(target, ("gen/kws_memory.ld",), "gen/")
    assert flags[-2:] == ("-Wl,-T,gen/stm32f767_regions.ld", "-Wl,-T,gen/kws_memory.ld")
    assert any(flag.startswith("-T") and flag.endswith("link/firmware.ld") for flag in flags)
    assert firmware_support(load_target("host")) == ()
    assert describe(target)["compiler"] == "arm-none-eabi-gcc"


@dataclass(frozen=True)
class Numbers:
    """A number of each kind that fact files have."""

    whole: int = 0
    real: float = 0.0
    size: Size = 0
    rate: Rate = 0.0


@pytest.mark.parametrize(
    "text", ["_", "1_", "1__0", "0x_", "_.5", "nan", ".inf", "1e99", "1e999MHz", "9" * 5000, "-1x"]
)
@pytest.mark.parametrize("key", ["whole", "real", "size", "rate"])
def test_what_is_no_number_of_a_chip(key: str, text: str, tmp_path: Path) -> None:
    """Tracebacks once, or infinity; a frame of 1e99 bytes."""
    file = tmp_path / "facts.yaml"
    file.write_text(f"{key}: {text}\n")
    with pytest.raises(EdgebuildError, match=rf"{file}:1:\d+: error: (expected a |the number is too large)"):
        read_facts(Numbers, file)


def test_numbers_of_a_chip(tmp_path: Path) -> None:
    file = tmp_path / "facts.yaml"
    file.write_text("{whole: 0xFFFF_0000, real: 1_000.5MHz, size: 1_0K, rate: .5}\n")
    assert read_facts(Numbers, file) == Numbers(0xFFFF0000, 1000.5e6, 10240, 0.5)
