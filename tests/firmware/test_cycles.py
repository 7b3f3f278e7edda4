"""Cycles that are modelled: the tables against hand-counted code, and a run in the simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.artifacts import publish
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.facts import read_facts
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import firmware_support, hal_dir, load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from edgebuild.model.verify.execution import (
    MARK,
    Block,
    CycleTable,
    Instruction,
    PipelineTable,
    block_cycles,
    execute,
    model_of,
    read_counts,
)
from edgebuild.model.verify.harness import Builder
from tests.graphs.onnx_models import OnnxFile

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
        ("cortex-m7", "ldmia r0!, {r1, r2}\nadds r3, r1, #1", 3),  # and for each register of a block
        ("cortex-m7", "ldmia r0!, {r1, r2}\nadds r0, #1", 2),  # the address is there earlier
        ("cortex-m7", "ldr r0, [r1]\nadds r0, #1", 3),  # which the sum changes
        ("cortex-m7", "ldr r0, [r1]\nsmlal r0, r2, r3, r4", 3),
        ("cortex-m7", "vldmia r0!, {s0-s2}\nvadd.f32 s4, s1, s5", 3),
        ("cortex-m7", "smull r0, r1, r2, r3\nstrd r0, r1, [r4]", 3),
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


def block(text: str, begin: int, first_bytes: int = 4) -> Block:
    instructions = code(text)
    return Block(tuple(instructions), begin, begin + 4 * len(instructions), first_bytes)


@pytest.mark.parametrize(
    ("text", "there", "cycles"),
    [
        ("add a0,a1,a2\nmul a3,a4,a5", 0x108, 2),
        ("lw a0,0(s1)\nadd a1,a0,a0", 0x108, 4),  # the load comes two cycles late
        ("lw a0,0(s1)\nadd a2,a3,a3\nadd a1,a0,a0", 0x10C, 4),  # of which a sum hides one
        ("lw a0,0(s1)\nsw a0,4(s1)", 0x108, 4),
        ("mul a0,a4,a5\nmul a1,a4,a5\nadd a2,a2,a0", 0x10C, 4),
        ("srai a0,a4,0x3\nadd a1,a0,a0", 0x108, 3),
        ("div a0,a4,a5\nadd a1,a2,a2", 0x108, 35),
        ("add a0,a0,-1\nbnez a0,100", 0x100, 3),  # a loop goes on
        ("add a0,a0,-1\nbnez a0,100", 0x108, 5),  # and ends
        ("nop\nbeq a4,a5,200", 0x108, 2),
        ("nop\nbeq a4,a5,200", 0x200, 5),
        ("nop\nbeq a4,a5,202", 0x202, 6),  # four bytes in the middle of a word
        ("nop\nj 200", 0x200, 3),
        ("nop\nret", 0x200, 5),
        ("nop\njalr a5", 0x200, 5),
        ("nop\nlw a0,0(s1)", 0x108, 4),  # the next block uses a0 at once
        ("lw a0,0(s1)\nj 200", 0x200, 3),  # the jump hides the wait
    ],
)
def test_risc_v_by_hand(text: str, there: int, cycles: int) -> None:
    """As counted on the RTL; the block behind it adds a0 up."""
    table = read_facts(PipelineTable, hal_dir() / "cycles" / "vexriscv-imac.yaml")
    assert table.block_to_block(block(text, 0x100), block("add a0,a0,a0\nret", there)) == cycles


def test_counts_of_the_plugin_are_read() -> None:
    """QEMU may translate an address twice; blocks outside of the program do not count."""
    text = "step 1 2 3\n1 2 5\nstep 0 4 0\n3 1 1\nblock 1 16 22\nblock 2 24 26\nblock 3 16 18\nblock 4 4096 4100\n"
    names = {0x10: (2, "movs"), 0x12: (4, "bl"), 0x18: (2, "bx")}
    run = read_counts(text, {at: (size, Instruction(name, "")) for at, (size, name) in names.items()})
    assert [step.pairs for step in run.steps] == [{(1, 2): 5}, {(3, 1): 1}]
    assert (run.steps[0].instruction_misses, run.steps[0].data_misses, run.steps[0].reloads) == (1, 2, 3)
    assert {n: [i.name for i in b.code] for n, b in run.blocks.items()} == {1: ["movs", "bl"], 2: ["bx"], 3: ["movs"]}


PROGRAM = """
#include "eb_firmware.h"
#include <stdint.h>
static uint8_t bytes[8192] __attribute__((aligned(4096)));
__attribute__((noinline)) void eb_layer(uint32_t line) { __asm__ volatile("" : : "r"(line)); }
int main(void)
{
    volatile uint32_t *const near = (uint32_t *)bytes, *const far = near + 1024; /* on one line of the cache */
    eb_layer(1);
    for (int i = 0; i < 100; ++i) { (void)near[0]; (void)near[1]; }
    eb_layer(2);
    for (int i = 0; i < 100; ++i) { (void)near[0]; (void)far[0]; }
    eb_layer(3);
    for (int i = 0; i < 100; ++i) { near[0] = 1; (void)near[0]; near[1] = 2; (void)near[0]; }
    eb_layer(0);
    eb_exit(0);
}
"""


@pytest.mark.needs("riscv64-unknown-elf-gcc", "qemu-system-riscv32", "gcc")
def test_lines_and_reloads_of_a_program(tmp_path: Path) -> None:
    target = load_target("vexriscv-model")
    (tmp_path / "main.c").write_text(PROGRAM)
    publish(firmware_support(target), tmp_path)
    (tmp_path / "model_memory.ld").write_text("")
    builder = Builder(target, tmp_path, needs_libm=False)
    elf = builder.program("main", [Path("main.c"), hal_dir() / "src/semihost.c"])
    _, near, far, stores, _ = execute(elf, target, model_of(target).caches, mark=MARK).steps
    assert near.data_misses <= 2 and stores.data_misses <= 2
    assert far.data_misses == pytest.approx(200, abs=4)
    assert (near.reloads, far.reloads, stores.reloads) == (0, 0, 100)


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("board", [None, "stm32f429"], ids=["no flash", "flash"])
def test_a_model_is_counted(board: str | None) -> None:
    target = load_target("mps2-an386")
    artifacts = compile_model(ModelRequest(DIGITS, "model", target.name))
    verdict = verify(DIGITS, target, artifacts, by_layer=True, by_cycles=True, flash_of=board)
    assert sum(step["cycles"] for step in verdict["layers"]) == pytest.approx(verdict["cycles"], rel=0.02)
    assert verdict["equal"] and verdict["cycles_model"].startswith("cortex-m4: ")
    assert verdict["instructions"] < verdict["cycles"] < 2 * verdict["instructions"]
    assert verdict.get("cycles_waited", 0) > 0 if board else "cycles_waited" not in verdict


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_branches_are_those_of_the_input(tmp_path: Path) -> None:
    """tanh takes a shorter way near 0, which values of an empty memory would all take."""
    file, model, target = OnnxFile(np.random.default_rng(0)), tmp_path / "tanh.onnx", load_target("mps2-an386")
    y = file.node("Tanh", [file.input((1, 256))], (1, 256))
    model.write_bytes(file.model([y]).SerializeToString())
    artifacts = compile_model(ModelRequest(model, "model", target.name))
    result = verify(model, target, artifacts, keep=tmp_path / "kept", by_cycles=True)
    assert (tmp_path / "kept" / "output.bin").stat().st_size > 5 * 256 * 4, "results stay in the kept folder"
    assert result["equal"] and result["instructions"] < result["cycles"] < 2 * result["instructions"]


def test_cores_without_a_table_are_named() -> None:
    with pytest.raises(EdgebuildError, match="no table of cycles"):
        model_of(load_target("riscv-virt"))
