"""All kernels besides the ops' own in portable C: a folder for each instruction set, library or technique.

A folder holds rows, the templates that they print, and `helpers.c.j2` with the C functions that those share.
A file has the templates of a family of kernels: `arm_dsp/convolution.c:dense` is the part after the line `%% dense`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from ...base.target import Target
from ...base.templates import Used, environment
from ..ir import Arithmetic, Graph, Op
from ..ops import SPECS
from ..ops.base import Form, Kernel, Sums
from . import arm_dsp, arm_mve, blocks, cmsis_nn, dae, floats, offload, xpulp
from .arm_dsp import dot, matrix, taps, wide, winograd
from .arm_mve import lanes
from .blocks import two_in_one
from .micro import Function
from .row import CONVOLUTION, DEPTHWISE, KernelLayer, Row, by_channel, canonical, ungrouped
from .xpulp.encoding import PRINTED

ROWS: tuple[Row, ...] = (
    *arm_dsp.ROWS,
    *arm_mve.ROWS,
    *blocks.ROWS,
    *cmsis_nn.ROWS,
    *dae.ROWS,
    *floats.ROWS,
    *xpulp.ROWS,
)
# By word of a core, the preprocessor's condition that the compiler is not for such a core.
CONDITIONS = {
    "dsp": "!defined(__ARM_FEATURE_DSP)",
    "mve": "!defined(__ARM_FEATURE_MVE)",
    "fpu": "!defined(__ARM_FP)",
    "armv6-m": "!defined(__arm__)",
    "armv7-m": "!defined(__ARM_FEATURE_SAT)",
    "armv8-m.main": "!defined(__ARM_FEATURE_SAT)",
    "rv32": "!defined(__riscv) || __riscv_xlen != 32",
    "corev": "!defined(EB_COREV)",  # compilers do not know these instructions, so the target's flags define it
    "gap8": "!defined(EB_GAP8)",
}
# Files of C functions that kernels share; those of later files may use those of earlier ones.
HELPERS = (
    "helpers.c.j2",  # of ops/
    "math.c.j2",
    "shared.c.j2",
    *(f"{folder}/helpers.c.j2" for folder in ("blocks", "arm_dsp", "arm_mve", "dae", "cmsis_nn", "xpulp", "floats")),
)

# Functions in assembly by name; each is generated when a model needs it.
FUNCTIONS: Mapping[str, Callable[[], Function]] = (
    two_in_one.FUNCTIONS
    | dot.FUNCTIONS
    | taps.FUNCTIONS
    | wide.FUNCTIONS
    | matrix.FUNCTIONS
    | winograd.FUNCTIONS
    | lanes.FUNCTIONS
    | floats.FUNCTIONS
)


def kernel_of(op: Op, graph: Graph, form: Form) -> Kernel:
    """The kernel for an op: the variant of `form.choice` if the layer is in it, else the cheapest.

    The op's own kernel serves where no row does. `form.in_place` asks for kernels that work in place; if there are
    none, the returned one does not. `form.engine` asks for the call of that engine. The graph caches the kernels of its
    own ops, because planners ask for them many times.
    """
    if not op.outputs or graph.producers.get(op.outputs[0]) is not op:
        return _chosen(op, graph, form)
    key = op.outputs[0], form
    if key not in graph.kernels:
        graph.kernels[key] = _sharing(_chosen(op, graph, form), graph)
    kept: Kernel = graph.kernels[key]
    return kept


def _sharing(kernel: Kernel, graph: Graph) -> Kernel:
    """The kernel and its alternatives, sharing one `shape` with all that have an equal one: most of a long network."""
    shape = graph.kernels.setdefault(repr(kernel.shape), kernel.shape)  # by text, because True and 1 print differently
    return replace(kernel, shape=shape, alternatives=tuple(_sharing(each, graph) for each in kernel.alternatives))


def _chosen(op: Op, graph: Graph, form: Form) -> Kernel:
    if form.engine is not None:
        return offload.kernel(op, graph, form)
    layers = layers_of(op, graph, form)
    kernel = _from_rows(layers, form) or replace(layers[0], form=form).plain
    if form.variant:
        return next(k for k in (kernel, *kernel.alternatives) if k.variant == form.variant)
    if not kernel.alternatives or not form.choice or form.rolled or form.granularity:
        return kernel
    wanted = layer_name(kernel, op, graph)
    return next((k for k in kernel.alternatives if (wanted, k.variant) in form.choice), kernel)


def _described(op: Op, graph: Graph, rolled: bool) -> list[tuple[Op, Graph, Sums | None]]:
    """The forms of the op that kernels may compute, each with its graph and, for int8 sums of products, its `Sums`.

    The graph caches those of its own ops, with the weights as kernels use them.
    """
    own = bool(op.outputs) and graph.producers.get(op.outputs[0]) is op
    key = op.outputs[:1], rolled
    if own and key in graph.kernels:
        kept: list[tuple[Op, Graph, Sums | None]] = graph.kernels[key]
        return kept
    simple = canonical(op, graph, rolled)
    unrolled = graph.kernels.get((op.outputs[:1], False)) if own and rolled else None
    if unrolled is not None and unrolled[0][0] is simple[0]:
        return list(unrolled)
    forms = [simple, *(each for each in (by_channel(*simple), ungrouped(*simple)) if each is not None)]
    described = [(*form, SPECS[op.kind].sums(*form)) for form in forms]
    if own:
        graph.kernels[key] = described
    return described


def layer_name(kernel: Kernel, op: Op, graph: Graph) -> str:
    """Name that layers of equal shape share, for choices of variants."""
    return f"{kernel.stem}@{'x'.join(map(str, graph.operands(op)[0].shape))}"


def layers_of(op: Op, graph: Graph, form: Form) -> list[KernelLayer]:
    """The layer that rows of kernels get, and equivalent layers.

    A row of an op that works pixel by pixel is an image of its own: the same C function serves for both forms.
    """
    each, layers = not form.rolled or SPECS[op.kind].rows(op, graph) == "each", list[KernelLayer]()
    for simple, around, sums in _described(op, graph, form.rolled):
        if form.rolled and each and sums is not None and sums.pointwise:
            row = replace(form, rings=None, separate=(), rows=0)
            layers.append(KernelLayer(simple, around, row, sums.row))
        else:
            layers.append(KernelLayer(simple, around, form, sums if each else None))
    return layers


def layer_of(op: Op, graph: Graph, form: Form) -> KernelLayer:
    """The first of `layers_of`: the op itself."""
    return layers_of(op, graph, form)[0]


def _from_rows(layers: list[KernelLayer], form: Form) -> Kernel | None:
    """The cheapest kernel of all rows that serve; if a granularity is wanted, of the rows that gather first."""
    for gathers in (True, False) if form.granularity else (False,):
        rows = [row for row in ROWS if row.gathers == gathers and row.core <= form.core]
        served = [(row, layers[0]) for row in rows if row.serves(layers[0])]
        sums = [row for row in rows if row.kind in (CONVOLUTION, DEPTHWISE)] if layers[1:] else []
        served += [(row, each) for row in sums for each in layers[1:] if row.serves(each)]
        pairs = [(layer, k) for row, layer in served if (k := row.make(layer)) is not None]
        pairs += [] if gathers else [(layers[0], k) for k in offload.called(layers[0])]
        kernels = [replace(k, placed=True) if form.rolled and not each.form.rolled else k for each, k in pairs]
        kernels = [k for k in kernels if k.reads_separate_rows or not any(form.separate)]
        if kernels := by_cost([k for k in kernels if k.in_place or not form.in_place], form):
            return replace(kernels[0], alternatives=tuple(kernels[1:]))
    return None


def by_cost(kernels: list[Kernel], form: Form) -> list[Kernel]:
    """Kernels within the form's scratch, the cheapest first; if none fits, all kernels, the least scratch first."""
    within = [k for k in kernels if form.scratch_limit is None or k.scratch <= form.scratch_limit]
    return sorted(within or kernels, key=lambda k: k.cost if within else k.scratch)


@dataclass(frozen=True)
class Helper:
    """C that kernels share: the names that it defines, the names that it uses, and the text.

    Files of helpers have two marks. A line of `%%` begins a piece: its names and, after a colon, those that it uses.
    `%=` marks the head of a C function, which ends at the line of its first brace.
    """

    names: tuple[str, ...]
    uses: tuple[str, ...]
    before: str
    head: str  # empty: no function, but a header or macros
    body: str

    @property
    def text(self) -> str:
        return self.before + self.head + self.body

    @property
    def prototype(self) -> str:
        """The declaration of the function; the definition has its attributes."""
        return f"{self.head};"


def helpers(arithmetic: Arithmetic) -> tuple[Helper, ...]:
    """The shared C for a model of this arithmetic, in order."""
    return (*(helper for file in HELPERS for helper in _helpers_in(file, arithmetic)), *map(_assembled, FUNCTIONS))


@cache
def _assembled(name: str) -> Helper:
    function = PRINTED.get(name) or FUNCTIONS[name]()
    uses = tuple(each for each in ("EB_CFI", "EB_REG", *function.uses) if each in function.text)
    return Helper((name,), uses, function.before, function.head, function.body)


@cache
def _helpers_in(file: str, arithmetic: Arithmetic) -> tuple[Helper, ...]:
    text, pieces = environment().get_template(file).render(arithmetic=arithmetic), []
    for piece in f"\n{text}".split("\n%% ")[1:]:
        title, _, body = piece.partition("\n")
        names, _, uses = title.partition(":")
        before, mark, rest = body.strip("\n").partition("%= ")
        head = rest[: rest.index("\n{\n")] if mark else ""
        parts = before, head, rest.removeprefix(head) + "\n"
        pieces.append(Helper(tuple(names.split()), tuple(uses.split()), *parts))
    return tuple(pieces)


def used_helpers(names: Iterable[str], arithmetic: Arithmetic) -> tuple[Helper, ...]:
    """The shared C that defines these names, and what that uses in turn, in order.

    Files are read until all names are defined: those with assembly for other cores take a quarter of a second.
    """
    waiting = [name for name in names if name != "memcpy"]
    asked = set(waiting)
    functions = (*(name for name in FUNCTIONS if name in asked), *sorted(asked & PRINTED.keys()))
    assembled, needed = {name: _assembled(name) for name in functions}, set[str]()
    by_name, wanted = dict[str, Helper](), {*asked, *(name for h in assembled.values() for name in h.uses)}
    for file in HELPERS:
        if by_name.keys() >= wanted - assembled.keys():
            break
        by_name |= {name: helper for helper in _helpers_in(file, arithmetic) for name in helper.names}
    by_name |= assembled
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in needed:
            needed.update(by_name[name].names)
            waiting += by_name[name].uses
    return tuple(helper for helper in dict.fromkeys(by_name.values()) if needed.issuperset(helper.names))


# Bytes of kernels' code, estimated from their text: shared functions count once.

# Bytes of an instruction of assembly and of a statement of C: sizes of functions in programs of ResNet-8 and DS-CNN by
# gcc 12 -O2, RV32IMC and Cortex-M4, over their counts; those of Armv6-M in the same way, on a Cortex-M0.
ASSEMBLY, STATEMENT = 3.0, 11.5
ASSEMBLY_OF_V6M, STATEMENT_OF_V6M = 2.0, 16.0
# Bytes of a call and of a kernel, on a Cortex-M4. Person detection (TFLM's) takes 42 and 120 to 360, by `nm -S`.
OF_CALL, OF_KERNEL = 40, 300
NO_DIGITS = str.maketrans("", "", "0123456789")

# Characters of a C function from which on kernels that differ in numbers share it, by `--optimize`. If the compiler
# knows the numbers, it makes short functions shorter still.
SHARED_FROM = {"speed": 1 << 30, "balanced": 3000, "size": 0}


def printed(kernel: Kernel, signature: str, item: str, y_item: str, acc: str) -> tuple[str, frozenset[str]]:
    """A kernel's template as C, and the names in it that are defined elsewhere. Types: of operands and sums."""
    used = Used()
    numbers = SimpleNamespace(**kernel.shape)
    view = {"use": used, "s": numbers, "signature": signature, "item": item, "y_item": y_item, "acc": acc}
    return environment().get_template(kernel.template).render(**view).strip() + "\n", frozenset(used.names)


def code_bytes(kernels: Iterable[Kernel], arithmetic: Arithmetic, form: Form) -> int:
    """Bytes of the C functions of kernels and of all that they call, each once; see SHARED_FROM."""
    core, shared_from = form.core, SHARED_FROM[form.wish.optimize]
    texts, names = dict[str, str](), set[str]()
    for kernel in kernels:
        text, without_numbers, used = _text(kernel.template, tuple(sorted(kernel.shape.items())))
        texts[without_numbers if len(text) >= shared_from else text] = text
        names |= used
    shared = (h.text for h in used_helpers(names, arithmetic) if h.head)
    return round(sum(_size(text, core) for text in (*texts.values(), *shared)))


@cache
def source_bytes(file: Path, core: frozenset[str]) -> int:
    """Bytes of code of a file of C."""
    return round(_size(file.read_text(encoding="utf-8"), core))


@cache
def _text(
    template: str, shape: tuple[tuple[str, int | str | bool | tuple[int, ...]], ...]
) -> tuple[str, str, frozenset[str]]:
    """A kernel's C, the same without its numbers, and the names that it uses."""
    text, used = printed(Kernel(template, "", dict(shape)), "", "int8_t", "int8_t", "int32_t")
    return text, text.translate(NO_DIGITS), used


@cache
def _size(text: str, core: frozenset[str]) -> float:
    v6m = "armv6-m" in core
    if instructions := sum(map(_is_instruction, text.splitlines())):
        return (ASSEMBLY_OF_V6M if v6m else ASSEMBLY) * instructions
    return (STATEMENT_OF_V6M if v6m else STATEMENT) * text.count(";")


def _is_instruction(line: str) -> bool:
    """Whether a line of C is a string with one instruction; labels, and directives but .insn, begin otherwise."""
    before, *inside = line.split('"', 2)
    return (
        not before.strip()
        and len(inside) == 2
        and (inside[0][:1].islower() or inside[0].startswith(".insn"))
        and inside[0].endswith("\\n\\t")
    )


# Cycles by `edgebuild verify --cycles`, as a multiple of the cost that planners compare: the mean of kws, the
# autoencoder and person detection, of which each is within 12 %. Cores without a figure have no table in hal/cycles.
PER_COST = {
    "cortex-m0": 1.30,
    "cortex-m0plus": 1.26,
    "cortex-m3": 1.65,
    "cortex-m4": 1.39,
    "cortex-m7": 0.77,
    "cortex-m33": 1.38,
    "cortex-m55": 1.10,
    "cortex-m85": 0.90,
    "cv32e40p": 1.09,
    "vexriscv-imac": 1.28,
}


def cycles_of(target: Target, cost: float) -> float | None:
    """Estimated cycles of work of this cost; None if the core has no figure."""
    cycles_per_instruction = PER_COST.get(target.cycle_table)
    return cost * cycles_per_instruction if cycles_per_instruction is not None else None
