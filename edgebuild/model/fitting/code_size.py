"""Bytes of code of a model's program, from its C: assembly is counted, statements are weighed.

What a compiler makes of C is estimated by what the C has: functions, accesses, calls, loops and so on. Their weights
are least squares over linked programs of 18 networks; `python -m tests.code_sizes` finds them anew and says how far off
they are. Kernels in assembly, which are most of the code, are counted instruction by instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from ...base.target import Target

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


# ---- Bytes of instructions of assembly, as GNU as encodes them


Width = Callable[[str, str], int]  # mnemonic and operands to bytes

_REGISTER = re.compile(r"\b(?:r\d+|sp|lr|pc|ip)\b")
_IMMEDIATE = re.compile(r"#(-?(?:0x[0-9a-fA-F]+|\d+))")
_LOW = frozenset(f"r{i}" for i in range(8))
_ALWAYS_NARROW = re.compile(r"b(?:eq|ne|gt|ge|lt|le|hi|hs|lo|ls|cs|cc|mi|pl)?|cbn?z|bx|blx|nop|bkpt|svc|it[te]*")
_FLAGS_TWO = frozenset(["ands", "orrs", "eors", "bics", "mvns", "muls", "negs", "adcs", "sbcs", "rors", "tst", "cmn"])
_EXTENSIONS = frozenset(["sxtb", "sxth", "uxtb", "uxth", "rev", "rev16", "revsh"])
_ACCESSES = {"ldr": 4, "str": 4, "ldrb": 1, "strb": 1, "ldrh": 2, "strh": 2}
_WIDE_IN_V6M = frozenset(["bl", "dmb", "dsb", "isb", "mrs", "msr"])
_NEAR = frozenset(["s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5"])  # x8 to x15, which compressed instructions reach


def v6m(mnemonic: str, operands: str) -> int:
    """Armv6-M: all are narrow but a few. A constant beside the code is counted with its load."""
    if mnemonic == "ldr" and "=" in operands:
        return 6
    return 4 if mnemonic in _WIDE_IN_V6M else 2


def thumb2(mnemonic: str, operands: str) -> int:
    """Armv7-M and later: narrow where an encoding with the same effect on the flags exists."""
    if mnemonic == "ldr" and "=" in operands:
        return 8
    return 2 if mnemonic.endswith(".n") or _ALWAYS_NARROW.fullmatch(mnemonic) or _is_narrow(mnemonic, operands) else 4


def _is_narrow(mnemonic: str, operands: str) -> bool:
    registers, count = _REGISTER.findall(operands), operands.count(",") + 1
    match = _IMMEDIATE.search(operands)
    number = int(match[1], 0) if match else None
    if mnemonic in ("push", "pop"):
        return not re.search(r"r(?:8|9|1\d)|-r(?:8|9|1\d)", operands)
    if not registers:
        return False
    low, same = _LOW.issuperset(registers), count == 2 or registers[:1] == registers[1:2]
    if mnemonic in _ACCESSES or mnemonic in ("ldrsb", "ldrsh"):
        return _is_narrow_access(mnemonic, operands, registers, number or 0)
    if mnemonic in ("ldm", "ldmia", "stm", "stmia"):
        return low and "!" in operands
    if mnemonic in _EXTENSIONS:
        return low and count == 2
    if mnemonic == "rsbs":
        return low and number == 0
    if mnemonic in _FLAGS_TWO:
        return low and number is None and (count == 2 or registers[0] in registers[1:])
    if number is None:
        return _is_narrow_of_registers(mnemonic, registers, count, low, same)
    if mnemonic in ("add", "sub") and "sp" in registers[:2]:
        most = 508 if registers[0] == "sp" else 1020 if mnemonic == "add" and registers[0] in _LOW else -1
        return 0 <= number <= most and number % 4 == 0
    if mnemonic in ("adds", "subs"):
        return low and (0 <= number < 8 or (same and 0 <= number < 256))
    return low and (mnemonic in ("lsls", "lsrs", "asrs") or (mnemonic in ("movs", "cmp") and 0 <= number < 256))


def _is_narrow_of_registers(mnemonic: str, registers: list[str], count: int, low: bool, same: bool) -> bool:
    if len(registers) != count:
        return False  # one is shifted or rotated
    if mnemonic in ("mov", "cmp"):
        return True
    if mnemonic == "add":
        return same or registers[:1] == registers[2:]
    return low and (mnemonic in ("adds", "subs", "movs") or (mnemonic in ("lsls", "lsrs", "asrs") and same))


def _is_narrow_access(mnemonic: str, operands: str, registers: list[str], offset: int) -> bool:
    if "lsl" in operands or "]!" in operands or re.search(r"\]\s*,", operands):
        return False
    if mnemonic in ("ldrsb", "ldrsh"):
        return len(registers) == 3 and _LOW.issuperset(registers)
    size = _ACCESSES[mnemonic]
    if registers[1:] == ["sp"]:
        return size == 4 and registers[0] in _LOW and 0 <= offset <= 1020 and offset % 4 == 0
    return _LOW.issuperset(registers) and (len(registers) == 3 or (0 <= offset < 32 * size and offset % size == 0))


def rv32c(mnemonic: str, operands: str) -> int:
    """RV32 with compressed instructions; pseudo-instructions count as what they become."""
    words = [word.strip() for word in operands.split(",")]
    if mnemonic in ("mv", "nop", "ret", "j", "jr"):
        return 2
    if mnemonic == "la":
        return 8
    number = int(words[-1], 0) if re.fullmatch(r"-?(?:0x[0-9a-fA-F]+|\d+)", words[-1]) else None
    if mnemonic == "li":
        return 8 if number is None else _constant(number)
    return 2 if _is_compressed(mnemonic, words, number) else 4


def _constant(number: int) -> int:
    """Bytes of the instructions that load a number: its upper 20 bits, its lower 12 bits, or both."""
    if -2048 <= number < 2048:
        return 2 if -32 <= number < 32 else 4
    rest = (number + 2048) % 4096 - 2048
    low = (2 if -32 <= rest < 32 else 4) if rest else 0
    upper = (number + 2048 >> 12) % (1 << 20)
    return low + (2 if upper < 32 or upper >= (1 << 20) - 32 else 4)


def _is_compressed(mnemonic: str, words: list[str], number: int | None) -> bool:
    same = words[:1] == words[1:2]
    if mnemonic in ("lw", "sw"):
        match = re.fullmatch(r"(\d*)\((\w+)\)", words[-1])
        offset = int(match[1] or 0) if match else 1
        base = match[2] if match else ""
        near = (base == "sp" and offset < 256) or ({words[0], base} <= _NEAR and offset < 128)
        return near and offset % 4 == 0
    if mnemonic == "add":
        return words[0] in words[1:]
    if mnemonic in ("sub", "and", "or", "xor"):
        return same and {words[0], words[-1]} <= _NEAR
    if mnemonic in ("beqz", "bnez"):
        return words[0] in _NEAR
    if mnemonic in ("beq", "bne"):
        return words[0] in _NEAR and words[1:2] == ["zero"]
    if number is None or not same:
        return False
    if mnemonic == "addi":
        return -32 <= number < 32 or (words[0] == "sp" and number % 16 == 0 and -512 <= number < 512)
    if mnemonic == "andi":
        return words[0] in _NEAR and -32 <= number < 32
    return mnemonic == "slli" or (mnemonic in ("srai", "srli") and words[0] in _NEAR)
