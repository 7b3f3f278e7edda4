"""Every network compiles and computes what onnxruntime computes, in float on this machine, quantised on a Cortex-M4."""

from __future__ import annotations

import pytest

from . import NETWORKS
from .__main__ import outcome


@pytest.mark.one_in(12)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", NETWORKS)
def test_float_on_the_build_machine(name: str) -> None:
    assert outcome(name, "float", "host") == "equal"


@pytest.mark.one_in(18)
@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("name", NETWORKS)
def test_quantised_on_a_cortex_m4(name: str) -> None:
    assert outcome(name, "qdq", "mps2-an386") == "equal"


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("form", ["qdq int16", "qdq uint16"])
@pytest.mark.parametrize("name", ["torch efficientnet", "torch ssd", "torch unet"])
def test_sixteen_bits(name: str, form: str) -> None:
    """Activations of int16 and uint16; some outputs are integers, and uint16 is int16 in C.

    The last bits of interpolations and sigmoids decide how some values are rounded.
    """
    assert outcome(name, form, "host") == "equal"


@pytest.mark.slow
@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("form", ["float", "qdq uint8"])
@pytest.mark.parametrize("name", NETWORKS)
def test_other_forms(name: str, form: str) -> None:
    assert outcome(name, form, "mps2-an386" if form == "float" else "host") == "equal"
