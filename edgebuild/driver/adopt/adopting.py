"""A driver in C with masks becomes a source in the dialect: the text around the accesses stays as it is written.

Each function is proved against what the generator makes of it. One that is not gets a plainer form, or stays C.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from edgebuild.base.errors import EdgebuildError, fail
from edgebuild.base.inputs import read_text
from edgebuild.base.request import DriverRequest
from edgebuild.driver.adopt.addresses import Access, Refused, Target, accesses_of, targets
from edgebuild.driver.adopt.body import Body
from edgebuild.driver.adopt.forms import Form, form_of
from edgebuild.driver.prove.versions import Words, compare_programs, version
from edgebuild.driver.registers.fixed import read_map
from edgebuild.driver.registers.regmap import Block, RegisterInfo
from edgebuild.driver.source import ir
from edgebuild.driver.source.lowering import Program
from edgebuild.driver.source.sources import has_groups

FIELDS, SOME_HELD, HELD, NUMBERS, KEPT = range(5)  # forms of a function's accesses, each plainer than the one before
DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(include|if|endif)[^\n]*\n", re.M)
Piece = tuple[str, "set[Adopted]"]  # a piece of the text, and the functions that need it


@dataclass(eq=False)
class Adopted:
    """A function with accesses. `stays`: the lines that stay C, with the reasons."""

    function: ir.Function
    accesses: dict[Access, Target]
    stays: list[tuple[int, str]]
    level: int = FIELDS

    def plainer(self, why: str, level: int = 0) -> None:
        """Take the next form."""
        self.level = max(level, self.level + 1)
        if self.level == KEPT:
            self.accesses = {}
            self.stays.append((self.function.where.line, why))


def adopt(request: DriverRequest) -> tuple[str, list[Adopted]]:
    """(the source in the dialect, the functions with accesses) of a source in C and a layout that is fixed.

    Raises EdgebuildError if the source or the description cannot be read.
    """
    (path,) = request.sources
    if path.suffix != ".c" or has_groups(path):
        raise fail("only C that is not in the dialect yet can be adopted", file=str(path))
    read_text(path)  # raises what is wrong with a file that is not in UTF-8
    old = version(request)
    writer = _Writer(old, read_map(Path(request.layout.removeprefix("fixed:"))).blocks)
    with TemporaryDirectory() as folder:
        file = Path(folder) / path.name
        folders = (path.parent, *request.include_dirs)
        new = replace(request, sources=(file,), include_dirs=folders)
        while True:
            file.write_text(writer.text())
            wrong = _wrong(writer, new, old, path.name) if any(f.accesses for f in writer.functions) else {}
            if not wrong:
                return file.read_text(), writer.functions
            for function, why in wrong.items():
                function.plainer(why, NUMBERS if why.startswith("unknown") else 0)


def _wrong(writer: _Writer, new: DriverRequest, old: Program, name: str) -> dict[Adopted, str]:
    """Functions that need a plainer form, with the reason. Raises EdgebuildError for an error that is in none."""
    open_ = {f.function.full_name: f for f in writer.functions if f.accesses}
    try:
        program = version(new)
    except EdgebuildError as error:
        if blamed := writer.blamed(error, str(new.sources[0])):
            return blamed
        raise
    rows = compare_programs(old, program, Words(name, "the adopted source", {}), tuple(open_))
    return {open_[r.function]: f"{r.verdict}: {r.why}" for r in rows if r.verdict != "proved"}


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
        for f, (accesses, refused) in own.items():
            absent = [
                (a.place.where.line, "the description has no such register") for a in accesses if a not in registers
            ]
            stays = [*((x.where.line, why) for x, why in refused), *absent]
            if accesses or refused:
                stays = list(dict.fromkeys(stays))
                self.functions.append(Adopted(f, {a: registers[a] for a in accesses if a in registers}, stays))
        self.names: dict[str, tuple[str, str]] = {}  # of a peripheral: its group and its device
        self.fields: dict[tuple[str, RegisterInfo], dict[int, str]] = {}  # by their lowest bits; none: it is a number
        self.lines: list[tuple[int, set[Adopted]]] = []  # where each piece of the text begins, and whose it is

    def text(self) -> str:
        """The source as the levels of its functions have it."""
        forms = {f: self._forms(f) for f in self.functions}
        self.fields, users, blocks = {}, dict[tuple[str, RegisterInfo], set[Adopted]](), dict[str, Block]()
        for f, own in forms.items():
            for form in own:
                t = f.accesses[form.access]
                blocks[t.block.name] = t.block
                users.setdefault((t.block.name, t.register), set()).add(f)
                fields = self.fields.setdefault((t.block.name, t.register), {})
                fields |= {i.lsb: f"{_type(i.width)} {i.name};" for i in form.fields}
        for block in blocks.values():
            self._name(block, sum(b.group == block.group for b in blocks.values()) == 1)
        pieces = [(self._head(), [p for b in blocks.values() for p in self._group(b, users)])] if blocks else []
        for f, own in forms.items():
            try:
                if own and f.function.body:
                    pieces.append(
                        (
                            f.function.body.span,
                            [(Body(self, f.accesses, (len(own), 1, 0, 0)[f.level], own).whole(f.function.body), {f})],
                        )
                    )
            except Refused as reason:
                f.plainer(str(reason), KEPT)
                return self.text()
        return self._joined(sorted(pieces, key=lambda p: p[0]))

    def _joined(self, pieces: Sequence[tuple[ir.Span, Sequence[Piece]]]) -> str:
        out, at, self.lines = list[str](), 0, [(1, set())]
        for (start, end), parts in [*pieces, ((len(self.source),) * 2, ())]:
            for text, whose in [(self.source[at:start].decode(), set[Adopted]()), *parts]:
                out.append(text)
                self.lines[-1] = (self.lines[-1][0], whose)
                self.lines.append((self.lines[-1][0] + text.count("\n"), set()))
            at = end
        return "".join(out)

    def _forms(self, f: Adopted) -> list[Form]:
        forms = []
        for a, t in list(f.accesses.items()):
            try:
                forms.append(form_of(a, t.register, f.level < HELD, f.level < NUMBERS))
            except Refused as reason:
                f.stays += {(a.place.where.line, str(reason))} - set(f.stays)
                del f.accesses[a]
        inside = {n for form in forms if form.kind in ("change", "read") for n in form.node.all()}
        return [x for x in forms if x.kind != "number" or x.node not in inside]  # of what is changed, the read

    def _head(self) -> ir.Span:
        """The place for the groups: behind the last #include in front of all functions, and its conditions."""
        depth, at, included = 0, 0, False
        for m in DIRECTIVE.finditer(self.source, 0, self.first):
            depth += {b"if": 1, b"endif": -1}.get(m[1], 0)
            included |= m[1] == b"include"
            if included and not depth:
                at, included = m.end(), False
        return at, at

    def _group(self, block: Block, users: dict[tuple[str, RegisterInfo], set[Adopted]]) -> Iterator[Piece]:
        """The groups of a peripheral: of its registers, and of itself."""
        group, device = self.names[block.name]
        own = sorted((r for b, r in users if b == block.name), key=lambda r: r.offset)
        members, everyone = list[Piece](), set[Adopted]()
        for r in own:
            whose, fields = users[block.name, r], self.fields[block.name, r]
            everyone |= whose
            if fields:
                yield f"bfGroup {group}_{r.full_name} {{ {' '.join(fields[k] for k in sorted(fields))} }};\n", whose
            type_ = f"bfGroup {group}_{r.full_name}" if fields else _type(r.bits)
            members.append((f"    {type_} {r.full_name};\n", whose))
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
        blamed = dict[Adopted, str]()
        for d in error.diagnostics:
            here = [w for (line, w), (end, _) in pairwise(self.lines) if d.file == file and line <= d.line <= end]
            blamed = {f: d.text for whose in here for f in whose if f.accesses} | blamed
        return blamed


def _type(width: int) -> str:
    return "bit" if width == 1 else f"uint{width}"
