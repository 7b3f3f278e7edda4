"""Compare two versions of a driver in C: whether each function makes the same accesses for all inputs.

A version is plain C, or a source in the dialect, whose generated code is compared. Every access of a volatile object
counts: its kind, address, width, value and order. Reads return arbitrary values. A register description provides the
names of registers in messages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import z3

from ...base.errors import did_you_mean, fail
from ...base.request import DriverRequest
from ..layout.registers import Bus, Layout
from ..pipeline import compile_driver, triple_of
from ..registers.fixed import read_map
from ..source import ir
from ..source.dialect import Dialect
from ..source.lowering import Program
from ..source.sources import has_groups, parse_plain
from .hardware import EFFORT, Different, Event, Views, ask, solver_of
from .interpreter import POLL, Interpreter, Side
from .verdicts import Prover, Verdict, generated_unit, unlike_variables, variable_name, variables


@dataclass(frozen=True)
class Comparison:
    """`verdict`: "proved", "different" or "unknown"; `inputs`: values that show a difference, by name."""

    function: str
    verdict: str
    why: str = ""
    inputs: Mapping[str, str] | None = None


def prove_versions(old: DriverRequest, new: DriverRequest, only: tuple[str, ...] = ()) -> list[Comparison]:
    """Compare the functions of both sources, or those in `only`. `old.layout` may name a register description.

    Raises EdgebuildError if a source or the description cannot be read, or has no function of a name in `only`.
    """
    file = old.layout.removeprefix("fixed:") if old.layout.startswith("fixed:") else ""
    words = Words(old.sources[0].name, new.sources[0].name, _registers(Path(file)) if file else {})
    return compare_programs(version(old), version(new), words, only)


def compare_programs(
    old: Program,
    new: Program,
    words: Words,
    only: tuple[str, ...] = (),
    proved: Collection[str] = (),
    limits: dict[str, int] | None = None,
) -> list[Comparison]:
    """Compare two programs as `prove_versions` does. `proved`: functions that are proved; `limits`: see `Prover`."""
    layout = Layout({}, Bus(32, True), "fixed", True, 0, 0, 0)
    first, second = (Interpreter(p, Dialect({}, {}, {}), layout, Views(), Side()) for p in (old, new))
    names, every = list(only) or _names([old, new]), first.functions.keys() | second.functions.keys()
    if unknown := next((n for n in names if n not in every), None):
        raise fail(f"option 'function': no function '{unknown}'{did_you_mean(unknown, every)}")
    done = {n: Verdict(n, "proved") for n in proved}
    verdicts = Prover(first, second, limits or {}, done).all(
        [n for n in names if n in first.functions and n in second.functions]
    )
    rows = {v.function: words.comparison(v, first.functions[v.function]) for v in verdicts}
    for n in rows:
        first_sizes, second_sizes = ([p.type.size for p in s.functions[n].parameters] for s in (first, second))
        if first_sizes != second_sizes:
            rows[n] = Comparison(n, "different", f"its parameters have {first_sizes} bytes, and {second_sizes}")
    for n in (n for n in names if n not in rows):
        side = words.old if n in first.functions else words.new
        rows[n] = Comparison(n, "different", f"only {side} has this function")
    used = _used(old, names) | _used(new, names)
    unlike = ((n, why) for n, why in unlike_variables(variables(old), variables(new)) if not only or n in used)
    return [*(rows[n] for n in names), *(Comparison(n, "different", words.named(why)) for n, why in unlike)]


def _used(program: Program, names: list[str]) -> set[str]:
    """Names (as in `variables`) of the variables that these functions and their callees use."""
    bodies: dict[str, ir.Node | None] = {f.full_name: f.body for f in program.functions}
    bodies |= {variable_name(d.variable): d.value for d in program.statics}
    used = dict.fromkeys(names)
    for name in (reached := list(used)):  # it grows
        for x in body.all() if (body := bodies.get(name)) else ():
            to = x.to if isinstance(x, ir.Name | ir.Call) else None
            other = variable_name(to) if isinstance(to, ir.Variable) else getattr(to, "full_name", "")
            if other not in used:
                used[other] = None
                reached.append(other)
    return set(used)


def _registers(file: Path) -> dict[int, str]:
    """Names of a description's registers, by address."""
    rows = ((b.base + r.offset, f"{b.name}.{r.full_name}") for b in read_map(file).blocks for r in b.registers)
    return dict(reversed(list(rows)))


def version(request: DriverRequest) -> Program:
    """A version as lowered values: plain C itself, or the generated code of a source in the dialect."""
    triple = triple_of(request.target)
    if not has_groups(request.sources[0]):
        return Program(parse_plain(request.sources[0], triple, request.flags))
    artifacts, driver = compile_driver(request)
    return Program(generated_unit(driver, triple, artifacts))


def _names(programs: list[Program]) -> list[str]:
    """Functions that other files may call, and static functions of both versions that are not called in their file."""
    names, own = dict[str, None](), [{f.full_name for f in p.functions} for p in programs]
    for p in programs:
        calls = (x for f in p.functions if f.body for x in f.body.all() if isinstance(x, ir.Call))
        inside = {x.to.full_name for x in calls if x.to} | (own[0] ^ own[1])
        names |= {f.full_name: None for f in p.functions if not f.is_static or f.full_name not in inside}
    return list(names)


@dataclass(frozen=True)
class Words:
    """Words for differences. `old`, `new`: names of the versions; `registers`: names by address."""

    old: str
    new: str
    registers: Mapping[int, str]

    def named(self, text: str) -> str:
        """A message of the prover, with the names of the versions."""
        return text.replace("the source", self.old).replace("the generated code", self.new)

    def comparison(self, v: Verdict, function: ir.Function) -> Comparison:
        why = self.named(v.why)
        if v.difference is None:
            return Comparison(v.function, v.what, why)
        EFFORT.begin()  # the verdicts may have used up the limit
        d, solver = v.difference, solver_of(*v.difference.case)
        sides = [e for e in d.events or () if e]
        if len(polls := [e for e in sides if e.text == POLL]) == 1:
            if any(e.key[1].startswith("r ") for e in sides):  # it may be the loop's next read
                return Comparison(v.function, "unknown", f"{why}: one version waits, and the other may as well")
            solver.add(polls[0].values[0] == 1)  # a loop without another turn is not visible on the bus
        if ask(solver) != z3.sat:
            return Comparison(v.function, "unknown", f"{why}, and the solver finds no input that shows it")
        model, events = solver.model(), d.events
        if any(x.name().startswith("&") and " #" in x.name() for x in model.decls()):
            return Comparison(v.function, "unknown", f"{why}, which may depend on where local objects lie")
        if any(x.arity() and not x.name().endswith("without a meaning") for x in model.decls()):
            return Comparison(v.function, "unknown", f"{why}, which depends on an operation whose result is left open")
        if events:
            first, second = (self.event(e, model) for e in events)
            why = f"{self.old} {first}, {self.new} {second}" if first != second else why
            local = next((e.text for e in events if e and " local " in e.key[1]), "")
            if local:  # not visible on the bus
                return Comparison(
                    v.function, "unknown", f"the volatile variable '{local}' is accessed otherwise: {why}"
                )
        return Comparison(v.function, "different", why, dict(self.inputs(d, model, function)))

    def event(self, e: Event | None, model: z3.ModelRef) -> str:
        """The next access of one side, or its next call."""
        if e is None:
            return "does nothing more"
        values = [model.eval(v, model_completion=True).as_long() for v in e.values]
        if e.text == POLL:
            return f"waits while {'it holds' if values[0] else 'it does not'}: {POLL}"
        if not e.size:
            return f"calls {e.key[1]}({', '.join(map(hex, values))})"
        stores = e.key[1].startswith("w ")
        at = f" at {values[0]:#x}" if len(values) > stores else ""
        name = self.registers.get(values[0], e.text) if at else e.text
        what = f"stores {values[-1]:#x} to {name}" if stores else f"reads {name}"
        return f"{what} ({e.size} bytes{at})"

    def inputs(self, d: Different, model: z3.ModelRef, function: ir.Function) -> Iterator[tuple[str, str]]:
        """Names and values of the inputs that show a difference: parameters, variables, and values that are read."""
        for x in sorted(model.decls(), key=lambda x: (x.name().rstrip("0123456789"), len(x.name()), x.name())):
            name, value = x.name(), model[x]
            kind, _, rest = name.partition("?" if "?" in name else " ")
            if not z3.is_bv_value(value) or kind in ("lasts", "uninitialised") or name.startswith("&"):
                continue
            if kind == "argument":
                name = function.parameters[int(rest)].name
            elif kind == "read":
                e = d.path[int(rest)] if int(rest) < len(d.path) else None
                at = model.eval(e.values[0], model_completion=True).as_long() if e and e.values else -1
                name = f"read {int(rest) + 1}, of {self.registers.get(at, e.text if e else '')}"
            elif kind == "global":
                name = rest.partition("!")[0]
            elif rest.isdigit():
                name = f"what {kind}() returns"
            yield name, f"{value.as_long():#x}"
