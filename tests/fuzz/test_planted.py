"""Mistakes planted into what is printed, behind the plan and its interpreter: the networks of `test` have to find them.

`tests/rolling/test_planted.py` plants mistakes into plans and kernels, which the interpreter finds without a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.model.emit import code
from edgebuild.model.ir import Array
from edgebuild.model.ops.base import Kernel
from tests.fuzz.machine import Failure, Machine, machine
from tests.fuzz.networks import Judge, recipes
from tests.fuzz.recipe import FORMS
from tests.fuzz.test_fuzz import FIRST, HOST

Spoil = Callable[[str, Kernel], Kernel]


def constants(name: str, change: Callable[[Array], Array], *kinds: str) -> Spoil:
    """Constants of this name, of ops of these kinds, are others."""

    def spoil(kind: str, kernel: Kernel) -> Kernel:
        spoiled = tuple(
            replace(c, data=np.ascontiguousarray(change(c.data)).astype(c.data.dtype)) if c.name == name else c
            for c in kernel.constants
        )
        return replace(kernel, constants=spoiled) if kind in kinds else kernel

    return spoil


def numbers(change: Callable[[Any], Any], name: str, *kinds: str) -> Spoil:
    """A number that is an argument, or that is printed into the function, is another."""

    def spoil(kind: str, kernel: Kernel) -> Kernel:
        if kind not in kinds:
            return kernel
        scalars = {n: change(v) if n == name else v for n, v in kernel.scalars.items()}
        shape = {n: change(v) if n == name else v for n, v in kernel.shape.items()}
        return replace(kernel, scalars=scalars, shape=shape)

    return spoil


SUMS = ("conv2d", "depthwise_conv2d", "dense")
PLANTED: dict[str, Spoil] = {
    "no bias": constants("bias", np.zeros_like, *SUMS),
    "weights of the next place": constants("w", lambda w: np.roll(w, 1), *SUMS),
    "weights in another order": constants("w", lambda w: w.reshape(-1)[::-1].reshape(w.shape), *SUMS),
    "a shift too many": constants("shift", lambda s: s - 1, *SUMS),
    "the multiplier of another channel": constants("multiplier", lambda m: np.roll(m, 1), *SUMS),
    "another zero point of the operand": numbers(lambda v: v + 1, "x_zero", *SUMS),
    "another zero point of the result": numbers(lambda v: v + 1, "y_zero", *SUMS),
    "no lower bound": numbers(lambda v: -128, "low", *SUMS),
    "the multiplier of a depthwise convolution left out": numbers(lambda v: 1, "M", "depthwise_conv2d"),
    "a stride left out": numbers(lambda v: 1, "SX", "conv2d", "depthwise_conv2d", "max_pool2d", "avg_pool2d"),
    "a padding left out": numbers(lambda v: 0, "PY", "conv2d", "depthwise_conv2d", "max_pool2d", "avg_pool2d"),
    "a row of a window left out": numbers(lambda v: max(v - 1, 1), "FH", "max_pool2d", "avg_pool2d"),
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return machine("host", tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def judges(tmp_path_factory: pytest.TempPathFactory) -> list[Judge]:
    """The networks of the slice, as far as an oracle takes them."""

    def usable() -> Iterator[Judge]:
        for number, recipe in enumerate(recipes(FIRST, HOST, FORMS)):
            try:
                yield Judge(recipe, tmp_path_factory.mktemp(f"network{number}"))
            except (EdgebuildError, ValueError):
                continue

    return list(usable())


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", PLANTED)
def test_the_slice_finds_what_is_printed_wrong(
    name: str, host: Machine, judges: list[Judge], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = code.kernel_uses

    def uses(*arguments: Any) -> list[code.Use]:
        return [replace(use, kernel=PLANTED[name](use.op.kind, use.kernel)) for use in right(*arguments)]

    monkeypatch.setattr(code, "kernel_uses", uses)
    kinds = set()
    for judge in judges:
        try:
            judge.run(host, {"tile": "off"})
        except Failure as failure:
            kinds.add(failure.kind)
            if failure.kind in ("wrong", "crash"):
                return
    raise AssertionError(f"not found; {kinds}")
