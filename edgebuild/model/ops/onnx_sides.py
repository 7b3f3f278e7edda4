"""Windows of ONNX nodes: strides, dilations and padding as attributes, by the operators' documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .spatial import Pad, same_pad


def _plane(node: Any, name: str, default: int, dims: int, ends: int = 1) -> tuple[int, ...]:
    """An attribute that lists a number for each spatial dimension, as of two dimensions: one is a row of height 1."""
    found = listed(node, name, default, dims, ends)
    return tuple(found) if dims == 2 else tuple(n for end in found for n in (default, end))


def listed(node: Any, name: str, default: int, dims: int, ends: int = 1) -> list[int]:
    """An attribute that lists a number for each end of each spatial dimension."""
    found = [int(n) for n in node.attr(name, [default] * dims * ends)]
    if len(found) != dims * ends:
        raise node.error(f"{name} {found} for {dims} spatial dimensions", f"give {dims * ends} numbers")
    return found


def _dims(node: Any, window: Sequence[int]) -> int:
    """Of the node's window, which weights have, too, where there are any."""
    said = tuple(node.attr("kernel_shape", window))
    if said != tuple(window):
        raise node.error(f"kernel_shape {list(said)} for weights of {list(window)}", "give both the same size")
    if len(window) not in (1, 2):
        raise node.error(f"{len(window)}-D window", "1-D and 2-D windows are supported")
    return len(window)


def onnx_window(node: Any, window: Sequence[int]) -> dict[str, Any]:
    """Stride, dilation and padding of a windowed ONNX node as attributes (auto_pad resolved)."""
    dims = _dims(node, window)
    stride, dilation = _plane(node, "strides", 1, dims), _plane(node, "dilations", 1, dims)
    auto, size, window = node.attr("auto_pad", "NOTSET"), node.image_size(), (1, *window)[-2:]
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        top, left, bottom, right = same_pad(size, window, stride, dilation)
        pad = (top, left, bottom, right) if auto == "SAME_UPPER" else (bottom, right, top, left)
    else:
        top, left, bottom, right = _plane(node, "pads", 0, dims, 2) if auto == "NOTSET" else (0, 0, 0, 0)
        pad = (top, left, bottom, right)
    return {"stride": stride, "dilation": dilation, "pad": pad, "clamp": (None, None)}


def onnx_spread(node: Any, window: Sequence[int]) -> dict[str, Any]:
    """Stride, dilation, padding and output size of a ConvTranspose node, by its specification."""
    dims = _dims(node, window)
    stride, dilation = _plane(node, "strides", 1, dims), _plane(node, "dilations", 1, dims)
    sizes = zip(node.image_size()[-dims:], window, stride[-dims:], dilation[-dims:], strict=True)
    found = [spread_size(node, d, *side, dims) for d, side in enumerate(sizes)]
    pad, size = zip(*[(0, 1)] * (2 - dims), *found, strict=True)
    return {"stride": stride, "dilation": dilation, "pad": pad, "size": size}


def spread_size(node: Any, d: int, size: int, taps: int, stride: int, dilation: int, dims: int) -> tuple[int, int]:
    """Padding before and size of the result of a ConvTranspose node along dimension d of `dims`."""
    auto, wanted = node.attr("auto_pad", "NOTSET"), node.attr("output_shape", [])[-dims:]
    full = stride * (size - 1) + listed(node, "output_padding", 0, dims)[d] + (taps - 1) * dilation + 1
    if not wanted and not auto.startswith("SAME"):
        pads = listed(node, "pads", 0, dims, 2) if auto == "NOTSET" else [0] * 2 * dims
        return pads[d], full - pads[d] - pads[dims + d]
    out = wanted[d] if wanted else size * stride
    spare = max(0, full - out)
    return (spare // 2 if auto == "SAME_UPPER" else spare - spare // 2), out


def ceil_pad(size: Sequence[int], window: Sequence[int], attrs: dict[str, Any]) -> Pad:
    """Enough padding at the end that the floor rule gives ONNX's ceil_mode output size."""
    stride, dilation, pad = (attrs[name] for name in ("stride", "dilation", "pad"))
    out = list(pad)
    for i in range(2):
        room = size[i] + pad[i] + pad[i + 2] - (window[i] - 1) * dilation[i] - 1
        steps = -(-room // stride[i])
        if steps * stride[i] >= size[i] + pad[i]:  # the last window would start in the padding
            steps -= 1
        out[i + 2] += max(0, steps * stride[i] - room)
    return out[0], out[1], out[2], out[3]
