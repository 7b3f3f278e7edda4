"""Operators of TensorFlow Lite Micro that remember samples: delays, frames that overlap, stacks, circular buffers.

All are made of joined and cut tensors, and of a state beside the arena that holds the last samples. Where TFLM says
that a result does not count yet and leaves it unwritten, it has zeros for the samples before the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Tensor
from . import pointwise
from .base import zero_of
from .frontend import options

MOST_FRAMES = 256  # of a call, each of which is an op or an operand of its own
MOST_SAMPLES = 1 << 20  # of a delay or a frame


def remembered(node: Any, shape: tuple[int, ...], dtype: str, like: Tensor | None = None) -> str:
    """A state of the node: the name of its value at the start of an inference."""
    name = node.fresh("state")
    node.builder.tensors[name] = Tensor(name, shape, dtype, None if like is None else like.quant)
    return str(name)


def kept(node: Any, state: str, value: str, start: Array | None = None) -> None:
    """`value` is the state when the inference ends, `start` the one before the first; None: zeros."""
    node.builder.states.append((state, value, start))


def joined(node: Any, names: list[str], axis: int) -> str:
    return str(node.inner("concat", names, axis=axis)) if len(names) > 1 else names[0]


def cut(node: Any, name: str, axis: int, begin: int, size: int) -> str:
    """Elements along an axis, which may be counted from the end."""
    shape = node.builder.tensors[name].shape
    axis %= len(shape)
    if (begin, size) == (0, shape[axis]):
        return name
    first = tuple(begin if d == axis else 0 for d in range(len(shape)))
    sizes = tuple(size if d == axis else n for d, n in enumerate(shape))
    return str(node.inner("slice", [name], begin=first, size=sizes))


def shifted(node: Any, state: str, x: str, axis: int, start: Array | None = None) -> str:
    """The state with `x` behind it; what is left of it for the next time are the last elements."""
    size = node.builder.tensors[state].shape[axis]
    line = joined(node, [state, x], axis)
    kept(node, state, cut(node, line, axis, node.builder.tensors[line].shape[axis] - size, size), start)
    return line


def known(node: Any, least: dict[str, int], x: Tensor, types: tuple[str, ...] = ("int16",)) -> list[int]:
    """Numbers of the options, each at least as large as is told here; raises if the operand is of another type."""
    told = options(node, {name: name for name in least})
    bad = [f"{name} {told[name]}" for name, low in least.items() if not low <= told[name] <= MOST_SAMPLES]
    if bad or x.dtype not in types or not x.shape:
        raise node.error(
            ", ".join(bad) or f"'{x.name}' is {x.dtype} of shape {x.shape}", f"supported: {' and '.join(types)}"
        )
    return [told[name] for name in least]


def whole(node: Any, output: int, name: str) -> None:
    """The node's output of this number is tensor `name`, in the shape of the file."""
    node.emit("reshape", [name], output=output, shape=node.written[output].shape)


def delay(node: Any) -> None:
    x = node.tensor(0)
    (length,) = known(node, {"delay_length": 0}, x)
    if not length:
        return whole(node, 0, x.name)
    state = remembered(node, (*x.shape[:-1], length), x.dtype)
    whole(node, 0, cut(node, shifted(node, state, x.name, len(x.shape) - 1), -1, 0, x.shape[-1]))


def overlap_add(node: Any) -> None:
    """Each frame is added to the rest of those before it; its first `frame_step` samples are results."""
    x = node.tensor(0)
    (step,) = known(node, {"frame_step": 1}, x, ("int16", "float32"))
    if len(x.shape) < 2 or step > x.shape[-1] or x.shape[-2] > MOST_FRAMES:
        raise node.error(
            f"steps of {step} in frames of shape {x.shape}", f"frames are not shorter, and at most {MOST_FRAMES}"
        )
    outer, (count, size), axis = x.shape[:-2], x.shape[-2:], len(x.shape) - 2
    if size == step:
        return whole(node, 0, x.name)
    rest = state = remembered(node, (*outer, size - step), x.dtype)
    sums = []
    for i in range(count):
        frame = node.reshaped(cut(node, x.name, -2, i, 1), (*outer, size))
        head = [rest, cut(node, frame, -1, 0, size - step)]
        added = node.inner("signal_add", head) if x.dtype == "int16" else _sum(node, head)
        total = joined(node, [added, cut(node, frame, -1, size - step, step)], axis)
        sums.append(cut(node, total, -1, 0, step))
        rest = cut(node, total, -1, step, size - step)
    kept(node, state, rest)
    whole(node, 0, joined(node, sums, axis))


def _sum(node: Any, names: list[str]) -> str:
    return str(node.inner("pointwise", names, **pointwise.attributes("sum")))


def framer(node: Any) -> None:
    """Frames that begin `frame_step` samples after one another. `prefill`: there are zeros before the first sample."""
    x = node.tensor(0)
    size, step, prefill = known(node, {"frame_size": 1, "frame_step": 1, "prefill": 0}, x)
    count = x.shape[-1] // step
    if size < step or x.shape[-1] % step or count > MOST_FRAMES:
        raise node.error(f"frames of {size} every {step} of {x.shape[-1]} samples", "the step divides the samples")
    ahead = size if prefill else -(-size // step) * step  # samples that are there when a frame is taken
    line, axis = x.name, len(x.shape) - 1
    if ahead > step:
        line = shifted(node, remembered(node, (*x.shape[:-1], ahead - step), x.dtype), x.name, axis)
    frames = [node.reshaped(cut(node, line, -1, i * step, size), (*x.shape[:-1], 1, size)) for i in range(count)]
    whole(node, 0, joined(node, frames, axis))
    _valid(node, np.zeros(0 if prefill else ahead // step - 1, bool), count)


def _valid(node: Any, waiting: Array, count: int) -> None:
    """The second output: true, but for the frames that are waited for."""
    if not waiting.size:
        name = node.outputs[1]
        data = np.ones(node.written[1].shape, bool)
        node.builder.tensors[name] = Tensor(name, data.shape, "bool", None, data)
        return
    state = remembered(node, waiting.shape, "bool")
    line = shifted(node, state, node.array(np.ones(count, bool)), 0)
    whole(node, 1, cut(node, line, 0, 0, 1))


def stacker(node: Any) -> None:
    """The last frames in a row; before the first one stand copies of it. Every `stacker_step`th result counts."""
    x = node.tensor(0)
    names = {"num_channels": 1, "stacker_left_context": 0, "stacker_right_context": 0, "stacker_step": 1}
    channels, left, right, step = known(node, names, x)
    count = left + right + 1
    if x.shape != (channels,) or step > count or count > MOST_FRAMES:
        raise node.error(
            f"steps of {step} in {count} frames of shape {x.shape}", f"at most {MOST_FRAMES} of {channels}"
        )
    if count == 1:
        whole(node, 0, x.name)
    else:
        state = remembered(node, ((count - 1) * channels,), x.dtype)
        begun = remembered(node, (1,), "bool")
        copies = joined(node, [x.name] * (count - 1), 0)
        choice = {**pointwise.attributes("where"), "to": x.dtype}
        before = node.inner("pointwise", [begun, state, copies], **choice)
        line = joined(node, [before, x.name], 0)
        kept(node, state, cut(node, line, 0, channels, (count - 1) * channels))
        kept(node, begun, node.array(np.ones(1, bool)))
        whole(node, 0, line)
    at = np.arange(max(right + 1, step))
    turn = (at >= right) & ((at - right) % step == 0)
    if turn.all():
        return _valid(node, turn[:0], 1)
    state = remembered(node, turn.shape, "bool")
    line = joined(node, [state, cut(node, state, 0, len(turn) - step, 1)], 0)
    kept(node, state, cut(node, line, 0, 1, len(turn)), turn)
    whole(node, 1, cut(node, state, 0, 0, 1))


def circular_buffer(node: Any) -> None:
    """The last slots. TFLM ends an inference here if it is not the last of `cycles_max`; that is not supported."""
    x, y = node.tensor(0), node.written[0]
    told = options(node, {"cycles": "cycles_max"}) if node.custom_options() else {"cycles": 0}
    if told["cycles"] != 1:
        hint = "export it with cycles_max 1, and call the part of the model behind it only when it is wanted"
        raise node.error(f"cycles_max {told['cycles']}", hint)
    if len(x.shape) != 4 or x.shape[1] != 1 or y.shape != (x.shape[0], y.shape[1], *x.shape[2:]) or x.quant != y.quant:
        raise node.error(
            f"a slot of shape {x.shape} for {y.shape}, scales {x.quant} and {y.quant}", "one slot of the output"
        )
    if y.shape[1] == 1:
        return whole(node, 0, x.name)
    shape = (x.shape[0], y.shape[1] - 1, *x.shape[2:])
    variable = node.outputs[0] in node.builder.tensors  # begins with real zeros, others with stored ones
    start = np.full(shape, zero_of(x), x.dtype) if variable and zero_of(x) else None
    whole(node, 0, shifted(node, remembered(node, shape, x.dtype, like=x), x.name, 1, start))


TFLITE = {
    "custom SignalDelay": delay,
    "custom SignalFramer": framer,
    "custom SignalOverlapAdd": overlap_add,
    "custom SignalStacker": stacker,
    "custom CIRCULAR_BUFFER": circular_buffer,
}
