"""`edgebuild tune`: try the variants of the heaviest layers in the simulator and remember the fastest.

One firmware counts all layers at once, so there are as many runs as the layer with the most variants has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ...base.artifacts import Artifact
from ...base.cache import folder
from ...base.errors import EdgebuildError, fail
from ...base.request import ModelRequest
from ...base.target import load_target
from ...base.workers import results
from .. import choices
from ..compile import compile_model, plan_model
from ..formats import bound_file
from ..kernels import kernel_of, layer_name
from . import verify
from .harness import TooLarge

INSTRUCTIONS, CYCLES = "instructions", "cycles"  # what is measured, as `verify` names it
WORTH = 0.01  # of all that is measured: what a layer has to take for its variants to be tried


@dataclass(frozen=True)
class Trial:
    """A layer's variants, the one that the estimates chose first, and what each took: instructions or cycles."""

    layer: str
    variants: tuple[str, ...]
    measured: dict[str, int] = field(default_factory=dict)

    @property
    def best(self) -> str:
        return min(self.measured, key=lambda v: (self.measured[v], self.variants.index(v)), default=self.variants[0])


def tune(
    request: ModelRequest, say: Callable[[str], None] = print, by: str = INSTRUCTIONS, scheduler: str | None = None
) -> dict[str, str]:
    """Measure, store the choices that differ from the estimates', and return them.

    `by`: what is measured, INSTRUCTIONS or CYCLES. `scheduler`: see `workers.results`. Raises EdgebuildError if the
    target has no simulator, or no table of cycles where they are wanted, or if the cache is off.
    """
    if folder() is None:
        raise fail("the cache is off, and there the choices are kept", hints=["set EDGEBUILD_CACHE to a folder"])
    request = replace(request, choices=())
    counted, total = _count(request, compile_model(request), by)
    trials = [t for t in _trials(request) if counted.get(t.layer, 0) >= WORTH * total]
    turns = range(max((len(t.variants) for t in trials), default=0))
    tried = [{t.layer: t.variants[min(turn, len(t.variants) - 1)] for t in trials} for turn in turns]
    chosen_ones = [_choosing(request, wanted) for wanted in tried]
    for wanted, counted in zip(tried, results(partial(_counted, by), chosen_ones, scheduler), strict=True):
        for t in trials:
            if t.layer in counted:  # with another scratch it may have become part of a rolled run
                t.measured[wanted[t.layer]] = counted[t.layer]
    fastest = {t.layer: t.best for t in trials if t.best != t.variants[0]}
    chosen = _choosing(request, fastest)
    _, better = _count(chosen, compile_model(chosen), by)
    for t in trials:
        shown = ", ".join(f"{v}{' *' if v == t.best else ''} {t.measured[v]:,}" for v in t.variants if v in t.measured)
        say(f"{t.layer}: {shown}")
    say(f"{total:,} {by} by the estimates' choice, {better:,} by the measured one")
    if fastest and better < total:
        choices.store(request, fastest)
        return fastest
    return {}


def _choosing(request: ModelRequest, wanted: dict[str, str]) -> ModelRequest:
    return replace(request, choices=tuple(f"{layer}={variant}" for layer, variant in sorted(wanted.items())))


def _counted(by: str, request: ModelRequest) -> dict[str, int]:
    """Measure each layer; nothing where a variant wants more scratch than there is room for."""
    try:
        artifacts = compile_model(request)
    except EdgebuildError:
        return {}
    try:
        return _count(request, artifacts, by)[0]
    except TooLarge:
        return {}


def _trials(request: ModelRequest) -> list[Trial]:
    """The layers that run whole and have more than one variant."""
    decided, trials = plan_model(request, load_target(request.target)), dict[str, Trial]()
    for section in decided.steps:
        if section.rolled is None:
            (op,), (form,) = section.ops, section.forms
            kernel = kernel_of(op, decided.graph, form)
            if kernel.others:
                name = layer_name(kernel, op, decided.graph)
                trials[name] = Trial(name, tuple(dict.fromkeys((kernel.variant, *(k.variant for k in kernel.others)))))
    return list(trials.values())


def _count(request: ModelRequest, artifacts: Sequence[Artifact], by: str) -> tuple[dict[str, int], int]:
    """Instructions or cycles of each layer that runs whole, equal ones together, and of all steps.

    Raises EdgebuildError for a program that fails or differs from the reference, TooLarge where it does not fit.
    """
    target = load_target(request.target)
    decided = plan_model(request, target)
    with bound_file(request.source, request.bind) as model:
        library, reading = request.called_library, (request.shape, request.outputs)
        result = verify(
            model, target, artifacts, by_layer=True, by_cycles=by == CYCLES, library=library, reading=reading
        )
    if not result["equal"]:
        raise fail(f"differs from the reference by up to {result['max_abs_diff']}", file=str(request.source))
    counts: dict[str, int] = {}
    for section, step in zip(decided.steps, result["layers"], strict=True):
        if section.rolled is None:
            (op,), (form,) = section.ops, section.forms
            name = layer_name(kernel_of(op, decided.graph, form), op, decided.graph)
            counts[name] = counts.get(name, 0) + step[by]
    return counts, sum(step[by] for step in result["layers"])
