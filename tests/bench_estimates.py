"""`python -m tests.bench_estimates TARGET [VARIANT...]`: estimates of variants against the simulator, on random layers.

Convolutions, pointwise and dense layers of random sizes run on the target's simulator, each by the variant. A row has
the median and the largest error of the estimate. Constants of estimates that no instruction gives are fitted to these.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import kernels
from edgebuild.model.compile import compile_model, plan_model
from edgebuild.model.kernels import kernel_of
from edgebuild.model.verify import verify
from tests.graphs.tflite_models import SAME, VALID, output_size
from tests.kernels.test_pairs import Layers, schema
from tests.kernels.test_processors import preferring

WINDOWS = ((1, 1), (3, 3), (5, 5), (3, 1), (2, 3), (1, 5), (4, 4), (10, 4))
CHANNELS, RESULTS = (1, 2, 3, 4, 6, 7, 8, 12, 16, 24, 32, 64), (1, 4, 6, 8, 9, 10, 12, 15, 16, 32, 64)
COUNT = 24  # layers of each kind in one network


class Sized(Layers):
    """Layers with the weights of trained networks: near a normal distribution."""

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.clip(np.rint(self.rng.normal(0, 25, shape)), -127, 127).astype(np.int8)

    def one(self, kind: str) -> None:
        rng = self.rng
        c, k = int(rng.choice(CHANNELS)), int(rng.choice(RESULTS))
        if kind == "dense":
            self.dense_of(self.normal((k, 4 * c)))
            return
        taps = (1, 1) if kind == "pointwise" else WINDOWS[int(rng.integers(1, len(WINDOWS)))]
        stride = (1, 1) if kind == "pointwise" else ((1, 1), (2, 2))[int(rng.integers(0, 2))]
        size = [t + int(v) for t, v in zip(taps, rng.integers(0, 10, 2), strict=True)]
        options = schema.Conv2DOptionsT()
        options.padding, (options.strideH, options.strideW) = int(rng.choice([SAME, VALID])), stride
        options.dilationHFactor = options.dilationWFactor = 1
        shape = (1, *output_size(size, taps, stride, options.padding), k)
        self.sum("CONV_2D", (1, *size, c), self.normal((k, *taps, c)), shape, options)


def errors(target: str, variant: str, kind: str, folder: Path) -> list[tuple[str, float]]:
    """(variant that a layer got, estimate over count less one) of each layer with an estimate."""
    layers, ordinary = Sized(0), kernels.by_cost
    for _ in range(COUNT):
        layers.one(kind)
    model, chip = folder / "layers.tflite", load_target(target)
    model.write_bytes(layers.pack(layers.inputs, layers.outputs))
    request = model_request(model, "model", target, {"tile": "off", "optimize": "speed"})
    setattr(kernels, "by_cost", preferring(variant) if variant else ordinary)  # noqa: B010
    try:
        counted = verify(model, chip, compile_model(request), by_layer=True)["layers"]
        plan = plan_model(request, chip)
        rows = []
        for step, layer in zip(plan.steps, counted, strict=True):
            kernel = kernel_of(step.ops[0], plan.graph, step.forms[0])
            estimate = kernel.estimate * (step.calls if step.forms[0].rolled else 1)
            rows.append((kernel.variant, estimate / layer["instructions"] - 1))
        return [row for row in rows if row[1] > -1]
    finally:
        setattr(kernels, "by_cost", ordinary)  # noqa: B010


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target")
    parser.add_argument("variants", nargs="*", help="of kernels; none: those that the plan takes")
    args = parser.parse_args(arguments)
    rows = dict[str, list[float]]()
    with tempfile.TemporaryDirectory() as name:
        for variant in args.variants or [""]:
            for kind in ("convolution", "pointwise", "dense"):
                for kernel, error in errors(args.target, variant, kind, Path(name)):
                    rows.setdefault(kernel, []).extend([abs(error)] if variant in ("", kernel) else [])
    for variant, some in sorted(rows.items()):
        if some:
            print(f"{variant:32} {len(some):>3} layers, median {np.median(some):6.1%}, largest {max(some):6.1%}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
