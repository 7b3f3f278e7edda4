"""ConvTranspose in three dimensions, Col2Im, places of MaxPool and MaxUnpool against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.formats import read_model
from edgebuild.model.verify import verify
from tests.exporters.writer import Net, quantised
from tests.importers.test_windows import Case, check, model

SPREAD: dict[str, Case] = {
    "doubled": ("ConvTranspose", (1, 4, 3, 4, 5), [(4, 3, 2, 2, 2), (3,)], {"strides": [2, 2, 2]}),
    "overlapping": (
        "ConvTranspose", (2, 4, 3, 4, 2), [(4, 2, 3, 4, 3), (4,)],
        {"strides": [2, 3, 1], "pads": [1, 0, 1, 0, 2, 1], "group": 2, "output_padding": [1, 2, 0]},
    ),
    "gaps": ("ConvTranspose", (1, 2, 3, 2, 3), [(2, 2, 2, 1, 2)], {"strides": [3, 2, 1], "dilations": [2, 1, 2]}),
    "of a size": (
        "ConvTranspose", (1, 2, 3, 3, 3), [(2, 2, 3, 3, 3)], {"strides": [2, 2, 2], "output_shape": [6, 5, 6]}
    ),
    "same": ("ConvTranspose", (1, 2, 3, 2, 2), [(2, 2, 4, 3, 1)], {"strides": [2, 1, 2], "auto_pad": "SAME_UPPER"}),
}  # fmt: skip


@pytest.mark.parametrize("name", SPREAD)
def test_transposed_in_three_dimensions(name: str, tmp_path: Path) -> None:
    check(model(SPREAD[name], False), tmp_path)


@pytest.mark.needs("gcc")
def test_quantised_weights_stay_so(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    onnx.save(quantised(model(SPREAD["doubled"], False)), file)
    assert verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})))["equal"]


FOLDS: list[tuple[list[int], list[int], int, dict[str, Any]]] = [
    ([5, 6], [2, 3], 16, {}),
    ([7, 6], [2, 2], 9, {"strides": [3, 2], "pads": [1, 0, 0, 0]}),
    ([6, 7], [2, 3], 8, {"dilations": [2, 2], "pads": [0, 0, 0, 0], "strides": [1, 2]}),
]


@pytest.mark.parametrize(("image", "block", "places", "attributes"), FOLDS)
def test_columns_to_image(
    image: list[int], block: list[int], places: int, attributes: dict[str, Any], tmp_path: Path
) -> None:
    net = Net("n{number}", 18)
    x = net.input("x", (2, 3 * block[0] * block[1], places))
    y = net.op("Col2Im", x, net.longs(*image), net.longs(*block), **attributes)
    check(net.done(y), tmp_path)


def largest(shape: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    """Places of the largest of whole numbers, of which several are equal."""
    net = Net("n{number}", 17)
    x = net.input("x", shape)
    return net.done(net.ops("MaxPool", net.op("Round", x), count=2, **attributes)[1])


POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 6, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((1, 2, 7, 6), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    ((1, 2, 7, 6), {"kernel_shape": [2, 3], "dilations": [3, 2]}),
    ((1, 2, 6, 5), {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "storage_order": 1}),
    ((2, 2, 9), {"kernel_shape": [3], "strides": [2]}),
    ((1, 2, 4, 5), {"kernel_shape": [1, 1]}),
]


@pytest.mark.parametrize(("shape", "attributes"), POOLS)
def test_places_of_the_largest(shape: tuple[int, ...], attributes: dict[str, Any], tmp_path: Path) -> None:
    check(largest(shape, **attributes), tmp_path)


def segnet(seed: int = 0) -> onnx.ModelProto:
    net = Net("n{number}", 17, seed)
    y = net.op("Relu", net.conv(net.input("x", (1, 3, 8, 10)), 4, 3, (3, 3), pads=[1, 1, 1, 1]))
    y, places = net.ops("MaxPool", y, count=2, kernel_shape=[2, 2], strides=[2, 2])
    y = net.op("MaxUnpool", net.conv(y, 4, 4, (1, 1)), places, kernel_shape=[2, 2], strides=[2, 2])
    return net.done(net.conv(y, 2, 4, (3, 3), pads=[1, 1, 1, 1]))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("tile", ["off", "rolling", "fdt", "ffmt"])
@pytest.mark.parametrize("form", ["float", "qdq"])
def test_elements_go_back_to_their_places(form: str, tile: str, tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    onnx.save(segnet() if form == "float" else quantised(segnet()), file)
    artifacts = compile_model(model_request(file, "model", "host", {"tile": tile}))
    assert verify(file, load_target("host"), artifacts)["equal"]


def test_places_that_the_standard_and_onnxruntime_count_otherwise(tmp_path: Path) -> None:
    net = Net("n{number}", 17)
    x, places = net.input("x", (1, 1, 2, 2)), net.input("i", (1, 1, 2, 2), onnx.TensorProto.INT64)
    shape = {"kernel_shape": [2, 2], "strides": [2, 2]}
    onnx.save(net.done(net.op("MaxUnpool", x, places, net.longs(1, 1, 5, 5), **shape)), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=r"output_shape \[1, 1, 5, 5\] where the window gives \[1, 1, 4, 4\]"):
        read_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_constant_places_of_each_of_a_batch(batch: int, tmp_path: Path) -> None:
    net = Net("n{number}", 17)
    index = net.value(net.rng.integers(-2, 2, (2, 3, 1)), onnx.helper.tensor_dtype_to_np_dtype(7))
    check(net.done(net.op("GatherND", net.input("x", (2, 3, 4)), index, batch_dims=batch)), tmp_path)
