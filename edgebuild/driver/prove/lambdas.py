"""Lambdas that a function makes and calls itself: their bodies run among the variables of that function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clang.cindex import Cursor, CursorKind

from edgebuild.driver.analysis.chains import variable_name
from edgebuild.driver.analysis.keys import REFERENCES
from edgebuild.driver.prove.cpp import CppExpressions
from edgebuild.driver.prove.hardware import Pointer, Unknown
from edgebuild.driver.prove.values import DEPTH, Pruned, Return
from edgebuild.driver.source import clang

K = CursorKind


@dataclass(frozen=True)
class Closure:
    """A lambda, and the values of the variables that it has copied, by their names."""

    cursor: Cursor
    copies: dict[str, Any]


class Lambdas(CppExpressions):
    """Calls of lambdas. One that is passed on is not followed."""

    def e_lambda_expr(self, c: Cursor) -> Any:
        raise Unknown("a lambda that is passed on")

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
        if self.unit.cpp and any("(lambda at" in x.type.get_canonical().spelling for x in clang.children(c)):
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
