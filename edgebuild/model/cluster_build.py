"""A model and a cluster become the files of every device: plan, cut, the ordinary pipeline for each, joint replay."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..base.artifacts import Artifact
from ..base.errors import fail
from ..base.request import ModelRequest
from ..base.target import Target, load_target
from . import ops
from .cluster import json_artifact, plan_cluster
from .compile import check_weights, compile_model, prepare
from .emit import emit
from .emit.cluster import Row, cluster_header
from .ir import Graph, Link, Op
from .ops.link import EVERYONE
from .plan.choose import plan
from .plan.distribute.choose import Chosen
from .plan.distribute.problem import Device
from .plan.search import Plan
from .project import Message, project
from .together import check_together


@dataclass(frozen=True)
class ClusterRequest:
    """`target`: of all devices, in place of their own: for simulation on the build machine."""

    source: Path
    cluster: Path
    name: str
    devices: int | None = None
    method: str = "joint"
    objective: str = "traffic"
    target: str | None = None


@dataclass(frozen=True)
class Part:
    """The products of one device. `name`: the prefix of its files; `entry`: its C function."""

    number: int
    name: str
    target: Target
    entry: str
    artifacts: tuple[Artifact, ...]
    plan: Plan | None = None


@dataclass(frozen=True)
class Cluster:
    """All products. Devices that have nothing to do have no part."""

    parts: tuple[Part, ...]
    source: int
    report: dict[str, Any]
    messages: tuple[Message, ...]
    header: Artifact

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        own = [a for part in self.parts for a in part.artifacts]
        return (*own, self.header, json_artifact(self.report["model"]["prefix"], self.report))


def build_cluster(request: ClusterRequest) -> Cluster:
    """Everything that the devices get. Raises EdgebuildError where the model, the cluster or a device is wrong."""
    graph = prepare(request.source)
    chosen, report = plan_cluster(
        request.source, request.cluster, request.devices, request.method, request.objective, graph
    )
    report["model"]["prefix"] = request.name
    source = chosen.plan.cluster.source
    graphs, messages = project(graph, chosen.plan)
    if len(graphs) == 1:
        parts = [_alone(request, chosen)]
    else:
        parts = _parts(request, graph, chosen, graphs, messages, int(report["plan_hash"][:8], 16))
    for part in parts:
        _complete(report["devices"][part.number], part)
    does = [("source" if d["number"] == source else d["name"]) for d in report["devices"]]
    built = {part.number: f"{part.name}, int {part.entry}(void)" for part in parts}
    devices = [(d["name"], built.get(d["number"], "idle")) for d, _ in zip(report["devices"], does, strict=True)]
    rows = [
        Row(m.number, m.transfer.sender, _address(m), m.transfer.bytes, m.tensor) for m in messages
    ]  # fmt: skip
    digest = int(report["plan_hash"][:8], 16)
    header = cluster_header(request.name, graph.file, digest, source, devices, rows)
    return Cluster(tuple(parts), source, report, messages, header)


def _address(m: Message) -> int:
    return m.transfer.receivers[0] if len(m.transfer.receivers) == 1 else EVERYONE


def _alone(request: ClusterRequest, chosen: Chosen) -> Part:
    """One device: the files of `edgebuild model`."""
    device = chosen.plan.cluster.devices[0]
    own = ModelRequest(request.source, request.name, request.target or device.target)
    artifacts = compile_model(own)
    if _arena(artifacts) > device.ram:
        artifacts = compile_model(replace(own, ram=device.ram))
    return Part(0, request.name, load_target(own.target), f"{request.name}_invoke", artifacts)


def _arena(artifacts: Sequence[Artifact]) -> int:
    report = next(a for a in artifacts if a.name.endswith("_report.json"))
    return int(json.loads(report.data)["ram"]["arena_bytes"])


def _parts(
    request: ClusterRequest,
    graph: Graph,
    chosen: Chosen,
    graphs: Sequence[Graph],
    messages: Sequence[Message],
    plan_hash: int,
) -> list[Part]:
    """Each device through the ordinary pipeline; then all of them together, before anything is printed."""
    cluster = chosen.plan.cluster
    busy = [k for k, g in enumerate(graphs) if g.ops or k == cluster.source]
    peers, timeout = sum(1 << k for k in busy), round(cluster.medium.timeout_ms * 1000)
    plans: dict[int, Plan] = {}
    for k in busy:
        is_source = k == cluster.source
        name = request.name if is_source else f"{request.name}_dev{k}"
        link = Link(plan_hash, k, cluster.source, peers, timeout, f"{name}_{'invoke' if is_source else 'serve'}")
        own = ModelRequest(request.source, name, request.target or cluster.devices[k].target)
        plans[k] = _planned(replace(graphs[k], link=link), own, cluster.devices[k])
    orders = [_order(plans[k]) if k in plans else [] for k in range(len(graphs))]
    planned = [plans[k].graph if k in plans else graphs[k] for k in range(len(graphs))]
    check_together(graph, planned, orders, messages, cluster.source)
    digest = hashlib.sha256(request.source.read_bytes()).hexdigest()
    found = []
    for k, made in plans.items():
        artifacts = emit(made, digest)
        weights = len(next(a.data for a in artifacts if a.name.endswith("_weights.bin")))
        check_weights(made, weights, made.target)
        if weights > cluster.devices[k].flash:
            text = f"device '{cluster.devices[k].name}': weights {weights} B, flash {cluster.devices[k].flash} B"
            hint = "sums, biases and tables come on top of the plan; give the plan less flash, or the device more"
            raise fail(text, file=str(request.cluster), hints=[hint])
        link_of = made.graph.link
        assert link_of is not None
        found.append(Part(k, made.name, made.target, link_of.entry, artifacts, made))
    return found


def _planned(graph: Graph, own: ModelRequest, device: Device) -> Plan:
    """The fastest plan; one within the device's RAM if that takes more."""
    target = load_target(own.target)
    made = plan(graph, target, own)
    return made if made.arena_bytes <= device.ram else plan(graph, target, replace(own, ram=device.ram))


def _order(made: Plan) -> list[Op]:
    """The ops in the order in which the device runs them, views where they are first needed."""
    producers, found, there = made.graph.producers(), list[Op](), set[str]()

    def bring(op: Op) -> None:
        for name in op.inputs:
            before = producers.get(name)
            if before is not None and name not in there and ops.SPECS[before.kind].view:
                bring(before)
        if op.outputs[0] not in there:
            there.add(op.outputs[0])
            found.append(op)

    for section in made.steps:
        for op in section.ops:
            bring(op)
    for name in made.graph.outputs:
        if name in producers:
            bring(producers[name])
    return found


def _complete(row: dict[str, Any], part: Part) -> None:
    """Put the sizes of the device's products into the report, beside those that the plan reckoned with."""
    report = json.loads(next(a for a in part.artifacts if a.name.endswith("_report.json")).data)
    row["planned"] = {"weights_bytes": row["weights_bytes"], "arena_bytes": row["arena_bytes"]}
    row["weights_bytes"] = report["rom"]["weights_bytes"]
    row["arena_bytes"] = report["ram"]["arena_bytes"]
    row["macs"] = report["macs"]["generated"]
    row["files"] = part.name
