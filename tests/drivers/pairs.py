"""Random pairs of a function and an interrupt handler, and what they may do wherever the interrupt comes.

The reference runs the source access by access, with the handler between any two of them that are in no section. The
generated code runs on an emulated core, with the handler between any two instructions. What it ends with must be
something that the source can end with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from unicorn.riscv_const import UC_RISCV_REG_A0, UC_RISCV_REG_MSTATUS, UC_RISCV_REG_PC, UC_RISCV_REG_RA, UC_RISCV_REG_SP

from tests.drivers.machine import RAM, STOP, Bench, build

FIELDS = "abcdef"
ENABLED = 8  # mstatus.MIE
State = dict[str, int]
Outcome = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Statement:
    """`kind`: store, copy, add, load (into a local), put (of a local), twice (two stores), section, if."""

    kind: str
    field: str = ""
    other: str = ""
    value: int = 0
    body: tuple[Statement, ...] = ()

    def c(self, g: str) -> str:
        f, o, v = f"{g}->{self.field}", f"{g}->{self.other}", self.value
        inner = " ".join(s.c(g) for s in self.body)
        return {
            "store": f"{f} = {v};",
            "copy": f"{f} = {o};",
            "add": f"{f} += {v};",
            "load": f"x{v} = {f};",
            "put": f"{f} = x{v};",
            "section": f"bf_critical {{ {inner} }}",
            "if": f"if ({f} == {v}) {{ {inner} }}",
        }[self.kind]

    def run(self, state: State, critical: bool) -> Iterator[bool]:
        """Yields in front of each access whether interrupts are off."""
        match self.kind:
            case "store":
                yield critical
                state[self.field] = self.value
            case "copy" | "add":
                yield critical
                value = state[self.other] if self.kind == "copy" else state[self.field] + self.value
                yield critical
                state[self.field] = value & 7
            case "load":
                yield critical
                state[f"x{self.value}"] = state[self.field]
            case "put":
                yield critical
                state[self.field] = state[f"x{self.value}"]
            case "section":
                yield critical  # still in front of it
                for s in self.body:
                    yield from s.run(state, True)
            case "if":
                yield critical
                if state[self.field] == self.value:
                    for s in self.body:
                        yield from s.run(state, critical)


@dataclass(frozen=True)
class Pair:
    number: int
    main: tuple[Statement, ...]
    handler: tuple[Statement, ...]
    start: tuple[int, ...]  # values of the fields

    def c(self) -> str:
        n, g = self.number, f"g{self.number}"
        fields = " ".join(f"uint3 {f};" for f in FIELDS)
        main, handler = (" ".join(s.c(g) for s in part) for part in (self.main, self.handler))
        return (
            f"bfGroup G{n} {{ {fields} }};\nmake_device(G{n}, {g}, {address(n):#x});\n"
            f"int t{n}(void) {{ unsigned x0 = 0, x1 = 0; {main} return (int)(x0 * 8 + x1); }}\n"
            f"bf_interrupt void isr{n}(void) {{ unsigned x0 = 0, x1 = 0; {handler} (void)x0; (void)x1; }}\n"
        )

    def initial(self) -> State:
        return {**dict(zip(FIELDS, self.start, strict=True)), "x0": 0, "x1": 0}

    def outcomes(self) -> set[Outcome]:
        """All that the source may end with; the handler runs once, or after the function."""
        outcomes, at = set(), 0
        while True:
            state, interrupted = self.initial(), False
            for i, critical in enumerate(x for s in self.main for x in s.run(state, False)):
                if i >= at and not interrupted and not critical:
                    self._interrupt(state)
                    interrupted = True
            if not interrupted:
                self._interrupt(state)
                return outcomes | {outcome(state)}
            outcomes.add(outcome(state))
            at += 1

    def _interrupt(self, state: State) -> None:
        mine = {**state, "x0": 0, "x1": 0}
        for s in self.handler:
            for _ in s.run(mine, False):
                pass
        state.update({f: mine[f] for f in FIELDS})


def outcome(state: State) -> Outcome:
    return tuple(sorted(state.items()))


def address(number: int) -> int:
    return 0x4000_0000 + 0x1000 * number


def pair(random: Random, number: int) -> Pair:
    """A pair that shares some fields; each of the two also has its own."""
    names = random.sample(FIELDS, 6)
    main = _body(random, names[:4], random.randint(2, 6), True)
    return Pair(
        number, main, _body(random, names[2:], random.randint(1, 4), False), tuple(random.choices(range(8), k=6))
    )


def _body(random: Random, names: list[str], count: int, sections: bool) -> tuple[Statement, ...]:
    kinds = ["store"] * 4 + ["copy", "copy", "add", "load", "load", "put"] + ["section", "if"] * sections
    statements = []
    for _ in range(count):
        kind = random.choice(kinds)
        inner = _body(random, names, random.randint(1, 3), False) if kind in ("section", "if") else ()
        value = random.randrange(2) if kind in ("load", "put") else random.randrange(1, 8)
        statements.append(Statement(kind, random.choice(names), random.choice(names), value, inner))
    return tuple(statements)


def lost(folder: Path, seed: int, count: int) -> list[str]:
    """The pairs that end as their source never does, as text."""
    random = Random(seed)
    pairs = [pair(random, n) for n in range(count)]
    target = random.choice(["pulpino", "riscv-virt"])
    head = '#pragma GCC diagnostic ignored "-Wunused-but-set-variable"\n'
    b = build(folder, head + "".join(p.c() for p in pairs), target=target, isa="rv32im")
    failures = []
    for p in pairs:
        expected = p.outcomes()
        for point, ended in enumerate(ends(b, p)):
            if ended not in expected:
                failures.append(f"{p.c()}at instruction {point} of t{p.number}: {ended}")
                break
    return failures


def ends(b: Bench, p: Pair) -> Iterator[Outcome]:
    """States at the end of the generated code, for an interrupt in front of each of its instructions."""
    machine, uc, model = b.machine, b.machine.uc, b.machine.models[f"g{p.number}"]
    start = machine.symbols[f"t{p.number}"][0]

    def step(at: int, count: int = 0) -> int:
        uc.emu_start(at, STOP, count=count)
        return int(uc.reg_read(UC_RISCV_REG_PC))

    for point in range(10_000):
        model.values.update(p.initial())
        model.trace.clear()
        uc.reg_write(UC_RISCV_REG_RA, STOP)
        uc.reg_write(UC_RISCV_REG_SP, RAM + 0x80000)
        uc.reg_write(UC_RISCV_REG_MSTATUS, ENABLED)
        at = step(start, point) if point else start
        if at != STOP and not uc.reg_read(UC_RISCV_REG_MSTATUS) & ENABLED:
            continue  # the interrupt waits for a later instruction
        context = uc.context_save()
        uc.reg_write(UC_RISCV_REG_RA, STOP)
        uc.reg_write(UC_RISCV_REG_SP, RAM + 0x40000)
        step(machine.symbols[f"isr{p.number}"][0])
        uc.context_restore(context)
        if at != STOP:
            step(at)
        result = int(uc.reg_read(UC_RISCV_REG_A0))
        state = {f: model.values[f] for f in FIELDS}
        yield outcome({**state, "x0": result >> 3 & 7, "x1": result & 7})
        if at == STOP:
            return
