"""ONNX's operators: names in the file by the kind of op that they come to, and the reader of a node.

Those under "" are read as other operators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx

from ...ir import Array, Tensor
from .. import compose
from ..builder import GraphBuilder, Reader
from ..channels_first import ChannelsFirstNode, global_average
from . import onnx_layers as layers
from . import onnx_moves as moves

# A node of an ONNX file as readers of operators see it: operands in NHWC, attributes, constants.

TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float32",
    11: "float32", 16: "float32",
}  # fmt: skip
# By the type in the file: the type here, and what is subtracted of value and zero point.
SIGNED = {
    "int8": ("int8", 0), "uint8": ("int8", 128), "int16": ("int16", 0), "uint16": ("int16", 2**15),
    "int32": ("int32", 0),
}  # fmt: skip


class OnnxNode(ChannelsFirstNode):
    def __init__(self, builder: GraphBuilder, proto: onnx.NodeProto, opset: int) -> None:
        super().__init__(builder, proto.name or proto.output[0], proto.op_type, proto.input, proto.output)
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
        self.proto, self.opset = proto, opset

    def attr(self, name: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def floats(self, name: str) -> Array:
        """An attribute that is a list of numbers; empty where it is not there."""
        return np.array(self.attr(name, []), np.float32)

    def stored(self, t: Tensor) -> Array:
        """The numbers of a constant without a scale, as activations are stored: those of uint8 less 128."""
        return np.asarray(t.data, np.int64) - SIGNED[t.dtype][1]

    def dtype_of(self, code: int) -> str:
        if code not in TYPES:
            raise self.error(f"type {onnx.TensorProto.DataType.Name(code)}", "use FLOAT, INT32 or INT8")
        return TYPES[code]


OPERATORS: Mapping[str, Mapping[str, Reader]] = {
    "take": {
        "Slice": moves.read_slice,
        "Split": moves.read_split,
        "Expand": compose.read_expand,
        "Tile": compose.read_tile,
        "DepthToSpace": moves.read_depth_to_space,
        "SpaceToDepth": moves.read_space_to_depth,
    },
    "": {
        "Compress": moves.read_compress,
        "Hardmax": moves.read_hard_max,
        "OneHot": moves.read_one_hot,
        "ReverseSequence": moves.read_reverse_sequence,
        "Trilu": moves.read_trilu,
    },
    "add": {"Add": lambda node: compose.arithmetic(node, "add", compose.OPEN)},
    "arg": {"ArgMax": partial(layers.read_arg, largest=True), "ArgMin": partial(layers.read_arg, largest=False)},
    "avg_pool2d": {"AveragePool": partial(layers.read_pool, kind="avg_pool2d"), "GlobalAveragePool": global_average},
    "blend": {"Resize": moves.read_resize, "LRN": layers.read_local_response},
    "cast": {
        "Cast": lambda node: node.emit("cast", node.inputs, to=node.dtype_of(node.attr("to", 1))),
        "CastLike": layers.read_cast_like,
    },
    "clamp": {"Relu": compose.emits("clamp", clamp=(0.0, None)), "Clip": layers.read_clip},
    "concat": {"Concat": moves.read_concat},
    "conv2d": {"Conv": layers.read_conv2d},
    "dense": {"Einsum": layers.read_einsum, "Gemm": layers.read_gemm, "MatMul": compose.matrix_product},
    "gather": {"Gather": lambda node: compose.gathered(node, node.attr("axis", 0), 0)},
    "gather_nd": {"GatherND": compose.gathered_nd},
    "grid_sample": {"GridSample": layers.read_grid_sample, "AffineGrid": layers.read_affine_grid},
    "integer_sums": {
        "ConvInteger": layers.read_conv_integer,
        "DynamicQuantizeLinear": layers.read_dynamic_quantize,
        "MatMulInteger": layers.read_matmul_integer,
    },
    "max_pool2d": {"MaxPool": partial(layers.read_pool, kind="max_pool2d")},
    "mean": {"ReduceMean": partial(layers.read_reduction, kind="mean")},
    "mul": {"Mul": lambda node: compose.arithmetic(node, "mul", compose.OPEN)},
    "pad": {"Pad": moves.read_pad},
    "pointwise": {
        **{name: partial(layers.read_function, function=function) for name, function in layers.FUNCTIONS_OF.items()},
        "BitShift": layers.read_bit_shift,
        "Gelu": lambda node: node.emit_function("gelu_tanh" if node.attr("approximate", "none") == "tanh" else "gelu"),
        "IsInf": layers.read_is_inf,
        "Mod": layers.read_mod,
        "Pow": layers.read_pow,
        "Min": partial(layers.read_chain, function="minimum"),
        "Max": partial(layers.read_chain, function="maximum"),
        "Sum": partial(layers.read_chain, function="sum"),
        "Mean": layers.read_mean,
    },
    "reduce_max": {
        "ReduceMax": partial(layers.read_reduction, kind="reduce_max"),
        "GlobalMaxPool": layers.read_global_maximum,
    },
    "reduce_min": {"ReduceMin": partial(layers.read_reduction, kind="reduce_min")},
    "reduce_prod": {"ReduceProd": partial(layers.read_reduction, kind="reduce_prod")},
    "reduce_sum": {
        "ReduceSum": partial(layers.read_reduction, kind="reduce_sum"),
        "ReduceSumSquare": partial(layers.read_reduction, kind="reduce_sum", before="square"),
        "ReduceL1": partial(layers.read_reduction, kind="reduce_sum", before="abs"),
        "ReduceL2": partial(layers.read_reduction, kind="reduce_sum", before="square", after="sqrt"),
        "ReduceLogSum": partial(layers.read_reduction, kind="reduce_sum", after="log"),
        "ReduceLogSumExp": layers.read_log_sum_exp,
        "LpNormalization": layers.read_lp_normalization,
        "InstanceNormalization": layers.read_instance_normalization,
        "LayerNormalization": layers.read_layer_normalization,
        "GroupNormalization": lambda node: compose.group_normalised(
            node, node.attr("num_groups", 0), node.inputs[1:3], node.attr("epsilon", 1e-5)
        ),
        "MeanVarianceNormalization": layers.read_mean_variance_normalization,
    },
    "reshape": {
        "Reshape": moves.read_reshape,
        "Flatten": moves.read_flatten,
        "Squeeze": moves.read_squeeze,
        "Unsqueeze": moves.read_unsqueeze,
        "Identity": compose.identity,
        "Dropout": moves.read_dropout,
    },
    "running_sum": {"CumSum": layers.read_cumsum, "CumProd": lambda node: layers.read_cumsum(node, product=True)},
    "scatter": {
        "GatherElements": moves.read_gather_elements,
        "ScatterElements": moves.read_scatter_elements,
        "ScatterND": moves.read_scatter_nd,
    },
    "softmax": {"Softmax": layers.read_softmax},
    "topk": {"TopK": layers.read_topk},
    "transpose": {
        "Transpose": lambda node: node.emit(
            "transpose", node.inputs[:1], perm=tuple(node.attr("perm", range(len(node.tensor(0).shape))[::-1]))
        )
    },
    "transpose_conv2d": {"ConvTranspose": layers.read_conv_transpose},
}

READERS: dict[str, Reader] = {name: reader for names in OPERATORS.values() for name, reader in names.items()}
