"""The joint replay: all devices of a cluster run together, before any C is printed.

Short and naive on purpose. Each device runs the steps of its own plan. A sender waits until all receivers take the
message. No medium buffers less, so devices that do not hang here hang on none. Values are real ones, by
the ops' references, and the results are compared with those of the model on one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from .. import ops
from ..ir import Array, Graph, Op
from ..plan.check.interpret import compare, values
from ..plan.check.replay import BrokenPlan
from .cut import Message


@dataclass
class _Runner:
    """A device: the ops in the order of its plan, its position there, and its values."""

    name: str
    graph: Graph
    order: Sequence[Op]
    values: dict[str, Array]
    at: int = 0

    @property
    def op(self) -> Op | None:
        return self.order[self.at] if self.at < len(self.order) else None

    def waits_for(self, what: str) -> int:
        """The number of the message that it waits to send or receive (`what`); -1: none."""
        op = self.op
        return op.attrs["message"] if op is not None and ops.SPECS[op.kind].link == what else -1

    def run(self) -> None:
        """Run ops up to the next message, or to the end."""
        while (op := self.op) is not None and not ops.SPECS[op.kind].link:
            y = ops.SPECS[op.kind].reference(op, self.graph, *(self.values[n] for n in op.inputs))
            self.values[op.outputs[0]] = y.reshape(self.graph.result(op).shape)
            self.at += 1


def run_together(
    graphs: Sequence[Graph], orders: Sequence[Sequence[Op]], messages: Sequence[Message], inputs: Sequence[Array]
) -> list[dict[str, Array]]:
    """All values of all devices. `orders`: of ops, by device.

    Raises BrokenPlan if devices wait for each other, or a message differs from what its receiver expects.
    """
    runners = []
    for k, (graph, order) in enumerate(zip(graphs, orders, strict=True)):
        values = {t.name: t.data for t in graph.tensors.values() if t.data is not None}
        given = zip(graph.inputs, inputs, strict=True) if graph.inputs else ()
        values |= {name: x.reshape(graph.tensors[name].shape) for name, x in given}
        runners.append(_Runner(f"device {k}", graph, order, values))
    sent = 0
    while True:
        for runner in runners:
            runner.run()
        moved = sum(_exchange(runners, k, messages) for k in range(len(runners)))
        sent += moved
        if not moved:
            break
    stuck = [f"{r.name} at {r.op.name}" for r in runners if r.op is not None]
    if stuck:
        raise BrokenPlan(f"devices wait for each other: {', '.join(stuck)}")
    if sent != len(messages):
        raise BrokenPlan(f"{sent} messages were sent, not {len(messages)}")
    return [r.values for r in runners]


def _exchange(runners: Sequence[_Runner], sender: int, messages: Sequence[Message]) -> bool:
    """Deliver the message that a device waits to send, if all receivers wait for it. Returns whether it did."""
    number = runners[sender].waits_for("send")
    if number < 0:
        return False
    message = messages[number]
    receivers = [runners[k] for k in message.transfer.receivers]
    if message.transfer.sender != sender or any(r.waits_for("receive") != number for r in receivers):
        return False
    op = runners[sender].op
    assert op is not None
    value, wire = runners[sender].values[op.inputs[0]], op.attrs["wire"]
    if value.size * wire != message.transfer.bytes:
        raise BrokenPlan(f"message {number} has {value.size * wire} B, the plan says {message.transfer.bytes}")
    if value.dtype == np.int32 and wire < 4:  # only the low bytes of elements are sent
        value = np.asarray(value << 32 - 8 * wire >> 32 - 8 * wire)
    for r in receivers:
        want = r.op
        assert want is not None
        t = r.graph.result(want)
        if (t.shape, want.attrs["device"], want.attrs["wire"]) != (value.shape, sender, wire):
            raise BrokenPlan(f"{r.name} expects another message than {number}: {t.shape} for {value.shape}")
        r.values[t.name] = value.copy()
        r.at += 1
    runners[sender].values[op.outputs[0]] = np.zeros(0, np.int8)
    runners[sender].at += 1
    return True


def check_together(
    model: Graph, graphs: Sequence[Graph], orders: Sequence[Sequence[Op]], messages: Sequence[Message], source: int
) -> None:
    """Raise BrokenPlan unless the cluster computes the same outputs as the model on one device."""
    rng = Random(0)
    inputs = [values(rng, model.tensors[name]) for name in model.inputs]
    with np.errstate(all="ignore"):
        wanted = ops.run(model, *inputs)
        got = run_together(graphs, orders, messages, inputs)[source]
    for name in model.outputs:
        compare(f"output {name} of the cluster", got[name], wanted[name])
