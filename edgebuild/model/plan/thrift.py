"""A plan with less code: a kernel gives way to a slower one where the functions that it alone needs take much flash.

Kernels of a layer differ by a few percent, and the assembly that they call takes up to four kilobytes, once for all
layers that call it. So what a kernel costs of flash is known only when those of all layers are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from ..ir import Graph, Op
from ..kernels import kernel_of
from ..kernels.flash import code_bytes
from ..ops.base import Form, Kernel
from .section import Section, aligned

# Share of all instructions that a byte of flash is worth, by `--optimize`: a kilobyte is 1 % as a rule.
WORTH = {"speed": 0.0, "balanced": 0.01 / 1024, "size": 0.05 / 1024}
MOST = 0.02  # of all instructions that this may cost, but for `size`


@dataclass(frozen=True)
class Candidate:
    """An op's kernel in a plan. `others` are kernels for the same place, none of which wants more scratch."""

    step: int
    at: int
    calls: int
    kernel: Kernel
    others: tuple[Kernel, ...]

    def cost(self, kernel: Kernel) -> float:
        return self.calls * kernel.estimate


def flash(graph: Graph, kernels: Sequence[Kernel], form: Form) -> int:
    """Bytes of flash of kernels, roughly: constants as kernels want them, each once, and code."""
    constants = {key for kernel in kernels for key in _constants(kernel)}
    return sum(size for size, _ in constants) + code_bytes(kernels, graph.arithmetic, form)


def _constants(kernel: Kernel) -> tuple[tuple[int, int], ...]:
    """Bytes and a number of each constant; equal ones have the same."""
    return tuple((c.data.nbytes, crc32(c.data.tobytes())) for c in kernel.constants)


def thrifty(graph: Graph, steps: Sequence[Section], form: Form) -> tuple[Section, ...]:
    """The steps with other kernels where these save flash that is worth more than the instructions."""
    optimize = form.wish.optimize
    worth, total = WORTH[optimize], sum(s.instructions for s in steps)
    most = total * (MOST if optimize != "size" else 1.0)
    uses = [use for use in _uses(graph, steps) if use.calls] if worth else []
    chosen = {(use.step, use.at): use.kernel for use in uses}
    spent = 0.0
    while True:
        taken = flash(graph, list(chosen.values()), form)
        ways = []
        for way in _ways(uses, chosen):
            more = sum(use.cost(way[key]) - use.cost(chosen[key]) for use in uses if (key := (use.step, use.at)) in way)
            saved = taken - flash(graph, list({**chosen, **way}.values()), form)
            if saved > 0 and more < saved * worth * total and spent + more <= most:
                ways.append((more - saved * worth * total, more, way))
        if not ways:
            return _with(steps, uses, chosen)
        _, more, way = min(ways, key=lambda found: found[0])
        chosen, spent = {**chosen, **way}, spent + more


Chosen = Mapping[tuple[int, int], Kernel]


def _uses(graph: Graph, steps: Sequence[Section]) -> Iterator[Candidate]:
    for step, section in enumerate(steps):
        for at, (op, form, calls) in enumerate(zip(section.ops, section.forms, section.calls_of, strict=True)):
            kernel = kernel_of(op, graph, form)
            if form.engine is None and not form.granularity and not form.choice:
                yield Candidate(step, at, calls, kernel, tuple(_alike(kernel, op, form)))


def _alike(kernel: Kernel, op: Op, form: Form) -> Iterator[Kernel]:
    for other in kernel.others:
        same = (other.placed, other.counted) == (kernel.placed, kernel.counted)
        if (
            same
            and aligned(other.scratch) <= aligned(kernel.scratch)
            and (not form.over or other.in_place == kernel.in_place)
        ):
            yield other


def _ways(uses: Sequence[Candidate], chosen: Chosen) -> Iterator[dict[tuple[int, int], Kernel]]:
    """For each function that kernels have in common: all that call it do without, each as fast as that allows."""
    for function in sorted({name for kernel in chosen.values() if (name := _calls(kernel))}):
        way, left = dict[tuple[int, int], Kernel](), {_calls(k) for k in chosen.values()} - {function}
        for use in uses:
            if _calls(chosen[use.step, use.at]) != function:
                continue
            others = [k for k in use.others if _calls(k) in left or not _calls(k)]
            if not others:
                break
            way[use.step, use.at] = min(others, key=lambda k: k.estimate)
        else:
            yield way


def _calls(kernel: Kernel) -> str:
    """The function in assembly that a kernel shares with others, if its shape names one."""
    return str(kernel.shape.get("function", ""))


def _with(steps: Sequence[Section], uses: Sequence[Candidate], chosen: Chosen) -> tuple[Section, ...]:
    found = list(steps)
    for use in uses:
        kernel = chosen[use.step, use.at]
        if kernel is not use.kernel:
            section = found[use.step]
            forms = list(section.forms)
            forms[use.at] = replace(forms[use.at], variant=kernel.variant)
            more = use.cost(kernel) - use.cost(use.kernel)
            found[use.step] = replace(section, forms=tuple(forms), instructions=section.instructions + more)
    return tuple(found)
