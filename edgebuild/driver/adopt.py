"""Convert a driver in C with masks to a source in the dialect. The text around the accesses stays as written.

Each function is proved equal to its generated code. One without a proof gets a plainer form, or stays C. The forms of
an access are: fields, a variable that holds the register, or the register as a number.

A mask becomes fields if each of its bits belongs to exactly one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from ..base.errors import EdgebuildError, fail
from ..base.inputs import read_text
from ..base.request import DriverRequest
from .accesses import WIDE, Access, Refused, Sizes, Stays, Target, absence, accesses_of, accessor, plain, targets, wider
from .pipeline import triple_of
from .prove.versions import Words, compare_programs, version
from .registers.fixed import read_map
from .registers.regmap import Block, FieldInfo, RegisterInfo
from .source import clang, ir
from .source.lowering import Program
from .source.sources import has_groups, macros_among

Change = tuple[FieldInfo | None, str, int | ir.Expression]  # (field or None: the register as a number, operator, value)
NUMBER, DISCARD, MODIFY = "{number}", "(void){place}", "{number} = {number}{changes}"
LITERAL = "{place} = ({group}){{ .{changes} }}"  # a store of all fields
TEXTS: dict[type[ir.Node], str] = {  # templates for expressions without macros
    ir.Name: "{x.name}",
    ir.Converted: "{inside}",
    ir.Parenthesised: "({inside})",
    ir.Cast: "({x.type.name}){inside}",
    ir.Unary: "{x.operator}{operand}",
    ir.Binary: "{left} {x.operator} {right}",
    ir.Logical: "{left} {x.operator} {right}",
    ir.Assignment: "{left} {x.operator}= {right}",
    ir.MemberOf: "{base}{arrow}{x.member.name}",
    ir.Subscript: "{base}[{index}]",
    ir.Choice: "{condition} ? {yes} : {no}",
}


@dataclass(frozen=True)
class Form:
    """The replacement of `node`: `text`, a template; or, if that is empty, a statement for each change of a field."""

    access: Access
    node: ir.Node
    text: str
    changes: tuple[Change, ...] = ()
    field: FieldInfo | None = None  # the field that is read


def form_of(a: Access, register: RegisterInfo, reads: bool, writes: bool) -> Form:
    """The form of one access. `reads`, `writes`: whether masks become fields. Raises Refused if it must stay C."""
    parent = next(p for p in a.parents if not isinstance(p, ir.Parenthesised))
    if any(isinstance(p, ir.Assembly) for p in a.parents):
        raise Refused("it stands in inline assembly")
    if isinstance(parent, ir.Unary) and parent.operator == "&":
        raise Refused("its address is taken")
    statement = next((p for p in a.parents if isinstance(p, ir.Evaluation)), None)
    value = statement and plain(statement.value)
    if a.value is not None:
        if value is not a.place or not statement:
            raise Refused("the call that stores it is no statement")
        return _stored(a, register, a.value, statement, writes)
    if value is a.place and statement:
        return Form(a, statement, DISCARD)
    if isinstance(parent, ir.Step) or (isinstance(parent, ir.Assignment) and parent.left.bare is a.place):
        if value is parent and statement:
            return _written(a, register, parent, statement, writes)
        if isinstance(parent, ir.Step) or parent.operator:
            raise Refused("it is changed, and the value is used")
        reads = False
    return (reads and _read_field(a, register)) or Form(a, a.place, NUMBER)


def _read_field(a: Access, register: RegisterInfo) -> Form | None:
    """The form of `place & mask`, if the mask is one field and only its truth or value is used; else None."""
    masked, around = [p for p in a.parents if not isinstance(p, ir.Parenthesised | ir.Converted)][:2]
    if not (isinstance(masked, ir.Binary) and masked.operator == "&"):
        return None
    mask = next((c & WIDE for x in (masked.left, masked.right) if (c := x.constant) is not None), None)
    info = next((f for f in register.fields if bits_of(f) == mask), None)
    if info is None:
        return None
    text, test = f"{{place}}.{info.name}", getattr(around, "condition", None)
    match around:
        case ir.Binary(left=left, right=right, operator="==" | "!=" as operator):
            for number in (left.constant, right.constant):
                if number is not None and not number & WIDE & ~bits_of(info):
                    return Form(a, around, f"{text} {operator} {(number & WIDE) >> info.lsb}", (), info)
        case ir.Binary(right=right, operator=">>") if right.constant == info.lsb:
            return Form(a, around, text, (), info)
    truth = isinstance(around, ir.Logical) or (isinstance(around, ir.Unary) and around.operator == "!")
    truth |= test is not None and any(x is masked for x in test.all())
    return Form(a, masked, text, (), info) if truth or info.lsb == 0 else None


def bits_of(f: FieldInfo) -> int:
    return ((1 << f.width) - 1) << f.lsb


def _written(
    a: Access, register: RegisterInfo, x: ir.Assignment | ir.Step, statement: ir.Evaluation, in_fields: bool
) -> Form:
    """The form of a statement that stores to the register."""
    right = None if isinstance(x, ir.Step) else x.right
    if right is not None and not x.operator and right.constant is not None:
        form = _stored(a, register, right, statement, in_fields)
        return form if form.text == LITERAL else Form(a, a.place, NUMBER)
    changes = _changes(a, register, x.operator, right) if right is not None and in_fields else None
    if not changes and right is not None and not x.operator:
        return Form(a, a.place, NUMBER)
    if any(ir.is_busy(n) for part in (a.address.base, a.address.index) if part for n in part.all()):
        raise Refused("the address is what a call or an assignment gives, and the register is read and written")
    if changes:
        return Form(a, statement, "", tuple(changes))
    return Form(a, statement, MODIFY, ((None, x.operator, 1 if right is None else right),))


def _stored(a: Access, register: RegisterInfo, value: ir.Expression, statement: ir.Evaluation, in_fields: bool) -> Form:
    """The form of a store of a value: a literal of all fields if it is constant, else a number."""
    number = value.constant
    if in_fields and number is not None and len(register.fields) > 1:
        changes = _changes(a, register, "", value) or ()
        changes = [c for c in changes if c[2] or (c[0] and register.reset & bits_of(c[0]))]
        if changes:
            return Form(a, statement, LITERAL, tuple(changes))
    return Form(a, statement, "{number}{changes}", ((None, "=", value),))


def _changes(a: Access, register: RegisterInfo, operator: str, right: ir.Expression) -> list[Change] | None:
    """The changes of fields. None if bits belong to no field or to several, or the value has another form."""
    full = (1 << register.bits) - 1
    if (parts := _parts(a, operator, right, full)) is None:
        return None
    mask, bits, values = parts
    changes, rest = list[Change](), mask | bits
    for f in sorted(register.fields, key=lambda f: f.lsb):
        own = bits_of(f)
        if not own & (mask | bits):
            continue
        if own & (mask | bits) & ~rest:  # another field has some of these bits, too
            return None
        rest &= ~own
        cleared, number = (mask & own) >> f.lsb, (bits & own) >> f.lsb
        value = next((v for x in values if (v := _field_value(x, f)) is not None), None)
        is_whole = cleared == own >> f.lsb
        if value is not None and is_whole and not number:
            values = [x for x in values if _field_value(x, f) is None]
            changes.append((f, "=", value))
        elif is_whole or number == own >> f.lsb:
            changes.append((f, "=", number))
        else:
            changes += [(f, "&=", own >> f.lsb & ~cleared)] if cleared else []
            changes += [(f, "|=", number)] if number else []
    # A store of all fields leaves bits outside of fields at their reset values, so only ones there are an obstacle.
    return None if values or rest & (bits if mask == full else WIDE) else changes


def _parts(a: Access, operator: str, right: ir.Expression, full: int) -> tuple[int, int, list[ir.Expression]] | None:
    """(bits that are cleared, bits that are set, other values) of `place = (place & ~mask) | bits | value`.

    Any part may be missing; `place |= bits` and `place &= ~mask` are handled alike. None for any other form.
    """
    if (constant := right.constant) is not None:
        numbers = constant & full
        return {"": (full, numbers, []), "|": (0, numbers, []), "&": (~numbers & full, 0, [])}.get(operator)
    if operator:
        return None
    masks, bits, values = list[int](), 0, list[ir.Expression]()
    for part in _operands(right, "|"):
        factors = list(_operands(part, "&"))
        others = [f for f in factors if not _is_same(a, f)]
        if len(others) < len(factors):
            kept = others[0].constant if others else full
            if len(others) > 1 or kept is None:
                return None
            masks.append(~kept & full)
        elif (number := part.constant) is not None:
            bits |= number & full
        else:
            values.append(part)
    return (masks[0], bits, values) if len(masks) == 1 else None


def _is_same(a: Access, x: ir.Expression) -> bool:
    """Whether an operand reads the place that is written: their texts with macros expanded are equal."""
    return type(x.bare) is type(a.place) and x.type.is_volatile and expanded(x) == expanded(a.place)


def expanded(x: ir.Node, text: Callable[[ir.Node], str] | None = None) -> str:
    """An expression with macros expanded; `text` gives the text of its parts. Raises Refused for unsupported ones."""
    part = text or expanded
    if isinstance(x, ir.Number):
        return f"{x.constant}{'' if x.type.signed else 'U'}"
    if isinstance(x, ir.Call) and x.callee:
        return f"{part(x.callee)}({', '.join(map(part, x.arguments))})"
    if type(x) not in TEXTS or (isinstance(x, ir.MemberOf) and x.base is None):
        raise Refused("it comes out of a macro that is no expression")
    base = x.written_base if isinstance(x, ir.MemberOf) else None
    arrow = "->" if base and base.type.kind == "pointer" else "."
    nodes = vars(x) | ({"base": base} if base else {})
    parts = {name: part(value) for name, value in nodes.items() if isinstance(value, ir.Node)}
    return TEXTS[type(x)].format(x=x, arrow=arrow, **{"yes": "", **parts})


def _operands(x: ir.Expression, operator: str) -> Iterator[ir.Expression]:
    bare = x.bare
    if isinstance(bare, ir.Binary) and bare.operator == operator and bare.constant is None:
        yield from _operands(bare.left, operator)
        yield from _operands(bare.right, operator)
    else:
        yield bare


def _field_value(x: ir.Expression, f: FieldInfo) -> ir.Expression | None:
    """The field's value, if `x` is that value shifted (and masked) to the field's bits; else None."""
    match x.bare:
        case ir.Binary(left=left, right=right, operator="&") if right.constant == bits_of(f):
            return _field_value(left, f)
        case ir.Binary(left=left, right=right, operator="<<"):
            return left if right.constant == f.lsb else None
    return x.bare if f.lsb == 0 else None


# Levels of a function's forms, each plainer than the one before: (name, whether fields are read, whether fields are
# written, number of accesses to a register up to which it is changed without a variable).
LEVELS = (
    ("fields", True, True, 1 << 32),
    ("fields", True, True, 1),
    ("fields", False, True, 0),
    ("numbers", False, False, 0),
    ("C", False, False, 0),
)
KEPT = len(LEVELS) - 1
BUDGET = 12_000_000  # steps of the proofs of one function in all its forms; beyond that, it stays C
CALLS = "unknown: it calls '"  # the begin of the reason if a callee is not proved
DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(include|if|endif)[^\n]*\n", re.M)
BLOCK = "\0"  # marks the end of a block that replaces a statement; the semicolon after it is removed
COMMENT = re.compile(r"/\*(.*?)\*/|//([^\n]*)", re.S)


POSITION_INDEPENDENT = ("__LINE__=0", '__FILE__=""')  # for the proof: assertions must not depend on lines


@dataclass(eq=False)
class Adopted:
    """A function with accesses to registers."""

    function: ir.Function
    accesses: dict[Access, Target]
    stays: Stays
    level: int = 0

    def plainer(self, why: str, level: int = 0) -> None:
        """Go to the next level, at least to `level`. `why`: the reason in the report if the function stays C."""
        self.level = max(level, self.level + 1)
        if self.level == KEPT:
            self.accesses = {}
            self.stays[self.function.where.line, why] = None


@dataclass
class Use:
    """A register in the adopted source: its fields by lowest bit (none: a number), and the functions that use it."""

    fields: dict[int, str] = field(default_factory=dict)
    functions: set[Adopted] = field(default_factory=set)


def adopt(request: DriverRequest) -> tuple[str, list[Adopted], Sizes]:
    """Convert a C source with a fixed layout: (source in the dialect, functions, register sizes for `patch_of`).

    Raises EdgebuildError if the source or the description cannot be read.
    """
    (path,) = request.sources
    if path.suffix != ".c" or has_groups(path):
        raise fail("only C that is not in the dialect yet can be adopted", file=str(path))
    read_text(path)  # raises EdgebuildError if it is not UTF-8
    request = replace(request, defines=(*request.defines, *POSITION_INDEPENDENT))
    old = version(request)
    proved = {_code(old, f.full_name) for f in old.functions}  # code that stays as it is needs no proof
    limits = dict.fromkeys(old.definitions, BUDGET)
    described = Path(request.layout.removeprefix("fixed:"))
    with TemporaryDirectory() as folder:
        file, patched = Path(folder) / path.name, Path(folder) / "patch.yaml"
        blocks, sizes = read_map(described).blocks, Sizes()
        accesses = [a for f in old.functions for a in accesses_of(f, old)[0]]
        if described.suffix == ".svd" and (sizes := wider(accesses, blocks)):
            patched.write_text(patch_of(str(described.resolve()), sizes), encoding="utf-8")
            request = replace(request, layout=f"fixed:{patched}")
            blocks = read_map(patched).blocks
            wide = {(b.name, r.name) for b in blocks for r in b.registers if r.bits == 32}  # without elements of arrays
            rows = {b: {n: None for n in names if (b, n) in wide} for b, names in sizes.items()}
            sizes = {b: names for b, names in rows.items() if names}
        writer = _Writer(old, blocks, request)
        new = replace(request, sources=(file,), include_dirs=(path.parent, *request.include_dirs))
        while True:
            file.write_text(writer.text(), encoding="utf-8", newline="\n")
            wrong = _wrong(writer, new, old, proved, limits)
            if not wrong:
                return file.read_text(encoding="utf-8"), writer.functions, sizes
            for function, why in wrong.items():
                is_spent = limits[function.function.full_name] <= 0
                function.plainer(why, KEPT if is_spent else KEPT - 1 if why.startswith("unknown") else 0)


def patch_of(svd: str, sizes: Sizes) -> str:
    """A patch for svdtools that widens registers to the 32 bits that the C code accesses."""
    rows = {block: {"_modify": {name: {"size": 32} for name in names}} for block, names in sizes.items()}
    return yaml.safe_dump({"_svd": svd, **rows}, sort_keys=False)


def _wrong(
    writer: _Writer, new: DriverRequest, old: Program, proved: set[str], limits: dict[str, int]
) -> dict[Adopted, str]:
    """Functions that need a plainer form, with the reason. Raises EdgebuildError for an error outside of functions.

    `proved`: the code of functions that are already proved.
    """
    open_ = {f.function.full_name: f for f in writer.functions if f.accesses}
    if not open_:
        return {}
    try:
        program = version(new)
    except EdgebuildError as error:
        if blamed := writer.blamed(error, str(new.sources[0])):
            return blamed
        raise
    code = {f.full_name: _code(program, f.full_name) for f in old.functions}
    same = {name for name, text in code.items() if text in proved}
    names = tuple(name for name in open_ if name not in same)
    words = Words(new.sources[0].name, "the adopted source", {})
    rows = compare_programs(old, program, words, names, same, limits) if names else []
    proved |= {code[r.function] for r in rows if r.verdict == "proved"}
    wrong = {open_[r.function]: f"{r.verdict}: {r.why}" for r in rows if r.verdict != "proved" and r.function in open_}
    # A function whose callee gets a plainer form now is compared again with that form.
    return {f: why for f, why in wrong.items() if CALLS not in why} or wrong


def _code(program: Program, name: str) -> str:
    """The code of a function and of its callees, with macros expanded."""
    names = [name]
    for n in names:  # it grows
        body = program.definitions[n].body
        called = {x.name for x in body.all() if isinstance(x, ir.Name)} if body else set[str]()
        names += sorted(called & program.definitions.keys() - set(names))
    return "\n".join(clang.pretty(program.definitions[n].origin) for n in names)


class _Writer:
    """The text of the adopted source."""

    def __init__(self, program: Program, blocks: Sequence[Block], request: DriverRequest) -> None:
        self.source = program.unit.text
        self.words = set(re.findall(r"\w+", self.source.decode("utf-8", "replace")))
        self.words |= {c.spelling for c in program.unit.top}
        self.first = min((f.span[0] for f in program.functions), default=0)
        own = {f: accesses_of(f, program) for f in program.functions}
        registers = targets([a for accesses, _ in own.values() for a in accesses], blocks)
        names = {n: None for t in registers.values() for n in (t.name, *(f.name for f in t.register.fields))}
        own_names = {w for t in registers.values() for w in _names_of(t.block)}
        macros = macros_among([*names, *own_names], request.sources[0], triple_of(request.target), request.flags)
        self.words |= macros
        registers = {a: _without_macro_names(t, macros) for a, t in registers.items()}
        self.functions = []
        for f, (accesses, stays) in own.items():
            absent = (a for a in accesses if a not in registers and not accessor(f, program))
            stays |= {(a.place.where.line, absence(a, blocks)): None for a in absent}
            if accesses or stays:
                self.functions.append(Adopted(f, {a: registers[a] for a in accesses if a in registers}, stays))
        self.names: dict[str, tuple[str, str]] = {}  # (group, device) by peripheral
        self.uses: dict[Target, Use] = {}
        self.pieces: list[tuple[str, set[Adopted]]] = []  # pieces of the text, with the functions that need them

    def text(self) -> str:
        """The text at the current levels of its functions."""
        forms = {f: self._forms(f) for f in self.functions}
        self.uses = {}
        for f, form in ((f, form) for f, own in forms.items() for form in own):
            use = self.uses.setdefault(f.accesses[form.access], Use())
            use.functions.add(f)
            infos = (form.field, *(info for info, _, _ in form.changes))
            use.fields |= {i.lsb: f"{_type(i.width)} {i.name};" for i in infos if i}
        blocks = {t.block.name: t.block for t in self.uses}
        for block in blocks.values():
            self._name(block, sum(b.group == block.group for b in blocks.values()) == 1)
        parts = [(self._head(), piece) for b in blocks.values() for piece in self._group(b)]
        for f, own in forms.items():
            try:
                if own and f.function.body:
                    text = _Body(self, f.accesses, LEVELS[f.level][3], own).whole(f.function.body)
                    parts.append((f.function.body.span, (text, {f})))
            except Refused as reason:
                f.plainer(str(reason), KEPT)
                return self.text()
        self.pieces, end = [], 0
        for span, piece in sorted(parts, key=lambda p: p[0]):
            self.pieces += [(self.source[end : span[0]].decode(), set()), piece]
            end = span[1]
        self.pieces.append((self.source[end:].decode(), set()))
        return "".join(text for text, _ in self.pieces)

    def _forms(self, f: Adopted) -> list[Form]:
        forms = []
        for a, t in list(f.accesses.items()):
            try:
                forms.append(form_of(a, t.register, *LEVELS[f.level][1:3]))
            except Refused as reason:
                f.stays[a.place.where.line, str(reason)] = None
                del f.accesses[a]
        changed = {n for form in forms if not form.text for n in form.node.all()}
        changed -= {n for form in forms for *_, v in form.changes if isinstance(v, ir.Node) for n in v.all()}
        return [x for x in forms if x.text != NUMBER or x.node not in changed]  # not the reads in changes

    def _head(self) -> ir.Span:
        """The place for the groups: after the last #include before all functions, outside of conditional blocks."""
        depth, at, included = 0, 0, False
        for m in DIRECTIVE.finditer(self.source, 0, self.first):
            depth += {b"if": 1, b"endif": -1}.get(m[1], 0)
            included |= m[1] == b"include"
            if included and not depth:
                at, included = m.end(), False
        return at, at

    def _group(self, block: Block) -> Iterator[tuple[str, set[Adopted]]]:
        """The group definitions of a peripheral: those of its registers, then its own."""
        group, device = self.names[block.name]
        own = sorted((x for x in self.uses.items() if x[0].block is block), key=lambda x: x[0].register.offset)
        members, everyone = [], {f for _, use in own for f in use.functions}
        for t, use in own:
            type_ = f"bfGroup {group}_{t.name}" if use.fields else _type(t.register.bits)
            members.append((f"    {type_} {t.name}{f'[{t.count}]' if t.count else ''};\n", use.functions))
            if use.fields:
                yield f"{type_} {{ {' '.join(use.fields[k] for k in sorted(use.fields))} }};\n", use.functions
        yield f"bfGroup {group} {{\n", everyone
        yield from members
        macro = f"#define {group.upper()}_AT(address) ((bfGroup {group} *)(address))"
        yield f"}};\nmake_device({group}, {device}, {block.base:#x});\n{macro}\n\n", everyone

    def _name(self, block: Block, alone: bool) -> None:
        """Choose unused names for the group and the device of a peripheral."""
        if block.name not in self.names:
            first, other, device = _names_of(block)
            group = first if alone else other
            while {group, f"{group.upper()}_AT"} & self.words:
                group += "Regs"
            while device in self.words:
                device += "_device"
            self.names[block.name] = group, device
            self.words |= {group, device}

    def blamed(self, error: EdgebuildError, file: str) -> dict[Adopted, str]:
        """The functions in whose text the generator reports errors."""
        blamed, line = dict[Adopted, str](), 1
        for text, functions in self.pieces:
            end = line + text.count("\n")
            for d in error.diagnostics:
                if d.file == file and line <= d.line <= end:
                    blamed |= {f: d.text for f in functions if f.accesses and f not in blamed}
            line = end
        return blamed


def _without_macro_names(t: Target, macros: set[str]) -> Target:
    """The register with a `_` appended to names that are macros: descriptions are matched without it."""
    names = {f: f.name + "_" * (f.name in macros) for f in t.register.fields}
    fields = tuple(replace(f, name=name) for f, name in names.items())
    return replace(t, name=t.name + "_" * (t.name in macros), register=replace(t.register, fields=fields))


def _names_of(block: Block) -> tuple[str, str, str]:
    """(name of its group if no other peripheral shares the group, else of its group, name of its device)."""
    return (block.group or block.name).capitalize(), block.name.capitalize(), block.name.lower()


def _type(width: int) -> str:
    return "bit" if width == 1 else f"uint{width}"


class _Body:
    """The text of a function's body with its accesses in the dialect.

    `alone`: a register with more accesses is changed in a variable, so that each change stays one load and one store.
    """

    def __init__(self, writer: _Writer, targets: Mapping[Access, Target], alone: int, forms: Sequence[Form]) -> None:
        self.writer, self.targets, self.alone = writer, targets, alone
        self.times = Counter(targets[form.access] for form in forms)
        self.new = {_replaced(form): form for form in forms}
        self.around = {p for form in forms for p in form.access.parents}

    def whole(self, block: ir.Block) -> str:
        """The text of the body. Raises Refused if a macro with accesses is no expression."""
        return re.sub(f"{BLOCK}\\s*;?", "", self.text(block))

    def text(self, x: ir.Node, printed: bool = False) -> str:
        """The text of a node with its accesses replaced. `printed`: it comes out of a macro, and has no own text."""
        if form := self.new.get(x):
            text, source = self._form(x, form, printed), x.source.decode()
            lost = [m[1] or m[2] for m in COMMENT.finditer(source) if m[0] not in text]
            return " ".join([text, *(f"/*{comment.rstrip()} */" for comment in lost)]) + BLOCK * (text[0] == "{")
        if x not in self.around and not printed:
            return x.source.decode()
        if isinstance(x, ir.Converted | ir.Evaluation):
            return self.text(x.parts[0], printed)
        parts = sorted(_flat(x), key=lambda p: p.span)
        if printed or all(_begins(p, x) for p in parts):
            return expanded(x, lambda p: self.text(p, True))
        out, end = list[str](), x.span[0]
        for p in parts:
            if p.span[0] < end:
                raise Refused("it comes out of a macro with several parts")
            out += [self.writer.source[end : p.span[0]].decode(), self.text(p)]
            end = p.span[1]
        return "".join([*out, self.writer.source[end : x.span[1]].decode()])

    def _form(self, x: ir.Node, form: Form, printed: bool) -> str:
        """The text of an access, with the operation around it that the form includes."""
        t, base = self.targets[form.access], form.access.address.base
        group, where = self.writer.names[t.block.name]
        if base is not None:
            at = self.text(base, printed or _begins(base, form.access.place))
            where = f"{group.upper()}_AT({f'(char *)({at}) + {t.alias:#x}' if t.alias else at})"
        elif t.alias:
            where = f"{group.upper()}_AT({t.block.base + t.alias:#x})"
        place, group = f"{where}->{t.name}", f"bfGroup {group}_{t.name}"
        if (index := form.access.address.index) is not None:
            text = self._value(index, form.access.place, printed, t.first > 0)
            place += f"[{text} - {t.first}]" if t.first else f"[{text}]"
        changes = [
            f"{f.name if f else ''} {operator} {self._value(v, x, printed, form.text == MODIFY)}"
            for f, operator, v in form.changes
        ]
        if form.text:
            number = f"bf_raw({place})" if self.writer.uses[t].fields else place
            return form.text.format(place=place, number=number, group=group, changes=", .".join(changes))
        if self.times[t] <= self.alone:
            return self._lines(form, [f"{place}.{c}" for c in changes])
        held = "held" + "_" * ("held" in self.writer.words)
        return self._lines(form, [f"{group} {held} = {place}", *(f"{held}.{c}" for c in changes), f"{place} = {held}"])

    def _value(self, value: int | ir.Expression, x: ir.Node, printed: bool, operand: bool) -> str:
        if isinstance(value, int):
            return f"{value:#x}" if value > 9 else f"{value}"
        text = self.text(value, printed or _begins(value, x))
        whole: ir.Node = value
        while isinstance(whole, ir.Converted | ir.Evaluation):
            whole = whole.parts[0]
        single = isinstance(whole, ir.Name | ir.Number | ir.Unary | ir.Call | ir.Cast | ir.Parenthesised)
        return text if single or not operand else f"({text})"

    def _lines(self, form: Form, lines: Sequence[str]) -> str:
        """Several statements in place of one, without the last semicolon."""
        if len(lines) == 1:
            return lines[0]
        line = self.writer.source[: form.node.span[0]].decode().rpartition("\n")[2]
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        around = form.access.parents[form.access.parents.index(form.node) + 1]
        if not lines[0].startswith("bfGroup") and isinstance(around, ir.Block):
            return f";\n{indent}".join(lines)
        step = f"\n{indent}{indent[:1] if indent[:1] == chr(9) else '    '}"
        return f"{{{step}{f';{step}'.join(lines)};\n{indent}}}"


def _replaced(form: Form) -> ir.Node:
    """The node whose text is replaced; for a bare access, with the parentheses of its macro."""
    node = form.node
    for p in form.access.parents if node is form.access.place else ():
        if not isinstance(p, ir.Parenthesised) or not _begins(node, p):
            break
        node = p
    return node


def _begins(p: ir.Node, x: ir.Node) -> bool:
    """Whether a part of a node comes out of the macro at the node's beginning."""
    return p.span[0] == x.span[0] and clang.in_macro(p.origin.extent.start)


def _flat(x: ir.Node) -> Iterator[ir.Node]:
    """The parts of a node. Declared variables are replaced by their parts, since they all begin at the type."""
    for p in x.parts:
        yield from p.parts if isinstance(p, ir.Declared) else (p,)
