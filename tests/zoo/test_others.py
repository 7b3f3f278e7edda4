"""Networks of other trades, whole and tiled, on every kind of processor: all equal to the reference."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import onnx
import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.exporters.writer import quantised

from .others import OTHERS, svdf_spotter

FORMS = [*((name, form) for name in OTHERS for form in ("float", "int8")), ("svdf_spotter", "int8")]
WAYS = {"whole": {"tile": "off"}, "tiled": {"tile": "auto", "objective": "ram", "max_mac_overhead": "50"}}
TARGETS = ("host", "mps2-an386", "mps3-an547", "riscv-virt")


@cache
def file_of(name: str, form: str) -> tuple[str, bytes]:
    """Suffix and bytes of the model file."""
    if name not in OTHERS:
        return ".tflite", svdf_spotter()
    model = OTHERS[name]()
    return ".onnx", (quantised(model) if form == "int8" else model).SerializeToString()


def equal(name: str, form: str, target: str, method: str, folder: Path) -> bool:
    suffix, data = file_of(name, form)
    file = folder / f"model{suffix}"
    file.write_bytes(data)
    artifacts = compile_model(model_request(file, "model", target, WAYS[method]))
    return bool(verify(file, load_target(target), artifacts)["equal"])


@pytest.mark.one_in(6)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name, form", FORMS)
def test_equal_on_the_build_machine(name: str, form: str, tmp_path: Path) -> None:
    assert equal(name, form, "host", "whole", tmp_path)


@pytest.mark.slow
@pytest.mark.needs("arm-none-eabi-gcc", "riscv64-unknown-elf-gcc", "qemu-system-arm", "qemu-system-riscv32")
@pytest.mark.parametrize("method", WAYS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name, form", FORMS)
def test_equal_everywhere(name: str, form: str, target: str, method: str, tmp_path: Path) -> None:
    if (form, target) == ("float", "riscv-virt"):
        pytest.skip("software floats take the simulator minutes")
    assert equal(name, form, target, method, tmp_path)


@pytest.mark.parametrize("name", OTHERS)
def test_seeded(name: str) -> None:
    network = OTHERS[name]()
    onnx.checker.check_model(network, full_check=True)
    assert network == OTHERS[name]() and network != OTHERS[name](1)
