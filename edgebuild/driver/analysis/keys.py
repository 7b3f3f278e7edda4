"""Keys: when two addresses are the same, and what a driver must not do with a group."""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind, TypeKind

from edgebuild.driver.analysis.cdfg import MEMORY, Chain, Offset
from edgebuild.driver.analysis.chains import Chains, variable_name
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect, Field, group_of

K = CursorKind
CASTS = (K.CSTYLE_CAST_EXPR, K.CXX_STATIC_CAST_EXPR, K.CXX_FUNCTIONAL_CAST_EXPR, K.CXX_REINTERPRET_CAST_EXPR)
REFERENCES = (TypeKind.LVALUEREFERENCE, TypeKind.RVALUEREFERENCE)


class Keys:
    """Names addresses. Two accesses of one key go to one place as long as the key's variables keep their values."""

    def __init__(self, dialect: Dialect, chains: Chains, function: Cursor) -> None:
        self.dialect, self.chains, self.function = dialect, chains, function

    def key(self, chain: Chain) -> tuple[tuple[str | None, ...], frozenset[str]]:
        """The names of the root and of each step, and the local variables that they hold for."""
        variables: set[str] = set()
        parts = [f"device:{chain.device}" if chain.device else self._pure(chain.root, variables)]
        for step in chain.steps:
            if step.member:
                parts.append("." + step.member)
            elif step.constant is not None:
                parts.append(f"[{step.constant}]")
            else:
                assert step.index is not None
                index = self._pure(step.index, variables)
                parts.append(None if index is None else f"[{index}]")
        return tuple(parts), frozenset(variables)

    def _pure(self, c: Cursor, variables: set[str]) -> str | None:
        """A text that names the expression's value as long as `variables` keep theirs; None if there is none."""
        c = clang.bare(c)
        value = clang.constant(c)
        if value is not None:
            return f"({value})"
        if c.kind == K.DECL_REF_EXPR and c.referenced is not None:
            d = c.referenced
            local = is_local(d, self.function)
            if d.spelling in self.dialect.devices and not local:
                return f"(device:{d.spelling})"
            if d.kind not in (K.PARM_DECL, K.VAR_DECL) or not self._steady(c, d):
                return None
            variables |= {variable_name(d)} if local else {variable_name(d), MEMORY}
            return f"({variable_name(d)})"
        if c.kind == K.CXX_THIS_EXPR:
            return "(this)"
        if c.kind == K.MEMBER_REF_EXPR:
            return self._member(c, variables)
        if c.kind == K.ARRAY_SUBSCRIPT_EXPR or (c.kind == K.UNARY_OPERATOR and clang.unary(c) in "&*"):
            return self._pure_address(c, variables)
        if c.kind == K.BINARY_OPERATOR and clang.binary(c) not in ("=", ","):
            operator = clang.binary(c)
        elif c.kind == K.UNARY_OPERATOR and not clang.unary(c).endswith(("++", "--")):
            operator = clang.unary(c)
        elif c.kind in CASTS:
            operator = c.type.spelling
        else:
            return None
        parts = [self._pure(x, variables) for x in clang.children(c) if clang.is_expression(x)]
        return None if None in parts else f"({operator}{''.join(p or '' for p in parts)})"

    def _steady(self, c: Cursor, d: Cursor) -> bool:
        """Whether a variable keeps its value until it is assigned. One that refers to another may change with that."""
        type_ = c.type.get_canonical()
        changing = c.type.is_volatile_qualified() or type_.is_volatile_qualified() or type_.kind == TypeKind.ATOMIC
        refers = d.type.get_canonical().kind in REFERENCES and not group_of(c.type, self.dialect)[0]
        return not changing and not refers

    def _member(self, c: Cursor, variables: set[str]) -> str | None:
        """`p->hw`, a member of an ordinary struct: a load, whose value stays until something is stored to memory."""
        d = c.referenced
        if d is None or d.kind != K.FIELD_DECL or d.is_bitfield() or d.semantic_parent.kind == K.UNION_DECL:
            return None
        if not self._steady(c, d) or self.chains.unit.member(d)[0] in self.dialect.groups:
            return None
        base = [x for x in clang.children(c) if clang.is_expression(x)]
        inside = self._pure(base[0], variables) if base else "(this)"
        constant = d.type.is_const_qualified() or d.type.get_canonical().kind in REFERENCES
        variables |= set() if constant else {MEMORY}
        return None if inside is None else f"({inside}.{clang.offset(d.location)})"

    def _pure_address(self, c: Cursor, variables: set[str]) -> str | None:
        """`&g->pads[i]`, and `p[i]` and `*p` where they are groups: addresses. Anything else would be a load."""
        inner = clang.children(c)[0] if c.kind == K.UNARY_OPERATOR and clang.unary(c) == "&" else c
        chain = self.chains.read(inner)
        if chain and chain.steps:
            parts, used = self.key(chain)
            variables |= used
            return None if None in parts else f"(&{''.join(p or '' for p in parts)})"
        name, pointer = group_of(c.type, self.dialect)
        if not name or pointer:
            return None
        operands = [self._pure(x, variables) for x in clang.children(c)]
        return None if None in operands else f"(*{'+'.join(p or '' for p in operands)})"


def is_local(d: Cursor, function: Cursor) -> bool:
    """Whether a variable lives in a call of the function only. What a lambda captures is not its own."""
    inside = d.semantic_parent is not None and d.semantic_parent.kind in clang.FUNCTIONS
    if function.kind == K.LAMBDA_EXPR and clang.offset(d.location) < clang.span(function)[0]:
        return False
    return d.kind == K.PARM_DECL or (
        d.kind == K.VAR_DECL and d.storage_class.name not in ("STATIC", "EXTERN") and inside
    )


def no_punning(unit: clang.Unit, dialect: Dialect) -> None:
    """No union has a way to a group: its other members would reach registers that nobody knows of.
    No struct holds one."""
    classes = (c for c in unit.top if c.kind in clang.CLASSES and c.spelling not in dialect.groups and unit.own(c))
    for field in (f for c in classes for f in clang.children(c) if f.kind == K.FIELD_DECL):
        name, pointer = group_of(field.type, dialect)
        if name and not pointer and field.type.get_canonical().kind not in REFERENCES:
            text = f"'{field.spelling}': a group is no member of a struct"
            raise clang.error_at(field, unit.text, text, f"  use a pointer: bfGroup {name} *{field.spelling}")
    for union in clang.preorder(unit.tu.cursor) if b"union" in unit.text else ():
        for field in clang.children(union) if union.kind == K.UNION_DECL else ():
            if field.kind == K.FIELD_DECL and group_of(field.type, dialect)[0]:
                raise clang.error_at(field, unit.text, f"'{field.spelling}': a union cannot hold a group")


def read_offsets(unit: clang.Unit, dialect: Dialect) -> tuple[Offset, ...]:
    """Every `offsetof` of a group in the unit."""
    found = []
    for c in clang.preorder(unit.tu.cursor) if b"offsetof" in unit.text else ():
        if not clang.is_offset(c):
            continue
        members = [x.referenced for x in clang.children(c) if x.kind == K.MEMBER_REF]
        owner, name = unit.member(members[0])
        if owner not in dialect.groups:
            continue
        if len(members) > 1 or not isinstance(dialect.groups[owner].member(name), Field):
            raise clang.error_at(c, unit.text, "offsetof of a group takes the name of one bit field")
        found.append(Offset(clang.span(c), (owner, name), clang.place(c.extent.start)))
    unit.tu.cursor._tu.offsets = {o.extent for o in found}
    return tuple(found)


class Limits:
    """Diagnostics for groups where C would take them for memory."""

    def __init__(self, unit: clang.Unit, dialect: Dialect, chains: Chains) -> None:
        self.unit, self.dialect, self.chains = unit, dialect, chains

    def no_group_value(self, d: Cursor) -> None:
        name, pointer = group_of(d.type, self.dialect)
        element = d.type
        while element.kind in (TypeKind.CONSTANTARRAY, TypeKind.VARIABLEARRAY):
            element = element.element_type
            name, pointer = group_of(element, self.dialect)
        if name and not pointer:
            raise clang.error_at(
                d,
                self.unit.text,
                f"'{d.spelling}': a group cannot be a variable or be passed by value",
                f"  use a pointer: bfGroup {name} *{d.spelling}",
            )

    def no_groups_below(self, c: Cursor, what: str) -> None:
        for x in clang.preorder(c):
            if clang.is_expression(x) and (group_of(x.type, self.dialect)[0] or self.chains.read(x)):
                raise clang.error_at(x, self.unit.text, f"{what} cannot use a group")
