"""Costs of kernels besides instructions: bytes of their code, and cycles on the core of the target.

Bytes of code are estimated from the text of kernels; shared functions count once.

Cycles are estimated from the cost by which planners compare kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from ...base.target import Target
from ...base.templates import Used, environment
from ..ir import Arithmetic
from ..ops.base import Form, Kernel
from . import used_helpers

# Bytes of an instruction of assembly and of a statement of C: sizes of functions in programs of ResNet-8 and DS-CNN by
# gcc 12 -O2, RV32IMC and Cortex-M4, over their counts; those of Armv6-M in the same way, on a Cortex-M0.
ASSEMBLY, STATEMENT = 3.0, 11.5
ASSEMBLY_OF_V6M, STATEMENT_OF_V6M = 2.0, 16.0
# Bytes of a call and of a kernel, on a Cortex-M4. Person detection (TFLM's) takes 42 and 120 to 360, by `nm -S`.
OF_CALL, OF_KERNEL = 40, 300
NO_DIGITS = str.maketrans("", "", "0123456789")

# Characters of a C function from which on kernels that differ in numbers share it, by `--optimize`. If the compiler
# knows the numbers, it makes short functions shorter still.
SHARED_FROM = {"speed": 1 << 30, "balanced": 3000, "size": 0}


def printed(kernel: Kernel, signature: str, item: str, y_item: str, acc: str) -> tuple[str, frozenset[str]]:
    """A kernel's template as C, and the names in it that are defined elsewhere. Types: of operands and sums."""
    used = Used()
    numbers = SimpleNamespace(**kernel.shape)
    view = {"use": used, "s": numbers, "signature": signature, "item": item, "y_item": y_item, "acc": acc}
    return environment().get_template(kernel.template).render(**view).strip() + "\n", frozenset(used.names)


def code_bytes(kernels: Iterable[Kernel], arithmetic: Arithmetic, form: Form) -> int:
    """Bytes of the C functions of kernels and of all that they call, each once; see SHARED_FROM."""
    core, shared_from = form.core, SHARED_FROM[form.wish.optimize]
    texts, names = dict[str, str](), set[str]()
    for kernel in kernels:
        text, without_numbers, used = _text(kernel.template, tuple(sorted(kernel.shape.items())))
        texts[without_numbers if len(text) >= shared_from else text] = text
        names |= used
    shared = (h.text for h in used_helpers(names, arithmetic) if h.head)
    return round(sum(_size(text, core) for text in (*texts.values(), *shared)))


@cache
def source_bytes(file: Path, core: frozenset[str]) -> int:
    """Bytes of code of a file of C."""
    return round(_size(file.read_text(encoding="utf-8"), core))


@cache
def _text(
    template: str, shape: tuple[tuple[str, int | str | bool | tuple[int, ...]], ...]
) -> tuple[str, str, frozenset[str]]:
    """A kernel's C, the same without its numbers, and the names that it uses."""
    text, used = printed(Kernel(template, "", dict(shape)), "", "int8_t", "int8_t", "int32_t")
    return text, text.translate(NO_DIGITS), used


@cache
def _size(text: str, core: frozenset[str]) -> float:
    v6m = "armv6-m" in core
    if instructions := sum(map(_is_instruction, text.splitlines())):
        return (ASSEMBLY_OF_V6M if v6m else ASSEMBLY) * instructions
    return (STATEMENT_OF_V6M if v6m else STATEMENT) * text.count(";")


def _is_instruction(line: str) -> bool:
    """Whether a line of C is a string with one instruction; labels, and directives but .insn, begin otherwise."""
    before, *inside = line.split('"', 2)
    return (
        not before.strip()
        and len(inside) == 2
        and (inside[0][:1].islower() or inside[0].startswith(".insn"))
        and inside[0].endswith("\\n\\t")
    )


# Cycles by `edgebuild verify --cycles`, as a multiple of the cost that planners compare: the mean of kws, the
# autoencoder and person detection, of which each is within 12 %. Cores without a figure have no table in hal/cycles.
PER_COST = {
    "cortex-m0": 1.30,
    "cortex-m0plus": 1.26,
    "cortex-m3": 1.65,
    "cortex-m4": 1.39,
    "cortex-m7": 0.77,
    "cortex-m33": 1.38,
    "cortex-m55": 1.10,
    "cortex-m85": 0.90,
    "cv32e40p": 1.09,
    "vexriscv-imac": 1.28,
}


def cycles_of(target: Target, cost: float) -> float | None:
    """Estimated cycles of work of this cost; None if the core has no figure."""
    cycles_per_instruction = PER_COST.get(target.cycle_table)
    return cost * cycles_per_instruction if cycles_per_instruction is not None else None
