"""A plan as C: which functions there are, who calls them, and with what."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import SimpleNamespace

from ..explore import Plan
from ..ir import Op, Tensor
from ..ops.base import C_TYPES, Kernel
from ..rolling import Rolled, row_bytes
from ..sections import Section, kernel_of, scratch_name
from ..storage import view_starts
from .environment import environment
from .loops import Call, Loop, looped
from .names import at_macro, comment, literal, offset_names, shape_text
from .order import Line, lines
from .share import Letter, shared
from .storage import Weights, pack

# Characters of a C function from which on kernels that differ in numbers share it, by `--optimize`. Short functions are
# made shorter still by the compiler if it knows the numbers.
SHARED_FROM = {"speed": 1 << 30, "balanced": 3000, "size": 0}

INTRINSIC = r"\b__\w+|\bv\w+q_\w+"  # of arm_acle.h and arm_mve.h


@dataclass(frozen=True)
class Use:
    """An op's kernel where it stands in the plan. `rolled`: the run that it is part of."""

    step: int
    op: Op
    kernel: Kernel
    rolled: Rolled | None


@dataclass(frozen=True)
class Function:
    """A C function and the ops that call it."""

    name: str
    text: str
    users: tuple[str, ...]  # a comment line each


@dataclass(frozen=True)
class Roll:
    """A rolled run: the order of calls as numbers of its ops, and their calls."""

    step: int
    order: tuple[Line, ...]
    calls: tuple[Call, ...]
    take: str = ""  # where a row that the application brings goes; empty if it brings none

    @property
    def order_bytes(self) -> int:
        return sum(line.bytes for line in self.order)


@dataclass(frozen=True)
class Program:
    plan: Plan
    weights: Weights
    functions: tuple[Function, ...]
    steps: tuple[Call | Roll | Loop, ...]
    helpers: tuple[str, ...]


def program(plan: Plan) -> Program:
    """Choose names, share equal kernels, pack the constants, print the calls."""
    uses = _shared(plan, [use for step, section in enumerate(plan.steps) for use in _uses(plan, step, section)])
    weights = pack(constant for use in uses for constant in use.kernel.constants)
    names = _names(plan, uses)
    functions, printed = [], set[str]()
    for use, name in zip(uses, names, strict=True):
        if name not in printed:
            printed.add(name)
            users = tuple(_user(plan, other) for other, n in zip(uses, names, strict=True) if n == name)
            functions.append(Function(name, _function(plan, use, name), users))
    calls = [_call(plan, use, name, weights) for use, name in zip(uses, names, strict=True)]
    steps: list[Call | Roll | Loop] = []
    at = 0
    for step, section in enumerate(plan.steps):
        mine = tuple(calls[at : at + len(section.ops)])
        at += len(section.ops)
        steps.append(_roll(plan, step, section.rolled, mine) if section.rolled else mine[0])
    if plan.fused is not None and plan.clocks is None:
        names_of, places = offset_names(plan), plan.places
        steps = looped(steps, {names_of[n]: places[n].offset for n in names_of if n in places})
    return Program(plan, weights, tuple(functions), tuple(steps), _helpers(functions, plan.graph.arithmetic))


def _uses(plan: Plan, step: int, section: Section) -> list[Use]:
    kernels = [kernel_of(op, plan.graph, form) for op, form in zip(section.ops, section.forms, strict=True)]
    return [Use(step, op, kernel, section.rolled) for op, kernel in zip(section.ops, kernels, strict=True)]


def _shared(plan: Plan, uses: list[Use]) -> list[Use]:
    """The uses with kernels that share C functions, as far as that was asked for."""
    kinds = [tuple(_parameters(plan, use)) for use in uses]
    kernels = shared(
        [use.kernel for use in uses],
        kinds,
        lambda kernel: _printed(plan, uses[0].op, kernel, ""),
        SHARED_FROM[plan.request.optimize],
    )
    return [replace(use, kernel=kernel) for use, kernel in zip(uses, kernels, strict=True)]


def _activations(plan: Plan, op: Op) -> list[Tensor]:
    return [plan.graph.tensors[n] for n in op.inputs if not plan.graph.tensors[n].constant]


def _names(plan: Plan, uses: Iterable[Use]) -> list[str]:
    """A C name for each kernel; equal kernels get the same, others never do."""
    known: dict[object, str] = {}
    names = []
    for use in uses:
        key = _identity(plan, use)
        if key not in known:
            stem = use.kernel.stem + ("_row" if use.rolled and not use.kernel.placed else "")
            count = sum(name == stem or name.startswith(f"{stem}_v") for name in known.values())
            known[key] = f"{stem}_v{count + 1}" if count else stem
        names.append(known[key])
    return names


def _identity(plan: Plan, use: Use) -> object:
    """What makes a kernel distinct: the template, the numbers printed into it, and the types of its parameters."""
    types = tuple(kind for kind, _ in _parameters(plan, use))
    return use.kernel.template, tuple(sorted(use.kernel.shape.items())), types, tuple(use.kernel.scalars)


def _parameters(plan: Plan, use: Use) -> list[tuple[str, str]]:
    """C type and name of each parameter, in the order that `Kernel` documents."""
    kernel, read = use.kernel, _activations(plan, use.op)
    single = len(read) + sum(c.name.startswith("x") for c in kernel.constants) == 1
    names = ["x"] if single else [f"x{i}" for i in range(len(read))]
    y = plan.graph.result(use.op)
    found = [(f"const {C_TYPES[t.dtype]} *", name) for t, name in zip(read, names, strict=True)]
    found.append((f"{C_TYPES[y.dtype]} *", "y"))
    found += [("int32_t ", "row")] if use.rolled and not kernel.placed else []
    found += [(f"const {C_TYPES[str(c.data.dtype)]} *", c.name) for c in kernel.constants]
    found += [("float " if isinstance(v, float) else "int32_t ", n) for n, v in kernel.scalars.items()]
    return [*found, ("int8_t *", "scratch")] if kernel.scratch else found


def _function(plan: Plan, use: Use, name: str) -> str:
    words = [kind + parameter for kind, parameter in _parameters(plan, use)]
    once = "EB_ONCE " if any(isinstance(v, Letter) for v in use.kernel.shape.values()) else ""
    return _printed(plan, use.op, use.kernel, _wrapped(f"{once}static void {name}(", words, ")"))


def _printed(plan: Plan, op: Op, kernel: Kernel, signature: str) -> str:
    read, y = _activations(plan, op), plan.graph.result(op)
    view = {
        "s": SimpleNamespace(**kernel.shape),
        "signature": signature,
        "item": C_TYPES[read[0].dtype],
        "y_item": C_TYPES[y.dtype],
        "acc": "float" if y.dtype == "float32" else "int32_t",
    }
    return environment().get_template(kernel.template).render(**view).strip() + "\n"


def _helpers(functions: Iterable[Function], arithmetic: str) -> tuple[str, ...]:
    """Macros of helpers.c.j2 that the functions need, in the file's order: those that define what is used, and so on.

    eb_requantize and eb_round have one name and a macro for each arithmetic.
    """
    module = environment().get_template("helpers.c.j2").module
    other = {"tflite": "onnx", "onnx": "tflite"}[arithmetic]
    texts = {m: str(getattr(module, m)()) for m in _macros("helpers.c.j2") if not m.endswith(other)}
    defines = {m: _defined(t) for m, t in texts.items()}
    text, needed = "".join(f.text for f in functions), set[str]()
    while True:
        used = set(re.findall(rf"\b(?:EB|eb)_\w+|{INTRINSIC}", text + "".join(texts[m] for m in needed)))
        more = {m for m, names in defines.items() if names & used}
        if more == needed:
            return tuple(m for m in texts if m in needed)
        needed = more


def _defined(text: str) -> set[str]:
    """Names of ours that a piece of C defines, and those of an included header that it lists in a comment."""
    ours = re.findall(r"^(?:#define |\w.*[ *])((?:EB|eb)_\w+)", text, re.M)
    return {*ours, *re.findall(INTRINSIC, "".join(re.findall(r"^#include.*", text, re.M)))}


def _macros(template: str) -> list[str]:
    """Names of a template's macros in the order of the file."""
    loader = environment().loader
    assert loader is not None
    return re.findall(r"{% macro (\w+)\(", loader.get_source(environment(), template)[0])


def _wrapped(head: str, words: list[str], tail: str, width: int = 110) -> str:
    """`head` and the words between commas, broken into lines that align behind the head."""
    lines, line = [], head
    for i, word in enumerate(words):
        piece = word + ("," if i + 1 < len(words) else tail)
        if len(line) + len(piece) > width and line.strip() and line != head:
            lines.append(line.rstrip())
            line = " " * len(head)
        line += piece + " "
    return "\n".join([*lines, line.rstrip()])


def _user(plan: Plan, use: Use) -> str:
    """Name, shapes, step and lifetime of an op that calls a kernel."""
    y = next(b for b in plan.buffers if b.tensor == use.op.outputs[0])
    shapes = ", ".join(map(shape_text, _activations(plan, use.op))), shape_text(plan.graph.result(use.op))
    kept = f"ring of {y.rows} rows" if y.rows > 1 else "one row kept" if y.rows else f"result lives to step {y.last}"
    return f"{comment(use.op.name)}: {shapes[0]} -> {shapes[1]}, step {use.step}, {kept}"


def _call(plan: Plan, use: Use, name: str, weights: Weights) -> Call:
    kernel, y = use.kernel, plan.graph.result(use.op)
    placed = [*(_activations(plan, use.op) if kernel.placed else []), y]
    at_row = {t.name: _row_offset(plan, use.rolled, t) for t in placed} if use.rolled else {}
    places = [address(plan, t) + at_row.get(t.name, "") for t in (*_activations(plan, use.op), y)]
    places += ["row"] if use.rolled and not kernel.placed else []
    constants = [f"WEIGHTS({C_TYPES[str(c.data.dtype)]}, {weights.offset(c)})" for c in kernel.constants]
    scalars = [f"/* {n} */ {literal(v)}" for n, v in kernel.scalars.items()]
    groups = [places, constants, scalars]
    if kernel.scratch:
        place = plan.places[scratch_name(y.name)]
        groups.append([f"{at_macro(plan, place.memory)}(int8_t, {place.offset})"])
    words = [", ".join(group) for group in groups if group]
    lines = [word + ("," if i + 1 < len(words) else "") for i, word in enumerate(words)]
    live = "" if use.rolled else f"; {plan.schedule.profile[use.step]} B live"
    return Call(f"{use.op.kind} {comment(use.op.name)}{live}", name, tuple(lines))


def address(plan: Plan, t: Tensor) -> str:
    """A pointer to a tensor, or to the ring that it is."""
    root = plan.rolling.storage[t.name]
    home = next((s.rolled.inside[root] for s in plan.steps if s.rolled and root in s.rolled.inside), root)
    macro = at_macro(plan, plan.places[home].memory)
    start = view_starts(plan.graph).get(t.name, 0)
    return f"{macro}({C_TYPES[t.dtype]}, {offset_names(plan)[root]}{f' + {start}' if start else ''})"


def _row_offset(plan: Plan, rolled: Rolled, t: Tensor) -> str:
    """What to add to the place of a tensor for that of the row; a reduction writes the whole result."""
    graph, root = plan.graph, plan.rolling.storage[t.name]
    if plan.rolling.modes.get(t.name) == "reduce":
        return ""
    rows = rolled.rings.get(rolled.inside.get(root, root), 0)
    size = row_bytes(graph, t.name) // (t.bytes // t.elements)
    at = f"row % {rows}" if rows > 1 else "row"
    return "" if rows == 1 else f" + {at} * {size}"


def _roll(plan: Plan, step: int, rolled: Rolled, calls: tuple[Call, ...]) -> Roll:
    order = tuple(lines([event.op for event in rolled.events]))
    streamed = plan.rolling.streamed
    if streamed is None or streamed not in rolled.rings:
        return Roll(step, order, calls)
    t = plan.graph.tensors[streamed]
    return Roll(step, order, calls, address(plan, t) + _row_offset(plan, rolled, t))
