"""Sources in the dialect as plain C and C++, and beside SystemC: what an editor or another compiler sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.request import DriverRequest
from edgebuild.base.target import hal_dir
from edgebuild.driver.pipeline import compile_driver
from tests.conftest import ROOT, run
from tests.drivers.scenarios import DRIVERS, GPIO, SPI

ADC = ROOT / "sample_projects" / "rp2040_fixed" / "adc.bf.c"
FLAGS = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", str(hal_dir() / "include"), "-I", str(DRIVERS)]
HEADERS = ['#include "pulpino_gpio.bf.h"\n', '#include "pulpino_spi.bf.h"\n']
MAIN = "int sc_main(int, char **) { sc_dt::uint64 wide = 1; return gpio && soc && spi ? int(wide) : 0; }\n"
NAMES = """#include "edgebuild_bf.h"
bfGroup Group { bit in, out, reg, rse_, self; FIELDS };
make_device(Group, device, 0x1000);
static int bit_of(int bit, unsigned uint32) { return device->in + bit + (int)uint32; }
int test(void) { int group = 1, field = 2, address = 3, name = 4; return bit_of(group + field, address + name); }
"""


@pytest.mark.needs("gcc", "g++", "clang")
@pytest.mark.parametrize("compiler", ["gcc -std=c11", "gcc -std=gnu17 -O2", "clang -std=c11", "g++ -x c++ -std=c++17"])
@pytest.mark.parametrize("source", [GPIO, SPI, ADC], ids=lambda s: s.stem)
def test_sources_are_valid_for_any_compiler(source: Path, compiler: str) -> None:
    run(*compiler.split(), *FLAGS, "-I", str(source.parent), source)


@pytest.mark.needs("gcc", "g++", "clang")
@pytest.mark.parametrize("compiler", ["gcc -std=c11", "clang -std=c11", "g++ -x c++ -std=c++17"])
def test_names_of_the_header_are_the_users_too(compiler: str, tmp_path: Path) -> None:
    own = "" if "c++" in compiler else "uint8 uint8; bit bit;"  # C++ itself forbids a member with its type's name
    (tmp_path / "names.c").write_text(NAMES.replace("FIELDS", own))
    run(*compiler.split(), *FLAGS, tmp_path / "names.c")


@pytest.mark.skipif("/" not in run("gcc", "-print-file-name=libsystemc.so"), reason="SystemC is not installed")
@pytest.mark.parametrize("systemc", ["#include <systemc>\n", "#include <systemc.h>\n"])
@pytest.mark.parametrize("first", [True, False])
def test_beside_systemc(systemc: str, first: bool, tmp_path: Path) -> None:
    (tmp_path / "x.cpp").write_text("".join([systemc, *HEADERS] if first else [*HEADERS, systemc]) + MAIN)
    run("g++", "-std=c++17", *FLAGS, tmp_path / "x.cpp")


def test_byte_order_marks_of_windows(tmp_path: Path) -> None:
    """Editors of Windows put one in front of a file, and compilers take it."""
    mark = b"\xef\xbb\xbf"
    (tmp_path / "led.h").write_bytes(mark + b"bfGroup Led { bit on; };\r\nmake_device(Led, led, 0x40000000);\r\n")
    (tmp_path / "blink.c").write_bytes(mark + b'#include "led.h"\r\nvoid f(void) { led->on = 1; }\r\n')
    artifacts, driver = compile_driver(DriverRequest((tmp_path / "blink.c",), "blink", "host"))
    assert list(driver.cdfg.functions) == ["f"] and not any(mark in a.data for a in artifacts)
