"""The op registry: one module an op, and this list."""

from __future__ import annotations

from ..ir import ITEM_BYTES, Array, Graph, Op, axes
from ..ir.axes import Nest
from . import (
    add,
    batch_matmul,
    bilinear,
    clamp,
    concat,
    conv2d,
    convert,
    copy,
    dense,
    depthwise_conv2d,
    detection,
    frontend,
    gather,
    grid_sample,
    insert,
    integer_sums,
    kernel_machine,
    link,
    log_softmax,
    lstm,
    mean,
    mul,
    pad,
    partial_sum,
    pointwise,
    pool2d,
    reduce,
    reshape,
    resize,
    running_sum,
    scatter,
    slice,
    softmax,
    spectrum,
    svdf,
    take,
    transpose,
    transpose_conv2d,
    trees,
    unit_rows,
)
from .base import Spec, named

SPECS: dict[str, Spec] = {
    spec.kind: named(spec)
    for spec in (
        add.SPEC,
        batch_matmul.SPEC,
        bilinear.SPEC,
        clamp.SPEC,
        concat.SPEC,
        conv2d.SPEC,
        convert.CAST,
        convert.DEQUANTIZE,
        convert.QUANTIZE,
        convert.REQUANTIZE,
        copy.SPEC,
        dense.SPEC,
        depthwise_conv2d.SPEC,
        detection.SPEC,
        *frontend.SPECS,
        gather.ND,
        gather.SPEC,
        grid_sample.SPEC,
        insert.SPEC,
        integer_sums.SPEC,
        kernel_machine.COUPLING,
        kernel_machine.DISTANCES,
        log_softmax.SPEC,
        lstm.SPEC,
        mean.SPEC,
        mean.SUM,
        take.SPEC,
        mul.SPEC,
        pad.SPEC,
        link.RECEIVE,
        link.SEND,
        partial_sum.FINISH,
        partial_sum.JOIN,
        partial_sum.PARTIAL,
        pointwise.SPEC,
        pool2d.AVERAGE,
        pool2d.MAX,
        *reduce.SPECS,
        reshape.SPEC,
        resize.SPEC,
        running_sum.SPEC,
        scatter.REDUCE,
        scatter.SPEC,
        slice.SLICE,
        slice.SPAN,
        softmax.SPEC,
        spectrum.IRFFT,
        spectrum.RFFT,
        svdf.SPEC,
        svdf.STATE,
        transpose.SPEC,
        transpose_conv2d.SPEC,
        trees.SPEC,
        unit_rows.SPEC,
    )
}


def nest(op: Op, graph: Graph) -> Nest:
    """The op's index relation. The graph keeps those of its own ops."""
    make = SPECS[op.kind].nest
    if not op.outputs or graph.producers.get(op.outputs[0]) is not op:
        return make(op, graph)
    if op.outputs[0] not in graph.nests:
        graph.nests[op.outputs[0]] = make(op, graph)
    return graph.nests[op.outputs[0]]


def taken_up(op: Op, graph: Graph) -> tuple[int, ...]:
    """Positions of the activations that the result may overwrite whatever the kernel: they are read element by element.

    Elements do not grow, so writing result i never reaches operand i + 1.
    """
    relation, item = nest(op, graph), ITEM_BYTES[graph.result(op).dtype]
    operands = enumerate(graph.operands(op))
    return tuple(
        i for i, t in operands if not t.constant and axes.elementwise(relation, i) and item <= ITEM_BYTES[t.dtype]
    )


def result_shape(op: Op, graph: Graph) -> tuple[int, ...]:
    return nest(op, graph).out_shape


def macs(graph: Graph) -> int:
    """Multiply-accumulates of one inference."""
    return sum(nest(op, graph).mac_count for op in graph.ops)


def run(graph: Graph, *inputs: Array) -> dict[str, Array]:
    """Every tensor's value for these inputs, by the ops' own numpy meanings."""
    values = {t.name: t.data for t in graph.tensors.values() if t.data is not None}
    values |= {name: x.reshape(graph.tensors[name].shape) for name, x in zip(graph.inputs, inputs, strict=True)}
    for op in graph.ops:
        y = SPECS[op.kind].reference(op, graph, *(values[name] for name in op.inputs))
        values[op.outputs[0]] = y.reshape(graph.result(op).shape)
    return values
