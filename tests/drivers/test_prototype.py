"""The samples through the project's own SConstruct, and the SystemC prototype beside a second model of the devices."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver
from tests.conftest import ROOT, run
from tests.drivers import prototype
from tests.drivers.machine import link
from tests.drivers.scenarios import DRIVERS, GPIO, SCENARIOS, SPI

pytestmark = [
    pytest.mark.needs("g++", "riscv64-unknown-elf-gcc", "arm-none-eabi-gcc"),
    pytest.mark.skipif("/" not in run("gcc", "-print-file-name=libsystemc.so"), reason="SystemC is not installed"),
]
START = """void g100(void); int s25(void);
void eb_exit(void) { for (;;); }
int run(void) { g100(); return s25(); }
__attribute__((naked)) void _start(void) { __asm__("li sp, 0x108000\\n call run\\n j eb_exit"); }
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout's files in another folder, with a `build` of its own in which the samples were made."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("SConstruct", "site_scons", "sample_projects", "hal", "tests", "edgebuild"):
        (folder / name).symlink_to(ROOT / name)
    output = scons(folder, "build/rp2040_fixed", "vp")
    assert "accesses, the same in SystemC and Python" in output
    assert (folder / "build/rp2040_fixed/adc.elf").stat().st_size > 1000
    return folder


def scons(folder: Path, *targets: str) -> str:
    return run(sys.executable, "-m", "SCons", *targets, cwd=folder, env={"PYTHONPATH": str(ROOT)})


def systemc(project: Path, elf: Path, trace: Path) -> tuple[list[str], str]:
    output = run(project / "build/pulpino_gpio_spi/prototype/prototype", elf, trace)
    return trace.read_text().splitlines(), output.splitlines()[-1]


def test_sample_reads_the_memory_behind_the_spi(project: Path, tmp_path: Path) -> None:
    folder = project / "build/pulpino_gpio_spi"
    lines, output = systemc(project, folder / "pulpino.elf", tmp_path / "trace")
    words = [0x9E3779B1 * address & 0xFFFFFFFF for address in (0, 4, 8, 12)]
    assert [int(line.split()[3], 16) for line in lines if line.startswith("r 1a10202c")] == words
    assert f"main returned {sum(words) & 0xFFFFFFFF:#x} " in output
    assert prototype.trace(folder, folder / "pulpino.elf") == (lines, sum(words) & 0xFFFFFFFF)


def test_products_are_those_of_the_command(project: Path) -> None:
    for name, source in (("gpio", GPIO), ("spi", SPI)):
        for a in compile_driver(DriverRequest((source,), name, "pulpino"))[0]:
            assert (project / "build/pulpino_gpio_spi/edgebuild" / name / a.name).read_bytes() == a.data, a.name


def test_scenarios_access_by_access(project: Path, tmp_path: Path) -> None:
    """G100 and S25 with devices that answer in time: interrupts by edge, and transfers that take their time."""
    folder = project / "build/pulpino_gpio_spi"
    (tmp_path / "start.c").write_text(START)
    products = [str(folder / "edgebuild" / n / f"{n}.c") for n in ("gpio", "spi")]
    sources = ["start.c", str(SCENARIOS), *products]
    elf = link(tmp_path, sources, flags=["-I", str(DRIVERS)], entry="_start")
    lines, _ = systemc(project, elf, tmp_path / "trace")
    mine, word = prototype.trace(folder, elf)
    assert lines == mine
    status = [line for line in lines if line.startswith("r 1a101300")]
    assert [line.split()[3] for line in status[:3]] == ["00000001", "00000000", "00000000"]  # one rise
    polls = [line for line in lines if line.startswith("r 1a102004")]
    assert len(polls) > 3 and polls[-1].endswith("00000001") and polls[0].endswith("00000000")
    assert word == 0x9E3779B1 * 0x10 & 0xFFFFFFFF


def test_an_access_that_no_device_takes_is_reported(project: Path, tmp_path: Path) -> None:
    (tmp_path / "start.c").write_text(
        "void eb_exit(void) { for (;;); }\n"
        'void _start(void) { *(volatile unsigned char *)0x1A101000 = 1; __asm__("j eb_exit"); }\n'
    )
    elf = link(tmp_path, ["start.c"], entry="_start")
    command = (project / "build/pulpino_gpio_spi/prototype/prototype", elf, tmp_path / "trace")
    assert "no 1 bytes at 0x1a101000" in run(*command, status=1)
