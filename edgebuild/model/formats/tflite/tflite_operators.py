"""TFLite's operators: names in the file by the kind of op that they come to, and the reader of a node.

Those under "" are read as other operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ...ops.pointwise import attributes
from .. import compose
from ..builder import Reader
from ..compose import emits
from . import tflite_layers
from . import tflite_layers as layers
from . import tflite_signals as signals

OPERATORS: Mapping[str, Mapping[str, Reader]] = {
    "take": {
        "SLICE": tflite_layers.read_slice,
        "STRIDED_SLICE": tflite_layers.read_strided_slice,
        "SPLIT": tflite_layers.read_split,
        "SPLIT_V": tflite_layers.read_split_v,
        "UNPACK": tflite_layers.read_unpack,
        "PACK": tflite_layers.read_pack,
        "BROADCAST_TO": compose.read_expand,
        "TILE": compose.read_tile,
        "REVERSE_V2": lambda node: compose.reversed_along(node, node.numbers(1, "axis")),
        "FILL": tflite_layers.read_fill,
        "ZEROS_LIKE": tflite_layers.read_zeros_like,
        "DEPTH_TO_SPACE": tflite_layers.read_depth_to_space,
        "SPACE_TO_DEPTH": tflite_layers.read_space_to_depth,
        "MIRROR_PAD": tflite_layers.read_mirror_pad,
        "RESIZE_NEAREST_NEIGHBOR": tflite_layers.read_nearest,
        "BATCH_TO_SPACE_ND": tflite_layers.read_batch_to_space,
        "SPACE_TO_BATCH_ND": tflite_layers.read_space_to_batch,
    },
    "": {
        "ONE_HOT": tflite_layers.read_one_hot,
        "REVERSE_SEQUENCE": lambda node: compose.reversed_sequences(
            node, *node.fields("ReverseSequenceOptions", "SeqDim", "BatchDim")
        ),
        "custom SignalDelay": signals.read_delay,
        "custom SignalFramer": signals.read_framer,
        "custom SignalOverlapAdd": signals.read_overlap_add,
        "custom SignalStacker": signals.read_stacker,
        "custom CIRCULAR_BUFFER": signals.read_circular_buffer,
        "custom Landmarks2TransformMatrix": signals.read_landmarks_matrix,
        "custom TransformLandmarks": signals.read_transformed_landmarks,
        "custom TransformTensorBilinear": signals.read_transformed_image,
    },
    "add": {
        "ADD": lambda node: compose.arithmetic(node, "add", layers.activation_of(node, "AddOptions")),
        "ADD_N": layers.read_add_n,
    },
    "arg": {"ARG_MAX": partial(layers.read_arg, largest=True), "ARG_MIN": partial(layers.read_arg, largest=False)},
    "avg_pool2d": {
        "AVERAGE_POOL_2D": lambda node: node.emit("avg_pool2d", node.inputs, **layers.pool_attributes(node)),
        "L2_POOL_2D": layers.read_l2_pool,
    },
    "batch_matmul": {"BATCH_MATMUL": layers.read_batch_matmul},
    "blend": {
        "RESIZE_BILINEAR": tflite_layers.read_bilinear,
        "LOCAL_RESPONSE_NORMALIZATION": layers.read_local_response,
    },
    "cast": {"CAST": lambda node: node.emit("cast", node.inputs, to=node.written[0].dtype)},
    "clamp": {
        "RELU": emits("clamp", clamp=(0.0, None)),
        "RELU6": layers.read_relu6,
        "RELU_0_TO_1": emits("clamp", clamp=(0.0, 1.0)),
        "RELU_N1_TO_1": emits("clamp", clamp=(-1.0, 1.0)),
    },
    "concat": {"CONCATENATION": tflite_layers.read_concat},
    "conv2d": {"CONV_2D": partial(layers.read_convolution, kind="conv2d", options_type="Conv2DOptions")},
    "dense": {"FULLY_CONNECTED": layers.read_fully_connected},
    "depthwise_conv2d": {
        "DEPTHWISE_CONV_2D": partial(
            layers.read_convolution, kind="depthwise_conv2d", options_type="DepthwiseConv2DOptions"
        )
    },
    "dequantize": {"DEQUANTIZE": layers.read_dequantize},
    "detection": {"custom TFLite_Detection_PostProcess": signals.read_detection},
    "gather": {
        "GATHER": lambda node: compose.gathered(node, *node.fields("GatherOptions", "Axis", "BatchDims")),
        "EMBEDDING_LOOKUP": tflite_layers.read_embedding_lookup,
    },
    "gather_nd": {"GATHER_ND": compose.gathered_nd},
    "irfft": {"custom SignalIrfft": partial(signals.read_signal, kind="irfft", length="fft_length")},
    "log_softmax": {"LOG_SOFTMAX": emits("log_softmax")},
    "lstm": {"UNIDIRECTIONAL_SEQUENCE_LSTM": signals.read_lstm},
    "max_pool2d": {"MAX_POOL_2D": lambda node: node.emit("max_pool2d", node.inputs, **layers.pool_attributes(node))},
    "mean": {"MEAN": partial(layers.read_reduction, kind="mean")},
    "mul": {"MUL": lambda node: compose.arithmetic(node, "mul", layers.activation_of(node, "MulOptions"))},
    "pad": {"PAD": tflite_layers.read_pad, "PADV2": tflite_layers.read_pad},
    "pointwise": {
        **{name: emits("pointwise", **attributes(function)) for name, function in layers.FUNCTIONS_OF.items()},
        "SUB": partial(layers.read_clamped, function="difference", options_type="SubOptions"),
        "DIV": partial(layers.read_clamped, function="quotient", options_type="DivOptions"),
        "LEAKY_RELU": lambda node: node.emit_function("leaky_relu", alpha=node.options("LeakyReluOptions").Alpha()),
        "GELU": lambda node: node.emit_function("gelu_tanh" if node.options("GeluOptions").Approximate() else "gelu"),
    },
    "quantize": {
        "QUANTIZE": lambda node: node.emit(
            "quantize" if node.tensor(0).dtype == "float32" else "requantize", node.inputs
        )
    },
    "reduce_max": {
        "REDUCE_MAX": partial(layers.read_reduction, kind="reduce_max"),
        "REDUCE_ANY": partial(layers.read_reduction, kind="reduce_max"),
    },
    "reduce_min": {
        "REDUCE_MIN": partial(layers.read_reduction, kind="reduce_min"),
        "REDUCE_ALL": partial(layers.read_reduction, kind="reduce_min"),
    },
    "reduce_prod": {"REDUCE_PROD": partial(layers.read_reduction, kind="reduce_prod")},
    "reshape": {
        "RESHAPE": tflite_layers.read_reshape,
        "SQUEEZE": tflite_layers.read_ones,
        "EXPAND_DIMS": tflite_layers.read_ones,
        "SHAPE": tflite_layers.read_shape,
        "BROADCAST_ARGS": tflite_layers.read_broadcast,
        "DENSIFY": tflite_layers.read_densify,
    },
    "rfft": {"custom SignalRfft": partial(signals.read_signal, kind="rfft", length="fft_length")},
    "running_sum": {
        "CUMSUM": lambda node: compose.running_sum(
            node, *map(bool, node.fields("CumsumOptions", "Exclusive", "Reverse"))
        )
    },
    "scatter": {"DYNAMIC_UPDATE_SLICE": tflite_layers.read_update_slice},
    "softmax": {"SOFTMAX": layers.read_softmax},
    "sum": {"SUM": lambda node: layers.read_reduction(node, "reduce_sum" if node.tensor(0).quant is None else "sum")},
    "svdf": {"SVDF": signals.read_svdf},
    "topk": {"TOPK_V2": layers.read_topk},
    "transpose": {
        "TRANSPOSE": lambda node: node.emit("transpose", node.inputs[:1], perm=tuple(node.numbers(1, "permutation")))
    },
    "transpose_conv2d": {
        "TRANSPOSE_CONV": layers.read_transpose_conv,
        "custom Convolution2DTransposeBias": layers.read_mediapipe_transpose_conv,
    },
    "unit_rows": {"L2_NORMALIZATION": layers.read_l2_normalization},
    "signal_window": {"custom SignalWindow": partial(signals.read_signal, kind="signal_window", shift="shift")},
    "signal_raise": {"custom SignalFftAutoScale": signals.read_auto_scale},
    "signal_energy": {
        "custom SignalEnergy": partial(signals.read_signal, kind="signal_energy", first="start_index", end="end_index")
    },
    "signal_bank": {"custom SignalFilterBank": signals.read_filter_bank},
    "signal_root": {"custom SignalFilterBankSquareRoot": partial(signals.read_signal, kind="signal_root")},
    "signal_denoise": {"custom SignalFilterBankSpectralSubtraction": signals.read_spectral_subtraction},
    "signal_gain": {"custom SignalPCAN": partial(signals.read_signal, kind="signal_gain", shift="snr_shift")},
    "signal_log": {
        "custom SignalFilterBankLog": partial(
            signals.read_signal, kind="signal_log", correction="input_correction_bits", scale="output_scale"
        )
    },
}

READERS: dict[str, Reader] = {name: reader for names in OPERATORS.values() for name, reader in names.items()}
