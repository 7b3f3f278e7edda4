"""Lines of the generated C fit into 120 columns, however long the names of the model's layers are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgebuild.base.request import ModelRequest
from edgebuild.base.templates import COLUMNS, fitted, remark
from edgebuild.model.compile import compile_model

LONG = "/backbone/" + "stage_with_a_long_name/" * 12


def named_at_length(blank: bool) -> bytes:
    """Three convolutions whose names are longer than a line. `blank`: the names have blanks."""
    stem = LONG.replace("/", " ") if blank else LONG
    nodes, weights, rng = [], [], np.random.default_rng(1)
    for i in range(3):
        weights.append(numpy_helper.from_array(rng.normal(size=(4, 4, 3, 3)).astype(np.float32), f"w{i}"))
        names = [f"{stem}{i}" if i else "x", f"w{i}"], [f"{stem}{i + 1}"]
        nodes.append(helper.make_node("Conv", *names, name=f"{stem}{i + 1}", pads=[1, 1, 1, 1]))
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (1, 4, 16, 16)) for n in ("x", f"{stem}3"))
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("options", [{}, {"tile": "rolling"}, {"stream_input": "rows"}, {"map": "auto"}], ids=str)
def test_long_names(tmp_path: Path, options: dict[str, object], blank: bool) -> None:
    model = tmp_path / "long.onnx"
    model.write_bytes(named_at_length(blank))
    target = "stm32h743" if "map" in options else "host"
    for artifact in compile_model(ModelRequest(model, "long", target, **options)):  # type: ignore[arg-type]
        if artifact.name.endswith((".c", ".h", ".S")) and artifact.name != "long_weights.c":
            wide = [x for x in artifact.data.decode().splitlines() if len(x) > COLUMNS and not x.startswith("#error")]
            assert not wide, (artifact.name, wide)


def test_a_remark_goes_on_under_itself() -> None:
    assert remark("    N = 1, ", "short") == "    N = 1, /* short */"
    words = " ".join(["word"] * 40)
    first, *rest = remark("    N = 1, ", words).splitlines()
    assert len(first) <= COLUMNS and rest and all(x.startswith(" " * 11 + " * word") for x in rest)
    assert remark("", "a" * 200) == f"/* ...{'a' * 109} */"
    assert remark(f"    {'N' * 90} = 1, ", words).splitlines()[-1] == f"    {'N' * 90} = 1,"
    assert remark("", "one", "two") == "/* one\n * two */"


@pytest.mark.parametrize(
    "line",
    [
        "        *y++ = " + " + ".join(f"f({letter}, 1000000)" for letter in "abcdefghijklmnop") + ";",
        f"        y = x >= x_zero ? {'eb_requantize(x - x_zero, x0_mul, x0_shift)'} : {'x' * 20}{' + y' * 20};",
        "    y = " + " + ".join("abcdefghijklmnopqrstuvwxyz" * 2) + ";",
    ],
)
def test_long_statements_go_on_in_further_lines(line: str) -> None:
    lines = fitted(line).split("\n")
    margin = len(line) - len(line.lstrip())
    assert len(lines) > 1 and all(len(x) <= COLUMNS for x in lines)
    assert "".join(fitted(line).split()) == "".join(line.split()), "nothing is lost"
    assert all(x.startswith(" " * (margin + 4)) for x in lines[1:])


@pytest.mark.parametrize("line", ['    __asm__("' + "nop; " * 40 + '");', "#error " + "a " * 80, "/* " + "a " * 80])
def test_strings_and_directives_stay_whole(line: str) -> None:
    assert fitted(line) == line
