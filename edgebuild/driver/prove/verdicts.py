"""The verdict on each function: proved, refuted with the difference, or unknown with the reason.

Each path through the source is compared with each path through the generated code that the same inputs can take. Both
must have the same events in the same order, with equal values of all fields at each event and at the end, and return
the same value. Loops are proved by induction (`compare.by_induction`). Where that fails, they are unrolled. Of a loop
that waits, only a few turns are unrolled, and the verdict is `bounded`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, product
from typing import Any

import z3

from ...base.artifacts import Artifact
from ..analysis.cdfg import Chain
from ..analysis.chains import Chains, group_value, holds_register, is_zero, literal_items
from ..layout.registers import Register, Slot
from ..merge.merging import Driver
from ..source import clang, ir
from ..source.dialect import Child, Field
from ..source.ir import Expression
from ..source.lowering import Program
from . import objects
from .compare import all_paths, by_induction, compare, compare_unfinished, covered, each_path, has_loops, matched
from .hardware import (
    ADDRESS,
    EFFORT,
    INDEX,
    BusAccess,
    Different,
    Home,
    Key,
    Placed,
    Pointer,
    Unknown,
    leaf_of,
    neutral_of,
    views_of,
)
from .interpreter import Interpreter, Side
from .values import DEPTH, POLLS, TURNS, Int, converted, integer, number, sized, width_of

# The two sides of a proof: a source in the dialect, and generated C.

HAL = "HAL_"  # prefix of the functions that access registers
WORD = 32  # bits of a variable that holds a register


class GeneratedSide(Side):
    """Generated C: stores and loads of volatile objects."""

    in_order = False

    def cast(self, value: Any, c: ir.Cast) -> Any:
        name, pointer = c.inside.bare.type.group
        if pointer and isinstance(value, Pointer) and c.type.kind != "pointer":
            return Pointer(value.value, name)  # offsets added from here on select registers
        return super().cast(value, c)

    def device(self, d: ir.Variable) -> Pointer:
        """The address of a device, as the generated code defines it."""
        assert d.default is not None
        value = self.run.value(d.default)
        assert isinstance(value, Pointer)
        return value

    def _register(self, c: Expression) -> Pointer | None:
        """The address of a register: of a volatile object in a group, in a function that accesses registers."""
        accesses = self.run.active[-1].name.startswith(HAL)
        if not (isinstance(c, ir.Unary) and c.operator == "*" and c.type.is_volatile and accesses):
            return None
        at = self.run.value(c.operand)
        return at if isinstance(at, Pointer) and at.group in self.run.layout.groups else None

    def store(self, left: Expression, value: Any) -> Any:
        target = left.bare
        at = self._register(target)
        if at is None:
            return super().store(left, value)
        stored = converted(value, target.type)
        bits = sized(stored, width_of(target.type))
        self.run.hardware.store(at, bits.size() // 8, bits, self.run.active[-1].name)
        return stored

    def value(self, c: Expression) -> Any:
        at = self._register(c)
        if at is not None:
            bits = self.run.hardware.load(at, width_of(c.type) // 8, self.run.active[-1].name)
            return Int(bits, c.type.signed)
        return super().value(c)


class SourceSide(Side):
    """A program in the dialect."""

    in_order = False

    def __init__(self) -> None:
        self.once: dict[ir.Span, Any] | None = None  # values of the parts of a whole register's address
        self.begun: set[ir.Span] = set()  # expressions under evaluation whose hoisted loads are done
        self._chains: Chains | None = None

    @property
    def chains(self) -> Chains:
        if self._chains is None:
            self._chains = Chains(self.run.dialect)
            bodies = (f.body for f in self.run.program.functions if f.body)
            variables = (x.variable for b in bodies for x in b.all() if isinstance(x, ir.Declared))
            self._chains.locals |= {d.key for d in variables if holds_register(d, self.run.dialect)}
        return self._chains

    def begin(self) -> None:
        self.begun, self.once = set(), None

    def _on_bus(self, kind: str, c: Expression, place: Any, word: Any = None) -> None:
        """Record the bus accesses planned for an access of the source. `word`: value of a whole-register store."""
        key, planned = (kind, c.bare.span), self.run.views.planned
        if key not in planned:
            self.run.hardware.bus.append(BusAccess(kind, None, name="an access that nothing is planned for"))
        elif (access := planned[key]) is not None:
            self.run.hardware.plan(access, place, word)

    def value(self, c: Expression) -> Any:
        hoisted = self.run.views.hoisted
        if not hoisted or c.span not in hoisted or c.span in self.begun:
            return self._value(c)
        for planned in hoisted[c.span]:
            self.run.hardware.plan(planned)
        self.begun.add(c.span)
        try:
            return self._value(c)
        finally:
            self.begun.discard(c.span)

    def _value(self, c: Expression) -> Any:
        chain = self.chains.read(c) if isinstance(c, ir.MemberOf | ir.Subscript | ir.Unary) else None
        group = self.chains.number(c) or self.chains.discarded(c)
        if group is not None:
            return self.loaded(group)
        if chain is None:
            return super().value(c)
        if chain.local:
            return self._of_variable(chain)
        if chain.is_field and not chain.missing:
            return Int(self.read(chain, c), False)
        return self.place(chain)[0]

    def address(self, c: Expression) -> Pointer:
        """The address of a group, or of a struct that leads to one."""
        chain = self.chains.read(c)
        if chain and not chain.is_field:
            return self.place(chain)[0]
        return super().address(c)

    def offset(self, c: ir.OffsetOf) -> int | None:
        """Offset in bytes of a field's register."""
        member = c.members[0]
        if member.owner not in self.run.dialect.groups:
            return super().offset(c)
        return self.run.layout.groups[member.owner].offset_of((member.owner, member.name))

    def declare(self, d: ir.Declared) -> bool:
        if not holds_register(d.variable, self.run.dialect):
            return False
        empty = d.value is None or (isinstance(d.value, ir.Call) and not d.value.parts)  # C++: default constructor
        self.run.env[d.variable.key] = self.word_of(d.value, self.home(d.variable)) if d.value and not empty else None
        return True

    def place(self, chain: Chain) -> tuple[Pointer, Key, Register | None, Slot | None, Any]:
        """(address of the group, leaf, its register and slot, place: that address and the index of the element)."""
        run, layout = self.run, self.run.layout
        group = chain.prefixes[0].group
        current = group
        at = self._root(chain)
        words: list[str] = []
        steps, i = chain.steps, 0
        index: Any = z3.BitVecVal(0, INDEX)
        while i < len(steps):
            member = run.dialect.groups[current].member(steps[i].member)
            indices = steps[i + 1 : i + 1 + len(member.dims)]
            values = [
                z3.BitVecVal(s.constant, INDEX) if s.index is None else number(self._once(s.index)) for s in indices
            ]
            constants = [str(s.constant) for s in indices]
            flat: Any = z3.BitVecVal(0, INDEX)
            for size, v in zip(member.dims, values, strict=False):
                if not z3.is_bv_value(v):
                    run.decisions.path.append(z3.ULT(v, size))  # any other index is undefined
                    run.hints.append(z3.ULT(v, size))
                flat = flat * size + v
            i += 1 + len(indices)
            name = "_".join([*words, member.name])
            if isinstance(member, Child):
                current = member.group
                sub = next((s for s in layout.groups[group].subs if s.name == name), None)
                if sub is None:
                    words += [member.name, *constants]
                    continue
                at, group, words = Pointer(z3.simplify(at.value + sub.offset + flat * sub.stride)), sub.group, []
                continue
            places = {s.name: (r, s) for r in layout.groups[group].registers for s in r.slots if s.field}
            if name not in places:
                name, flat = "_".join([name, *constants]), z3.BitVecVal(0, INDEX)
            register, slot = places[name]
            return at, (group, name), register, slot, z3.Concat(at.value, z3.simplify(flat))
        return at, (group, ""), None, None, index

    def _once(self, c: Expression) -> Any:
        """The value of a part of an address. For a whole register it is evaluated once for all fields."""
        values, self.once = self.once, None
        if values is None:
            return self.run.value(c)
        if c.span not in values:
            values[c.span] = self.run.value(c)
        self.once = values
        return values[c.span]

    def _root(self, chain: Chain) -> Pointer:
        root = chain.root.bare
        if chain.device:
            return Pointer(z3.BitVecVal(self.run.dialect.devices[chain.device].address, ADDRESS))
        if chain.prefixes[0].pointer:
            return self._once(chain.root)
        if self.run.cpp and isinstance(root, ir.Name | ir.Call | ir.MemberOf):
            return self.run.places.address(root)
        if isinstance(root, ir.Subscript):
            return self.run.places.element(self._once(root.base), self._once(root.index), root.type)
        assert isinstance(root, ir.Unary)
        return self._once(root.operand)

    def _device(self, chain: Chain) -> tuple[int, int] | None:
        if not chain.device:
            return None
        d = self.run.dialect.devices[chain.device]
        return d.address, self.run.layout.groups[d.group].size

    def read(self, chain: Chain, c: Expression) -> Any:
        _, key, _, slot, place = self.place(chain)
        assert slot
        self._on_bus("r", c, place)
        self.run.hardware.batch += 1
        return self._read_at(chain, key, slot, place, self._turn_of(c))

    def _turn_of(self, c: Expression) -> str:
        view, leads = self.run.views.of(c)
        return self.run.hardware.turn(view, leads) if view else ""

    def _read_at(self, chain: Chain, key: Key, slot: Slot, place: Any, turn: str) -> Any:
        assert isinstance(chain.end, Field)
        return _wide(self.run.hardware.read(key, slot, place, self._device(chain), turn), chain.end)

    def _write_at(self, chain: Chain, key: Key, slot: Slot, place: Any, value: Any, c: Expression) -> Int:
        assert isinstance(chain.end, Field)
        narrow = z3.simplify(z3.Extract(chain.end.width - 1, 0, sized(integer(value, chain.end.width), 64)))
        self.run.hardware.batch += 1
        self.run.hardware.write_element(key, slot, place, narrow, self._device(chain))
        self._on_bus("w", c, place)
        return Int(_wide(narrow, chain.end), False)

    def modify(self, c: ir.Assignment | ir.Step) -> tuple[Any, Any]:
        """(old value, new value) of a field that is read, changed and written; its place is evaluated once."""
        left = c.operand if isinstance(c, ir.Step) else c.left
        chain = self._field(left)
        if chain is None:
            return super().modify(c)
        if chain.local:
            old = self._of_variable(chain)
            right = self.run.value(c.right) if isinstance(c, ir.Assignment) else Int(z3.BitVecVal(1, 32), True)
            return old, self._set(chain, self.run.arithmetic(c.operator, old, right, left.type))
        right = c.right if isinstance(c, ir.Assignment) else None
        _, key, _, slot, place = self.place(chain)
        assert slot
        self.run.hardware.batch += 1
        first = self.run.value(right) if right is not None and self.run.cpp else None  # C++: right side first
        self._on_bus("r", left, place)
        old = Int(self._read_at(chain, key, slot, place, self._turn_of(left)), False)
        by = first or (self.run.value(right) if right is not None else Int(z3.BitVecVal(1, 32), True))
        new = self.run.arithmetic(c.operator, old, by, left.type)
        return old, self._write_at(chain, key, slot, place, new, left)

    def _field(self, c: Expression) -> Chain | None:
        chain = self.chains.read(c)
        return chain if chain and chain.is_field and not chain.missing else None

    def assign(self, left: Expression, right: Expression) -> Any:
        name, pointer = self.run.dialect.group_of(left.type)
        if name and not pointer:
            return self._whole(left, right.bare)
        if (group := self.chains.number(left.bare)) is not None:
            return self._store_word(left, group, sized(integer(self.run.value(right)), WORD), is_number=True)
        return self.store(left, self.run.value(right))

    def store(self, left: Expression, value: Any) -> Any:
        chain = self._field(left)
        if chain is None:
            return super().store(left, value)
        if chain.local:
            return self._set(chain, value)
        _, key, _, slot, place = self.place(chain)
        assert slot
        return self._write_at(chain, key, slot, place, value, left)

    # ---- whole registers, and variables that hold one: words, as in generated code

    def home(self, d: ir.Variable) -> Home:
        """The register that a variable holds."""
        if d.key not in self.run.views.homes:
            raise Unknown("a variable of no register")
        return self.run.views.homes[d.key]

    def _register(self, kind: str, c: Expression) -> Home:
        """The register that is accessed as a whole."""
        planned = self.run.views.planned.get((kind, c.bare.span))
        if planned is None:
            raise Unknown("an access of a whole register that is not planned at its place")
        return planned.group, planned.register

    def _fields(self, c: Expression) -> tuple[tuple[int, int] | None, list[Placed]]:
        """(device, fields of a register: first the source's, then silicon's own). The address is evaluated once."""
        chain = self.chains.read(c)
        if chain is None:
            raise Unknown("a group as a value")
        fields: list[Placed] = []
        named: set[Key] = set()
        self.once = {}
        for x in self.chains.elements(chain, c):
            _, key, register, slot, place = self.place(x)
            assert register and slot
            element = z3.simplify(z3.Extract(INDEX - 1, 0, place)).as_long() if slot.count > 1 else 0
            fields.append((key, slot, place, slot.lsb + element * slot.stride))
            named.add(key)
            own = [((key[0], leaf_of(register, s)), s) for s in register.slots]
        self.once = None
        return self._device(chain), [*fields, *((k, s, place, s.lsb) for k, s in own if k not in named)]

    def _bits(self, register: Register) -> dict[tuple[str, tuple[int | None, ...]], tuple[int, int]]:
        """(lowest bit, width) of the source's fields in the word of a register, by their names and subscripts."""
        bits: dict[tuple[str, tuple[int | None, ...]], tuple[int, int]] = {}
        for s, (group, name) in ((s, s.field) for s in register.slots if s.field):
            for i, index in enumerate(product(*(range(n) for n in self.run.dialect.field((group, name)).dims))):
                if s.count > 1 or s.name.endswith("_".join([name, *map(str, index)])):
                    bits[name, index] = s.lsb + i * s.stride, s.width
        return bits

    def word_of(self, c: Expression, home: Home) -> Int:
        """The value of a group (a register, a variable or a literal) as a word of the register `home`."""
        c = group_value(c)
        if isinstance(c, ir.Name):
            assert c.variable
            word, origin = self._word_in(c.variable.key), self.home(c.variable)
        elif self.chains.read(c) is not None:
            origin = self._register("r", c)
            word = _without_blind(self.loaded(c), origin[1])
        else:
            return self._literal(c, home[1])
        if (origin[0], origin[1].name) == (home[0], home[1].name):
            return word
        moved, there = _at_rest(home[1]), self._bits(origin[1])
        for name, (low, width) in self._bits(home[1]).items():
            if name in there:
                moved = _with(moved, low, z3.Extract(there[name][0] + width - 1, there[name][0], word.bits))
        return Int(moved, False)

    def _literal(self, c: Expression, register: Register) -> Int:
        """The word of a literal. Fields without a value are as in `_at_rest`."""
        word, bits = _at_rest(register), self._bits(register)
        if is_zero(c):
            for low, width in bits.values():
                word = _with(word, low, z3.BitVecVal(0, width))
            return Int(word, False)
        for item in literal_items(c):
            assert isinstance(item, ir.Designated)
            low, width = bits[item.members[0].name, tuple(i.constant for i in item.indices)]
            word = _with(word, low, z3.Extract(width - 1, 0, sized(self.run.value(item.value), 64)))
        return Int(word, False)

    def loaded(self, c: Expression) -> Int:
        """The word that one load of a whole register reads."""
        _, register = self._register("r", c)
        device, fields = self._fields(c)
        turn, size = self._turn_of(c), register.bits // 8
        self._on_bus("r", c, fields[-1][2])
        self.run.hardware.batch += 1
        word = self.run.hardware.loaded([register], 0, size, fields, device, lambda key: turn)
        return Int(z3.simplify(z3.ZeroExt(WORD - word.size(), word)), False)

    def _store_word(self, left: Expression, group: Expression, word: Any, is_number: bool = False) -> None:
        """One store of a register by an assignment to `left`.

        Flags of silicon that the source lacks get the value without effect.
        """
        hardware = self.run.hardware
        device, fields = self._fields(group)
        hardware.batch += 1
        for key, slot, place, low in sorted(fields, key=lambda f: (bool(hardware.effects(f[0], f[1], "w")), f[1].lsb)):
            neutral = neutral_of(slot) if not slot.field and not is_number else None
            value = z3.simplify(z3.Extract(low + slot.width - 1, low, word))
            if "w" in slot.access:
                value = value if neutral is None else z3.BitVecVal(neutral, slot.width)
                hardware.write(key, slot, place, value, device)
        self._on_bus("w", left, fields[-1][2], word)

    def _local(self, chain: Chain) -> tuple[int, int]:
        """(lowest bit, width) of a field in the word of a variable."""
        root = chain.root.bare
        assert isinstance(root, ir.Name) and root.variable
        _, register = self.home(root.variable)
        return self._bits(register)[chain.end_name, tuple(s.constant for s in chain.steps if not s.member)]

    def _of_variable(self, chain: Chain) -> Int:
        assert isinstance(chain.end, Field)
        word, (low, width) = self._word_in(chain.local), self._local(chain)
        return Int(_wide(z3.Extract(low + width - 1, low, word.bits), chain.end), False)

    def _set(self, chain: Chain, value: Any) -> Any:
        word, (low, width) = self._word_in(chain.local), self._local(chain)
        new = z3.Extract(width - 1, 0, sized(integer(value, width), 64))
        self.run.env[chain.local] = Int(z3.simplify(_with(word.bits, low, new)), False)
        return value

    def _word_in(self, name: str) -> Int:
        word = self.run.env.get(name)
        if not isinstance(word, Int):
            raise Unknown("a variable without a value" if word is None else "a variable across a loop")
        return word

    def _whole(self, left: Expression, right: Expression) -> None:
        target = left.bare
        variable = target.variable if isinstance(target, ir.Name) else None
        if variable and variable.key in self.chains.locals:
            self.run.env[variable.key] = self.word_of(right, self.home(variable))
        else:
            self._store_word(left, left, self.word_of(right, self._register("w", left)).bits)


def _wide(value: Any, f: Field) -> Any:
    """The value of a field, extended to the width of its type in C."""
    wide = next(w for w in (8, 16, 32, 64) if f.width <= w)
    return z3.ZeroExt(wide - f.width, value) if wide > f.width else value


def _with(word: Any, low: int, value: Any) -> Any:
    """The word, with `value` in its bits from `low` on."""
    width = value.size()
    return word & ~(((1 << width) - 1) << low) | z3.ZeroExt(WORD - width, value) << low


def _without_blind(word: Int, register: Register) -> Int:
    """A loaded word, with the value without effect in write-only fields that have one."""
    value = word.bits
    for s in register.slots:
        if s.field and "r" not in s.access and s.back in ("0", "1"):
            for i in range(s.count):
                value = _with(value, s.lsb + i * s.stride, z3.BitVecVal(neutral_of(s) or 0, s.width))
    return Int(z3.simplify(value), False)


def _at_rest(register: Register) -> Any:
    """A word for fields without a value in a whole-register write: no effect, or else the value after reset."""
    word = register.reset
    for s in register.slots:
        neutral = neutral_of(s)
        for i in range(s.count):
            value = neutral if neutral is not None else s.reset
            if value is not None:
                word = word & ~s.element(i) | value << s.lsb + i * s.stride
    return z3.BitVecVal(word, WORD)


BOUND = f"only {POLLS} turns of a loop that waits, {TURNS} of others and {DEPTH} calls in each other were looked at"
SOME = 8  # paths that are tried first where induction fails


@dataclass(frozen=True)
class Verdict:
    """`what`: "proved", "refuted" or "unknown"; `why`: the difference, or the code that the proof cannot follow."""

    function: str
    what: str
    why: str = ""
    bounded: bool = False
    difference: Different | None = None


def prove(
    driver: Driver, triple: str, artifacts: tuple[Artifact, ...], only: frozenset[str] | None = None
) -> list[Verdict]:
    """Compare the driver's functions (or `only` those) with the generated C in `artifacts`: a verdict for each."""
    names = [n for n, f in driver.cdfg.functions.items() if not f.around and (only is None or n in only)]
    views = views_of(driver)
    source = Interpreter(driver.source.program, driver.dialect, driver.layout, views, SourceSide())
    unit = generated_unit(driver, triple, artifacts)
    other = Interpreter(Program(unit), driver.dialect, driver.layout, views, GeneratedSide())
    prover = Prover(source, other)
    verdicts = prover.all(names)
    verdicts += _passed_on(source, prover) if unit.cpp else []
    differences = unlike(source.program, other.program, driver)
    return [*verdicts, *(Verdict(name, "refuted", why) for name, why in differences)]


def generated_unit(driver: Driver, triple: str, artifacts: tuple[Artifact, ...]) -> clang.Unit:
    """The generated C among the products of a driver, parsed."""
    cpp = driver.source.unit.cpp
    ends = ("_hal.h", ".cpp" if cpp else ".c")
    header, text = (next(a for a in artifacts if a.name == driver.request.name + end) for end in ends)
    folders = dict.fromkeys(str(p.parent) for p in driver.request.sources)
    flags = (*(word for f in folders for word in ("-I", f)), *driver.request.flags)
    # With the header's text in front, its functions belong to the unit. Its guard makes the include empty.
    return clang.parse("generated.c", header.data + text.data, triple, flags, cpp, unsaved=(header,))


def _passed_on(source: Interpreter, prover: Prover) -> list[Verdict]:
    """Verdicts on the bodies of lambdas that functions pass on."""
    other = prover.other
    verdicts: dict[int, Verdict] = {}
    names = [f.full_name for f, _ in source.program.lambdas.values()]
    while open_ := sorted(source.passed - verdicts.keys()):
        number = open_[0]
        if len(source.program.lambdas) != len(other.program.lambdas):
            verdicts[number] = Verdict(names[number], "unknown", "the generated code has other lambdas")
            continue
        objects.alone(source, number)
        verdicts[number] = replace(prover.all([objects.alone(other, number)])[0], function=names[number])
    return list(verdicts.values())


@dataclass
class Prover:
    """Verdicts on the functions of one driver, and the other functions that each proof supposes to be proved.

    `limits`: steps left for a function, if not LIMIT. Such a function is not tried again if a callee has no proof.
    """

    source: Interpreter
    other: Interpreter
    limits: dict[str, int] = field(default_factory=dict)
    done: dict[str, Verdict] = field(default_factory=dict)
    needs: dict[str, set[str]] = field(default_factory=dict)

    def all(self, names: list[str]) -> list[Verdict]:
        """Verdicts on the functions. A proof that supposes a function without proof is "unknown"."""
        todo = list(names)
        while todo:
            name = todo.pop()
            if name not in self.done:
                self.done[name], self.needs[name] = self._alone(name)
                todo += self.needs[name]
        while weak := [n for n in self.done if self.done[n].what == "proved" and self._missing(n)]:
            for n in weak:
                missing, self.needs[n] = self._missing(n), set()
                inside = self._alone(n, (False,))[0] if n not in self.limits else Verdict(n, "unknown")
                why = f"it calls '{missing[0]}', which is not proved"
                self.done[n] = replace(inside, why=why) if inside.what == "unknown" else inside
        return [self.done[n] for n in names]

    def _missing(self, name: str) -> list[str]:
        return sorted(n for n in self.needs.get(name, ()) if self.done[n].what != "proved")

    def _alone(self, name: str, tries: tuple[bool, ...] = (True, False)) -> tuple[Verdict, set[str]]:
        """(verdict on one function, functions supposed to be proved). `tries`: whether callees may be supposed."""
        verdict, supposed = Verdict(name, "unknown"), set[str]()
        EFFORT.begin(self.limits.get(name))
        for separate in tries:
            for program in (self.source, self.other):
                program.separate, program.supposed = separate, set()
            verdict = _verdict(name, self.source, self.other)
            supposed = self.source.supposed | self.other.supposed
            if verdict.what == "proved" or not supposed:
                break
        if name in self.limits:
            self.limits[name] -= EFFORT.spent
        return verdict, supposed if verdict.what == "proved" else set()


def _verdict(name: str, source: Interpreter, other: Interpreter) -> Verdict:
    bounded = False
    try:
        for program in (source, other):
            program.answers, program.given = {}, ()
        source.hints, other.assumed = [], []
        for joined in (False, True):
            if not (source.has_joins(source.functions[name]) if joined else has_loops(source, name)):
                continue
            EFFORT.phase()
            done, bounded = by_induction(name, source, other, joined)
            if done and not bounded:
                return Verdict(name, "proved")
        cut = has_loops(source, name) or source.has_joins(source.functions[name])
        if not source.separate or cut:  # there may be many paths: try a few first
            source.hints, other.assumed = [], []
            EFFORT.phase()
            with suppress(Unknown):
                _search(name, source, other)
        source.hints, other.assumed = [], []
        EFFORT.phase()
        bounded = _by_paths(name, source, other)
    except Different as difference:
        return Verdict(name, "refuted", str(difference), difference=difference)
    except Unknown as reason:
        return Verdict(name, "unknown", str(reason))
    except RecursionError:
        return Verdict(name, "unknown", "a path with too many conditions")
    if bounded:
        return Verdict(name, "unknown", f"no difference, but {BOUND}", bounded=True)
    return Verdict(name, "proved")


def _by_paths(name: str, source: Interpreter, other: Interpreter) -> bool:
    """Compare all whole paths. Returns whether some were cut off. Raises Different or Unknown."""
    originals, open_ = all_paths(source, name)
    other.assumed = list({h.get_id(): h for h in source.hints}.values())
    generated, also = all_paths(other, name)
    if source.side.in_order:
        compare_unfinished(source.unfinished[:SOME], other.unfinished[:SOME])
    if not originals:
        raise Unknown("no path through the function ends soon")
    list(matched(originals, generated))
    return open_ or also


def _search(name: str, source: Interpreter, other: Interpreter) -> None:
    """Raise Different for a difference on the first `SOME` paths. If there is none, nothing is proved."""
    paths = (w for w in each_path(source, name) if w is not None)
    for a in list(islice(paths, SOME)):
        other.assumed, other.given = list({h.get_id(): h for h in source.hints}.values()), a.conditions
        try:
            covered(a, all_paths(other, name, check=partial(compare, a))[0])
        finally:
            other.given = ()


def summary(verdicts: list[Verdict]) -> Iterator[str]:
    """A line for each verdict, and one with the number of verdicts of each kind."""
    for v in verdicts:
        yield f"{v.function}: {v.what}{f': {v.why}' if v.why else ''}"
    kinds = [v.what for v in verdicts]
    yield ", ".join(f"{kinds.count(k)} {k}" for k in ("proved", "refuted", "unknown"))


# ---- declarations outside of functions: proofs hold for any values of variables, so initial ones are compared here


def unlike(source: Program, other: Program, driver: Driver) -> Iterator[tuple[str, str]]:
    """(name, what is wrong) of each variable, type, macro and function that differs, or that one side lacks."""
    originals, generated = (variables(program, lambda c: _offset(c, driver)) for program in (source, other))
    for name in driver.dialect.devices:
        originals.pop(name, None)
        generated.pop(name, None)
    for name in sorted(originals.keys() ^ generated.keys()):
        yield name, f"{'the source' if name in generated else 'the generated code'} has no such variable"
    yield from unlike_variables(originals, generated)
    own, printed = (_records(program, driver) for program in (source, other))
    for name in sorted(own.keys() & printed.keys()):
        if own[name] != printed[name]:
            yield name, f"its members are {own[name]}, in the generated code {printed[name]}"
    macros = source.unit.macros
    for name, text in other.unit.macros.items():
        if text not in macros.get(name, text):
            yield name, "the generated code defines it in another path"
    for f in other.functions:
        if f.full_name not in source.names and not (f.name.startswith(HAL) or other.unit.cpp):
            yield f.full_name, "the source has no such function"


def unlike_variables(originals: Variables, generated: Variables) -> Iterator[tuple[str, str]]:
    """(name, what is wrong) of each variable of both sides whose types or initial values differ."""
    for name in sorted(originals.keys() & generated.keys()):
        if originals[name][0] != generated[name][0]:
            yield name, f"its type is {originals[name][0]}, in the generated code {generated[name][0]}"
        elif originals[name] != generated[name]:
            yield name, "it begins with another value in the generated code"


Variables = dict[str, tuple[str, Any]]  # (type without namespaces, initial value: its numbers, else its text) by name


def variable_name(v: ir.Variable) -> str:
    """The name of a variable in messages; for a static one in a function, with the function."""
    return f"{v.function}: {v.name}" if v.function else v.qualified


def variables(program: Program, offset: Callable[[ir.OffsetOf], int | None] = lambda c: c.constant) -> Variables:
    """The variables outside of functions, and static ones, by name. `offset`: the value of an `offsetof`."""
    result: Variables = {}
    for d in program.statics:
        name = variable_name(d.variable)
        offsets = [x for x in (d.value.all() if d.value else ()) if isinstance(x, ir.OffsetOf)]
        numbers = _numbers(d.value) if d.value and not offsets else None
        first = d.first_text(map(offset, offsets)) if "None" in repr(numbers) else numbers
        result[name] = d.type_text, result.get(name, ("", ""))[1] or first
    return result


def _numbers(x: Expression) -> Any:
    """The numbers of an initial value, in nested lists as in the source; None for other expressions."""
    bare = x.bare
    return [_numbers(item) for item in bare.items] if isinstance(bare, ir.ListValue) else x.constant


def _records(program: Program, driver: Driver) -> dict[str, str]:
    """Members of named structs, unions and classes, by name. Groups are left out: they have layouts."""
    named = (r for r in program.records if r.name.isidentifier() and r.name not in driver.dialect.groups)
    return {r.name: _members(r) for r in named if r.members}


def _members(record: ir.Record) -> str:
    """Members in order, with their types; an anonymous struct is replaced by its members."""
    return "; ".join(f"{_type(m.type)} {m.name}{'' if m.bits is None else f': {m.bits}'}" for m in record.members)


def _type(t: ir.CType) -> str:
    """A member's type; for an anonymous struct, its members."""
    inner = t.element if t.kind == "array" else t
    if "(" not in t.text or inner.record is None:
        return t.plain_text
    return f"{{{_members(inner.record)}}}" + (f"[{t.count}]" if inner is not t else "")


def _offset(c: ir.OffsetOf, driver: Driver) -> int | None:
    """The value of an `offsetof`; for a field, the offset in the layout, in bytes."""
    group, name = c.members[0].owner, c.members[0].name
    if group in driver.dialect.groups:
        return driver.layout.groups[group].offset_of((group, name))
    return c.constant
