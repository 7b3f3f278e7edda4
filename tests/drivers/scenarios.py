"""G100 and S25 on both drivers: the originals over fixed registers and the generated ones."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgebuild.base.request import DriverRequest
from edgebuild.base.target import hal_dir
from edgebuild.build.papers import driver_bytes
from edgebuild.driver.pipeline import Driver, compile_driver
from edgebuild.driver.registers.regmap import Block, FieldInfo, RegisterInfo
from tests.drivers.machine import Machine, Model, link, models

HERE = Path(__file__).parent
DRIVERS = hal_dir() / "drivers"
SCENARIOS = DRIVERS / "pulpino_scenarios.c"
GPIO, SPI = DRIVERS / "pulpino_gpio.bf.c", DRIVERS / "pulpino_spi.bf.c"
KEYWORDS = set(
    """break case char const continue default do else enum extern for goto if inline int long register return short
    signed sizeof static struct switch typedef union unsigned void volatile while""".split()  # noqa: SIM905
)


def original_models() -> dict[str, Model]:
    def block(name: str, base: int, count: int) -> Model:
        registers = tuple(RegisterInfo(f"R{i}", 4 * i, 32, (FieldInfo(f"R{i}", 0, 32),)) for i in range(count))
        return Model(Block(name, base, registers), word_only=True)

    spi = block("spi", 0x1A102000, 11)
    views = (
        RegisterInfo("STATUS", 0, 32, (FieldInfo("STATUS", 0, 32, "r"),)),
        RegisterInfo("CMD", 0, 32, (FieldInfo("CMD", 0, 32, "w"),)),
    )
    spi.block = Block("spi", spi.block.base, (*views, *spi.block.registers[1:]))
    return {"gpio": block("gpio", 0x1A101000, 16), "spi": spi, "soc": block("soc", 0x1A107000, 1)}


@dataclass
class Pair:
    """A program with both drivers, and what is in it."""

    machine: Machine
    gpio_bytes: int
    spi_bytes: int
    drivers: dict[str, Driver]

    def run(self, scenario: str) -> tuple[int, int]:
        """(accesses, instructions) of g100 or s25."""
        for model in self.machine.models.values():
            model.trace.clear()
        self.machine.instructions = 0
        self.machine.call(scenario)
        return sum(len(m.trace) for m in self.machine.models.values()), self.machine.instructions


def original(folder: Path) -> Pair:
    folder.mkdir(parents=True, exist_ok=True)
    for source in (HERE / "originals" / "gpio.c", HERE / "originals" / "spi.c", SCENARIOS):
        shutil.copy(source, folder)
    devices = original_models()
    devices["spi"].values["STATUS"] = 0x00010001  # idle, one word received
    return _pair(folder, ["gpio.c"], ["spi.c"], devices, {})


def generated(folder: Path, target: str = "pulpino") -> Pair:
    folder.mkdir(parents=True, exist_ok=True)
    drivers: dict[str, Driver] = {}
    devices: dict[str, Model] = {}
    for name, source in (("gpio", GPIO), ("spi", SPI)):
        artifacts, drivers[name] = compile_driver(DriverRequest((source,), name, target))
        for a in artifacts:
            (folder / a.name).write_bytes(a.data)
        devices.update(models(drivers[name]))
    shutil.copy(SCENARIOS, folder)
    devices["spi"].values.update(state=1, rxCount=1)
    return _pair(folder, ["gpio.c"], ["spi.c"], devices, drivers)


def _pair(folder: Path, gpio: list[str], spi: list[str], devices: dict[str, Model], drivers: dict[str, Driver]) -> Pair:
    elf = link(folder, [*gpio, *spi, SCENARIOS.name], flags=["-I", str(DRIVERS)])
    sizes = driver_bytes(elf)
    return Pair(Machine(elf, devices), sizes["gpio"], sizes["spi"], drivers)


def lost_updates(pair: Pair, set_by_handler: Callable[[], None], kept: Callable[[], bool]) -> tuple[int, int]:
    """(lost, points): an interrupt before each instruction of G100 sets a pad; how often is that undone?"""
    _, points = pair.run("g100")
    lost = 0
    for point in range(points):
        for model in pair.machine.models.values():
            model.values.clear()

        def handler(at: int, point: int = point) -> None:
            if at == point:
                set_by_handler()

        pair.machine.before = handler
        pair.run("g100")
        lost += not kept()
    pair.machine.before = None
    return lost, points


def halstead(texts: list[str]) -> float:
    """Effort. Operators are C's keywords and punctuators, a pair of brackets being one; operands are all other words.

    Preprocessor lines and comments are dropped, macros not expanded.
    """
    text = "\n".join(re.sub(r"/\*.*?\*/", " ", t, flags=re.S) for t in texts)
    text = re.sub(r"//[^\n]*", " ", text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    words = re.findall(
        r"[A-Za-z_]\w*|0[xX][0-9a-fA-F]+|\d+|\"[^\"]*\"|<<=|>>=|->|\+\+|--|<<|>>|[<>=!&|+\-*/%^]=|&&|\|\||\S", text
    )
    words = [w for w in words if w not in ")]}"]
    operators = [w for w in words if w in KEYWORDS or not (w[0].isalnum() or w[0] in '_"')]
    operands = [w for w in words if not (w in KEYWORDS or not (w[0].isalnum() or w[0] in '_"'))]
    n1, n2, total = len(set(operators)), len(set(operands)), len(words)
    return n1 / 2 * len(operands) / n2 * total * math.log2(n1 + n2)
