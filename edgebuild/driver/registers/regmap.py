"""Register descriptions: one form for CMSIS-SVD and SystemRDL files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, islice, product
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from ...base.errors import Diagnostic, EdgebuildError, MissingTool, caret, fail
from ...base.inputs import read_text
from ...base.text import comment as remark
from ...base.text import rdl_name
from ..source.dialect import NEUTRAL, WRITES
from .beside import files_beside, overlay_of

RESERVED = re.compile(r"(?i)_*(reserved|rsvd|resvd)[\d_]*")  # names of reserved bits


@dataclass(frozen=True)
class FieldInfo:
    """A field. `modified`: effect of a write (SVD's modifiedWriteValues), "" if it stores. `complete`: whether the file
    states all effects, so that a field without any is plain; SVD files never do."""

    name: str
    lsb: int
    width: int
    access: str = "rw"  # "rw", "r", "w"
    modified: str = ""
    read_action: str = ""
    volatile: bool = False
    complete: bool = False
    values: tuple[tuple[str, int], ...] = ()  # an enumeration
    once: bool = False  # only the first write after a reset counts
    accepts: tuple[tuple[int, int], ...] = ()  # ranges of writable values; empty: all
    mark: str = field(default="", compare=False)  # for an element of an array: NAME#POSITION, counted from 0
    description: str = field(default="", compare=False)
    parts: tuple[FieldInfo, ...] = field(default=(), compare=False)  # fields of a register that is used as a number

    @property
    def back(self) -> str:
        """The value that a write of a neighbour may put here: "keep", "0", "1" or "never"."""
        if self.modified or self.once:  # writing back would be the only write that counts
            return NEUTRAL.get(self.modified, "never")
        return "0" if self.access == "r" else "keep"


@dataclass(frozen=True)
class RegisterInfo:
    """A register. `scope`: clusters around it, the outermost first; `offset`: bytes from the block's base."""

    name: str
    offset: int
    bits: int
    fields: tuple[FieldInfo, ...]
    scope: tuple[str, ...] = ()
    access: str = "rw"
    reset: int = 0
    alternate: bool = False  # a further view of the same address
    marks: tuple[str, ...] = field(default=(), compare=False)  # scope and name, each as `FieldInfo.mark`
    description: str = field(default="", compare=False)

    @property
    def full_name(self) -> str:
        return "_".join((*self.scope, self.name))

    @property
    def whole(self) -> FieldInfo:
        """A register without fields, as one field."""
        return FieldInfo(self.name, 0, self.bits, self.access)

    def number(self, width: int) -> FieldInfo:
        """The register's lowest `width` bits as one field; reserved fields above them are left out."""
        access = "".join(c for c in "rw" if any(c in f.access for f in self.fields)) or self.access
        complete = bool(self.fields) and all(f.complete for f in self.fields)
        parts = tuple(f for f in self.fields if f.lsb < width or not RESERVED.fullmatch(f.name))
        return FieldInfo(self.name, 0, width, access, complete=complete, parts=parts or (self.whole,))


@dataclass(frozen=True)
class Block:
    """A peripheral."""

    name: str
    base: int
    registers: tuple[RegisterInfo, ...]
    group: str = ""

    def acts(self, register: RegisterInfo, info: FieldInfo) -> bool:
        """Whether a register's name is of a family such as INTENSET and INTENCLR, and the file states no effect.
        There a 1 acts, and a read returns the bits that are set: writing them back would clear or toggle them all."""
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
}  # suffixes of registers in which a 1 acts
ACTION = re.compile(rf"(.*?)_?({'|'.join(ACTIONS)})(_?\d[\d_]*)?")


@dataclass(frozen=True)
class RegisterMap:
    """A description. `mistakes`: (PERIPHERAL.REGISTER, error) of wrong registers and overlapping fields, which vendors'
    files have; the error is raised if a driver uses the register."""

    name: str
    blocks: tuple[Block, ...]
    interrupts: frozenset[str] = field(default=frozenset(), compare=False)  # names, where the file has them
    mistakes: tuple[tuple[str, EdgebuildError], ...] = field(default=(), compare=False)
    files: tuple[str, ...] = field(default=(), compare=False)  # that the description includes

    @cached_property
    def says_effects(self) -> bool:
        """Whether it states an effect of a write or a side effect of a read for any field."""
        return any(f.modified or f.read_action for b in self.blocks for r in b.registers for f in r.fields)


@dataclass(frozen=True)
class Member:
    """A register or a cluster below a scope, or an array of `count` equal ones at steps of `stride` bytes (0: none).

    `content`: the register, or the cluster's registers, named without an array's index, at offsets in the member.
    """

    name: str
    offset: int  # from the scope's base
    content: RegisterInfo | tuple[RegisterInfo, ...]
    count: int = 0
    stride: int = 0

    def without_index(self, index: int) -> Member | None:
        """The member as an element of an array, named without the index; None if its names lack the index."""
        end, names, content = f"_{index}", [self.name], self.content
        if isinstance(content, RegisterInfo):
            if content.alternate:
                return None
            names += [f.name for f in content.fields]
            fields = tuple(replace(f, name=f.name.removesuffix(end)) for f in content.fields)
            content = replace(content, name=self.name.removesuffix(end), fields=fields)
        fits = all(name.endswith(end) for name in names)
        return replace(self, name=self.name.removesuffix(end), content=content) if fits else None


def clusters(registers: tuple[RegisterInfo, ...]) -> list[Member]:
    """Members directly below a scope. Equal registers `a_0`, `a_1`... become one array, and so do clusters."""
    members: list[Member] = []
    for scope, group in groupby(registers, lambda r: r.scope[:1]):
        run = tuple(group)
        new = [Member(r.name, r.offset, replace(r, offset=0)) for r in run]
        if scope:
            start = min(r.offset for r in run)
            inside = tuple(replace(r, offset=r.offset - start, scope=r.scope[1:]) for r in run)
            new = [Member(scope[0], start, inside)]
        for member in new:
            members.append(_appended(members, member))
    return members


def _appended(members: list[Member], new: Member) -> Member:
    """The new member or, if it continues the array of the last one, that array; then the last one is removed."""
    last = members[-1] if members else new
    count, stride = last.count or 1, last.stride or new.offset - last.offset
    first, bare = last if last.count else last.without_index(0), new.without_index(count)
    least = new.content.bits // 8 if isinstance(new.content, RegisterInfo) else 1
    alike = first and bare and (first.name, first.content) == (bare.name, bare.content)
    if not first or not alike or stride < least or new.offset != last.offset + count * stride:
        return new
    members.pop()
    return replace(first, count=count + 1, stride=stride)


def normal(words: Iterable[str]) -> str:
    """Normalise a name: `CH[0].CTRL` and `CH0_CTRL` differ only in case, `_` and brackets, and become equal."""
    return re.sub(r"[^A-Z0-9]", "", "".join(words).upper())


def marked(words: Iterable[str]) -> str:
    """Normalise a name as `normal` does, with `#` in front of each subscript: `CH[0].CTRL.3` becomes CH#0CTRL#3."""
    signs = (re.sub(r"\[(\d+)\]", r"#\1", f"#{w}" if w.isdigit() else w) for w in words)
    return re.sub(r"[^A-Z0-9#]", "", "".join(signs).upper())


@dataclass(frozen=True)
class Location:
    """A field of a description, in its register."""

    register: RegisterInfo
    field: FieldInfo

    @property
    def path(self) -> tuple[str, ...]:
        return self.register.marks or (*self.register.scope, self.register.name)

    @property
    def renumbered(self) -> bool:
        """Whether the file's names do not count from 0 as C does: CCR1 to CCR3, or A to C."""
        names = (*self.register.scope, self.register.name, self.field.name)
        return marked((*self.path, self.field.mark or self.field.name)).replace("#", "") != normal(names)

    def places(self, alone: bool, behind: bool = False) -> Iterator[str]:
        """Spellings of an element of an array in C. `alone`: the only field of its register, which may be unnamed.

        `behind`: subscripts inside of names move to their ends: FUNC0_OUT becomes FUNC_OUT[0].
        """
        names = (*self.register.scope, self.register.name, self.field.name)
        marks = (*self.path, self.field.mark or self.field.name)
        if behind:
            marks = tuple(re.sub(r"(#\d+)(\w*[A-Za-z]\w*)", r"\2\1", m) for m in marks)
        for *path, register, mark in product(*({n: 0, m: 0} for n, m in zip(names, marks, strict=True))):
            for whole in (marked((*path, register, mark)), *(marked((*path, register)),) * alone):
                yield whole
                yield re.sub("#[0-9]+", "", whole) + "".join(re.findall("#[0-9]+", whole))  # `CFG_EN[3]` for CFG[3].EN
            yield marked((*path, mark))
            yield marked((mark,))
            yield marked((mark,)) + "".join(re.findall("#[0-9]+", marked((*path, register))))  # `e[3]` for E[3].e


class Finder:
    """Finds a field of a block by its path in the source: REGISTER.FIELD, REGISTER_FIELD, or the bare name."""

    def __init__(self, block: Block) -> None:
        self.fields: dict[tuple[str, str], list[Location]] = {}  # by the kind of a name, and the name
        self.wholes: dict[str, list[RegisterInfo]] = {}  # by name, and by name with subscripts
        self.names = {normal(w) for r in block.registers for w in ((r.name,), (*r.scope, r.name))}
        for register in block.registers:
            fields = register.fields or (register.whole,)
            alone = Location(register, replace(register.whole, mark=""))
            ways = (normal((*register.scope, register.name)), *alone.places(True), *alone.places(True, behind=True))
            for key in dict.fromkeys(ways):
                self.wholes.setdefault(key, []).append(register)
            stems = {f.name.rstrip("0123456789") for f in fields}
            stem = re.escape(stems.pop()) if len(stems) == 1 and len(fields) > 1 else ""
            for f in fields:
                location = Location(register, f)
                path = (*register.scope, register.name)
                keys = [("exact", normal((*path, f.name))), ("scoped", normal((*register.scope, f.name)))]
                keys += [("bare", normal((f.name,)))] + [("register", normal(path))] * (len(fields) == 1)
                for kind in ("places", "behind"):  # with subscripts, if the file has arrays
                    places = dict.fromkeys(location.places(len(fields) == 1, kind == "behind"))
                    keys += [(kind, place) for place in places if "#" in place]
                number = re.fullmatch(rf"{stem}(\d+)", f.name) if stem else None
                if number:  # `OTYPER[3]` for OTYPER.OT3
                    keys.append(("places", f"{marked(path)}#{int(number[1])}"))
                for kind_and_name in keys:
                    self.fields.setdefault(kind_and_name, []).append(location)

    def whole(self, words: tuple[str, ...]) -> RegisterInfo | None:
        """The register of this name; None unless there is exactly one."""
        place = marked(words)
        for key in (place, normal(words)):
            fitting = dict.fromkeys(self.wholes.get(key, ()))
            if key != place and "#" in place:
                fitting = {r: None for r in fitting if not Location(r, r.whole).renumbered}
            exact = [r for r in fitting if "#" not in place and normal((*r.scope, r.name)) == key]
            for registers in (exact, list(fitting)):  # RXD is not PSEL.RXD
                if len(registers) == 1:
                    return registers[0]
        return None

    def find(self, words: tuple[str, ...]) -> list[Location]:
        """All fields of this name; a valid name has exactly one."""
        whole, place = normal(words), marked(words)
        best: list[Location] = []
        keys = [("places", place), ("behind", place), ("exact", whole), ("scoped", whole), ("register", whole)]
        if normal(words[:-1]) not in self.names:  # else only fields of the named register count
            keys.append(("bare", normal(words[-1:])))
        for kind, name in keys:
            locations = list(dict.fromkeys(self.fields.get((kind, name), ())))
            if kind not in ("places", "behind") and "#" in place:
                locations = [f for f in locations if not f.renumbered]
            if len(locations) == 1:
                return locations
            best = best or locations
        return best


# SystemRDL: read through systemrdl-compiler, written as plain text.

T = TypeVar("T")
MAX_ELEMENTS = 1 << 16  # limit of registers, address maps, and elements of an array

ONWRITE = {write.rdl: word for word, write in WRITES.items()}
TAGS = re.compile(r"/\*.*?\*/|//[^\n]*|<%", re.S)  # comments, and where Perl begins
PERL = ["expand it with another tool, and name the description that comes out"]
ONREAD = {"rclr": "clear", "rset": "set", "ruser": "modify"}


def read_rdl(path: Path) -> RegisterMap:
    """The last address map of the file. Raises EdgebuildError with the compiler's messages."""
    try:
        from systemrdl.compiler import RDLCompiler
        from systemrdl.messages import MessagePrinter, RDLCompileError
        from systemrdl.node import AddrmapNode
    except ImportError as error:
        raise MissingTool(
            Diagnostic(
                "SystemRDL needs the Python package systemrdl-compiler",
                file=str(path),
                hints=("pip install systemrdl-compiler",),
            )
        ) from error
    _check_files(path)
    errors: list[Diagnostic] = []

    class Printer(MessagePrinter):
        def print_message(self, severity: Any, text: str, src_ref: Any) -> None:
            if severity.name in ("ERROR", "FATAL"):
                line = src_ref.line if src_ref is not None else 0
                column = src_ref.line_selection[0] + 1 if src_ref is not None else 0
                hints = caret(src_ref.line_text, column) if src_ref is not None else ()
                errors.append(Diagnostic(text, str(path), line, column, hints=hints))

    compiler = RDLCompiler(message_printer=Printer(), perl_safe_opcodes=[])
    try:
        files = compiler.compile_file(str(path)).included_files
        top = compiler.elaborate().top
        _check_arrays(top, path)
        maps = (c for c in top.children(unroll=True) if isinstance(c, AddrmapNode))
        inner = _counted(maps, "address maps", path)
        blocks = [
            Block(
                b.inst_name if b is not top else top.inst_name,
                b.absolute_address,
                _counted(_registers(b, b, (), (), str(path)), f"registers in {b.inst_name}", path),
                b.type_name or "",
            )
            for b in (inner or [top])
        ]
    except RDLCompileError as error:
        raise EdgebuildError(*errors or [Diagnostic(str(error), str(path))]) from error
    except RecursionError:
        raise fail("its parts are nested too deeply", file=str(path)) from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # the compiler fails on some damage
        text = f"the compiler of SystemRDL cannot read it: {type(error).__name__}: {error}"
        raise fail(text, file=str(path)) from None
    return RegisterMap(top.inst_name, tuple(blocks), files=tuple(files))


def _check_arrays(node: Any, path: Path) -> None:
    """Raise EdgebuildError for an array with more than `MAX_ELEMENTS` elements, before they are created."""
    for child in node.children(unroll=False):
        dimensions = getattr(child.inst, "array_dimensions", None) or ()
        if prod(dimensions) > MAX_ELEMENTS:
            line = getattr(child.inst.inst_src_ref, "line", 0)
            raise fail(f"'{child.inst_name}' has more than {MAX_ELEMENTS} elements", file=str(path), line=line)
        _check_arrays(child, path)


def _counted(parts: Iterator[T], what: str, path: Path) -> tuple[T, ...]:
    """All parts. Raises EdgebuildError if there are more than `MAX_ELEMENTS`: a small file may declare any number."""
    counted = tuple(islice(parts, MAX_ELEMENTS + 1))
    if len(counted) > MAX_ELEMENTS:
        raise fail(f"there are more than {MAX_ELEMENTS} {what}", file=str(path))
    return counted


def _check_files(path: Path) -> None:
    """Raise EdgebuildError if a file is missing, is too large, or contains Perl, which the compiler would run."""
    for file in (path, *map(Path, files_beside(path))):
        if file == overlay_of(path):
            continue
        text = read_text(file)
        for tag in TAGS.finditer(text):
            if tag[0].startswith("<%"):
                line = text.count("\n", 0, tag.start()) + 1
                raise fail("it holds Perl, which edgebuild does not run", file=str(file), line=line, hints=PERL)


def _registers(
    node: Any, block: Any, scope: tuple[str, ...], marks: tuple[str, ...], file: str
) -> Iterator[RegisterInfo]:
    from systemrdl.node import AddrmapNode, RegfileNode, RegNode

    seen: set[int] = set()
    for child in node.children(unroll=True):
        name, mark = (child.inst_name + "".join(f"{sign}{i}" for i in child.current_idx or ()) for sign in "_#")
        if isinstance(child, RegNode):
            if child.is_msb0_order:  # tools disagree: some reverse each field's bits, others the field's place
                line = getattr(child.inst.inst_src_ref, "line", 0)
                text = f"register '{child.inst_name}' counts bits from the most significant one (msb0), which tools"
                raise fail(f"{text} take in different ways; number them [high:low]", file=file, line=line)
            offset = child.absolute_address - block.absolute_address
            fields = tuple(_field(f) for f in child.fields())
            resets = [(f.low, f.get_property("reset")) for f in child.fields()]
            reset = sum(value << low for low, value in resets if isinstance(value, int))
            access = "".join(c for c in "rw" if any(c in f.access for f in fields))
            width, path = child.get_property("regwidth"), (*marks, mark)
            yield RegisterInfo(name, offset, width, fields, scope, access, reset, offset in seen, path)
            seen.add(offset)
        elif isinstance(child, RegfileNode | AddrmapNode):
            yield from _registers(child, block, (*scope, name), (*marks, mark), file)


def _field(f: Any) -> FieldInfo:
    access = ("r" if f.is_sw_readable else "") + ("w" if f.is_sw_writable else "")
    onwrite, onread = f.get_property("onwrite"), f.get_property("onread")
    modified = ONWRITE[onwrite.name] if onwrite is not None else ""
    action = ONREAD[onread.name] if onread is not None else ""
    if not modified and f.get_property("singlepulse"):
        modified = "oneToSet"  # it clears itself; a 0 does nothing
    if not modified and "w" in access and (f.get_property("swmod") or f.get_property("swacc")):
        modified = "modify"
    if not action and "r" in access and f.get_property("swacc"):
        action = "modify"
    encode = f.get_property("encode")
    values = tuple((m.name, int(m.value)) for m in encode) if encode is not None else ()
    volatile, once = bool(f.is_volatile), f.get_property("sw").name.endswith("1")
    return FieldInfo(
        f.inst_name, f.low, f.width, access, modified, action, volatile, complete=True, values=values, once=once
    )


# ---- writing


def write_rdl(map_: RegisterMap, comment: str = "") -> str:
    """Write SystemRDL: an address map for each type of device, and at the end one with all devices, the top.

    Instances are in the order of the description, clusters are register files.
    """
    lines = [f"// {remark(line)}" for line in comment.splitlines()]
    types: dict[str, tuple[RegisterInfo, ...]] = {}
    instances = []
    for block in map_.blocks:
        word = block.group
        if not word or word == map_.name or types.get(word, block.registers) != block.registers:
            word = f"{block.name}_map"
        if word not in types:
            lines += [f"addrmap {rdl_name(word)} {{", *_inside(block.registers, "    "), "};"]
        types[word] = block.registers
        instances.append(f"    {rdl_name(word)} {rdl_name(block.name)} @ {block.base:#x};")
    return "\n".join([*lines, f"addrmap {rdl_name(map_.name)} {{", *instances, "};", ""])


def _inside(registers: tuple[RegisterInfo, ...], pad: str) -> Iterator[str]:
    for item in clusters(registers):
        if isinstance(item.content, RegisterInfo):
            yield from _register(item.content, pad)
        else:
            yield f"{pad}regfile {{"
            yield from _inside(item.content, pad + "    ")
        array, step = (f"[{item.count}]", f" += {item.stride:#x}") if item.count else ("", "")
        yield f"{pad}}} {rdl_name(item.name)}{array} @ {item.offset:#x}{step};"


def _register(r: RegisterInfo, pad: str) -> Iterator[str]:
    """A register without the line that closes it."""
    width = f"regwidth = {r.bits}; accesswidth = {min(r.bits, 32)}; "
    for f in r.fields:
        if f.values:
            rows = " ".join(f"{rdl_name(n)} = {f.width}'d{v};" for n, v in f.values)
            yield f"{pad}enum {_enum(r, f)} {{ {rows} }};"
    yield f"{pad}{'external ' if any('modify' in (f.modified, f.read_action) for f in r.fields) else ''}reg {{ {width}"
    for f in r.fields:
        words = [
            f"sw = {f.access}{'1' if f.once else ''};",
            f"hw = {'rw' if f.volatile or f.access == 'r' else 'r'};",
            *_hardware(f),
        ]
        words += [f"onwrite = {k};" for k, v in ONWRITE.items() if v == f.modified]
        words += [f"onread = {k};" for k, v in ONREAD.items() if v == f.read_action]
        words += [f"encode = {_enum(r, f)};"] if f.values else []
        reset = (r.reset >> f.lsb) & ((1 << f.width) - 1)
        yield f"{pad}    field {{ {' '.join(words)} }} {rdl_name(f.name)}[{f.lsb + f.width - 1}:{f.lsb}] = {reset:#x};"


def _hardware(f: FieldInfo) -> Iterator[str]:
    """How hardware writes a field that software also writes: it sets flags that software clears, or strobes a value."""
    if "Clear" in f.modified:
        yield "hwset;"
    elif "Set" in f.modified:
        yield "hwclr;"
    elif f.volatile and (f.read_action or f.access != "r"):
        yield "we;"


def _enum(r: RegisterInfo, f: FieldInfo) -> str:
    return rdl_name(f"{r.full_name}_{f.name}_values")
