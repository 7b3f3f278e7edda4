"""Train the sample's digit classifier and write what the sample is built from.

    python train.py            # half a minute; see README.md for the environment

writes, beside the sample: `digits.onnx` (int8, QDQ) and `images.h` (ten test images as the model's input bytes);
beside this file: `accuracy.json`, and for `edgebuild quantize` `float.onnx` and the test images as `samples.npz` and
`labels.npy`. The data are the 8x8 grey scans of handwritten digits that come with scikit-learn.
The test part of the split takes no part in training, in calibration, or in any choice made here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import affine_grid, cross_entropy, grid_sample
from torch.nn.utils.fusion import fuse_conv_bn_eval

SEED = 1
TEST_SIZE = 450
EPOCHS = 120
BATCH = 64
OPSET = 17
HERE = Path(__file__).resolve().parent
SAMPLE = HERE.parent

Split = tuple[np.ndarray, np.ndarray]  # images float32 [N, 1, 8, 8] in 0..1, labels int64 [N]


def load() -> tuple[Split, Split]:
    """The data set as (train, test), every digit with the same share in both."""
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    train_x, test_x, train_y, test_y = train_test_split(
        images, digits.target.astype(np.int64), test_size=TEST_SIZE, stratify=digits.target, random_state=SEED
    )
    return (train_x, train_y), (test_x, test_y)


# The network -----------------------------------------------------------------------------------------------------


def conv(inputs: int, outputs: int, kernel: int, groups: int = 1) -> nn.Sequential:
    """A convolution that keeps the image's size, with its batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)
    )


class Digits(nn.Module):
    """Image [N, 1, 8, 8] -> logits [N, 10]. `to_onnx` draws the same graph; keep the two side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(1, 12, 3)
        self.depthwise_1 = conv(12, 12, 3, groups=12)
        self.pointwise_1 = conv(12, 20, 1)
        self.depthwise_2 = conv(20, 20, 3, groups=20)
        self.pointwise_2 = conv(20, 20, 1)
        self.head = conv(20, 20, 3)
        self.classifier = nn.Linear(20, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = self.depthwise_1(x).relu()
        x = self.pointwise_1(x).relu()
        x = nn.functional.max_pool2d(x, 2)
        x = (x + self.pointwise_2(self.depthwise_2(x).relu())).relu()
        x = self.head(x).relu()
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits


def train(model: Digits, data: Split) -> None:
    """Fit `model` to `data` and leave it in evaluation mode."""
    images, labels = map(torch.from_numpy, data)
    steps = EPOCHS * (len(images) // BATCH)
    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=1e-2, total_steps=steps)
    model.train()
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(images)).split(BATCH):
            if len(batch) < BATCH:
                continue
            loss = cross_entropy(model(distort(images[batch])), labels[batch], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            rate.step()
    model.eval()


def distort(images: Tensor) -> Tensor:
    """Each image turned, sheared, scaled and shifted a little: 1347 images alone are learnt by heart."""
    change = 0.1 * torch.randn(len(images), 2, 3)
    return grid_sample(images, affine_grid(torch.eye(2, 3) + change, list(images.shape), False), align_corners=False)


# Export ----------------------------------------------------------------------------------------------------------


def to_onnx(model: Digits) -> onnx.ModelProto:
    """The trained network as a float graph of one image, batch normalisation folded into the convolutions."""
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def add(op: str, name: str, inputs: list[str], layer: nn.Module | None = None, **attributes: Any) -> str:
        for role, value in layer.named_parameters() if layer else ():
            inputs = [*inputs, f"{name}.{role}"]
            constants.append(numpy_helper.from_array(value.detach().numpy(), inputs[-1]))
        nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def add_conv(name: str, x: str, relu: bool = True) -> str:
        layer = fuse_conv_bn_eval(*getattr(model, name))
        kernel, pad = list(layer.kernel_size), list(layer.padding)
        x = add("Conv", name, [x], layer, kernel_shape=kernel, pads=pad + pad, group=layer.groups)
        return add("Relu", f"{name}_relu", [x]) if relu else x

    x = add_conv("stem", "image")
    x = add_conv("depthwise_1", x)
    x = add_conv("pointwise_1", x)
    shortcut = add("MaxPool", "pool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = add_conv("depthwise_2", shortcut)
    x = add_conv("pointwise_2", x, relu=False)
    x = add("Add", "residual", [shortcut, x])
    x = add("Relu", "residual_relu", [x])
    x = add_conv("head", x)
    x = add("GlobalAveragePool", "mean", [x])
    x = add("Flatten", "flatten", [x])
    x = add("Gemm", "logits", [x], model.classifier, transB=1)
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, 10])],
        constants,
    )
    exported = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    return onnx.shape_inference.infer_shapes(exported, strict_mode=True)


class Calibration(CalibrationDataReader):  # type: ignore[misc]
    """One image at a time, as the quantiser asks for them."""

    def __init__(self, images: np.ndarray) -> None:
        self.feeds: Iterator[dict[str, np.ndarray]] = iter([{"image": image[None]} for image in images])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


def quantise(model: onnx.ModelProto, images: np.ndarray, path: Path) -> None:
    """Write `model` as int8 QDQ, weights per channel, ranges taken from `images`."""
    quantize_static(
        onnx.ModelProto.FromString(model.SerializeToString()),  # a copy: the quantiser moves the weights of its input
        path,
        Calibration(images),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
    )
    quantised = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True)
    quantised.producer_name, quantised.producer_version = "edgebuild digits sample", ""
    onnx.checker.check_model(quantised, full_check=True)
    path.write_bytes(quantised.SerializeToString(deterministic=True))


def accuracy(model: onnx.ModelProto, data: Split) -> float:
    """The share of `data` that onnxruntime classifies rightly with `model`."""
    return float(np.mean(predict(model, data[0]) == data[1]))


def predict(model: onnx.ModelProto, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.array([session.run(None, {"image": image[None]})[0].argmax() for image in images])


# The images of the sample ----------------------------------------------------------------------------------------


def input_quantisation(model: onnx.ModelProto) -> tuple[np.float32, int]:
    """Scale and zero point with which `model` quantises its input."""
    node = next(n for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == "image")
    constants = {c.name: numpy_helper.to_array(c) for c in model.graph.initializer}
    return np.float32(constants[node.input[1]]), int(constants[node.input[2]])


def images_header(model: onnx.ModelProto, data: Split) -> str:
    """C text: the first image of each digit in `data` as input bytes of `model`, whatever it says of them."""
    scale, zero = input_quantisation(model)
    images, labels = data
    first = [int(np.argmax(labels == digit)) for digit in range(10)]
    quantised = np.clip(np.rint(images[first].reshape(10, 8, 8) / scale) + zero, -128, 127).astype(np.int8)
    lines: list[str] = []
    for digit, image in enumerate(quantised):
        lines += [f"    {{ /* {digit} */", *(" " * 8 + "".join(f"{v:4d}," for v in row) for row in image), "    },"]
    return (
        "/* SPDX-License-Identifier: 0BSD AND CC-BY-4.0\n"
        " * Ten test images, 8x8, as the input bytes of digits.onnx: the first of each digit in the test split.\n"
        f" * byte = round(grey / {scale:.9g}) {zero:+d}, grey from 0 (paper) to 1 (ink).\n"
        " * Written by training/train.py. The pixels are from E. Alpaydin and C. Kaynak, Optical Recognition of\n"
        " * Handwritten Digits, UCI Machine Learning Repository, CC BY 4.0; see training/README.md. */\n"
        "#ifndef DIGITS_IMAGES_H\n#define DIGITS_IMAGES_H\n\n#include <stdint.h>\n\n"
        "static const int8_t digits_images[10][64] = {\n" + "\n".join(lines) + "\n};\n\n"
        "static const uint8_t digits_labels[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};\n\n#endif\n"
    )


def main() -> None:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # sums in one order, hence the same weights from one run to the next
    torch.use_deterministic_algorithms(True)
    training, test = load()
    model = Digits()
    train(model, training)

    exported = to_onnx(model)
    (HERE / "float.onnx").write_bytes(exported.SerializeToString(deterministic=True))
    np.savez_compressed(HERE / "samples.npz", image=test[0])
    np.save(HERE / "labels.npy", test[1].astype(np.uint8))
    quantise(exported, training[0], SAMPLE / "digits.onnx")
    quantised = onnx.load(SAMPLE / "digits.onnx")
    (SAMPLE / "images.h").write_text(images_header(quantised, test), newline="\n")
    result = {
        "float": round(accuracy(exported, test), 4),
        "int8": round(accuracy(quantised, test), 4),
        "test_images": len(test[1]),
        "train_images": len(training[1]),
    }
    (HERE / "accuracy.json").write_text(json.dumps(result, indent=2) + "\n", newline="\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
