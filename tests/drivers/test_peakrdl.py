"""The generated SystemRDL in the hands of PeakRDL: IP-XACT, SystemVerilog and documentation of the chosen layout."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from math import prod
from pathlib import Path

import pytest

from edgebuild.base.request import DriverRequest
from edgebuild.driver.emit.products import register_map
from edgebuild.driver.pipeline import Driver, compile_driver
from tests.conftest import run
from tests.drivers.scenarios import GPIO, SPI

pytest.importorskip("peakrdl")


def make(folder: Path, source: Path, target: str = "pulpino") -> tuple[Driver, Path]:
    artifacts, driver = compile_driver(DriverRequest((source,), "n", target))
    file = folder / "n.rdl"
    file.write_bytes(next(a.data for a in artifacts if a.name == "n.rdl"))
    return driver, file


def peakrdl(*arguments: str | Path) -> str:
    return run(Path(sys.executable).with_name("peakrdl"), *arguments)


def fields(driver: Driver) -> set[tuple[int, str, int, int]]:
    """(address, field, lsb, width) of all fields of all devices, with every element of arrays."""

    def inside(group: str, base: int) -> Iterator[tuple[int, str, int, int]]:
        layout = driver.layout.groups[group]
        for r in layout.registers:
            places = (base + r.offset + i * r.stride for i in range(r.count))
            yield from ((at, s.name, s.lsb, s.width) for at in places for s in r.slots)
        for sub in layout.subs:
            for i in range(prod(sub.dims)):
                yield from inside(sub.group, base + sub.offset + i * sub.stride)

    return {f for d in driver.dialect.devices.values() for f in inside(d.group, d.address)}


@pytest.mark.parametrize("target", ["pulpino", "riscv-virt"])
@pytest.mark.parametrize("source", [GPIO, SPI])
def test_ip_xact_has_every_field_at_its_place(source: Path, target: str, tmp_path: Path) -> None:
    driver, rdl = make(tmp_path, source, target)
    peakrdl("ip-xact", rdl, "-o", tmp_path / "n.xml")
    described = set()

    def walk(element: ET.Element, base: int) -> None:
        for child in element:
            kind = child.tag.partition("}")[2]
            at = number(child, "baseAddress") or number(child, "addressOffset")
            if kind == "field":
                described.add((base, text(child, "name"), number(child, "bitOffset"), number(child, "bitWidth")))
            else:
                places = kind in ("addressBlock", "registerFile", "register")
                step = number(child, "range") or number(child, "size") // 8
                for i in range(number(child, "dim") or 1):  # of an array; its elements follow each other
                    walk(child, base + (at + i * step if places else 0))

    def text(element: ET.Element, tag: str) -> str:
        return next((c.text or "" for c in element if c.tag.endswith("}" + tag)), "")

    def number(element: ET.Element, tag: str) -> int:
        word = text(element, tag)
        return int(word[2:], 16) if word.startswith("'h") else int(word or 0)

    walk(ET.parse(tmp_path / "n.xml").getroot(), 0)
    assert described == fields(driver)


@pytest.mark.parametrize(("source", "device"), [(GPIO, "gpio"), (GPIO, "soc"), (SPI, "spi")])
def test_systemverilog_of_each_device(source: Path, device: str, tmp_path: Path) -> None:
    """One register block per type of device; its interface to the hardware has every field in its width."""
    driver, rdl = make(tmp_path, source)
    group = driver.dialect.devices[device].group
    peakrdl("regblock", rdl, "--top", group, "--cpuif", "apb3", "-o", tmp_path / "rtl")
    module = (tmp_path / "rtl" / f"{group}.sv").read_text()
    package = (tmp_path / "rtl" / f"{group}_pkg.sv").read_text()
    assert re.search(rf"^module {group}\b", module, re.M) and "s_apb" in module
    block = next(b for b in register_map("n", driver).blocks if b.name == device)
    inside = {f.name: f.width for r in block.registers for f in r.fields if "modify" not in (f.modified, f.read_action)}
    for element, width in inside.items():
        name = re.sub(r"(_\d+)+$", "", element)
        kind = rf"logic(?: \[{width - 1}:0\])?" if width > 1 else "logic"
        assert re.search(rf"{kind} (next|value);\s*}} \w*{name}\w*", package), name


def test_documentation(tmp_path: Path) -> None:
    driver, rdl = make(tmp_path, SPI)
    peakrdl("html", rdl, "-o", tmp_path / "html")
    assert (tmp_path / "html" / "index.html").is_file()
    nodes = [n for f in (tmp_path / "html" / "data").glob("*.json") for n in json.loads(f.read_text())]
    shown = {(f["name"], f["lsb"], f["msb"] - f["lsb"] + 1) for n in nodes for f in n.get("fields", ())}
    assert shown == {place[1:] for place in fields(driver)}
