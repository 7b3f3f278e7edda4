"""Faults of one token in a text: where each can be planted, and what stands there then.

Places are offsets in bytes, as in Python's syntax tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Fault:
    """`now` in place of `was`, from byte `start` of the text. `kind`: the manner of fault, for drawing evenly."""

    kind: str
    start: int
    was: bytes
    now: bytes

    def planted(self, text: bytes) -> bytes:
        return text[: self.start] + self.now + text[self.start + len(self.was) :]

    def line(self, text: bytes) -> int:
        return text.count(b"\n", 0, self.start) + 1


# Python --------------------------------------------------------------------------------------

OPERATORS: dict[type[ast.AST], tuple[str, str, str]] = {
    ast.Add: ("arithmetic", "+", "-"),
    ast.Sub: ("arithmetic", "-", "+"),
    ast.Mult: ("arithmetic", "*", "+"),
    ast.FloorDiv: ("arithmetic", "//", "*"),
    ast.Div: ("arithmetic", "/", "*"),
    ast.Mod: ("arithmetic", "%", "//"),
    ast.LShift: ("shift", "<<", ">>"),
    ast.RShift: ("shift", ">>", "<<"),
    ast.BitAnd: ("logic", "&", "|"),
    ast.BitOr: ("logic", "|", "&"),
    ast.And: ("logic", "and", "or"),
    ast.Or: ("logic", "or", "and"),
    ast.Lt: ("comparison", "<", "<="),
    ast.LtE: ("comparison", "<=", "<"),
    ast.Gt: ("comparison", ">", ">="),
    ast.GtE: ("comparison", ">=", ">"),
    ast.Eq: ("comparison", "==", "!="),
    ast.NotEq: ("comparison", "!=", "=="),
    ast.In: ("comparison", "in", "not in"),
    ast.NotIn: ("comparison", "not in", "in"),
    ast.Is: ("comparison", "is", "is not"),
    ast.IsNot: ("comparison", "is not", "is"),
}
NOT_COMMUTATIVE = (ast.Sub, ast.FloorDiv, ast.Div, ast.Mod, ast.LShift, ast.RShift)
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor"}
BOUNDING = ("min", "max", "minimum", "maximum", "clip")  # of two arguments or more: without it the first one remains
ASSERTIONS = ("strict",)  # keywords that only refuse what never is
C_IN_PYTHON = re.compile(
    rb"\{\{?eb_|_t\)|\{[0-2a-z_.]+\} ?[-+*/<>&|?%]|[-+*/<>&|?%] ?\{[0-2a-z_.]+\}|\) [-+*/<>&] \w|;"
)


class PythonFaults(ast.NodeVisitor):
    """Collects the faults of a module. Annotations and documentation change nothing, so they have none."""

    def __init__(self, text: bytes, with_c: bool) -> None:
        self.text, self.with_c, self.faults = text, with_c, list[Fault]()
        self.lines = [0, *(m.end() for m in re.finditer(rb"\n", text))]
        self.bare = re.sub(rb"#[^\n]*", lambda m: b" " * len(m[0]), text)  # between two operands: no comments
        self.visit(ast.parse(text))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self.lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.lines[node.end_lineno - 1] + node.end_col_offset

    def source(self, node: ast.expr | ast.stmt) -> bytes:
        return self.text[self.start(node) : self.end(node)]

    def add(self, kind: str, start: int, was: bytes, now: bytes) -> None:
        assert self.text[start : start + len(was)] == was, (was, self.text[start : start + len(was)])
        self.faults.append(Fault(kind, start, was, now))

    def between(self, operator: ast.AST, left: ast.expr, right: ast.expr) -> None:
        """The operator, which stands between these."""
        if type(operator) not in OPERATORS:
            return
        kind, was, now = OPERATORS[type(operator)]
        words = r"\s+".join(map(re.escape, was.split()))
        match = re.compile(words.encode()).search(self.bare, self.end(left), self.start(right))
        if match:
            self.add(kind, match.start(), match[0], now.encode())

    def swapped(self, first: ast.expr, second: ast.expr) -> None:
        a, b = self.source(first), self.source(second)
        if a != b:
            middle = self.text[self.end(first) : self.start(second)]
            self.add("swapped operands", self.start(first), a + middle + b, b + middle + a)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.add("deleted statement", self.start(node), self.source(node), b"pass")
        if not isinstance(node.value, ast.Constant):  # documentation
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.add("deleted statement", self.start(node), self.source(node), b"pass")
        self.between(node.op, node.target, node.value)
        self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """The statement itself: its message is words."""
        self.add("deleted statement", self.start(node), self.source(node), b"pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self.add("deleted statement", self.start(node), b"continue", b"pass")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        words = any(
            isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str | bytes))
            for n in (node.left, node.right)
        )
        if not words:
            self.between(node.op, node.left, node.right)
            if isinstance(node.op, NOT_COMMUTATIVE):
                self.swapped(node.left, node.right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in pairwise(node.values):
            self.between(node.op, left, right)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for operator, left, right in zip(node.ops, [node.left, *node.comparators], node.comparators, strict=False):
            self.between(operator, left, right)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            start = self.start(node)
            self.add("dropped not", start, self.text[start : self.start(node.operand)].rstrip(b"("), b"")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        a, b = self.source(node.body), self.source(node.orelse)
        middle = self.text[self.end(node.body) : self.start(node.orelse)]
        if a != b:
            self.add("swapped operands", self.start(node.body), a + middle + b, b + middle + a)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in EXTREMES:
            self.add("min and max", self.end(node.func) - len(name), name.encode(), EXTREMES[name].encode())
        if name in BOUNDING and len(node.args) > 1 and not isinstance(node.args[0], ast.Starred):
            self.add("dropped clamp", self.start(node), self.source(node), b"(" + self.source(node.args[0]) + b")")
        parts = [*node.args, *(k.value for k in node.keywords)]
        if (
            node.keywords
            and node.keywords[-1].arg not in ASSERTIONS
            and node.keywords[-1].arg is not None
            and len(parts) > 1
        ):
            last, before = node.keywords[-1].value, parts[-2]
            self.add("dropped argument", self.end(before), self.text[self.end(before) : self.end(last)], b"")
        if len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
            self.swapped(*node.args[:2])
        for part in (node.func, *node.args, *(k.value for k in node.keywords if k.arg not in ASSERTIONS)):
            self.visit(part)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self.c_of(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        source, start = self.source(node), self.start(node)
        if isinstance(node.value, bool):
            self.add("constant", start, source, str(not node.value).encode())
        elif isinstance(node.value, int):
            self.add("constant", start, source, str(node.value + 1).encode())
            if node.value:
                self.add("constant", start, source, str(node.value - 1).encode())
        elif isinstance(node.value, float):
            self.add("constant", start, source, f"{node.value + 1!r}".encode())
        elif isinstance(node.value, str):
            self.c_of(node)

    def c_of(self, node: ast.expr) -> None:
        source, start = self.source(node), self.start(node)
        if self.with_c and C_IN_PYTHON.search(source):
            self.faults += (Fault(f.kind, start + f.start, f.was, f.now) for f in c_faults(source))


def python_faults(text: bytes, with_c: bool) -> list[Fault]:
    """Of a module; `with_c`: also in its strings that are C. A fault with which it cannot be read is none."""
    return PythonFaults(text, with_c).faults


# C and templates of C ------------------------------------------------------------------------

TWINS = "add sub|adds subs|lsl lsr|lsls lsrs|asr lsr|asrs lsrs|ldrsb ldrb|ldrsh ldrh|lb lbu|lh lhu|srai srli|sra srl|"
TWINS += "smlabb smlatt|smlabt smlatb|smlad smladx|smlald smlaldx|smmlar smmla|smmulr smmul|sxtb16 uxtb16|pkhbt pkhtb|"
TWINS += "bgt bge|ble blt|bne beq|bls blo|bhi bhs|mul mulh|vmax vmin|vadd vsub|vqrdmulh vqdmulh|vrshl vshl|vmla vmul|"
TWINS += "sxtb uxtb|sxth uxth|ssub8 usub8|addi sub|smulbb smultt|smulbt smultb|qadd add|mla mls"
INSTRUCTIONS = {a: b for pair in TWINS.split("|") for a, b in (pair.split(), pair.split()[::-1])}
STATEMENT = re.compile(
    rb"^[ \t]+(?!(?:static|const|return|for|if|while|do|goto|typedef|extern|break|else|struct|enum|case|u?int\d+_t"
    rb"|float|char|int|size_t|double|register|volatile|default)\b)[\w*({][^\n;%#]*[=(+-][^\n;]*;(?=[ \t]*$)",
    re.MULTILINE,
)
DECLARED = re.compile(rb"^[ \t]*(?:static |const |volatile )*(?:u?int\d+_t|float|char|int)\b[^=\n;]*;", re.MULTILINE)
COMMENTS = re.compile(
    rb"/\*.*?\*/|\{#.*?#\}|(?<![:\"'])//[^\n]*|^[ \t]*#[ \t]*include[^\n]*|^%%[^\n]*", re.DOTALL | re.MULTILINE
)
MACROS = re.compile(rb"\{% *macro.*?%\}", re.DOTALL)
JINJA = re.compile(rb"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
Replaced = Callable[[re.Match[bytes]], bytes]


def fixed(now: bytes) -> Replaced:
    return lambda match: now


def moved(by: int) -> Replaced:
    """The integer, one further; of a number with a fraction its whole part."""
    return lambda match: str(max(int(match[0]) + by, 0)).encode()


def _turned(match: re.Match[bytes]) -> bytes:
    whole, (a, b), (c, d) = match[0], match.span(1), match.span(2)
    first, last = match.start(), match.end()
    parts = whole[: a - first], match[2], whole[b - first : c - first], match[1], whole[d - first : last - first]
    return b"".join(parts)


PLAIN = {
    "arithmetic": {b" + ": b" - ", b" - ": b" + ", b" * ": b" + ", b" / ": b" * ", b" += ": b" -= ", b" -= ": b" += "},
    "comparison": {
        b" < ": b" <= ", b" <= ": b" < ", b" > ": b" >= ", b" >= ": b" > ", b" == ": b" != ", b" != ": b" == ",
    },
    "logic": {b" && ": b" || ", b" || ": b" && ", b" & ": b" | ", b" ^ ": b" | "},
    "shift": {b" << ": b" >> ", b" >> ": b" << ", b" >>= ": b" <<= "},
}  # fmt: skip
IN_JINJA = {"logic": {b" and ": b" or ", b" or ": b" and "}, "dropped not": {b" not ": b" "}}
PATTERNS: list[tuple[str, re.Pattern[bytes], Replaced]] = [
    ("constant", re.compile(rb"(?<![\w.\"'\\])\d+(?![\w:'%])(?!\"\s*%)"), moved(1)),
    ("constant", re.compile(rb"(?<![\w.\"'\\])[1-9]\d*(?![\w:'%])(?!\"\s*%)"), moved(-1)),
    ("min and max", re.compile(rb"(?<=eb_)minimum\b|(?<=\| )min\b"), lambda m: {b"min": b"max"}.get(m[0], b"maximum")),
    ("min and max", re.compile(rb"(?<=eb_)maximum\b|(?<=\| )max\b"), lambda m: {b"max": b"min"}.get(m[0], b"minimum")),
    ("type", re.compile(rb"(?<=\()int(?=(?:8|16|32|64)_t\))"), fixed(b"uint")),
    ("type", re.compile(rb"(?<=\()uint(?=(?:8|16|32|64)_t\))"), fixed(b"int")),
    ("swapped operands", re.compile(rb"\b(\w+) [-/] (\w+)\b"), _turned),
    ("swapped operands", re.compile(rb"\? ([\w.]+) : ([\w.]+)(?![\w(.\[])"), _turned),
    ("swapped operands", re.compile(rb"(?<=[\w}]\()(\w+), (\w+)(?=[,)])"), _turned),
    ("index", re.compile(rb"(?<=\w\[)(\w+)(?=\])"), lambda m: m[0] + b" + 1"),
    ("dropped not", re.compile(rb"!(?=[\w({])"), fixed(b"")),
    ("deleted statement", STATEMENT, fixed(b"")),
    ("deleted statement", re.compile(rb"^[ \t]+\"[a-z][^\n]*\\n\\t\"(?=[^\n\"]*$)", re.MULTILINE), fixed(b'""')),
    ("instruction", re.compile(rb"(?<=\")\s*[a-z]\w*(?=[ .])"), lambda m: INSTRUCTIONS.get(m[0].decode(), "").encode()),
    ("instruction", re.compile(rb"^ +[a-z]\w*(?= )", re.MULTILINE), lambda m: b""),
]


def c_faults(text: bytes) -> list[Fault]:
    """Of C, of assembly, and of templates that print them."""
    bare = text
    for idle in (COMMENTS, MACROS):
        bare = idle.sub(lambda m: re.sub(rb"[^\n]", b" ", m[0]), bare)
    jinja = [m.span() for m in JINJA.finditer(bare)]
    faults = [*_plain(bare, jinja), *_patterns(bare, jinja), *_clamps(bare)]
    return [f for f in faults if f.now != f.was]


def _inside(spans: list[tuple[int, int]], place: int) -> bool:
    return any(a <= place < b for a, b in spans)


def _plain(text: bytes, jinja: list[tuple[int, int]]) -> Iterator[Fault]:
    for table, only in ((PLAIN, False), (IN_JINJA, True)):
        for kind, pairs in table.items():
            for was, now in pairs.items():
                for match in re.finditer(b"(?<! )" + re.escape(was), text):
                    if not only or _inside(jinja, match.start()):
                        yield Fault(kind, match.start(), was, now)


def _patterns(text: bytes, jinja: list[tuple[int, int]]) -> Iterator[Fault]:
    declared = [m.span() for m in DECLARED.finditer(text)]  # sizes of arrays: a larger one is as good
    for kind, pattern, replaced in PATTERNS:
        for match in pattern.finditer(text):
            now = replaced(match)
            idle = kind in ("instruction", "swapped operands") and not now
            if kind in ("constant", "index") and _inside(declared, match.start()):
                continue
            if not idle and not (kind in ("index", "deleted statement") and _inside(jinja, match.start())):
                yield Fault(kind, match.start(), match[0], now)


def _clamps(text: bytes) -> Iterator[Fault]:
    """A value in place of its clamp."""
    for match in re.finditer(rb"(?:\{\{? ?(?:use\.)?)?\beb_(?:clamp|saturate)\w*(?: ?\}\}?)?\(", text):
        end = _argument(text, match.end())
        close = _closing(text, match.end())
        if end < close:
            yield Fault("dropped clamp", match.start(), text[match.start() : close + 1],
                        b"(" + text[match.end() : end] + b")")  # fmt: skip


def _argument(text: bytes, start: int) -> int:
    """Where the first argument ends."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in b"([{") - (text[place] in b")]}")
        if depth < 0 or (depth == 0 and text[place] in b","):
            return place
    return len(text)


def _closing(text: bytes, start: int) -> int:
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] in b"(") - (text[place] in b")")
        if depth == 0:
            return place
    return -1
