"""The kinds of networks on which fused tiling was published (Stahl et al., 2023, section 5), at sizes for small parts.

Layers are those of the architectures; sizes are reduced and weights come from a seed, since only shapes matter for
memory. Heads are joined to one output.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from .builders import OPSET, Net

# Inverted residuals of MobileNetV2: expansion, channels, repetitions, stride of the first (Sandler et al., CVPR 2018).
MOBILENET_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2))


def radar(seed: int = 0, opset: int = OPSET) -> onnx.ModelProto:
    """Gestures from range-Doppler maps: two antennas of 32x32 -> 5 gestures."""
    net = Net("radar", (2, 32, 32), seed, opset)
    x = pool(net, net.conv("input", 8, (3, 3)), 4)
    x = pool(net, net.conv(x, 16, (3, 3)), 2)
    x = net.relu(net.dense(net.flatten(x), 16))
    return net.model(net.softmax(net.dense(x, 5)))


def posenet_like(seed: int = 0, opset: int = OPSET) -> onnx.ModelProto:
    """Poses: MobileNetV1 of width 0.5 with an output stride of 16; heat maps, offsets and displacements."""
    net = Net("posenet_like", (3, 128, 128), seed, opset)
    x = net.conv("input", 16, (3, 3), stride=2)
    for channels, stride in [(32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (256, 2), *[(256, 1)] * 5]:
        x = net.separable(x, channels, stride)
    heads = [net.conv(x, channels, (1, 1), relu=False) for channels in (17, 34, 32, 32)]
    return net.model(net.concat(*heads))


def ssdlite_like(seed: int = 0, opset: int = OPSET) -> onnx.ModelProto:
    """Objects: MobileNetV2 of width 0.35 and SSDLite's heads on maps of three sizes, 6 boxes, 21 classes."""
    net = Net("ssdlite_like", (3, 160, 160), seed, opset)
    x, maps = net.conv("input", 16, (3, 3), stride=2), []
    for expansion, channels, repetitions, stride in MOBILENET_V2:
        for i in range(repetitions):
            if channels == 160 and i == 0:
                maps.append(x)
            x = inverted_residual(net, x, expansion, max(8, round(channels * 0.35 / 8) * 8), stride if i == 0 else 1)
    maps.append(x)
    squeezed = net.conv(x, 32, (1, 1))
    maps.append(net.conv(net.conv(squeezed, 32, (3, 3), stride=2, depthwise=True), 64, (1, 1)))
    heads = []
    for source in maps:
        for values in (4, 21):
            between = net.conv(source, net.shapes[source][0], (3, 3), depthwise=True)
            heads.append(net.flatten(net.conv(between, 6 * values, (1, 1), relu=False)))
    return net.model(net.concat(*heads))


def inverted_residual(net: Net, x: str, expansion: int, channels: int, stride: int) -> str:
    """Expand, filter, project; the input is added where shapes allow."""
    inside = net.shapes[x][0] * expansion
    y = net.conv(x, inside, (1, 1)) if expansion > 1 else x
    y = net.conv(y, inside, (3, 3), stride, depthwise=True)
    y = net.conv(y, channels, (1, 1), relu=False)
    return net.sum(x, y) if stride == 1 and net.shapes[x][0] == channels else y


def pool(net: Net, x: str, size: int) -> str:
    """Largest of squares that do not overlap."""
    channels, height, width = net.shapes[x]
    shape = channels, height // size, width // size
    return net.add("MaxPool", [x], shape, kernel_shape=(size, size), strides=(size, size))


PICTURES: dict[str, Callable[..., onnx.ModelProto]] = {
    builder.__name__: builder for builder in (radar, posenet_like, ssdlite_like)
}
