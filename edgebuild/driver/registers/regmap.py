"""Register descriptions: what CMSIS-SVD and SystemRDL files say, in one form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from itertools import product

from edgebuild.base.dataclass import dataclass
from edgebuild.base.errors import EdgebuildError
from edgebuild.driver.source.dialect import NEUTRAL


@dataclass(frozen=True)
class FieldInfo:
    """`modified`: what a write does (words of SVD's modifiedWriteValues), "" if it stores. `known`: whether the file
    says all there is to say, so that a field without effects is plain; SVD never does."""

    name: str
    lsb: int
    width: int
    access: str = "rw"  # "rw", "r", "w"
    modified: str = ""
    read_action: str = ""
    volatile: bool = False
    known: bool = False
    values: tuple[tuple[str, int], ...] = ()  # an enumeration
    once: bool = False  # only the first write after a reset counts
    accepts: tuple[tuple[int, int], ...] = ()  # ranges of values that may be written; nothing: all
    mark: str = field(default="", compare=False)  # of an element of an array: NAME#POSITION, counted from 0

    @property
    def back(self) -> str:
        """Value that a write of a neighbour may write here: "keep", "0", "1" or "never"."""
        if self.modified or self.once:  # what is written back once is what stays
            return NEUTRAL.get(self.modified, "never")
        return "0" if self.access == "r" else "keep"


@dataclass(frozen=True)
class RegisterInfo:
    """`scope` has the clusters around the register; `offset` counts from the block's base."""

    name: str
    offset: int
    bits: int
    fields: tuple[FieldInfo, ...]
    scope: tuple[str, ...] = ()
    access: str = "rw"
    reset: int = 0
    alternate: bool = False  # another view of an address that has one already
    marks: tuple[str, ...] = field(default=(), compare=False)  # scope and name, elements of arrays as in a field's mark

    @property
    def full_name(self) -> str:
        return "_".join((*self.scope, self.name))


@dataclass(frozen=True)
class Block:
    """A peripheral."""

    name: str
    base: int
    registers: tuple[RegisterInfo, ...]
    group: str = ""

    def acts(self, register: RegisterInfo, info: FieldInfo) -> bool:
        """Whether a register is one of a family such as INTENSET and INTENCLR of which a file says no more: a 1 acts,
        and a read gives what is set. Whoever writes back there what was read clears, or toggles, all of it."""
        parts = ACTION.fullmatch(register.name.upper())
        if info.modified or "w" not in info.access or not parts:
            return False
        stem, word, number = parts.groups("")
        kind, places = ACTIONS[word], {(f.lsb, f.width) for f in register.fields}
        for other in self.registers:
            its, name = ACTION.fullmatch(other.name.upper()), other.name.upper().replace("_", "")
            opposite = its and (its[1], its.group(3) or "") == (stem, number) and ACTIONS[its[2]] != kind
            toggled = kind == "toggle" and stem and name == f"{stem}{number}".replace("_", "")
            alike = not places or places & {(f.lsb, f.width) for f in other.fields}
            if (opposite or toggled) and other.scope == register.scope and alike:
                return True
        return False


ACTIONS = {
    **dict.fromkeys(("SET", "SETR", "W1TS", "W1S", "IER"), "set"),
    **dict.fromkeys(("CLR", "CLRR", "CLEAR", "W1TC", "W1C", "IDR"), "clear"),
    **dict.fromkeys(("TOG", "TOGGLE", "TGL", "NOT", "INV", "XOR"), "toggle"),
}  # how the names of registers end in which a 1 acts
ACTION = re.compile(rf"(.*?)_?({'|'.join(ACTIONS)})(_?\d[\d_]*)?")


@dataclass(frozen=True)
class RegisterMap:
    """`mistakes`: registers, as PERIPHERAL.REGISTER, that are wrong or have fields that overlap, as vendors' files have
    them, with what to say to whoever uses such a register."""

    name: str
    blocks: tuple[Block, ...]
    interrupts: frozenset[str] = field(default=frozenset(), compare=False)  # names, where the file has them
    mistakes: tuple[tuple[str, EdgebuildError], ...] = field(default=(), compare=False)
    files: tuple[str, ...] = field(default=(), compare=False)  # that the description includes


def by_cluster(
    registers: tuple[RegisterInfo, ...], scope: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[RegisterInfo, ...]]]:
    """The registers of a scope in their order: each with that scope, and those of an inner cluster, which follow each
    other, together with the cluster's."""
    at = 0
    while at < len(registers):
        inner = registers[at].scope[: len(scope) + 1]
        end = at + 1
        while inner != scope and end < len(registers) and registers[end].scope[: len(inner)] == inner:
            end += 1
        yield inner, registers[at:end]
        at = end


@dataclass(frozen=True)
class Cluster:
    """A cluster below a scope, or an array of alike ones: `count` of them, `stride` bytes apart; 0: no array."""

    name: str  # without the index
    offset: int  # from the scope's base
    registers: tuple[RegisterInfo, ...]  # of the first, with offsets and scopes of their own
    count: int = 0
    stride: int = 0


@dataclass(frozen=True)
class Array:
    """Registers that are alike, `stride` bytes apart; `first` and its fields have names without the index."""

    first: RegisterInfo
    count: int
    stride: int


def clusters(registers: tuple[RegisterInfo, ...]) -> Iterator[RegisterInfo | Array | Cluster]:
    """Members directly below a scope. Registers `a_0`, `a_1`... that are alike become one array, and so do clusters."""
    found: list[RegisterInfo | Array | Cluster] = []
    for inner, run in by_cluster(registers, ()):
        if not inner:
            found.append(_in_array(found, run[0]))
            continue
        start = min(r.offset for r in run)
        content = tuple(replace(r, offset=r.offset - start, scope=r.scope[1:]) for r in run)
        found.append(_appended(found, Cluster(inner[0], start, content)))
    yield from found


def _in_array(found: list[RegisterInfo | Array | Cluster], new: RegisterInfo) -> RegisterInfo | Array:
    """The new register, or the array that it goes on with the register or array before it, which is taken off."""
    last = found[-1] if found else None
    if isinstance(last, RegisterInfo):
        first, bare = _without_index(last, 0), _without_index(new, 1)
        step = new.offset - last.offset
        if first and bare and step >= new.bits // 8 and replace(bare, offset=first.offset) == first:
            found.pop()
            return Array(first, 2, step)
    if isinstance(last, Array):
        bare = _without_index(new, last.count)
        if bare == replace(last.first, offset=last.first.offset + last.count * last.stride):
            found.pop()
            return Array(last.first, last.count + 1, last.stride)
    return new


def _without_index(r: RegisterInfo, index: int) -> RegisterInfo | None:
    """The register as an element of an array, named without the index; None if the names have no such index."""
    end = f"_{index}"
    if r.alternate or not all(name.endswith(end) for name in (r.name, *(f.name for f in r.fields))):
        return None
    fields = tuple(replace(f, name=f.name.removesuffix(end)) for f in r.fields)
    return replace(r, name=r.name.removesuffix(end), fields=fields)


def _appended(found: list[RegisterInfo | Array | Cluster], new: Cluster) -> Cluster:
    """The new cluster, or the array before it with one element more, which is taken off the list."""
    last = found[-1] if found else None
    if not isinstance(last, Cluster) or last.registers != new.registers:
        return new
    name, stride = (last.name, last.stride) if last.count else (last.name.removesuffix("_0"), new.offset - last.offset)
    count = last.count or 1
    fits = last.count > 0 or last.name.endswith("_0")
    if not fits or stride <= 0 or new.name != f"{name}_{count}" or new.offset != last.offset + count * stride:
        return new
    found.pop()
    return Cluster(name, last.offset, last.registers, count + 1, stride)


def normal(words: Iterable[str]) -> str:
    """Names that differ only in case, `_` and brackets are the same: `CH[0].CTRL`, `CH0_CTRL`."""
    return re.sub(r"[^A-Z0-9]", "", "".join(words).upper())


def marked(words: Iterable[str]) -> str:
    """Words as `normal` has them, with `#` in front of each subscript: `CH[0].CTRL.3` is CH#0CTRL#3."""
    signs = (re.sub(r"\[(\d+)\]", r"#\1", f"#{w}" if w.isdigit() else w) for w in words)
    return re.sub(r"[^A-Z0-9#]", "", "".join(signs).upper())


@dataclass(frozen=True)
class Found:
    """A field of a description, in its register."""

    register: RegisterInfo
    field: FieldInfo

    @property
    def path(self) -> tuple[str, ...]:
        return self.register.marks or (*self.register.scope, self.register.name)

    @property
    def renumbered(self) -> bool:
        """Whether the names of the file count otherwise than C does, as CCR1 to CCR3 or A to C."""
        names = (*self.register.scope, self.register.name, self.field.name)
        return marked((*self.path, self.field.mark or self.field.name)).replace("#", "") != normal(names)

    def places(self, alone: bool, behind: bool = False) -> Iterator[str]:
        """Ways to say an element of an array in C. `alone`: the only field of its register, which may go unnamed.

        `behind`: subscripts that stand inside of names stand behind them, as C has them: FUNC0_OUT is FUNC_OUT[0].
        """
        names = (*self.register.scope, self.register.name, self.field.name)
        marks = (*self.path, self.field.mark or self.field.name)
        if behind:
            marks = tuple(re.sub(r"(#\d+)(\w*[A-Za-z]\w*)", r"\2\1", m) for m in marks)
        for *path, register, mine in product(*({n: 0, m: 0} for n, m in zip(names, marks, strict=True))):
            whole = marked((*path, register, mine))
            yield whole
            yield re.sub("#[0-9]+", "", whole) + "".join(re.findall("#[0-9]+", whole))  # `CFG_EN[3]` for CFG[3].EN
            yield marked((*path, mine))
            yield marked((mine,))
            yield marked((mine,)) + "".join(re.findall("#[0-9]+", marked((*path, register))))  # `e[3]` for E[3].e
            if alone:
                yield marked((*path, register))


class Finder:
    """Finds a field of a block by its path in the source: REGISTER.FIELD, REGISTER_FIELD, or the bare name."""

    def __init__(self, block: Block) -> None:
        self.exact: dict[str, list[Found]] = {}
        self.scoped: dict[str, list[Found]] = {}
        self.register: dict[str, list[Found]] = {}
        self.bare: dict[str, list[Found]] = {}
        self.places: dict[str, list[Found]] = {}  # by subscripts, where the file has arrays
        self.behind: dict[str, list[Found]] = {}  # those inside of names
        self.names = {normal(w) for r in block.registers for w in ((r.name,), (*r.scope, r.name))}
        for register in block.registers:
            fields = register.fields or (FieldInfo(register.name, 0, register.bits, register.access),)
            for f in fields:
                found = Found(register, f)
                self.exact.setdefault(normal((*register.scope, register.name, f.name)), []).append(found)
                self.scoped.setdefault(normal((*register.scope, f.name)), []).append(found)
                self.bare.setdefault(normal((f.name,)), []).append(found)
                for table, behind in ((self.places, False), (self.behind, True)):
                    for key in dict.fromkeys(found.places(len(fields) == 1, behind)):
                        if "#" in key:
                            table.setdefault(key, []).append(found)
                if len(fields) == 1:
                    self.register.setdefault(normal((*register.scope, register.name)), []).append(found)

    def find(self, words: tuple[str, ...]) -> list[Found]:
        """All fields of this name; one if the name is good."""
        whole, place = normal(words), marked(words)
        best: list[Found] = []
        tables = [
            (self.places, place),
            (self.behind, place),
            (self.exact, whole),
            (self.scoped, whole),
            (self.register, whole),
        ]
        if normal(words[:-1]) not in self.names:  # else the field is meant to be in that register, and nowhere else
            tables.append((self.bare, normal(words[-1:])))
        for table, key in tables:
            found = list(dict.fromkeys(table.get(key, ())))
            if table is not self.places and table is not self.behind and "#" in place:
                found = [f for f in found if not f.renumbered]
            if len(found) == 1:
                return found
            best = best or found
        return best
