"""The cut: what all devices compute together is what one computes, and they send what the plan says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from edgebuild.model import ops
from edgebuild.model.cluster.cut import project
from edgebuild.model.cluster.together import check_together, run_together
from edgebuild.model.compile import prepare
from edgebuild.model.ir import Graph, verify
from edgebuild.model.plan.check.replay import BrokenPlan
from edgebuild.model.plan.distribute.forms import ClusterPlan
from tests.distribute.cases import METHODS, cluster, plan_by, random_graph
from tests.zoo.builders import ZOO, quantized

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"
SHARED = Path(__file__).parents[3] / "shared" / "models"


def check(graph: Graph, plan: ClusterPlan) -> None:
    graphs, messages = project(graph, plan)
    for device in graphs:
        verify(device, ops.result_shape)
        read = {n for op in device.ops for n in op.inputs} | set(device.outputs)
        assert all(ops.SPECS[op.kind].link or op.outputs[0] in read for op in device.ops)
    assert sum(m.transfer.bytes for m in messages) == plan.cost.bytes
    check_together(graph, graphs, [g.ops for g in graphs], messages, plan.cluster.source)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["switch", "bus", "star"])
@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("method", METHODS)
def test_all_methods(method: str, n: int, kind: str) -> None:
    graph = prepare(DIGITS)
    plan = plan_by(graph, cluster(n, kind, source=n // 2), method)
    assert plan is not None or (method in ("joint", "mixed") and n > 3)
    if plan is not None:
        assert n == 1 or method in ("joint", "mixed") or method in {d.method for d in plan.decisions}
        check(graph, plan)


@pytest.mark.parametrize("empty", range(3))
@pytest.mark.parametrize("method", METHODS)
def test_a_device_with_next_to_no_share(method: str, empty: int) -> None:
    """It may have no channel of a layer; if it is the source, another one adds the bias."""
    shares = tuple(0.001 if k == empty else 1.0 for k in range(3))
    graph = prepare(DIGITS)
    plan = plan_by(graph, cluster(3, "bus", source=0, shares=shares), method)
    assert plan is not None or method in ("joint", "mixed")
    if plan is not None:
        check(graph, plan)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", ["tflite", "float", "qdq"])
@pytest.mark.parametrize("seed", range(8))
def test_random_networks(form: str, seed: int, tmp_path: Path) -> None:
    graph = random_graph(form, 500 + seed, tmp_path)
    for number, method in enumerate(METHODS):
        kind = ("switch", "bus", "star")[(seed + number) % 3]
        plan = plan_by(graph, cluster(2 + (seed + number) % 3, kind, source=1), method)
        if plan is not None:
            check(graph, plan)


@pytest.mark.parametrize("name", ["mlperf_kws", "mlperf_ad", "micro_speech", "paper_txt"])
@pytest.mark.parametrize("method", METHODS)
def test_shared_models(name: str, method: str) -> None:
    if not (SHARED / f"{name}.tflite").exists():
        pytest.skip("no shared models")
    graph = prepare(SHARED / f"{name}.tflite")
    plan = plan_by(graph, cluster(4), method)
    if plan is not None:
        check(graph, plan)


@pytest.mark.parametrize(("method", "n"), [("parts", 2), ("parts", 5), ("fan-in", 3)])
def test_tensors_side_by_side(method: str, n: int, tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(quantized(ZOO["swiftnet_like"]()).SerializeToString())
    graph = prepare(file)
    plan = plan_by(graph, cluster(n), method)
    assert plan is not None
    if method == "parts":
        assert any(d.method == "parts" and plan.network.layers[d.layer].joins for d in plan.decisions)
    check(graph, plan)


def cut_digits() -> tuple[Graph, ClusterPlan]:
    graph = prepare(DIGITS)
    plan = plan_by(graph, cluster(3), "fan-in")
    assert plan is not None
    return graph, plan


def test_a_wrong_order_is_noticed() -> None:
    """Who waits for an answer before asking waits for ever."""
    graph, plan = cut_digits()
    graphs, messages = project(graph, plan)
    orders = [list(g.ops) for g in graphs]
    sent, got = (next(i for i, op in enumerate(orders[0]) if op.kind == kind) for kind in ("send", "receive"))
    assert sent < got
    orders[0].insert(sent, orders[0].pop(got))
    with pytest.raises(BrokenPlan, match="wait for each other"):
        check_together(graph, graphs, orders, messages, 0)


def test_a_wrong_part_is_noticed() -> None:
    graph, plan = cut_digits()
    graphs, messages = project(graph, plan)
    worker = graphs[1]
    name = next(n for n, t in worker.tensors.items() if t.data is not None and t.data.dtype == np.int8)
    wrong = dataclasses.replace(worker.tensors[name], data=-worker.tensors[name].data)  # type: ignore[operator]
    spoilt = dataclasses.replace(worker, tensors={**worker.tensors, name: wrong})
    with pytest.raises(BrokenPlan, match="wrong values"):
        check_together(graph, (graphs[0], spoilt, graphs[2]), [g.ops for g in graphs], messages, 0)


def test_a_message_that_nobody_takes_is_noticed() -> None:
    graph, plan = cut_digits()
    graphs, messages = project(graph, plan)
    orders = [list(g.ops) for g in graphs]
    orders[2] = [op for op in orders[2] if op.attrs.get("message") != messages[-1].number]
    inputs = [np.zeros(graph.tensors[n].shape, graph.tensors[n].dtype) for n in graph.inputs]
    with pytest.raises(BrokenPlan):
        run_together(graphs, orders, messages, inputs)
