"""Layer lists of three networks of the kind that the literature measures, as shapes of convolutions."""

from __future__ import annotations

from collections.abc import Callable

from edgebuild.energy.cost import ConvShape, Work, convolution, depthwise, pointwise
from edgebuild.energy.tree import Timing

Kernel = Callable[[str, ConvShape, Timing], tuple[Work, ...]]
Network = list[tuple[str, Kernel, ConvShape]]


def mobilenet_v2(side: int, blocks: list[tuple[int, int, int, int]], stem: int, head: int) -> Network:
    """Inverted residual blocks (expansion, channels, repeats, stride) behind a 3x3 stem of stride 2."""
    side //= 2
    layers: Network = [("stem", convolution, ConvShape(side, side, 3, stem, 3, 2))]
    inputs = stem
    for b, (expansion, channels, repeats, first_stride) in enumerate(blocks):
        for r in range(repeats):
            stride, wide, name = first_stride if r == 0 else 1, inputs * expansion, f"block{b}_{r}"
            if expansion > 1:
                layers.append((name + "_expand", pointwise, ConvShape(side, side, inputs, wide)))
            side //= stride
            layers.append((name + "_depthwise", depthwise, ConvShape(side, side, wide, wide, 3, stride)))
            layers.append((name + "_project", pointwise, ConvShape(side, side, wide, channels)))
            inputs = channels
    if head:
        layers.append(("head", pointwise, ConvShape(side, side, inputs, head)))
    return layers


def mobilenet_v1(side: int, width: float) -> Network:
    """The person-detection network of TensorFlow Lite Micro at width 0.25: grey image, depthwise separable blocks."""
    side //= 2
    layers: Network = [("stem", convolution, ConvShape(side, side, 1, int(32 * width), 3, 2))]
    inputs = int(32 * width)
    rows = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for b, (channels, stride) in enumerate(rows):
        side //= stride
        outputs = int(channels * width)
        layers.append((f"block{b}_depthwise", depthwise, ConvShape(side, side, inputs, inputs, 3, stride)))
        layers.append((f"block{b}_pointwise", pointwise, ConvShape(side, side, inputs, outputs)))
        inputs = outputs
    return layers


NETWORKS: dict[str, Network] = {
    "MobileNetV2-like": mobilenet_v2(
        96, [(1, 8, 1, 1), (6, 8, 2, 2), (6, 16, 3, 2), (6, 24, 4, 2), (6, 32, 3, 1), (6, 56, 3, 2), (6, 112, 1, 1)],
        stem=16, head=448,
    ),
    "VWW-like": mobilenet_v2(
        80, [(1, 8, 1, 1), (4, 16, 2, 2), (5, 24, 3, 2), (5, 40, 3, 2), (5, 48, 2, 1), (5, 96, 2, 2)],
        stem=16, head=0,
    ),
    "person-detection-like": mobilenet_v1(96, 0.25),
}  # fmt: skip
