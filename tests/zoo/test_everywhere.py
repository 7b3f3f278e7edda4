"""Every network of the zoo in float, and those of the exporters, in every way of tiling, on every kind of processor."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import onnx
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests import exporters

from .builders import ZOO
from .others import OTHERS
from .pictures import PICTURES

NETWORKS = {**ZOO, **PICTURES, **OTHERS}
WAYS = {
    **{tile: {"tile": tile} for tile in ("off", "auto", "rolling", "fdt", "ffmt")},
    "ram": {"objective": "ram"},
    "streamed": {"stream_input": "rows"},
}


def differing(model: onnx.ModelProto, target: str, folder: Path) -> list[str]:
    """The ways that give other results than the reference. Of equal programs one runs.

    A way may be refused; or the test program does not fit, which holds a streamed input whole.
    """
    file, unequal, checked = folder / "model.onnx", list[str](), set[bytes]()
    onnx.save(model, file)
    for name, options in WAYS.items():
        try:
            artifacts = compile_model(model_request(file, "model", target, options))
            mark = sha256(b"".join(a.data for a in artifacts if a.name.endswith((".c", ".S")))).digest()
            if mark not in checked and not verify(file, load_target(target), artifacts)["equal"]:
                unequal.append(name)
            checked.add(mark)
        except EdgebuildError:
            assert name != "off"
    return unequal


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.needs("arm-none-eabi-gcc", "riscv64-unknown-elf-gcc", "qemu-system-arm", "qemu-system-riscv32")
@pytest.mark.parametrize("target", ["mps2-an386", "mps3-an547", "riscv-virt"])
@pytest.mark.parametrize("name", NETWORKS)
def test_float_on_targets(name: str, target: str, tmp_path: Path) -> None:
    assert not differing(NETWORKS[name](), target, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("form", ["float", "qdq"])
@pytest.mark.parametrize("name", exporters.NETWORKS)
def test_exporters_networks_with_every_method(name: str, form: str, tmp_path: Path) -> None:
    assert not differing(exporters.exported(name, form), "host", tmp_path)
