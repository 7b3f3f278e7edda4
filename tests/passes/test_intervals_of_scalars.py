"""Values without dimensions, as reductions to one number leave them."""

from __future__ import annotations

from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.ops.pointwise import attributes
from edgebuild.model.passes.constants import constants


def test_a_function_of_a_quantised_value_without_dimensions() -> None:
    x, y = (Tensor(name, (), "int8", Quant((0.05,), (3,))) for name in "xy")
    op = Op("pointwise", "y", ("x",), ("y",), attributes("leaky_relu", alpha=0.1))
    assert constants(Graph("one", (op,), {"x": x, "y": y}, ("x",), ("y",), "onnx")) == {}
