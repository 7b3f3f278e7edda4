"""`./sconsw bench-functions`: instructions of a value of every function of real numbers, beside its estimate.

One processor of each kind of float arithmetic. Operands are drawn from the normal distribution, of functions that lack
a value there from where they have one. Functions that share C are measured in programs of their own, as the compiler
inlines what is called once. The table of estimates is edgebuild/model/ops/instructions.toml. Writes
build/bench/functions.json.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import emit
from edgebuild.model.ir import Arithmetic, Array, Graph, Op, Tensor
from edgebuild.model.kernels import kernel_of, used_helpers
from edgebuild.model.ops import pointwise
from edgebuild.model.ops.functions import FUNCTIONS
from edgebuild.model.plan.choose import plan
from edgebuild.model.verify import report_of
from edgebuild.model.verify.execution import layers
from edgebuild.model.verify.harness import Builder
from tests.bench import ROOT

TARGETS = ("mps2-an386", "mps2-an385", "microbit", "riscv-virt")
COUNT = 256
ROWS = ("softmax", "log_softmax")  # of all values, beside the table's functions
POSITIVE = ("sqrt", "rsqrt", "log", "power")
INSIDE = ("asin", "acos", "atanh")


def operand(function: str) -> str:
    if function in POSITIVE:
        return "positive"
    return "inside" if function in INSIDE else "above" if function == "acosh" else "x0"


def values(name: str, rng: np.random.Generator) -> Array:
    x = rng.standard_normal(COUNT)
    if name == "condition":
        return x > 0
    of = {"positive": np.abs(x), "inside": np.tanh(x), "above": 1 + np.abs(x)}
    return of.get(name, x).astype(np.float32).reshape(1, COUNT)


def op_of(function: str) -> Op:
    if function in ROWS:
        return Op(function, function, ("x0",), (function,), {"beta": 1.0} if function == "softmax" else {})
    row = FUNCTIONS[function]
    names = (operand(function), "x1", "x2")
    names = ("condition", *names[:2]) if row.condition else names[: row.arity]
    return Op("pointwise", function, names, (function,), pointwise.attributes(function))


def network(functions: list[str]) -> Graph:
    steps = [op_of(name) for name in functions]
    inputs = list(dict.fromkeys(name for op in steps for name in op.inputs))
    types = {name: "bool" if name == "condition" else "float32" for name in inputs}
    types |= {name: (name in FUNCTIONS and FUNCTIONS[name].result) or "float32" for name in functions}
    tensors = {name: Tensor(name, (1, COUNT), dtype) for name, dtype in types.items()}
    return Graph("model", tuple(steps), tensors, tuple(inputs), tuple(functions), Arithmetic.TFLITE)


def groups(functions: list[str]) -> Iterator[list[str]]:
    """Of at most four functions, of which no two share C."""
    waiting = {}
    for name in functions:
        called = re.findall(r"{{(\w+)}}", FUNCTIONS[name].real) if name in FUNCTIONS else ["eb_exp", "eb_log"]
        waiting[name] = {name for h in used_helpers(called, Arithmetic.TFLITE) for name in h.names}
    while waiting:
        group, used = [], set[str]()
        for name, helpers in list(waiting.items()):
            if len(group) < 4 and not used & helpers:
                group.append(name)
                used |= waiting.pop(name)
        yield group


def measured(functions: list[str], name: str, folder: Path) -> dict[str, tuple[float, float]]:
    """Instructions of a value by count and by estimate."""
    target, graph, rng = load_target(name), network(functions), np.random.default_rng(1)
    planned = plan(graph, target, ModelRequest(Path("x"), "model", name, tile="off"))
    artifacts = emit(planned, "")
    report, figures = report_of(artifacts), {}
    builder = Builder(target, folder, bool(report.get("needs_libm")))
    counts = layers([values(n, rng) for n in graph.inputs], artifacts, report, builder)
    for step, row in zip(planned.steps, counts, strict=True):
        ((op,), (form,)) = step.ops, step.forms
        figures[op.name] = row["instructions"] / COUNT, kernel_of(op, planned.graph, form).estimate / COUNT
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the functions' names")
    only = parser.parse_args().only
    functions = [n for n in (*(n for n, row in FUNCTIONS.items() if row.real), *ROWS) if only in n]
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
    print(f"instructions of a value by function: {', '.join(TARGETS)}; largest error of an estimate")
    for target in TARGETS:
        for some in groups(functions):
            with tempfile.TemporaryDirectory() as folder:
                for name, pair in measured(some, target, Path(folder)).items():
                    figures[name].append(pair)
    for name, pairs in figures.items():
        error = max((100 * (estimate / counted - 1) for counted, estimate in pairs), key=abs)
        print(f"{name} = [{', '.join(f'{counted:.1f}' for counted, _ in pairs)}] # {error:+.1f} %")
    out = ROOT / "build" / "bench" / "functions.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"function": n, "targets": dict(zip(TARGETS, pairs, strict=True))} for n, pairs in figures.items()]
    out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
