"""Lambdas: where a function calls one itself, the body runs among the variables of that function."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import z3
from clang.cindex import Cursor, CursorKind

from edgebuild.driver.analysis.chains import variable_name
from edgebuild.driver.analysis.keys import REFERENCES
from edgebuild.driver.prove.cpp import CppExpressions
from edgebuild.driver.prove.effort import Unknown
from edgebuild.driver.prove.hardware import ADDRESS, Pointer
from edgebuild.driver.prove.reals import Real
from edgebuild.driver.prove.values import DEPTH, Int, Pruned, Return, bits_of
from edgebuild.driver.source import clang

K = CursorKind


@dataclass(frozen=True)
class Closure:
    """A lambda, and the values of the variables that it has copied, by their names."""

    cursor: Cursor
    copies: dict[str, Any]


class Lambdas(CppExpressions):
    """Calls of lambdas. One that stands as an argument is given away with its copies; its body is proved alone."""

    passed: set[int]  # the numbers of those that were given away

    def run(self, name: str, taken: list[bool]) -> Any:
        self.passed = getattr(self, "passed", set())
        return super().run(name, taken)

    @cached_property
    def numbers(self) -> dict[int, int]:
        """Lambdas by where they begin, numbered in their order, which both sides share."""
        return {start: i for i, start in enumerate(self.unit.lambdas)}

    def e_lambda_expr(self, c: Cursor) -> Any:
        """Call something unknown: whatever gets the lambda runs its body, or keeps it."""
        made, number = self._closure(c), self.numbers[clang.span(c)[0]]
        if set(_outside(c)) - set(made.copies):
            raise Unknown("a lambda that is passed on and refers to variables")
        values = [made.copies[name] for name in sorted(made.copies, key=lambda n: n.partition("@")[0])]
        if any(x.kind == K.CXX_THIS_EXPR or _is_member(x) for x in clang.preorder(c)):
            values.append(self.this)
        if not all(isinstance(v, Int | Pointer | Real) for v in values):
            raise Unknown("a lambda that copies an object")
        self.passed.add(number)
        self.called(f"lambda {number}", tuple(map(bits_of, values)))
        return Pointer(z3.BitVec(f"lambda {number}", ADDRESS))

    def alone(self, number: int) -> str:
        """The name under which the body of a lambda can be run for itself, whatever it has copied."""
        cursor = next(c for start, (c, _) in self.unit.lambdas.items() if self.numbers[start] == number)
        self.functions[f"lambda {number}"] = cursor
        return f"lambda {number}"

    def call(self, function: Cursor, arguments: list[Any]) -> Any:
        if function.kind != K.LAMBDA_EXPR:
            return super().call(function, arguments)
        for name, d in _outside(function).items():
            address = Pointer(z3.BitVec(f"&copied {d.spelling}", ADDRESS))
            self.env[name] = address if self.in_memory(d) else self.symbol(f"copied {d.spelling}", d.type)
        self.active.append(function)
        parameters = [p for p in clang.children(function) if p.kind == K.PARM_DECL]
        for p, value in zip(parameters, arguments, strict=True):
            if self.in_memory(p):
                self.put(self.new_object(p), p.type, value)
            else:
                self.env[variable_name(p)] = self.converted(value, p.type)
        try:
            self.body(function)
        except Return as done:
            return done.value
        return None

    def bound(self, c: Cursor) -> Pointer:
        made = _lambda(c) if self.unit.cpp else None
        value = self.value(made) if made is not None else super().bound(c)
        assert isinstance(value, Pointer)
        return value

    def begin(self, d: Cursor, parts: list[Cursor]) -> None:
        made = _lambda(parts[-1]) if self.unit.cpp and parts else None
        if made is None:
            super().begin(d, parts)
        else:
            self.env[variable_name(d)] = self._closure(made)

    def e_call_expr(self, c: Cursor) -> Any:
        to = c.referenced
        if not self.unit.cpp or to is None or to.spelling != "operator()":
            return self._called(c)
        object_, _, *arguments = [x for x in clang.children(c) if clang.is_expression(x)]
        made, name = _lambda(object_), clang.bare(object_)
        known = self._closure(made) if made is not None else None
        if known is None and name.kind == K.DECL_REF_EXPR:
            found = self.env.get(variable_name(name.referenced))
            known = found if isinstance(found, Closure) else None
        if known is None:
            return self._called(c)
        parameters = [p for p in clang.children(known.cursor) if p.kind == K.PARM_DECL]
        refer = [p.type.get_canonical().kind in REFERENCES for p in parameters]
        values = [self.bound(a) if r else self.value(a) for a, r in zip(arguments, refer, strict=True)]
        return self._entered(known, to, parameters, values)

    def _called(self, c: Cursor) -> Any:
        """Any other call. Whoever gets a lambda may run its body, which is compared nowhere else."""
        for x in clang.children(c) if self.unit.cpp else ():
            if "(lambda at" in x.type.get_canonical().spelling and _lambda(x) is None and not _is_callee(x):
                raise Unknown("a lambda that is passed on")
        return super().e_call_expr(c)

    def _entered(self, closure: Closure, to: Cursor, parameters: list[Cursor], values: list[Any]) -> Any:
        """Run the body of a lambda; whatever it has copied has the value from when it was made."""
        self.active.append(to)
        if sum(f.spelling == to.spelling for f in self.active) > DEPTH:
            self.decisions.bounded = True
            raise Pruned
        outside = {name: self.env.get(name) for name in closure.copies}
        self.env.update(closure.copies)
        for p, value in zip(parameters, values, strict=True):
            if self.in_memory(p):
                self.put(self.new_object(p), p.type, value)
            else:
                self.env[variable_name(p)] = self.converted(value, p.type)
        result = None
        try:
            self.statement(next(x for x in clang.children(closure.cursor) if x.kind == K.COMPOUND_STMT))
        except Return as done:
            result = done.value
        self.active.pop()
        for name, value in outside.items():
            self.env[name] = value
        return result if result is None else self.converted(result, to.result_type)

    def _closure(self, c: Cursor) -> Closure:
        """A lambda as it is made here."""
        start, end = clang.span(c)
        text = self.unit.text[start:end]
        captures = text[1 : text.index(b"]")].decode("utf-8", "replace").split(",")
        words = [w.strip() for w in captures if w.strip()]
        if any("=" in w and w != "=" for w in words) or b"mutable" in text.partition(b"{")[0]:
            raise Unknown("a lambda with variables of its own")
        referred = {w.removeprefix("&").strip() for w in words if w.startswith("&")}
        names = {w for w in words if w[0] not in "&=" and w != "this"}
        copies: dict[str, Any] = {}
        for x in clang.preorder(c):
            d = x.referenced if x.kind in (K.DECL_REF_EXPR, K.VARIABLE_REF) else None
            if d is None or d.kind not in (K.VAR_DECL, K.PARM_DECL) or variable_name(d) not in self.env:
                continue
            if d.spelling in names or ("=" in words and d.spelling not in referred):
                value = self.env[variable_name(d)]
                if self.in_memory(d) or (isinstance(value, Pointer) and d.type.get_canonical().kind in REFERENCES):
                    raise Unknown("a lambda that copies an object")
                copies[variable_name(d)] = value
        return Closure(c, copies)


def _lambda(c: Cursor) -> Cursor | None:
    """The lambda that an expression is, inside of conversions and copies."""
    while c.kind in (K.UNEXPOSED_EXPR, K.PAREN_EXPR, K.CALL_EXPR):
        inside = [x for x in clang.children(c) if clang.is_expression(x)]
        if len(inside) != 1:
            return None
        c = inside[0]
    return c if c.kind == K.LAMBDA_EXPR else None


def _outside(c: Cursor) -> dict[str, Cursor]:
    """Local variables of the function around a lambda that its body uses."""
    start, end = clang.span(c)
    found: dict[str, Cursor] = {}
    for x in clang.preorder(c):
        d = x.referenced if x.kind in (K.DECL_REF_EXPR, K.VARIABLE_REF) else None
        if d is None or d.kind not in (K.VAR_DECL, K.PARM_DECL) or start <= clang.offset(d.location) < end:
            continue
        if d.kind == K.PARM_DECL or d.semantic_parent.kind in clang.FUNCTIONS:
            found[variable_name(d)] = d
    return found


def _is_member(c: Cursor) -> bool:
    """Whether an expression names a member of the object itself."""
    return c.kind == K.MEMBER_REF_EXPR and not any(clang.is_expression(x) for x in clang.children(c))


def _is_callee(c: Cursor) -> bool:
    """Whether a part of a call is the function: the type of a template's instance names its arguments."""
    value = clang.bare(c)
    return value.kind == K.DECL_REF_EXPR and value.referenced is not None and value.referenced.kind == K.FUNCTION_DECL
