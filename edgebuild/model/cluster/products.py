"""From a model and a cluster to the files of every device: plan, cut, ordinary pipeline for each, joint replay."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ...base.artifacts import Artifact
from ...base.errors import EdgebuildError, did_you_mean, fail
from ...base.request import ModelRequest
from ...base.target import Target, hal_dir, load_target
from .. import ops
from ..compile import check_weights, compile_model, emit, prepare
from ..emit.code import cluster_header
from ..formats.format import Bound, Shapes
from ..ir import ITEM_BYTES, Graph, Link, Op
from ..kernels import source_bytes
from ..ops.moves import EVERYONE
from ..plan.check.replay import BrokenPlan
from ..plan.choose import plan
from ..plan.distribute.by_name import Chosen
from ..plan.distribute.forms import Cluster
from ..plan.distribute.timeline import ComputeSpan, Receive, Send, Step, Timeline, simulate
from ..plan.search import Plan
from .cut import Message, project
from .terms import GAIN, HEAD, TAIL, Spare, counted, json_artifact, plan_cluster
from .together import check_together

# The predicted time of an inference: estimates of kernels, and messages at the medium's rate.
#
# The programs of devices are those that hal/src/cluster.c makes of the plans: heads of frames, the pieces in which they
# are sent, and the cost of checksums. The same simulation of events times runs in simulators.

PIECE = 48  # bytes of sums that hal/src/cluster.c converts for the wire at once
# Instructions, counted in simulators: of a checksum for each byte, by the family of the core; to write or read a head.
CHECKSUM = {"armv6-m": 15.6, "rv32": 16.5}
CHECKSUM_ELSEWHERE = 10.3
SENDING, READ = 75.0, 450.0  # beside the checksum
ROOM = 1 << 30  # bytes of each memory, for the time of the model on one device
NARROWED = 12.0  # instructions for each byte of sums that are sent in fewer bytes than they have


class _Program:
    """The work of a device in an inference. `peers`: the other devices that take part."""

    def __init__(self, plan: Plan, cluster: Cluster, k: int, peers: Sequence[int], wires: Sequence[Message]) -> None:
        self.plan, self.cluster, self.k, self.peers, self.messages = plan, cluster, k, peers, wires
        self.hz = cluster.devices[k].hz
        family = next((f for f in CHECKSUM if plan.target.core.isa.startswith(f)), "")
        self.checksum = CHECKSUM.get(family, CHECKSUM_ELSEWHERE)

    def us(self, count: float, what: str) -> ComputeSpan:
        return ComputeSpan(count / self.hz * 1e6, what)

    def head(self, what: str, read: bool = False) -> ComputeSpan:
        return self.us((READ if read else SENDING) + self.checksum * (HEAD - TAIL), what)

    def steps(self) -> Iterator[Step]:
        yield from self.begin()
        for section in self.plan.steps:
            op = section.ops[-1]
            match ops.SPECS[op.kind].link:
                case "send":
                    yield from self.send(op)
                case "receive":
                    yield from self.receive(op)
                case _:
                    ends = dict.fromkeys(op.name for op in (section.ops[0], section.ops[-1]))
                    yield self.us(counted(section, self.plan.graph), " and ".join(ends))

    def begin(self) -> Iterator[Step]:
        """The source starts the inference on all other devices, and waits until they are ready."""
        source = self.cluster.source
        if self.k == source:
            for peer in self.peers:
                yield self.head("start")
                yield Send((peer,), HEAD, HEAD, "start")
            for peer in self.peers:
                yield Receive(peer, HEAD, f"ready of {self.cluster.devices[peer].name}")
                yield self.head("ready", True)
            for peer in self.peers:
                yield self.head("go")
                yield Send((peer,), HEAD, HEAD, "go")
        else:
            yield Receive(source, HEAD, "start")
            yield self.head("start", True)
            yield self.head("ready")
            yield Send((source,), HEAD, HEAD, "ready")
            yield Receive(source, HEAD, "go")
            yield self.head("go", True)

    def send(self, op: Op) -> Iterator[Step]:
        m = self.messages[op.attrs["message"]]
        to = tuple(self.peers) if op.attrs["device"] == EVERYONE else m.transfer.receivers
        size, what = m.transfer.bytes, f"message {m.number}: {m.tensor}"
        yield self.head(what)
        yield Send(to, HEAD, HEAD + size + TAIL, what)
        narrow = ITEM_BYTES[self.plan.graph.tensors[op.inputs[0]].dtype] != op.attrs["wire"]
        for part in self.pieces(size, op.attrs["wire"], narrow):
            yield self.us(part * (self.checksum + (NARROWED if narrow else 0.0)), what)
            yield Send(to, part, 0, what)
        yield Send(to, TAIL, 0, what)

    def pieces(self, size: int, wire: int, narrow: bool) -> Iterator[int]:
        most = PIECE // wire * wire if narrow else size
        yield from (min(most, size - at) for at in range(0, size, most))

    def receive(self, op: Op) -> Iterator[Step]:
        m = self.messages[op.attrs["message"]]
        sender, size, what = op.attrs["device"], m.transfer.bytes, f"message {m.number}: {m.tensor}"
        yield Receive(sender, HEAD, what)
        yield self.head(what, True)
        narrow = ITEM_BYTES[self.plan.graph.tensors[op.outputs[0]].dtype] != op.attrs["wire"]
        for part in self.pieces(size, op.attrs["wire"], narrow):
            yield Receive(sender, part, what)
            yield self.us(part * (self.checksum + (NARROWED if narrow else 0.0)), what)
        yield Receive(sender, TAIL, what)


def predict(plans: Mapping[int, Plan], cluster: Cluster, messages: Sequence[Message]) -> Timeline:
    """Simulate one inference on the devices that take part. Raises BrokenPlan if a device waits for ever."""
    programs: list[Sequence[Step]] = []
    for k in range(len(cluster.devices)):
        peers = [p for p in sorted(plans) if p != k]
        programs.append(list(_Program(plans[k], cluster, k, peers, messages).steps()) if k in plans else [])
    timeline = simulate(programs, cluster.medium)
    if timeline.stuck:
        raise BrokenPlan(f"devices wait for what nobody sends: {', '.join(map(str, timeline.stuck))}")
    return timeline


def one_device_us(graph: Graph, target: Target, request: ModelRequest, cluster: Cluster) -> float:
    """Microseconds of the model on the source alone, by the estimates of kernels, as if memory sufficed."""
    roomy = replace(target, memories=tuple(replace(m, size=max(m.size, ROOM)) for m in target.memories))
    planned = plan(graph, roomy, request)
    return sum(counted(s, planned.graph) for s in planned.steps) / cluster.devices[cluster.source].hz * 1e6


def times(alone_us: float, timeline: Timeline, source: int) -> dict[str, float]:
    """`time_us` of a report: `compute` is when at least one device computes, `wire` the rest."""
    end, compute = timeline.end(source), timeline.computing()
    return {
        "one_device": round(alone_us, 3),
        "cluster": round(end, 3),
        "compute": round(min(compute, end), 3),
        "wire": round(max(end - compute, 0.0), 3),
    }


ATTEMPTS = 12  # plans tried, which leave more and more memory free
STEPS = 64  # each attempt frees at least 1/STEPS of a device's memory
MARGIN = 1.1  # factor of safety on estimated code


@dataclass(frozen=True)
class ClusterRequest:
    """A model on a cluster. `target`: of all devices, in place of their own: for simulation on the build machine."""

    source: Path
    cluster: Path
    name: str
    devices: int | None = None
    method: str = "joint"
    objective: str | None = None  # default: that of the cluster file
    target: str | None = None
    own: str | None = None  # the device whose files are named `name` without a suffix; default: the source
    shape: Shapes = ()
    bind: Bound = ()
    outputs: tuple[str, ...] = ()

    def one_device(self, name: str, target: str) -> ModelRequest:
        """The request of the model on one device."""
        return ModelRequest(self.source, name, target, shape=self.shape, bind=self.bind, outputs=self.outputs)


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
class BuiltCluster:
    """The files of all devices. Devices without work have no part."""

    parts: tuple[Part, ...]
    source: int
    report: dict[str, Any]
    messages: tuple[Message, ...]
    header: Artifact
    chosen: Chosen
    timeline: Timeline | None = None  # predicted; None: one device, or the part of a device alone

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        own = [a for part in self.parts for a in part.artifacts]
        return (*own, self.header, json_artifact(self.report["model"]["prefix"], self.report))


def compile_part(request: ModelRequest) -> tuple[Artifact, ...]:
    """The files of one device's part of a model. Raises EdgebuildError for wrong input."""
    if request.cluster is None or request.device is None:
        text = f"option '{'device' if request.cluster else 'cluster'}' is missing: they go together"
        raise fail(text, file=str(request.cluster or ""), hints=["`edgebuild distribute` makes the parts of all"])
    plain = ModelRequest(request.source, request.name, request.target, cluster=request.cluster, device=request.device)
    others = [f.name for f in fields(plain) if getattr(request, f.name) != getattr(plain, f.name)]
    if others := [name for name in others if name != "choices"]:
        hints = ["all devices must come to the same plan; the cluster file says what it depends on"]
        raise fail(f"option '{others[0]}': not for a device of a cluster", file=str(request.cluster), hints=hints)
    built = build_cluster(ClusterRequest(request.source, request.cluster, request.name, own=request.device))
    return _of_device(built, request)


def _of_device(built: BuiltCluster, request: ModelRequest) -> tuple[Artifact, ...]:
    names = [row["name"] for row in built.report["devices"]]
    assert request.device is not None
    if request.device not in names:
        text = f"there is no device '{request.device}'{did_you_mean(request.device, names)}"
        raise fail(text, file=str(request.cluster), hints=[f"devices: {', '.join(names)}"])
    part = next((p for p in built.parts if p.number == names.index(request.device)), None)
    if part is None:
        raise fail(f"device '{request.device}' has nothing to do", file=str(request.cluster), hints=["leave it out"])
    if load_target(request.target).name != part.target.name:
        text = f"device '{request.device}' is {part.target.name}, this build is for {request.target}"
        raise fail(text, file=str(request.cluster))
    return part.artifacts


class _Over(Exception):
    """Products are larger than the plan assumed. `more`: bytes of flash and RAM to leave free, by device."""

    def __init__(self, more: dict[int, Spare], error: EdgebuildError) -> None:
        super().__init__(str(error))
        self.more, self.error = more, error


def build_cluster(request: ClusterRequest) -> BuiltCluster:
    """The files of all devices. Raises EdgebuildError if the model or the cluster is invalid, or no plan fits.

    A plan counts weights and tensors. If tables of kernels, or copies of parts, make a device's products larger than
    its memory, the plan is made again with less room.
    """
    graph = prepare(request.source, request.shape, request.outputs, request.bind)
    spare: dict[int, Spare] = {}
    spare_of: dict[int, Spare] = {}  # by the last plan that left a device too little
    error: EdgebuildError | None = None
    for _ in range(ATTEMPTS):
        try:
            chosen, report = plan_cluster(
                request.source, request.cluster, request.devices, request.method, request.objective, graph, spare
            )
        except EdgebuildError as no_plan:
            raise error or no_plan from None
        try:
            return _built(request, graph, chosen, report, spare)
        except _Over as over:
            error, before_all = error or over.error, dict(spare)
            for k, more in over.more.items():
                row, device = report["devices"][k], chosen.plan.cluster.devices[k]
                took = (row["weights_bytes"], row["arena_bytes"])
                if spare_of.get(k) == took:  # less room gave the same plan again
                    rows = zip(more, (device.flash, device.ram), took, strict=True)
                    flash, ram = (max(m, room - t + t // STEPS + 1) if m else 0 for m, room, t in rows)
                    more = flash, ram
                spare_of[k], before = took, spare.get(k, (0, 0))
                rows = zip(before, more, (device.flash, device.ram), strict=True)
                flash, ram = (b + min(m, room) for b, m, room in rows)  # at most all that the device has
                spare[k] = flash, ram
            if spare == before_all:
                break  # no device has more to leave
    assert error is not None
    raise error


def _built(
    request: ClusterRequest, graph: Graph, chosen: Chosen, report: dict[str, Any], spare: Mapping[int, Spare]
) -> BuiltCluster:
    report["model"]["prefix"] = request.name
    source, digest = chosen.plan.cluster.source, int(report["plan_hash"][:8], 16)
    graphs, messages = project(graph, chosen.plan)
    if len(graphs) == 1:
        parts = [_single_device(request, chosen)]
    else:
        parts = _Builder(request, graph, chosen, digest, spare).parts(graphs, messages)
    for part in parts:
        _complete(report["devices"][part.number], part)
    does = {part.number: f"{part.name}, {part.entry}()" for part in parts}
    devices = [(d["name"], does.get(d["number"], "idle")) for d in report["devices"]]
    sent = [(m, m.transfer, m.transfer.receivers) for m in messages]
    rows = [(m.number, t.sender, to[0] if len(to) == 1 else EVERYONE, t.bytes, m.tensor) for m, t, to in sent]
    header = cluster_header(request.name, graph.file, digest, source, devices, rows)
    timeline = _timed(request, graph, chosen, parts, messages, report) if request.own is None else None
    return BuiltCluster(tuple(parts), source, report, messages, header, chosen, timeline)


def _timed(
    request: ClusterRequest,
    graph: Graph,
    chosen: Chosen,
    parts: Sequence[Part],
    messages: Sequence[Message],
    report: dict[str, Any],
) -> Timeline | None:
    """Replace the plan's times in the report by a simulation with the estimates of the chosen kernels."""
    cluster, plans = chosen.plan.cluster, {p.number: p.plan for p in parts if p.plan is not None}
    own = request.one_device(request.name, request.target or cluster.devices[cluster.source].target)
    alone = one_device_us(graph, load_target(own.target), own, cluster)
    timeline = predict(plans, cluster, messages) if plans else None
    one = {"one_device": round(alone, 3), "cluster": round(alone, 3), "compute": round(alone, 3), "wire": 0.0}
    report["time_us"] = times(alone, timeline, cluster.source) if timeline is not None else one
    report["time_us"]["longest_wait"] = round(timeline.longest_wait(), 3) if timeline is not None else 0.0
    report["faster"] = report["time_us"]["cluster"] < GAIN * alone
    return timeline


def _single_device(request: ClusterRequest, chosen: Chosen) -> Part:
    """One device: the files of `edgebuild model`."""
    device = chosen.plan.cluster.devices[0]
    own = request.one_device(request.name, request.target or device.target)
    artifacts = compile_model(own)
    if _arena(artifacts) > device.ram:
        artifacts = compile_model(replace(own, ram=device.ram))
    return Part(0, request.name, load_target(own.target), f"{request.name}_invoke", artifacts)


def _arena(artifacts: Sequence[Artifact]) -> int:
    report = next(a for a in artifacts if a.name.endswith("_report.json"))
    return int(json.loads(report.data)["ram"]["arena_bytes"])


@dataclass(frozen=True)
class _Builder:
    """Compiles each device's graph by the ordinary pipeline. `digest`: of the plan."""

    request: ClusterRequest
    graph: Graph
    chosen: Chosen
    digest: int
    spare: Mapping[int, Spare]

    def parts(self, graphs: Sequence[Graph], messages: Sequence[Message]) -> list[Part]:
        """The files of each device. Raises BrokenPlan if the devices together compute something else than the model."""
        cluster = self.chosen.plan.cluster
        busy = [k for k, g in enumerate(graphs) if g.ops or k == cluster.source]
        peers = sum(1 << k for k in busy)
        plans = {k: self.planned(k, graphs[k], peers) for k in busy}
        sha256 = hashlib.sha256(self.request.source.read_bytes()).hexdigest()
        built = [self.part(k, each, sha256) for k, each in plans.items()]
        self.check_sizes(built)
        orders = [_order(plans[k]) if k in plans else [] for k in range(len(graphs))]
        planned = [plans[k].graph if k in plans else graphs[k] for k in range(len(graphs))]
        check_together(self.graph, planned, orders, messages, cluster.source)
        return built

    def planned(self, k: int, graph: Graph, peers: int) -> Plan:
        """The fastest plan of a device, or one within its RAM if that takes more. Raises _Over if none fits."""
        cluster, device = self.chosen.plan.cluster, self.chosen.plan.cluster.devices[k]
        is_source, timeout = k == cluster.source, round(cluster.medium.timeout_ms * 1000)
        plain = is_source if self.request.own is None else device.name == self.request.own
        name = self.request.name if plain else f"{self.request.name}_dev{k}"
        link = Link(self.digest, k, cluster.source, peers, timeout, f"{name}_{'invoke' if is_source else 'serve'}")
        own = self.request.one_device(name, self.request.target or device.target)
        target, graph = load_target(own.target), replace(graph, link=link)
        planned_here, room = plan(graph, target, own), device.ram + self.spare.get(k, (0, 0))[1]
        if planned_here.arena_bytes <= room:
            return planned_here
        try:
            return plan(graph, target, replace(own, ram=room))
        except EdgebuildError as error:
            more = {k: (0, min(planned_here.arena_bytes - room, device.ram // STEPS) + 1)}
            first = error.diagnostics[0]  # nodes alone do not tell which device lacks memory
            text, file = f"device '{device.name}': {first.text}", str(self.request.cluster)
            raise _Over(more, fail(text, file=file, node=first.node, kind=first.kind, hints=first.hints)) from None

    def part(self, k: int, plan: Plan, sha256: str) -> Part:
        artifacts, link = emit(plan, sha256), plan.graph.link
        assert link is not None
        return Part(k, plan.name, plan.target, link.entry, artifacts, plan)

    def check_sizes(self, parts: Sequence[Part]) -> None:
        """Raise _Over if weights, and code where it counts, do not fit the flash that the cluster gives a device."""
        more: dict[int, Spare] = {}
        for part in parts:
            device = self.chosen.plan.cluster.devices[part.number]
            weights = len(next(a.data for a in part.artifacts if a.name.endswith("_weights.bin")))
            own = code_of(part) if self.chosen.plan.cluster.with_code else 0
            room = device.flash + self.spare.get(part.number, (0, 0))[0]
            if weights + own > room:
                more[part.number] = (weights + own - room, 0)
                also = f"code about {own} B, " if own else ""
                text = f"device '{device.name}': weights {weights} B, {also}flash {room} B"
            elif part.plan is not None:
                check_weights(part.plan, weights, part.target)
        if more:
            hint = "sums, biases and tables come on top of the plan; more flash, or more devices, would fit"
            raise _Over(more, fail(text, file=str(self.request.cluster), hints=[hint]))


def code_of(part: Part) -> int:
    """Estimated bytes of code of a device's part: its smallest program, and the functions of messages."""
    if part.plan is None:
        return 0
    report = json.loads(next(a for a in part.artifacts if a.name.endswith("_report.json")).data)
    messages = source_bytes(hal_dir() / "src" / "cluster.c", part.plan.cutter.form.core)
    return round(MARGIN * (report["rom"]["estimated_code_bytes"] + messages))


def _order(plan: Plan) -> list[Op]:
    """The ops in the order in which the device runs them, each view before its first reader."""
    producers, order, there = plan.graph.producers, list[Op](), set[str]()

    def bring(op: Op) -> None:
        for name in op.inputs:
            before = producers.get(name)
            if before is not None and name not in there and ops.SPECS[before.kind].view:
                bring(before)
        if op.outputs[0] not in there:
            there.add(op.outputs[0])
            order.append(op)

    for section in plan.steps:
        for op in section.ops:
            bring(op)
    for name in plan.graph.outputs:
        if name in producers:
            bring(producers[name])
    return order


def _complete(row: dict[str, Any], part: Part) -> None:
    """Put the sizes of the device's products into its row of the report, beside those that the plan assumed."""
    report = json.loads(next(a for a in part.artifacts if a.name.endswith("_report.json")).data)
    row["planned"] = {"weights_bytes": row["weights_bytes"], "arena_bytes": row["arena_bytes"]}
    row["weights_bytes"] = report["rom"]["weights_bytes"]
    row["arena_bytes"] = report["ram"]["arena_bytes"]
    row["macs"] = report["macs"]["generated"]
    if part.plan is not None:
        row["code_bytes"] = code_of(part)
    row["files"] = part.name
