"""`edgebuild fit` against full compilations."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.cli import main
from edgebuild.model.compile import compile_model, plan_model, prepare
from edgebuild.model.fitting import Fit, FitRow, best_first, chosen_targets
from edgebuild.model.kernels import PER_COST
from edgebuild.model.program_size import counts, rv32c, thumb2, v6m
from edgebuild.model.verify import measure
from tests.conftest import ROOT, run

DIGITS = ROOT / "sample_projects/digits/digits.onnx"
SHARED = sorted((ROOT.parent / "shared/models").glob("*.tflite"))
SOME = ["nrf52840", "stm32f030f4", "stm32g031k8", "stm32f303cc", "stm32f767", "stm32n657", "esp32c3", "ch32v307vc"]


def row_of(model: Path, target: str, **options: object) -> FitRow:
    request = ModelRequest(model, "model", "host", **options)  # type: ignore[arg-type]
    return Fit(prepare(model), request).row(load_target(target))


@pytest.mark.parametrize("model", [DIGITS, *(pytest.param(f, marks=pytest.mark.slow, id=f.stem) for f in SHARED)])
def test_arenas_are_those_of_compilations(model: Path) -> None:
    fit = Fit(prepare(model), ModelRequest(model, "model", "host"))
    targets = SOME if model == DIGITS else [target.name for target in chosen_targets(None)]
    for name in targets:
        row = fit.row(load_target(name))
        try:
            arena = plan_model(ModelRequest(model, "model", name), load_target(name)).arena_bytes
        except EdgebuildError:
            assert not row.fits, name
            continue
        assert row.arena_bytes == arena, name


MEASURED = [(DIGITS, "stm32f411"), (DIGITS, "microbit"), (DIGITS, "nrf52840"), (DIGITS, "rp2350"), (DIGITS, "ra8m1"),
            (DIGITS, "cv32e40p")]  # fmt: skip
SLOW = [(f, t) for f in SHARED for t in ("nrf52840", "rp2040", "stm32h743") if "hello" not in f.stem]
SLOW += [(f, "esp32c3") for f in SHARED if "mlperf" in f.stem]


@pytest.mark.parametrize(
    ("model", "target"),
    [*MEASURED[:1], *(pytest.param(m, t, marks=pytest.mark.slow, id=f"{m.stem}-{t}") for m, t in MEASURED[1:] + SLOW)],
)
def test_flash_is_within_three_percent_of_a_linked_program(model: Path, target: str) -> None:
    chip = load_target(target)
    if shutil.which(chip.toolchain.compiler) is None:
        pytest.skip(f"not installed: {chip.toolchain.compiler}")
    row = row_of(model, target)
    try:
        measured = measure(chip, compile_model(ModelRequest(model, "model", target)))
    except EdgebuildError:
        assert not row.fits
        return
    assert row.flash_bytes == pytest.approx(measured["flash_bytes"], rel=0.03)


INLINE = """
static inline int32_t eb_clamp(int32_t x, int32_t low, int32_t high)
{
    return x < low ? low : x > high ? high : x;
}

static void scale(float *y, int32_t n)
{
    y[0] = y[0] / (float)eb_clamp(n, 1, 2) + (float)eb_clamp(n, 3, 4);
}
"""


def test_inline_functions_count_where_they_are_called() -> None:
    terms = counts(INLINE, "rv32")[1]
    assert (terms["functions"], terms["branches"], terms["calls"]) == (1, 4, 0)
    assert (terms["program"], terms["float"], terms["divide"], terms["subtract"], terms["wide"]) == (1, 1, 1, 0, 0)


def test_tables_of_structs_and_uncompressed_instructions_count() -> None:
    structs = "typedef struct {\n    int16_t a;\n    eb_copy copy; /* a copy */\n    uint8_t b, c[2], *d;\n} form;\n"
    tables = "static const form forms[3] = {\n    {1, {0}, 2, {3, 4}, 0},\n};\n"
    lines = (".insn  r 0x57, 1, 0x4c, t0, a6, a2", "mv     a0, a1", ".option norvc", "j      1f", ".option pop", "ret")
    text = structs + tables + "__asm__(\n" + "\n".join(f'    "{line}\\n\\t"' for line in lines) + ");\n"
    assert counts(text, "rv32")[0] == 3 * (4 + 36 + 4 + 4) + 4 + 2 + 4 + 2


def test_arguments_count_where_several_calls_share_a_function() -> None:
    functions = "void each(int32_t a, int32_t b)\n{\n}\n\nvoid lone(int32_t a)\n{\n}\n\n"
    text = f"{functions}void all(void)\n{{\n    each(min(1, 2), (3, 4));\n    each(5, 6);\n    lone(7);\n}}\n"
    assert counts(text, "rv32")[1]["arguments"] == 4


def test_what_does_not_fit_says_by_how_much() -> None:
    row = row_of(DIGITS, "stm32f030f4")
    assert not row.fits or row.arena_bytes is not None
    tight = row_of(DIGITS, "nrf52840", qos=(0.001,))
    assert set(tight.short_of) == {"time_us"}
    assert tight.short_of["time_us"] == pytest.approx(tight.time_us - 1, abs=1)  # type: ignore[operator]
    assert row_of(DIGITS, "esp32c3", qos=(1000.0,)).short_of == {"time_us": None}


def test_missing_ram_is_what_the_smallest_plan_takes_more(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text("inherits: nrf52810\nmemories: {RAM: {size: 4800}}\nfirmware: {stack: 4K}\n")
    row = row_of(DIGITS, str(tmp_path / "tiny.yaml"))
    assert row.arena_bytes is None
    least = plan_model(ModelRequest(DIGITS, "m", "nrf52810", objective="ram", tile="rolling"), load_target("nrf52810"))
    assert row.short_of == {"ram_bytes": least.arena_bytes - (4800 - 4096)}


def test_best_are_the_smallest_that_fit() -> None:
    fit = Fit(prepare(DIGITS), ModelRequest(DIGITS, "model", "host"))
    rows = best_first(fit.row(load_target(name)) for name in reversed(SOME))
    sizes = [4 * row.ram + row.flash for row in rows if row.fits]
    assert sizes == sorted(sizes)
    assert [row.fits for row in rows] == sorted((row.fits for row in rows), reverse=True)


def test_the_command_prints_a_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(DIGITS), "--targets", "nrf52*,rp2040", "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    keys = {"target", "fits", "arena_bytes", "flash_bytes", "time_us", "energy_uj", "short_of"}
    assert keys <= data["rows"][0].keys()
    names = {row["target"] for row in data["rows"]}
    assert {"nrf52840", "rp2040"} <= names
    assert main(["fit", str(DIGITS), "--targets", "stm32f411", "--smallest"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert re.match(r"\+ stm32f411 +1,380 +1% +\d\d,\d{3} +\d% +\d+\.\d\d +\d+\.\d", line)
    assert main(["fit", str(DIGITS), "--targets", "nrf52840", "--smallest", "--qos", "0.001"]) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--targets", "nrf53840"], "no target fits 'nrf53840'; did you mean 'nrf52840'?"),
        (["--targets", ","], "no target is named"),
        (["--targets", "none.yaml"], "no such target file"),
        (["--qos", "soon"], "option 'qos'"),
    ],
)
def test_wrong_words_are_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(DIGITS), *words]) == 1
    assert message in capsys.readouterr().err


def test_every_core_with_a_table_of_cycles_has_a_figure() -> None:
    tables = {file.stem for file in (ROOT / "hal/cycles").glob("*.yaml")}
    assert tables == PER_COST.keys()


V6M = "movs r0, #1; ldr r1, [r2, #4]; bl f; mov r8, r1; adds r0, r0, r1; push {r4, lr}"
THUMB2 = """
    push {r4-r11, lr}; push {r4, lr}; sub sp, sp, #44; strd r0, r1, [sp, #24]; mov r10, #64; mov r1, r9; movs r0, #5;
    add r0, r0, #1; adds r0, r0, #1; adds r0, r1, #9; adds r0, #9; add r0, r0, r1; add r0, sp, #8; ldr r0, [r1, #124];
    ldr r0, [r1, #128]; ldrb r0, [r1, #31]; ldrb r0, [r1, #32]; ldrsb r0, [r1, #1]; ldrsb r0, [r1, r2]; ldrh r8, [r1];
    ldr r0, [sp, #1020]; ldr r0, [r1], #4; ldr r0, [r1, r2, lsl #2]; smlad r0, r1, r2, r3; sxtb r0, r1; sxtb16 r0, r1;
    lsls r0, r1, #2; lsl r0, r1, #2; cmp r0, #255; cmp r9, r1; muls r0, r1, r0; mul r0, r1, r2; ldm r0!, {r1, r2};
    orrs r0, r0, r1; orr r0, r0, r1; add r0, r0, r1, lsl #2; subs r9, r9, #1; nop; bx lr; uxtb r0, r9; rsbs r0, r1, #0;
    rsb r0, r1, #0; adds r9, r9, #1; movs r0, #256; cmp r0, #256; pop {r4, pc}; str r8, [sp, #4]; b f; mvns r0, r1
"""
RV32 = """
    addi sp, sp, -80; addi a0, a0, 31; addi a0, a0, 32; addi a0, a1, 1; sw ra, 0(sp); sw s11, 48(sp); lw a0, 4(a1);
    lw a0, 128(a1); lw t0, 4(a1); lb a0, 0(a1); mv a0, t3; add a0, a0, t0; add a0, a1, t0; sub a0, a0, a1; li a0, 31;
    li a0, 32; li a0, 4096; li a0, 4097; li a0, 131072; li a0, 131073; li a0, -4096; mul a0, a0, a1; slli t0, t0, 3;
    srai a0, a0, 3; srai t0, t0, 3; andi a0, a0, 15; ret
"""
LINES = {"m0plus-model": (v6m, V6M), "mps2-an386": (thumb2, THUMB2), "riscv-virt": (rv32c, RV32)}


@pytest.mark.parametrize("name", LINES)
def test_widths_are_those_of_the_assembler(name: str, tmp_path: Path) -> None:
    target, (width, text) = load_target(name), LINES[name]
    if shutil.which(target.toolchain.compiler) is None:
        pytest.skip(f"not installed: {target.toolchain.compiler}")
    lines = [line.strip() for line in text.split(";")]
    head = "" if name.startswith("riscv") else ".syntax unified\n.thumb\n"
    (tmp_path / "t.s").write_text(f"{head}f:\n" + "".join(f"l{i}: {line}\n" for i, line in enumerate(lines)) + "end:\n")
    flags = target.toolchain.arch
    run(target.toolchain.compiler, *flags, "-c", "t.s", "-o", "t.o", cwd=tmp_path)
    symbols = run(f"{target.toolchain.prefix}nm", "t.o", cwd=tmp_path)
    at = {label: int(address, 16) for address, label in re.findall(r"(\w+) t (\w+)", symbols)}
    ends = [*(at[f"l{i}"] for i in range(1, len(lines))), at["end"]]
    real = {line: end - at[f"l{i}"] for i, (line, end) in enumerate(zip(lines, ends, strict=True))}
    counted = {line: width(*(line.split(" ", 1) if " " in line else (line, ""))) for line in lines}
    assert counted == real
