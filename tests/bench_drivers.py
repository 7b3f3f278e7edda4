"""`python -m tests.bench_drivers`: the generated PULPino drivers beside the originals and the thesis' figures.

Counts are taken from programs that run on an emulated RV32IM core, sizes from the linked program (-Os). The thesis is
R. Stahl's, chapter 6, table 6.2; its run times are cycles of another simulator, so only ratios compare.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from edgebuild.driver.pipeline import Driver
from tests.drivers import fixed7, large, silicon
from tests.drivers.scenarios import DRIVERS, GPIO, HERE, SPI, Pair, generated, halstead, lost_updates, original

ROOT = Path(__file__).parents[1]
# original and optimised in the thesis, and the bar that this project has set itself
THESIS = {
    "g100_accesses": (100, 62, 62),
    "s25_accesses": (25, 18, 18),
    "gpio_bytes": (448, 276, 276),
    "spi_bytes": (728, 640, 640),
    "both_bytes": (1176, 916, 916),
    "gpio_map_word": (64, 840, 840),
    "gpio_map_byte": (64, None, 300),
    "spi_map": (40, 68, 68),
    "gpio_halstead": (115_000, 17_000, 18_000),
    "spi_halstead": (142_000, 141_000, None),
    "g100_instructions": (639, 257, None),
    "s25_instructions": (557, 318, None),
    "g100_lost_updates": (None, None, 0),
}


def device_bytes(driver: Driver, name: str) -> int:
    return driver.layout.groups[driver.dialect.devices[name].group].size


def texts(source: Path) -> list[str]:
    stem = source.name.removesuffix(".bf.c")
    return [(DRIVERS / f"{stem}.bf.h").read_text(), source.read_text()]


def sweeps(before: Pair, after: Pair) -> tuple[tuple[int, int], tuple[int, int]]:
    def old_set() -> None:
        values = before.machine.models["gpio"].values
        values["R2"] = values.get("R2", 0) | 1 << 31

    def new_set() -> None:
        after.machine.models["gpio"].values["pads_31_out"] = 1

    first = lost_updates(before, old_set, lambda: bool(before.machine.models["gpio"].values.get("R2", 0) >> 31))
    return first, lost_updates(after, new_set, lambda: after.machine.models["gpio"].values.get("pads_31_out", 0) == 1)


def measure(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(original, generated)."""
    old, new, byte = original(folder / "o"), generated(folder / "w"), generated(folder / "b", "riscv-virt")
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for pair, row in ((old, before), (new, after)):
        row["g100_accesses"], row["g100_instructions"] = pair.run("g100")
        row["s25_accesses"], row["s25_instructions"] = pair.run("s25")
        row["gpio_bytes"], row["spi_bytes"] = pair.gpio_bytes, pair.spi_bytes
        row["both_bytes"] = pair.gpio_bytes + pair.spi_bytes
    before.update(gpio_map_word=64, gpio_map_byte=64, spi_map=40)
    after["gpio_map_word"] = device_bytes(new.drivers["gpio"], "gpio")
    after["gpio_map_byte"] = device_bytes(byte.drivers["gpio"], "gpio")
    after["pad_function_map_word"] = device_bytes(new.drivers["gpio"], "soc")
    after["pad_function_map_byte"] = device_bytes(byte.drivers["gpio"], "soc")
    after["spi_map"] = device_bytes(new.drivers["spi"], "spi")
    headers = {n: (DRIVERS / f"pulpino_{n}.h").read_text() for n in ("gpio", "spi")}
    for n, source in (("gpio", GPIO), ("spi", SPI)):
        before[f"{n}_halstead"] = round(halstead([headers[n], (HERE / "originals" / f"{n}.c").read_text()]))
        after[f"{n}_halstead"] = round(halstead(texts(source)))
    (lost, points), (lost_now, points_now) = sweeps(old, new)
    before.update(g100_lost_updates=lost, g100_interrupt_points=points)
    after.update(g100_lost_updates=lost_now, g100_interrupt_points=points_now)
    return before, after


def silicon_table(folder: Path) -> dict[str, tuple[int, int]]:
    """Accesses of drivers of real peripherals, (by hand, generated); raises where a model does."""
    table = {}
    for part in silicon.PARTS:
        if part.present:
            hand, now = silicon.compare(part, folder / part.name.replace(" ", "_"))
            table[part.name] = (hand.accesses, now.accesses)
    return table


def main() -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        before, after = measure(Path(name))
        fixed = fixed7.measure(Path(name))
        cost = large.measure(Path(name))
        parts = silicon_table(Path(name) / "silicon")
    print(
        f"{'':22} {'original':>9} {'generated':>9} {'change':>7}   "
        f"{'thesis: original':>16} {'optimised':>9}   {'bar':>6}"
    )
    for key in [*THESIS, *(k for k in after if k not in THESIS)]:
        o, g = before.get(key), after[key]
        thesis = THESIS.get(key, (None, None, None))
        change = f"{100 * (g - o) / o:+.0f} %" if o else ""
        print(
            f"{key:22} {_n(o):>9} {_n(g):>9} {change:>7}   {_n(thesis[0]):>16} {_n(thesis[1]):>9}   {_n(thesis[2]):>6}"
        )
    for key, value in fixed.items():
        print(f"{key:32} {value:>6}")
    for key, figure in cost.items():
        print(f"{key:32} {figure:>6}" + ("   bar: 5" if key.endswith("ratio") else ""))
    print(f"\n{'silicon: accesses':22} {'by hand':>9} {'generated':>9}")
    for key, (by_hand, now) in parts.items():
        print(f"{key:22} {by_hand:>9} {now:>9}")
    for n in ("g100", "s25"):
        after[f"{n}_instructions_saved_percent"] = round(
            100 - 100 * after[f"{n}_instructions"] / before[f"{n}_instructions"], 1
        )
    file = ROOT / "build" / "bench" / "drivers.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        json.dumps({**after, **fixed, **cost, "silicon": parts, "original": before, "thesis": THESIS}, indent=1) + "\n"
    )
    print(f"{file.relative_to(ROOT)} ({time.monotonic() - began:.0f} s)")


def _n(value: object) -> str:
    return "" if value is None else str(value)


if __name__ == "__main__":
    main()
