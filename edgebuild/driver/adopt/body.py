"""The text of a function's body with its accesses in the dialect."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from edgebuild.driver.adopt.addresses import Access, Refused, Target
from edgebuild.driver.adopt.forms import Form
from edgebuild.driver.registers.regmap import RegisterInfo
from edgebuild.driver.source import ir
from edgebuild.driver.source.sources import in_macro

BLOCK = "\0"  # the end of a block in place of a statement: it takes the semicolon
COMMENT = re.compile(r"/\*(.*?)\*/|//([^\n]*)", re.S)


class Writer(Protocol):
    """The text around, and the names in it."""

    source: bytes
    words: set[str]
    names: dict[str, tuple[str, str]]
    fields: dict[tuple[str, RegisterInfo], dict[int, str]]


class Body:
    """`alone`: a register with more accesses is changed in a variable that holds it, so that each change stays one."""

    def __init__(self, writer: Writer, targets: Mapping[Access, Target], alone: int, forms: Sequence[Form]) -> None:
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
        if not printed and x not in self.around:
            return x.source.decode()
        if isinstance(x, ir.Converted):
            return self.text(x.inside, printed)
        if isinstance(x, ir.Evaluation):
            return self.text(x.value, printed)
        parts = sorted(_flat(x), key=lambda p: p.span)
        if printed or all(_begins(p, x) for p in parts):
            return self._printed(x)
        out, at = list[str](), x.span[0]
        for p in parts:
            if p.span[0] < at:
                raise Refused("it comes out of a macro with several parts")
            out += [self.writer.source[at : p.span[0]].decode(), self.text(p)]
            at = p.span[1]
        return "".join([*out, self.writer.source[at : x.span[1]].decode()])

    def _printed(self, x: ir.Node) -> str:
        """An expression out of a macro, without the macro."""

        def text(p: ir.Node) -> str:
            return self.text(p, True)

        match x:
            case ir.Number():
                return f"{x.constant}{'' if x.type.signed else 'U'}"
            case ir.Name():
                return x.name
            case ir.Parenthesised():
                return f"({text(x.inside)})"
            case ir.Cast():
                return f"({x.type.name}){text(x.inside)}"
            case ir.Unary():
                return f"{x.operator}{text(x.operand)}"
            case ir.Binary() | ir.Logical():
                return f"{text(x.left)} {x.operator} {text(x.right)}"
            case ir.Assignment():
                return f"{text(x.left)} {x.operator}= {text(x.right)}"
            case ir.MemberOf() if x.base is not None and x.member is not None:
                return f"{text(x.base)}{'->' if x.base.type.kind == 'pointer' else '.'}{x.member.name}"
            case ir.Subscript():
                return f"{text(x.base)}[{text(x.index)}]"
            case ir.Choice() if x.yes is not None:
                return f"{text(x.condition)} ? {text(x.yes)} : {text(x.no)}"
            case ir.Call() if x.callee is not None:
                return f"{text(x.callee)}({', '.join(map(text, x.arguments))})"
        raise Refused("it comes out of a macro that is no expression")

    def _form(self, x: ir.Node, form: Form, printed: bool) -> str:
        """An access, with what is done around it."""
        t, base = self.targets[form.access], form.access.address.base
        group, where = self.writer.names[t.block.name]
        if base is not None:
            where = f"{group.upper()}_AT({self.text(base, printed or _begins(base, form.access.place))})"
        place, group = f"{where}->{t.register.full_name}", f"bfGroup {group}_{t.register.full_name}"
        number = f"bf_raw({place})" if self.writer.fields[t.block.name, t.register] else place
        values = [self._value(v, x, printed, form.kind == "modify") for _, _, v in form.changes]
        changes = [
            f"{f.name if f else ''} {operator} {v}" for (f, operator, _), v in zip(form.changes, values, strict=True)
        ]
        if form.kind == "number":
            return number
        if form.kind == "discard":
            return f"(void){place}"
        if form.kind == "read":
            return f"{place}.{next(form.fields).name}{form.compared}"
        if form.kind == "modify":
            return f"{number} = {number}{changes[0]}"
        if form.kind == "literal":
            return f"{place} = ({group}){{ .{', .'.join(changes)} }}"
        if self.times[t] <= self.alone:
            return self._lines(form, [f"{place}.{c}" for c in changes])
        variable = "held" + "_" * ("held" in self.writer.words)
        return self._lines(
            form, [f"{group} {variable} = {place}", *(f"{variable}.{c}" for c in changes), f"{place} = {variable}"]
        )

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
        start = self.writer.source.rfind(b"\n", 0, form.node.span[0]) + 1
        indent = re.match(r"[ \t]*", self.writer.source[start:].decode("utf-8", "replace"))[0]  # type: ignore[index]
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
