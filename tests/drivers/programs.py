"""Random drivers, as C and as values that a reference interpreter runs access by access, in the order of the source.

Accesses have consequences: a read of a field with rse() changes its targets, a write of one with wse() too, so a wrong
order shows in the results. At every access with a side effect the interpreter notes the state of all fields; the
hardware model does the same, and both notes must agree: that is what "has landed before" means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

Expression = tuple[Any, ...]
Statement = tuple[Any, ...]
Place = tuple[str, str, Any]  # pointer, field, and [index, length] of an array
MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class F:
    name: str
    width: int
    count: int  # 0: no array
    rse: tuple[str, ...]  # names of fields; may have its own
    wse: tuple[str, ...]


@dataclass
class Device:
    """Fields of two instances. `note` has (instance, field, kind, value, state) of each access with a side effect."""

    fields: dict[str, F]
    state: dict[tuple[int, str, int], int] = field(default_factory=dict)
    notes: list[tuple[Any, ...]] = field(default_factory=list)

    def read(self, instance: int, name: str, index: int) -> int:
        f = self.fields[name]
        value = self.state.get((instance, name, index), 0)
        if f.rse:
            self.notes.append(("r", instance, name, index, value, self.snapshot()))
            self.disturb(instance, f.rse, value + 1)
        return value

    def write(self, instance: int, name: str, index: int, value: int) -> int:
        f = self.fields[name]
        value &= (1 << f.width) - 1
        if f.wse:
            self.notes.append(("w", instance, name, index, value, self.snapshot()))
        self.state[(instance, name, index)] = value
        if f.wse:
            self.disturb(instance, f.wse, value + 3)
        return value

    def disturb(self, instance: int, targets: tuple[str, ...], by: int) -> None:
        for target in targets:
            for index in range(max(1, self.fields[target].count)):
                key = (instance, target, index)
                self.state[key] = (self.state.get(key, 0) * 5 + by) & ((1 << self.fields[target].width) - 1)

    def snapshot(self) -> tuple[Any, ...]:
        return tuple(sorted((k, v) for k, v in self.state.items() if v))


@dataclass(frozen=True)
class Program:
    number: int
    fields: tuple[F, ...]
    body: tuple[Statement, ...]
    helpers: tuple[tuple[Statement, ...], ...] = ()  # static functions; each calls only those before it

    def c(self) -> str:
        n = self.number
        lines = [f"bfGroup G{n} {{"]
        for f in self.fields:
            effects = (f"rse({', '.join(f.rse)}) " if f.rse else "") + (f"wse({', '.join(f.wse)}) " if f.wse else "")
            lines.append(f"    uint{f.width} {effects}{f.name}{f'[{f.count}]' if f.count else ''};")
        lines += [
            "};",
            f"bfGroup D{n} {{ bfGroup G{n} pads[2]; }};",
            f"make_device(D{n}, d{n}, {address(n):#x});",
            f"static atomic_uint a{n};",
        ]
        for k, body in enumerate(self.helpers):
            lines += self._function(f"static unsigned h{n}_{k}", body)
        lines += [f"void reset{n}(void) {{ atomic_store(&a{n}, 0u); }}", *self._function(f"unsigned t{n}", self.body)]
        return "\n".join([*lines, ""])

    def cpp(self) -> str:
        """The same as C++: the pointers are members of an object, and the helpers are its methods."""
        n = self.number
        head, _, _ = self.c().partition(f"static unsigned h{n}_" if self.helpers else f"void reset{n}")
        group, state = f"bfGroup G{n}", f"static atomic_uint a{n};"
        declarations = head.replace(state, "")
        lines = [f"namespace n{n} {{", declarations, f"class Driver{n} {{", "public:"]
        lines += [f"    Driver{n}({group} *first, {group} &second) : p(first), q(&second) {{}}"]
        lines += ["    unsigned run(unsigned x, unsigned y);", "private:", f"    {group} *p;", f"    {group} *q;"]
        for k, body in enumerate(self.helpers):
            lines += self._function(f"static unsigned h{n}_{k}", body)
        lines += ["};"]
        text = "\n".join(_statements(self.body, 1)).replace("@", str(n))
        lines += [f"unsigned Driver{n}::run(unsigned x, unsigned y)", "{", "    unsigned z = 0;", text]
        lines += ["    return x * 31 + y * 7 + z;", "}", "}", f"using n{n}::G{n};", 'extern "C" {']
        lines += [f"void reset{n}(void) {{ atomic_store(&a{n}, 0u); }}"]
        lines += [f"unsigned t{n}({group} *p, {group} *q, unsigned x, unsigned y)"]
        lines += [f"{{ n{n}::Driver{n} driver(p, *q); return driver.run(x, y); }}", "}"]
        return "\n".join([f"static unsigned a{n};", *lines, ""]).replace("{ void *s = p;", "{ auto s = p;")

    def _function(self, head: str, body: tuple[Statement, ...]) -> list[str]:
        group = f"bfGroup G{self.number}"
        lines = [f"{head}({group} *p, {group} *q, unsigned x, unsigned y)", "{", "    unsigned z = 0;"]
        text = "\n".join(_statements(body, 1)).replace("@", str(self.number))
        return [*lines, text, "    return x * 31 + y * 7 + z;", "}"]

    def run(self, device: Device, p: int, q: int, x: int, y: int, offsets: dict[str, int]) -> int:
        """`offsets`: of the fields' registers, as the layout has them."""
        return _called(self, self.body, device, p, q, x, y, offsets, [0])


def _called(
    program: Program,
    body: tuple[Statement, ...],
    device: Device,
    p: int,
    q: int,
    x: int,
    y: int,
    offsets: dict[str, int],
    counter: list[int],
) -> int:
    interpreter = Interpreter(device, {"p": p, "q": q}, {"x": x, "y": y, "z": 0}, program, offsets, counter)
    try:
        interpreter.block(body)
    except Return as done:
        return done.value
    v = interpreter.variables
    return (v["x"] * 31 + v["y"] * 7 + v["z"]) & MASK


def address(number: int) -> int:
    return 0x4000_0000 + 0x1000 * number


class Return(Exception):
    def __init__(self, value: int) -> None:
        self.value = value


@dataclass
class Interpreter:
    device: Device
    pointers: dict[str, int]
    variables: dict[str, int]
    program: Program
    offsets: dict[str, int]
    counter: list[int]  # the atomic variable of the program

    def block(self, body: tuple[Statement, ...]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Statement) -> None:
        match s:
            case ("set", name, e):
                self.variables[name] = self.value(e)
            case ("expr", e):
                self.value(e)
            case ("op", place, op, e):
                old = self.read(place)
                self.write(place, binary(op, old, self.value(e)))
            case ("if", e, then, other):
                self.block(then if self.value(e) else other)
            case ("for", n, body):
                for i in range(n):
                    self.variables["i"] = i
                    self.block(body)
            case ("poll", n, e):
                for _ in range(n):
                    if self.value(e):
                        break
            case ("switch", e, bodies):
                for body in bodies[min(self.value(e) & 3, 2) :]:  # cases fall through
                    self.block(body)
            case ("return", e):
                raise Return(self.value(e))
            case ("swap",):
                self.pointers["p"], self.pointers["q"] = self.pointers["q"], self.pointers["p"]
            case _:
                raise AssertionError(s)

    def value(self, e: Expression) -> int:
        match e:
            case ("const", n):
                return int(n)
            case ("var", name):
                return self.variables[name]
            case ("read", place):
                return self.read(place)
            case ("assign", place, inner):
                return self.write(place, self.value(inner))
            case ("post", place, op):
                old = self.read(place)
                self.write(place, old + (1 if op == "++" else -1))
                return old
            case ("and", a, b):
                return int(bool(self.value(a)) and bool(self.value(b)))
            case ("or", a, b):
                return int(bool(self.value(a)) or bool(self.value(b)))
            case ("cond", c, a, b):
                return self.value(a) if self.value(c) else self.value(b)
            case ("comma", a, b):
                self.value(a)
                return self.value(b)
            case ("call", k, first, second, a):
                x = self.value(a)
                p, q = self.pointers[first], self.pointers[second]
                args = (self.device, p, q, x, 1, self.offsets, self.counter)
                return _called(self.program, self.program.helpers[k], *args)
            case ("atomic", op, inner):
                value, old = self.value(inner), self.counter[0]
                self.counter[0] = binary("+", old, value) if op == "fetch_add" else value
                return old
            case ("offset", name):
                return self.offsets[name]
            case ("bin", op, a, b):
                left = self.value(a)
                return binary(op, left, self.value(b))
        raise AssertionError(e)

    def at(self, place: Place) -> tuple[int, str, int]:
        pointer, name, index = place
        count = self.device.fields[name].count
        return self.pointers[pointer], name, self.value(index[0]) & (count - 1) if index else 0

    def read(self, place: Place) -> int:
        return self.device.read(*self.at(place))

    def write(self, place: Place, value: int) -> int:
        return self.device.write(*self.at(place), value)


def binary(op: str, a: int, b: int) -> int:
    results = {
        "+": a + b,
        "-": a - b,
        "*": a * b,
        "&": a & b,
        "|": a | b,
        "^": a ^ b,
        "<": int(a < b),
        "==": int(a == b),
    }
    return results[op] & MASK


# ---- as C


def _expression(e: Expression) -> str:
    match e:
        case ("const", n):
            return f"{n}u"
        case ("var", name):
            return str(name)
        case ("read", place):
            return f"(unsigned){_place(place)}"
        case ("assign", place, inner):
            return f"(unsigned)({_place(place)} = {_expression(inner)})"
        case ("post", place, op):
            return f"(unsigned)({_place(place)}{op})"
        case ("and", a, b):
            return f"(unsigned)({_expression(a)} && {_expression(b)})"
        case ("or", a, b):
            return f"(unsigned)({_expression(a)} || {_expression(b)})"
        case ("cond", c, a, b):
            return f"({_expression(c)} ? {_expression(a)} : {_expression(b)})"
        case ("comma", a, b):
            return f"((void)({_expression(a)}), {_expression(b)})"
        case ("call", k, first, second, a):
            return f"h@_{k}({first}, {second}, {_expression(a)}, 1u)"
        case ("atomic", op, inner):
            return f"atomic_{op}(&a@, {_expression(inner)})"
        case ("offset", name):
            return f"(unsigned)offsetof(bfGroup G@, {name})"
        case ("bin", op, a, b):
            return f"(unsigned)({_expression(a)} {op} {_expression(b)})"
    raise AssertionError(e)


def _place(place: Place) -> str:
    pointer, name, index = place
    return f"{pointer}->{name}" + (f"[{_expression(index[0])} & {index[1] - 1}u]" if isinstance(index, list) else "")


def _statements(body: tuple[Statement, ...], depth: int) -> list[str]:
    pad, lines = "    " * depth, []
    for s in body:
        match s:
            case ("set", name, e):
                lines.append(f"{pad}{name} = {_expression(e)};")
            case ("expr", e):
                lines.append(f"{pad}{_expression(e)};")
            case ("op", place, op, e):
                lines.append(f"{pad}{_place(place)} {op}= {_expression(e)};")
            case ("if", e, then, other):
                lines += [
                    f"{pad}if ({_expression(e)}) {{",
                    *_statements(then, depth + 1),
                    f"{pad}}} else {{",
                    *_statements(other, depth + 1),
                    f"{pad}}}",
                ]
            case ("for", n, inner):
                lines += [f"{pad}for (unsigned i = 0; i < {n}u; i++) {{", *_statements(inner, depth + 1), f"{pad}}}"]
            case ("poll", n, e):
                lines.append(f"{pad}for (unsigned k = 0; k < {n}u && !({_expression(e)}); k++) ;")
            case ("switch", e, bodies):
                lines.append(f"{pad}switch ({_expression(e)} & 3u) {{")
                for label, inner in zip(("case 0", "case 1", "default"), bodies, strict=True):
                    lines += [f"{pad}{label}:", *_statements(inner, depth + 1), f"{pad}    ;"]
                lines.append(f"{pad}}}")
            case ("return", e):
                lines.append(f"{pad}return {_expression(e)};")
            case ("swap",):
                lines.append(f"{pad}{{ void *s = p; p = q; q = s; }}")
    return lines


# ---- at random


def is_constant(e: Expression) -> bool:
    return e[0] == "const" or (e[0] == "bin" and is_constant(e[2]) and is_constant(e[3]))


class Generator:
    def __init__(self, random: Random) -> None:
        self.random = random

    def program(self, number: int) -> Program:
        self.fields = self._fields()
        self.plain = [f for f in self.fields if not f.rse and not f.wse]
        self.helpers = 0
        helpers = []
        for _ in range(self.random.choice([0, 1, 2, 3])):
            helpers.append(self.block(self.random.randint(1, 4), 1))
            self.helpers += 1
        return Program(number, self.fields, self.block(self.random.randint(5, 15), 0), tuple(helpers))

    def _fields(self) -> tuple[F, ...]:
        r = self.random
        names = [f"f{i}" for i in range(r.randint(3, 6))]
        fields = []
        for name in names:
            targets = tuple(r.sample(names, r.randint(1, 2)))
            kind = r.choice(["plain"] * 5 + ["rse", "wse", "both"])
            fields.append(
                F(
                    name,
                    r.choice([1, 2, 3, 5, 8, 8, 12, 16, 32]),
                    r.choice([0, 0, 0, 4]),
                    targets if kind in ("rse", "both") else (),
                    targets if kind in ("wse", "both") else (),
                )
            )
        return tuple(fields)

    def place(self, fields: Any) -> Place:
        f = self.random.choice(list(fields))
        index = None
        if f.count:
            inner = self.random.choice([("const", self.random.randrange(4)), ("var", "x"), ("var", "y")])
            index = [inner, f.count]
        return self.random.choice(["p", "p", "p", "q"]), f.name, index

    def assign(self, place: Place, value: Expression, *operator: str) -> Expression:
        """An assignment of a value, or of the part of a constant that the field has room for."""
        width = next(f.width for f in self.fields if f.name == place[1])
        if is_constant(value):
            value = ("bin", "&", value, ("const", (1 << width) - 1))
        return ("assign", place, *operator, value)

    def simple(self, depth: int = 0) -> Expression:
        """Plain reads only: C leaves the order of operands open."""
        r = self.random
        kind = r.random()
        if depth < 2 and kind < 0.4:
            return (
                "bin",
                r.choice("+-*&|^<") if r.random() < 0.9 else "==",
                self.simple(depth + 1),
                self.simple(depth + 1),
            )
        if self.plain and kind < 0.8:
            return ("read", self.place(self.plain))
        return r.choice([("const", r.randrange(20)), ("var", "x"), ("var", "y")])

    def one(self) -> Expression:
        """At most one access, of any kind."""
        r = self.random
        leaf: Expression = r.choice([("var", "x"), ("const", r.randrange(300))])
        kind = r.random()
        if self.helpers and kind < 0.15:
            return ("call", r.randrange(self.helpers), r.choice("pq"), r.choice("pq"), leaf)
        if kind < 0.2:
            inner = self.simple() if r.random() < 0.7 else leaf
            return ("atomic", r.choice(["fetch_add", "exchange"]), inner)
        if kind < 0.24:
            return ("offset", r.choice(self.fields).name)
        if kind < 0.5:
            return ("bin", r.choice("+-^"), ("read", self.place(self.fields)), leaf)
        if kind < 0.7:
            return self.assign(self.place(self.fields), leaf)
        if kind < 0.8:
            return ("post", self.place(self.fields), r.choice(["++", "--"]))
        return leaf

    def expression(self, depth: int = 0) -> Expression:
        r = self.random
        kind = r.random()
        if kind < 0.4 or depth > 1:
            return self.simple()
        if kind < 0.7:
            return self.one()
        a, b = self.expression(depth + 1), self.expression(depth + 1)
        return r.choice([("and", a, b), ("or", a, b), ("comma", a, b), ("cond", self.one(), a, b)])

    def block(self, n: int, depth: int) -> tuple[Statement, ...]:
        return tuple(self.statement(depth) for _ in range(n))

    def statement(self, depth: int) -> Statement:
        r = self.random
        kind = r.random()
        if kind < 0.4 or depth > 2:
            place = self.place(self.plain or self.fields if r.random() < 0.7 else self.fields)
            return ("expr", self.assign(place, self.simple()))
        if self.helpers and kind < 0.48:
            return ("expr", ("call", r.randrange(self.helpers), r.choice("pq"), r.choice("pq"), ("var", "x")))
        if kind < 0.55:
            return ("set", r.choice("xyz"), self.expression())
        if kind < 0.65:
            place, operator = self.place(self.fields), r.choice("+-&|^")
            return ("op", *self.assign(place, r.choice([("const", r.randrange(9)), ("var", "y")]), operator)[1:])
        if kind < 0.7:
            return ("expr", self.one())
        inner = r.randint(1, 3)
        if kind < 0.82:
            return ("if", self.expression(), self.block(inner, depth + 1), self.block(r.randint(0, 2), depth + 1))
        if kind < 0.87:
            return ("for", r.randint(1, 3), self.block(inner, depth + 1))
        if kind < 0.91:
            return ("poll", r.randint(1, 4), ("read", self.place(self.fields)))
        if kind < 0.95:
            return ("switch", self.simple(), tuple(self.block(r.randint(0, 2), depth + 1) for _ in range(3)))
        return ("return", self.simple()) if r.random() < 0.3 else ("swap",)
