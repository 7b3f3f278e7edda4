"""A plan as C: which functions there are, who calls them, and with what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from ...base.templates import fitted, times
from ...base.text import wrapped
from .. import kernels
from ..ir import Op, Tensor
from ..kernels import Helper
from ..kernels.costs import SHARED_FROM, printed
from ..kernels.offload import engine_call
from ..ops.base import C_TYPES, Constant, FourBytes, Kernel
from ..plan.printed import Moves, RolledCalls, Share, StreamedRun, TiledOp
from ..plan.search import Plan
from ..plan.section import Section, scratch_name
from . import addresses
from .addresses import LARGEST, MATHS, at_macro, comment, scalar, scratch_constant, shape_text
from .call_loops import Arg, Call, Letter, Loop, Step, looped, shared
from .runs import rolled_step, stream_tables, streamed_step, tile_tables, tiled_step
from .weights_file import ALIGN, Weights, pack

if TYPE_CHECKING:
    from ..plan.dma.tiles import MappedOp


@dataclass(frozen=True)
class Use:
    """An op's kernel where it stands in the plan. `rolled`: the run that it is part of."""

    step: int
    op: Op
    kernel: Kernel
    rolled: RolledCalls | None
    run: StreamedRun | None = None  # in the first memory level
    share: Share | None = None  # of a row of the run


@dataclass(frozen=True)
class Function:
    """A C function and the ops that call it."""

    name: str
    prototype: str
    text: str
    uses: frozenset[str]  # names of helpers, and memcpy
    users: tuple[str, ...]  # a comment line each


@dataclass(frozen=True)
class Program:
    plan: Plan
    weights: Weights
    constants: tuple[addresses.Named, ...]  # places in the weights
    functions: tuple[Function, ...]
    steps: tuple[Step, ...]
    definitions: tuple[str, ...]  # of the functions of steps
    helpers: tuple[Helper, ...]
    engines: tuple[tuple[str, str], ...]  # functions of engines that kernels call, and the patterns that they take


def program(plan: Plan) -> Program:
    """Choose names, share equal kernels, pack the constants, print the calls."""
    uses = _shared(plan, [use for step, section in enumerate(plan.steps) for use in kernel_uses(plan, step, section)])
    weights = pack(_constants(plan, uses), max(ALIGN, plan.target.dma_align if plan.moves else 1))
    names = _names(plan, uses)
    functions, sharing = [], defaultdict[str, list[Use]](list)
    for use, name in zip(uses, names, strict=True):
        sharing[name].append(use)
    for name, sharers in sharing.items():
        text, used = _function(plan, sharers[0], name)
        used = used.union(*map(_limits, sharers))
        users = tuple(_user(plan, use) for use in sharers)
        functions.append(Function(name, _prototype(plan, sharers[0], name), text, used, users))
    steps = _steps(plan, uses, names, weights)
    constants = _named(plan, uses, weights, {arg.base for step in steps for call in step.calls for arg in call.args})
    helpers = kernels.used_helpers((name for f in functions for name in f.uses), plan.graph.arithmetic)
    engines = sorted({call for use in uses if (call := engine_call(use.kernel))})
    definitions = _definitions(plan, steps)
    return Program(plan, weights, constants, tuple(functions), steps, definitions, helpers, tuple(engines))


def _steps(plan: Plan, uses: Sequence[Use], names: Sequence[str], weights: Weights) -> tuple[Step, ...]:
    steps: list[Call | Loop | Step] = []
    of_step: list[list[tuple[Use, str]]] = [[] for _ in plan.steps]
    for use, name in zip(uses, names, strict=True):
        of_step[use.step].append((use, name))
    for step, (section, used) in enumerate(zip(plan.steps, of_step, strict=True)):
        moved = section.moves
        if isinstance(moved, StreamedRun):
            rows = [[_call(plan, use, n, weights) for use, n in used if use.op is op] for op in moved.ops]
            steps.append(streamed_step(plan, step, moved, rows))
        elif isinstance(moved, TiledOp):
            named = [(use.kernel, name) for use, name in used]
            steps.append(tiled_step(plan, step, cast("MappedOp", moved), named, weights))
        else:
            calls = [_call(plan, use, name, weights) for use, name in used]
            steps.append(rolled_step(plan, step, section.rolled, calls) if section.rolled else calls[0])
    loops = plan.fused is not None and plan.clocks is None and not plan.request.stepwise
    return tuple(map(_as_step, looped(steps) if loops else steps))


def _as_step(step: Call | Loop | Step) -> Step:
    if isinstance(step, Call):
        return Step(step.comment, step.text, (step,))
    return Step("", step.text, step.calls) if isinstance(step, Loop) else step


def _definitions(plan: Plan, steps: Sequence[Step]) -> tuple[str, ...]:
    """The functions of steps, each kind behind what it has in common: rolled runs, tiles, runs in the first level."""
    definitions = list[str]()
    for kind, tables in (("", None), ("tiles", tile_tables), ("streams", stream_tables)):
        texts = [step.definition for step in steps if step.function and step.tables == kind]
        definitions += [tables(plan), *texts] if tables and texts else texts
    return tuple(definitions)


def _named(plan: Plan, uses: Iterable[Use], weights: Weights, used: Container[str]) -> tuple[addresses.Named, ...]:
    """Names of places in the weights, those that calls use."""
    offsets = []
    for use in uses:
        for c in use.kernel.constants:
            shape = "x".join(map(str, c.data.shape)) or "1"
            note = f"{shape} {c.data.dtype}{': ' if c.note else ''}{c.note}"
            if (name := _constant_name(plan, use, c)) in used:
                offsets.append(addresses.Named(name, weights.offset(c), note))
    return (*offsets, *addresses.blocks(plan, weights).values())


def _constant_name(plan: Plan, use: Use, constant: Constant) -> str:
    return f"{plan.offset_names[use.op.outputs[0]]}_{constant.name.upper()}"


def _constants(plan: Plan, uses: Iterable[Use]) -> Iterator[Constant]:
    """All constants in order; those of moved ops in the blocks in which they are fetched."""
    for use in uses:
        if isinstance(moved := plan.steps[use.step].moves, Moves):
            yield from (
                b for b in addresses.fetched(plan, use.step, moved) if b.data.nbytes
            )  # equal ones are packed once
        else:
            yield from use.kernel.constants


def kernel_uses(plan: Plan, step: int, section: Section) -> list[Use]:
    """The kernels of a step in the order of its ops, each for an op or a part of it."""
    moved = section.moves
    if isinstance(moved, StreamedRun):
        op_parts = zip(moved.ops, moved.parts, strict=True)
        return [Use(step, op, share.kernel, moved.seen, moved, share) for op, parts in op_parts for share in parts]
    if isinstance(moved, TiledOp):
        return [Use(step, moved.op, kernel, None) for kernel in moved.kernels]
    formed = zip(section.ops, section.forms, strict=True)
    return [Use(step, op, kernels.kernel_of(op, plan.graph, form), section.rolled) for op, form in formed]


def _shared(plan: Plan, uses: list[Use]) -> list[Use]:
    """The uses with kernels that share C functions, as far as that was asked for, or `--flash` wants it."""
    kinds = [tuple(_parameters(plan, use)) for use in uses]
    merged = shared(
        [use.kernel for use in uses],
        kinds,
        lambda kernel: _printed(plan, uses[0].op, kernel, "")[0],
        SHARED_FROM[plan.form.wish.optimize],
    )
    return [replace(use, kernel=kernel) for use, kernel in zip(uses, merged, strict=True)]


def _activations(plan: Plan, op: Op) -> list[Tensor]:
    return [plan.graph.tensors[n] for n in op.inputs if not plan.graph.tensors[n].constant]


def _names(plan: Plan, uses: Iterable[Use]) -> list[str]:
    """A C name for each kernel; equal kernels get the same, others never do."""
    by_identity: dict[object, str] = {}
    names = []
    for use in uses:
        key = _identity(plan, use)
        if key not in by_identity:
            stem = use.kernel.stem + ("_row" if use.rolled and not use.kernel.placed else "")
            stem += "_values" if stem in MATHS else ""
            count = sum(name == stem or name.startswith(f"{stem}_v") for name in by_identity.values())
            by_identity[key] = f"{stem}_v{count + 1}" if count else stem
        names.append(by_identity[key])
    return names


def _identity(plan: Plan, use: Use) -> object:
    """Identity of a kernel: the template, the numbers printed into it, and the types of its parameters."""
    types = tuple(kind for kind, _ in _parameters(plan, use))
    return use.kernel.template, tuple(sorted(use.kernel.shape.items())), types, tuple(use.kernel.scalars)


def _parameters(plan: Plan, use: Use) -> list[tuple[str, str]]:
    """C type and name of each parameter, in the order that `Kernel` documents."""
    kernel, read = use.kernel, _activations(plan, use.op)
    single = len(read) + sum(c.name.startswith("x") for c in kernel.constants) == 1
    names = ["x"][: len(read)] if single else [f"x{i}" for i in range(len(read))]
    y = plan.graph.result(use.op)
    parameters = [(f"const {C_TYPES[t.dtype]} *", name) for t, name in zip(read, names, strict=True)]
    parameters.append((f"{C_TYPES[y.dtype]} *", "y"))
    parameters += [("int32_t ", "row")] if use.rolled and (kernel.counted or not kernel.placed) else []
    parameters += [(parameters[0][0], "newest"), ("int32_t ", "kept")] if _finds_newest(use) else []
    parameters += [(f"const {C_TYPES[str(c.data.dtype)]} *", c.name) for c in kernel.constants]
    parameters += [("float " if isinstance(v, float) else "int32_t ", n) for n, v in kernel.scalars.items()]
    return [*parameters, ("int8_t *", "scratch")] if kernel.scratch else parameters


def _finds_newest(use: Use) -> bool:
    """Whether the kernel finds the newest row of its operand by itself."""
    return use.rolled is not None and not use.kernel.placed and use.kernel.shape.get("separate") is True


def _prototype(plan: Plan, use: Use, name: str) -> str:
    words = [kind + parameter for kind, parameter in _parameters(plan, use)]
    return wrapped(f"static {_returns(use)} {name}(", words, ");")


def _function(plan: Plan, use: Use, name: str) -> tuple[str, frozenset[str]]:
    """The function's definition and the names of helpers that it uses."""
    words = [kind + parameter for kind, parameter in _parameters(plan, use)]
    once = ["EB_ONCE"] if any(isinstance(v, Letter) for v in use.kernel.shape.values()) else []
    head = " ".join([*once, f"static {_returns(use)} {name}("])
    signature = wrapped(head, words, ")")
    text, used = _printed(plan, use.op, use.kernel, signature)
    before, after = text.split(f"{signature}\n{{\n")  # the fence says that the function writes: see EB_STEP
    return fitted(f"{before}{signature}\n{{\n    EB_STEP();\n{after}"), used.union(once)


def _limits(use: Use) -> set[str]:
    """Names of the largest floats among the arguments of a call; calls of one function may have others."""
    return {scalar(v).removeprefix("-") for v in use.kernel.scalars.values()} & set(LARGEST.values())


def _returns(use: Use) -> str:
    return "int" if use.kernel.fails else "void"


def _printed(plan: Plan, op: Op, kernel: Kernel, signature: str) -> tuple[str, frozenset[str]]:
    """A kernel's template as C, and the names in it that others define."""
    read, y = _activations(plan, op), plan.graph.result(op)
    item = C_TYPES[(*read, *plan.graph.operands(op), y)[0].dtype]
    return printed(kernel, signature, item, C_TYPES[y.dtype], "float" if y.dtype == "float32" else "int32_t")


def _user(plan: Plan, use: Use) -> str:
    """Name, shapes, step and lifetime of an op that calls a kernel."""
    y = plan.results[use.op.outputs[0]]
    shapes = ", ".join(map(shape_text, _activations(plan, use.op))), shape_text(plan.graph.result(use.op))
    kept = f"ring of {y.rows} rows" if y.rows > 1 else "one row kept" if y.rows else f"result lives to step {y.last}"
    return f"{comment(use.op.name)}: {shapes[0]} -> {shapes[1]}, step {use.step}, {kept}"


def _call(plan: Plan, use: Use, name: str, weights: Weights) -> Call:
    kernel, y = use.kernel, plan.graph.result(use.op)
    sums = plan.rolling.modes[y.name] == "reduce"
    placed = [*(_activations(plan, use.op) if kernel.placed else []), *([] if sums else [y])]
    at_row = {t.name: addresses.row_offset(plan, use.rolled, t, sums) for t in placed} if use.rolled else {}
    where = partial(addresses.level1_address, plan, use.step, use.run) if use.run else partial(addresses.address, plan)
    places = [
        where(t, at_row.get(t.name, "") + _columns(use.share, t, t is y)) for t in (*_activations(plan, use.op), y)
    ]
    places = (
        addresses.with_separate_rows(plan, use.rolled, kernel, (*_activations(plan, use.op), y), places)
        if use.rolled
        else places
    )
    places += [Arg("row")] if use.rolled and (kernel.counted or not kernel.placed) else []
    places += addresses.newest_row_args(plan, _activations(plan, use.op)[0]) if _finds_newest(use) else []
    constants = _near_constants(plan, use) or [
        Arg(f"WEIGHTS({C_TYPES[str(c.data.dtype)]}, {{}})", 0, _constant_name(plan, use, c), weights.offset(c))
        for c in kernel.constants
    ]
    scalars = [
        Arg(f"/* {n} */ {scalar(v)}")
        if isinstance(v, float | FourBytes) or v <= -(2**31)
        else Arg(f"/* {n} */ {{}}", v)
        for n, v in kernel.scalars.items()
    ]
    groups = [places, *([c] for c in constants), scalars]
    if kernel.scratch and use.run:
        each = use.run.scratch_each[use.run.ops.index(use.op)]
        several = use.run.together * use.run.shares > 1 and plan.rolling.modes[y.name] != "reduce"
        core = f" + core * {each}" if several else ""
        at = addresses.run_places(plan, use.step, use.run)[y.name, addresses.SCRATCH]
        groups.append([Arg(f"{addresses.level1_macro(plan)}(int8_t, {{}}{core})", 0, at.name, at.offset)])
    elif kernel.scratch:
        place = plan.places[scratch_name(y.name)]
        macro = at_macro(plan, place.memory)
        groups.append([Arg(f"{macro}(int8_t, {{}})", 0, scratch_constant(plan, y), place.offset)])
    live = "" if use.rolled else f"; {plan.schedule.profile[use.step]} B live"
    called = tuple(tuple(group) for group in groups if group)
    return Call(f"{use.op.kind} {comment(use.op.name)}{live}", name, called, kernel.fails)


def _columns(share: Share | None, t: Tensor, result: bool) -> str:
    """C for where a part of a row begins in a tensor, behind the begin of the row."""
    if share is None or not share.width:
        return ""
    step, before = (share.width, 0) if result else (share.step, share.before)
    channels = t.shape[-1]
    text = f" + {times('part', step * channels)}" if step and share.past > 1 else ""
    return text + (f" - {before * channels}" if before else "")


def _near_constants(plan: Plan, use: Use) -> list[Arg]:
    """The constants of an op of a run in the first level."""
    if use.run is None:
        return []
    offsets, y = addresses.run_places(plan, use.step, use.run), use.op.outputs[0]
    pairs = [(C_TYPES[str(c.data.dtype)], offsets[y, c.name]) for c in use.kernel.constants]
    return [Arg(f"{addresses.level1_macro(plan)}({kind}, {{}})", 0, at.name, at.offset) for kind, at in pairs]
