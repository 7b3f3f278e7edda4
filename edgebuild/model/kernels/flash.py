"""Bytes of code that kernels take, estimated from their text: what they share counts once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from ...base.templates import Used, environment
from ..ops.base import Form, Kernel
from . import used_helpers

# Bytes of an instruction of assembly and of a statement of C: sizes of functions in programs of ResNet-8 and DS-CNN by
# gcc 12 -O2, RV32IMC and Cortex-M4, over their counts. Armv6-M has instructions of two bytes, but for calls.
ASSEMBLY, ASSEMBLY_OF_V6M, STATEMENT = 3.0, 2.0, 11.5


def printed(kernel: Kernel, signature: str, item: str, y_item: str, acc: str) -> tuple[str, frozenset[str]]:
    """A kernel's template as C, and the names in it that others define. The types are those of operands and sums."""
    used = Used()
    numbers = SimpleNamespace(**kernel.shape)
    view = {"use": used, "s": numbers, "signature": signature, "item": item, "y_item": y_item, "acc": acc}
    return environment().get_template(kernel.template).render(**view).strip() + "\n", frozenset(used.names)


def code_bytes(kernels: Iterable[Kernel], arithmetic: str, form: Form) -> int:
    """Of the C functions of kernels and of all that they call, each once.

    Kernels that differ in numbers share a function, unless the form's wish is speed.
    """
    core, apart = form.core, form.wish.optimize == "speed"
    each = ASSEMBLY_OF_V6M if "armv6-m" in core else ASSEMBLY
    texts, names = dict[object, str](), set[str]()
    for kernel in kernels:
        shape = tuple(sorted(kernel.shape.items()))
        text, used = _text(kernel.template, shape)
        texts[kernel.template, tuple(v for _, v in shape if apart or type(v) is not int)] = text
        names |= used
    shared = (h.text for h in used_helpers(names, arithmetic) if h.head)
    return round(sum(_size(text, each) for text in (*texts.values(), *shared)))


@cache
def source_bytes(file: Path, core: frozenset[str]) -> int:
    """Of the code of a file of C."""
    each = ASSEMBLY_OF_V6M if "armv6-m" in core else ASSEMBLY
    return round(_size(file.read_text(encoding="utf-8"), each))


@cache
def _text(
    template: str, shape: tuple[tuple[str, int | str | bool | tuple[int, ...]], ...]
) -> tuple[str, frozenset[str]]:
    return printed(Kernel(template, "", dict(shape)), "", "int8_t", "int8_t", "int32_t")


def _size(text: str, each: float) -> float:
    instructions = sum(map(_is_instruction, text.splitlines()))
    return each * instructions if instructions else STATEMENT * text.count(";")


def _is_instruction(line: str) -> bool:
    """Whether a line of C is a string with one instruction; labels and directives begin with other signs."""
    before, *inside = line.split('"', 2)
    return not before.strip() and len(inside) == 2 and inside[0][:1].islower() and inside[0].endswith("\\n\\t")
