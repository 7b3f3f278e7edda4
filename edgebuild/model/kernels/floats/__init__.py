"""Sums of products of real numbers, several channels at a time, for cores that have registers for them.

A block of B channels loads B + 1 numbers for B multiply-accumulates. Each sum grows in the order of the plain kernel,
so the results are the same to the last bit, unless a compiler joins products and sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ...ir import Array
from ...ops.base import PIXELS, PORTABLE, Form, Kernel, is_float
from ...ops.spatial import letters, rolled
from ..row import KernelLayer, Row
from . import registers

RESULT = 6.0  # instructions of a result: `bench-kernels` shows the error of estimates
VARIANT = "pixels and channels in registers"
LAYER = 40  # instructions of a call
MOST_RUNS = 64  # of taps under a window; a list of them lies on the stack
MOST = 8  # sums in registers; with as many weights and two values they fit into 32


def block_of(channels: int) -> int:
    """Channels of a block: as many as make the fewest blocks, and those as small as will do."""
    return -(-channels // -(-channels // MOST))


def starts(channels: int) -> list[int]:
    """The first channel of each block. The last block begins within the one before it where they do not divide."""
    block = block_of(channels)
    return [min(at, channels - block) for at in range(0, channels, block)]


def packed(weights: Array, channels: int) -> Array:
    """Weights K x taps in the order of reading: for each block of channels, tap by tap, those of all channels."""
    block, rows = block_of(channels), weights.reshape(channels, -1)
    return np.concatenate([np.ascontiguousarray(rows[at : at + block].T).ravel() for at in starts(channels)])


def convolution(layer: KernelLayer) -> Kernel | None:
    """Of one group: with several, a result reads few channels."""
    x, w = layer.graph.operands(layer.op)[:2]
    if layer.op.attrs.get("groups", 1) > 1:
        return None
    return _blocks(layer, "conv", w.elements // w.shape[0], 30 + 14 * w.shape[1], 2 - x.shape[3] % 2)


def dense(layer: KernelLayer) -> Kernel | None:
    """Whole: a layer that is fed by rows keeps its sums in memory."""
    columns = layer.graph.operands(layer.op)[1].shape[1]
    return None if layer.form.rolled else _blocks(layer, "dense", columns, 12, 2 - columns % 2)


def depthwise(layer: KernelLayer) -> Kernel | None:
    """A result for each channel, or all of them from one."""
    x, w = layer.graph.operands(layer.op)[:2]
    if x.shape[3] not in (1, w.shape[3]):
        return None
    return _blocks(layer, "depthwise", w.shape[1] * w.shape[2], 30 + 14 * w.shape[1], 1)


def matrices(layer: KernelLayer) -> Kernel | None:
    """Neighbouring columns of a product of matrices."""
    return _blocks(layer, "matmul", layer.graph.operands(layer.op)[0].shape[3], 16, 1)


def _blocks(layer: KernelLayer, template: str, taps: int, rest: int, unroll: int) -> Kernel | None:
    """The plain kernel in blocks. `rest`: instructions of a block beside its products and results."""
    k, y = layer.plain, layer.graph.result(layer.op)
    channels = y.shape[-1]
    block = block_of(channels)
    if not is_float(y) or block == 1 or layer.form.small:
        return None
    scaled = bool(k.shape.get("scaled"))
    shape = {
        **k.shape, "block": block, "overlap": channels % block > 0, "unroll": unroll,
        "depthwise": template == "depthwise",
        "scaled": scaled, "cast": k.shape.get("cast", ""), "biased": not scaled and template != "matmul",
    }  # fmt: skip
    constants = k.constants
    if template in ("conv", "dense"):
        weights = replace(constants[0], data=packed(constants[0].data, channels), note="by blocks of channels")
        constants = (weights, *constants[1:])
    turn = (2 if template == "depthwise" else 1) * block + 1 + 2 * block + 4 / unroll
    if "mve" in layer.form.core and block % 4 == 0:  # the compiler makes vectors of them
        turn = (1.7 if template == "depthwise" else 1.2) * block
    windows = y.elements // channels // (y.shape[1] if layer.form.rolled else 1)
    file = "conv" if template == "depthwise" else template
    return replace(
        k, template=f"floats/{file}.c.j2", shape=shape, constants=constants, variant="channels in registers",
        estimate=40 + windows * (30 + len(starts(channels)) * (rest + taps * turn + RESULT * block)),
    )  # fmt: skip


def windows(layer: KernelLayer) -> Kernel | None:
    """Four pixels by four channels in the core's own instructions; of one group after the other."""
    k, y, form = layer.plain, layer.graph.result(layer.op), layer.form
    if not is_float(y) or form.small or k.shape["scaled"] or (form.rolled and layer.op.kind == "dense"):
        return None
    s = _as_window(layer)
    groups, each = s["K"] // s["KG"], s["KG"]
    runs = s["FH"] * (1 if s["whole"] else s["FW"])
    if each < 4 or runs > MOST_RUNS:
        return None
    rows, firsts = k.constants[0].data.reshape(s["K"], -1), [min(at, each - 4) for at in range(0, each, 4)]
    packed = np.concatenate([rows[g + at : g + at + 4].T.ravel() for g in range(0, s["K"], each) for at in firsts])
    s |= {"groups": groups, "blocks": len(firsts), "back": 4 * (-each % 4), "w_step": 16 * rows.shape[1]}
    s |= {"most": 4, "x_step": 4 * s["SX"] * s["C"], "tap": 4 * s["CG"], "column": s["C"], "each": s["CG"]}
    s |= {"list": str(2 * runs), "function": registers.of_core(form.core, f"%d_{registers.PACKED}")}
    constants = (replace(k.constants[0], data=packed, note="by four channels"), *k.constants[1:])
    k = replace(k, template="floats/windows.c.j2", shape=s, constants=constants, variant=VARIANT)
    k = replace(k, scratch=16 * s["C"], in_place=PIXELS) if s["over"] else k
    return _priced(k, s, _places(s))


def channels(layer: KernelLayer) -> Kernel | None:
    """Eight sums over one channel each, or four."""
    k, y, form = layer.plain, layer.graph.result(layer.op), layer.form
    s = dict[str, Any](k.shape)
    if not is_float(y) or form.small or s["scaled"] or y.shape[3] < 4 or s["M"] > 1 or s["FH"] > MOST_RUNS:
        return None
    count = y.shape[3]
    some = 8 if count >= 8 and -(-count // 8) * 8 * 2.7 < -(-count // 4) * 4 * 3.3 else 4
    taps, firsts = k.constants[0].data.reshape(-1, count), [min(at, count - some) for at in range(0, count, some)]
    packed = np.concatenate([taps[:, at : at + some].ravel() for at in firsts])
    s |= {"groups": 1, "blocks": len(firsts), "back": 4 * (-count % some), "w_step": 4 * some * len(taps), "over": ""}
    s |= {"most": 1, "x_step": 4 * s["DX"] * count, "tap": some, "column": 1, "each": 1, "whole": True}
    s["list"] = str(2 * s["FH"])
    s["function"] = registers.of_core(form.core, f"_channels{some}")
    constants = (replace(k.constants[0], data=packed, note=f"by {some} channels"), *k.constants[1:])
    k = replace(k, template="floats/windows.c.j2", shape=s, constants=constants, variant=VARIANT)
    return _priced(k, s, _places(s))


def _as_window(layer: KernelLayer) -> dict[str, Any]:
    """The letters of a convolution; rows of a matrix, and pixels that are their own window, are those of one line."""
    s, one = dict[str, Any](layer.plain.shape), (1, 1)
    pixels = int(s["N"])
    if layer.op.kind != "dense":
        alone = (s["FH"], s["FW"], s["SY"], s["SX"]) == (1, 1, 1, 1) and not any(layer.op.attrs["pad"])
        pixels = pixels * s["H"] * s["W"] if alone and not layer.form.rolled else 0
    if pixels:
        s |= letters((1, pixels, s["C"]), (1, pixels, s["K"]), one, one, (0, 0), one)
        s |= {"N": 1, "CG": s.get("CG", s["C"]), "KG": s.get("KG", s["K"]), **rolled(Form())}
    over = "" if not pixels or not layer.form.over else f"eb_{'mve_' * ('mve' in layer.form.core)}copy_words"
    return s | {"whole": s["DX"] == 1 and s["CG"] == s["C"], "over": over}


def inside(s: Mapping[str, Any], axis: str, at: int) -> int:
    """Taps of a window within the rows (Y) or columns (X) of the image, by the number of the result."""
    size, extent = ("H", "FH") if axis == "Y" else ("W", "FW")
    first, dilation = at * s[f"S{axis}"] - s[f"P{axis}"], s[f"D{axis}"]
    return sum(0 <= first + f * dilation < s[size] for f in range(s[extent]))


def _named(function: str, pixels: int) -> str:
    return function % pixels if "%" in function else function


Calls = Mapping[tuple[int, int, int], int]  # how often, by pixels, runs and taps in a run


def _places(s: Mapping[str, Any]) -> Calls:
    """Blocks of pixels of an image, one below the other."""
    rows = Counter(inside(s, "Y", oy) for oy in range(s["OH"]))
    columns, ox = Counter[tuple[int, int]](), 0
    while ox < s["OW"]:
        x0 = ox * s["SX"] - s["PX"]
        full = s["most"] > 1 and 0 <= x0 <= s["W"] - 3 * s["SX"] - (s["FW"] - 1) * s["DX"] - 1 and ox <= s["OW"] - 4
        columns[4 if full else 1, inside(s, "X", ox)] += 1
        ox += 4 if full else 1
    calls = Counter[tuple[int, int, int]]()
    for (fy, lines), ((pixels, fx), count) in product(rows.items(), columns.items()):
        calls[(pixels, fy, fx * s["column"]) if s["whole"] else (pixels, fy * fx, s["each"])] += lines * count
    return calls


def _around(s: Mapping[str, Any], runs: int) -> float:
    """Instructions of C for a block of pixels (`bench-grid`)."""
    if "groups" not in s:
        return 10
    if s["groups"] > 1:
        return 12 + s["groups"] * (50 + 20 * runs)
    if s["most"] == 1:
        return 17 * runs - 20
    return 12 if s["FH"] * s["FW"] == 1 else 12 + (17 if s["whole"] else 20) * runs


def _priced(k: Kernel, s: Mapping[str, Any], calls: Calls) -> Kernel:
    """With instructions of the layer, or of its mean row, and pace. Those of the micro-kernel are counted."""
    bounds = bool(np.isfinite(k.scalars["low"])), bool(np.isfinite(k.scalars["high"]))
    each = {1: 0.0, 4: 0.0}
    for (pixels, runs, taps), count in calls.items():
        inner = registers.executed_by(_named(s["function"], pixels), s["blocks"], runs, taps, bounds)
        copied = 10 + registers.copying(s["over"], pixels * taps) if s.get("over") else 0
        each[pixels] += s.get("N", 1) * count * (_around(s, runs) + copied + s.get("groups", 1) * inner)
    total = sum(each.values())
    pace = sum(n * registers.pace(s["function"], pixels) for pixels, n in each.items()) / total
    return replace(k, estimate=LAYER + total / (s["OH"] if s.get("rolled") else 1), pace=pace)


def products(layer: KernelLayer) -> Kernel | None:
    """Four rows by four columns of a product of matrices."""
    k, form, s = layer.plain, layer.form, dict[str, Any](layer.plain.shape)
    if not s["float"] or form.small or s["K"] < 4:
        return None
    (column, tap), blocks, missing = s["at"], -(-s["K"] // 4), -s["K"] % 4
    weights, w_tap = (registers.COLUMNS, tap) if column == 1 else (registers.ROWS, column)
    shape = {
        **s, "blocks": blocks, "back": 4 * missing, "w_tap": 4 * w_tap, "w_step": 16 * column,
        "w_back": 4 * missing * column, "function": registers.of_core(form.core, f"%d_{weights}"),
    }  # fmt: skip
    count, calls = s["A"] * s["B"], {(4, 1, s["C"]): s["N"] // 4, (1, 1, s["C"]): s["N"] % 4}
    k = replace(k, template="floats/product.c.j2", shape=shape, variant=VARIANT)
    return _priced(k, {**shape, "N": count}, calls)


KINDS = {"conv2d": convolution, "dense": dense, "depthwise_conv2d": depthwise, "batch_matmul": matrices}
CORES = ("fpu", "f", PORTABLE)
REGISTERS = {"conv2d": windows, "dense": windows, "batch_matmul": products, "depthwise_conv2d": channels}
ROWS = (
    *(Row(kind, frozenset({"fpu"}), make, crops=True) for kind, make in REGISTERS.items()),
    *(Row(kind, frozenset({core}), make, crops=True) for core in CORES for kind, make in KINDS.items()),
)
