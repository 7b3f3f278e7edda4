"""Cycles that are modelled: the tables against hand-counted code, and a run in the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.facts import read_facts
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import hal_dir, load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from edgebuild.model.verify.cycles import CycleTable, Instruction, block_cycles, model_of
from edgebuild.model.verify.traced import read_steps, read_trace

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"


def code(text: str) -> list[Instruction]:
    return [Instruction(*line.strip().partition(" ")[::2]) for line in text.strip().splitlines()]


def core(name: str) -> CycleTable:
    return read_facts(CycleTable, hal_dir() / "cycles" / f"{name}.yaml")


@pytest.mark.parametrize(
    ("name", "text", "cycles"),
    [
        ("cortex-m4", "adds r0, r1, r2\nsmlad r3, r4, r5, r3", 2),
        ("cortex-m4", "ldr r0, [r1]\nldr r2, [r3]\nadd r0, r2", 4),  # the second load pipelines
        ("cortex-m4", "str r0, [r1]\nldr r2, [r3]\nldr r4, [r5]", 4),  # nothing pipelines after a store
        ("cortex-m4", "ldr r0, [r1]\nldr r2, [r0]", 4),  # the second address is the first result
        ("cortex-m4", "ldrd r0, r1, [r2], #8", 3),
        ("cortex-m4", "push {r4, r5, r6, lr}", 5),
        ("cortex-m4", "vldmia r0!, {d8-d9}", 5),
        ("cortex-m4", "ldr r0, [r1]\nadd r2, r2, r0\nldr r3, [r1, #4]", 5),
        ("cortex-m3", "mla r0, r1, r2, r0\nsmlal r0, r1, r2, r3", 8),
        ("cortex-m0", "ldr r0, [r1]\nldr r2, [r1, #4]\nmuls r0, r2", 5),
        ("cortex-m0plus", "ldr r0, [r1]\nmuls r0, r2\nbl 0x20", 5),
        ("cortex-m33", "smlad r3, r4, r5, r3\nldrd r0, r1, [r2], #8", 4),
        ("cortex-m85", "vldrw.u32 q0, [r0], #16\nvmladava.s8 r2, q1, q3\nadds r3, r4, r5", 2),
        ("cortex-m7", "adds r0, r1, r2\nadds r3, r4, r5\nadds r6, r7, r0", 2),  # pairs
        ("cortex-m7", "adds r0, r1, r2\nadds r3, r0, r5", 2),  # depends
        ("cortex-m7", "ldr r0, [r1]\nadds r2, r0, #1", 3),  # waits for the load
        ("cortex-m55", "vldrw.u32 q0, [r0], #16\nvmladava.s8 r2, q1, q3", 2),  # units overlap
        ("cortex-m55", "vmladava.s8 r2, q0, q1\nvmladava.s8 r4, q0, q3", 3),  # one unit
        ("cortex-m55", "vqrdmulh.s32 q0, q0, q1\nvmladava.s8 r4, q2, q3", 3),  # products all
        ("cortex-m55", "vqrdmulh.s32 q0, q0, q1\nvadd.i32 q4, q2, q3", 2),
        ("cortex-m55", "vqmovnb.s32 q0, q0\nvqadd.s16 q0, q0, r4", 4),  # a result that is late
        ("cortex-m55", "vqmovnb.s32 q0, q1\nvqmovnt.s32 q0, q2", 4),  # half of the first result stays
        ("cortex-m55", "vldrb.u16 q0, [r0, q1]\nvldrb.u8 q2, [r1]", 9),  # eight addresses
        ("cortex-m55", "vadd.i32 q1, q1, q2\nvldrw.u32 q0, [r0, q1, uxtw #2]", 6),  # which are wanted early
        ("cortex-m55", "vld40.8 {q0, q1, q2, q3}, [r0]\nvmladava.s8 r2, q3, q4", 3),
        ("cortex-m55", "vmov q0[2], q0[0], r0, r4\nvmov q0[3], q0[1], r2, r6", 2),  # of two units
    ],
)
def test_code_by_hand(name: str, text: str, cycles: int) -> None:
    assert block_cycles(core(name), code(text)) == cycles


def test_trace_is_read_from_main_to_its_end() -> None:
    listing = b"0x00000010:  2001       movs     r0, #1\n0x00000012:  f000 f801  bl       #0x18\n"
    trace = [
        b"Trace 0: 0x7f [0/00000000/1/2] Reset_Handler\n",
        *listing.splitlines(keepends=True),
        b"Trace 0: 0x7f [0/00000010/1/2] main\n",
        b"0x00000018:  4770       bx       lr\n",
        b"Trace 0: 0x7f [0/00000018/1/2] model_invoke\n",
        b"Trace 0: 0x7f [0/00000016/1/2] eb_exit\n",
        b"Trace 0: 0x7f [0/00000010/1/2] main\n",
    ]
    names = {0x10: (2, "movs"), 0x12: (4, "bl"), 0x18: (2, "bx")}
    known = {at: (size, Instruction(name, "")) for at, (size, name) in names.items()}
    blocks, pairs = read_trace(trace, known)
    assert pairs == {(0x10, 0x18): 1} and blocks[0x10].end == 0x16


def test_a_trace_is_read_by_steps() -> None:
    """An interrupt and the counting itself belong to no step; the call of the counter belongs to the step before."""
    ticks = "SysTick_Handler"
    places = {
        0: "main",
        2: "model_invoke",
        4: "layer",
        6: "inner",
        8: "eb_layer",
        12: "eb_counter_read",
        14: ticks,
    }
    ran = [0, 2, 8, 12, 8, 2, 4, 6, 14, 6, 4, 2, 8, 12, 8, 2, 4, 2]
    trace = [f"Trace 0: 0x7f [0/{at:08x}/1/2] {places[at]}\n".encode() for at in ran]
    for at in places:
        trace.insert(trace.index(f"Trace 0: 0x7f [0/{at:08x}/1/2] {places[at]}\n".encode()),
                     f"0x{at:08x}:  4770       bx       lr\n".encode())  # fmt: skip
    blocks, steps = read_steps(trace, {at: (2, Instruction("bx", "lr")) for at in places})
    assert set(blocks) == set(places)
    assert steps == [{(2, 4): 1, (4, 6): 1, (6, 6): 1, (6, 4): 1, (4, 2): 1, (2, 8): 1}, {(2, 4): 1, (4, 2): 1}]


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("board", [None, "stm32f429"], ids=["no flash", "flash"])
def test_a_model_is_counted(board: str | None) -> None:
    target = load_target("mps2-an386")
    artifacts = compile_model(ModelRequest(DIGITS, "model", target.name))
    found = verify(DIGITS, target, artifacts, by_layer=True, by_cycles=True, flash_of=board)
    assert sum(step["cycles"] for step in found["layers"]) == pytest.approx(found["cycles"], rel=0.02)
    assert found["equal"] and found["cycles_model"].startswith("cortex-m4: ")
    assert found["instructions"] < found["cycles"] < 2 * found["instructions"]
    assert found.get("cycles_waited", 0) > 0 if board else "cycles_waited" not in found


def test_cores_without_a_table_are_named() -> None:
    with pytest.raises(EdgebuildError, match="no table of cycles"):
        model_of(load_target("riscv-virt"))
