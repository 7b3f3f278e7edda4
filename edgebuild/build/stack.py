"""A bound of the stack that a linked program needs: the frames of its functions along the deepest chain of calls.

Frames and calls come from the disassembly, so libraries and assembler are included. If a frame depends on a value, the
compiler's `.su` files (-fstack-usage) are used. There is no bound, but a reason, if a function calls through a pointer,
a chain of calls is recursive, or a frame has an unknown size. Interrupt handlers are not included.

The decoders have the effects of instructions on the stack and on control flow, as printed by GNU objdump for Arm
M-profile (Thumb), RISC-V (with `-M no-aliases`) and x86-64. Instructions that they do not list neither move the stack
pointer nor branch.
"""

from __future__ import annotations

import functools
import operator
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.errors import Diagnostic, MissingTool, fail

NEXT, JUMP, BRANCH, CALL, END = "next", "jump", "branch", "call", "end"
CONDITION = "(?:eq|ne|cs|cc|hs|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)"


@dataclass(frozen=True)
class Effect:
    """Effect of an instruction. `grows`: bytes by which the stack grows. `flow`: control flow after it; `is_indirect`:
    to an address in a register.

    `by`: the register by whose value the stack grows, with the sign in `grows`. `moves`: the register that is copied to
    the stack pointer. `resets`: the stack pointer is initialised.
    """

    flow: str = NEXT
    grows: int = 0
    by: str = ""
    is_indirect: bool = False
    moves: str = ""
    resets: bool = False


NOTHING = Effect()
UNKNOWN = "?"  # stands for a register with an unknown value
Decode = Callable[[str, str, str], Effect]  # (mnemonic, operands, objdump's note after them)


def _literal(text: str) -> int:
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
    """Decode Thumb. A conditional instruction may be skipped, so it never shrinks the stack or ends a path."""
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
        return Effect(grows=-_literal(moved[1]))
    if moved := re.search(r"\[sp\], #(\d+)", args):
        return Effect(END if args.startswith(("pc", "lr, pc")) else NEXT, -_literal(moved[1]))
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
    """Sums and moves into sp. `sub sp, r7, #8` only restores sp: the frame was counted when it was allocated."""
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
        return Effect(grows=sign * _literal(words[-1][1:]))
    return Effect(grows=sign, by=words[-1])


def riscv(op: str, args: str, note: str) -> Effect:
    """Decode RISC-V. The note of `jalr` has the target if a pair of instructions forms it."""
    op = op.removeprefix("c.")
    words = [w.strip() for w in args.split(",")]
    if op in ("jal", "jalr", "j", "jr"):
        return _riscv_jump(op, words, args + note)
    if op in ("beqz", "bnez") or op in ("beq", "bne", "blt", "bge", "bltu", "bgeu"):
        return Effect(BRANCH)
    if op in ("mret", "sret", "ebreak", "unimp"):
        return Effect(END)
    if op.startswith("cm.p") and "}" in args:
        moved = -_literal(args.rpartition(",")[2])
        return Effect(END if "ret" in op else NEXT, moved)
    if not words or words[0] != "sp":
        return NOTHING
    if op in ("auipc", "lui", "li") or (op == "addi" and words[1] == "zero") or op in ("lw", "lwsp", "csrrw"):
        return Effect(resets=True)
    if op == "addi16sp" or (op == "addi" and words[1] == "sp") or (op == "addi" and len(words) == 2):
        return Effect(grows=-_literal(words[-1]))
    if op in ("add", "sub") and (len(words) == 2 or words[1] == "sp"):
        return Effect(grows=1 if op == "sub" else -1, by=words[-1])
    if op in ("add", "sub", "mv"):
        return Effect(moves=words[1]) if op == "mv" or words[1] == "zero" else Effect(by=UNKNOWN)
    return NOTHING  # addi sp,s0,-16 restores sp: the frame is counted already


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
    """Decode x86-64, in AT&T syntax."""
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
        return Effect(grows=sign * _signed64(value[1:])) if value.startswith("$") else Effect(grows=sign, by=value[1:])
    if op == "and":
        return Effect(grows=-_signed64(value[1:]) - 1)
    if op == "lea" and (moved := re.fullmatch(r"(-?0x[0-9a-f]+)\(%rsp\)", value)):
        return Effect(grows=-_literal(moved[1]))
    return Effect(moves=value[1:]) if op == "mov" and value.startswith("%") else NOTHING


def _signed64(text: str) -> int:
    value = _literal(text)
    return value - (1 << 64) if value >> 63 else value


@dataclass(frozen=True)
class Machine:
    """`return_bytes`: bytes that a call itself pushes. `tools`: possible names of its objdump."""

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


MAX_VISITS = 64  # visits of an instruction, each with a deeper stack, before the stack counts as growing in a loop
LOOK_BACK = 12  # instructions before a sum that are searched for the value of its register
MAX_REASONS = 4


@dataclass(frozen=True)
class Bound:
    """A bound in bytes. With `reasons` it is only a lower one: they say why the need is unknown."""

    bytes: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Function:
    """`frame`: most bytes of its own frame. `calls`: (depth of the stack in bytes, address of the callee)."""

    name: str
    frame: int
    calls: tuple[tuple[int, int], ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """An instruction. `words`: its operands, the destination first. `target`: the address in its text."""

    op: str
    words: tuple[str, ...]
    effect: Effect
    next: int  # address of the next instruction
    target: int | None
    constant: int | None  # the word of the program's image that it loads


HEAD = re.compile(r"^([0-9a-f]+) <(.+)>:$")
ROW = re.compile(r"^\s*([0-9a-f]+):\t(\S+)(?:\s+(.*))?$")
PLACE = re.compile(r"\b(?:0x)?([0-9a-f]+) <")


class Code:
    """The instructions of a linked program, and the begin and end of its functions. Raises EdgebuildError."""

    def __init__(self, elf: Path, stack_usage: Path | None = None, objdump: str = "") -> None:
        from elftools.elf.elffile import ELFFile

        with elf.open("rb") as stream:
            file = ELFFile(stream)
            if (name := file["e_machine"]) not in MACHINES:
                hints = ["known are Arm's M-profile, RISC-V and x86-64"]
                raise fail(f"no bound of the stack for the processor {name}", file=str(elf), hints=hints)
            self.machine = MACHINES[name]
            functions = list(_functions(file))
            self.entry = _entry(file, functions)
            words = _words(file)
            text = _disassembled(elf, self.machine, objdump)
            self.names, self.lines = _lines(text, self.machine, words)
        self.starts = frozenset(start for start, _, name in functions if ".cold" not in name)
        self.end_of = {start: start + size for start, size, _ in functions}
        self._ends = frozenset(self.end_of.values())
        self._previous = {line.next: at for at, line in self.lines.items()}
        self._usage = functools.cache(lambda: _stack_usage(stack_usage))

    @functools.cache  # noqa: B019 - one program in a process
    def function(self, start: int) -> Function:
        """The function at an address: all code that is reached from there without a call."""
        flow = _Flow(self, start)
        flow.run()
        f = Function(self.names.get(start, f"{start:#x}"), flow.frame, tuple(sorted(flow.calls)), tuple(flow.reasons))
        unsure = tuple(r for r in f.reasons if r.endswith(UNSURE))
        usage = self._usage().get(re.sub(r"\..*", "", f.name)) if unsure else None
        if usage is None:
            return f
        calls = tuple((usage, callee) for _, callee in f.calls)  # includes the return address
        frame = usage - self.machine.return_bytes
        return Function(f.name, frame, calls, tuple(r for r in f.reasons if r not in unsure))

    def bound(self, start: int, left_out: Collection[int] = (), above: tuple[int, ...] = ()) -> Bound:
        """The bound of all chains of calls from `start`. Functions in `left_out` count as 0. `above`: the callers."""
        if start in above:
            names = ", ".join(f"'{self.names.get(a, hex(a))}'" for a in above[above.index(start) :])
            return Bound(0, (f"{names} may call itself" if "," not in names else f"{names} may call each other",))
        if start not in self.lines:
            return Bound(0, (f"{start:#x} is called and has no code",))
        f = self.function(start)
        deepest, reasons = f.frame, dict.fromkeys(f.reasons)
        for depth, callee in f.calls:
            if callee not in left_out:
                inner = self._bound(callee, left_out, (*above, start))
                deepest = max(deepest, depth + inner.bytes)
                reasons |= dict.fromkeys(inner.reasons)
        return Bound(deepest, tuple(reasons)[:MAX_REASONS])

    def _bound(self, start: int, left_out: Collection[int], above: tuple[int, ...]) -> Bound:
        if start in above:
            return self.bound(start, left_out, above)
        memo: dict[tuple[int, int], Bound] = self.__dict__.setdefault("_memo", {})
        key = (start, id(left_out))
        if key not in memo:
            memo[key] = self.bound(start, left_out, above)
        return memo[key]

    def constant(self, at: int, register: str) -> int | None:
        """The constant that the instructions just before `at` put into the register; None if it is none."""
        later: list[tuple[str, int]] = []  # operations on the value before its use, the last first
        for line in self._in_front(at):
            if line.effect.flow != NEXT:
                return None
            op, words = re.sub(r"^c\.|\.[nw]$", "", line.op), line.words
            if words[:1] != (register,):
                continue
            number = _number(words[-1])
            if op in STEPS and number is not None and (len(words) == 2 or words[1] == register):
                later.append((op, number))
            elif (value := _loaded(op, line, number)) is not None:
                for step, operand in reversed(later):
                    value = STEPS[step](value, operand)
                return _signed(value)
            else:
                return None
        return None

    def is_computed(self, at: int, register: str) -> bool:
        """Whether the register is a sum of registers just before `at`: then it is no saved stack pointer."""
        setter = next((line for line in self._in_front(at) if line.words[:1] == (register,)), None)
        if setter is None or re.match(r"(c\.)?(mov|mv|ldr|lw|pop|str|sw|cmp)", setter.op):
            return False
        return any(_number(word) is None for word in setter.words[-1:])

    def _in_front(self, at: int) -> Iterator[Line]:
        for _ in range(LOOK_BACK):
            if (back := self._previous.get(at)) is None:
                return
            at = back
            yield self.lines[at]

    def leaves(self, line: Line) -> bool:
        """Whether control never reaches the next instruction: a call at the end of a function does not return."""
        return line.effect.flow in (JUMP, END) or (line.effect.flow == CALL and line.next in self._ends)


STEPS: dict[str, Callable[[int, int], int]] = {
    **dict.fromkeys(("add", "adds", "addw", "addi", "addiw"), operator.add),
    **dict.fromkeys(("sub", "subs", "subw"), operator.sub),
    **dict.fromkeys(("lsls", "slli"), operator.lshift),
    "movt": lambda value, high: (high << 16) + (value & 0xFFFF),
}


def _loaded(op: str, line: Line, number: int | None) -> int | None:
    """The constant that an instruction loads into a register; None if it loads none."""
    if op in ("ldr", "lw"):
        return line.constant
    if op == "lui" and number is not None:
        return number << 12
    is_plain = op in ("li", "mov", "movw", "movs") or line.words[1:2] == ("zero",)
    return number if is_plain else None


UNSURE = ("of unknown size", "in a loop")


class _Flow:
    """The depths of the stack in one function, along all paths from its start."""

    def __init__(self, code: Code, start: int) -> None:
        self._code, self._start = code, start
        self._name = code.names.get(start, f"{start:#x}")
        self._depths = {start: 0}
        self._open = [start]
        self._visits = defaultdict[int, int](int)
        self._tables: list[int] = []  # depths at indirect jumps
        self.frame = 0
        self.calls: set[tuple[int, int]] = set()
        self.reasons: dict[str, None] = {}

    def run(self) -> None:
        by_table = False
        while self._open or self._tables:
            if self._open:
                self._step(self._open.pop())
            elif unseen := self._unseen():  # code that only a jump table can reach
                by_table = True
                self._reach(unseen, max(self._tables))
            else:
                if not by_table:
                    self._unknown("calls through a pointer")
                self._tables.clear()

    def _unknown(self, what: str) -> None:
        name = self._name
        shared = name.removesuffix("@plt")
        self.reasons[f"'{shared}' is in a shared library" if shared != name else f"'{name}' {what}"] = None

    def _unseen(self) -> int | None:
        end = self._code.end_of.get(self._start, self._start)
        return min(
            (a for a in range(self._start, end) if a in self._code.lines and a not in self._depths), default=None
        )

    def _reach(self, at: int, depth: int) -> None:
        if self._depths.get(at, -1) < depth:
            self._depths[at] = depth
            self._open.append(at)

    def _step(self, at: int) -> None:
        line = self._code.lines.get(at)
        if line is None:
            return
        self._visits[at] += 1
        if self._visits[at] > MAX_VISITS:
            self._unknown(f"lowers the stack {UNSURE[1]}")
            return
        depth = self._after(at, line)
        self.frame = max(self.frame, depth)
        self._leave(line, depth)
        if not self._code.leaves(line):
            self._go(line.next, depth)

    def _after(self, at: int, line: Line) -> int:
        e, before = line.effect, self._depths[at]
        if e.resets:
            return 0
        if e.moves and self._code.is_computed(at, e.moves):
            self._unknown(f"has a frame {UNSURE[0]}")
        if not e.by:
            return max(before + e.grows, 0)
        value = self._code.constant(at, e.by) if e.flow == NEXT else None
        if value is None:
            self._unknown(f"has a frame {UNSURE[0]}")
            return before
        return max(before + e.grows * value, 0)

    def _leave(self, line: Line, depth: int) -> None:
        e = line.effect
        if e.flow == CALL:
            if e.is_indirect or line.target is None:
                self._unknown("calls through a pointer")
            elif line.target:  # address 0: an undefined weak function
                self.calls.add((depth + self._code.machine.return_bytes, line.target))
        elif e.is_indirect:
            self._tables.append(depth)
        elif e.flow in (JUMP, BRANCH) and line.target is not None:
            self._go(line.target, depth)

    def _go(self, at: int, depth: int) -> None:
        """Follow a jump: within this function, or as a tail call of another one."""
        if at in self._code.starts and at != self._start:
            self.calls.add((depth, at))
        else:
            self._reach(at, depth)


def _functions(file: Any) -> Iterator[tuple[int, int, str]]:
    """(address, bytes, name) of the functions with a size."""
    table = file.get_section_by_name(".symtab")
    for s in table.iter_symbols() if table is not None else ():
        if s["st_info"]["type"] == "STT_FUNC" and s["st_size"] and s["st_shndx"] != "SHN_UNDEF":
            yield s["st_value"] & ~(file["e_machine"] == "EM_ARM"), s["st_size"], s.name


def _entry(file: Any, functions: list[tuple[int, int, str]]) -> int | None:
    """The address of the program's entry; under an operating system `main`, since earlier code is the system's."""
    if any(s["p_type"] == "PT_INTERP" for s in file.iter_segments()):
        return next((start for start, _, name in functions if name == "main"), None)
    return int(file["e_entry"]) & ~(file["e_machine"] == "EM_ARM")


def _words(file: Any) -> dict[int, bytes]:
    """Bytes of the sections with code, by address."""
    return {
        s["sh_addr"]: s.data() for s in file.iter_sections() if s["sh_flags"] & 4 and s["sh_type"] == "SHT_PROGBITS"
    }


def _disassembled(elf: Path, machine: Machine, objdump: str) -> str:
    tool = objdump or next((t for t in machine.tools if shutil.which(t)), "")
    if not tool:
        hint = f"a bound of the stack needs {machine.tools[0]}, which comes with the compiler"
        raise MissingTool(Diagnostic("no disassembler for this program", str(elf), hints=(hint,)))
    command = [tool, "-d", "-w", "--no-show-raw-insn", *machine.flags, str(elf)]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    except OSError as error:
        raise MissingTool(Diagnostic(f"cannot run {tool}: {error.strerror}", str(elf))) from error
    if done.returncode:
        raise fail(f"{tool}: {done.stderr.strip()}", file=str(elf))
    return done.stdout


def _lines(text: str, machine: Machine, words: Mapping[int, bytes]) -> tuple[dict[int, str], dict[int, Line]]:
    """(names by address, instructions by address), without the data between them."""
    names: dict[int, str] = {}
    rows: list[tuple[int, str, str, str]] = []
    for row in text.splitlines():
        if head := HEAD.match(row):
            names[int(head[1], 16)] = head[2]
        elif part := ROW.match(row):
            operands = re.split(r"\s*[;@]\s|\s*#\s", part[3] or "", maxsplit=1)
            rows.append((int(part[1], 16), part[2], operands[0].strip(), "".join(operands[1:])))
    lines = {}
    for (at, op, args, note), after in zip(rows, [*(r[0] for r in rows[1:]), 0], strict=True):
        if op.startswith("."):
            continue
        effect = machine.decode(op, args, note)
        place = PLACE.search(args) or PLACE.search(note)
        target = int(place[1], 16) if place else None
        loaded = _word(words, target) if target is not None and effect.flow == NEXT else None
        fields = [w.strip().lstrip("%") for w in args.split(",")]
        lines[at] = Line(op, tuple(fields[::-1] if machine.destination_last else fields), effect, after, target, loaded)
    return names, lines


def _word(words: Mapping[int, bytes], at: int) -> int | None:
    for start, data in words.items():
        if start <= at <= start + len(data) - 4:
            return int.from_bytes(data[at - start : at - start + 4], "little")
    return None


def _stack_usage(folder: Path | None) -> dict[str, int]:
    """Bounded frames in bytes from `.su` files, by function; the largest for functions of one name."""
    results: dict[str, int] = {}
    for file in sorted(folder.rglob("*.su")) if folder else ():
        for row in file.read_text(encoding="utf-8", errors="replace").splitlines():
            place, _, rest = row.partition("\t")
            size, _, kind = rest.partition("\t")
            if size.isdigit() and kind != "dynamic":
                name = place.rpartition(":")[2]
                results[name] = max(results.get(name, 0), int(size))
    return results


def _number(text: str) -> int | None:
    match = re.fullmatch(r"[#$]?(-?(?:0x[0-9a-f]+|\d+))", text)
    return int(match[1], 0) if match else None


def _signed(value: int) -> int:
    """A 32-bit value as a signed number."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
