"""Translate graphs for `plan/distribute/`: how the index relation lets each op be split; and the report of a plan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ...base.artifacts import Artifact
from ...base.errors import EdgebuildError, fail
from ...base.request import ModelRequest
from ...base.target import load_target
from ...clock.configs import clock_plan
from ...clock.emit import target_tree
from .. import ops
from ..formats import shapes
from ..ir import ITEM_BYTES, Graph, Nest, Offset, Op, Same, Window
from ..kernels import kernel_of
from ..ops.base import PER_TURN, Form, is_float, zero_of
from ..ops.functions import UNITS, instructions
from ..plan.distribute import by_name
from ..plan.distribute.by_name import Chosen, choose, macs, pareto
from ..plan.distribute.forms import (
    SUMS,
    Cluster,
    Device,
    Layer,
    Network,
    Sizes,
    Split,
    Transfer,
    cost,
    frames,
    read_cluster,
    routed,
    transfers,
)
from ..plan.distribute.forms import RowWindow as Rows
from ..plan.search import arena_memories, form_of
from ..plan.section import Section
from .cut import can_be_cut

SCHEMA = 1
HEAD, TAIL = 24, 4  # bytes of a frame before and after its data: hal/src/cluster.c
SHAPES = (".yaml", ".yml")
TABLE = 5  # bytes of multiplier and shift
GAIN = 0.999  # times the time of one device: a cluster below it is faster, not rounded
Spare = tuple[int, int]


def network_of(graph: Graph, forms: frozenset[Form] = frozenset()) -> Network:
    """The graph's activations as tensors and its ops as layers. `forms`: of kernels, for the devices' cores."""
    names = [n for n, t in graph.tensors.items() if not t.constant]
    number = {name: i for i, name in enumerate(names)}
    layers = tuple(_layer(op, graph, number, forms) for op in graph.ops)
    inputs, results = (tuple(number[n] for n in some) for some in (graph.inputs, graph.outputs))
    return Network(tuple(_tensor(graph, n) for n in names), layers, inputs, results)


def _tensor(graph: Graph, name: str) -> Sizes:
    t = graph.tensors[name]
    rows = t.shape[1] if len(t.shape) == 4 and t.shape[0] == 1 else 1
    return Sizes(name, rows, t.elements // rows, t.shape[-1] if t.shape else 1, ITEM_BYTES[t.dtype], t.dtype)


def _layer(op: Op, graph: Graph, number: Mapping[str, int], forms: frozenset[Form]) -> Layer:
    nest, spec = ops.nest(op, graph), ops.SPECS[op.kind]
    reads = [i for i, n in enumerate(op.inputs) if n in number]
    last = nest.out[-1] if nest.out else ""
    carried = all(_along(nest, i, -1) == last and len(nest.operands[i]) == len(nest.out) for i in reads)
    channels = bool(nest.out) and can_be_cut(graph, op, len(nest.out) - 1)
    sums = spec.total is not None and len(reads) == 1 and not carried
    sums = sums and isinstance(nest.operands[reads[0]][-1], Same)  # not of groups of channels
    reduces = sums and spec.fan_in(op, graph) and _along(nest, reads[0], -1) not in nest.out
    return Layer(
        name=op.name,
        kind=op.kind,
        inputs=tuple(dict.fromkeys(number[op.inputs[i]] for i in reads)),
        output=number[op.outputs[0]],
        weights=_weights(op, graph, forms),
        table=_table(op, graph, forms),
        macs=nest.mac_count,
        fan_out=sums and channels,
        fan_in=bool(reduces),
        by_channel=carried and bool(last) and channels,
        window=_rows(nest, reads, graph, op),
        partial=_partial(op, graph),
        rolls=spec.rows(op, graph) == "each",
        joins=_joins(nest, op, graph) if len(set(op.inputs)) == len(reads) == len(op.inputs) else (),
    )


def _joins(nest: Nest, op: Op, graph: Graph) -> tuple[int, ...]:
    """Where each operand's channels begin in the result, if the op only concatenates channels; else empty."""
    if any(t.quant != graph.result(op).quant for t in graph.operands(op)):  # a piece would have another scale
        return ()
    joins = []
    for relations in nest.operands:
        *rest, last = relations or (None,)
        alike = all(isinstance(r, Same) and r.axis == axis for r, axis in zip(rest, nest.out[:-1], strict=False))
        if not (ops.SPECS[op.kind].exact and alike and isinstance(last, Offset) and last.axis == nest.out[-1]):
            return ()
        joins.append(last.start)
    sizes = [graph.tensors[n].shape[-1] for n in op.inputs]
    return tuple(joins) if joins and joins == list(accumulate(sizes[:-1], initial=0)) else ()


def _weights(op: Op, graph: Graph, forms: frozenset[Form]) -> int:
    """Bytes of weights and tables of an op's kernels; the most over the devices' cores."""
    constants = _constants(op, graph)
    kernels = [kernel_of(op, graph, form) for form in forms] if constants else []
    kept = (sum(c.data.nbytes for c in kernel.constants) for kernel in kernels)
    return max(constants + _tables(op, graph), *kept, 0)


def _table(op: Op, graph: Graph, forms: frozenset[Form]) -> int:
    """Bytes of the tables of an op without weights, such as the 256 results of a function of int8."""
    if _constants(op, graph) or ops.SPECS[op.kind].view:
        return 0
    return max((sum(c.data.nbytes for c in kernel_of(op, graph, form).constants) for form in forms), default=0)


def _constants(op: Op, graph: Graph) -> int:
    return sum(graph.tensors[n].bytes for n in op.inputs if graph.tensors[n].constant)


def _tables(op: Op, graph: Graph) -> int:
    """Bytes of tables beside the weights: multiplier and shift of each channel that has a scale of its own."""
    if len(op.inputs) < 2:
        return 0
    quant = graph.operands(op)[1].quant
    return TABLE * len(quant.scale) if quant is not None and len(quant.scale) > 1 else 0


def _along(nest: Nest, operand: int, dim: int) -> str:
    relations = nest.operands[operand]
    return relations[dim].axis if relations and isinstance(relations[dim], Same) else ""


def _rows(nest: Nest, reads: list[int], graph: Graph, op: Op) -> Rows | None:
    """The window over rows that all operands share; None if the op cannot be cut along rows."""
    rows: Rows | None = None
    if len(nest.out) != 4 or graph.result(op).shape[0] != 1:
        return None
    for i in reads:
        if len(nest.operands[i]) != 4 or nest.operands[i][1].axis != nest.out[1]:
            return None
        match nest.operands[i][1]:
            case Same():
                window = Rows()
            case Window(_, tap, stride, dilation, pad):
                window = Rows((nest.extents[tap] - 1) * dilation + 1, stride, pad)
            case _:
                return None
        if rows is not None and rows != window:
            return None
        rows = window
    return rows if rows is not None and can_be_cut(graph, op, 1) else None


def _partial(op: Op, graph: Graph) -> int:
    """Bytes of a partial sum: 3 where the weights prove that no sum of an int8 layer leaves 24 bits, else 4."""
    if ops.SPECS[op.kind].total is None or len(op.inputs) < 2 or graph.result(op).dtype != "int8":
        return 4
    x, w = graph.operands(op)[:2]
    if w.data is None or x.dtype != "int8":
        return 4
    bias = graph.operands(op)[2].data if len(op.inputs) > 2 else None
    # Sums of some of the channels lie between the sums of all negative and of all positive products.
    taps, zero = w.data.astype(np.int64).reshape(w.shape[0], -1), zero_of(x)
    least, most = taps * (-128 - zero), taps * (127 - zero)
    high, low = np.maximum(least, most).sum(axis=1), np.minimum(least, most).sum(axis=1)
    start = 0 if bias is None else np.abs(bias.astype(np.int64)).max()
    return 3 if max(high.max(), -low.min()) + start < 2**23 else 4


# ---- The plan and its report


def plan_cluster(
    model: Path,
    cluster_file: Path,
    count: int | None,
    method: str,
    objective: str | None,
    graph: Graph | None,
    spare: Mapping[int, Spare] = MappingProxyType({}),
) -> tuple[Chosen, dict[str, Any]]:
    """The plan of a model (`graph`) or of a shapes file, and its report.

    `objective`: None: that of the file. `spare`: bytes of flash and RAM that the plan leaves free, by device.
    Raises EdgebuildError if a file is invalid or no plan fits.
    """
    some = [(ops.nest(op, graph).mac_count, is_float(graph.result(op))) for op in graph.ops] if graph else []
    in_float = sum(macs for macs, floats in some if floats) * 2 > sum(macs for macs, _ in some)
    cluster, stated = read_cluster(cluster_file, count, clock_of, lambda t: instructions_of(t, in_float))
    check_byte_order(cluster.devices, str(cluster_file))
    within = tuple(within_target(d, graph) for d in cluster.devices) if graph is not None else cluster.devices
    over = limited(cluster.devices, within)
    less = ((d, *spare.get(k, (0, 0))) for k, d in enumerate(within))
    devices = tuple(replace(d, flash=max(0, d.flash - flash), ram=max(0, d.ram - ram)) for d, flash, ram in less)
    cluster = replace(with_work(cluster), devices=devices)
    table = shapes.read_shapes(model) if graph is None else ()
    forms = frozenset(form_of(load_target(d.target)) for d in cluster.devices) if graph is not None else frozenset()
    network = network_of(graph, forms) if graph is not None else shapes.network(table, 1, 4)
    objective = objective or cluster.objective
    try:
        chosen = choose(network, cluster, stated, method, objective, str(cluster_file))
    except EdgebuildError as error:
        first = error.diagnostics[0]
        raise EdgebuildError(replace(first, hints=(*first.hints, *over))) from None
    described = report(model, chosen, method, objective)
    if graph is None:
        described["paper"] = paper(table, len(cluster.devices))
    return chosen, described


@dataclass(frozen=True)
class Sent:
    """A transfer of an inference. `dtype`: of its elements on the wire; `step`: the layer before which it is made."""

    step: int
    tensor: str
    dtype: str
    transfer: Transfer


def messages(chosen: Chosen) -> list[Sent]:
    """All transfers of one inference, in their order."""
    plan, sent = chosen.plan, list[Sent]()
    tensors, cluster = plan.network.tensors, plan.cluster

    def send(step: int, number: int, have: Split, want: Split, partial: int = 4) -> None:
        t = tensors[number]
        sums = "float32" if t.dtype == "float32" else f"int{8 * partial}"
        for transfer in routed(transfers(t, have, want, cluster, partial), cluster):
            sent.append(Sent(step, t.name, sums if transfer.sums else t.dtype, transfer))

    for step, d in enumerate(plan.decisions):
        layer = plan.network.layers[d.layer]
        for c in d.before:
            send(step, c.tensor, c.have, c.want)
        if d.makes == SUMS:
            send(step, layer.output, SUMS, d.keeps, layer.partial)
    for c in plan.gather:
        send(len(plan.decisions), c.tensor, c.have, c.want)
    return sent


def report(model: Path, chosen: Chosen, method: str, objective: str) -> dict[str, Any]:
    """The content of N_cluster.json."""
    plan, cluster = chosen.plan, chosen.plan.cluster
    sent = messages(chosen)
    rows = [
        {
            "number": number,
            "step": m.step,
            "from": cluster.devices[m.transfer.sender].name,
            "to": [cluster.devices[r].name for r in m.transfer.receivers],
            "tensor": m.tensor,
            "dtype": m.dtype,
            "bytes": m.transfer.bytes,
            "frames": frames(m.transfer.bytes, cluster.medium),
        }
        for number, m in enumerate(sent)
    ]
    alone = sum(layer.macs for layer in plan.network.layers) / cluster.devices[cluster.source].macs_per_us
    time = plan.cost.time_us + plan.compute_us
    body = {
        "schema": SCHEMA,
        "model": {"name": model.name, "sha256": hashlib.sha256(model.read_bytes()).hexdigest()},
        "method": method,
        "objective": objective,
        "timeout_ms": cluster.medium.timeout_ms,
        "optimal": chosen.optimal,
        "bound": round(chosen.bound, 3) if method == "joint" and objective != "memory" else None,
        "searched": ("mixed" if chosen.mixed else "split, pipeline") if method == "joint" else method,
        "devices": [_device(chosen, k) for k in range(len(cluster.devices))],
        "layers": [
            {
                "node": plan.network.layers[d.layer].name,
                "method": d.method,
                "state_in": "".join(f.letter for f in d.reads),
                "state_out": d.makes.letter if d.makes != SUMS else f"Z>{d.keeps.letter}",
                "shares": [list(r) for r in (d.keeps.ranges or d.makes.ranges)],
            }
            for d in plan.decisions
        ],
        "messages": rows,
        "wire": {
            "payload_bytes": plan.cost.bytes,
            "frame_bytes": framed(chosen),
            "by_link": _links(cluster, [m.transfer for m in sent]),
        },
        "time_us": {
            "one_device": round(alone, 3),
            "cluster": round(time, 3),
            "compute": round(plan.compute_us, 3),
            "wire": round(plan.cost.time_us, 3),
        },
        "faster": time < GAIN * alone,
    }
    body["plan_hash"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
    return body


def _device(chosen: Chosen, k: int) -> dict[str, Any]:
    cluster, sent = chosen.plan.cluster, [m.transfer for m in messages(chosen)]
    return {
        "number": k,
        "name": cluster.devices[k].name,
        "target": cluster.devices[k].target,
        "share": round(cluster.shares[k], 6),
        "weights_bytes": chosen.weights[k],
        "arena_bytes": chosen.arena[k],
        "macs": macs(chosen.plan, k),
        "bytes_sent": sum(t.bytes for t in sent if t.sender == k),
        "bytes_received": sum(t.bytes for t in sent if k in t.receivers),
    }


def framed(chosen: Chosen) -> int:
    """Bytes on the wire of one inference: data, heads and tails of its frames, and the frames that start it."""
    plan, sent = chosen.plan, messages(chosen)
    busy = {k for m in sent for k in (m.transfer.sender, *m.transfer.receivers)} - {plan.cluster.source}
    return plan.cost.bytes + len(sent) * (HEAD + TAIL) + 3 * len(busy) * HEAD


def pareto_rows(chosen: Chosen) -> list[dict[str, Any]]:
    """Other plans that trade memory for traffic and time, for the report."""
    points = pareto(chosen.plan.network, chosen.plan.cluster)
    keys = ("weights_bytes", "arena_bytes", "traffic_bytes", "time_us")
    return [dict(zip(keys, (p.weights, p.arena, p.traffic, p.time_us), strict=True)) for p in points]


def json_artifact(name: str, report: Mapping[str, Any]) -> Artifact:
    return Artifact(f"{name}_cluster.json", json.dumps(report, indent=1).encode() + b"\n")


def _links(cluster: Cluster, sent: list[Transfer]) -> list[dict[str, Any]]:
    links: dict[tuple[int, tuple[int, ...]], list[Transfer]] = {}
    for t in sent:
        links.setdefault((t.sender, t.receivers), []).append(t)
    return [
        {
            "from": cluster.devices[sender].name,
            "to": [cluster.devices[r].name for r in receivers],
            "messages": len(some),
            "payload_bytes": sum(t.bytes for t in some),
            "wire_bytes": cost(tuple(some), cluster).bytes,
        }
        for (sender, receivers), some in sorted(links.items())
    ]


def paper(table: tuple[shapes.Shape, ...], n: int) -> dict[str, Any]:
    """Chapter 5 of Stahl 2024 for these shapes and n devices: bytes, at 4 a value, of convolutions alone."""
    counts = shapes.counts(table)
    footprint, switch = by_name.full(counts, n)
    size = by_name.BYTES
    return {
        "F": footprint * size,
        "F_single": by_name.single(counts) * size,
        "F_sequential": by_name.sequential(counts) * size,
        "first_weight_layer": switch + 1,
        "C_fdto": by_name.fan_out(counts, n) * size,
        "C_owp": by_name.optimized(counts, n)[0] * size,
    }


def words(report: Mapping[str, Any]) -> str:
    """The report in a few lines for a terminal."""
    time, devices = report["time_us"], report["devices"]
    proof = "optimal for these shares" if report["optimal"] else f"method {report['method']}"
    proof += f", bound {report['bound']:g}" if report["bound"] is not None and not report["optimal"] else ""
    gain = f"{time['one_device'] / max(time['cluster'], 1e-9):.2f} times as fast" if report["faster"] else "no gain"
    lines = [
        f"{len(devices)} devices, {len(report['messages'])} messages, {report['wire']['payload_bytes']} B ({proof})",
        f"modelled: one device {time['one_device'] / 1000:.1f} ms, cluster {time['cluster'] / 1000:.1f} ms: {gain}",
    ]
    if time.get("longest_wait", 0.0) > 1000 * report["timeout_ms"]:
        lines.append(f"a device waits for {time['longest_wait'] / 1000:.0f} ms, and timeout_ms of the medium ends that")
    lines += [f"  {d['name']}: weights {d['weights_bytes']} B, tensors {d['arena_bytes']} B" for d in devices]
    return "\n".join(lines) + "\n"


# ---- Facts of targets that a cluster needs: the clock of the core, and the order of bytes


# Instructions, counted in simulators, of steps whose kernels state no estimate, or one for integers.
#
# PER_ELEMENT is of a network with many Concats, by `edgebuild verify MODEL --target T --layers`: swiftnet_like of
# tests/zoo.

# Factors on stated estimates for float: of pools, and of means.
OVER_FPU = {"max_pool2d": 1.6, "avg_pool2d": 1.6, "mean": 1.2}
OVER_SOFT = {
    "rv32": {"max_pool2d": 6.3, "avg_pool2d": 6.3, "mean": 15.0},
    "armv6-m": {"max_pool2d": 14.0, "avg_pool2d": 14.0, "mean": 14.0},
    "": {"max_pool2d": 10.5, "avg_pool2d": 10.5, "mean": 11.3},
}
GATHERED = 0.8  # of each byte that is looked up; the kernel's estimate is for each place
REQUANTIZED = 0.66  # times the kernel's estimate, on cores with long products in one instruction
PER_ELEMENT = {"concat": 0.7, "transpose": 3.0}
PER_ELEMENT_RV32 = {"concat": 2.2, "transpose": 3.7}


def counted(section: Section, graph: Graph) -> float:
    """Instructions of a step: by its kernels' estimates, corrected by counts in simulators."""
    total = section.instructions
    for op, form, calls in zip(section.ops, section.forms, section.calls_of, strict=True):
        stated = kernel_of(op, graph, form).estimate
        turns = prod(ops.nest(op, graph).extents.values())
        if not stated:
            moved = PER_ELEMENT_RV32 if _family(form.core) == "rv32" else PER_ELEMENT
            total += (moved.get(op.kind, PER_TURN) - PER_TURN) * turns
        else:
            total += (_factor(op, graph, form) - 1) * stated * calls
        total += GATHERED * graph.result(op).bytes if op.kind == "gather" else 0.0
    return total


def _family(core: frozenset[str]) -> str:
    return next((f for f in OVER_SOFT if f and any(word.startswith(f) for word in core)), "")


def _factor(op: Op, graph: Graph, form: Form) -> float:
    """Ratio of counted instructions to a kernel's estimate."""
    if is_float(graph.result(op)):
        return (OVER_FPU if form.core & UNITS else OVER_SOFT[_family(form.core)]).get(op.kind, 1.0)
    return REQUANTIZED if op.kind == "requantize" and _family(form.core) != "armv6-m" else 1.0


# Instructions of a multiply-accumulate before kernels are chosen, on the high side of those of whole networks
# (`./sconsw bench-kernels`); PLAIN: of other cores.
PER_MAC = {"mve": 0.3, "dsp": 1.3, "rv32": 2.6, "armv6-m": 4.5}
PLAIN = 3.0
BYTE, MESSAGE = 24.0, 1200.0  # instructions for each byte and message of both sides; see products.py
BIG = frozenset(["-mbig-endian", "-EB", "-mbe32", "-mbe8"])  # of gcc and clang


@cache
def clock_of(name: str) -> float:
    """Instructions per second of a target: its fastest clock, or that of the simulated board; else 168 MHz."""
    target = load_target(name)
    if target.clocks:
        return float(max(c.sysclk_hz for c in clock_plan(target_tree(target)).configs))
    return float(target.runner.tick_hz if target.runner and target.runner.tick_hz else Device.hz)


@cache
def instructions_of(name: str, floats: bool = False) -> float:
    """Instructions of a multiply-accumulate in kernels for the core of a target; most figures are README.md's."""
    core = load_target(name).core
    if floats:
        return instructions("product of conv2d", frozenset([*core.features, core.isa]))
    costs = [cost for word, cost in PER_MAC.items() if word in core.features or core.isa.startswith(word)]
    return min(costs, default=PLAIN)


def with_work(cluster: Cluster) -> Cluster:
    """The cluster with the slowest device's time per byte and message in its medium: two checksums, two heads."""
    each = 1e6 / min(d.hz for d in cluster.devices)
    return replace(cluster, medium=replace(cluster.medium, byte_work_us=BYTE * each, message_work_us=MESSAGE * each))


def within_target(device: Device, graph: Graph) -> Device:
    """The device with at most the flash that its target has for weights, and its RAM beside stack and states."""
    target = load_target(device.target)
    request = ModelRequest(Path(graph.file), device.name, device.target)
    ram = sum(m.capacity or 0 for m in arena_memories(graph, target, request))
    return replace(device, flash=min(device.flash, target.memory("weights").size), ram=min(device.ram, ram))


def limited(stated: Sequence[Device], used: Sequence[Device]) -> list[str]:
    """Hints about devices for which the cluster file states more memory than their targets have."""
    devices = []
    for s, d in zip(stated, used, strict=True):
        if s.ram > d.ram:
            devices.append(f"device '{d.name}': {d.target} has {d.ram} B of RAM beside stack and states, not {s.ram} B")
        if s.flash > d.flash:
            devices.append(f"device '{d.name}': {d.target} has {d.flash} B of flash, not {s.flash} B")
    return devices


def check_byte_order(devices: Sequence[Device], file: str) -> None:
    """Raise EdgebuildError if a device of several is big endian: messages are in little endian."""
    big = [d.name for d in devices if BIG.intersection(load_target(d.target).toolchain.cflags)]
    if big and len(devices) > 1:
        little = [d.name for d in devices if d.name not in big]
        text = f"device '{big[0]}' is big endian" + (f", device '{little[0]}' little endian" if little else "")
        raise fail(text, file=file, hints=["messages are in little endian: use targets that are"])
