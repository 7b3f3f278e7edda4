"""DFT and STFT of a length that the file tells: real lines of 2^n by the kernel for these, others by a matrix.

A matrix has a row for each number of a line, and the real and imaginary parts of each frequency side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir import Array
from ..compose import moving
from .onnx_node import OnnxNode

LONGEST = 2048  # of a line whose matrix is stored
OPEN = (None, None)


def _number(node: OnnxNode, position: int, what: str) -> int | None:
    if position >= len(node.inputs) or not node.inputs[position]:
        return None
    return int(np.ravel(np.asarray(node.constant(position, what).data))[0])


def dft(node: OnnxNode) -> None:
    x, length = node.tensor(0), _number(node, 1, "dft_length")
    axis = node.attr("axis", 1) if node.opset < 20 else _number(node, 2, "axis")
    rank, back, half = len(x.shape), bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    axis = rank - 2 if axis is None else axis % rank
    if axis == rank - 1 or x.shape[-1] not in (1, 2) or (half and back == (x.shape[-1] == 1)):
        raise node.error(f"axis {axis} of {x.shape}, inverse {back}, onesided {half}",
                         "values end in 1 or 2 parts; onesided: real ones, inverse: complex ones")  # fmt: skip
    size = x.shape[axis]
    length = length or (2 * (size - 1) if half and back else size)
    if half and back and size != length // 2 + 1:
        raise node.error(f"{size} frequencies for a length of {length}", f"{length // 2 + 1} are expected")
    order = (*(d for d in range(rank - 1) if d != axis), axis, rank - 1)
    lines = node.turned(x.name, order)
    lead = tuple(x.shape[d] for d in order[:-2])
    found = _transformed(node, lines, (*lead, size, x.shape[-1]), length, back, half)
    shape = node.builder.tensors[found].shape
    turned = tuple(order.index(d) for d in range(rank))
    if turned == tuple(range(rank)):
        node.emit("reshape", [found], shape=shape)
    else:
        node.emit("transpose", [found], perm=turned)


def stft(node: OnnxNode) -> None:
    """Frames of a signal, times a window."""
    x, step = node.tensor(0), _number(node, 1, "frame_step")
    window = np.ravel(node.real(node.constant(2, "window"))) if len(node.inputs) > 2 and node.inputs[2] else None
    length = _number(node, 3, "frame_length") or (window.size if window is not None else x.shape[1])
    parts = x.shape[2] if len(x.shape) == 3 else 1
    half = bool(node.attr("onesided", 1))
    sizes = window is None or window.size == length
    if len(x.shape) not in (2, 3) or parts > 2 or (half and parts == 2) or not sizes or not step or step < 1:
        raise node.error(f"a signal of {x.shape}, frames of {length} every {step}",
                         "N x length x 1 or 2; onesided is for real ones; a window is as long as a frame")  # fmt: skip
    if not 1 <= length <= x.shape[1]:
        raise node.error(f"frames of {length} in a signal of {x.shape[1]}", "a frame is not longer than the signal")
    count = (x.shape[1] - length) // step + 1
    places = np.add.outer(np.arange(count) * step, np.arange(length)).ravel()
    signal = node.reshaped(x.name, (*x.shape[:2], parts))
    index = moving((range(x.shape[0]), tuple(int(p) for p in places), range(parts)), node.builder.tensors[signal])
    taken = node.inner("take", [signal], index=index) if any(index) else signal
    frames = node.reshaped(taken, (x.shape[0], count, length, parts))
    if window is not None:
        weights = node.array(np.float32(window).reshape(length, 1))
        frames = node.inner("mul", [frames, weights], clamp=OPEN)
    found = _transformed(node, frames, (x.shape[0], count, length, parts), length, False, half)
    node.emit("reshape", [found], shape=node.builder.tensors[found].shape)


def _transformed(node: OnnxNode, x: str, shape: tuple[int, ...], length: int, back: bool, half: bool) -> str:
    """... x lines x parts as ... x frequencies x 2; the inverse of half of them as ... x length x 1."""
    *lead, size, parts = shape
    if node.builder.tensors[x].dtype != "float32":
        raise node.error(f"values of {node.builder.tensors[x].dtype}", "supported: float32")
    if half and 4 <= length <= 1 << 14 and not length & (length - 1) and size <= length:
        found = node.inner("irfft" if back else "rfft", [node.reshaped(x, (*lead, size * parts))], length=length)
        return node.reshaped(found, (*lead, length, 1) if back else (*lead, length // 2 + 1, 2))
    if length > LONGEST or length < 1:
        hint = f"at most {LONGEST}, but for real lines of a power of two onesided"
        raise node.error(f"a length of {length}", hint)
    results = 1 if half and back else 2
    count = length // 2 + 1 if half else length
    matrix = _real_matrix(length) if results == 1 else _matrix(size, parts, length, back, count)
    flat = node.reshaped(x, (int(np.prod(lead)), size * parts))
    found = node.inner("dense", [flat, node.array(np.ascontiguousarray(matrix.T))], clamp=OPEN)
    return node.reshaped(found, (*lead, matrix.shape[1] // results, results))


def _matrix(size: int, parts: int, length: int, back: bool, count: int) -> Array:
    """size * parts x count * 2. Numbers behind `length` do not count."""
    turns = np.outer(np.arange(size), np.arange(count)) % length * (2 * np.pi / length) * (1 if back else -1)
    cosine, sine = (f(turns) * (np.arange(size) < length)[:, None] / (length if back else 1) for f in (np.cos, np.sin))
    rows: list[Any] = [np.stack([cosine, sine], axis=-1), np.stack([-sine, cosine], axis=-1)][:parts]
    return np.stack(rows, axis=1).reshape(size * parts, count * 2).astype(np.float32)


def _real_matrix(length: int) -> Array:
    """(length // 2 + 1) * 2 x length: frequencies count twice but those that are their own conjugates, 0 and half."""
    matrix = _matrix(length, 2, length, True, length)[: (length // 2 + 1) * 2, ::2].reshape(-1, 2, length).copy()
    matrix[1 : (length + 1) // 2] *= 2
    return matrix.reshape(-1, length)


READERS = {"DFT": dft, "STFT": stft}
