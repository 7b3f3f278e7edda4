"""A driver in C with masks becomes a source in the dialect: the text around the accesses stays as it is written.

Each function is proved against what the generator makes of it. One that is not gets a plainer form, or stays C.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from edgebuild.base.errors import EdgebuildError, fail
from edgebuild.base.inputs import read_text
from edgebuild.base.request import DriverRequest
from edgebuild.driver.adopt.addresses import Access, Refused, Stays, Target, accesses_of, targets
from edgebuild.driver.adopt.forms import MODIFY, NUMBER, Form, expanded, form_of
from edgebuild.driver.prove.versions import Words, compare_programs, version
from edgebuild.driver.registers.fixed import read_map
from edgebuild.driver.registers.regmap import Block
from edgebuild.driver.source import clang, ir
from edgebuild.driver.source.lowering import Program
from edgebuild.driver.source.sources import has_groups, in_macro

# Forms of a function's accesses, each plainer than the one before: a name, whether fields are read, whether they are
# written, and the most accesses that a register has which is changed without a variable.
LEVELS = (
    ("fields", True, True, 1 << 32),
    ("fields", True, True, 1),
    ("fields", False, True, 0),
    ("numbers", False, False, 0),
    ("C", False, False, 0),
)
KEPT = len(LEVELS) - 1
DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(include|if|endif)[^\n]*\n", re.M)
BLOCK = "\0"  # the end of a block in place of a statement: it takes the semicolon
COMMENT = re.compile(r"/\*(.*?)\*/|//([^\n]*)", re.S)


@dataclass(eq=False)
class Adopted:
    """A function with accesses."""

    function: ir.Function
    accesses: dict[Access, Target]
    stays: Stays
    level: int = 0

    def plainer(self, why: str, level: int = 0) -> None:
        """Take the next form."""
        self.level = max(level, self.level + 1)
        if self.level == KEPT:
            self.accesses = {}
            self.stays[self.function.where.line, why] = None


@dataclass
class Use:
    """A register in the text: its fields by their lowest bits (without any it is a number), and its functions."""

    fields: dict[int, str] = field(default_factory=dict)
    functions: set[Adopted] = field(default_factory=set)


def adopt(request: DriverRequest) -> tuple[str, list[Adopted]]:
    """(the source in the dialect, the functions with accesses) of a source in C and a layout that is fixed.

    Raises EdgebuildError if the source or the description cannot be read.
    """
    (path,) = request.sources
    if path.suffix != ".c" or has_groups(path):
        raise fail("only C that is not in the dialect yet can be adopted", file=str(path))
    read_text(path)  # raises what is wrong with a file that is not in UTF-8
    old, proved = version(request), set[str]()
    writer = _Writer(old, read_map(Path(request.layout.removeprefix("fixed:"))).blocks)
    with TemporaryDirectory() as folder:
        file = Path(folder) / path.name
        new = replace(request, sources=(file,), include_dirs=(path.parent, *request.include_dirs))
        while True:
            file.write_text(writer.text())
            wrong = _wrong(writer, new, old, proved)
            if not wrong:
                return file.read_text(), writer.functions
            for function, why in wrong.items():
                function.plainer(why, KEPT - 1 if why.startswith("unknown") else 0)


def _wrong(writer: _Writer, new: DriverRequest, old: Program, proved: set[str]) -> dict[Adopted, str]:
    """Functions that need a plainer form, with the reason. Raises EdgebuildError for an error that is in none.

    `proved`: generated code of functions that need no other proof.
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
    code = {name: _code(program, name) for name in open_}
    names = tuple(name for name in open_ if code[name] not in proved)
    words = Words(new.sources[0].name, "the adopted source", {})
    rows = compare_programs(old, program, words, names) if names else []
    proved |= {code[r.function] for r in rows if r.verdict == "proved"}
    return {open_[r.function]: f"{r.verdict}: {r.why}" for r in rows if r.verdict != "proved"}


def _code(program: Program, name: str) -> str:
    """The code of a function and of all that it calls, without macros."""
    names = [name]
    for n in names:  # it grows
        body = program.definitions[n].body
        called = {x.name for x in body.all() if isinstance(x, ir.Name)} if body else set[str]()
        names += sorted(called & program.definitions.keys() - set(names))
    return "\n".join(clang.pretty(program.definitions[n].origin) for n in names)


class _Writer:
    """The text of the adopted source."""

    def __init__(self, program: Program, blocks: Sequence[Block]) -> None:
        self.source = program.unit.text
        self.words = set(re.findall(r"\w+", self.source.decode("utf-8", "replace")))
        self.words |= {c.spelling for c in program.unit.top}
        self.first = min((f.span[0] for f in program.functions), default=0)
        own = {f: accesses_of(f) for f in program.functions}
        registers = targets([a for accesses, _ in own.values() for a in accesses], blocks)
        self.functions = []
        for f, (accesses, stays) in own.items():
            absent = (a for a in accesses if a not in registers)
            stays |= {(a.place.where.line, "the description has no such register"): None for a in absent}
            if accesses or stays:
                self.functions.append(Adopted(f, {a: registers[a] for a in accesses if a in registers}, stays))
        self.names: dict[str, tuple[str, str]] = {}  # of a peripheral: its group and its device
        self.uses: dict[Target, Use] = {}
        self.pieces: list[tuple[str, set[Adopted]]] = []  # of the text, each with the functions that need it

    def text(self) -> str:
        """The source as the levels of its functions have it."""
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
        return [x for x in forms if x.text != NUMBER or x.node not in changed]  # of what is changed, the read

    def _head(self) -> ir.Span:
        """The place for the groups: behind the last #include in front of all functions, and its conditions."""
        depth, at, included = 0, 0, False
        for m in DIRECTIVE.finditer(self.source, 0, self.first):
            depth += {b"if": 1, b"endif": -1}.get(m[1], 0)
            included |= m[1] == b"include"
            if included and not depth:
                at, included = m.end(), False
        return at, at

    def _group(self, block: Block) -> Iterator[tuple[str, set[Adopted]]]:
        """The groups of a peripheral: of its registers, and of itself."""
        group, device = self.names[block.name]
        own = sorted(((t.register, use) for t, use in self.uses.items() if t.block is block), key=lambda x: x[0].offset)
        members, everyone = [], {f for _, use in own for f in use.functions}
        for r, use in own:
            type_ = f"bfGroup {group}_{r.full_name}" if use.fields else _type(r.bits)
            members.append((f"    {type_} {r.full_name};\n", use.functions))
            if use.fields:
                yield f"{type_} {{ {' '.join(use.fields[k] for k in sorted(use.fields))} }};\n", use.functions
        yield f"bfGroup {group} {{\n", everyone
        yield from members
        macro = f"#define {group.upper()}_AT(address) ((bfGroup {group} *)(address))"
        yield f"}};\nmake_device({group}, {device}, {block.base:#x});\n{macro}\n\n", everyone

    def _name(self, block: Block, alone: bool) -> None:
        """Choose names of a group and of a device that nothing else in the source has."""
        if block.name not in self.names:
            group, device = ((block.group if alone else "") or block.name).capitalize(), block.name.lower()
            while {group, f"{group.upper()}_AT"} & self.words:
                group += "Regs"
            while device in self.words:
                device += "_device"
            self.names[block.name] = group, device
            self.words |= {group, device}

    def blamed(self, error: EdgebuildError, file: str) -> dict[Adopted, str]:
        """The functions that an error of the generator is about."""
        blamed, line = dict[Adopted, str](), 1
        for text, functions in self.pieces:
            end = line + text.count("\n")
            for d in error.diagnostics:
                if d.file == file and line <= d.line <= end:
                    blamed |= {f: d.text for f in functions if f.accesses and f not in blamed}
            line = end
        return blamed


def _type(width: int) -> str:
    return "bit" if width == 1 else f"uint{width}"


class _Body:
    """The text of a function's body with its accesses in the dialect.

    `alone`: a register with more accesses is changed in a variable that holds it, so that each change stays one.
    """

    def __init__(self, writer: _Writer, targets: Mapping[Access, Target], alone: int, forms: Sequence[Form]) -> None:
        self.writer, self.targets, self.alone = writer, targets, alone
        self.times = Counter(targets[form.access] for form in forms)
        self.new = {_replaced(form): form for form in forms}
        self.around = {p for form in forms for p in form.access.parents}

    def whole(self, block: ir.Block) -> str:
        """The text of the body. Raises Refused where a macro with accesses is no expression."""
        return re.sub(f"{BLOCK}\\s*;?", "", self.text(block))

    def text(self, x: ir.Node, printed: bool = False) -> str:
        """The text of a node with the accesses in it replaced. `printed`: it comes out of a macro and has none."""
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
        """An access, with what is done around it."""
        t, base = self.targets[form.access], form.access.address.base
        group, where = self.writer.names[t.block.name]
        if base is not None:
            where = f"{group.upper()}_AT({self.text(base, printed or _begins(base, form.access.place))})"
        place, group = f"{where}->{t.register.full_name}", f"bfGroup {group}_{t.register.full_name}"
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
        single = isinstance(value.bare, ir.Name | ir.Number | ir.Unary | ir.Call) or text[0] == "("
        return text if single or not operand else f"({text})"

    def _lines(self, form: Form, lines: Sequence[str]) -> str:
        """Statements in place of one, without the last semicolon."""
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
    """The node whose text changes; of a place, with the parentheses of its macro."""
    node = form.node
    for p in form.access.parents if node is form.access.place else ():
        if not isinstance(p, ir.Parenthesised) or not _begins(node, p):
            break
        node = p
    return node


def _begins(p: ir.Node, x: ir.Node) -> bool:
    """Whether a part of a node comes out of the macro that the node begins with."""
    return p.span[0] == x.span[0] and in_macro(p.origin.extent.start)


def _flat(x: ir.Node) -> Iterator[ir.Node]:
    """The parts of a node; of declarations the values alone, for each begins where the type does."""
    for p in x.parts:
        yield from p.parts if isinstance(p, ir.Declared) else (p,)
