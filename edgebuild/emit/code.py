"""The model's C: one function for each distinct kernel, and the invoke function, which is the schedule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import ops
from ..explore import Plan
from ..ir import Op, Tensor
from ..ops.base import C_TYPES, WHOLE, Kernel
from .environment import environment, render
from .storage import Weights, arenas, pack

HELPERS = {  # macro of helpers.c.j2 -> those it calls; printed in this order
    "clamp": (),
    "clamp_float": (),
    "taps": (),
    "high_multiply": (),
    "right_shift": (),
    "round_half_even": (),
    "requantize_tflite": ("high_multiply", "right_shift"),
    "requantize_onnx": ("round_half_even",),
    "reciprocal": ("high_multiply",),
    "exp": (),
    "round_tflite": ("clamp_float",),
    "round_onnx": ("clamp_float",),
}


@dataclass(frozen=True)
class Function:
    """A C function and the steps that call it."""

    name: str
    text: str
    users: tuple[str, ...]  # a comment line each


@dataclass(frozen=True)
class Call:
    """A step of the invoke function."""

    comment: str
    function: str
    lines: tuple[str, ...]  # arguments


@dataclass(frozen=True)
class Program:
    plan: Plan
    weights: Weights
    functions: tuple[Function, ...]
    calls: tuple[Call, ...]
    helpers: tuple[str, ...]


def program(plan: Plan) -> Program:
    """Choose names, share equal kernels, pack the constants, print the calls."""
    kernels = [_kernel(op, plan) for op in plan.steps]
    weights = pack(constant for kernel in kernels for constant in kernel.constants)
    names = _names(plan.steps, kernels, plan)
    functions, printed = [], set[str]()
    for op, kernel, name in zip(plan.steps, kernels, names, strict=True):
        if name not in printed:
            printed.add(name)
            users = tuple(_user(plan, i) for i, other in enumerate(names) if other == name)
            functions.append(Function(name, _function(op, kernel, name, plan), users))
    calls = tuple(
        _call(plan, step, op, kernel, name, weights)
        for step, (op, kernel, name) in enumerate(zip(plan.steps, kernels, names, strict=True))
    )
    return Program(plan, weights, tuple(functions), calls, _helpers(functions, plan.graph.arithmetic))


def _kernel(op: Op, plan: Plan) -> Kernel:
    make = ops.SPECS[op.kind].kernel
    assert make is not None, f"{op.kind} has no kernel"
    return make(op, plan.graph, WHOLE)


def _activations(op: Op, plan: Plan) -> list[Tensor]:
    return [plan.graph.tensors[n] for n in op.inputs if not plan.graph.tensors[n].constant]


def _names(steps: Iterable[Op], kernels: Iterable[Kernel], plan: Plan) -> list[str]:
    """A C name for each step's kernel; equal kernels get the same, others never do."""
    known: dict[object, str] = {}
    taken: set[str] = set()
    for op, kernel in zip(steps, kernels, strict=True):
        key = _identity(op, kernel, plan)
        if key not in known:
            count, name = 1, kernel.stem
            while name in taken:
                count += 1
                name = f"{kernel.stem}_v{count}"
            known[key] = name
            taken.add(name)
    return [known[_identity(op, kernel, plan)] for op, kernel in zip(steps, kernels, strict=True)]


def _identity(op: Op, kernel: Kernel, plan: Plan) -> object:
    types = tuple(t.dtype for t in (*_activations(op, plan), plan.graph.result(op)))
    constants = tuple((c.name, str(c.data.dtype)) for c in kernel.constants)
    return kernel.template, tuple(sorted(kernel.shape.items())), types, constants, tuple(kernel.scalars)


def _parameters(op: Op, kernel: Kernel, plan: Plan) -> list[tuple[str, str]]:
    """C type and name of each parameter, in the order that `Kernel` documents."""
    read = _activations(op, plan)
    single = len(read) + sum(c.name.startswith("x") for c in kernel.constants) == 1
    names = ["x"] if single else [f"x{i}" for i in range(len(read))]
    y = plan.graph.result(op)
    found = [(f"const {C_TYPES[t.dtype]} *", name) for t, name in zip(read, names, strict=True)]
    found.append((f"{C_TYPES[y.dtype]} *", "y"))
    found += [(f"const {C_TYPES[str(c.data.dtype)]} *", c.name) for c in kernel.constants]
    found += [("float " if isinstance(v, float) else "int32_t ", n) for n, v in kernel.scalars.items()]
    return [*found, ("int8_t *", "scratch")] if kernel.scratch else found


def _function(op: Op, kernel: Kernel, name: str, plan: Plan) -> str:
    words = [kind + parameter for kind, parameter in _parameters(op, kernel, plan)]
    read, y = _activations(op, plan), plan.graph.result(op)
    view = {
        "s": SimpleNamespace(**kernel.shape),
        "signature": _wrapped(f"static void {name}(", words, ")"),
        "item": C_TYPES[read[0].dtype],
        "y_item": C_TYPES[y.dtype],
        "acc": "float" if y.dtype == "float32" else "int32_t",
    }
    return environment().get_template(kernel.template).render(**view).strip() + "\n"


def _helpers(functions: Iterable[Function], arithmetic: str) -> tuple[str, ...]:
    """Names of the helpers that the functions call, and of those that these call.

    eb_requantize and eb_round have one name and a body for each arithmetic.
    """
    text = "".join(f.text for f in functions)
    called = {"first_tap": "taps", "requantize": f"requantize_{arithmetic}", "round": f"round_{arithmetic}"}
    needed = {called.get(word, word) for word in re.findall(r"\beb_(\w+)\(", text)} & HELPERS.keys()
    while more := {d for h in needed for d in HELPERS[h]} - needed:
        needed |= more
    return tuple(h for h in HELPERS if h in needed)


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


def _shape(t: Tensor) -> str:
    dims = t.shape[1:] if len(t.shape) > 1 and t.shape[0] == 1 else t.shape
    return "x".join(map(str, dims)) or "1"


def _user(plan: Plan, step: int) -> str:
    op = plan.steps[step]
    y = next(b for b in plan.buffers if b.tensor == op.outputs[0])
    shapes = ", ".join(map(_shape, _activations(op, plan))), _shape(plan.graph.result(op))
    return f"{comment(op.name)}: {shapes[0]} -> {shapes[1]}, step {step}, result lives to step {y.last}"


def _call(plan: Plan, step: int, op: Op, kernel: Kernel, name: str, weights: Weights) -> Call:
    places = [_at(plan, t) for t in (*_activations(op, plan), plan.graph.result(op))]
    constants = [f"WEIGHTS({C_TYPES[str(c.data.dtype)]}, {weights.offset(c)})" for c in kernel.constants]
    scalars = [f"/* {n} */ {literal(v)}" for n, v in kernel.scalars.items()]
    groups = [places, constants, scalars]
    if kernel.scratch:
        place = plan.scratch[op.outputs[0]]
        groups.append([f"{_at_macro(plan, place.memory)}(int8_t, {place.offset})"])
    words = [", ".join(group) for group in groups if group]
    lines = [word + ("," if i + 1 < len(words) else "") for i, word in enumerate(words)]
    live = plan.schedule.profile[step]
    return Call(f"{step}  {op.kind} {comment(op.name)}; {live} B live", name, tuple(lines))


def _at(plan: Plan, t: Tensor) -> str:
    macro = _at_macro(plan, plan.place(t.name).memory)
    return f"{macro}({C_TYPES[t.dtype]}, {offset_names(plan)[t.name]})"


def _at_macro(plan: Plan, memory: str) -> str:
    return "AT" if memory == _first_memory(plan) else f"AT_{memory.upper()}"


def _first_memory(plan: Plan) -> str:
    return next((m for m, height in plan.layout.heights.items() if height), next(iter(plan.layout.heights)))


def literal(value: int | float) -> str:
    """A C literal of type int32_t or float."""
    if not isinstance(value, float):
        return str(value) if value > -(2**31) else "(-2147483647 - 1)"
    text = np.format_float_scientific(np.float32(value), unique=True, trim="0", exp_digits=1)
    return f"{text}f"


def comment(text: str) -> str:
    """A name that may stand in a C comment; of TFLite's lists of fused names the first."""
    return text.split(";")[0].replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")


def identifier(text: str) -> str:
    """The nearest C identifier."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or "tensor"


def offset_names(plan: Plan) -> dict[str, str]:
    """The constant that holds each tensor's offset: input, kind and step of the op, never two alike."""
    prefix, graph = plan.name.upper(), plan.graph
    names = {n: f"{prefix}_IN" + (f"_{i}" if len(graph.inputs) > 1 else "") for i, n in enumerate(graph.inputs)}
    names |= {op.outputs[0]: f"{prefix}_{op.kind.upper()}_{step}" for step, op in enumerate(plan.steps)}
    for b in plan.buffers:
        if b.view_of:
            names[b.tensor] = names[b.view_of]
    return names


def access_functions(plan: Plan) -> dict[str, str]:
    """Name of the C function that gives the address of each input and output."""
    found = {}
    for what, names in (("input", plan.graph.inputs), ("output", plan.graph.outputs)):
        taken: set[str] = set()
        for name in names:
            rest = identifier(name.split(";")[0])
            while rest in taken:
                rest += "_"
            taken.add(rest)
            found[name] = f"{plan.name}_{what}" + (f"_{rest}" if len(names) > 1 else "")
    return found


@dataclass(frozen=True)
class Port:
    """An input or output as the header shows it."""

    label: str
    function: str
    macro: str
    type: str
    tensor: Tensor
    at: str
    shape: str
    scale: str | None
    zero: int | None


def _ports(plan: Plan, names: Iterable[str]) -> list[Port]:
    functions, found = access_functions(plan), []
    for name in names:
        t = plan.graph.tensors[name]
        scale, zero = (literal(float(t.quant.scale[0])), t.quant.zero_point[0]) if t.quant else (None, None)
        macro = functions[name].upper()
        shape = "x".join(map(str, t.shape)) or "1"
        found.append(Port(comment(name), functions[name], macro, C_TYPES[t.dtype], t, _at(plan, t), shape, scale, zero))
    return found


def _frame(plan: Plan) -> dict[str, Any]:
    """What both header and source show."""
    caller = plan.request.arena == "caller"
    return {
        "name": plan.name,
        "prefix": plan.name.upper(),
        "file": comment(plan.graph.file),
        "target": plan.target.name,
        "caller": caller,
        "argument": "void *arena" if caller else "void",
        "arena_bytes": plan.arena_bytes,
        "inputs": _ports(plan, plan.graph.inputs),
        "outputs": _ports(plan, plan.graph.outputs),
        "macs": ops.macs(plan.graph),
    }


def header(p: Program) -> str:
    return render("model.h.j2", **_frame(p.plan))


def source(p: Program) -> str:
    plan = p.plan
    found = arenas(plan) or {_first_memory(plan): ("arena", plan.arena_bytes)}
    macros = [(_at_macro(plan, memory), symbol, size) for memory, (symbol, size) in found.items()]
    body = "".join(f.text for f in p.functions)
    return render(
        "model.c.j2",
        functions=p.functions,
        calls=p.calls,
        helpers=p.helpers,
        arenas=macros,
        offsets=_offsets(plan, {memory: size for memory, (_, size) in found.items()}),
        uses_memcpy="memcpy(" in body,
        uses_weights=bool(p.weights.offsets),
        weights_bytes=len(p.weights.blob),
        peak=plan.schedule.profile.index(plan.schedule.peak) if plan.steps else 0,
        **_frame(plan),
    )


def _offsets(plan: Plan, sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Rows of the table of offsets: one for each tensor that is not a view."""
    names, rows = offset_names(plan), []
    for b in plan.buffers:
        if b.view_of is None:
            t = plan.graph.tensors[b.tensor]
            note = f"{_shape(t)}, steps {b.first} to {b.last}: {comment(b.tensor)}"
            note += f", over {comment(b.overlaps)}" if b.overlaps else ""
            rows.append({"name": names[b.tensor], "offset": b.place.offset, "bytes": b.bytes, "note": note})
            rows[-1]["arena"] = sizes[b.place.memory]
    return rows


def clock_header(plan: Plan) -> str:
    return render("clock.h.j2", **_frame(plan))
