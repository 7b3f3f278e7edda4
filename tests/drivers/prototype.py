"""The devices of the SystemC prototype once more, in Python: `python -m tests.drivers.prototype FOLDER TRACE`.

FOLDER is where the sample was built: its program runs under unicorn against register models made from the generated SVD
files. TRACE is what the prototype wrote. Both must hold the same accesses: kind, address, width, value.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Generator
from itertools import zip_longest
from pathlib import Path

from edgebuild.driver.registers.svd import read_svd
from tests.drivers.machine import Access, Machine, Model

DEPTH, IDLE, READ, RESET = 8, 1, 1, 16


class Pads:
    """Every pad hears its own output; an edge or a level that is asked for sets the pad's bit of the status."""

    def __init__(self, model: Model) -> None:
        self.values, self.before = model.values, dict.fromkeys(range(32), 0)

    def accessed(self, access: Access) -> None:
        for name in access.fields:
            if access.kind == "r" and name == "intStatus":
                self.values[name] = 0
            elif access.kind == "w" and name.endswith("_out"):
                self._drive(int(name.split("_")[1]))

    def _drive(self, pad: int) -> None:
        old, new = self.before[pad], self.values[f"pads_{pad}_out"]
        self.before[pad] = self.values[f"pads_{pad}_in"] = new
        fires = (new, not new, new and not old, old and not new)[self.values.get(f"pads_{pad}_intType", 0)]
        if fires and self.values.get(f"pads_{pad}_intEn", 0):
            self.values["intStatus"] = self.values.get("intStatus", 0) | 1 << pad


class Spi:
    """The SPI master with a memory at its other end. `tick` is told of every instruction, which takes one cycle.

    A transfer is a generator: it yields for how many cycles it is busy, or the event that it waits for.
    """

    def __init__(self, model: Model) -> None:
        self.values = model.values
        self.tx: deque[int] = deque()
        self.rx: deque[int] = deque()
        self.work = self._transfers()
        self.waits_for: str | int = next(self.work)
        self.now = self.due = 0
        self.values["state"] = IDLE

    def _get(self, name: str) -> int:
        return self.values.get(name, 0)

    def tick(self, instruction: int) -> None:
        self.now = instruction + 1
        while isinstance(self.waits_for, int) and self.due < self.now:
            self._resume()

    def accessed(self, access: Access) -> None:
        if access.kind == "w" and "start" in access.fields:
            if self._get("start") & RESET:
                self.tx.clear()
                self.rx.clear()
            elif self._get("state") == IDLE:
                self.values["state"] = 0
                self._event("begun")
        elif access.kind == "w" and "txFifo" in access.fields and len(self.tx) < DEPTH:
            self.tx.append(self._get("txFifo"))
            self._event("pushed")
        elif access.kind == "r" and "rxFifo" in access.fields and self.rx:
            self.rx.popleft()
            self._event("popped")
        self._count()

    def _event(self, name: str) -> None:
        if self.waits_for == name:
            self.due = self.now
            self._resume()

    def _resume(self) -> None:
        self.waits_for = next(self.work)
        if isinstance(self.waits_for, int):
            self.due += self.waits_for

    def _count(self) -> None:
        self.values.update(txCount=len(self.tx), rxCount=len(self.rx), rxFifo=self.rx[0] if self.rx else 0)

    def _transfers(self) -> Generator[str | int, None, None]:
        while True:
            yield "begun"
            reads, clock = bool(self._get("start") & READ), self._get("clkDiv") + 1
            length, left = self._get("addrLen"), self._get("dataLen")
            address = self._get("addr") >> (32 - length) if length else 0
            yield clock * (self._get("cmdLen") + length + self._get("dummyRd" if reads else "dummyWr"))
            while left > 0:
                bits = min(left, 32)
                left -= bits
                while not reads and not self.tx:
                    yield "pushed"
                yield clock * bits
                while reads and len(self.rx) == DEPTH:
                    yield "popped"
                if reads:
                    self.rx.append(0x9E3779B1 * address & 0xFFFFFFFF)
                elif self.tx:
                    self.tx.popleft()
                self._count()
                address += 4
            self.values["state"] = IDLE


def trace(folder: Path, elf: Path) -> tuple[list[str], int]:
    """The accesses of a program, one line each, and what its main returns. `folder` has the drivers' products."""
    lines: list[str] = []
    blocks = [b for n in ("gpio", "spi") for b in read_svd(folder / "edgebuild" / n / f"{n}.svd").blocks]
    models = {b.name: Model(b, word_only=True) for b in blocks}
    pads, spi = Pads(models["gpio"]), Spi(models["spi"])
    devices = {"gpio": pads.accessed, "spi": spi.accessed}

    def observe(access: Access) -> None:
        address = models[access.device].block.base + access.offset
        lines.append(f"{access.kind} {address:08x} {access.size} {access.value:08x}")
        if access.device in devices:
            devices[access.device](access)

    for model in models.values():
        model.observer = observe
    machine = Machine(elf, models, before=spi.tick)
    result = machine.call("_start", until=machine.symbols["eb_exit"][0])
    return lines, result & 0xFFFFFFFF


def main(folder: Path, other: Path) -> str | None:
    """None if the traces agree, else the first access in which they do not."""
    mine, _ = trace(folder, folder / "pulpino.elf")
    theirs = other.read_text().splitlines()
    for i, (a, b) in enumerate(zip_longest(mine, theirs, fillvalue="nothing")):
        if a != b:
            return f"access {i}: {a} in Python, {b} in SystemC"
    print(f"{len(mine)} accesses, the same in SystemC and Python")
    return None


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
