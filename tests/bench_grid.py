"""`./sconsw bench-grid`: instructions per multiply-accumulate of drawn layers, against the median of their kind.

Layers of every kind are drawn: windows, strides, dilations, groups, channels from 1 to 257, images from 1 to 64 wide,
int8, int16 and float. Each runs on every processor whose memory it fits, and is compared with the reference. The table
has the medians by kind and processor. Below it stand the layers that are the most times worse than theirs: more than
the median, and than what results of a single product take. Writes build/bench/grid.json.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import report_of, verify
from tests.bench_kernels import write
from tests.graphs.tflite_models import SAME
from tests.layer_models import Layer, schema

TARGETS = ("m0plus-model", "mps2-an385", "mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547", "riscv-virt")
KINDS = ("depthwise", "conv", "pointwise", "grouped", "dense")
FORMS = ("int8", "int8", "int8", "int16", "float32")  # as often as they are drawn
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 31, 32, 33, 48, 64, 96, 127, 128, 257)
WORST, CLIFF = 10, 1.6
MIN_MACS, MAX_MACS = 5_000, 400_000  # multiply-accumulates: calls do not count for much, and simulators end soon
ONE_PRODUCT = (15, 26, 1)  # the image of a layer whose results are one product each


@dataclass(frozen=True)
class Drawn:
    """A layer: sizes of the operand H x W x C, channels of the result, window, stride, dilation, groups."""

    kind: str
    form: str
    size: tuple[int, int, int]
    results: int
    window: tuple[int, int] = (1, 1)
    stride: int = 1
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def out(self) -> tuple[int, int]:
        return -(-self.size[0] // self.stride), -(-self.size[1] // self.stride)

    @property
    def macs(self) -> int:
        taps = self.window[0] * self.window[1]
        return self.out[0] * self.out[1] * self.results * taps * self.size[2] // self.groups

    @property
    def outputs(self) -> int:
        """Elements of the result."""
        return self.out[0] * self.out[1] * self.results

    @property
    def sees_padding_alone(self) -> bool:
        """Whether no tap lies over the image, which has one element along an axis."""
        axes = zip(self.size[:2], self.window, self.dilation, strict=True)
        return any(n == 1 and (taps - 1) * d // 2 % d for n, taps, d in axes)

    @property
    def title(self) -> str:
        text = f"{self.kind} {self.form} {'x'.join(map(str, self.size))} to {self.results}"
        text += f", window {self.window[0]}x{self.window[1]}" if self.window != (1, 1) else ""
        text += f" / {self.stride}" if self.stride > 1 else ""
        text += f", dilation {self.dilation[0]}x{self.dilation[1]}" if self.dilation != (1, 1) else ""
        return text + (f", {self.groups} groups" if self.kind == "grouped" else "")


def draw(rng: np.random.Generator) -> Drawn:
    """A layer with neither too few nor too many products."""

    def pick(choices: Sequence[Any]) -> Any:
        return choices[int(rng.integers(len(choices)))]

    while True:
        kind, form, c, k = pick(KINDS), pick(FORMS), pick(CHANNELS), pick(CHANNELS)
        size = (1, 1) if kind == "dense" else tuple(int(2 ** rng.uniform(0, 6)) for _ in range(2))
        window, stride, dilation, groups = (1, 1), 1, (1, 1), 1
        if kind in ("depthwise", "conv", "grouped"):
            window = tuple(int(n) for n in rng.integers(1, 10 if kind == "depthwise" else 6, 2))
            stride, dilation = pick((1, 1, 2, 3)), pick(((1, 1), (1, 1), (1, 1), (2, 2), (1, 3)))
        if kind == "depthwise":
            k, groups = c * pick((1, 1, 1, 2, 4)), c
        if kind == "grouped":
            groups = pick((2, 3, 4))
            c, k = c * groups, k * groups
        row = Drawn(kind, form, (*size, c), k, window, stride, dilation if stride == 1 else (1, 1), groups)
        if MIN_MACS <= row.macs <= MAX_MACS and max(c, k) <= 257 and not row.sees_padding_alone:
            return row


def written(layer: Drawn) -> bytes:
    """The TFLite file."""
    f, (h, w, c), k = Layer(layer.form), layer.size, layer.results
    if layer.kind == "dense":
        return _sum(f, "FULLY_CONNECTED", (1, c), (k, c), (1, k), schema.FullyConnectedOptionsT())
    name, options = "CONV_2D", schema.Conv2DOptionsT()
    shape: tuple[int, ...] = (k, *layer.window, c // layer.groups)
    if layer.kind == "depthwise":
        name, options, shape = "DEPTHWISE_CONV_2D", schema.DepthwiseConv2DOptionsT(), (1, *layer.window, k)
        options.depthMultiplier = k // c
    options.padding, options.strideH, options.strideW = SAME, layer.stride, layer.stride
    options.dilationHFactor, options.dilationWFactor = layer.dilation
    return _sum(f, name, (1, h, w, c), shape, (1, *layer.out, k), options)


def _sum(f: Layer, name: str, x: Sequence[int], w: Sequence[int], y: Sequence[int], options: Any) -> bytes:
    if f.kind != "float32":
        return f.sum(name, f.input(x), f.weights(*w), y[-1], y, options)
    operands = [f.file.tensor("x", x, "float32")]
    for part, shape in (("w", w), ("b", (y[-1],))):
        data = f.rng.normal(0, 1 / sqrt(np.prod(w) / y[-1]), shape).astype(np.float32)
        operands.append(f.file.tensor(part, shape, "float32", None, data))
    result = f.file.tensor("y", y, "float32")
    f.file.operator(name, operands, [result], options)
    return f.file.pack(operands[:1], [result])


def measured(layer: Drawn, target: str, model: Path) -> dict[str, Any] | None:
    """Instructions per MAC of the layer alone, kernel, and the error of its estimate; None where it does not fit."""
    try:
        artifacts = compile_model(model_request(model, "model", target, {"tile": "off"}))
        result = verify(model, load_target(target), artifacts, by_layer=True)
    except EdgebuildError:
        return None
    estimates: list[dict[str, Any]] = report_of(artifacts)["layers"]
    kernel = max(estimates, key=lambda row: row["estimated_instructions"])["kernel"]
    count = sum(n["instructions"] for n in result["layers"])
    error = round(100 * (sum(row["estimated_instructions"] for row in estimates) / count - 1), 1)
    row = {"layer": layer.title, "kind": layer.kind, "form": layer.form, "target": target, **asdict(layer)}
    row |= {"macs": layer.macs, "outputs": layer.outputs}
    return row | {"variant": kernel, "insn_per_mac": round(count / layer.macs, 3), "error_percent": error,
                    "equal": result["equal"]}  # fmt: skip


def ranked(rows: list[dict[str, Any]], results: dict[tuple[str, str], float]) -> list[dict[str, Any]]:
    """With the times that each is worse than the median of its kind, form and processor; the worst first.

    A row's `attainable` is that median, or its part of what a result takes, by form and processor, if that is more.
    """
    groups = dict[tuple[str, ...], list[float]]()
    for row in rows:
        groups.setdefault((row["kind"], row["form"], row["target"]), []).append(row["insn_per_mac"])
    medians = {key: median(values) for key, values in groups.items()}
    for row in rows:
        row["median"] = medians[row["kind"], row["form"], row["target"]]
        result = results.get((row["form"], row["target"]), 0.0)
        row["attainable"] = round(max(row["median"], result * row["outputs"] / row["macs"]), 3)
        row["times"] = round(row["insn_per_mac"] / row["attainable"], 2)
    return sorted(rows, key=lambda row: -row["times"])


def show(rows: list[dict[str, Any]], targets: Sequence[str]) -> None:
    print(f"\n{'median of instructions per MAC':32} " + " ".join(f"{t:>12}" for t in targets))
    for kind, form in sorted({(row["kind"], row["form"]) for row in rows}):
        medians = {row["target"]: row["median"] for row in rows if (row["kind"], row["form"]) == (kind, form)}
        print(f"{f'{kind} {form}':32} " + " ".join(f"{medians.get(t, '-'):>12}" for t in targets))
    for target in targets:
        above = [row["times"] > CLIFF for row in rows if row["target"] == target]
        print(f"{target}: {sum(above)} of {len(above)} layers above {CLIFF} times what is attainable")
    print(f"\nthe worst {WORST}: times what is attainable, instructions per MAC")
    for row in rows[:WORST]:
        error = "" if row["error_percent"] is None else f" {row['error_percent']:+.1f} %"
        print(f"{row['times']:>6} {row['insn_per_mac']:>8} {row['target']:12} {row['layer']}: {row['variant']}{error}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="layers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the layers' titles, such as `depthwise int8`")
    parser.add_argument("--target", action="append", choices=TARGETS, help="this processor alone; may be repeated")
    args = parser.parse_args(arguments)
    rng, rows, targets = np.random.default_rng(args.seed), list[dict[str, Any]](), args.target or TARGETS
    layers = [layer for layer in (draw(rng) for _ in range(args.count)) if args.only in layer.title]
    with tempfile.TemporaryDirectory() as name:
        model = Path(name) / "layer.tflite"
        for layer in layers:
            model.write_bytes(written(layer))
            results = [measured(layer, target, model) for target in targets]
            rates = " ".join(f"{'-' if row is None else row['insn_per_mac']:>8}" for row in results)
            print(f"{layer.title:64} {rates}", flush=True)
            rows += [row for row in results if row is not None]
        of_results = dict[tuple[str, str], float]()
        for form, target in sorted({(row["form"], row["target"]) for row in rows}):
            model.write_bytes(written(Drawn("pointwise", form, ONE_PRODUCT, 64)))
            if (row := measured(Drawn("pointwise", form, ONE_PRODUCT, 64), target, model)) is not None:
                of_results[form, target] = row["insn_per_mac"]
    rows = ranked(rows, of_results)
    show(rows, targets)
    write(rows, "grid.json")
    wrong = [row for row in rows if not row["equal"]]
    for row in wrong:
        print(f"wrong: {row['layer']} on {row['target']}")
    return int(bool(wrong) or not rows)


if __name__ == "__main__":
    raise SystemExit(main())
