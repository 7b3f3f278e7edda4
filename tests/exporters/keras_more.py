"""More Keras models through tf2onnx: sizes that the graph computes, layers that run backwards, blocks by parts."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from .keras import Layers


def squeeze_excite() -> onnx.ModelProto:
    """MobileNetV3: hard swish by Add, Clip and Mul; squeeze and excite over ReduceMean and 1 x 1 convolutions."""
    net = Layers()
    x = net.first(net.input("input_1", ("unk__7", 12, 12, 3)))

    def hard_sigmoid(y: str) -> str:
        y = net.op("Clip", net.op("Add", y, net.stored(3.0)), net.stored(0.0), net.stored(6.0))
        return net.op("Mul", y, net.stored(1 / 6))

    x = net.op("Conv", x, net.weight(8, 3, 3, 3), net.weight(8, fan=20), strides=[2, 2], auto_pad="SAME_UPPER")
    x = net.op("Mul", x, hard_sigmoid(x))
    x = net.op("Conv", x, net.weight(8, 1, 5, 5), net.weight(8, fan=20), group=8, auto_pad="SAME_UPPER")
    y = net.op("ReduceMean", x, axes=[2, 3], keepdims=1)
    y = net.op("Relu", net.op("Conv", y, net.weight(4, 8, 1, 1), net.weight(4, fan=20)))
    x = net.op("Mul", x, hard_sigmoid(net.op("Conv", y, net.weight(8, 4, 1, 1), net.weight(8, fan=20))))
    x = net.op("Reshape", net.op("GlobalAveragePool", x), net.stored([-1, 8], np.int64))
    return net.done(net.softmax(net.projected(x, 8, 4)))


def autoencoder() -> onnx.ModelProto:
    """Conv2DTranspose whose result is sliced to a size computed from Shape, Slice, Mul, Concat and Cast."""
    net = Layers()
    image = net.input("input_1", (1, 9, 7, 2))
    x = net.op("Conv", net.first(image), net.weight(6, 2, 3, 3), net.weight(6, fan=9), strides=[2, 2],
               auto_pad="SAME_UPPER")  # fmt: skip
    x = net.op("LeakyRelu", x, alpha=0.2)
    shape = net.op("Cast", net.op("Shape", net.last(x)), to=TensorProto.INT32)
    rows, columns = (
        net.op("Mul", net.op("Slice", shape, *(net.stored([n], np.int64) for n in (i, i + 1, 0))),
               net.stored([2], np.int32)) for i in (1, 2)
    )  # fmt: skip
    up = net.op("ConvTranspose", x, net.weight(6, 3, 3, 3, fan=54), strides=[2, 2], pads=[0, 0, 0, 0])
    ends = net.op("Cast", net.op("Concat", rows, columns, axis=0), to=TensorProto.INT64)
    up = net.op("Slice", up, net.stored([0, 0], np.int64), ends, net.stored([2, 3], np.int64))
    return net.done(net.op("Sigmoid", net.last(net.op("Add", up, net.weight(1, 3, 1, 1, fan=20)))))


def bidirectional() -> onnx.ModelProto:
    """Bidirectional(GRU): the second one behind a ReverseSequence and before another, joined by Concat."""
    net = Layers()
    x = net.op("Transpose", net.input("sequence", (1, 7, 4)), perm=[1, 0, 2])
    ways = []
    for backwards in (False, True):
        lengths = net.stored([7], np.int64)
        y = net.op("ReverseSequence", x, lengths, time_axis=0, batch_axis=1) if backwards else x
        weights, bias = [net.weight(1, 15, n, fan=n) for n in (4, 5)], net.weight(1, 30, fan=20)
        y, _ = net.ops("GRU", y, *weights, bias, count=2, hidden_size=5, linear_before_reset=1)
        y = net.op("Squeeze", y, net.stored([1], np.int64))
        ways.append(net.op("ReverseSequence", y, lengths, time_axis=0, batch_axis=1) if backwards else y)
    y = net.op("Transpose", net.op("Concat", *ways, axis=2), perm=[1, 0, 2])
    return net.done(net.softmax(net.projected(y, 10, 3)))


def time_distributed() -> onnx.ModelProto:
    """TimeDistributed(Dense), GlobalMaxPooling1D, and a Reshape to a shape that is put together from Shape."""
    net = Layers()
    x = net.input("frames", ("unk__3", 5, 6, 4))
    shape = net.op("Cast", net.op("Shape", x), to=TensorProto.INT32)
    first = net.op("Slice", shape, *(net.stored([n], np.int64) for n in (0, 2, 0)))
    target = net.op("Cast", net.op("Concat", first, net.stored([24], np.int32), axis=0), to=TensorProto.INT64)
    y = net.op("Relu", net.projected(net.op("Reshape", x, target), 24, 8))
    y = net.op("ReduceMax", y, axes=[1], keepdims=0)
    return net.done(net.op("Sigmoid", net.projected(y, 8, 2)))


def layer_norm() -> onnx.ModelProto:
    """LayerNormalization as a fused batch normalisation of a view: Reshape, statistics by parts, Reshape back."""
    net = Layers()
    x = net.projected(net.input("tokens", (1, 5, 6)), 6, 8)
    view = net.op("Reshape", x, net.stored([1, 5, 8, 1], np.int64))
    mean = net.op("ReduceMean", view, axes=[2, 3], keepdims=1)
    centred = net.op("Sub", view, mean)
    variance = net.op("ReduceMean", net.op("Mul", centred, centred), axes=[2, 3], keepdims=1)
    y = net.op("Div", centred, net.op("Sqrt", net.op("Add", variance, net.stored(1e-3))))
    y = net.op("Reshape", y, net.stored([1, 5, 8], np.int64))
    y = net.op("Add", net.op("Mul", y, net.spread(8)), net.weight(8, fan=20))
    return net.done(net.softmax(net.projected(net.op("ReduceMean", y, axes=[1], keepdims=0), 8, 3)))


def upscaler() -> onnx.ModelProto:
    """depth_to_space in columns first order, UpSampling2D(bilinear), a skip from the input, clipped to 0 and 255."""
    net = Layers()
    image = net.input("low", (1, 6, 8, 1))
    x = net.op("Relu", net.op("Conv", net.first(image), net.weight(8, 1, 5, 5), net.weight(8, fan=9),
                              auto_pad="SAME_UPPER"))  # fmt: skip
    x = net.op("Conv", x, net.weight(4, 8, 3, 3), net.weight(4, fan=9), auto_pad="SAME_UPPER")
    x = net.last(net.op("DepthToSpace", x, blocksize=2, mode="DCR"))
    skip = net.op("Resize", net.first(image), "", net.stored([1.0, 1.0, 2.0, 2.0]), mode="linear",
                  coordinate_transformation_mode="half_pixel")  # fmt: skip
    y = net.op("Add", x, net.last(skip))
    return net.done(net.op("Max", net.op("Min", y, net.stored(255.0)), net.stored(0.0)))


NETWORKS = {
    f"keras {f.__name__}": f
    for f in (squeeze_excite, autoencoder, bidirectional, time_distributed, layer_norm, upscaler)
}
