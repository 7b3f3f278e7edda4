"""Kernel selection under flash: a kernel gives way to a slower one where only it needs a large function or table.

Kernels of a layer differ by a few percent in speed. The assembly that they call takes up to four kilobytes, once for
all layers that call it. So the flash of a kernel depends on the kernels of all other layers. Some
kernels compute the values that others read from a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from zlib import crc32

from ..ir import Graph, Op
from ..kernels import OF_CALL, code_bytes, kernel_of
from ..ops.base import Form, Kernel
from .memory.problem import aligned
from .section import Section, cost, scratch_name

# Share of all instructions that a byte of flash is worth, by `--optimize`: a kilobyte is 1 % as a rule.
WORTH = {"speed": 0.0, "balanced": 0.01 / 1024, "size": 0.05 / 1024}
MAX_SLOWER = 0.02  # share of all instructions that the selection may add, except for `size`
# Most cost, as a multiple, of a layer whose 4-bit weights stay two to a byte. `size` takes them at any cost.
NIBBLES = {"speed": 1.0, "balanced": 1.34}


@dataclass(frozen=True)
class FormedKernel:
    """A kernel and its form."""

    form: Form
    kernel: Kernel

    @property
    def function(self) -> str:
        """The function in assembly that the kernel shares with others, if its shape names one."""
        return str(self.kernel.shape.get("function", ""))


@dataclass(frozen=True)
class Use:
    """An op's kernel in a plan. `alternatives` can replace it and need no more scratch."""

    step: int
    op: int
    calls: int
    kernel: FormedKernel
    alternatives: tuple[FormedKernel, ...]

    @property
    def key(self) -> tuple[int, int]:
        return self.step, self.op

    def cost(self, formed: FormedKernel) -> float:
        return self.calls * formed.kernel.cost


Chosen = Mapping[tuple[int, int], FormedKernel]  # by `Use.key`


def flash(graph: Graph, kernels: Sequence[Kernel], form: Form) -> int:
    """Estimated bytes of flash of kernels: code, and constants as laid out for the kernels, equal ones once."""
    constants = {(c.data.nbytes, crc32(c.data.tobytes())) for kernel in kernels for c in kernel.constants}
    return sum(size for size, _ in constants) + code_bytes(kernels, graph.arithmetic, form)


def flash_of(graph: Graph, steps: Sequence[Section], form: Form) -> int:
    """Estimated bytes of flash of steps: constants, code, call orders of rolled runs, and calls."""
    kernels = kernels_of(graph, steps)
    tables = sum(section.calls for section in steps if section.rolled)
    return flash(graph, kernels, form) + tables + OF_CALL * len(kernels)


def kernels_of(graph: Graph, steps: Sequence[Section]) -> list[Kernel]:
    """The kernel of each op, in the order of their steps."""
    return [kernel for section in steps for kernel in section.kernels(graph)]


def with_less_code(graph: Graph, steps: Sequence[Section], form: Form, limit: float = inf) -> tuple[Section, ...]:
    """The steps with other kernels where the flash saved is worth more than the instructions added.

    `limit`: on the cost of all steps.
    """
    optimize = form.wish.optimize
    worth, total = WORTH[optimize], cost(steps)
    most = min(total * (MAX_SLOWER if optimize != "size" else 1.0), limit - total)
    uses = [use for use in _uses(graph, steps, _equivalent_kernels) if use.calls]
    chosen, spent = {use.key: use.kernel for use in uses}, 0.0
    packed = {use.key: _with_nibbles(use, NIBBLES.get(optimize, inf)) for use in uses}
    if packed != chosen and _flash(graph, packed, form) < _flash(graph, chosen, form):
        chosen = packed
    if not worth:
        return _with_chosen(steps, uses, chosen)
    while True:
        options = (*_without_function(uses, chosen), *_without_table(uses, chosen))
        changes = [
            (more - saved * worth * total, more, change)
            for saved, more, change in _savings(graph, uses, chosen, options, form)
            if more < saved * worth * total and spent + more <= most
        ]
        if not changes:
            return _with_chosen(steps, uses, chosen)
        _, more, change = min(changes, key=lambda each: each[0])
        chosen, spent = {**chosen, **change}, spent + more


def within_flash(graph: Graph, steps: Sequence[Section], form: Form, most: int) -> tuple[Section, ...]:
    """The steps with smaller kernels, until those take at most `most` bytes of flash or none is smaller.

    Greedy: each change costs the fewest instructions per byte of flash saved. At the end, changes that turned out to
    be unnecessary are undone.
    """
    uses = list(_uses(graph, steps, _smaller))
    chosen = {use.key: use.kernel for use in uses}
    while _flash(graph, chosen, form) > most:
        options = [*_without_function(uses, chosen), *_with_another(uses, chosen)]
        options += [{use.key: other} for use in uses for other in use.alternatives]
        changes = list(_savings(graph, uses, chosen, options, form))
        if not changes:  # all kernels for `--optimize size` at once: they share functions
            small = ((use.key, [formed for formed in use.alternatives if formed.form.small]) for use in uses)
            changes = list(_savings(graph, uses, chosen, [{key: of[0] for key, of in small if of}], form))
        if not changes:
            break
        chosen |= min(changes, key=lambda change: change[1] / change[0])[2]
    for use in sorted(uses, key=lambda use: use.cost(use.kernel) - use.cost(chosen[use.key])):
        if _flash(graph, without := {**chosen, use.key: use.kernel}, form) <= most:
            chosen = without
    return _with_chosen(steps, uses, chosen)


def _flash(graph: Graph, chosen: Chosen, form: Form) -> int:
    form = next((formed.form for formed in chosen.values() if formed.form.small), form)
    return flash(graph, [formed.kernel for formed in chosen.values()], form)


def _savings(
    graph: Graph, uses: Sequence[Use], chosen: Chosen, options: Iterable[Chosen], form: Form
) -> Iterator[tuple[int, float, Chosen]]:
    """Bytes of flash that each change saves, cost that it adds, and the change; only changes that save."""
    before = _flash(graph, chosen, form)
    for change in options:
        saved = before - _flash(graph, {**chosen, **change}, form)
        if saved > 0:
            yield saved, sum(u.cost(change[u.key]) - u.cost(chosen[u.key]) for u in uses if u.key in change), change


def _uses(
    graph: Graph, steps: Sequence[Section], others: Callable[[Graph, Op, FormedKernel], Iterator[FormedKernel]]
) -> Iterator[Use]:
    for step, section in enumerate(steps):
        for at, (op, form, calls) in enumerate(zip(section.ops, section.forms, section.calls_of, strict=True)):
            formed = FormedKernel(form, kernel_of(op, graph, form))
            fixed = form.engine is not None or form.granularity or form.choice
            yield Use(step, at, calls, formed, () if fixed else tuple(others(graph, op, formed)))


def _equivalent_kernels(graph: Graph, op: Op, formed: FormedKernel) -> Iterator[FormedKernel]:
    """Other kernels of the same form that can replace this one."""
    return _serving(formed, formed.form, formed.kernel.alternatives)


def _smaller(graph: Graph, op: Op, formed: FormedKernel) -> Iterator[FormedKernel]:
    """Other kernels of the op that can replace this one, including those for `--optimize size`."""
    yield from _equivalent_kernels(graph, op, formed)
    small = replace(formed.form, wish=replace(formed.form.wish, optimize="size"), variant="")
    first = kernel_of(op, graph, small)
    yield from _serving(formed, small, (first, *first.alternatives))


def _serving(formed: FormedKernel, form: Form, others: Iterable[Kernel]) -> Iterator[FormedKernel]:
    """Kernels of a form that can take the place of a kernel."""
    kernel = formed.kernel
    for other in others:
        same = (other.placed, other.counted) == (kernel.placed, kernel.counted)
        in_place = not formed.form.in_place or other.in_place == kernel.in_place
        if same and in_place and aligned(other.scratch) <= aligned(kernel.scratch):
            yield FormedKernel(replace(form, variant=other.variant), other)


def _with_nibbles(use: Use, most: float) -> FormedKernel:
    """The fastest kernel with 4-bit weights two to a byte, if at most `most` times the cost; else the op's own."""
    packed = [other for other in (use.kernel, *use.alternatives) if other.kernel.shape.get("nibbles")]
    best = min(packed, key=use.cost, default=use.kernel)
    return best if use.cost(best) <= most * use.cost(use.kernel) else use.kernel


def _without_function(uses: Sequence[Use], chosen: Chosen) -> Iterator[Chosen]:
    """For each function in use: all kernels that call it replaced by the fastest that need no additional function."""
    functions = {formed.function for formed in chosen.values()}
    for function in sorted(functions - {""}):
        change, left = dict[tuple[int, int], FormedKernel](), (functions - {function}) | {""}
        for use in uses:
            if chosen[use.key].function == function:
                others = [formed for formed in use.alternatives if formed.function in left]
                if not others:
                    break
                change[use.key] = min(others, key=lambda formed: formed.kernel.cost)
        else:
            yield change


def _with_another(uses: Sequence[Use], chosen: Chosen) -> Iterator[Chosen]:
    """For each function in use and each that is not: kernels that call the one replaced by ones that call the other."""
    functions = {formed.function for formed in chosen.values()}
    for function in sorted(functions - {""}):
        users = [use for use in uses if chosen[use.key].function == function]
        others = [{formed.function: formed for formed in reversed(use.alternatives)} for use in users]
        for other in sorted(set.intersection(*(set(those) for those in others)) - functions - {""}):
            yield {use.key: those[other] for use, those in zip(users, others, strict=True)}


def _without_table(uses: Sequence[Use], chosen: Chosen) -> Iterator[Chosen]:
    """For each kernel with constants: kernels without any, which compute the values of its table."""
    for use in uses:
        if chosen[use.key].kernel.constants:
            yield from ({use.key: formed} for formed in use.alternatives if not formed.kernel.constants)


def _with_chosen(steps: Sequence[Section], uses: Sequence[Use], chosen: Chosen) -> tuple[Section, ...]:
    sections = list(steps)
    for use in uses:
        formed, section = chosen[use.key], sections[use.step]
        if formed is not use.kernel:
            forms = (*section.forms[: use.op], formed.form, *section.forms[use.op + 1 :])
            more = use.calls * (formed.kernel.estimate - use.kernel.kernel.estimate)
            spent = section.cost + use.cost(formed) - use.cost(use.kernel)
            section = _with_scratch(section, section.ops[use.op], aligned(formed.kernel.scratch))
            sections[use.step] = replace(section, forms=forms, instructions=section.instructions + more, cost=spent)
    return tuple(sections)


def _with_scratch(section: Section, op: Op, size: int) -> Section:
    """The section with `size` bytes of scratch for an op; 0: without scratch."""
    name = scratch_name(op.outputs[0])
    inner = {n: size if n == name else other for n, other in section.inner.items() if n != name or size}
    spans = {n: section.spans[n] for n in inner}
    return replace(
        section, inner=inner, spans=spans, overlaid={n: o for n, o in section.overlaid.items() if n in inner}
    )
