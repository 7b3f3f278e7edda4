"""Bytes of instructions of assembly, as GNU as encodes them.

Sources: Arm v7-M architecture reference manual (DDI 0403E), chapters A5 and A7; RISC-V unprivileged specification,
chapter 16 (compressed instructions). Numbers and registers are as kernels write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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
