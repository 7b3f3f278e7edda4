"""Effects of machine instructions on the stack and on the flow of control, as GNU objdump prints them.

Arm M-profile (Thumb), RISC-V (with `-M no-aliases`) and x86-64. What is not in these tables neither moves the stack
pointer nor leaves the straight line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

NEXT, JUMP, BRANCH, CALL, END = "next", "jump", "branch", "call", "end"
CONDITION = "(?:eq|ne|cs|cc|hs|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)"


@dataclass(frozen=True)
class Effect:
    """`grows`: bytes by which the stack grows. `flow`: how control goes on; `is_indirect`: to an address in a register.

    `by`: the register whose value the stack grows by, with the sign in `grows`. `moves`: the register that becomes the
    stack pointer. `resets`: the stack begins anew here.
    """

    flow: str = NEXT
    grows: int = 0
    by: str = ""
    is_indirect: bool = False
    moves: str = ""
    resets: bool = False


NOTHING = Effect()
UNKNOWN = "?"  # a register of which nothing is known
Decode = Callable[[str, str, str], Effect]  # mnemonic, operands, what objdump notes behind them


def _number(text: str) -> int:
    return int(text, 0)


def _registers(text: str) -> list[str]:
    """The names in `{r4-r8, lr}`, or `{d8-d11}`."""
    names = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not last:
            names.append(first)
        else:
            names += [f"{first[0]}{n}" for n in range(int(first[1:]), int(last[1:]) + 1)]
    return names


WIDTH = {"d": 8, "q": 16}
ARM_PUSH = re.compile(r"(push|vpush|stmdb|stmfd|vstmdb)$")
ARM_POP = re.compile(r"(pop|vpop|ldmia|ldmfd|vldmia)$")


def arm(op: str, args: str, note: str) -> Effect:
    """Thumb. An instruction under a condition may not happen, so it shrinks no stack and ends no path."""
    base = re.sub(r"(\.[nw]|\.\d+)+$", "", op)
    plain = re.sub(f"{CONDITION}$", "", base)
    if plain != base and re.fullmatch(r"push|pop|bx|ldm\w*|stm\w*|v?add|sub|mov|b|ldr|str|bl|blx", plain):
        e = _arm(plain, args)
        if plain == "b":
            return Effect(BRANCH)
        if e.flow in (END, JUMP):
            return Effect(NEXT if e.flow == END else BRANCH, is_indirect=e.is_indirect)
        return Effect(e.flow, max(e.grows, 0), e.by, e.is_indirect)
    return _arm(base, args)


def _arm(op: str, args: str) -> Effect:
    if list_ := re.search(r"\{([a-z][^}]*)\}", args):  # {-0} is an operand of coprocessors
        on_stack = op in ("push", "pop", "vpush", "vpop") or args.startswith("sp!")
        names = _registers(list_[1])
        size = sum(WIDTH.get(name[0], 4) for name in names)
        if on_stack and ARM_PUSH.match(op):
            return Effect(grows=size)
        if on_stack and ARM_POP.match(op):
            return Effect(END if "pc" in names else NEXT, -size)
        return Effect(END) if op.startswith("ldm") and "pc" in names else NOTHING
    if moved := re.search(r"\[sp, #(-\d+)\]!", args):
        return Effect(grows=-_number(moved[1]))
    if moved := re.search(r"\[sp\], #(\d+)", args):
        return Effect(END if args.startswith(("pc", "lr, pc")) else NEXT, -_number(moved[1]))
    if op in ("bl", "blx"):
        return Effect(CALL, is_indirect="<" not in args)
    if op == "bx" or (op == "mov" and args.startswith("pc,")):
        return Effect(END) if args.endswith("lr") else Effect(JUMP, is_indirect=True)
    if op == "b":
        return Effect(JUMP)
    if op in ("cbz", "cbnz", "le", "wls", "letp") or op.startswith("wlstp"):
        return Effect(BRANCH)
    if op in ("tbb", "tbh") or (op == "ldr" and args.startswith("pc,")):
        return Effect(JUMP, is_indirect=True)
    if op in ("udf", "bxns"):
        return Effect(END)
    return _arm_pointer(op, args)


def _arm_pointer(op: str, args: str) -> Effect:
    """Sums and moves into sp. `sub sp, r7, #8` takes back a frame of which the size was counted when it was laid."""
    if op == "mov" and args.startswith("sp,"):
        return Effect(moves=args[3:].strip())
    if (op == "msr" and args.startswith("MSP")) or (op == "ldr" and args.startswith("sp,")):
        return Effect(resets=True)
    if op not in ("add", "addw", "sub", "subw") or not args.startswith("sp,"):
        return NOTHING
    words = [w.strip() for w in args.split(",")]
    if len(words) == 3 and words[1] != "sp":
        return NOTHING if words[2].startswith("#") else Effect(by=UNKNOWN)
    sign = 1 if op.startswith("sub") else -1
    if words[-1].startswith("#"):
        return Effect(grows=sign * _number(words[-1][1:]))
    return Effect(grows=sign, by=words[-1])


def riscv(op: str, args: str, note: str) -> Effect:
    """RISC-V. `jalr` has the place in its note where a pair of instructions names it."""
    op = op.removeprefix("c.")
    words = [w.strip() for w in args.split(",")]
    if op in ("jal", "jalr", "j", "jr"):
        return _riscv_jump(op, words, args + note)
    if op in ("beqz", "bnez") or op in ("beq", "bne", "blt", "bge", "bltu", "bgeu"):
        return Effect(BRANCH)
    if op in ("mret", "sret", "ebreak", "unimp"):
        return Effect(END)
    if op.startswith("cm.p") and "}" in args:
        moved = -_number(args.rpartition(",")[2])
        return Effect(END if "ret" in op else NEXT, moved)
    if not words or words[0] != "sp":
        return NOTHING
    if op in ("auipc", "lui", "li") or (op == "addi" and words[1] == "zero") or op in ("lw", "lwsp", "csrrw"):
        return Effect(resets=True)
    if op == "addi16sp" or (op == "addi" and words[1] == "sp") or (op == "addi" and len(words) == 2):
        return Effect(grows=-_number(words[-1]))
    if op in ("add", "sub") and (len(words) == 2 or words[1] == "sp"):
        return Effect(grows=1 if op == "sub" else -1, by=words[-1])
    if op in ("add", "sub", "mv"):
        return Effect(moves=words[1]) if op == "mv" or words[1] == "zero" else Effect(by=UNKNOWN)
    return NOTHING  # addi sp,s0,-16 takes back a frame that was counted


def _riscv_jump(op: str, words: list[str], text: str) -> Effect:
    link = words[0] if op in ("jal", "jalr") and len(words) > 1 else ("ra" if op in ("jal", "jalr") else "zero")
    is_register = op in ("jalr", "jr")
    base = re.sub(r".*\((\w+)\)$", r"\1", words[-1])
    if link != "zero":
        return Effect(CALL, is_indirect=is_register and "<" not in text, by="" if link == "ra" else link)
    if is_register and base == "ra" and "<" not in text:
        return Effect(END)
    return Effect(JUMP, is_indirect=is_register and "<" not in text)


def x86(op: str, args: str, note: str) -> Effect:
    """x86-64, in the syntax of AT&T."""
    prefix, _, rest = f"{op} {args}".partition(" ")
    while prefix in ("bnd", "notrack", "repz", "rep", "cs", "ds", "lock", "data16"):
        prefix, _, rest = rest.strip().partition(" ")
    op, args = prefix.removesuffix("q") if prefix in ("pushq", "popq", "subq", "addq") else prefix, rest.strip()
    if op in ("push", "pushf"):
        return Effect(grows=8)
    if op in ("pop", "popf", "leave"):
        return Effect(grows=-8)
    if op.startswith("call"):
        return Effect(CALL, is_indirect=args.startswith("*"))
    if op.startswith("jmp"):
        return Effect(JUMP, is_indirect=args.startswith("*"))
    if op.startswith(("j", "loop")):
        return Effect(BRANCH)
    if op.startswith(("ret", "hlt", "ud2", "iret")):
        return Effect(END)
    if not args.endswith(",%rsp"):
        return NOTHING
    value = args.removesuffix(",%rsp")
    if op in ("sub", "add"):
        sign = 1 if op == "sub" else -1
        return Effect(grows=sign * _signed(value[1:])) if value.startswith("$") else Effect(grows=sign, by=value[1:])
    if op == "and":
        return Effect(grows=-_signed(value[1:]) - 1)
    if op == "lea" and (moved := re.fullmatch(r"(-?0x[0-9a-f]+)\(%rsp\)", value)):
        return Effect(grows=-_number(moved[1]))
    return Effect(moves=value[1:]) if op == "mov" and value.startswith("%") else NOTHING


def _signed(text: str) -> int:
    value = _number(text)
    return value - (1 << 64) if value >> 63 else value


@dataclass(frozen=True)
class Machine:
    """`return_bytes`: what a call itself puts on the stack. `tools`: names that its objdump may have."""

    decode: Decode
    tools: tuple[str, ...]
    flags: tuple[str, ...] = ()
    return_bytes: int = 0
    destination_last: bool = False


MACHINES = {
    "EM_ARM": Machine(arm, ("arm-none-eabi-objdump",)),
    "EM_RISCV": Machine(riscv, ("riscv64-unknown-elf-objdump", "riscv32-unknown-elf-objdump"), ("-M", "no-aliases")),
    "EM_X86_64": Machine(x86, ("objdump",), return_bytes=8, destination_last=True),
}
