"""A plan with less code: a kernel gives way to a slower one where the functions that it alone needs take much flash.

Kernels of a layer differ by a few percent, and the assembly that they call takes up to four kilobytes, once for all
layers that call it. So what a kernel costs of flash is known only when those of all layers are. Some
kernels compute what others have in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from zlib import crc32

from ..ir import Graph, Op
from ..kernels import kernel_of
from ..kernels.code_bytes import OF_CALL, code_bytes
from ..ops.base import Form, Kernel
from .section import Section, aligned, cost

# Share of all instructions that a byte of flash is worth, by `--optimize`: a kilobyte is 1 % as a rule.
WORTH = {"speed": 0.0, "balanced": 0.01 / 1024, "size": 0.05 / 1024}
MOST = 0.02  # of all instructions that this may cost, but for `size`


@dataclass(frozen=True)
class Made:
    """A kernel and the form that it was made for."""

    form: Form
    kernel: Kernel

    @property
    def function(self) -> str:
        """The function in assembly that the kernel shares with others, if its shape names one."""
        return str(self.kernel.shape.get("function", ""))


@dataclass(frozen=True)
class Candidate:
    """An op's kernel in a plan. `others` serve in the same place, and none of them wants more scratch."""

    step: int
    at: int
    calls: int
    made: Made
    others: tuple[Made, ...]

    @property
    def key(self) -> tuple[int, int]:
        return self.step, self.at

    def cost(self, made: Made) -> float:
        return self.calls * made.kernel.cost


Chosen = Mapping[tuple[int, int], Made]  # by `Candidate.key`


def flash(graph: Graph, kernels: Sequence[Kernel], form: Form) -> int:
    """Bytes of flash of kernels, roughly: constants as kernels want them, each once, and code."""
    constants = {key for kernel in kernels for key in _constants(kernel)}
    return sum(size for size, _ in constants) + code_bytes(kernels, graph.arithmetic, form)


def _constants(kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """Bytes and a number of each constant; equal ones have the same."""
    return tuple((c.data.nbytes, crc32(c.data.tobytes())) for c in kernel.constants)


def flash_of(graph: Graph, steps: Sequence[Section], form: Form) -> int:
    """Bytes of constants and code of steps on a graph."""
    kernels = kernels_of(graph, steps)
    tables = sum(section.calls for section in steps if section.rolled)
    return flash(graph, kernels, form) + tables + OF_CALL * len(kernels)


def kernels_of(graph: Graph, steps: Sequence[Section]) -> list[Kernel]:
    """The kernel of each op, in the order of their steps."""
    formed = [pair for section in steps for pair in zip(section.ops, section.forms, strict=True)]
    return [kernel_of(op, graph, form) for op, form in formed]


def thrifty(graph: Graph, steps: Sequence[Section], form: Form, limit: float = inf) -> tuple[Section, ...]:
    """The steps with other kernels where these save flash that is worth more than the instructions.

    `limit`: of the cost of all steps.
    """
    optimize = form.wish.optimize
    worth, total = WORTH[optimize], cost(steps)
    most = min(total * (MOST if optimize != "size" else 1.0), limit - total)
    uses = [use for use in _uses(graph, steps, _alike) if use.calls] if worth else []
    chosen = {use.key: use.made for use in uses}
    spent = 0.0
    while True:
        ways = []
        for saved, more, way in _savings(
            graph, uses, chosen, (*_without_function(uses, chosen), *_without_table(uses, chosen)), form
        ):
            if more < saved * worth * total and spent + more <= most:
                ways.append((more - saved * worth * total, more, way))
        if not ways:
            return _with(steps, uses, chosen)
        _, more, way = min(ways, key=lambda found: found[0])
        chosen, spent = {**chosen, **way}, spent + more


def within(graph: Graph, steps: Sequence[Section], form: Form, most: int) -> tuple[Section, ...]:
    """The steps with smaller kernels, until those take `most` bytes of flash or none is smaller.

    Each time that change is made which costs the fewest instructions for each byte that it saves. In the end, what
    turned out not to be needed is taken back.
    """
    uses = list(_uses(graph, steps, _smaller))
    chosen = {use.key: use.made for use in uses}
    while _flash(graph, chosen, form) > most:
        ways = (*_without_function(uses, chosen), *({use.key: made} for use in uses for made in use.others))
        found = list(_savings(graph, uses, chosen, ways, form)) or list(
            _savings(graph, uses, chosen, [_all_small(uses)], form)
        )
        if not found:
            break
        chosen |= min(found, key=lambda way: way[1] / way[0])[2]
    for use in sorted(uses, key=lambda use: use.cost(use.made) - use.cost(chosen[use.key])):
        if _flash(graph, without := {**chosen, use.key: use.made}, form) <= most:
            chosen = without
    return _with(steps, uses, chosen)


def _flash(graph: Graph, chosen: Chosen, form: Form) -> int:
    form = next((made.form for made in chosen.values() if made.form.small), form)
    return flash(graph, [made.kernel for made in chosen.values()], form)


def _savings(
    graph: Graph, uses: Sequence[Candidate], chosen: Chosen, ways: Iterable[Chosen], form: Form
) -> Iterator[tuple[int, float, Chosen]]:
    """Bytes of flash that each way saves, instructions that it adds, and the way; only of those that save some."""
    taken = _flash(graph, chosen, form)
    for way in ways:
        saved = taken - _flash(graph, {**chosen, **way}, form)
        if saved > 0:
            yield saved, sum(u.cost(way[u.key]) - u.cost(chosen[u.key]) for u in uses if u.key in way), way


def _uses(
    graph: Graph, steps: Sequence[Section], others: Callable[[Graph, Op, Made], Iterator[Made]]
) -> Iterator[Candidate]:
    for step, section in enumerate(steps):
        for at, (op, form, calls) in enumerate(zip(section.ops, section.forms, section.calls_of, strict=True)):
            made = Made(form, kernel_of(op, graph, form))
            fixed = form.engine is not None or form.granularity or form.choice
            yield Candidate(step, at, calls, made, () if fixed else tuple(others(graph, op, made)))


def _alike(graph: Graph, op: Op, made: Made) -> Iterator[Made]:
    """The other kernels of a form that do for its place."""
    for other in made.kernel.others:
        if _serves(made, other):
            yield Made(replace(made.form, variant=other.variant), other)


def _smaller(graph: Graph, op: Op, made: Made) -> Iterator[Made]:
    """The same, and those that are made where size counts."""
    yield from _alike(graph, op, made)
    small = replace(made.form, wish=replace(made.form.wish, optimize="size"), variant="")
    first = kernel_of(op, graph, small)
    for other in (first, *first.others):
        if _serves(made, other):
            yield Made(replace(small, variant=other.variant), other)


def _serves(made: Made, other: Kernel) -> bool:
    kernel = made.kernel
    return (
        (other.placed, other.counted) == (kernel.placed, kernel.counted)
        and aligned(other.scratch) <= aligned(kernel.scratch)
        and (not made.form.over or other.in_place == kernel.in_place)
    )


def _without_function(uses: Sequence[Candidate], chosen: Chosen) -> Iterator[Chosen]:
    """For each function that kernels have in common: all that call it do without, each as fast as that allows."""
    for function in sorted({name for made in chosen.values() if (name := made.function)}):
        way, left = dict[tuple[int, int], Made](), {made.function for made in chosen.values()} - {function}
        for use in uses:
            if chosen[use.key].function != function:
                continue
            others = [made for made in use.others if made.function in left or not made.function]
            if not others:
                break
            way[use.key] = min(others, key=lambda made: made.kernel.cost)
        else:
            yield way


def _without_table(uses: Sequence[Candidate], chosen: Chosen) -> Iterator[Chosen]:
    """For each kernel with constants: those without any, which compute what is in its table."""
    for use in uses:
        if chosen[use.key].kernel.constants:
            yield from ({use.key: made} for made in use.others if not made.kernel.constants)


def _all_small(uses: Sequence[Candidate]) -> Chosen:
    """The kernels that are taken where size counts, of all ops at once: they save by having functions in common."""
    return {use.key: small[0] for use in uses if (small := [made for made in use.others if made.form.small])}


def _with(steps: Sequence[Section], uses: Sequence[Candidate], chosen: Chosen) -> tuple[Section, ...]:
    found = list(steps)
    for use in uses:
        made = chosen[use.key]
        if made is not use.made:
            section = found[use.step]
            forms = list(section.forms)
            forms[use.at] = made.form
            more = use.calls * (made.kernel.estimate - use.made.kernel.estimate)
            dearer = section.cost + use.cost(made) - use.cost(use.made)
            found[use.step] = replace(
                section, forms=tuple(forms), instructions=section.instructions + more, cost=dearer
            )
    return tuple(found)
