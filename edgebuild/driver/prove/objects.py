"""Implicit code of C++ in a symbolic run: constructors and member initialisers, destructors, and lambdas.

If a function calls its own lambda, the body runs with the variables of that function. A lambda that is passed as an
argument is an unknown call with the captured copies; its body is proved separately.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import z3

from ..source import ir
from ..source.ir import CType, Expression
from .hardware import ADDRESS, Pointer, Unknown
from .values import Break, Continue, Goto, Int, Real, Return, bits_of, converted, symbol

Interpreter = Any  # that of `interpreter`, which imports this file
Living = list[tuple[Pointer, ir.Function]]  # objects and their destructors, in the order of construction
NUMBERS = ir.Number | ir.Binary | ir.Logical | ir.Comma | ir.Assignment


@dataclass
class Lives:
    """The objects of a run that are to be destroyed, and those under construction."""

    scopes: list[Living] = field(default_factory=list)  # of the open scopes, the innermost last
    temporaries: Living = field(default_factory=list)  # of the full expression
    firsts: list[tuple[Pointer, ir.Function | None, ir.Record]] = field(default_factory=list)  # with their constructors


@contextmanager
def scope(run: Interpreter) -> Iterator[None]:
    """Destroy the objects of a scope at its end, however control leaves it."""
    living: Living = []
    run.lives.scopes.append(living)
    try:
        yield
    except (Return, Break, Continue, Goto):  # not EndlessWait: an endless wait destroys nothing
        _destroy(run, living)
        run.lives.scopes.pop()
        raise
    _destroy(run, living)
    run.lives.scopes.pop()


@contextmanager
def full_expression(run: Interpreter) -> Iterator[None]:
    """Destroy temporary objects at the end of a full expression."""
    outer, run.lives.temporaries = run.lives.temporaries, []
    yield
    _destroy(run, run.lives.temporaries)
    run.lives.temporaries = outer


def live(run: Interpreter, at: Pointer, type_: CType) -> None:
    """Let an object live to the end of its scope."""
    destructor = _destructor(type_) if run.cpp else None
    if destructor is not None:
        run.lives.scopes[-1].append((at, destructor))


def _destroy(run: Interpreter, objects: Living) -> None:
    while objects:
        at, destructor = objects.pop()
        name = destructor.full_name
        if name not in run.functions:
            run.memory.call(name, (at.value,))
            continue
        outer, run.this = run.this, at
        run.call(run.functions[name], [])
        run.this = outer


def _destructor(type_: CType) -> ir.Function | None:
    if type_.kind == "array" and _destructor(type_.canonical.element):
        raise Unknown("an array of objects with destructors")
    if type_.kind == "dependent":
        raise Unknown("an object of a template's parameter")
    if type_.record is None:
        return None
    inner = [*type_.record.bases, *(f.type for f in type_.fields)]
    if any(_destructor(t) is not None for t in inner):
        raise Unknown("an object of a class whose members have destructors")
    return type_.record.destructor


# ---- constructors


def constructed(run: Interpreter, at: Pointer, value: Expression) -> bool:
    """Run the constructor that an initial value calls. False if it calls none."""
    call = _construction(value)
    if call is not None:
        _construct(run, at, call)
    return call is not None


def temporary(run: Interpreter, c: Expression) -> Pointer | None:
    """The address of the temporary object that an expression creates; None if it creates none."""
    call = _construction(c)
    listed = c.inside if isinstance(c, ir.Cast) and c.form == "value" and isinstance(c.inside, ir.ListValue) else None
    if call is None and listed is None:
        return None
    at = run.memory.create("temporary", " ")
    if call is not None:
        _construct(run, at, call)
    elif listed is not None:
        run.places.initialise(at, c.type, listed)
    destructor = _destructor(c.type)
    if destructor is not None:
        run.lives.temporaries.append((at, destructor))
    return at


def _construct(run: Interpreter, at: Pointer, call: ir.Call) -> None:
    to = call.to
    assert to is not None and to.class_ is not None
    if to.is_copy:
        if not to.is_default:
            raise Unknown("a copy of an object")
        run.memory.copy(at, run.places.object(call.arguments[0]), call.type)
        return
    values = []
    for p, a in zip(to.expected, call.arguments, strict=True):
        given = p.default if a.is_left_out else a
        if given is None:
            raise Unknown("a default argument")
        values.append(bound(run, given) if p.type.is_reference else run.value(given))
    body = None
    if to.is_written:
        body = run.functions.get(to.full_name)
        if body is None:
            run.memory.call(to.full_name, (at.value,))
            return
    run.lives.firsts.append((at, body, to.class_))
    outer, run.this = run.this, at
    if body is not None and body.body is not None:
        run.call(body, values)
    else:
        begin_members(run)
    run.this = outer


def _begin_base(run: Interpreter, at: Pointer, constructor: ir.Function | None, class_: ir.Record) -> None:
    """Construct the base of an object, which lies at its start. Raises Unknown for several or virtual bases."""
    if not class_.bases:
        return
    base = class_.bases[0].record
    if len(class_.bases) > 1 or class_.has_virtual_base or base is None:
        raise Unknown("an object of a class with several bases, or a virtual one")
    if class_.has_table and not base.has_table:
        raise Unknown("an object whose base lies behind the table of its methods")
    written = constructor.initialisers if constructor is not None else ()
    first = next((i.value for i in written if i.base is base), None)
    call = _construction(first) if first is not None else None
    if call is not None:
        _construct(run, at, call)
    elif first is not None or base.is_constructed:
        raise Unknown("a base that is constructed without a word")
    else:
        run.lives.firsts.append((at, None, base))
        begin_members(run)


def begin_members(run: Interpreter) -> None:
    """Give the members of the object under construction their initial values."""
    if not run.lives.firsts:
        return
    at, constructor, class_ = run.lives.firsts.pop()
    _begin_base(run, at, constructor, class_)
    written = constructor.initialisers if constructor is not None else ()
    given = {i.member: i.value for i in written}
    for f in class_.members:
        place, value = at.moved(f.at), given.get(f.name) or f.default
        if f.type.is_reference:
            if value is None:
                raise Unknown("a reference without a value")
            run.memory.store(ADDRESS, place.value, bound(run, value).value)
        elif value is not None:
            run.places.initialise(place, f.type, value)
        elif f.type.kind == "record" and not f.type.is_pod:
            raise Unknown("an object in an object")


def _construction(c: Expression) -> ir.Call | None:
    """The constructor call in an expression, without conversions around it; None if there is none."""
    while isinstance(c, ir.Converted | ir.Parenthesised) or (isinstance(c, ir.Cast) and c.form == "value"):
        c = c.inside
    return c if isinstance(c, ir.Call) and c.is_construction else None


def bound(run: Interpreter, c: Expression) -> Pointer:
    """The address that a reference is bound to; a value is stored in a new object."""
    if not run.cpp:
        return run.places.address(c)
    value = c.bare
    if isinstance(value, NUMBERS) and not (isinstance(value, ir.Assignment) and value.operator):
        at = run.memory.create("value", " ")
        run.memory.put(at, c.type, run.value(c))
        return at
    function = _lambda(c)
    address = run.value(function) if function is not None else run.places.address(c)
    assert isinstance(address, Pointer)
    return address


# ---- lambdas


@dataclass(frozen=True)
class Closure:
    """A lambda, and the values of the variables that it captures by copy, by their keys."""

    of: ir.Lambda
    copies: dict[str, Any]


def pass_on(run: Interpreter, c: ir.Lambda) -> Any:
    """Treat a lambda that is passed on as an unknown call: the receiver may run its body, or keep it."""
    closure, number = _closure(run, c), list(run.program.lambdas).index(c.span[0])
    if _outside(c, c.span).keys() - closure.copies.keys():
        raise Unknown("a lambda that is passed on and refers to variables")
    values = [closure.copies[name] for name in sorted(closure.copies, key=lambda n: n.partition("@")[0])]
    if any(isinstance(x, ir.This) or (isinstance(x, ir.MemberOf) and x.base is None) for x in c.all()):
        values.append(run.this)
    if not all(isinstance(v, Int | Pointer | Real) for v in values):
        raise Unknown("a lambda that copies an object")
    run.passed.add(number)
    run.memory.call(f"lambda {number}", tuple(map(bits_of, values)))
    return Pointer(z3.BitVec(f"lambda {number}", ADDRESS))


def alone(run: Interpreter, number: int) -> str:
    """Register a lambda's body as a function of its own; returns the function's name."""
    run.functions[f"lambda {number}"] = list(run.program.lambdas.values())[number][0]
    return f"lambda {number}"


def run_alone(run: Interpreter, function: ir.Function, arguments: list[Any]) -> Any:
    """Run the body of a lambda; its captured copies have arbitrary values."""
    assert function.body is not None
    for name, d in _outside(function.body, function.span).items():
        address = Pointer(z3.BitVec(f"&copied {d.name}", ADDRESS))
        run.env[name] = address if run.places.in_memory(d) else symbol(f"copied {d.name}", d.type)
    run.active.append(function)
    for p, value in zip(function.parameters, arguments, strict=True):
        run.places.set_parameter(p, value)
    try:
        run.statement(function.body)
    except Return as done:
        return done.value
    return None


def closure_in(run: Interpreter, value: Expression) -> Closure | None:
    """The lambda that is the initial value of a variable; None if that is no lambda."""
    function = _lambda(value)
    return _closure(run, function) if function is not None else None


def called_closure(run: Interpreter, c: ir.Call) -> Closure | None:
    """The lambda that a call runs; None if that is not known."""
    if c.to is None or c.to.name != "operator()" or c.target is None:
        return None
    function, name = _lambda(c.target), c.target.bare
    if function is not None:
        return _closure(run, function)
    closure = run.env.get(name.variable.key) if isinstance(name, ir.Name) and name.variable else None
    return closure if isinstance(closure, Closure) else None


def run_closure(run: Interpreter, closure: Closure, c: ir.Call) -> Any:
    """Run the body of a lambda; its captured copies have the values from its creation."""
    assert c.to is not None
    parameters = closure.of.function.parameters
    pairs = list(zip(c.arguments, parameters, strict=True))
    values = [bound(run, a) if p.type.is_reference else run.value(a) for a, p in pairs]
    run.enter(c.to)
    outside = {name: run.env.get(name) for name in closure.copies}
    run.env.update(closure.copies)
    for p, value in zip(parameters, values, strict=True):
        run.places.set_parameter(p, value)
    result = None
    try:
        run.statement(closure.of.body)
    except Return as done:
        result = done.value
    run.active.pop()
    run.env.update(outside)
    return result if result is None else converted(result, c.to.result)


def check_arguments(c: ir.Call) -> None:
    """Raise Unknown if a lambda is passed on in a variable: its receiver may run the body, which nothing compares."""
    for x in (*((c.target,) if c.target else ()), *c.arguments):
        if "(lambda at" in x.type.text and _lambda(x) is None:
            raise Unknown("a lambda that is passed on")


def _closure(run: Interpreter, c: ir.Lambda) -> Closure:
    """The closure of a lambda with the current values of its copies. Raises Unknown for init-captures and `mutable`."""
    captures = c.source[1 : c.source.index(b"]")].decode("utf-8", "replace").split(",")
    words = [w.strip() for w in captures if w.strip()]
    if any("=" in w and w != "=" for w in words) or b"mutable" in c.source.partition(b"{")[0]:
        raise Unknown("a lambda with variables of its own")
    referred = {w.removeprefix("&").strip() for w in words if w.startswith("&")}
    names = {w for w in words if w[0] not in "&=" and w != "this"}
    copies: dict[str, Any] = {}
    for d in (x.variable for x in c.all() if isinstance(x, ir.Name)):
        if d is None or d.key not in run.env:
            continue
        if d.name in names or ("=" in words and d.name not in referred):
            value = run.env[d.key]
            if run.places.in_memory(d) or (isinstance(value, Pointer) and d.type.is_reference):
                raise Unknown("a lambda that copies an object")
            copies[d.key] = value
    return Closure(c, copies)


def _lambda(c: Expression) -> ir.Lambda | None:
    """The lambda in an expression, without conversions and copies around it; None if there is none."""
    while isinstance(c, ir.Converted | ir.Parenthesised) or (isinstance(c, ir.Call) and len(c.parts) == 1):
        c = c.inside if not isinstance(c, ir.Call) else next(x for x in c.parts if isinstance(x, Expression))
    return c if isinstance(c, ir.Lambda) else None


def _outside(body: ir.Node, span: ir.Span) -> dict[str, ir.Variable]:
    """Local variables of the enclosing function that a lambda's body uses."""
    names = (x.variable for x in body.all() if isinstance(x, ir.Name))
    outside = (d for d in names if d and not span[0] <= d.offset < span[1])
    return {d.key: d for d in outside if d.is_parameter or d.function}
