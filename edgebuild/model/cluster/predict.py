"""The time of an inference before anything has run: estimates of kernels, and messages at the medium's rate.

The programs of devices are those that hal/src/cluster.c makes of the plans: how frames begin, in which pieces they are
sent, and what their checksums cost. The simulation of events is that which judges a run in simulators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...base.request import ModelRequest
from ...base.target import Target
from .. import ops
from ..ir import ITEM_BYTES, Graph, Op
from ..ops.moves import EVERYONE
from ..plan.check.replay import BrokenPlan
from ..plan.choose import plan
from ..plan.distribute.forms import Cluster
from ..plan.distribute.timeline import ComputeSpan, Receive, Send, Step, Timeline, simulate
from ..plan.search import Plan
from ..plan.section import Section
from .counted import counted
from .pieces import Message
from .terms import HEAD, TAIL

PIECE = 48  # bytes of sums that hal/src/cluster.c brings into the form of the wire at once
# Instructions, counted in simulators: of a checksum for each byte, by the family of the core; of a head, made or read.
CHECKSUM = {"armv6-m": 15.6, "rv32": 16.5}
CHECKSUM_ELSEWHERE = 10.3
SENDING, READ = 75.0, 450.0  # beside the checksum
ROOM = 1 << 30  # bytes of each memory of the device that runs the model alone
NARROWED = 12.0  # of each byte of sums that are sent in fewer bytes than they have


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
                    yield self.us(counted(section, self.plan.graph), _words(section))

    def begin(self) -> Iterator[Step]:
        """The source tells all others that an inference begins, and waits until they are ready."""
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


def _words(section: Section) -> str:
    return " and ".join(dict.fromkeys(op.name for op in (section.ops[0], section.ops[-1])))


def predict(plans: Mapping[int, Plan], cluster: Cluster, messages: Sequence[Message]) -> Timeline:
    """One inference of the devices that take part. Raises BrokenPlan if one waits for ever."""
    programs: list[Sequence[Step]] = []
    for k in range(len(cluster.devices)):
        peers = [p for p in sorted(plans) if p != k]
        programs.append(list(_Program(plans[k], cluster, k, peers, messages).steps()) if k in plans else [])
    timeline = simulate(programs, cluster.medium)
    if timeline.stuck:
        raise BrokenPlan(f"devices wait for what nobody sends: {', '.join(map(str, timeline.stuck))}")
    return timeline


def one_device_us(graph: Graph, target: Target, request: ModelRequest, cluster: Cluster) -> float:
    """The model at the source alone, by the estimates of kernels; as if it had the memory for it."""
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
