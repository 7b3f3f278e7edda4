"""Each row of the table of functions in each type that it has a form for: numpy and C against its exact meaning.

One program holds all rows of a type, so that a row costs some milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebuild.model import ops
from edgebuild.model.ir import Array, Graph, Op, Quant, Tensor
from edgebuild.model.ops import pointwise
from edgebuild.model.ops.functions import FUNCTIONS
from tests.bench_functions import measured
from tests.ops.host import run_on_host
from tests.ops.meanings import INTEGER, JUMPS, PREDICATES, REAL

pytestmark = pytest.mark.needs("gcc")
COUNT = 256
MODULAR = ("shift_left", "shift_right", "bit_and", "bit_or", "bit_xor", "bit_not", "sum", "difference", "product")
LOGIC = ("not", "and", "or", "xor")
PLAIN = ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")
Case = tuple[str, dict[str, float]]  # a function and its parameters


def cases(functions: Iterable[str]) -> list[Case]:
    """With the parameters' defaults, and with others."""
    rows = [(name, FUNCTIONS[name].parameters) for name in functions]
    others = [(name, {n: 0.7 * value + 0.2 for n, value in p.items()}) for name, p in rows if p]
    return [(name, dict(p)) for name, p in rows] + others


def network(rows: Sequence[Case], operands: Sequence[Tensor], results: Sequence[Tensor], arithmetic: str) -> Graph:
    """All functions of the same operands side by side; a condition is the last of the operands."""
    steps = []
    for (name, parameters), y in zip(rows, results, strict=True):
        row = FUNCTIONS[name]
        names = [t.name for t in operands[: row.arity]]
        names = ["condition", *names[:2]] if row.condition else names
        steps.append(Op("pointwise", y.name, tuple(names), (y.name,), pointwise.attributes(name, **parameters)))
    tensors = {t.name: t for t in (*operands, *results)}
    return Graph(
        "table", tuple(steps), tensors, tuple(t.name for t in operands), tuple(t.name for t in results), arithmetic
    )


def both(graph: Graph, vector: list[Array], folder: Path) -> list[tuple[Array, Array]]:
    """The results of numpy and of C."""
    for op in graph.ops:
        assert pointwise.has_form(op, graph) is None, op.name
    ((printed,),) = run_on_host([graph], [[vector]], folder)
    values = ops.run(graph, *vector)
    return [(values[name], c) for name, c in zip(graph.outputs, printed, strict=True)]


def exact(meaning: Any, *operands: Sequence[Any]) -> list[Any]:
    """None where the function has no value."""
    results = []
    for values in zip(*operands, strict=True):
        try:
            results.append(meaning(*values))
        except (ValueError, ZeroDivisionError, OverflowError):
            results.append(None)
    return results


def of_row(name: str, operands: list[list[Any]], condition: list[bool]) -> list[list[Any]]:
    row = FUNCTIONS[name]
    return [condition, *operands[:2]] if row.condition else operands[: row.arity]


def floats() -> list[Array]:
    """Of all sizes that functions bend at, with halves, equal pairs, and whole numbers."""
    rng = np.random.default_rng(3)
    values = [np.concatenate([rng.uniform(-4, 4, 150), rng.uniform(-1, 1, 50), np.arange(-28, 28) / 2]) for _ in "abc"]
    a, b, c = (rng.permutation(v) for v in values)
    return [
        a.astype(np.float32),
        np.where(np.arange(COUNT) % 9, b, a).astype(np.float32),
        np.rint(c).astype(np.float32),
    ]


def test_each_row_has_an_exact_meaning() -> None:
    """A row is complete with a line in tests/ops/meanings.py, which says its meaning in another way."""
    missing = {n for n, row in FUNCTIONS.items() if row.real} - set(REAL)
    missing |= {n for n, row in FUNCTIONS.items() if row.integer} - set(INTEGER)
    assert not missing, f"add their exact meanings to tests/ops/meanings.py: {sorted(missing)}"


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_estimates_of_functions(tmp_path: Path) -> None:
    """Of three that share no C; `bench-functions` shows all."""
    for name, (counted, estimate) in measured(["sigmoid", "sqrt", "sum"], "mps2-an386", tmp_path).items():
        assert estimate == pytest.approx(counted, rel=0.05), name


@pytest.mark.parametrize("arithmetic", ["tflite", "onnx"])
def test_floats(arithmetic: str, tmp_path: Path) -> None:
    rows = cases(name for name, row in FUNCTIONS.items() if row.real)
    operands = [Tensor(f"x{i}", (COUNT,), "float32") for i in range(3)]
    results = [Tensor(f"y{i}", (COUNT,), FUNCTIONS[n].result or "float32") for i, (n, _) in enumerate(rows)]
    condition = Tensor("condition", (COUNT,), "bool")
    graph = network(rows, [*operands, condition], results, arithmetic)
    values, chosen = floats(), np.arange(COUNT) % 3 == 0
    lists = [v.astype(float).tolist() for v in values]
    for (name, parameters), seen in zip(rows, both(graph, [*values, chosen], tmp_path), strict=True):
        want = exact(partial(REAL[name], **parameters), *of_row(name, lists, chosen.tolist()))
        kept = np.array([i for i, y in enumerate(want) if y is not None and abs(y) < 1e30 and not near(name, i, lists)])
        assert len(kept) > COUNT // 8, name
        for mine in seen:
            expected = np.array([want[i] for i in kept], float)
            np.testing.assert_allclose(mine[kept], expected, rtol=3e-6, atol=1e-6, err_msg=f"{name} {parameters}")


def near(name: str, at: int, operands: list[list[float]]) -> bool:
    """Whether a float's rounding may decide which way a function jumps."""
    if name not in JUMPS or FUNCTIONS[name].arity == 1:
        return False
    quotient = operands[0][at] / operands[1][at] if operands[1][at] else 0.0
    part = 2 * quotient % 1
    return part != 0 and min(part, 1 - part) < 1e-4


def wrapped(value: int, dtype: str) -> int:
    """The integer of this type in whose place a larger one goes on."""
    if dtype == "bool":
        return int(value)
    ends = np.iinfo(dtype)
    return (value - int(ends.min)) % (int(ends.max) - int(ends.min) + 1) + int(ends.min)


def integers(dtype: str) -> list[Array]:
    """Two operands: all pairs of what lies at the ends of the type and around 0, small ones, and any."""
    rng, ends = np.random.default_rng(5), np.iinfo(dtype)
    last = [ends.min, ends.min + 1, ends.min // 2, 0, 1, ends.max // 2, ends.max - 1, ends.max]
    pairs = [part.ravel() for part in np.meshgrid(np.array(last, dtype), np.array(last, dtype))]
    small = [rng.integers(max(-9, ends.min), 12, COUNT - 128).astype(dtype) for _ in pairs]  # quotients and powers
    return [
        np.concatenate([p, s, rng.integers(ends.min, ends.max, 64, dtype)]) for p, s in zip(pairs, small, strict=True)
    ]


@pytest.mark.parametrize("dtype", [*PLAIN, "bool"])
def test_integers(dtype: str, tmp_path: Path) -> None:
    """Results that leave a type go on at its other end."""
    names = [n for n, row in FUNCTIONS.items() if row.integer and fits(n, dtype)]
    rows, numbers, chosen = cases(names), np.arange(COUNT), np.arange(COUNT) % 3 == 0
    values = [numbers % 2 == 0, numbers % 4 < 2] if dtype == "bool" else integers(dtype)
    operands = [*(Tensor(f"x{i}", (COUNT,), dtype) for i in range(2)), Tensor("condition", (COUNT,), "bool")]
    results = [Tensor(f"y{i}", (COUNT,), FUNCTIONS[n].result or dtype) for i, n in enumerate(names)]
    graph, lists = network(rows, operands, results, "onnx"), [v.tolist() for v in values]
    for (name, _), seen, y in zip(rows, both(graph, [*values, chosen], tmp_path), results, strict=True):
        kept = powers(lists) if name == "power" else numbers
        parts = [[v[i] for i in kept] for v in of_row(name, lists, chosen.tolist())]
        want = [wrapped(v, y.dtype) for v in exact(INTEGER[name], *parts)]
        for mine in seen:
            np.testing.assert_array_equal(mine[kept], want, err_msg=name)


def powers(operands: list[list[int]]) -> Array:
    """Where the exponent is small: others take long, and numpy bounds them first."""
    return np.array([i for i, y in enumerate(operands[1]) if abs(y) < 12])


def fits(function: str, dtype: str) -> bool:
    """Whether files have the function in this type; those of whole numbers are in tests/importers/test_integers.py."""
    if FUNCTIONS[function].whole:
        return False
    if function in LOGIC or dtype == "bool":
        return function in (*LOGIC, "where") and dtype == "bool"
    if dtype in ("uint32", "uint64"):
        return function in MODULAR
    if function in (*MODULAR[:2], "unsigned_remainder") or dtype == "uint8":
        bits = function.startswith("bit") or function in REAL
        return dtype == "uint8" and function not in ("abs", "neg", "sign", "prelu", "power", "mod", "remainder") and (
            bits or function in (*MODULAR[:2], "unsigned_remainder"))  # fmt: skip
    return True


# Quantised values ----------------------------------------------------------------------------

STEPS = {"int8": (2.0**-5, 5), "int16": (2.0**-13, 0)}  # scale and zero point: exact real numbers from -4 to 4


def steps(dtype: str, count: int) -> list[Array]:
    """All of int8, or int16 from end to end; the second operand in another order."""
    ends = np.iinfo(dtype)
    values = np.linspace(ends.min, ends.max, count).round().astype(dtype)
    return [values, np.random.default_rng(7).permutation(values)]


def of_results(rows: Sequence[Case], dtype: str) -> list[Tensor]:
    """Quantisations that keep most results of functions of STEPS within the type, and cut off some."""
    scale, zero = (0.027, -9) if dtype == "int8" else (2.0**-12 * 1.1, 0)
    return [Tensor(f"y{i}", (COUNT,), dtype, Quant((scale,), (zero,))) for i in range(len(rows))]


def correct(real: list[Any], y: Tensor, mode: Any, slack: float) -> tuple[Array, Array]:
    """The least and the largest right result; both are one, unless the real number is `slack` from halfway."""
    assert y.quant is not None
    exactly = np.array(real, float) / y.quant.scale[0]
    ends = np.iinfo(y.dtype)
    low, high = (np.clip(mode(exactly + d) + y.quant.zero_point[0], ends.min, ends.max) for d in (-slack, slack))
    return low, high


@pytest.mark.parametrize("arity", [1, 2])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_quantised_values_of_onnx(dtype: str, arity: int, tmp_path: Path) -> None:
    """Dequantised, the function of real numbers, quantised: rounded once."""
    rows = cases(n for n, row in FUNCTIONS.items() if row.real and row.arity == arity and not row.result)
    (scale, zero), values = STEPS[dtype], steps(dtype, COUNT)
    operands = [Tensor(f"x{i}", (COUNT,), dtype, Quant((scale,), (zero,))) for i in range(arity)]
    results = of_results(rows, dtype)
    lists = [((v.astype(float) - zero) * float(np.float32(scale))).tolist() for v in values[:arity]]
    seen = both(network(rows, operands, results, "onnx"), values[:arity], tmp_path)
    for (name, parameters), pair, y in zip(rows, seen, results, strict=True):
        want = exact(partial(REAL[name], **parameters), *lists)
        kept = [i for i, r in enumerate(want) if r is not None and not near(name, i, lists)]
        low, high = correct([want[i] for i in kept], y, np.rint, 2e-3 if dtype == "int16" else 1e-4)
        assert len(set(low.tolist())) > 1 or name == "zero_of_range", name
        for mine in pair:
            right = (low <= mine[kept]) & (mine[kept] <= high)
            assert right.all(), (
                f"{name} {parameters}: {np.array(kept)[~right][:9]} {mine[kept][~right][:9]} {low[~right][:9]}"
            )


# Functions of TFLM, and how many steps its fixed-point arithmetic may lie beside the correct rounding.
TFLM = {
    "int8": {
        "difference": 1,
        "squared_difference": 1,
        "prelu": 1,
        "quotient": 1,
        "abs": 1,
        "leaky_relu": 1,
        "rsqrt": 1,
    },
    "int16": {
        "difference": 1,
        "squared_difference": 8,
        "abs": 1,
        "leaky_relu": 1,
        "rsqrt": 1,
        "gelu": 2,
        "gelu_tanh": 2,
    },
}


@pytest.mark.parametrize("dtype", TFLM)
def test_quantised_values_of_tflite(dtype: str, tmp_path: Path) -> None:
    """C equals numpy, which other tests compare with TFLM; here both also with the real numbers."""
    rows, values = cases([*TFLM[dtype], *PREDICATES]), steps(dtype, COUNT)
    zeros = (3, -7) if dtype == "int8" else (0, 0)
    scales = (0.031, 0.017) if dtype == "int8" else (0.00013, 0.00007)
    operands = [Tensor(f"x{i}", (COUNT,), dtype, Quant((scales[i],), (zeros[i],))) for i in range(2)]
    drafts = zip(rows, of_results(rows, dtype), strict=True)
    results = [replace(y, dtype="bool", quant=None) if name in PREDICATES else y for (name, _), y in drafts]
    lists = [
        ((v.astype(float) - z) * float(np.float32(s))).tolist() for v, z, s in zip(values, zeros, scales, strict=True)
    ]
    seen = both(network(rows, operands, results, "tflite"), values, tmp_path)
    for (name, parameters), (meant, printed), y in zip(rows, seen, results, strict=True):
        np.testing.assert_array_equal(meant, printed, err_msg=name)
        want = exact(partial(REAL[name], **parameters), *lists[: FUNCTIONS[name].arity])
        kept = [i for i, r in enumerate(want) if r is not None]
        real = [want[i] for i in kept]
        if name in PREDICATES:
            unequal = np.abs(np.subtract(*lists)) > 1e-5
            np.testing.assert_array_equal(printed[unequal], np.array(real)[unequal], err_msg=name)
        else:
            low, high = correct(real, y, np.rint, TFLM[dtype][name])
            assert ((low <= printed[kept]) & (printed[kept] <= high)).all(), name
