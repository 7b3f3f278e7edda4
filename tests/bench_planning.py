"""`./sconsw bench-planning`: processor time and memory of `edgebuild model --tile auto` on long networks.

Chains of separable convolutions, as MobileNet has them, and residual networks of two convolutions a block, in int8.
The whole command is measured, from start to files. Prints a table and writes build/bench/planning.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Quant
from tests.bench import ROOT
from tests.graphs.tflite_models import SAME, File
from tests.layer_models import IN

SIZE, CHANNELS = 64, 8  # of the first image
TARGET = "mps2-an386"


@dataclass
class Network:
    """A file under construction: `add` methods append a layer behind `last`."""

    file: File = field(default_factory=File)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))

    def __post_init__(self) -> None:
        self.shape = (1, SIZE, SIZE, CHANNELS)
        self.first = self.last = self.file.tensor("x", self.shape, "int8", IN)

    @property
    def ops(self) -> int:
        return len(self.file.operators)

    def result(self, name: str, operands: list[int], options: Any) -> None:
        self.last = self.file.tensor(f"y{self.ops}", self.shape, "int8", IN)
        self.file.operator(name, operands, [self.last], options)

    def convolution(self, taps: int, channels: int, stride: int = 1, depthwise: bool = False) -> None:
        _, h, w, c = self.shape
        options = schema.DepthwiseConv2DOptionsT() if depthwise else schema.Conv2DOptionsT()
        options.padding, options.strideH, options.strideW = SAME, stride, stride
        options.dilationHFactor = options.dilationWFactor = options.depthMultiplier = 1
        shape = (1, taps, taps, c) if depthwise else (channels, taps, taps, c)
        scales, zeros = (0.003,) * channels, (0,) * channels
        data = self.rng.integers(-127, 128, shape).astype(np.int8)
        weights = self.file.tensor(f"w{self.ops}", shape, "int8", Quant(scales, zeros, 3 * depthwise), data)
        products = Quant(tuple(s * IN.scale[0] for s in scales), zeros, 0)
        bias = self.file.tensor(f"b{self.ops}", (channels,), "int32", products, np.zeros(channels, np.int32))
        self.shape = (1, -(-h // stride), -(-w // stride), channels)
        name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
        self.result(name, [self.last, weights, bias], options)

    def sum(self, other: int) -> None:
        self.result("ADD", [self.last, other], schema.AddOptionsT())

    def done(self) -> bytes:
        return self.file.pack([self.first], [self.last])


def chain(ops: int) -> bytes:
    """Depthwise and pointwise in turn; images become smaller and channels more, four times in all."""
    net = Network()
    for at in range(ops // 2):
        smaller = at % (ops // 8) == ops // 8 - 1 and net.shape[1] > 4
        net.convolution(3, net.shape[3], 1 + smaller, depthwise=True)
        net.convolution(1, net.shape[3] * (1 + smaller))
    return net.done()


def residual(ops: int) -> bytes:
    """Blocks of two convolutions and a sum; between some of them one that makes the image smaller."""
    net = Network()
    while net.ops < ops:
        if net.ops and net.ops % (ops // 4) < 3 and net.shape[1] > 8:
            net.convolution(3, net.shape[3] * 2, 2)
        before = net.last
        net.convolution(3, net.shape[3])
        net.convolution(3, net.shape[3])
        net.sum(before)
    return net.done()


def measured(model: Path, folder: Path) -> dict[str, float]:
    """Seconds of processor time, MB of memory, and bytes of the arena."""
    words = [sys.executable, "-m", "edgebuild", "model", str(model), "--name", "net", "--target", TARGET]
    words += ["--tile", "auto", "-o", str(folder / "out")]
    child = os.posix_spawn(sys.executable, words, {**os.environ, "EDGEBUILD_CACHE": str(folder / "cache")})
    _, status, used = os.wait4(child, 0)
    assert status == 0, words
    arena = json.loads((folder / "out" / "net_report.json").read_text())["ram"]["arena_bytes"]
    return {"seconds": round(used.ru_utime + used.ru_stime, 1), "mb": used.ru_maxrss // 1024, "arena": arena}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, nargs="*", default=[60, 120, 500])
    args = parser.parse_args()
    rows = []
    for kind in (chain, residual):
        for ops in args.ops:
            with tempfile.TemporaryDirectory() as name:
                model = Path(name, "net.tflite")
                model.write_bytes(kind(ops))
                rows.append({"network": kind.__name__, "ops": ops, **measured(model, Path(name))})
            row = rows[-1]
            print(
                f"{kind.__name__:10} {ops:4} ops {row['seconds']:6} s {row['mb']:5} MB arena {row['arena']:7} B",
                flush=True,
            )
    out = ROOT / "build" / "bench" / "planning.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
