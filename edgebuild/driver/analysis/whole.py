"""Accesses of whole registers: `u->CTRL = (bfGroup Ctrl){ .en = 1 };` and `bfGroup Status s = u->STATUS;`.

Each is exactly one bus access of all fields of a group, is never split, and never becomes one with another. The
variable of a read holds the register's value: its fields are read from there, may be changed there, and `u->CTRL = s;`
writes it as it is.
"""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind

from edgebuild.driver.analysis.cdfg import Access, Chain, Site
from edgebuild.driver.analysis.chains import variable_name
from edgebuild.driver.analysis.keys import REFERENCES
from edgebuild.driver.analysis.record import Recorder
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect, Field, group_of

K = CursorKind
LITERALS = (K.INIT_LIST_EXPR, K.CXX_FUNCTIONAL_CAST_EXPR)  # besides C's, which C++ has as an extension


class Whole(Recorder):
    """Reads and writes of whole registers, and the variables that hold them."""

    def __init__(self, function: Cursor, unit: clang.Unit, dialect: Dialect) -> None:
        super().__init__(function, unit, dialect)
        self.loads: dict[str, Site] = {}

    def read_chain(self, c: Cursor, chain: Chain) -> None:
        if chain.local:
            self.local("get", c, chain)
        else:
            super().read_chain(c, chain)

    def group_write(self, c: Cursor, left: Cursor, right: Cursor, used: bool) -> bool:
        """An assignment of a compound literal, or of a variable that holds a register; False for any other."""
        name, pointer = group_of(c.type, self.dialect)
        value = clang.bare(right)
        held = self.loads.get(variable_name(value.referenced)) if value.kind == K.DECL_REF_EXPR else None
        literal = value.kind in (K.COMPOUND_LITERAL_EXPR, *LITERALS)
        if not name or pointer or not (held or literal):
            return False
        chain = self._group(left)
        if used:
            raise clang.error_at(c, self.unit.text, "a write of a whole register has no value")
        site = self.site("store" if held else "group", c, left)
        outer = self.path
        self.path = (*outer, ("u", 0))
        self.evaluate_chain(chain)
        chains = list(self.chains.elements(chain, left))
        values: list[Cursor | None] = [None] * len(chains)
        if held:
            site.of, site.variable = held, value.spelling
        else:
            values = self._values(value, chains)
        for i, v in enumerate(values):
            if v is not None:
                self.path = (*outer, ("u", i + 1))
                self.expression(v)
        site.inner = tuple(i for i, v in enumerate(values) if v is not None and self.chains.does(v))
        self.path = outer
        site.parts = tuple((self.access("w", x, site), v) for x, v in zip(chains, values, strict=True))
        return True

    def _group(self, c: Cursor) -> Chain:
        chain = self.chains.read(c)
        if chain is None or chain.is_field or chain.missing or chain.local:
            raise clang.error_at(c, self.unit.text, "one register of a device is expected here")
        return chain

    def _values(self, literal: Cursor, chains: list[Chain]) -> list[Cursor | None]:
        """The value of each field that the literal names."""
        values: list[Cursor | None] = [None] * len(chains)
        names = [(x.end.name, tuple(s.constant for s in x.steps if not s.member)) for x in chains if x.end]
        inside = (x for x in clang.preorder(literal) if x.kind == K.INIT_LIST_EXPR)
        initial = next(inside, None)  # `G{}` of C++ has none
        for item in clang.children(initial) if initial is not None else ():
            parts = clang.children(item)
            members = [x for x in parts if x.kind == K.MEMBER_REF]
            if len(members) != 1 or clang.bare(parts[-1]).kind == K.INIT_LIST_EXPR:
                text = "name each field: { .field = value }, and each element: { .array[1] = value }"
                raise clang.error_at(item, self.unit.text, text)
            index = tuple(clang.constant(x) for x in parts[1:-1])
            depth = len(index)
            found = [
                i
                for i, (name, at) in enumerate(names)
                if name == members[0].spelling and at[len(at) - depth :] == index
            ]
            if len(found) != 1 or values[found[0]] is not None:
                raise clang.error_at(item, self.unit.text, f"'{members[0].spelling}' is not one field that is free")
            values[found[0]] = parts[-1]
        return values

    def loaded(self, d: Cursor) -> bool:
        """A declaration `bfGroup Status s = u->STATUS;`; False for any other."""
        name, pointer = group_of(d.type, self.dialect)
        parts = [x for x in clang.children(d) if clang.is_expression(x)]
        if not name or pointer or not parts or d.storage_class.name in ("STATIC", "EXTERN"):
            return False
        value = clang.bare(parts[-1])
        if value.kind == K.CALL_EXPR and len(clang.children(value)) == 1:  # the copy constructor of C++
            value = clang.bare(clang.children(value)[0])
        if d.type.get_canonical().kind in REFERENCES or self.chains.read(value) is None:
            return False
        chain = self._group(value)
        site = self.site("load", d, value)
        site.variable = d.spelling
        self.evaluate_full(chain)
        site.parts = tuple((self.access("r", x, site), None) for x in self.chains.elements(chain, value))
        self.loads[variable_name(d)] = site
        self.chains.locals.add(variable_name(d))
        return True

    def no_register(self, c: Cursor) -> None:
        """An error where a variable that holds a register is used as a value."""
        if c.referenced is not None and variable_name(c.referenced) in self.chains.locals:
            text = f"'{c.spelling}' holds a register: use its fields, or write it back as a whole"
            raise clang.error_at(c, self.unit.text, text)

    def evaluate_full(self, chain: Chain) -> None:
        """The operands of a chain, as a full expression of its own that nothing can be put in front of."""
        self.path = ()
        number = len(self.fulls) + 1
        self.fulls[number] = None
        self.starts[number] = self.node("start", text=str(number))
        self.evaluate_chain(chain)

    def local(
        self, form: str, c: Cursor, chain: Chain, operator: str = "", right: Cursor | None = None, used: bool = True
    ) -> None:
        """A field of a variable that holds a register is read ("get") or changed ("set")."""
        assert isinstance(chain.end, Field)
        load = self.loads[chain.local]
        constants = tuple(s.constant for s in chain.steps if not s.member)
        part = next((a for a, _ in load.parts if _same(a, chain.end, constants)), None)
        if part is None or chain.missing:
            text = f"'{chain.end.name}' of a variable that holds a register: the index must be a constant"
            raise clang.error_at(c, self.unit.text, text)
        if form == "set" and used:
            raise clang.error_at(c, self.unit.text, "this assignment has no value: the register is in a variable")
        site = self.site(form, c, c, operator, right, used)
        site.of, site.read, site.variable = load, part, load.variable
        if right is not None:
            self.expression(right)


def _same(a: Access, field: Field, constants: tuple[int | None, ...]) -> bool:
    mine = a.constants
    return a.field == field.id and mine[len(mine) - len(field.dims) :] == constants
