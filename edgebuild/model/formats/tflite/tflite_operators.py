"""TFLite's operators: names in the file by the kind of op that they come to, and the reader of a node.

Those under "" are read as other operators.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ops.pointwise import attributes
from .. import compose
from ..builder import Reader
from ..compose import emits
from . import tflite_landmarks as landmarks
from . import tflite_layers as layers
from . import tflite_layers as values
from . import tflite_moves as moves
from . import tflite_signals as signals

OPERATORS: Mapping[str, Mapping[str, Reader]] = {
    "take": {
        "SLICE": moves.read_slice,
        "STRIDED_SLICE": moves.read_strided_slice,
        "SPLIT": moves.read_split,
        "SPLIT_V": moves.read_split_v,
        "UNPACK": moves.read_unpack,
        "PACK": moves.read_pack,
        "BROADCAST_TO": compose.read_expand,
        "TILE": compose.read_tile,
        "REVERSE_V2": lambda node: compose.reversed_along(node, node.numbers(1, "axis")),
        "FILL": moves.read_fill,
        "ZEROS_LIKE": moves.read_zeros_like,
        "DEPTH_TO_SPACE": moves.read_depth_to_space,
        "SPACE_TO_DEPTH": moves.read_space_to_depth,
        "MIRROR_PAD": moves.read_mirror_pad,
        "RESIZE_NEAREST_NEIGHBOR": moves.read_nearest,
        "BATCH_TO_SPACE_ND": moves.read_batch_to_space,
        "SPACE_TO_BATCH_ND": moves.read_space_to_batch,
    },
    "": {
        "ONE_HOT": moves.read_one_hot,
        "REVERSE_SEQUENCE": lambda node: compose.reversed_sequences(
            node, *node.fields("ReverseSequenceOptions", "SeqDim", "BatchDim")
        ),
        "custom SignalDelay": signals.read_delay,
        "custom SignalFramer": signals.read_framer,
        "custom SignalOverlapAdd": signals.read_overlap_add,
        "custom SignalStacker": signals.read_stacker,
        "custom CIRCULAR_BUFFER": signals.read_circular_buffer,
        "custom Landmarks2TransformMatrix": landmarks.read_landmarks_matrix,
        "custom TransformLandmarks": landmarks.read_transformed_landmarks,
        "custom TransformTensorBilinear": landmarks.read_transformed_image,
    },
    "add": {"ADD": values.arithmetic_reader("add", "AddOptions"), "ADD_N": values.read_add_n},
    "arg": {"ARG_MAX": values.arg_reader(True), "ARG_MIN": values.arg_reader(False)},
    "avg_pool2d": {"AVERAGE_POOL_2D": layers.pool_reader("avg_pool2d"), "L2_POOL_2D": layers.read_l2_pool},
    "batch_matmul": {"BATCH_MATMUL": layers.read_batch_matmul},
    "blend": {"RESIZE_BILINEAR": moves.read_bilinear, "LOCAL_RESPONSE_NORMALIZATION": layers.read_local_response},
    "cast": {"CAST": lambda node: node.emit("cast", node.inputs, to=node.written[0].dtype)},
    "clamp": {
        "RELU": emits("clamp", clamp=(0.0, None)),
        "RELU6": values.read_relu6,
        "RELU_0_TO_1": emits("clamp", clamp=(0.0, 1.0)),
        "RELU_N1_TO_1": emits("clamp", clamp=(-1.0, 1.0)),
    },
    "concat": {"CONCATENATION": moves.read_concat},
    "conv2d": {"CONV_2D": layers.read_conv2d},
    "dense": {"FULLY_CONNECTED": layers.read_fully_connected},
    "depthwise_conv2d": {"DEPTHWISE_CONV_2D": layers.read_depthwise_conv2d},
    "dequantize": {"DEQUANTIZE": values.read_dequantize},
    "detection": {"custom TFLite_Detection_PostProcess": signals.read_detection},
    "gather": {
        "GATHER": lambda node: compose.gathered(node, *node.fields("GatherOptions", "Axis", "BatchDims")),
        "EMBEDDING_LOOKUP": moves.read_embedding_lookup,
    },
    "gather_nd": {"GATHER_ND": compose.gathered_nd},
    "irfft": {"custom SignalIrfft": signals.signal_reader("irfft", length="fft_length")},
    "log_softmax": {"LOG_SOFTMAX": emits("log_softmax")},
    "lstm": {"UNIDIRECTIONAL_SEQUENCE_LSTM": signals.read_lstm},
    "max_pool2d": {"MAX_POOL_2D": layers.pool_reader("max_pool2d")},
    "mean": {"MEAN": values.reduction_reader("mean")},
    "mul": {"MUL": values.arithmetic_reader("mul", "MulOptions")},
    "pad": {"PAD": moves.read_pad, "PADV2": moves.read_pad},
    "pointwise": {
        **{name: emits("pointwise", **attributes(function)) for name, function in values.FUNCTIONS_OF.items()},
        "SUB": values.clamped_reader("difference", "SubOptions"),
        "DIV": values.clamped_reader("quotient", "DivOptions"),
        "LEAKY_RELU": lambda node: node.emit(
            "pointwise", node.inputs, **attributes("leaky_relu", alpha=node.options("LeakyReluOptions").Alpha())
        ),
        "GELU": values.read_gelu,
    },
    "quantize": {"QUANTIZE": values.read_quantize},
    "reduce_max": {
        "REDUCE_MAX": values.reduction_reader("reduce_max"),
        "REDUCE_ANY": values.reduction_reader("reduce_max"),
    },
    "reduce_min": {
        "REDUCE_MIN": values.reduction_reader("reduce_min"),
        "REDUCE_ALL": values.reduction_reader("reduce_min"),
    },
    "reduce_prod": {"REDUCE_PROD": values.reduction_reader("reduce_prod")},
    "reshape": {
        "RESHAPE": moves.read_reshape,
        "SQUEEZE": moves.read_ones,
        "EXPAND_DIMS": moves.read_ones,
        "SHAPE": moves.read_shape,
        "BROADCAST_ARGS": moves.read_broadcast,
        "DENSIFY": moves.read_densify,
    },
    "rfft": {"custom SignalRfft": signals.signal_reader("rfft", length="fft_length")},
    "running_sum": {
        "CUMSUM": lambda node: compose.running_sum(
            node, *map(bool, node.fields("CumsumOptions", "Exclusive", "Reverse"))
        )
    },
    "scatter": {"DYNAMIC_UPDATE_SLICE": moves.read_update_slice},
    "softmax": {"SOFTMAX": layers.read_softmax},
    "sum": {"SUM": values.read_sum},
    "svdf": {"SVDF": signals.read_svdf},
    "topk": {"TOPK_V2": values.read_topk},
    "transpose": {
        "TRANSPOSE": lambda node: node.emit("transpose", node.inputs[:1], perm=tuple(node.numbers(1, "permutation")))
    },
    "transpose_conv2d": {
        "TRANSPOSE_CONV": layers.read_transpose_conv,
        "custom Convolution2DTransposeBias": layers.read_mediapipe_transpose_conv,
    },
    "unit_rows": {"L2_NORMALIZATION": layers.read_l2_normalization},
    "signal_window": {"custom SignalWindow": signals.signal_reader("signal_window", shift="shift")},
    "signal_raise": {"custom SignalFftAutoScale": signals.read_auto_scale},
    "signal_energy": {
        "custom SignalEnergy": signals.signal_reader("signal_energy", first="start_index", end="end_index")
    },
    "signal_bank": {"custom SignalFilterBank": signals.channel_reader("signal_bank")},
    "signal_root": {"custom SignalFilterBankSquareRoot": signals.signal_reader("signal_root")},
    "signal_denoise": {"custom SignalFilterBankSpectralSubtraction": signals.read_spectral_subtraction},
    "signal_gain": {"custom SignalPCAN": signals.signal_reader("signal_gain", shift="snr_shift")},
    "signal_log": {
        "custom SignalFilterBankLog": signals.signal_reader(
            "signal_log", correction="input_correction_bits", scale="output_scale"
        )
    },
}

READERS: dict[str, Reader] = {name: reader for names in OPERATORS.values() for name, reader in names.items()}
