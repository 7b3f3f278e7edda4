"""Bytes of code of a model's program, from its C: assembly is counted, statements are weighed.

What a compiler makes of C is estimated by what the C has: functions, accesses, calls, loops and so on. Their weights
are least squares over linked programs of 18 networks; `python -m tests.code_sizes` finds them anew and says how far off
they are. Kernels in assembly, which are most of the code, are counted instruction by instruction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from ...base.target import Target
from .instruction_widths import Width, rv32c, thumb2, v6m

TERMS = ("program", "functions", "arithmetic", "accesses", "calls", "loops", "branches", "constants", "floats",
         "soft_float", "libm")  # fmt: skip
# By kind of core, bytes of each of TERMS. `program`: start-up, vectors and the smallest main; `soft_float`: once, where
# floats are computed without an FPU; `libm`: of each function of it.
WEIGHTS: Mapping[str, tuple[float, ...]] = {
    "armv6-m": (1131.7, 0.0, 7.2, 0.0, 0.0, 0.0, 46.4, 0.0, 14.1, 2412.7, 0.0),
    "thumb2": (805.1, 0.0, 2.2, 2.1, 0.0, 4.6, 24.2, 9.6, 0.0, 1800.7, 0.0),
    "thumb2f": (49.5, 0.0, 6.2, 6.2, 4.3, 7.2, 32.7, 5.5, 4.4, 0.0, 0.0),
    "mve": (512.1, 0.0, 0.0, 6.4, 2.1, 2.9, 46.9, 9.1, 1.3, 0.0, 0.0),
    "rv32": (493.0, 0.0, 2.2, 0.0, 0.2, 102.0, 1.8, 0.0, 18.7, 2379.8, 0.0),
    "rv32f": (358.3, 8.6, 4.4, 0.0, 16.6, 20.8, 19.8, 0.0, 5.0, 0.0, 0.0),
}
ITEMS = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int64_t": 8}  # bytes; all others have four

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^#(?:.*\\\n)*.*\n", re.MULTILINE)
_ASSEMBLY = re.compile(r"__asm__\s*(?:volatile)?\(.*?\n?\s*\);", re.DOTALL)
_INSTRUCTION = re.compile(r'^\s*"\s*([a-z][\w.]*)[ ]*(.*?)(?:\\n|")', re.MULTILINE)
_TABLE = re.compile(r"static const (\w+) \w+((?:\[\d+\])+)\s*=\s*\{[^;]*\};")
_BODY = re.compile(r"^\{\n.*?^\}", re.DOTALL | re.MULTILINE)
_NO_CALLS = r"(?!(?:if|for|while|switch|return|sizeof|defined)\b)"
_COUNTED = {
    "functions": re.compile(r"^\}", re.MULTILINE),
    "arithmetic": re.compile(r" (?:[-+*/%&|^]|<<|>>) "),
    "accesses": re.compile(r"\[|(?<![\w)\]] )\*\w"),
    "calls": re.compile(rf"\b{_NO_CALLS}[a-z_]\w*\s*\("),
    "loops": re.compile(r"\b(?:for|while)\b"),
    "branches": re.compile(r"\bif\b|\?"),
    "constants": re.compile(r"\b(?:0x[0-9a-fA-F]{3,}|\d{4,})u?\b|\b[A-Z]\w+_\w+\b"),
    "floats": re.compile(r"\d\.\d*(?:e[-+]?\d+)?f|\bfloat\b"),
}
_LIBM = re.compile(r"\b(expf|logf|tanhf|powf|sinf|cosf|erff)\(")


def kind_of(target: Target) -> str:
    """The kind of core that has weights of its own."""
    features, has_fpu = target.core.features, {"fpu", "f"} & set(target.core.features)
    if "rv32" in features:
        return "rv32f" if has_fpu else "rv32"
    if target.core.isa == "armv6-m":
        return "armv6-m"
    return "mve" if "mve" in features else "thumb2f" if has_fpu else "thumb2"


def width_of(kind: str) -> Width:
    return rv32c if kind.startswith("rv32") else v6m if kind == "armv6-m" else thumb2


def program_bytes(text: str, target: Target) -> int:
    """Bytes of code and tables of the smallest program with a model whose C this is, without its weights. Estimated."""
    kind = kind_of(target)
    counted, terms = counts(text, kind)
    return counted + round(sum(weight * terms[term] for weight, term in zip(WEIGHTS[kind], TERMS, strict=True)))


@cache
def counts(text: str, kind: str) -> tuple[int, Mapping[str, int]]:
    """Bytes of assembly and of tables in a model's C, and how many of each of TERMS the rest has."""
    width, counted = width_of(kind), 0

    def without_assembly(match: re.Match[str]) -> str:
        nonlocal counted
        counted += sum(width(*each) for each in _INSTRUCTION.findall(match[0]) if not each[0].startswith("."))
        return ";"

    def without_table(match: re.Match[str]) -> str:
        nonlocal counted
        size = ITEMS.get(match[1], 4)
        for extent in re.findall(r"\d+", match[2]):
            size *= int(extent)
        counted += size
        return ""

    text = _DIRECTIVE.sub("", _COMMENT.sub(" ", text))
    text = _TABLE.sub(without_table, _ASSEMBLY.sub(without_assembly, text))
    bodies = "\n".join(_BODY.findall(text))
    terms = {term: sum(1 for _ in pattern.finditer(bodies)) for term, pattern in _COUNTED.items()}
    soft = bool(terms["floats"]) and kind in ("armv6-m", "thumb2", "rv32")
    return counted, {**terms, "program": 1, "soft_float": int(soft), "libm": len(set(_LIBM.findall(bodies)))}
