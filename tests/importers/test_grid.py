"""GridSample and AffineGrid against onnxruntime."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.exporters.writer import Net

WAYS = list(product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1)))


def sampled(size: tuple[int, ...], constant: str) -> onnx.ModelProto:
    """All ways to sample; the image or the places may be a constant. Places reach far beyond the image."""
    net, places = Net("n{number}", 20), (size[0], 3, 7, 2)
    image = net.stored(net.rng.normal(0, 1, size)) if constant == "image" else net.input("x", size)
    odd = np.where(net.rng.random(places) < 0.2, net.rng.choice([-1, 1, 0, 0.5, -9.7, 40.3], places), 0)
    grid = net.stored(odd + net.rng.uniform(-1.5, 1.5, places)) if constant == "grid" else net.input("g", places)
    return net.done(*(
        net.op("GridSample", image, grid, mode=mode, padding_mode=padding, align_corners=corners)
        for mode, padding, corners in WAYS
    ))  # fmt: skip


def transformer(sides: tuple[int, ...], constant: bool) -> onnx.ModelProto:
    """Spatial transformers of one image, by matrices that are computed or constant."""
    net, rank = Net("n{number}", 20), len(sides)
    shape = (1, rank, rank + 1)
    theta = net.value(net.rng.normal(0, 1, shape)) if constant else net.input("t", shape)
    size = net.value([1, 2, *sides], np.int64)
    grids = [net.op("AffineGrid", theta, size, align_corners=corners) for corners in (0, 1)]
    x = net.input("x", (1, 2, *sides)) if rank == 2 else ""
    return net.done(*(net.op("GridSample", x, g) if x else net.op("Tanh", g) for g in grids))


NETWORKS = {
    **{f"sampled, {c or 'computed'}": lambda c=c: sampled((2, 3, 4, 5), c) for c in ("", "image", "grid")},
    "one pixel": lambda: sampled((1, 2, 1, 3), "grid"),
    **{f"{len(s)} sides, known {k}": lambda s=s, k=k: transformer(s, k) for s in ((3, 4), (2, 3, 4)) for k in (0, 1)
       if len(s) == 2 or not k},
}  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", NETWORKS)
def test_equal_to_onnxruntime(name: str, tmp_path: Path) -> None:
    onnx.save(NETWORKS[name](), tmp_path / "m.onnx")
    artifacts = compile_model(model_request(tmp_path / "m.onnx", "model", "host", {}))
    assert verify(tmp_path / "m.onnx", load_target("host"), artifacts)["equal"]


def test_what_is_not_supported_is_refused(tmp_path: Path) -> None:
    net = Net("n{number}", 20)
    x, grid = net.input("x", (1, 2, 3, 4)), net.input("g", (1, 2, 2, 2))
    onnx.save(net.done(net.op("GridSample", x, grid, padding_mode="wrapped")), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="padding wrapped"):
        compile_model(model_request(tmp_path / "m.onnx", "model", "host", {}))
