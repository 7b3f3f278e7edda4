"""Member chains, such as `gpio->pads[i + 1].out`: a root, steps, and an end; and keys, which name addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from edgebuild.base.errors import EdgebuildError
from edgebuild.driver.analysis.cdfg import MEMORY, Chain, Prefix, Step
from edgebuild.driver.source import ir
from edgebuild.driver.source.dialect import Child, Dialect, Field
from edgebuild.driver.source.ir import Expression


class Chains:
    """Reads chains of one unit; `function`: the one whose variables are its own in keys."""

    def __init__(self, dialect: Dialect, function: ir.Function | None = None) -> None:
        self.dialect, self.function = dialect, function
        self.locals: set[str] = set()  # variables that hold the value of a register
        self._chains: dict[Expression, Chain | None] = {}

    def read(self, expression: Expression) -> Chain | None:
        """The chain that this expression is; None if it is no part of a group."""
        bare = expression.bare
        if bare not in self._chains:
            self._chains[bare] = self._read(bare)
        return self._chains[bare]

    def effect(self, right: Expression) -> str:
        """Whether the right side "changes" something, only "reads" fields, or may be evaluated at any time ("")."""
        return ir.effect(right, self.read)

    def _read(self, c: Expression) -> Chain | None:
        name, pointer = "", False
        if isinstance(c, ir.MemberOf):
            return self._member(c)
        if isinstance(c, ir.Subscript):
            inner = self.read(c.base)
            if inner and inner.missing:
                return self._indexed(inner, c, c.index)
            name, pointer = self.dialect.group_of(c.type)
        if isinstance(c, ir.Unary) and c.operator == "*":
            name, pointer = self.dialect.group_of(c.type)
            through = self._through(c.operand) if name and not pointer else None
            if through:
                return through
        return self._root(c, name, False) if name and not pointer else None

    def _through(self, pointer: Expression) -> Chain | None:
        """The chain behind a pointer expression that itself is made of a chain: `&a->b` and the array `a->b`."""
        inner = pointer.bare
        if isinstance(inner, ir.Unary) and inner.operator == "&":
            return self.read(inner.operand)
        chain = self.read(inner)
        if chain and isinstance(chain.end, Child) and chain.missing == 1:
            return self._indexed(chain, inner, None)
        return None

    def _member(self, c: ir.MemberOf) -> Chain | None:
        member, base = c.value_member, c.base
        group = self.dialect.groups.get(member.owner) if member and base else None
        if group is None or base is None or member is None:
            return None
        name, pointer = self.dialect.group_of(base.type)
        inner = self._through(base) if pointer or base.type.written == "array" else self.read(base)
        if inner is None:
            root = base.bare
            variable = root.variable if isinstance(root, ir.Name) else None
            inner = self._root(base, group.name, pointer)
            if variable and variable.key in self.locals:
                inner = replace(self._root(base, group.name, False), local=variable.key)
            elif not pointer and not is_place(root):
                raise c.error(f"a '{name}' that is no part of a device: use a pointer")
        if isinstance(inner.end, Child) and inner.end.dims and inner.steps[-1].constant == inner.end.dims[-1]:
            size = inner.end.dims[-1]
            raise _outside(inner.steps[-1].index or c, size, inner.end.name, size)
        return self._extended(inner, group.member(member.name), base, pointer)

    def _extended(self, inner: Chain, member: Field | Child, base: Expression, pointer: bool) -> Chain:
        prefixes, depths = inner.prefixes, inner.depths
        if isinstance(inner.end, Child) and depths[-1] != len(inner.steps):  # a single child: its group starts here
            prefixes += (Prefix(base, pointer, inner.group),)
            depths += (len(inner.steps),)
        steps = (*inner.steps, Step(member=member.name))
        return Chain(inner.root, inner.device, prefixes, depths, steps, member, len(member.dims), inner.local)

    def elements(self, inner: Chain, at: Expression) -> Iterator[Chain]:
        """The chains of all fields of the group that a chain ends at, with every element of arrays."""
        for member in self.dialect.groups[inner.group].members:
            if isinstance(member, Child):
                raise at.error(f"'{inner.group}' holds other groups: name one that is a register")
            chain = self._extended(inner, member, at, False)
            for index in product(*(range(n) for n in member.dims)):
                steps = (*chain.steps, *(Step(constant=i) for i in index))
                yield replace(chain, steps=steps, missing=0)

    def _indexed(self, inner: Chain, c: Expression, index: Expression | None) -> Chain:
        value = 0 if index is None else index.constant
        assert inner.end is not None
        size = inner.end.dims[len(inner.end.dims) - inner.missing]
        beyond = isinstance(inner.end, Child) and inner.missing == 1  # `&a->b[size]` is a pointer, if to nothing
        if value is not None and not 0 <= value < size + beyond:
            raise _outside(index or c, value, inner.end.name, size)
        prefixes, depths = inner.prefixes, inner.depths
        steps = (*inner.steps, Step(index=index, constant=value))
        if inner.missing == 1 and isinstance(inner.end, Child):
            prefixes += (Prefix(c, index is None, inner.end.group),)
            depths += (len(steps),)
        return Chain(inner.root, inner.device, prefixes, depths, steps, inner.end, inner.missing - 1, inner.local)

    def _root(self, c: Expression, group: str, pointer: bool) -> Chain:
        bare = c.bare
        variable = bare.variable if isinstance(bare, ir.Name) else None
        is_device = variable is not None and variable.name in self.dialect.devices
        device = variable.name if variable and is_device and variable.is_global else ""  # no local of the same name
        return Chain(c, device, (Prefix(c, pointer, group),), (0,), (), None, 0)

    # ---- keys: two accesses of one key go to one place as long as the key's variables keep their values

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

    def _pure(self, c: Expression, variables: set[str]) -> str | None:
        """A text that names the expression's value as long as `variables` keep theirs; None if there is none."""
        c = c.bare
        if c.constant is not None:
            return f"({c.constant})"
        match c:
            case ir.Name(to=ir.Variable() as d):
                assert self.function is not None
                local = d.lives_in(self.function)
                if d.name in self.dialect.devices and not local:
                    return f"(device:{d.name})"
                if not self._steady(c, d):
                    return None
                variables |= {d.key} if local else {d.key, MEMORY}
                return f"({d.key})"
            case ir.This():
                return "(this)"
            case ir.MemberOf():
                return self._pure_member(c, variables)
            case ir.Subscript() | ir.Unary(operator="&" | "*"):
                return self._pure_address(c, variables)
            case ir.Binary(operator=operator) | ir.Logical(operator=operator) | ir.Unary(operator=operator):
                pass
            case ir.Cast(form="c" | "static" | "value"):
                operator = c.type.name
            case _:
                return None
        return self._pure_parts(operator, "", c.parts, variables)

    def _pure_parts(self, word: str, between: str, parts: tuple[ir.Node, ...], variables: set[str]) -> str | None:
        names = [self._pure(x, variables) for x in parts if isinstance(x, Expression)]
        return None if None in names else f"({word}{between.join(n or '' for n in names)})"

    def _steady(self, c: Expression, d: ir.Declaration) -> bool:
        """Whether a variable keeps its value until it is assigned. One that refers to another may change with that."""
        return not c.type.changes and not (d.type.is_reference and not self.dialect.group_of(c.type)[0])

    def _pure_member(self, c: ir.MemberOf, variables: set[str]) -> str | None:
        """`p->hw`, a member of an ordinary struct: a load, whose value stays until something is stored to memory."""
        d = c.value_member
        if d is None or d.bits is not None or d.in_union or not self._steady(c, d) or d.owner in self.dialect.groups:
            return None
        inside = self._pure(c.base, variables) if c.base else "(this)"
        variables |= set() if d.type.is_const or d.type.is_reference else {MEMORY}
        return None if inside is None else f"({inside}.{d.offset})"

    def _pure_address(self, c: Expression, variables: set[str]) -> str | None:
        """`&g->pads[i]`, and `p[i]` and `*p` where they are groups: addresses. Anything else would be a load."""
        inner = c.operand if isinstance(c, ir.Unary) and c.operator == "&" else c
        chain = self.read(inner)
        if chain and chain.steps:
            parts, used = self.key(chain)
            variables |= used
            return None if None in parts else f"(&{''.join(p or '' for p in parts)})"
        name, pointer = self.dialect.group_of(c.type)
        return self._pure_parts("*", "+", c.parts, variables) if name and not pointer else None


def _outside(index: Expression, value: int, name: str, size: int) -> EdgebuildError:
    return index.error(f"index {value} of '{name}' is not in 0..{size - 1}")


def is_place(root: Expression) -> bool:
    """Whether an expression names an object: an element, `*p`, or a reference of C++."""
    if isinstance(root, ir.Subscript):
        return True
    if isinstance(root, ir.Unary):
        return root.operator == "*"
    to = root.to if isinstance(root, ir.Name | ir.Call) else root.member if isinstance(root, ir.MemberOf) else None
    if to is None:
        return False
    type_ = to.result if isinstance(root, ir.Call) and isinstance(to, ir.Function) else to.type
    return type_.kind == "reference"
