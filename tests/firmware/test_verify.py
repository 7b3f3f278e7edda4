"""`verify` on every target that can run: a model by hand, whose outputs, costs and faults are known."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgebuild.model.verify
from edgebuild.base.artifacts import Artifact
from edgebuild.base.errors import EdgebuildError, MissingTool
from edgebuild.base.target import Target, hal_dir, load_target, target_names
from edgebuild.model.ir import Array, Graph
from edgebuild.model.verify import measure, verify
from edgebuild.model.verify.oracles import Reference
from tests.conftest import run
from tests.firmware import fake
from tests.firmware.fake import STRICT

SIMULATED = [name for name in target_names() if load_target(name).runner]
LOOPS = 1_000_000


def runnable(name: str) -> Target:
    """The target; skips where its compiler or its simulator is not installed."""
    target = load_target(name)
    for program in [target.toolchain.compiler, *(target.runner.command[:1] if target.runner else ())]:
        if shutil.which(program) is None:
            pytest.skip(f"not installed: {program}")
    return target


@pytest.fixture(autouse=True)
def oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle for the model by hand, which has no model file."""

    def reference(_: Path, inputs: list[list[Array]], *__: Any) -> Reference:
        results = [np.clip(row[0].astype(int) + 1, -128, 127).astype(np.int8) for row in inputs]
        return Reference([[y] for y in results], [{"sum": y, "unknown": y} for y in results], slack=0)

    monkeypatch.setattr(edgebuild.model.verify, "reference", reference)
    monkeypatch.setattr(edgebuild.model.verify, "prepare", lambda *_, **__: Graph("fake", (), {}, (), ()))
    monkeypatch.setattr(
        edgebuild.model.verify.oracles, "near_file", lambda model, _rng, _folder: model
    )  # there is no file


def vectors(count: int = 3) -> Array:
    return np.random.default_rng(7).integers(-128, 128, (count, fake.SIZE)).astype(np.int8)


def check(target: Target, artifacts: Sequence[Artifact], **options: Any) -> dict[str, Any]:
    return verify(Path("fake.tflite"), target, artifacts, vectors(), **options)


def takes(target: Target, ram: int, own: int) -> bool:
    """The program takes `own` bytes of RAM; on several cores, also the stacks of the others and a queue of copies."""
    return ram == own if target.cores == 1 else target.cores * 4096 < ram - own < (target.cores + 2) * 4096


@pytest.mark.parametrize("name", SIMULATED)
def test_outputs_and_costs_on_a_simulated_target(name: str) -> None:
    target = runnable(name)
    result = check(target, fake.model(target))
    assert result["equal"] and result["max_abs_diff"] == 0 and result["inputs_tried"] == 3
    assert result["output"] == np.clip(vectors()[0].astype(int) + 1, -128, 127).tolist()
    assert result["compared"] == ["y", "sum"], "x has been written over, `unknown` is not in the arena"
    assert fake.STACK <= result["stack_bytes"] < fake.STACK + 128
    assert result["arena_bytes"] == result["arena_touched_bytes"] == 3 * fake.SIZE
    assert takes(target, result["ram_bytes"], 3 * fake.SIZE)
    assert result["weights_bytes"] == fake.SIZE == result["flash_bytes"] - result["code_bytes"]
    assert 200 < result["code_bytes"] < 1024
    assert result["forbidden_symbols"] == []
    most = 9 if "cortex-m23" in str(target.toolchain.cflags) else 8  # its Thumb has fewer forms of loads
    assert 3 * fake.STACK < result["instructions"] < most * fake.STACK


@pytest.mark.parametrize("name", SIMULATED)
def test_the_counter_counts_the_instructions_of_a_loop(name: str) -> None:
    target = runnable(name)
    empty = check(target, fake.model(target))["instructions"]
    full = check(target, fake.model(target, fake.code(loop(target, LOOPS))))["instructions"]
    assert full - empty == pytest.approx(2 * LOOPS, rel=0.01)


def test_the_counter_goes_on_after_the_timer_has_wrapped() -> None:
    target = runnable("mps2-an386")  # after 2^24 ticks of 40 instructions
    loops = 400_000_000
    source = fake.code(f"if (!once++) {{ {loop(target, loops)} }}", declare="static int once;")
    assert check(target, fake.model(target, source))["instructions"] == pytest.approx(2 * loops, rel=0.001)


def loop(target: Target, times: int) -> str:
    """A statement that runs two instructions this many times."""
    if "rv32" in target.core.features:
        return f'__asm__ volatile("li t0, {times}\\n1: addi t0, t0, -1\\n bnez t0, 1b" ::: "t0");'
    body = f".syntax unified\\n ldr r0, ={times}\\n1: subs r0, #1\\n bne 1b\\n b 2f\\n .ltorg\\n2:"
    return f'__asm__ volatile("{body}" ::: "r0", "cc");'


def test_the_build_machine_runs_it_with_sanitizers() -> None:
    target = runnable("host")
    result = check(target, fake.model(target))
    assert result["equal"] and result["arena_bytes"] == 3 * fake.SIZE
    assert result["instructions"] is result["stack_bytes"] is result["flash_bytes"] is None
    beyond = fake.code(last=f"model_arena[{3 * fake.SIZE}] = 1;")
    with pytest.raises(EdgebuildError, match="global-buffer-overflow"):
        check(target, fake.model(target, beyond))
    with pytest.raises(EdgebuildError, match="shift exponent 40 is too large"):
        check(target, fake.model(target, fake.code("volatile int by = 40; by = 1 << by;")))


def test_the_stack_is_measured_on_inputs_of_the_model() -> None:
    """An inference may leave anything where its inputs were, such as an index that no table has."""
    target, inputs = runnable("host"), vectors()
    inputs[:, 0] = 1
    shifts = fake.code("volatile int by = model_arena[0]; by = 1 << by;", "model_arena[0] = 40;")
    assert verify(Path("fake.tflite"), target, fake.model(target, shifts), inputs)["equal"]


@pytest.mark.parametrize("which", range(3))
def test_a_difference_for_one_input_alone_is_noticed(which: int) -> None:
    target, inputs = runnable("host"), vectors()
    alike = " && ".join(f"model_arena[{i}] == {inputs[which][i]}" for i in range(8))
    wrong = check(target, fake.model(target, fake.code(plus=f"i == 7 && {alike}")))
    assert not wrong["equal"] and wrong["max_abs_diff"] == 1 and wrong["differs"] == ["y", "sum"]


def test_a_wrong_result_and_a_wrong_intermediate_are_noticed() -> None:
    target = runnable("mps2-an386")
    wrong = check(target, fake.model(target, fake.code(plus="i == 7 && model_arena[7] < 100")))
    assert not wrong["equal"] and wrong["max_abs_diff"] == 1 and wrong["differs"] == ["y", "sum"]
    spoilt = check(target, fake.model(target, fake.code(last=f"model_arena[{fake.SIZE}] ^= 64;")))
    assert not spoilt["equal"] and spoilt["differs"] == ["sum"]


@pytest.mark.parametrize("name", ["microbit", "mps2-an500", "mps3-an547", "riscv-virt"])
def test_a_fault_ends_the_program_with_its_cause(name: str) -> None:
    target = runnable(name)
    trap = "unimp" if "rv32" in target.core.features else ".short 0xde00"
    with pytest.raises(EdgebuildError, match=r"fault: cause 0x0000000[23] at pc 0x[08]00000[0-9a-f]{2}"):
        check(target, fake.model(target, fake.code(f'__asm__ volatile("{trap}");')))


@pytest.mark.parametrize("name", SIMULATED)
def test_a_stack_overflow_is_noticed(name: str) -> None:
    target = runnable(name)
    with pytest.raises(EdgebuildError, match=r"stack overflow|fault: cause"):
        check(target, fake.model(target, fake.code(stack=9000)))


@pytest.mark.parametrize("name", SIMULATED)
def test_start_up_copies_data_and_clears_bss_whatever_the_size_of_the_constants(name: str) -> None:
    target = runnable(name)
    declare = """static volatile unsigned words[3] = {1, 0x12345678, 3}, zeros[5];
        static const char odd[] = "ab";"""
    is_wrong = "words[1] != 0x12345678 || words[2] != 3 || zeros[4] || odd[zeros[3] + 1] != 'b'"
    source = fake.code(declare=declare, plus=is_wrong)
    result = check(target, fake.model(target, source))
    assert result["equal"]
    assert takes(target, result["ram_bytes"], 3 * fake.SIZE + 3 * 4 + 5 * 4)


def test_weights_and_arena_in_other_memories() -> None:
    target = runnable("mps3-an547")
    result = check(target, fake.model(target, weights="SRAM", arena="SRAM2"))
    assert result["equal"] and result["compared"] == ["y", "sum"]


@pytest.mark.parametrize("name", ["host", "mps2-an386", "microbit", "riscv-virt"])
def test_a_model_may_need_the_mathematical_library(name: str) -> None:
    target = runnable(name)
    source = fake.code("f = expf(f) + tanhf(f);", declare="#include <math.h>\nstatic volatile float f;")
    artifacts = [
        Artifact(a.name, json.dumps({**json.loads(a.data), "needs_libm": True}).encode()) if "report" in a.name else a
        for a in fake.model(target, source)
    ]
    assert check(target, artifacts)["equal"]
    if name == "mps2-an386":
        with pytest.raises(EdgebuildError, match="undefined reference to `expf'"):
            check(target, fake.model(target, source))


@pytest.mark.parametrize(
    ("declare", "use", "symbol"),
    [
        ("void *malloc(unsigned n) { return n ? model_arena : 0; }", "d = malloc(3) != 0;", "malloc"),
        ("float expf(float x) { return x; }", "d = expf(1.0f);", "expf"),
        ("", "d = d * 3.5;", "__aeabi_dmul"),
    ],
)
def test_what_an_integer_model_must_not_link_is_named(declare: str, use: str, symbol: str) -> None:
    target = runnable("mps2-an386")
    literal = dataclasses.replace(target.toolchain, cflags=(*target.toolchain.cflags, "-fno-builtin", "-fno-inline"))
    source = fake.code(use, declare=f"static volatile double d;\n{declare}")
    figures = measure(dataclasses.replace(target, toolchain=literal), fake.model(target, source))
    assert symbol in figures["forbidden_symbols"]


@pytest.mark.parametrize("name", ["stm32f767", "pulpino"])
def test_a_target_without_runner_can_be_measured_only(name: str) -> None:
    target = runnable(name)
    assert measure(target, fake.model(target))["arena_bytes"] == 3 * fake.SIZE
    with pytest.raises(EdgebuildError, match=f"target {name} names no `runner:`") as refusal:
        check(target, fake.model(target))
    alike = "with the same processor: --target mps2-an500" if name == "stm32f767" else "can run: "
    assert alike in str(refusal.value)


def test_a_missing_compiler_or_simulator_names_its_package() -> None:
    target = runnable("mps2-an386")
    assert target.runner is not None
    tools = dataclasses.replace(target.toolchain, prefix="no-such-")
    with pytest.raises(MissingTool, match=r"'no-such-gcc' is not installed\s+apt-get install gcc-arm-none-eabi"):
        check(dataclasses.replace(target, toolchain=tools), fake.model(target))
    runner = dataclasses.replace(target.runner, command=("no-such-qemu", "{elf}"))
    with pytest.raises(MissingTool, match=r"'no-such-qemu' is not installed\s+apt-get install qemu-system-arm"):
        check(dataclasses.replace(target, runner=runner), fake.model(target))


def test_a_program_that_never_ends_is_stopped() -> None:
    target = runnable("mps2-an386")
    assert target.runner is not None
    quick = dataclasses.replace(target, runner=dataclasses.replace(target.runner, timeout_s=1))
    with pytest.raises(EdgebuildError, match="did not end within 1 seconds"):
        check(quick, fake.model(target, fake.code("for (;;) { }")))


@pytest.mark.parametrize("name", ["host", "microbit", "riscv-virt"])
def test_the_harness_compiles_without_a_warning(name: str, tmp_path: Path) -> None:
    target = runnable(name)
    check(target, fake.model(target), keep=tmp_path)
    for source in ("harness.c", "minimal.c"):
        run(target.toolchain.compiler, *target.toolchain.cflags, *STRICT, "-I.", "-I", hal_dir() / "include", "-c",
            hal_dir() / "harness" / source, "-o", "x.o", cwd=tmp_path)  # fmt: skip


def test_inputs_of_the_wrong_size_or_type_are_refused() -> None:
    target = load_target("host")
    for inputs, message in [
        (np.zeros((2, 63), np.int8), "the inputs have 126 elements"),
        (np.zeros((2, 64), np.float32), "the inputs are float32, input 'x' is int8"),
    ]:
        with pytest.raises(EdgebuildError, match=message):
            verify(Path("fake.tflite"), target, fake.model(target), inputs)


def test_the_program_can_be_kept(tmp_path: Path) -> None:
    target = runnable("host")
    check(target, fake.model(target), keep=tmp_path / "kept")
    assert {"harness.elf", "model.c", "output.bin"} <= {f.name for f in (tmp_path / "kept").iterdir()}
