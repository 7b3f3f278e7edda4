"""Two channels in one multiplication: dense layers on cores whose multiplier has 32 bits, one product at a time.

As in `pairs`, but an operand holds weights of two channels, w0 + 65536 w2. Four weights lie in a word as bytes with 128
added. One mask gives the operand of two of them; the word itself serves for the others, whose sums are what is left of
its own. What the 128 add to a group's sums does not depend on the channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir import Array
from ...ops.base import Constant, Form, Kernel, Sums
from ...ops.sums import shape_of, words
from .pairs import SMALL, START, channels_in_blocks, finish, groups, rescaling, sizes

SIZES = (1, 2, 3, 4, 6, 8, 12)  # taps of a group where the assembly has a loop for each size
ANY_SIZE = tuple(range(1, 25))  # where it enters a row of taps anywhere
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class FoursCore:
    """How a core computes: sums of `channels` at once, in groups of these `sizes`; the rest as in `pairs.Core`."""

    name: str
    channels: int
    tap: float
    group: float
    kind: float
    result: float
    channel: float
    sizes: tuple[int, ...] = SIZES

    def turn(self, made: Groups) -> float:
        """Instructions of the groups for one block of channels."""
        return sum(map(len, made)) * self.tap + len(made) * self.group + len(sizes(made)) * self.kind


RV32 = FoursCore("rv32", 8, 15, 24, 12, 16, 24, ANY_SIZE)
M3 = FoursCore("armv7m", 4, 5, 9, 6, 9, 22)
M0 = FoursCore("armv6m", 4, 9, 18, 12, 42, 40, SIZES[:-1])  # its branches do not reach over more
PREPARE = 9  # instructions to bring one tap into its place; `./sconsw bench-kernels` shows the error of the estimate


def grouped(core: FoursCore, weights: Array, quickly: bool) -> Groups:
    """The groups of taps that cost least. Where all sizes are allowed, smaller ones may make fewer runs."""
    if core.sizes is not ANY_SIZE:
        return groups(weights, core.sizes, quickly)
    most = ANY_SIZE[-1:] if quickly or weights.size >= SMALL else (12, 16, ANY_SIZE[-1])
    return min((groups(weights, ANY_SIZE[:n], quickly=True) for n in most), key=core.turn)


def dense(core: FoursCore, s: Sums, form: Form) -> Kernel | None:
    """One pixel; the last block of channels repeats some where they do not divide."""
    (_, _, c), (oh, ow, k) = s.size, s.out
    scale = rescaling(s, finish(s)) if s.pointwise and oh * ow == 1 and k >= core.channels and not form.small else None
    if not s.fits or scale is None or s.weights.shape[3] != c or c >= 2**15:
        return None
    chosen = grouped(core, s.weights.reshape(k, c), form.tile)
    order = np.array([tap for group in chosen for tap in group])
    channels = channels_in_blocks(k, core.channels)
    raised = (s.weights.reshape(k, c).astype(np.int16) + 128).astype(np.uint8)[channels][:, order]
    packed = np.ascontiguousarray(raised.reshape(-1, core.channels, c).transpose(0, 2, 1))
    rounding, bounded = "away" if s.finish.startswith("signed") else "up", core.name == "rv32" or not s.full_range
    runs = sizes(chosen)
    shape = shape_of(s, form) | {
        "function": f"eb_fours_{core.name}_{rounding}{'_clamped' if bounded and core.name != 'rv32' else ''}",
        "bounded": bounded, "groups": len(chosen), "blocks": k // core.channels, "odd": k % core.channels,
        "block": core.channels, "step": c * core.channels // 4,
    }  # fmt: skip
    constants = (
        Constant("w", packed.view(np.int32).reshape(-1), "128 more each, by blocks of channels, in groups of taps"),
        Constant("rescale", scale[channels], "start, multiplier, rounding, shift"),
        Constant("order", order.astype(np.int16), "of taps"),
        Constant("runs", np.array([*runs, (0, 0)], np.uint8), "size and number of groups"),
    )
    scalars: dict[str, int | float] = {"offset": int(words(np.array(-START * len(chosen))))}
    scalars |= {"low": s.low, "high": s.high} if bounded else {}
    work = core.turn(chosen) + core.channel + core.result * core.channels
    return Kernel(
        "blocks/fours.c.j2", s.stem, shape, constants, scalars,
        scratch=4 * len(chosen) + c, variant="two channels in one",
        estimate=len(channels) // core.channels * work + PREPARE * c + 8 * len(chosen) + 40,
    )  # fmt: skip
