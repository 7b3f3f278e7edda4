"""TFLite's operators: kind of op -> name in the file -> reader of a node; "" has those composed of several kinds.

This module has readers of TFLite Micro's audio front end, recurrent layers, detection, landmarks, and stateful audio
operators: delays, overlapping frames, stacks and circular buffers. The latter become concatenations and slices, with a
state outside the arena for the last samples. Results that TFLM marks as not valid yet, and leaves unwritten, are
computed here from zeros in place of the missing samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import cos, sin
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from ...ir import Array, Tensor, real_values
from ...ops import classifiers, recurrent
from ...ops.base import is_float, scale_of, zero_of
from ...ops.pointwise import attributes
from .. import compose
from ..builder import Reader
from ..compose import emits, moving
from . import tflite_layers
from . import tflite_layers as layers
from .tflite_layers import fused_clamp

MAX_FRAMES = 256  # of a call; each frame is an op or operand
MAX_SAMPLES = 1 << 20  # of a delay or a frame


def _remembered(node: Any, shape: tuple[int, ...], dtype: str, like: Tensor | None = None) -> str:
    """Name of a new state of the node, as it is at the start of an inference."""
    name = node.fresh("state")
    node.builder.tensors[name] = Tensor(name, shape, dtype, None if like is None else like.quant)
    return str(name)


def _kept(node: Any, state: str, value: str, start: Array | None = None) -> None:
    """Make `value` the state at the end of an inference. `start`: initial value; None: zeros."""
    node.builder.states.append((state, value, start))


def _joined(node: Any, names: list[str], axis: int) -> str:
    return str(node.inner("concat", names, axis=axis)) if len(names) > 1 else names[0]


def _cut(node: Any, name: str, axis: int, begin: int, size: int) -> str:
    """Name of a slice of `size` elements along an axis, which may count from the end."""
    shape = node.builder.tensors[name].shape
    axis %= len(shape)
    if (begin, size) == (0, shape[axis]):
        return name
    first = tuple(begin if d == axis else 0 for d in range(len(shape)))
    sizes = tuple(size if d == axis else n for d, n in enumerate(shape))
    return str(node.inner("slice", [name], begin=first, size=sizes))


def _shifted(node: Any, state: str, x: str, axis: int, start: Array | None = None) -> str:
    """Name of the state concatenated with `x`; its last elements are the next state."""
    size = node.builder.tensors[state].shape[axis]
    line = _joined(node, [state, x], axis)
    _kept(node, state, _cut(node, line, axis, node.builder.tensors[line].shape[axis] - size, size), start)
    return line


def _stream_options(node: Any, least: dict[str, int], x: Tensor, types: tuple[str, ...] = ("int16",)) -> list[int]:
    """Options named in `least`, in order. Raises EdgebuildError below these least values, or for a wrong type of x."""
    numbers = _signal_options(node, {name: name for name in least})
    bad = [f"{name} {numbers[name]}" for name, low in least.items() if not low <= numbers[name] <= MAX_SAMPLES]
    if bad or x.dtype not in types or not x.shape:
        raise node.error(
            ", ".join(bad) or f"'{x.name}' is {x.dtype} of shape {x.shape}", f"supported: {' and '.join(types)}"
        )
    return [numbers[name] for name in least]


def _whole_number(node: Any, output: int, name: str) -> None:
    """Emit tensor `name` as output number `output`, in the shape of the file."""
    node.emit("reshape", [name], output=output, shape=node.written[output].shape)


def read_delay(node: Any) -> None:
    x = node.tensor(0)
    (length,) = _stream_options(node, {"delay_length": 0}, x)
    if not length:
        return _whole_number(node, 0, x.name)
    state = _remembered(node, (*x.shape[:-1], length), x.dtype)
    _whole_number(node, 0, _cut(node, _shifted(node, state, x.name, len(x.shape) - 1), -1, 0, x.shape[-1]))


def read_overlap_add(node: Any) -> None:
    """Read SignalOverlapAdd: add each frame to the tail of earlier ones; the first `frame_step` samples are results."""
    x = node.tensor(0)
    (step,) = _stream_options(node, {"frame_step": 1}, x, ("int16", "float32"))
    if len(x.shape) < 2 or step > x.shape[-1] or x.shape[-2] > MAX_FRAMES:
        raise node.error(
            f"steps of {step} in frames of shape {x.shape}", f"frames are not shorter, and at most {MAX_FRAMES}"
        )
    outer, (count, size), axis = x.shape[:-2], x.shape[-2:], len(x.shape) - 2
    if size == step:
        return _whole_number(node, 0, x.name)
    rest = state = _remembered(node, (*outer, size - step), x.dtype)
    sums = []
    for i in range(count):
        frame = node.reshaped(_cut(node, x.name, -2, i, 1), (*outer, size))
        head = [rest, _cut(node, frame, -1, 0, size - step)]
        added = node.inner("signal_add", head) if x.dtype == "int16" else node.apply("sum", *head)
        total = _joined(node, [added, _cut(node, frame, -1, size - step, step)], axis)
        sums.append(_cut(node, total, -1, 0, step))
        rest = _cut(node, total, -1, step, size - step)
    _kept(node, state, rest)
    _whole_number(node, 0, _joined(node, sums, axis))


def read_framer(node: Any) -> None:
    """Read SignalFramer: frames that begin every `frame_step` samples. `prefill`: zeros precede the first sample."""
    x = node.tensor(0)
    size, step, prefill = _stream_options(node, {"frame_size": 1, "frame_step": 1, "prefill": 0}, x)
    count = x.shape[-1] // step
    if size < step or x.shape[-1] % step or count > MAX_FRAMES:
        raise node.error(f"frames of {size} every {step} of {x.shape[-1]} samples", "the step divides the samples")
    ahead = size if prefill else -(-size // step) * step  # samples available when a frame is complete
    line, axis = x.name, len(x.shape) - 1
    if ahead > step:
        line = _shifted(node, _remembered(node, (*x.shape[:-1], ahead - step), x.dtype), x.name, axis)
    frames = [node.reshaped(_cut(node, line, -1, i * step, size), (*x.shape[:-1], 1, size)) for i in range(count)]
    _whole_number(node, 0, _joined(node, frames, axis))
    _valid_frames(node, np.zeros(0 if prefill else ahead // step - 1, bool), count)


def _valid_frames(node: Any, waiting: Array, count: int) -> None:
    """Emit output 1: whether each frame is valid. `waiting`: False for each frame before the first valid one."""
    if not waiting.size:
        node.store(node.outputs[1], np.ones(node.written[1].shape, bool))
        return
    state = _remembered(node, waiting.shape, "bool")
    line = _shifted(node, state, node.array(np.ones(count, bool)), 0)
    _whole_number(node, 1, _cut(node, line, 0, 0, 1))


def read_stacker(node: Any) -> None:
    """Read SignalStacker: concatenate the last frames, at first copies of frame 0. Each `stacker_step`th is valid."""
    x = node.tensor(0)
    names = {"num_channels": 1, "stacker_left_context": 0, "stacker_right_context": 0, "stacker_step": 1}
    channels, left, right, step = _stream_options(node, names, x)
    count = left + right + 1
    if x.shape != (channels,) or step > count or count > MAX_FRAMES:
        raise node.error(f"steps of {step} in {count} frames of shape {x.shape}", f"at most {MAX_FRAMES} of {channels}")
    if count == 1:
        _whole_number(node, 0, x.name)
    else:
        state = _remembered(node, ((count - 1) * channels,), x.dtype)
        begun = _remembered(node, (1,), "bool")
        copies = _joined(node, [x.name] * (count - 1), 0)
        before = node.apply("where", begun, state, copies, to=x.dtype)
        line = _joined(node, [before, x.name], 0)
        _kept(node, state, _cut(node, line, 0, channels, (count - 1) * channels))
        _kept(node, begun, node.array(np.ones(1, bool)))
        _whole_number(node, 0, line)
    at = np.arange(max(right + 1, step))
    turn = (at >= right) & ((at - right) % step == 0)
    if turn.all():
        return _valid_frames(node, turn[:0], 1)
    state = _remembered(node, turn.shape, "bool")
    line = _joined(node, [state, _cut(node, state, 0, len(turn) - step, 1)], 0)
    _kept(node, state, _cut(node, line, 0, 1, len(turn)), turn)
    _whole_number(node, 1, _cut(node, state, 0, 0, 1))


def read_circular_buffer(node: Any) -> None:
    """Read CIRCULAR_BUFFER: the last slots. Only cycles_max 1: with more, TFLM ends some inferences here."""
    x, y = node.tensor(0), node.written[0]
    numbers = _signal_options(node, {"cycles": "cycles_max"}) if node.custom_options() else {"cycles": 0}
    if numbers["cycles"] != 1:
        hint = "export it with cycles_max 1, and call the part of the model behind it only when it is wanted"
        raise node.error(f"cycles_max {numbers['cycles']}", hint)
    if len(x.shape) != 4 or x.shape[1] != 1 or y.shape != (x.shape[0], y.shape[1], *x.shape[2:]) or x.quant != y.quant:
        raise node.error(
            f"a slot of shape {x.shape} for {y.shape}, scales {x.quant} and {y.quant}", "one slot of the output"
        )
    if y.shape[1] == 1:
        return _whole_number(node, 0, x.name)
    shape = (x.shape[0], y.shape[1] - 1, *x.shape[2:])
    variable = node.outputs[0] in node.builder.tensors  # variables begin with the zero point, others with integer 0
    start = np.full(shape, zero_of(x), x.dtype) if variable and zero_of(x) else None
    _whole_number(node, 0, _shifted(node, _remembered(node, shape, x.dtype, like=x), x.name, 1, start))


def _signal_options(node: Any, names: dict[str, str]) -> dict[str, int]:
    """Values of the node's flexbuffer options by attribute. `names`: attribute -> name in the file."""
    try:
        values = flexbuffers.Loads(node.custom_options())
        numbers = {attribute: int(values[name]) for attribute, name in names.items()}
        if wide := [names[attribute] for attribute, n in numbers.items() if not -(2**31) <= n < 2**31]:
            raise ValueError(f"{wide[0]} has more than 32 bits")
        return numbers
    except Exception as problem:  # the options are a format of their own, whose reader checks nothing
        raise node.error(f"its options are damaged: {problem}", "fetch the file or export it again") from None


def read_signal(node: Any, kind: str, **names: str) -> None:
    """Emit one op with attributes from the node's options. `names`: attribute -> name in the file."""
    node.emit(kind, node.inputs, **_signal_options(node, names))


def read_auto_scale(node: Any) -> None:
    node.emit("signal_headroom", node.inputs[:1], output=1)
    node.emit("signal_raise", [node.inputs[0], node.outputs[1]])


def read_spectral_subtraction(node: Any) -> None:
    """Read SignalFilterBankSpectralSubtraction. Even and odd channels have different weights; output 1 is the noise."""
    weights = {"even": "smoothing", "odd": "alternate_smoothing"}
    weights |= {"even_rest": "one_minus_smoothing", "odd_rest": "alternate_one_minus_smoothing"}
    own = _signal_options(node, weights)
    names = {"smoothing_bits": "smoothing_bits", "bits": "spectral_subtraction_bits"}
    attrs, least = (
        _signal_options(node, {**names, "clamping": "clamping"}),
        _signal_options(node, {"least": "min_signal_remaining"}),
    )
    x = node.tensor(0)
    odd = np.arange(x.elements) % 2 == 1
    tables = [
        node.array(np.where(odd, own[f"odd{part}"], own[f"even{part}"]).astype(np.uint32)) for part in ("", "_rest")
    ]
    state = Tensor(f"{node.outputs[0]}@noise", x.shape, "uint32")
    node.builder.tensors[state.name] = state
    after = node.after(state)
    node.add("signal_noise", [x.name, state.name, *tables], after, attrs)
    shared = {name: attrs[name] for name in names}
    node.emit("signal_denoise", [x.name, after.name], **shared, **least)
    node.emit("reshape", [after.name], output=1, shape=x.shape)


def read_filter_bank(node: Any) -> None:
    """Read SignalFilterBank. Raises EdgebuildError if the options' number of channels is not the output's."""
    count = _signal_options(node, {"count": "num_channels"})["count"]
    if count != node.written[0].elements:
        raise node.error(f"{count} channels, and an output of shape {node.written[0].shape}")
    node.emit("signal_bank", node.inputs)


def read_svdf(node: Any) -> None:
    """Read SVDF. Operands: input, weights of features, weights of times, bias or none, state."""
    options = node.options("SVDFOptions")
    clamp = fused_clamp(node, options.FusedActivationFunction())
    features, times, state = node.constant(1, "weights"), node.constant(2, "weights of times"), node.tensor(4)
    after = node.after(state)
    node.add("svdf_state", [state.name, node.inputs[0], features.name], after, {"memory": times.shape[1]})
    bias = [node.inputs[3]] if node.inputs[3] else []
    # TFLM applies no activation to quantised results, whose scale and zero point imply it
    clamp = clamp if is_float(node.tensor(0)) else (None, None)
    node.emit("svdf", [after.name, times.name, *bias], rank=options.Rank(), clamp=clamp)


GATES = (2, 1, 3, 4)  # operands of the weights in the file
TANH = 4  # of the file's activation functions
LEFT_OUT = {9: "peepholes", 10: "peepholes", 11: "peepholes", 16: "a projection", 20: "layer normalisation"}


def read_lstm(node: Any) -> None:
    options, x = node.options("UnidirectionalSequenceLSTMOptions"), node.tensor(0)
    for position, what in LEFT_OUT.items():
        if node.has(position):
            raise node.error(what, "an LSTM without peepholes, projection and layer normalisation is supported")
    if options.FusedActivationFunction() != TANH or not node.inputs[1]:
        raise node.error("another activation than tanh, or joined gates", "export a plain LSTM")
    if len(x.shape) != 3 or x.shape[0 if not options.TimeMajor() else 1] != 1:
        raise node.error(f"input of shape {x.shape}", "one sample of some steps is supported")
    hidden, cell = node.tensor(18), node.tensor(19)
    steps, inner, units = x.elements // x.shape[2], x.shape[2], hidden.elements
    own = [node.constant(g, "weights") for g in GATES]
    back = [node.constant(4 + g, "recurrent weights") for g in GATES]
    bias = [node.constant(11 + g, "bias") for g in GATES]
    if any(w.quant is not None and (not w.quant.per_tensor or any(w.quant.zero_point)) for w in (*own, *back)):
        raise node.error("weights with a zero point or several scales", "one scale for each matrix is supported")
    joined = [node.array(np.concatenate([t.data for t in tensors])) for tensors in (own, back, bias)]
    attrs = _lstm_attributes(x, hidden, cell, own, back, float(options.CellClip()))
    dtype = "float32" if is_float(x) else "int16"
    rows = Tensor(f"{node.outputs[0]}@rows", (steps + 2, units), dtype)
    states = [node.reshaped(t.name, (1, units)) for t in (hidden, cell)]
    node.add("lstm", [node.reshaped(node.inputs[0], (steps, inner)), *states, *joined], rows, attrs)
    output = _lstm_rows(node, rows, range(1, steps + 1), node.written[0], "outputs")
    node.emit("reshape", [output], shape=node.written[0].shape)
    for state, row, what in ((hidden, steps, "hidden"), (cell, steps + 1, "cell")):
        after = node.after(state)
        node.add("reshape", [_lstm_rows(node, rows, range(row, row + 1), after, what)], after, {"shape": after.shape})


def _lstm_rows(node: Any, rows: Tensor, wanted: range, like: Tensor, what: str) -> str:
    """Name of the `wanted` rows of an LSTM's result, in the type of `like`."""
    shape, name = (len(wanted), rows.shape[1]), f"{node.outputs[0]}@{what}"
    same = like.dtype == rows.dtype
    part = Tensor(name, shape, rows.dtype, like.quant if same else None)
    node.add("take", [rows.name], part, {"index": (tuple(wanted), None)})
    if not same:
        node.add("cast", [name], Tensor(f"{name}@cast", shape, like.dtype, like.quant), {"to": like.dtype})
    return name if same else f"{name}@cast"


def _lstm_attributes(
    x: Tensor, hidden: Tensor, cell: Tensor, own: list[Tensor], back: list[Tensor], clip: float
) -> dict[str, Any]:
    """Float factors from sums to Q3.12 and from products to states, computed in the order of TFLM."""
    if is_float(x):
        return {"clip": clip}

    def gates(operand: Tensor, weights: list[Tensor]) -> tuple[float, ...]:
        return tuple(scale_of(operand) * scale_of(w) / recurrent.Q12 for w in weights)

    return {
        "own": gates(x, own),
        "back": gates(hidden, back),
        "keep": recurrent.Q15 * scale_of(cell) / scale_of(cell),
        "add": recurrent.Q15 * recurrent.Q15 / scale_of(cell),
        "out": recurrent.Q15 * recurrent.Q15 / scale_of(hidden),
        "clip": int(min(clip / scale_of(cell), 32767.0)) if clip > 0 else 0,
    }


PER_CLASS = 100  # default number of boxes per class


def read_detection(node: Any) -> None:
    """Read TFLite_Detection_PostProcess. The op's vector is split into four outputs of the file's or TFLM's shapes."""
    anchors = node.constant(2, "the anchors")
    operands = [*node.inputs[:2], node.array(real_values(anchors).astype(np.float32))]
    vector, at = node.inner("detection", operands, **(attrs := _detection_options(node))), 0
    most = attrs["most"]
    for output, shape in enumerate(((1, most, 4), (1, most), (1, most), (1,))):
        size = int(np.prod(shape))
        part = node.inner("span", [vector], begin=(at,), size=(size,))
        at += size
        y = node.written[output]
        y = y if y.elements == size else replace(y, shape=shape)
        node.add("reshape", [part], y, {"shape": y.shape})


def _detection_options(node: Any) -> dict[str, Any]:
    try:
        values = flexbuffers.Loads(node.custom_options())
        regular, many = bool(values.get("use_regular_nms", False)), int(values["max_classes_per_detection"])
        attrs: dict[str, Any] = {name: float(np.float32(values[key])) for name, key in classifiers.NUMBERS.items()}
        attrs |= {"most": int(values["max_detections"]), "classes": int(values["num_classes"])}
        attrs["per_class"] = int(values.get("detections_per_class", PER_CLASS)) if regular else 0
    except Exception as problem:  # the options are a format of their own, whose reader checks nothing
        raise node.error(f"its options are damaged: {problem}", "fetch the file or export it again") from None
    if many != 1 and not regular:
        raise node.error(f"max_classes_per_detection {many}", "supported: 1, or use_regular_nms")
    if regular and attrs["per_class"] < 1:
        raise node.error(f"{attrs['per_class']} detections of a class", "at least 1")
    return attrs


# Readers of MediaPipe's operators on landmarks and images (mediapipe/util/tflite/operations, 0.10, version 2).
#
# A 4 x 4 matrix maps positions in a cropped, rotated image to positions in the whole image. Only its rows x and y are
# used, of these the columns x, y and 1. Landmarks2TransformMatrix computes it from landmarks.

PLANE = (0, 1)  # x and y
DAMAGED = "fetch the file or export it again"


def read_landmarks_matrix(node: Any) -> None:
    """Read Landmarks2TransformMatrix: the matrix of the box of some landmarks, rotated by the line between two of them.

    Its columns are s_x e_x, s_y e_y, 0, and the box's centre less half of the crop. e_x, e_y: rows of the rotation;
    s: the rotated box's size times a scale, divided by the crop's size.
    """
    x, options = node.tensor(0), _options(node)
    try:
        subset = [int(i) for i in options["subset_idxs"]]
        ends = [int(options["left_rotation_idx"]), int(options["right_rotation_idx"])]
        size = np.array([int(options["output_width"]), int(options["output_height"])], np.float32)
        scale = np.array([options["scale_x"], options["scale_y"]], np.float32)
        angle = float(options["target_rotation_radians"])
    except (KeyError, TypeError, ValueError) as problem:
        raise node.error(f"its options are not those of version 2: {problem!r}", DAMAGED) from None
    indices = [*subset, *ends]
    if not subset or min(indices) < 0 or not all(np.isfinite([*scale, angle])) or min(*size, *scale) <= 0:
        raise node.error("no subset, or an index, a size, a scale or an angle that is none", DAMAGED)
    if len(x.shape) != 3 or x.shape[0] != 1 or x.shape[2] != 3 or max(indices) >= x.shape[1]:
        raise node.error(f"landmarks of shape {x.shape}, indices up to {max(indices)}", "supported: 1 x N x 3")
    places = _part(node, node.inputs[0], [(0,), subset, PLANE])
    left, right = (_part(node, node.inputs[0], [(0,), (end,), PLANE]) for end in ends)
    axes = _turned_axes(node, node.apply("difference", right, left), angle)
    lines = node.reshaped(axes, (1, 2, 1, 2))
    turned = _total(node, node.apply("product", node.reshaped(places, (1, 1, len(subset), 2)), lines), 3)
    turned = node.reshaped(turned, (1, 2, len(subset)))
    most, least = (node.reshaped(node.inner(f"reduce_{end}", [turned], axes=(2,)), (1, 2, 1)) for end in ("max", "min"))
    scaled = _times(node, node.apply("difference", most, least), (scale / size).reshape(1, 2, 1))
    columns = node.apply("product", axes, scaled)
    middle = _times(node, node.apply("sum", most, least), np.array([[[0.5]]], np.float32))
    corner = node.apply("difference", middle, _times(node, scaled, (size / 2).reshape(1, 2, 1)))
    last = node.reshaped(_total(node, node.apply("product", axes, corner), 1), (1, 1, 2))
    rows = node.inner("concat", [columns, node.array(np.zeros((1, 1, 2), np.float32)), last], axis=1)
    rest = node.array(np.eye(4, dtype=np.float32)[None, 2:])
    node.emit("concat", [node.turned(rows, (0, 2, 1)), rest], axis=1)


def _turned_axes(node: Any, line: str, angle: float) -> str:
    """Rows (cos r, -sin r), (sin r, cos r) of a rotation by r = `angle` less the line's, which is 0 without length."""
    line = node.reshaped(line, (1, 2))
    length = node.inner("reduce_sum", [node.apply("square", line)], axes=(1,))
    length = node.apply("sqrt", node.reshaped(length, (1, 1)))
    none = node.apply("equal", length, node.array(np.array([[0]], np.float32)))
    along = node.apply("quotient", line, length)
    unit = node.apply("where", none, node.array(np.array([[1, 0]], np.float32)), along, to="float32")
    c, s = cos(angle), sin(angle)
    weights = np.array([[c, s], [-s, c], [s, -c], [c, s]], np.float32)
    parts = node.apply("product", node.reshaped(unit, (1, 1, 2)), node.array(weights[None]))
    return str(node.reshaped(_total(node, parts, 2), (1, 2, 2)))


def read_transformed_landmarks(node: Any) -> None:
    """Read TransformLandmarks: multiply x and y of each landmark by the matrix; a third coordinate does not change."""
    x = node.tensor(0)
    _check_matrix(node)
    if len(x.shape) != 3 or x.shape[0] != 1 or x.shape[2] not in (2, 3):
        raise node.error(f"landmarks of shape {x.shape}", "supported: 1 x N x 2 and 1 x N x 3")
    count = x.shape[1]
    matrix = _part(node, node.inputs[1], [(0,), PLANE, PLANE])
    places = _part(node, node.inputs[0], [(0,), range(count), PLANE])
    parts = node.apply("product", node.reshaped(places, (1, count, 1, 2)), node.reshaped(matrix, (1, 1, 2, 2)))
    moved = node.reshaped(_total(node, parts, 3), (1, count, 2))
    shift = node.reshaped(_part(node, node.inputs[1], [(0,), PLANE, (3,)]), (1, 1, 2))
    if x.shape[2] == 2:
        node.emit_function("sum", moved, shift)
    else:
        depth = _part(node, node.inputs[0], [(0,), range(count), (2,)])
        node.emit("concat", [node.apply("sum", moved, shift), depth], axis=2)


def read_transformed_image(node: Any) -> None:
    """Read TransformTensorBilinear: sample an image bilinearly where a matrix maps the pixels; 0 outside the image."""
    x, options = node.tensor(0), _options(node)
    _check_matrix(node)
    try:
        size = int(options["output_height"]), int(options["output_width"])
    except (KeyError, TypeError, ValueError) as problem:
        raise node.error(f"its options are not those of version 2: {problem!r}", DAMAGED) from None
    if len(x.shape) != 4 or x.shape[0] != 1 or min(size) < 1 or node.written[0].shape[1:3] != size:
        raise node.error(f"an image of shape {x.shape} to {size}", "supported: 1 x H x W x C, sizes as in the file")
    across, down = np.meshgrid(np.arange(size[1]) + 0.5, np.arange(size[0]) + 0.5)
    middles = np.stack([across, down, np.ones(size)], axis=-1).astype(np.float32).reshape(1, *size, 1, 3)
    matrix = node.reshaped(_part(node, node.inputs[1], [(0,), PLANE, (0, 1, 3)]), (1, 1, 1, 2, 3))
    place = node.reshaped(_total(node, node.apply("product", matrix, node.array(middles)), 4), (1, *size, 2))
    place = node.apply("difference", place, node.array(np.array([[[[0.5]]]], np.float32)))
    last = np.array([x.shape[2] - 1, x.shape[1] - 1], np.float32).reshape(1, 1, 1, 2)
    near = node.apply("maximum", place, node.array(np.array([[[[0]]]], np.float32)))
    near = node.apply("minimum", near, node.array(last))
    inside = node.inner("reduce_min", [node.apply("equal", place, near)], axes=(3,))
    grid = _times(node, near, 2 / np.maximum(last, 1))
    grid = node.apply("difference", grid, node.array(np.array([[[[1]]]], np.float32)))
    sampled = node.inner("grid_sample", [node.inputs[0], grid], taps=2, corners=True, padding="border")
    outside = node.array(np.array([[[[0]]]], np.float32))
    node.emit_function("where", node.reshaped(inside, (1, *size, 1)), sampled, outside, to="float32")


def _options(node: Any) -> dict[str, Any]:
    try:
        options = flexbuffers.Loads(node.custom_options())
    except Exception as problem:  # the options are a format of their own, whose reader checks nothing
        raise node.error(f"its options are damaged: {problem}", DAMAGED) from None
    return options if isinstance(options, dict) else {}


def _check_matrix(node: Any) -> None:
    if node.tensor(1).shape != (1, 4, 4):
        raise node.error(f"a matrix of shape {node.tensor(1).shape}", "supported: 1 x 4 x 4")


def _part(node: Any, name: str, index: Sequence[Sequence[int]]) -> str:
    tables = moving(index, node.builder.tensors[name])
    return str(node.inner("take", [name], index=tables)) if any(tables) else name


def _times(node: Any, name: str, factors: Any) -> str:
    return str(node.apply("product", name, node.array(np.asarray(factors, np.float32))))


def _total(node: Any, name: str, axis: int) -> str:
    return str(node.inner("reduce_sum", [name], axes=(axis,)))


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
        "custom SignalDelay": read_delay,
        "custom SignalFramer": read_framer,
        "custom SignalOverlapAdd": read_overlap_add,
        "custom SignalStacker": read_stacker,
        "custom CIRCULAR_BUFFER": read_circular_buffer,
        "custom Landmarks2TransformMatrix": read_landmarks_matrix,
        "custom TransformLandmarks": read_transformed_landmarks,
        "custom TransformTensorBilinear": read_transformed_image,
    },
    "add": {
        "ADD": lambda node: compose.arithmetic(node, "add", layers.activation_of(node, "AddOptions")),
        "ADD_N": layers.read_add_n,
    },
    "arg": {"ARG_MAX": partial(layers.read_arg, largest=True), "ARG_MIN": partial(layers.read_arg, largest=False)},
    "avg_pool2d": {
        "AVERAGE_POOL_2D": lambda node: node.emit("avg_pool2d", node.inputs, **layers.average_attributes(node)),
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
    "detection": {"custom TFLite_Detection_PostProcess": read_detection},
    "gather": {
        "GATHER": lambda node: compose.gathered(node, *node.fields("GatherOptions", "Axis", "BatchDims")),
        "EMBEDDING_LOOKUP": tflite_layers.read_embedding_lookup,
    },
    "gather_nd": {"GATHER_ND": compose.gathered_nd},
    "irfft": {"custom SignalIrfft": partial(read_signal, kind="irfft", length="fft_length")},
    "log_softmax": {"LOG_SOFTMAX": emits("log_softmax")},
    "lstm": {"UNIDIRECTIONAL_SEQUENCE_LSTM": read_lstm},
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
    "rfft": {"custom SignalRfft": partial(read_signal, kind="rfft", length="fft_length")},
    "running_sum": {
        "CUMSUM": lambda node: compose.running_sum(
            node, *map(bool, node.fields("CumsumOptions", "Exclusive", "Reverse"))
        )
    },
    "scatter": {"DYNAMIC_UPDATE_SLICE": tflite_layers.read_update_slice},
    "softmax": {"SOFTMAX": layers.read_softmax},
    "sum": {"SUM": lambda node: layers.read_reduction(node, "reduce_sum" if node.tensor(0).quant is None else "sum")},
    "svdf": {"SVDF": read_svdf},
    "topk": {"TOPK_V2": layers.read_topk},
    "transpose": {
        "TRANSPOSE": lambda node: node.emit("transpose", node.inputs[:1], perm=tuple(node.numbers(1, "permutation")))
    },
    "transpose_conv2d": {
        "TRANSPOSE_CONV": layers.read_transpose_conv,
        "custom Convolution2DTransposeBias": layers.read_mediapipe_transpose_conv,
    },
    "unit_rows": {"L2_NORMALIZATION": layers.read_l2_normalization},
    "signal_window": {"custom SignalWindow": partial(read_signal, kind="signal_window", shift="shift")},
    "signal_raise": {"custom SignalFftAutoScale": read_auto_scale},
    "signal_energy": {
        "custom SignalEnergy": partial(read_signal, kind="signal_energy", first="start_index", end="end_index")
    },
    "signal_bank": {"custom SignalFilterBank": read_filter_bank},
    "signal_root": {"custom SignalFilterBankSquareRoot": partial(read_signal, kind="signal_root")},
    "signal_denoise": {"custom SignalFilterBankSpectralSubtraction": read_spectral_subtraction},
    "signal_gain": {"custom SignalPCAN": partial(read_signal, kind="signal_gain", shift="snr_shift")},
    "signal_log": {
        "custom SignalFilterBankLog": partial(
            read_signal, kind="signal_log", correction="input_correction_bits", scale="output_scale"
        )
    },
}

READERS: dict[str, Reader] = {name: reader for names in OPERATORS.values() for name, reader in names.items()}
