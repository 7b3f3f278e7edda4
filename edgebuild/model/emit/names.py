"""Names and literals of the generated C."""

from __future__ import annotations

import math

import numpy as np

from ...base import text as written
from ..interface_of import ports_of
from ..ir import Tensor
from ..ops.base import FourBytes
from ..plan.search import Plan
from ..surface import interface

LARGEST = {float(np.finfo(np.float32).max): "FLT_MAX", math.inf: "EB_INFINITY"}
# Compilers know the functions of C with these names and refuse others.
MATHS = {
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "div", "erf",
    "exp", "exp2", "expm1", "floor", "fmod", "hypot", "index", "isnan", "labs", "log", "log10", "log1p",
    "log2", "pow", "remainder", "rint", "round", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma",
    "trunc",
}  # fmt: skip


def literal(value: int | float) -> str:
    """A C literal of type int32_t or float."""
    if isinstance(value, FourBytes):
        return f"(int32_t)0x{value & 0xFFFFFFFF:08x}u"
    if not isinstance(value, float):
        return str(value) if value > -(2**31) else "(-2147483647 - 1)"
    text = np.format_float_scientific(np.float32(value), unique=True, trim="0", exp_digits=1)
    return f"{text}f"


def scalar(value: int | float) -> str:
    """A scalar argument in C, which has names for the largest floats."""
    name = LARGEST.get(abs(value)) if isinstance(value, float) else None
    return literal(value) if name is None else name if value > 0 else f"-{name}"


def comment(text: str) -> str:
    """A name that may stand in a C comment; of TFLite's lists of fused names the first."""
    return written.comment(text.split(";")[0])


def shape_text(t: Tensor) -> str:
    dims = t.shape[1:] if len(t.shape) > 1 and t.shape[0] == 1 else t.shape
    return "x".join(map(str, dims)) or "1"


def first_memory(plan: Plan) -> str:
    """The memory whose arena is `N_arena`."""
    heights = plan.layout.heights
    return next((m for m, height in heights.items() if height), next(iter(heights)))


def at_macro(plan: Plan, memory: str) -> str:
    """The macro that makes a pointer into the arena of a memory."""
    return "AT" if memory == first_memory(plan) else f"AT_{memory.upper()}"


def label(plan: Plan, tensor: str) -> str:
    """The short name of a tensor, in comments on the schedule."""
    return plan.offset_names[tensor].removeprefix(f"{plan.name.upper()}_").lower()


def scratch_constant(plan: Plan, result: Tensor) -> str:
    """The constant that holds the offset of the scratch buffer of the op that makes a tensor."""
    return f"{plan.offset_names[result.name]}_SCRATCH"


def newest_constant(plan: Plan, tensor: str) -> str:
    """The constant that holds the offset of the newest row of a ring, where it is separate."""
    return f"{plan.offset_names[tensor]}_NEWEST"


def access_functions(plan: Plan) -> dict[str, str]:
    """Name of the C function that gives the address of each input and output."""
    ports = ports_of(plan.graph)
    functions = interface.access_functions(plan.name, ports)
    if plan.request.stream_output:
        functions = functions[0], [f"{plan.name}_output_row"]
    names = [[port.name for port in side] for side in ports]
    return {name: function for side in zip(names, functions, strict=True) for name, function in zip(*side, strict=True)}
