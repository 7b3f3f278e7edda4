"""Bytes of code and tables of a program with a model, estimated from the C of the model.

Kernels in assembly, which are most of the code, are counted instruction by instruction. The bytes of other C are
estimated from counts of its functions, accesses, calls, loops and so on. Their weights are least squares over the
bytes of the model's own functions in linked programs. Code that a program links once, such as start-up, has weights
from the other bytes of these programs. `python -m tests.code_sizes` fits all weights anew and prints their errors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from math import prod

from ..base.target import Target
from ..base.text import named

# Code that a program links once. `program`: start-up, vectors and the smallest main; `float`, `divide` and `subtract`:
# code for these operations on floats, such as functions without an FPU; `wide`: a product of 64 bits; `libm`: each
# function of it.
ONCE = ("program", "float", "divide", "subtract", "wide", "libm")
# `arguments`: in calls of functions with several callers; compilers propagate those of all others. `members`: of
# tables that `--map` steps through; by three networks on `gap8` and `pulp-cluster`.
TERMS = (
    *ONCE, "functions", "arithmetic", "accesses", "calls", "loops", "branches", "constants", "floats", "arguments",
    "members",
)  # fmt: skip
# By kind of core, bytes of each of TERMS. Those of ONCE are fitted to 23 networks, the rest to 24.
WEIGHTS: Mapping[str, tuple[float, ...]] = {
    "armv6-m": (567.3, 1976.7, 720.0, 784.0, 91.8, 0.0, 12.5, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 7.6, 5.2, 0.0),
    "thumb2": (552.0, 1146.9, 314.4, 0.0, 1.8, 0.0, 6.1, 3.9, 2.0, 0.0, 13.7, 1.9, 0.0, 7.5, 4.6, 12.0),
    "thumb2f": (574.8, 15.3, 1.2, 0.0, 2.1, 0.0, 0.0, 3.5, 5.7, 6.8, 3.8, 9.3, 0.4, 5.9, 3.7, 0.0),
    "mve": (574.3, 11.1, 5.7, 0.0, 7.5, 0.0, 0.0, 5.9, 0.0, 0.0, 0.0, 0.0, 7.1, 1.9, 1.1, 0.0),
    "rv32": (224.0, 2750.0, 914.0, 1326.2, 39.5, 0.0, 0.0, 6.1, 1.1, 0.0, 6.1, 4.1, 2.1, 7.8, 3.9, 12.0),
    "rv32f": (230.0, 24.0, 26.0, 122.3, 39.5, 0.0, 9.2, 6.2, 1.0, 0.0, 13.9, 0.9, 0.0, 6.4, 4.3, 0.0),
}
# Bytes of items and their alignment; all others have four.
ITEMS = {"int8_t": (1, 1), "uint8_t": (1, 1), "int16_t": (2, 2), "uint16_t": (2, 2), "int64_t": (8, 8)}
ITEMS["eb_copy"] = 36, 4  # of eb_dma.h

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^#(?:.*\\\n)*.*\n", re.MULTILINE)
_ASSEMBLY = re.compile(r"__asm__\s*(?:volatile)?\(.*?\n?\s*\);", re.DOTALL)
_INSTRUCTION = re.compile(r'(?:^\s*|__asm__\s*(?:volatile)?\()"\s*(\.insn|[a-z][\w.]*)[ ]*(.*?)(?:\\n|")', re.MULTILINE)
_UNCOMPRESSED = re.compile(r"\.option norvc|\.option pop")  # begin and end of code without compressed instructions
_TABLE = re.compile(r"static const (\w+) \w+((?:\[\d+\])+)\s*=\s*\{[^;]*\};")
_STRUCT = re.compile(r"typedef struct \{\n(.*?)^\} (\w+);", re.DOTALL | re.MULTILINE)
_MEMBERS = re.compile(r"^ +(?:const )?(\w+) ([^;]*);", re.MULTILINE)
_FUNCTION = re.compile(r"^(static inline )?\w[^;{}]*?\b(\w+)\([^;{}]*\)\n(\{\n.*?^\})", re.DOTALL | re.MULTILINE)
_CALL = re.compile(r"\b(\w+)\(")
_NO_CALLS = r"(?!(?:if|for|while|switch|return|sizeof|defined)\b)"
_COUNTED = {
    "arithmetic": re.compile(r" (?:[-+*/%&|^]|<<|>>) "),
    "accesses": re.compile(r"\[|(?<![\w)\]] )\*\w"),
    "calls": re.compile(rf"\b{_NO_CALLS}\w*[a-z]\w*\s*\("),
    "loops": re.compile(r"\b(?:for|while)\b"),
    "branches": re.compile(r"\bif\b|\?"),
    "constants": re.compile(r"\b(?:0x[0-9a-fA-F]{3,}|\d{4,})u?\b|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b"),
    "floats": re.compile(r"\d\.\d*(?:e[-+]?\d+)?f|\bfloat\b"),
    "members": re.compile("->"),
}
_DIVIDE = re.compile(r" /=? [(a-z]")  # of a body with floats: integers are divided by numbers there
_SUBTRACT = re.compile(r" - [^;]*\d\.\d*f|(?:\bfloat \w|\d\.\d*f)[^;]* - ")
_WIDE = re.compile(r"\(u?int64_t\)\S+ \* ")
_LIBM = re.compile(r"\b(expf|logf|tanhf|powf|sinf|cosf|erff)\(")


def kind_of(target: Target) -> str:
    """The kind of a target's core: a key of WEIGHTS."""
    features, has_fpu = target.core.features, {"fpu", "f"} & set(target.core.features)
    if "rv32" in features:
        return "rv32f" if has_fpu else "rv32"
    if target.core.isa == "armv6-m":
        return "armv6-m"
    return "mve" if "mve" in features else "thumb2f" if has_fpu else "thumb2"


def width_of(kind: str) -> Width:
    return rv32c if kind.startswith("rv32") else v6m if kind == "armv6-m" else thumb2


def program_bytes(text: str, target: Target) -> int:
    """Estimated bytes of code and tables of the smallest program with a model of this C, without its weights."""
    kind = kind_of(target)
    counted, terms = counts(text, kind)
    return counted + round(sum(weight * terms[term] for weight, term in zip(WEIGHTS[kind], TERMS, strict=True)))


@cache
def counts(text: str, kind: str) -> tuple[int, Mapping[str, int]]:
    """Bytes of assembly and of tables in a model's C, and the count of each of TERMS in the rest.

    They do not depend on the model's name, on which line breaks depend: any name is a hit of the cache.
    """
    width, counted, items = width_of(kind), 0, dict(ITEMS)

    def without_assembly(match: re.Match[str]) -> str:
        nonlocal counted
        for number, part in enumerate(_UNCOMPRESSED.split(match[0])):
            counted += sum(max(4 * (number % 2), width(*each)) for each in _INSTRUCTION.findall(part))
        return ";"

    def without_struct(match: re.Match[str]) -> str:
        items[match[2]] = _struct(match[1], items)
        return ""

    def without_table(match: re.Match[str]) -> str:
        nonlocal counted
        size = items.get(match[1], (4, 4))[0]
        for extent in re.findall(r"\d+", match[2]):
            size *= int(extent)
        counted += size
        return ""

    text = _DIRECTIVE.sub("", _COMMENT.sub(" ", named(text, "model", "")))
    text = _STRUCT.sub(without_struct, _ASSEMBLY.sub(without_assembly, text))
    text = _TABLE.sub(without_table, text)
    functions = [(is_inline, name, " ".join(body.split())) for is_inline, name, body in _FUNCTION.findall(text)]
    inline = {name: body for is_inline, name, body in functions if is_inline}
    bodies = {name: _expanded(body, inline) for is_inline, name, body in functions if not is_inline}
    terms = {term: sum(len(pattern.findall(body)) for body in bodies.values()) for term, pattern in _COUNTED.items()}
    terms["arguments"] = _shared_arguments(bodies)
    real = "\n".join(body for _, _, body in functions if _COUNTED["floats"].search(body))
    once = {"float": bool(real), "divide": bool(_DIVIDE.search(real)), "subtract": bool(_SUBTRACT.search(real))}
    once["wide"] = any(map(_WIDE.search, bodies.values()))
    return counted, {**terms, **once, "program": 1, "functions": len(bodies), "libm": len(set(_LIBM.findall(real)))}


def _struct(members: str, items: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Bytes and alignment of a struct, of its members and of `items`."""
    size, widest = 0, 1
    for kind, names in _MEMBERS.findall(members):
        for name in names.split(","):
            item, align = (4, 4) if "*" in name else items.get(kind, (4, 4))
            size = -(-size // align) * align + item * prod(map(int, re.findall(r"\[(\d+)\]", name)))
            widest = max(widest, align)
    return -(-size // widest) * widest, widest


def _shared_arguments(bodies: Mapping[str, str]) -> int:
    """Arguments of all calls of those functions that more than one place calls."""
    places, arguments = Counter[str](), Counter[str]()
    for body in bodies.values():
        for call in (c for c in _CALL.finditer(body) if c[1] in bodies):
            depth, end = 1, call.end()
            commas = 0
            while depth and end < len(body):
                depth += (body[end] in "([{") - (body[end] in ")]}")
                commas += body[end] == "," and depth == 1
                end += 1
            places[call[1]] += 1
            arguments[call[1]] += commas + 1
    return sum(count for name, count in arguments.items() if places[name] > 1)


def _expanded(body: str, inline: Mapping[str, str]) -> str:
    """A body with the names of inline functions that it calls replaced by their bodies."""
    return _CALL.sub(lambda call: f"{_expanded(inline[call[1]], inline)}(" if call[1] in inline else call[0], body)


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
    """Armv6-M: all but a few are narrow. A constant in a literal pool is counted with its load."""
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
    """RV32 with compressed instructions; pseudo-instructions count as their expansions."""
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
