"""Instructions in a better order: the same values in all registers, and no more waiting than before."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from edgebuild.model.kernels.blocks.two_in_one import MICROS, POOL, _rv_turn
from edgebuild.model.kernels.micro import LATE, LOADS, Instruction, in_order

FIXED = ("s0", "s1", "s2", "a0")
REGISTERS = ("t0", "t1", "t2", "t3")
NAMES = (*LOADS, "add", "sub", "mul", "mulh", "slli", "srai")


@st.composite
def straight(draw: st.DrawFn) -> tuple[Instruction, ...]:
    """Code in which at most as many temporaries are alive at once as there are registers."""
    code, alive = list[Instruction](), list[str]()
    for n in range(draw(st.integers(1, 30))):
        while len(alive) == len(REGISTERS) or (alive and draw(st.booleans())):
            code.append(("add", draw(st.sampled_from(FIXED)), alive.pop(0), draw(st.sampled_from(FIXED))))
        name, to = draw(st.sampled_from(NAMES)), draw(st.sampled_from((*FIXED, "%")))
        to = f"%{n}" if to == "%" else to
        of = [draw(st.sampled_from((*FIXED, *alive))) for _ in range(2)]
        operands: tuple[str | int, ...] = (n, of[0]) if name in LOADS else (of[0], n) if name[-1] == "i" else (*of,)
        code.append((name, to, *operands))
        alive += [to] if to[0] == "%" else []
    return (*code, *(("add", "s0", name, "s0") for name in alive))


def values(lines: tuple[str, ...]) -> dict[str, str]:
    """The expression that each fixed register holds in the end."""
    held = {r: r for r in (*FIXED, *REGISTERS, *POOL)}
    for line in lines:
        name, to, *of = re.findall(r"[%\w-]+", line)
        held[to] = str(hash((name, *(held.get(o, o) for o in of))))
    return {r: held[r] for r in FIXED}


def cycles(lines: tuple[str, ...]) -> int:
    """Of a pipeline that begins an instruction when its operands are there."""
    now, there = 0, dict[str, int]()
    for line in lines:
        name, to, *of = re.findall(r"[%\w-]+", line)
        now = max([now, *(there[o] for o in of if o in there)]) + 1
        there[to] = now + LATE.get(name, 0)
    return now


def as_given(code: tuple[Instruction, ...]) -> tuple[str, ...]:
    return tuple(" ".join(map(str, i)) for i in code)


@given(straight())
def test_registers_hold_the_same(code: tuple[Instruction, ...]) -> None:
    lines = in_order(code, REGISTERS)
    assert sorted(line.split()[0] for line in lines) == sorted(str(i[0]) for i in code)
    assert "%" not in "".join(lines)
    assert values(lines) == values(as_given(code))
    assert cycles(lines) <= cycles(as_given(code))


def test_products_do_not_wait() -> None:
    """Six sums of eight taps: an instruction a cycle, but for a few."""
    for m in (m for name, m in MICROS.items() if "rv32" in name and m.packs == "pixels"):
        lines = _rv_turn(m, (4, 4))
        assert cycles(lines) <= 1.03 * len(lines)
