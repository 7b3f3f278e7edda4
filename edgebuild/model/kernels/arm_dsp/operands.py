"""How operands of the dot products of `dot.py` come to lie as these read them: functions in assembly."""

from __future__ import annotations

from functools import partial

from ..micro import Function, Loop, Part, framed

REGISTERS = tuple(f"r{n}" for n in range(4, 12))


# Two pixels share a word of two taps: each half holds 256 * x1 + x0 + 128, which is byte x1 over byte x0 ^ 0x80. SMLAD
# on the word sums 256 * Y1 + Y0, SMLAD on its low bytes (UXTB16) sums Y0; start values take the 128 back. Words are
# loaded one by one, because a load behind a load takes one cycle (Cortex-M4 TRM, 3.3.2).
SIGNS = (
    "mov r11, #0x00ff00ff",
    "uadd8 r4, r11, r11 /* from here SEL takes bytes 0 and 2 of its first operand, 1 and 3 of its second */",
    "mov r11, #0x80808080",
)


def _zipped(label: str) -> Loop:
    """Bytes of four pixels, whose places are in r1, r2, r3 and r12, to r0, up to lr, four at a time."""
    code = [f"ldr {to}, [{x}], #4" for to, x in (("r4", "r1"), ("r5", "r2"), ("r8", "r3"), ("r9", "r12"))]
    code += ["eor r4, r4, r11", "lsl r6, r5, #8", "lsr r7, r4, #8", "sel r4, r4, r6", "sel r6, r7, r5"]
    code += ["eor r8, r8, r11", "lsl r5, r9, #8", "lsr r7, r8, #8", "sel r5, r8, r5", "sel r7, r7, r9"]
    code += [f"str {word}, [r0], #4" for word in ("r4", "r5", "r6", "r7")]
    return Loop("fours", (f"{label}:", *code, "cmp r0, lr", f"bne {label}b"))


def zip4() -> Function:
    """One row."""
    return framed(
        "eb_zip4", "int32_t *to, const int8_t *const *pixels, int32_t n",
        "n bytes, a multiple of four, of four pixels: for each four taps the words of pixels 0 and 1 and of 2 and 3 "
        "for taps 0 and 2, then the same for taps 1 and 3.",
        (*REGISTERS[:6], "r11"),
        ("add lr, r0, r2, lsl #2", "ldm r1, {r1, r2, r3, r12}", *SIGNS, _zipped("1")),
    )  # fmt: skip


def zip4_rows() -> Function:
    """Rows of a window."""
    row: tuple[Part, ...] = ("1:", "add lr, r0, r10", _zipped("2"), "ldr r4, [sp, #36]", "ldr r5, [sp, #40]",
           *(f"add {x}, {x}, r4" for x in ("r1", "r2", "r3", "r12")), "subs r5, r5, #1", "str r5, [sp, #40]", "bne 1b",
           )  # fmt: skip
    return framed(
        "eb_zip4_rows",
        "int32_t *to, const int8_t *from, int32_t gap, int32_t n, int32_t line, int32_t rows",
        "As eb_zip4 of `rows` rows of taps that lie `line` apart. From a pixel to the next: `gap`.",
        REGISTERS,
        ("/* sp: 36 line, 40 rows */", "ldr r4, [sp, #36]", "lsl r10, r3, #2", "sub r4, r4, r3", "str r4, [sp, #36]",
         "add r3, r1, r2, lsl #1", "add r12, r3, r2", "add r2, r1, r2", *SIGNS, Loop("rows", row)),
    )  # fmt: skip


def gather(words: int) -> Function:
    """So many words of a pixel; 0: as many as a parameter says."""
    count, bytes_ = ("", ", int32_t n") if not words else (f"_{4 * words}", "")
    parameters = f"const int8_t *const *under, int32_t *to, const int32_t *end, int32_t at{bytes_}"
    remark = (
        f"{4 * words or 'n'} bytes{'' if words else ', a multiple of four,'} of two pixels under each tap, from their "
        "byte `at` on, to int16: interleaved, in words of bytes 0, 2 and 1, 3 of each four."
    )
    if not words:
        turn = ("2:", "ldr r6, [r4], #4", "ldr r7, [r5], #4", "sxtb16 r8, r6, ror #8", "sxtb16 r9, r7, ror #8",
                "sxtb16 r6, r6", "sxtb16 r7, r7", "stm r1!, {r6-r9}", "cmp r4, r12", "bne 2b")  # fmt: skip
        tap = ("1:", "ldrd r4, r5, [r0], #8", "add r4, r4, r3", "add r5, r5, r3", "add r12, r4, r10",
               Loop("fours", turn), "cmp r1, r2", "bne 1b")  # fmt: skip
        return framed("eb_gather2", parameters, remark, REGISTERS[:7], ("ldr r10, [sp, #32]", Loop("taps", tap)))
    code = ["1:", "ldrd r8, r12, [r0], #8"]
    for at in ("r3", "lr")[:words]:
        code += [f"ldr r4, [r8, {at}]", f"ldr r5, [r12, {at}]", "sxtb16 r6, r4, ror #8", "sxtb16 r7, r5, ror #8"]
        code += ["sxtb16 r4, r4", "sxtb16 r5, r5", "stm r1!, {r4-r7}"]
    head = ("add lr, r3, #4",) * (words == 2)
    return framed(
        f"eb_gather2{count}", parameters, remark, REGISTERS[:5],
        (*head, Loop("taps", (*code, "cmp r1, r2", "bne 1b"))),
    )  # fmt: skip


def _ends(label: int, letter: str, size: int) -> list[Part]:
    """Two loads that overlap, at the start and at the end of n bytes: `letter` of their size, once or twice in n."""
    code = ["1:", "ldrd r4, r5, [r0], #8", "add r4, r4, r10", "add r5, r5, r10"]
    for access, one, other in (("ldr", "r4", "r5"), ("str", "r2", "r3")):
        places = (("r6", one), ("r7", other), ("r8", f"{one}, r12"), ("r9", f"{other}, r12"))
        code += [f"{access}{letter} {register}, [{place}]" for register, place in places]
    code += ["add r2, r2, r11", "add r3, r3, r11", "cmp r0, r1", "bne 1b"]
    return [f"{label}:", f"sub r12, r11, #{size}", Loop("taps", tuple(code))]


def gapless() -> Function:
    """Any number of bytes."""
    copies = ("ldr r6, [r4], #4", "ldr r7, [r5], #4", "str r6, [r2], #4", "str r7, [r3], #4")
    tap: tuple[Part, ...] = ("1:", "ldrd r4, r5, [r0], #8", "add r4, r4, r10", "add r5, r5, r10", "sub r12, r11, #4",
           Loop("words", ("2:", *copies, "subs r12, r12, #4", "bgt 2b")),
           "add r4, r4, r12 /* the last word begins within the one before it */",
           *(f"add {x}, {x}, r12" for x in ("r5", "r2", "r3")), "ldr r6, [r4]", "ldr r7, [r5]", *copies[2:],
           "cmp r0, r1", "bne 1b")  # fmt: skip
    leave = "pop {r4-r11, pc}"
    return framed(
        "eb_gapless2", "const void *under, const void *past, void *to, void *other, int32_t at, int32_t n",
        "n bytes of two pixels under each tap, from their byte `at` on, to `to` and `other` without gaps. Addresses "
        "may be unaligned.",
        REGISTERS,
        ("ldrd r10, r11, [sp, #36]", "cmp r11, #8", "ble 5f", Loop("taps", tap), leave, "5:", "cmp r11, #2", "blt 8f",
         "cmp r11, #4", "blt 7f", *_ends(6, "", 4), leave, *_ends(7, "h", 2), leave, *_ends(8, "b", 1)),
    )  # fmt: skip


FUNCTIONS = {"eb_zip4": zip4, "eb_zip4_rows": zip4_rows, "eb_gapless2": gapless}
FUNCTIONS |= {f"eb_gather2{f'_{4 * n}' if n else ''}": partial(gather, n) for n in (0, 1, 2)}
