"""The large networks on which fused tiling was published, by shape: PoseNet and SSDLite (Stahl et al. 2023, section 5).

Weights come from a seed. They are for benches: too large for the tests that take every network.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from .builders import OPSET, Net
from .mobilenet_v2 import BLOCKS, block, relu6

BOXES, CLASSES = 6, 91  # of each pixel of a map; the first map has 3 boxes


def running_example(seed: int = 0, opset: int = OPSET) -> onnx.ModelProto:
    """Stahl 2024, ch. 4: 32x8x1, convolution 6x2 with stride 2 to 32, depthwise 3x3, 1x1 to 64, mean, dense 6."""
    net = Net("running_example", (1, 32, 8), seed, opset)
    x = net.conv("input", 32, (6, 2), stride=2)
    x = net.separable(x, 64)
    return net.model(net.dense(net.flatten(net.average_pool(x)), 6))


def posenet(seed: int = 0, opset: int = OPSET) -> onnx.ModelProto:
    """Poses: MobileNetV1 of width 1.0 at 257x257 with a stride of 32, and heads; 837,264,832 multiply-accumulates."""
    net = Net("posenet", (3, 257, 257), seed, opset)
    x = net.conv("input", 32, (3, 3), stride=2)
    wide = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for channels, stride in wide:
        x = net.separable(x, channels, stride)
    heads = [net.conv(x, channels, (1, 1), relu=False) for channels in (17, 34, 32, 32)]
    return net.model(net.concat(*heads))


def ssdlite_300(seed: int = 0, opset: int = OPSET) -> onnx.ModelProto:
    """Objects: MobileNetV2 at 300x300 and heads on maps of 19, 10, 5, 3, 2 and 1 (Sandler et al. 2018, section 6.2)."""
    net = Net("ssdlite_300", (3, 300, 300), seed, opset)
    x, maps = relu6(net, net.conv("input", 32, (3, 3), stride=2, relu=False)), list[str]()
    for expansion, channels, repeats, stride in BLOCKS:
        for number in range(repeats):
            if channels == 160 and number == 0:
                maps.append(x)
            x = block(net, x, expansion, channels, stride if number == 0 else 1)
    x = relu6(net, net.conv(x, 1280, (1, 1), relu=False))
    maps.append(x)
    for between, channels in ((256, 512), (128, 256), (128, 256), (64, 128)):
        y = relu6(net, net.conv(x, between, (1, 1), relu=False))
        y = relu6(net, net.conv(y, between, (3, 3), stride=2, depthwise=True, relu=False))
        x = relu6(net, net.conv(y, channels, (1, 1), relu=False))
        maps.append(x)
    heads = []
    for number, source in enumerate(maps):
        for values in (4, CLASSES):
            y = relu6(net, net.conv(source, net.shapes[source][0], (3, 3), depthwise=True, relu=False))
            y = net.conv(y, (BOXES if number else 3) * values, (1, 1), relu=False)
            heads.append(net.flatten(y))
    return net.model(net.concat(*heads))


PAPERS: dict[str, Callable[..., onnx.ModelProto]] = {"posenet": posenet, "ssdlite_300": ssdlite_300}
