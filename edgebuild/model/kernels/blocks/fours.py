"""Dense layers by two channels in one multiplication, for cores whose multiplier has 32 bits: see `two_in_one.py`."""

from __future__ import annotations

import numpy as np

from ...ir import Array
from ...ops.base import Constant, Form, Kernel, Sums
from ...ops.spatial import sums_shape, words
from .pairs import CALL, SMALL, START, channels_in_blocks, finish, groups, rescaling, sizes
from .two_in_one import ANY, MICROS, TwoInOne, ends_of, micro, name

Groups = tuple[tuple[int, ...], ...]
RV32, M3, M0 = "eb_fours_rv32", "eb_fours_armv7m", "eb_fours_armv6m"
PREPARE = 9  # instructions to bring one tap into its place; `./sconsw bench-kernels` shows the error of the estimate


def grouped(m: TwoInOne, function: str, weights: Array, quickly: bool) -> Groups:
    """The groups of taps that cost least. Where loops are entered anywhere, smaller ones may make fewer runs."""
    allowed = tuple(size for (size,) in m.loops)
    if m.loops is not ANY:
        return groups(weights, allowed, quickly)
    most = allowed[-1:] if quickly or weights.size >= SMALL else (12, 16, allowed[-1])
    choices = (groups(weights, allowed[:n], quickly=True) for n in most)
    return min(choices, key=lambda taps: micro(function).executed(blocks=1, runs=sizes(taps)))


def dense(stem: str, s: Sums, form: Form) -> Kernel | None:
    """One pixel; the last block of channels repeats some where they do not divide."""
    m, (_, _, c), (oh, ow, k) = MICROS[stem], s.size, s.out
    scale = rescaling(s, finish(s)) if s.pointwise and oh * ow == 1 and k >= m.channels and not form.small else None
    if not s.fits or scale is None or s.weights.shape[3] != c or c >= 2**15:
        return None
    ends = ends_of(stem, finish(s) == "signed", not s.full_range)
    function = micro(name(stem, ends))
    chosen = grouped(m, function.name, s.weights.reshape(k, c), form.tile)
    order = np.array([tap for group in chosen for tap in group])
    channels = channels_in_blocks(k, m.channels)
    raised = (s.weights.reshape(k, c).astype(np.int16) + 128).astype(np.uint8)[channels][:, order]
    packed = np.ascontiguousarray(raised.reshape(-1, m.channels, c).transpose(0, 2, 1))
    runs = sizes(chosen)
    shape = sums_shape(s, form) | {
        "function": function.name, "bounded": ends.clamped, "groups": len(chosen),
        "blocks": k // m.channels, "odd": k % m.channels,
        "block": m.channels, "step": c * m.channels // 4,
    }  # fmt: skip
    constants = (
        Constant("w", packed.view(np.int32).reshape(-1), "128 more each, by blocks of channels, in groups of taps"),
        Constant("rescale", scale[channels], "start, multiplier, rounding, shift"),
        Constant("order", order.astype(np.int16), "of taps"),
        Constant("runs", np.array([*runs, (0, 0)], np.uint8), "size and number of groups"),
    )
    scalars: dict[str, int | float] = {"offset": int(words(np.array(-START * len(chosen))))}
    scalars |= {"low": s.low, "high": s.high} if ends.clamped else {}
    calls = [k // m.channels] + [1] * (k % m.channels > 0)
    work = sum(CALL + function.executed(blocks=blocks, runs=runs) for blocks in calls)
    return Kernel(
        "blocks/fours.c.j2", s.stem, shape, constants, scalars,
        scratch=4 * len(chosen) + c, variant="two channels in one",
        estimate=work + PREPARE * c + 8 * len(chosen) + 10,
    )  # fmt: skip
