"""Which targets a model fits: arena, flash, modelled time and energy of many targets, without a compiler.

A plan depends on a core's instruction set and on the memories that it has to fit into. So targets share plans: by
instruction set if their first memory has room for every plan that is tried, else by instruction set and memories.
Arenas are those of `edgebuild model`; bytes of code are estimated from the C that would be printed.

Kernels in assembly, which are most of the code, are counted instruction by instruction. The bytes of other C are
estimated from counts of its functions, accesses, calls, loops and so on. Their weights are least squares over the
bytes of the model's own functions in linked programs. Code that a program links once, such as start-up, has weights
from the other bytes of these programs. `python -m tests.code_sizes` fits all weights anew and prints their errors."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property, partial
from math import ceil, inf
from typing import Any

from ..base.errors import EdgebuildError, did_you_mean, fail
from ..base.progress import say
from ..base.request import ModelRequest
from ..base.target import Target, load_target, target_names
from ..base.workers import results
from ..clock.emit import target_tree
from .clocked import power_model
from .emit.code import program as make_program
from .emit.code import source
from .emit.report import level_steps
from .ir import Graph
from .kernels.costs import cycles_of
from .plan.choose import plan
from .plan.dma.assembly import check_request, mapped_plan, with_dma_memories
from .plan.dma.levels import unstated_energies
from .plan.search import Orders, Plan, arena_memories
from .plan.section import cost

# Code that a program links once. `program`: start-up, vectors and the smallest main; `float`, `divide` and `subtract`:
# code for these operations on floats, such as functions without an FPU; `wide`: a product of 64 bits; `libm`: each
# function of it.
ONCE = ("program", "float", "divide", "subtract", "wide", "libm")
# `arguments`: in calls of functions with several callers; compilers propagate those of all others.
TERMS = (*ONCE, "functions", "arithmetic", "accesses", "calls", "loops", "branches", "constants", "floats", "arguments")
# By kind of core, bytes of each of TERMS. Those of ONCE are fitted to 23 networks, the rest to 24.
WEIGHTS: Mapping[str, tuple[float, ...]] = {
    "armv6-m": (567.3, 1976.7, 720.0, 784.0, 91.8, 0.0, 12.5, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0, 7.6, 5.2),
    "thumb2": (552.0, 1146.9, 314.4, 0.0, 1.8, 0.0, 6.1, 3.9, 2.0, 0.0, 13.7, 1.9, 0.0, 7.5, 4.6),
    "thumb2f": (574.8, 15.3, 1.2, 0.0, 2.1, 0.0, 0.0, 3.5, 5.7, 6.8, 3.8, 9.3, 0.4, 5.9, 3.7),
    "mve": (574.3, 11.1, 5.7, 0.0, 7.5, 0.0, 0.0, 5.9, 0.0, 0.0, 0.0, 0.0, 7.1, 1.9, 1.1),
    "rv32": (224.0, 2750.0, 914.0, 1326.2, 39.5, 0.0, 0.0, 6.1, 1.1, 0.0, 6.1, 4.1, 2.1, 7.8, 3.9),
    "rv32f": (230.0, 24.0, 26.0, 122.3, 39.5, 0.0, 9.2, 6.2, 1.0, 0.0, 13.9, 0.9, 0.0, 6.4, 4.3),
}
ITEMS = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int64_t": 8}  # bytes; all others have four

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^#(?:.*\\\n)*.*\n", re.MULTILINE)
_ASSEMBLY = re.compile(r"__asm__\s*(?:volatile)?\(.*?\n?\s*\);", re.DOTALL)
_INSTRUCTION = re.compile(r'^\s*"\s*([a-z][\w.]*)[ ]*(.*?)(?:\\n|")', re.MULTILINE)
_TABLE = re.compile(r"static const (\w+) \w+((?:\[\d+\])+)\s*=\s*\{[^;]*\};")
_FUNCTION = re.compile(r"^(static inline )?\w[^;{}]*?\b(\w+)\([^;{}]*\)\n(\{\n.*?^\})", re.DOTALL | re.MULTILINE)
_CALL = re.compile(r"\b(\w+)\(")
_NO_CALLS = r"(?!(?:if|for|while|switch|return|sizeof|defined)\b)"
_COUNTED = {
    "arithmetic": re.compile(r" (?:[-+*/%&|^]|<<|>>) "),
    "accesses": re.compile(r"\[|(?<![\w)\]] )\*\w"),
    "calls": re.compile(rf"\b{_NO_CALLS}[a-z_]\w*\s*\("),
    "loops": re.compile(r"\b(?:for|while)\b"),
    "branches": re.compile(r"\bif\b|\?"),
    "constants": re.compile(r"\b(?:0x[0-9a-fA-F]{3,}|\d{4,})u?\b|\b[A-Z]\w+_\w+\b"),
    "floats": re.compile(r"\d\.\d*(?:e[-+]?\d+)?f|\bfloat\b"),
}
_DIVIDE = re.compile(r" /=? [(a-z]")  # of a body with floats: integers are divided by numbers there
_SUBTRACT = re.compile(r" - [^;\n]*\d\.\d*f|(?:\bfloat \w|\d\.\d*f)[^;\n]* - ")
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
    """Bytes of assembly and of tables in a model's C, and the count of each of TERMS in the rest."""
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
    functions = _FUNCTION.findall(text)
    inline = {name: body for is_inline, name, body in functions if is_inline}
    bodies = {name: _expanded(body, inline) for is_inline, name, body in functions if not is_inline}
    terms = {term: sum(len(pattern.findall(body)) for body in bodies.values()) for term, pattern in _COUNTED.items()}
    terms["arguments"] = _shared_arguments(bodies)
    real = "\n".join(body for _, _, body in functions if _COUNTED["floats"].search(body))
    once = {"float": bool(real), "divide": bool(_DIVIDE.search(real)), "subtract": bool(_SUBTRACT.search(real))}
    once["wide"] = any(map(_WIDE.search, bodies.values()))
    return counted, {**terms, **once, "program": 1, "functions": len(bodies), "libm": len(set(_LIBM.findall(real)))}


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


AMPLE = 1 << 30  # bytes of a memory that holds every plan
CYCLES = "times: cycles of the core, estimated within about 12 %, at its highest clock, without wait states"


@dataclass(frozen=True)
class FitRow:
    """A target, and the memory, time and energy of a model on it. None: there is no figure, or no plan.

    `short_of`: by `ram_bytes`, `flash_bytes` and `time_us`, the amount that is missing; None if the core has no timing
    model. Empty if the model fits.
    """

    target: Target
    arena_bytes: int | None = None
    flash_bytes: int | None = None
    time_us: float | None = None
    energy_uj: float | None = None
    tiled: bool = False
    short_of: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        return not self.short_of

    @cached_property
    def ram(self) -> int:
        """Bytes of the memories that activations may lie in, less the stack."""
        stack = self.target.firmware.stack if self.target.firmware else 0
        return sum(m.size for m in self.target.memories if "arena" in m.roles and m.access == "cpu") - stack

    @cached_property
    def flash(self) -> int:
        """Bytes of the memories of code and weights."""
        return sum(m.size for m in dict.fromkeys((self.target.memory("code"), self.target.memory("weights"))))


@dataclass(frozen=True)
class _Sizes:
    """A plan, and the bytes of flash of its program: code and weights."""

    plan: Plan
    code: int
    weights: int


@dataclass
class Fit:
    """A model, its request, and its plans so far, which targets share."""

    graph: Graph
    request: ModelRequest
    plans: dict[object, _Sizes | EdgebuildError] = field(default_factory=dict)
    leasts: dict[object, int] = field(default_factory=dict)
    orders: Orders = field(default_factory=dict)

    def row(self, target: Target) -> FitRow:
        """The row of one target. Raises EdgebuildError if the model or the request is invalid on any target."""
        sizes = self._sizes(target)
        if isinstance(sizes, int):
            ample = self._ample(target)  # flash of another plan, as there is none: it depends little on the plan
            missing = _flash_missing(target, ample.code, ample.weights)
            return FitRow(target, short_of={"ram_bytes": sizes, **missing})
        time = time_us(sizes.plan, target)
        short = _flash_missing(target, sizes.code, sizes.weights) | self._late(time)
        return FitRow(
            target,
            sizes.plan.arena_bytes,
            sizes.code + sizes.weights,
            time,
            self._levels_uj(target) or _energy(target, self.request, time),
            sizes.plan.tiled,
            short,
        )

    def _plan(self, target: Target, request: ModelRequest) -> Plan:
        """The plan for a target. Targets of one core share the order of ops and all its cuts."""
        return plan(self.graph, target, request, orders=self.orders)

    def _levels_uj(self, target: Target) -> float | None:
        """Energy in uJ of an inference with `--map layer`; None if the target does not state those of its levels."""
        on_engines = [unstated_energies(target, [e]) for e in target.engines]
        if len(target.levels) < 2 or not target.dma or any((unstated_energies(target), *on_engines)):
            return None
        request = replace(self.request, target=target.name, map="layer", tile="off")
        try:
            check_request(target, request)
            steps = level_steps(mapped_plan(self.graph, with_dma_memories(target), request))
        except EdgebuildError:
            return None
        return sum(row["energy_uj"] for row in steps)

    def _late(self, time: float | None) -> dict[str, int | None]:
        """Microseconds above the strictest budget, as `short_of` has them."""
        budgets = self.request.qos if isinstance(self.request.qos, tuple) else (self.request.qos,)
        budget = min((b * 1000 for b in budgets if b is not None), default=inf)
        if budget == inf or (time is not None and time <= budget):
            return {}
        return {"time_us": None if time is None else ceil(time - budget)}

    def _sizes(self, target: Target) -> _Sizes | int:
        """Sizes of the plan for a target; bytes of RAM that are missing if there is none."""
        ample, memories = self._ample(target), arena_memories(self.graph, target, self.request)
        first = memories[0].capacity or AMPLE
        cutter = ample.plan.cutter  # with `--tile off` all plans of single ops are tried
        peak = max(cutter.profile(cutter.untiled), default=0)
        if max(ample.plan.untiled_bytes, ample.plan.arena_bytes, peak) <= first:
            return ample
        room = sum(m.capacity or 0 for m in memories)
        if (least := self._least(target)) > room:
            return least - room
        key = target.words, memories
        if key not in self.plans:
            try:
                self.plans[key] = _measured(self._plan(target, replace(self.request, target=target.name)))
            except EdgebuildError as refusal:
                self.plans[key] = refusal
        sizes = self.plans[key]
        return max(1, least - max(m.capacity or 0 for m in memories)) if isinstance(sizes, EdgebuildError) else sizes

    def _ample(self, target: Target) -> _Sizes:
        """Sizes of the plan for the target's core with memory for everything."""
        if target.words not in self.plans:
            self.plans[target.words] = _measured(self._plan(_unlimited(target), self.request))
        sizes = self.plans[target.words]
        assert isinstance(sizes, _Sizes)
        return sizes

    def _least(self, target: Target) -> int:
        """Bytes of the smallest arena for the target's core with the options that a default compilation tries."""
        if target.words not in self.leasts:
            small = replace(self.request, objective="ram", tile="rolling", max_mac_overhead=0)
            self.leasts[target.words] = self._plan(_unlimited(target), small).arena_bytes
        return self.leasts[target.words]


def fit_rows(
    graph: Graph, request: ModelRequest, targets: Iterable[Target], scheduler: str | None = None
) -> list[FitRow]:
    """Rows of targets, those of one core after each other; `scheduler`: see `workers.results`."""
    cores = dict[frozenset[str], list[Target]]()
    for target in targets:
        cores.setdefault(target.words, []).append(target)
    rows = results(partial(_rows, graph, request), cores.values(), scheduler)
    return [row for of_core in rows for row in of_core]


def _rows(graph: Graph, request: ModelRequest, targets: Sequence[Target]) -> list[FitRow]:
    """Rows of targets of one core, which share plans."""
    fit, rows = Fit(graph, request), list[FitRow]()
    for target in targets:
        say(f"target {target.name}")
        rows.append(fit.row(target))
    return rows


def _unlimited(target: Target) -> Target:
    memories = (replace(m, size=AMPLE + (m.size if "stack" in m.roles else 0)) for m in target.memories)
    return replace(target, memories=tuple(memories))


def _measured(decided: Plan) -> _Sizes:
    program = make_program(decided)
    code = program_bytes(source(program), decided.target)
    return _Sizes(decided, code, program.weights.linked_bytes)


def time_us(decided: Plan, target: Target) -> float | None:
    """Estimated microseconds of an inference at the target's highest clock; None if clock or core has no figure."""
    cycles = cycles_of(target, cost(decided.steps))
    return cycles / target.clock_hz * 1e6 if cycles is not None and target.clock_hz else None


def _flash_missing(target: Target, code: int, weights: int) -> dict[str, int | None]:
    """Bytes that are missing in the memories of code and weights together."""
    homes = target.memory("code"), target.memory("weights")
    if homes[0] is homes[1]:
        missing = code + weights - homes[0].size
    else:
        missing = max(code - homes[0].size, 0) + max(weights - homes[1].size, 0)
    return {"flash_bytes": missing} if missing > 0 else {}


def _energy(target: Target, request: ModelRequest, time_us: float | None) -> float | None:
    """Energy in uJ of an inference at the highest clock; None if the clock tree states no currents."""
    if time_us is None or not target.clocks or target_tree(target).power is None:
        return None
    try:
        model = power_model(target, replace(request, calibration=None, hse=None))
    except EdgebuildError:
        return None
    fastest = max(model.plan.configs, key=lambda config: config.sysclk_hz)
    return time_us * model.run_mw(fastest) / 1000


def best_first(rows: Iterable[FitRow]) -> list[FitRow]:
    """Rows that fit, the chip of least memory first and the faster of equals; then the others, the nearest first.

    A byte of RAM counts as four of flash, which is about their price on a chip.
    """

    def rank(row: FitRow) -> tuple[object, ...]:
        if row.fits:
            return 0, 4 * row.ram + row.flash, row.time_us or 0.0, row.target.name
        return 1, sum(n or 0 for n in row.short_of.values()), row.target.name, ""

    return sorted(rows, key=rank)


def chosen_targets(patterns: str | None) -> list[Target]:
    """Targets by names, patterns and files, separated by commas; None: all that state a clock.

    Raises EdgebuildError for a pattern that matches no target.
    """
    if patterns is None:
        return [target for name in target_names() if (target := load_target(name)).clock_hz]
    names, chosen = target_names(), dict[str, None]()
    for pattern in filter(None, (word.strip() for word in patterns.split(","))):
        is_path = "/" in pattern or pattern.endswith((".yaml", ".yml"))
        fitting = [pattern] if is_path else [name for name in names if fnmatchcase(name, pattern)]
        if not fitting:
            hints = ["`edgebuild targets` lists them; patterns are as in 'stm32f4*'"]
            raise fail(f"option 'targets': no target fits '{pattern}'{did_you_mean(pattern, names)}", hints=hints)
        chosen |= dict.fromkeys(fitting)
    if not chosen:
        raise fail("option 'targets': no target is named", hints=["such as --targets 'nrf5*,rp2040'"])
    return [load_target(name) for name in chosen]


# ---- The rows as a table and as JSON


SCHEMA = 1
BEST = 3  # best rows, which are printed as a group of their own
UNITS = {"ram_bytes": ("RAM", "B"), "flash_bytes": ("flash", "B"), "time_us": ("time", "us")}


def as_json(rows: Sequence[FitRow], request: ModelRequest) -> str:
    """All rows in their order. Missing figures are null; `short_of` is empty for a target that fits."""
    data = {
        "schema": SCHEMA,
        "model": request.source.name,
        "basis": {"arena_bytes": "as compiled", "flash_bytes": "code estimated", "time_us": CYCLES},
        "rows": [_row(row) for row in rows],
    }
    return json.dumps(data, indent=1) + "\n"


def _row(row: FitRow) -> dict[str, Any]:
    return {
        "target": row.target.name,
        "description": row.target.description,
        "fits": row.fits,
        "arena_bytes": row.arena_bytes,
        "flash_bytes": row.flash_bytes,
        "time_us": _rounded(row.time_us),
        "energy_uj": _rounded(row.energy_uj),
        "tiled": row.tiled,
        "ram_bytes": row.ram,
        "rom_bytes": row.flash,
        "short_of": dict(row.short_of),
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)


def as_text(rows: Sequence[FitRow], request: ModelRequest, short: bool) -> str:
    """A line for each row, the best ones first in a group of their own; `short`: without first and last lines."""
    fitting = sum(row.fits for row in rows)
    width = max((len(row.target.name) for row in rows), default=6)
    head = f"  {'target':{width}} {'arena':>9} {'of RAM':>6} {'flash':>10} {'of':>5} {'ms':>9} {'uJ':>9}"
    lines = [] if short else [f"{request.source.name}: fits {fitting} of {len(rows)} targets"]
    lines.append(head)
    lines += [_line(row, width) for row in rows[:BEST]]
    lines += ["", *(_line(row, width) for row in rows[BEST:])] if len(rows) > BEST else []
    if not short:
        lines += [
            "",
            f"{CYCLES}; energy: at that clock, or of memory levels",
            "first: the chips of least memory that the model fits",
        ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _line(row: FitRow, width: int) -> str:
    words = [f"{row.arena_bytes:>9,} {_share(row.arena_bytes, row.ram)}" if row.arena_bytes is not None else " " * 16]
    words += [f"{row.flash_bytes:>10,} {_share(row.flash_bytes, row.flash, 5)}" if row.flash_bytes else " " * 16]
    words.append(f"{row.time_us / 1000:>9.2f}" if row.time_us is not None else " " * 9)
    words.append(f"{row.energy_uj:>9.1f}" if row.energy_uj is not None else " " * 9)
    missing = [
        f"{UNITS[key][0]} by {n:,} {UNITS[key][1]}" if n is not None else f"a model of {UNITS[key][0]}"
        for key, n in row.short_of.items()
    ]
    note = f"short of {', '.join(missing)}" if missing else "tiled" if row.tiled else ""
    return f"{'+' if row.fits else '-'} {row.target.name:{width}} {' '.join(words)}  {note}"


def _share(part: int, whole: int, width: int = 6) -> str:
    return f"{100 * part / max(whole, 1):.0f}%".rjust(width)
