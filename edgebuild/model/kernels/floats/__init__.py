"""Sums of products of real numbers in registers: several channels at a time, and of several pixels where the core can.

Cores with Arm's floating-point units have micro-kernels in assembly. On others, and for int8 weights and few channels,
a block of B channels in C loads B + 1 numbers for B multiply-accumulates. Each sum grows in the order of the plain
kernel, so the results are the same to the last bit, unless products and sums are fused.
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
from ...ops.spatial import rolled
from ..row import KernelLayer, Row
from . import registers

RESULT = 6.0  # instructions of a result: `bench-kernels` shows the error of estimates
LAYER = 40  # instructions of a call
MOST_RUNS = 64  # of taps under a window; a list of them lies on the stack
MOST = 8  # sums in registers; with as many weights and two values they fit into 32


def block_of(channels: int) -> int:
    """Channels of a block: as many as make the fewest blocks, and those as small as will do."""
    return -(-channels // -(-channels // MOST))


def starts(channels: int, block: int) -> list[int]:
    """The first channel of each block. The last block begins within the one before it where they do not divide."""
    return [min(at, channels - block) for at in range(0, channels, block)]


def packed(rows: Array, block: int, groups: int = 1) -> Array:
    """Weights K x taps in the order of reading: for each block of channels, tap by tap, those of all channels."""
    return np.concatenate([
        np.ascontiguousarray(of_group[first : first + block].T).ravel()
        for of_group in np.split(rows, groups) for first in starts(len(of_group), block)
    ])  # fmt: skip


def _letters(layer: KernelLayer, joined: bool) -> dict[str, Any] | None:
    """The layer as windows on an image. Rows of a matrix are a `line`, as are pixels that are `joined`.

    None for layers of other types or forms. `tap_values`: those that a result sums.
    """
    s, kind = dict[str, Any](layer.plain.shape), layer.op.kind
    by_row = layer.form.rolled and kind == "dense"  # a layer that is fed by rows keeps its sums in memory
    if not is_float(layer.graph.result(layer.op)) or layer.form.small or by_row:
        return None
    depthwise, pixels = kind == "depthwise_conv2d", int(s["N"])
    if kind in ("conv2d", "depthwise_conv2d"):
        alone = (s["FH"], s["FW"], s["SY"], s["SX"]) == (1, 1, 1, 1) and not any(layer.op.attrs["pad"])
        joined &= alone and not depthwise and not layer.form.rolled
        pixels = pixels * s["H"] * s["W"] if joined else 0
    s = {"CG": s["C"], "KG": s["K"], "scaled": False, "cast": "", "weight": "float"} | s
    if pixels:
        s |= dict.fromkeys(("N", "H", "OH", "FH", "FW", "SX", "DX"), 1) | {"W": pixels, "OW": pixels, "PX": 0}
        s |= rolled(Form())
    s |= {"line": pixels > 0, "whole": depthwise or pixels > 0 or (s["DX"] == 1 and s["CG"] == s["C"])}
    s |= {"tap_values": 1 if depthwise else s["CG"], "by_channel": depthwise and s["C"] > 1}
    s |= dict.fromkeys(("overlap", "over", "either"), False) | {"function": "", "most": 1, "groups": 1}
    return s | {"matrix": kind == "batch_matmul"}


def blocks(layer: KernelLayer) -> Kernel | None:
    """Blocks of channels in C. Of one group: with several, a result reads few channels."""
    k, s = layer.plain, _letters(layer, joined=False)
    if s is None or s["KG"] < s["K"] or (s.get("M", 1) > 1 and s["C"] > 1) or block_of(s["K"]) == 1:
        return None
    channels, block, depthwise = s["K"], block_of(s["K"]), layer.op.kind == "depthwise_conv2d"
    constants, unroll = k.constants, 1
    s |= {"block": block, "overlap": channels % block > 0, "packed": not (s["matrix"] or depthwise), "in_step": 1}
    s |= {"lane": 1, "tap_step": block, "biased": not (s["scaled"] or s["matrix"]), "value_step": 0}
    if s["packed"]:
        rows = constants[0].data.reshape(channels, -1)
        constants = (replace(constants[0], data=packed(rows, block), note="by blocks of channels"), *constants[1:])
        unroll, s["tap"], s["weight_step"] = 2 - s["C"] % 2, block * s["C"], rows.shape[1]
    elif depthwise:
        s |= {"in_step": s["DX"] * s["C"], "tap_step": channels, "tap": channels, "weight_step": 1}
        s["value_step"] = int(s["by_channel"])
    else:
        (s["lane"], s["tap_step"]), s["weight_step"] = s["at"], s["at"][0]
    s["unroll"] = unroll
    turn = (2 if depthwise else 1) * block + 1 + 2 * block + 4 / unroll
    if "mve" in layer.form.core and block % 4 == 0:  # the compiler makes vectors of them
        turn = (1.7 if depthwise else 1.2) * block
    rest, taps = 12 if s["line"] else 30 + 14 * s["FH"], s["FH"] * s["FW"] * s["tap_values"]
    places = _images(s) * s["OW"] * (1 if s["rolled"] else s["OH"])
    each = 30 + len(starts(channels, block)) * (rest + taps * turn + RESULT * block)
    return replace(
        k, template="floats/sums.c.j2", shape=s, constants=constants, variant="channels in registers",
        estimate=LAYER + places * each,
    )  # fmt: skip


def micro_kernels(layer: KernelLayer) -> Kernel | None:
    """Four pixels by four channels in the core's own instructions; or eight sums over one channel each, or four."""
    k, core, s = layer.plain, layer.form.core, _letters(layer, joined=True)
    if s is None or s["scaled"] or s["KG"] < 4 or s.get("M", 1) > 1:
        return None
    runs = s["FH"] * (1 if s["whole"] else s["FW"])
    if runs > MOST_RUNS:
        return None
    count, groups, some, taps = s["KG"], s["K"] // s["KG"], 4, s["FH"] * s["FW"] * s["tap_values"]
    s |= {"most": 4, "either": True, "groups": groups, "x_step": 4 * s["SX"] * s["C"], "list": str(2 * runs)}
    constants, rows, function = k.constants, None, f"%d_{registers.PACKED}"
    if s["matrix"]:
        column, tap = s["at"]
        function, step = (f"%d_{registers.COLUMNS}", tap) if column == 1 else (f"%d_{registers.ROWS}", column)
        s |= {"w_tap": 4 * step, "w_step": 16 * column, "w_back": 4 * (-count % 4) * column}
    elif layer.op.kind == "depthwise_conv2d":
        some = 8 if count >= 8 and -(-count // 8) * 8 * 2.7 < -(-count // 4) * 4 * 3.3 else 4
        s |= {"most": 1, "x_step": 4 * s["DX"] * s["C"]}
        rows, function = constants[0].data.reshape(-1, count).T, f"_channels{some}"
    else:
        rows = constants[0].data.reshape(s["K"], -1)
        s["over"] = s["line"] and groups == 1 and layer.form.over  # other groups read what a group writes over
    if rows is not None:
        stream = replace(constants[0], data=packed(rows, some, groups), note=f"by {some} channels")
        constants = (stream, *constants[1:])
        s |= {"w_step": 4 * some * taps, "tap": some * s["tap_values"]}
    by_group, block_count = groups > 1, -(-count // some)
    s |= {"blocks": block_count, "back": 4 * (-count % some), "function": registers.of_core(core, function)}
    s |= {"value_step": s["CG"] * by_group, "weight_step": block_count * some * taps * by_group}
    kernel = replace(
        k, template="floats/sums.c.j2", shape=s, constants=constants, variant="pixels and channels in registers"
    )
    return _priced(replace(kernel, scratch=16 * s["C"], in_place=PIXELS) if s["over"] else kernel, s)


def inside(s: Mapping[str, Any], axis: str, at: int) -> int:
    """Taps of a window within the rows (Y) or columns (X) of the image, by the number of the result."""
    size, extent = ("H", "FH") if axis == "Y" else ("W", "FW")
    first, dilation = at * s[f"S{axis}"] - s[f"P{axis}"], s[f"D{axis}"]
    return sum(0 <= first + f * dilation < s[size] for f in range(s[extent]))


def _images(s: Mapping[str, Any]) -> int:
    return int(s["A"] * s["B"] if s["matrix"] else s["N"])


def _calls(s: Mapping[str, Any]) -> Mapping[tuple[int, int, int], int]:
    """How often a micro-kernel is called for an image, by pixels, runs and taps in a run."""
    rows = Counter([1] if s["line"] else (inside(s, "Y", oy) for oy in range(s["OH"])))
    columns, ox = Counter[tuple[int, int]](), 0
    while ox < s["OW"]:
        x0 = ox * s["SX"] - s["PX"]
        full = s["most"] > 1 and 0 <= x0 <= s["W"] - 3 * s["SX"] - (s["FW"] - 1) * s["DX"] - 1 and ox <= s["OW"] - 4
        columns[4 if full else 1, inside(s, "X", ox)] += 1
        ox += 4 if full else 1
    calls = Counter[tuple[int, int, int]]()
    for (fy, lines), ((pixels, fx), count) in product(rows.items(), columns.items()):
        runs, taps = (fy, fx) if s["whole"] else (fy * fx, 1)
        calls[pixels, runs, taps * s["tap_values"]] += lines * count
    return calls


def _around(s: Mapping[str, Any], runs: int) -> float:
    """Instructions of C for a block of pixels (`bench-grid`)."""
    if s["groups"] > 1:
        return 12 + s["groups"] * (50 + 20 * runs)
    if s["most"] == 1:
        return 17 * runs - 20
    return 12 if s["line"] else 12 + (17 if s["whole"] else 20) * runs


def _priced(k: Kernel, s: Mapping[str, Any]) -> Kernel:
    """The kernel with its estimate and pace, of the layer or of its mean row. Micro-kernels are counted."""
    bounds = bool(np.isfinite(k.scalars["low"])), bool(np.isfinite(k.scalars["high"]))
    each = {1: 0.0, 4: 0.0}
    for (pixels, runs, taps), count in _calls(s).items():
        name = s["function"].replace("%d", str(pixels))
        inner = s["groups"] * registers.executed_by(name, taps, s["blocks"], runs, bounds)
        copied = 10 + registers.executed_by(registers.COPY, pixels * taps) if s["over"] else 0
        each[pixels] += _images(s) * count * (_around(s, runs) + copied + inner)
    total = sum(each.values())
    pace = sum(n * registers.pace(s["function"], pixels) for pixels, n in each.items()) / total
    always = [n for n in each if each[n]]
    if len(always) == 1:  # never four pixels, or always
        k = replace(k, shape={**s, "either": False, "most": always[0], "function": name})
    return replace(k, estimate=LAYER + total / (s["OH"] if s["rolled"] else 1), pace=pace)


KINDS = ("conv2d", "dense", "depthwise_conv2d", "batch_matmul")
ROWS = (
    *(Row(kind, frozenset({"fpu"}), micro_kernels, crops=True) for kind in KINDS),
    *(Row(kind, frozenset({core}), blocks, crops=True) for core in ("fpu", "f", PORTABLE) for kind in KINDS),
)
