"""Effects of `--optimize` and `--portable`: fewer functions, plain C; never another result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import emit
from edgebuild.model.emit.call_loops import Letter, NumberNeeded
from edgebuild.model.ir import Graph
from edgebuild.model.ops import SPECS
from edgebuild.model.ops.base import check_limits
from edgebuild.model.plan.choose import plan
from tests.graphs import examples, random_inputs, single_ops
from tests.kernels.processor import run_on
from tests.ops.host import run_on_host
from tests.ops.test_host import compare

KINDS = ("conv2d", "depthwise_conv2d", "dense", "add", "mul", "avg_pool2d", "max_pool2d", "mean", "softmax")
KINDS += ("clamp", "concat", "pad", "transpose")
TOGETHER = 8  # ops of one kind in a graph
MODES: dict[str, dict[str, object]] = {
    "size": {"optimize": "size"},
    "portable": {"portable": True},
    "portable and size": {"portable": True, "optimize": "size"},
    "speed": {"optimize": "speed"},
}


def beside(graphs: Sequence[Graph]) -> Graph:
    """One graph of graphs that have nothing to do with each other, so that their kernels may share functions."""
    ops, tensors, inputs, outputs = [], {}, [], []
    for i, graph in enumerate(graphs):
        name = {n: f"g{i}_{n}" for n in graph.tensors}
        for op in graph.ops:
            reads, writes = (tuple(name[n] for n in names) for names in (op.inputs, op.outputs))
            ops.append(replace(op, name=f"g{i}_{op.name}", inputs=reads, outputs=writes))
        tensors |= {name[n]: replace(t, name=name[n]) for n, t in graph.tensors.items()}
        inputs += [name[n] for n in graph.inputs]
        outputs += [name[n] for n in graph.outputs]
    return Graph("together", tuple(ops), tensors, tuple(inputs), tuple(outputs), graphs[0].arithmetic)


def crowds(kinds: Sequence[str] = KINDS) -> list[Graph]:
    """Graphs of many ops of one kind, of both arithmetics, int8."""
    together = []
    for kind in kinds:
        graphs = [
            g
            for g in examples(single_ops(kind), 160)
            if all(t.dtype == "int8" for t in g.tensors.values() if not t.constant)
        ]
        graphs = [g for g in graphs if check_limits(SPECS[kind], g.ops[0], g) is None]
        for arithmetic in ("tflite", "onnx"):
            distinct = {
                str((g.ops[0].attrs, *(t.shape for t in g.operands(g.ops[0])))): g
                for g in graphs
                if g.arithmetic == arithmetic
            }
            some = list(distinct.values())[:TOGETHER]
            together += [beside(some)] if len(some) > 1 else []
    return together


def check(graphs: list[Graph], results: list[list[list[object]]], inputs: list[list[list[object]]]) -> None:
    for graph, vectors, rows in zip(graphs, inputs, results, strict=True):
        for vector, row in zip(vectors, rows, strict=True):
            compare(graph, vector, row)


@pytest.mark.one_in(4)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("mode", MODES)
def test_on_the_build_machine(mode: str, tmp_path: Path) -> None:
    graphs = crowds()
    inputs = [random_inputs(graph, 3, seed) for seed, graph in enumerate(graphs)]
    check(graphs, run_on_host(graphs, inputs, tmp_path, **MODES[mode]), inputs)


@pytest.mark.one_in(9)
@pytest.mark.needs("qemu-system-arm", "qemu-system-riscv32", "arm-none-eabi-gcc", "riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("mode", ["size", "portable"])
@pytest.mark.parametrize("target", ["mps2-an385", "mps2-an386", "mps3-an547", "riscv-virt"])
def test_on_processors(target: str, mode: str, tmp_path: Path) -> None:
    graphs = crowds(("conv2d", "depthwise_conv2d", "dense", "add", "avg_pool2d"))
    inputs = [random_inputs(graph, 2, seed) for seed, graph in enumerate(graphs)]
    check(graphs, run_on(load_target(target), graphs, inputs, tmp_path, **MODES[mode]), inputs)


def source(graph: Graph, target: str, **options: object) -> str:
    decided = plan(graph, load_target(target), ModelRequest(Path("random"), "n", target, **options))
    return next(a.data.decode() for a in emit(decided, "") if a.name == "n.c")


def test_kernels_share_functions_for_size() -> None:
    graph = crowds(("conv2d",))[0]
    kernel = re.compile(r"^(?:EB_\w+\s+)*static void (?!eb_)(\w+)", re.M)
    count = {m: len(set(kernel.findall(source(graph, "riscv-virt", optimize=m)))) for m in ("speed", "size")}
    assert count["speed"] == len(graph.ops) and count["size"] < count["speed"] - 1, count


@pytest.mark.slow
def test_portable_is_plain_c() -> None:
    special = re.compile(r"__asm__|arm_acle|arm_mve|__s\w+\(")
    for target in ("mps2-an386", "mps3-an547"):
        assert not any(special.search(source(graph, target, portable=True)) for graph in crowds())
        assert all(special.search(source(graph, target)) for graph in crowds(("conv2d", "depthwise_conv2d", "dense")))


def test_letters_answer_what_all_agree_on() -> None:
    a, b = Letter("A", (2, 4), frozenset("a")), Letter("B", (3, 3), frozenset("b"))
    assert str(2 * a + b - 1) == "(((2 * A) + B) - 1)" and (2 * a + b - 1).values == (6, 10)
    assert str(a * 1 + 0) == "A" and a * 0 == 0 and str(8 - a // 2) == "(8 - (A / 2))"
    assert bool(a) and a > 1 and a % 2 == 0 and int(b) == 3 and list(range(b)) == [0, 1, 2]
    for question in (lambda: a == 2, lambda: range(a), lambda: a > b, lambda: f"{a - 4 or 1}", lambda: (a - 3) // 2):
        with pytest.raises(NumberNeeded) as problem:
            question()
        assert "a" in problem.value.keys
