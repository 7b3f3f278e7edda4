"""`./sconsw bench-onnx`: the node tests of the `onnx` package, compiled for this machine and compared.

The scope is stated by a rule. A test belongs to it

* if it has one node of an operator in OPERATORS: elementwise ones, moves and shapes, convolutions and products,
  reductions and heads, recurrent ones, and the quantised forms, as small networks use them;
* if all tensors at its surface are of the types in TYPES;
* and if it is not the expanded form of another test.

With onnx 1.23 that makes 769 tests. Node tests give shapes, axes and weights as inputs of the graph. In files that
exporters write they are constants, so operands that DATA does not count as data are made constants here.

A test is `passed` if all outputs are within 1e-3 (relative; in bfloat16 2^-7 of the largest) of the expected ones,
and integers of quantised operators within one; `refused` if edgebuild says why it cannot compile it; `wrong`; or
`crashed`: a traceback, C that does not compile, or a program that dies.
Prints a table by operator and writes build/bench/onnx.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import emit, prepare
from edgebuild.model.emit.code import access_functions
from edgebuild.model.ir import Array
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.search import Plan

ROOT = Path(__file__).parents[1]
TYPES = ("FLOAT", "INT8", "UINT8", "INT32", "INT64", "BOOL")
OPERATORS = (
    *[
        "Sigmoid",
        "Tanh",
        "HardSwish",
        "HardSigmoid",
        "LeakyRelu",
        "PRelu",
        "Elu",
        "Gelu",
        "Swish",
        "Softplus",
        "Erf",
        "Exp",
        "Log",
        "Sqrt",
        "Reciprocal",
        "Abs",
    ],
    *[
        "Neg",
        "Pow",
        "Floor",
        "Ceil",
        "Round",
        "Relu",
        "Clip",
        "Selu",
        "Celu",
        "Mish",
        "Shrink",
        "Softsign",
        "Sign",
        "Sin",
        "Cos",
        "Mod",
        "ThresholdedRelu",
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Min",
        "Max",
        "Sum",
        "Mean",
        "Where",
    ],
    *["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not"],
    *[
        "Slice",
        "Split",
        "Concat",
        "Squeeze",
        "Unsqueeze",
        "Expand",
        "Tile",
        "Gather",
        "GatherND",
        "Flatten",
        "Reshape",
        "Transpose",
        "Identity",
    ],
    *["OneHot", "ReverseSequence", "ScatterND", "Trilu", "Cast", "GatherElements", "ScatterElements", "IsInf"],
    *["Resize", "Upsample", "DepthToSpace", "SpaceToDepth", "Pad", "Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum"],
    *[
        "ReduceMax",
        "ReduceMin",
        "ReduceSum",
        "ReduceProd",
        "ReduceMean",
        "ReduceL2",
        "ArgMax",
        "ArgMin",
        "ReduceL1",
        "ReduceSumSquare",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "CumSum",
        "Hardmax",
        "TopK",
        "Softmax",
        "LogSoftmax",
    ],
    *["GlobalMaxPool", "GlobalAveragePool", "AveragePool", "MaxPool", "BatchNormalization", "LayerNormalization"],
    *[
        "LpPool",
        "LRN",
        "InstanceNormalization",
        "GroupNormalization",
        "RMSNormalization",
        "Attention",
        "RotaryEmbedding",
        "LpNormalization",
        "LSTM",
        "GRU",
        "RNN",
    ],
    *[
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "QLinearConv",
        "QLinearMatMul",
        "ConvInteger",
        "MatMulInteger",
    ],
)
# How many operands are data, from the first on; of others it is one. 99: all.
DATA = {
    **dict.fromkeys(
        [
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Pow",
            "Min",
            "Max",
            "Sum",
            "Mean",
            "Where",
            "PRelu",
            "Concat",
            "MatMul",
            "And",
            "Or",
            "Xor",
        ],
        99,
    ),
    **dict.fromkeys(["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "GatherND", "Gather", "Einsum"], 99),
}
DATA |= dict.fromkeys(["GatherElements", "ScatterElements", "ScatterND", "Attention", "RotaryEmbedding"], 99)
QUANTISED = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul")
COARSE = 2.0**-7  # of numbers in bfloat16, which are float32 in C
BATCH = 48  # models in one program
FLAGS = "-std=c11 -O1 -Wall -Wextra -Werror -Wno-unused-parameter"


@dataclass
class Case:
    """A node test: the model with its parameters made constant, and what goes in and comes out."""

    name: str
    operator: str
    model: onnx.ModelProto
    inputs: list[Array]
    outputs: list[Array]
    verdict: str = ""
    why: str = ""
    plan: Plan | None = None


def collected() -> list[Any]:
    """All node tests of the package."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return list(collect_testcases(None))


def every(wanted: str = "") -> Iterator[Case]:
    """All node tests, as they are: inputs that say shapes and axes stay inputs, where `with_constants` is not asked."""
    for test in collected():
        operator = test.model.graph.node[0].op_type
        if wanted in (operator, test.name, ""):
            inputs, outputs = ([_array(x) for x in values] for values in test.data_sets[0])
            yield Case(test.name, operator, deepcopy(test.model), inputs, outputs)


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def cases(wanted: str = "") -> Iterator[Case]:
    """The tests of the scope whose name or operator has `wanted` in it."""
    for test in collected():
        graph = test.model.graph
        kinds = {onnx.TensorProto.DataType.Name(v.type.tensor_type.elem_type) for v in (*graph.input, *graph.output)}
        if len(graph.node) != 1 or "expanded" in test.name or not kinds <= set(TYPES):
            continue
        operator = graph.node[0].op_type
        if operator in OPERATORS and not graph.node[0].domain and wanted in (operator, test.name, ""):
            inputs, outputs = test.data_sets[0]
            model = deepcopy(test.model)  # the package keeps its own for the next who asks
            yield _with_constants(Case(test.name, operator, model, list(inputs), list(outputs)))


def _with_constants(case: Case) -> Case:
    graph, data = case.model.graph, DATA.get(case.operator, 1)
    values = {v.name: np.asarray(x) for v, x in zip(graph.input, case.inputs, strict=True)}
    kept = set(graph.node[0].input[:data])
    for value in [v for v in graph.input if v.name not in kept]:
        graph.input.remove(value)
        graph.initializer.append(numpy_helper.from_array(values[value.name], value.name))
    case.inputs = [values[v.name] for v in graph.input]
    return case


def with_constants(case: Case) -> Case:
    """The case with all inputs behind the first one constant, for operators whose parameters are inputs of the test."""
    changed = Case(case.name, case.operator, deepcopy(case.model), list(case.inputs), case.outputs)
    graph = changed.model.graph
    if any(not isinstance(x, np.ndarray | np.generic) for x in changed.inputs):
        return changed
    for value, x in list(zip(graph.input, changed.inputs, strict=True))[1:]:
        graph.input.remove(value)
        graph.initializer.append(numpy_helper.from_array(np.asarray(x), value.name))
    changed.inputs = changed.inputs[:1]
    return changed


def compile_case(case: Case, number: int, folder: Path) -> None:
    """Write the C of a case to `folder`, or say why there is none."""
    file = folder / f"{case.name}.onnx"
    file.write_bytes(case.model.SerializeToString())
    try:
        graph = prepare(file)
        decided = plan(graph, load_target("host"), ModelRequest(file, f"g{number}", "host", weights="c"))
        for artifact in emit(decided, ""):
            (folder / artifact.name).write_bytes(artifact.data)
        case.plan = decided
    except EdgebuildError as error:
        case.verdict, case.why = "refused", error.diagnostics[0].text
    except Exception as error:  # what a user would see as a traceback
        case.verdict, case.why = "crashed", f"{type(error).__name__}: {error}"


def run_batch(batch: Sequence[Case], first: int, folder: Path) -> None:
    """Compile, run and judge the cases of a batch that have C."""
    ready = [(first + i, case) for i, case in enumerate(batch) if case.plan is not None]
    for number, case in list(ready):
        command = ["gcc", *FLAGS.split(), "-c", f"g{number}.c", f"g{number}_weights.c"]
        done = subprocess.run(command, cwd=folder, text=True, capture_output=True)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line]
            case.verdict, case.why = "crashed", f"does not compile: {lines[0] if lines else done.stderr[:200]}"
            ready.remove((number, case))
    if not ready:
        return
    (folder / "main.c").write_text(_main(ready))
    objects = [name for number, _ in ready for name in (f"g{number}.o", f"g{number}_weights.o")]
    subprocess.run(["gcc", "-std=c11", "main.c", *objects, "-o", "program"], cwd=folder, check=True)
    for number, case in list(ready):
        if len(case.inputs) != len(case.plan.graph.inputs):  # type: ignore[union-attr]
            case.verdict, case.why = "crashed", "it has other inputs than the file"
            continue
        ports = [case.plan.graph.tensors[n] for n in case.plan.graph.inputs]  # type: ignore[union-attr]
        fed = [_fitted(x, t.shape, t.dtype) for x, t in zip(case.inputs, ports, strict=True)]
        try:
            done = subprocess.run(  # type: ignore[assignment]
                ["./program", str(number)], cwd=folder, input=b"".join(fed), capture_output=True, timeout=20
            )
            status = done.returncode
        except subprocess.TimeoutExpired:
            status = -1
        if status:
            case.verdict, case.why = "crashed", f"the program ends with status {status}"
        else:
            second_opinion(case, done.stdout)  # type: ignore[arg-type]


def _main(ready: Sequence[tuple[int, Case]]) -> str:
    """A program that runs the model whose number is its argument, from its input to its output."""
    lines = ["#include <stdio.h>", "#include <stdlib.h>", *(f'#include "g{number}.h"' for number, _ in ready)]
    lines += ["int main(int count, char **words)", "{", "    if (count < 2) return 2;", "    switch (atoi(words[1])) {"]
    for number, case in ready:
        assert case.plan is not None
        functions, tensors = access_functions(case.plan), case.plan.graph.tensors
        lines.append(f"    case {number}:")
        for n in case.plan.graph.inputs:
            lines.append(
                f"        if (fread({functions[n]}(), 1, {tensors[n].bytes}, stdin) != {tensors[n].bytes}) return 3;"
            )
        lines.append(f"        g{number}_invoke();")
        for n in case.plan.graph.outputs:
            lines.append(f"        fwrite({functions[n]}(), 1, {tensors[n].bytes}, stdout);")
        lines.append("        return 0;")
    return "\n".join([*lines, "    }", "    return 2;", "}", ""])


def _fitted(x: Array, shape: tuple[int, ...], dtype: str) -> bytes:
    """An input as the generated code takes it: rows of pixels instead of planes, int8 and int16 instead of unsigned."""
    x = np.asarray(x)
    if x.shape != shape and x.ndim == 4:
        x = x.transpose(0, 2, 3, 1)
    if (x.dtype.name, dtype) in (("uint8", "int8"), ("uint16", "int16")):
        x = (x.astype(np.int32) + np.iinfo(dtype).min).astype(dtype)
    return np.ascontiguousarray(x.astype(dtype)).tobytes()


def judge(case: Case, data: bytes) -> None:
    assert case.plan is not None
    at = 0
    for position, (name, want) in enumerate(zip(case.plan.graph.outputs, case.outputs, strict=True)):
        t = case.plan.graph.tensors[name]
        have = np.frombuffer(data, t.dtype, t.elements, at)
        at += t.bytes
        want = np.asarray(want)
        if (want.dtype.name, t.dtype) in (("uint8", "int8"), ("uint16", "int16")):
            have = (have.astype(np.int32) - np.iinfo(have.dtype).min).astype(want.dtype)
        if want.shape != t.shape and want.ndim == 4:
            want = want.transpose(0, 2, 3, 1)
        finite = want[np.isfinite(want)] if want.dtype.name == "bfloat16" else ()
        coarse = COARSE * np.max(np.abs(finite), initial=0)
        near = have.size == want.size and np.allclose(
            have.astype(np.float64),
            want.ravel().astype(np.float64),
            rtol=1e-3,
            atol=1.0 if case.operator in QUANTISED else max(1e-5, coarse),
            equal_nan=True,
        )
        if not near:
            case.verdict = "wrong"
            case.why = f"output {position}: {have[:4]} instead of {want.ravel()[:4]}"
            return
    case.verdict = "passed"


def second_opinion(case: Case, data: bytes) -> None:
    """Judge by onnxruntime what differs from the package's own numbers: the two differ in a few corners.

    It gets inputs of doubles as the generated code gets them, in float32.
    """
    judge(case, data)
    if case.verdict == "wrong":
        outputs, first = case.outputs, case.why
        onnxruntime.set_default_logger_severity(3)
        try:
            session = onnxruntime.InferenceSession(case.model.SerializeToString())
            given = [x.astype(np.float32).astype(x.dtype) if x.dtype == np.float64 else x for x in case.inputs]
            case.outputs = session.run(None, dict(zip((v.name for v in session.get_inputs()), given, strict=True)))
        except Exception:  # it has no exception of its own
            return
        judge(case, data)
        case.outputs, case.why = outputs, f"as onnxruntime; the package has {first}"


def main() -> None:
    parser = argparse.ArgumentParser(description="the node tests of the onnx package")
    parser.add_argument("wanted", nargs="?", default="", help="only this operator or test")
    parser.add_argument("--all", action="store_true", help="all tests of the package, in or out of the scope")
    parser.add_argument("-v", action="store_true", help="say why for each test that did not pass")
    arguments = parser.parse_args()
    tests = list(every(arguments.wanted) if arguments.all else cases(arguments.wanted))
    for first in range(0, len(tests), BATCH):
        with tempfile.TemporaryDirectory() as name:
            batch = tests[first : first + BATCH]
            for i, case in enumerate(batch):
                compile_case(case, first + i, Path(name))
                if arguments.all and case.verdict == "refused":
                    batch[i] = tests[first + i] = with_constants(case)
                    compile_case(batch[i], first + i, Path(name))
            run_batch(batch, first, Path(name))
    report(tests, arguments)


def report(tests: Sequence[Case], arguments: argparse.Namespace) -> None:
    verdicts = ("passed", "refused", "wrong", "crashed")
    by_operator = {
        op: {v: sum(c.verdict == v for c in tests if c.operator == op) for v in verdicts}
        for op in sorted({c.operator for c in tests})
    }
    print(f"{'operator':26}" + "".join(f"{v:>9}" for v in verdicts))
    for op, row in by_operator.items():
        print(f"{op:26}" + "".join(f"{row[v] or '':>9}" for v in verdicts))
    for case in tests:
        if case.verdict in ("wrong", "crashed") or (arguments.v and case.verdict != "passed"):
            print(f"{case.verdict} {case.name}: {case.why[:200]}")
    total: dict[str, Any] = {v: Counter(c.verdict for c in tests)[v] for v in verdicts}
    print(", ".join(f"{v} {n}" for v, n in total.items()) + f" of {len(tests)}")
    if not arguments.wanted and not arguments.all:
        total |= {"by_operator": by_operator, "tests": len(tests)}
        total["reasons"] = {c.name: f"{c.verdict}: {c.why}" for c in tests if c.verdict != "passed"}
        folder = ROOT / "build" / "bench"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "onnx.json").write_text(json.dumps(total, indent=1) + "\n")


if __name__ == "__main__":
    main()
