"""`./sconsw bench-peers`: is the cycle model right? CMSIS-NN's own layers, modelled, beside what a board took.

The library is built as its authors build it (-Ofast) and runs the layers of MLPerf Tiny's four models. The board is an
STM32L4R5 at 120 MHz under microTVM, whose figures hold microTVM's own cost as well. So ratios between two models are
judged, not cycles. Prints a table, writes build/bench/peers.json. `--cmsis-nn DIR` names a checkout of CMSIS-NN; the
models are those of `../shared`. Without either it measures nothing. The status is 1 where a ratio is further from the
board's than LIMIT.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import permutations
from math import prod
from pathlib import Path

import numpy as np

from edgebuild.base.artifacts import publish
from edgebuild.base.inputs import hal_dir
from edgebuild.base.request import model_request
from edgebuild.base.target import Target, firmware_support, load_target
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.ir import Graph, Op
from edgebuild.model.verify import harness as flashes
from edgebuild.model.verify import verify
from edgebuild.model.verify.execution import cycles
from edgebuild.model.verify.harness import NAME, Builder, run_program
from tests.bench import ROOT
from tests.zoo.builders import mobilenet_v1

TARGET = "mps2-an386"
BOARD_TARGET = "m4-flash-model"  # the same with the board's flash, for which our own kernels are chosen
LIBRARY = ROOT.parent / "shared" / "peers" / "CMSIS-NN"  # by default
GROUPS = ("FullyConnectedFunctions", "PoolingFunctions", "BasicMathFunctions", "SoftmaxFunctions")
FAST = "-Ofast"  # default of the library's CMakeLists.txt, says its README
SCRATCH = 64 << 10  # more than any layer asks for; the program fails where it is not
LIMIT = 1.15  # how far a ratio of two models may lie from the board's
FLASH = flashes.flash_of(BOARD_TARGET)
# Cycles per multiply-accumulate: tiny_results_v1.0 of MLCommons, closed division, OctoML's microTVM with CMSIS-NN on a
# NUCLEO-L4R5ZI: median throughput, 120 MHz, and the MACs of the reference models.
BOARD = {"kws": 4.51, "resnet": 3.74, "vww": 4.83, "ad": 3.91}


def available(library: Path) -> bool:
    """The library and the models are there."""
    return library.is_dir() and all(file.is_file() for file in given().values())


def given() -> dict[str, Path]:
    """Files of MLPerf Tiny by model; there is none of vww."""
    return {name: ROOT.parent / f"shared/models/mlperf_{name}.tflite" for name in BOARD if name != "vww"}


def graphs(folder: Path) -> dict[str, Graph]:
    """The models that the board ran, by name. Only shapes count, so vww is the zoo's float model."""
    files = given()
    files["vww"] = folder / "vww.onnx"
    files["vww"].write_bytes(mobilenet_v1().SerializeToString())
    return {name: prepare(files[name]) for name in BOARD}


def call(graph: Graph, op: Op) -> str:
    """The call of a function of peers/cmsis_nn.c that does what an op does; empty where it has nothing to do."""
    x, y = (graph.tensors[name].shape for name in (op.inputs[0], op.outputs[0]))
    stride, pad = op.attrs.get("stride", ()), op.attrs.get("pad", ())[:2]
    if op.kind in ("conv2d", "depthwise_conv2d"):
        _, *window, _ = graph.tensors[op.inputs[1]].shape
        shape = (*x[1:], *(y[1:] if op.kind == "conv2d" else y[1:3]), *window)
        return f"{op.kind.split('_')[0].removesuffix('2d')}{(*shape, *stride, *pad)};"
    if op.kind == "avg_pool2d":
        return f"average{(*x[1:], *y[1:3], *op.attrs['window'])};"
    calls = {
        "dense": f"dense({x[-1]}, {y[-1]});",
        "add": f"add({prod(y)});",
        "softmax": f"softmax({y[-1]});",
        "mean": f"average{(*x[1:], 1, 1, *x[1:3])};",
        "reshape": "",
        "transpose": "",  # of an input that ONNX has planar
    }
    return calls[op.kind]


def description(graph: Graph) -> tuple[str, int, int]:
    """Text of layers.h; bytes of the largest weights and of the largest activation."""
    constant = [t.elements for t in graph.tensors.values() if t.constant]
    others = [t for t in graph.tensors.values() if not t.constant]
    weights, activation = max(constant), max(t.elements for t in others)
    numbers = {"WEIGHTS": weights, "ACTIVATION": activation, "SCRATCH": SCRATCH}
    numbers["CHANNELS"] = max(t.shape[-1] for t in others)
    calls = [call(graph, op) for op in graph.ops]
    lines = [*(f"#define {key} {value}" for key, value in numbers.items()), f"#define LAYERS {' '.join(calls)}", ""]
    return "\n".join(lines), weights, activation


def macs(graph: Graph) -> int:
    """Of the layers with weights, as MLPerf Tiny's reference counts them."""
    total = 0
    for op in graph.ops:
        if op.kind in ("conv2d", "depthwise_conv2d", "dense"):
            weights, y = graph.tensors[op.inputs[1]], graph.tensors[op.outputs[0]]
            total += weights.elements * prod(y.shape[1:-1])
    return total


def measure(graph: Graph, target: Target, folder: Path, library: Path) -> dict[str, float]:
    """Cycles per multiply-accumulate, in memory without wait states and from the board's flash."""
    text, weights, activation = description(graph)
    random = np.random.default_rng(0)
    for name, size in (("weights.bin", weights), ("values.bin", 3 * activation)):
        (folder / name).write_bytes(random.integers(0, 256, size, np.uint8).tobytes())
    (folder / "layers.h").write_text(text, encoding="utf-8")
    (folder / "cmsis_nn.san.o").unlink(missing_ok=True)  # the other objects are the same for all models
    own = [file for group in GROUPS for file in sorted((library / "Source" / group).glob("*_s8.c"))]
    builder = Builder(target, folder, needs_libm=False, extra=(FAST,), cmsis_nn=library)
    elf = builder.program("peer", [ROOT / "tests/peers/cmsis_nn.c", *own, hal_dir() / "src/semihost.c"])
    run_program(elf, target)  # fails where a layer does
    count, waited, _ = cycles(elf, target, FLASH)
    return {"no wait states": (count - waited) / macs(graph), "flash": count / macs(graph)}


def here(model: Path) -> float:
    """Cycles per multiply-accumulate of our own code, each layer by itself, from the board's flash."""
    artifacts = compile_model(model_request(model, NAME, BOARD_TARGET, {"tile": "off"}))
    verdict = verify(model, load_target(BOARD_TARGET), artifacts, by_cycles=True)
    assert verdict["equal"], f"{model.name} differs from the reference"
    return int(verdict["cycles"]) / int(verdict["macs"])


def furthest(rows: dict[str, dict[str, float]], column: str) -> tuple[float, str]:
    """The ratio of two models that is furthest from the board's: how many times it is the board's, and which it is."""
    share = {name: row[column] / BOARD[name] for name, row in rows.items()}
    return max((share[a] / share[b], f"{a} to {b}") for a, b in permutations(share, 2))


def measured(library: Path) -> dict[str, dict[str, float]]:
    """Rows of the table by model."""
    target = load_target(TARGET)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        publish(firmware_support(target), folder)
        (folder / f"{NAME}_memory.ld").touch()  # the builder's linker wants one
        return {model: measure(graph, target, folder, library) for model, graph in graphs(folder).items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./sconsw bench-peers", description=__doc__)
    parser.add_argument("--cmsis-nn", type=Path, default=LIBRARY, metavar="DIR", help="a checkout of CMSIS-NN")
    library: Path = parser.parse_args().cmsis_nn
    if not available(library):
        print(f"there is no CMSIS-NN in {library}, or there are no models in ../shared/models: nothing to measure")
        return 0
    rows = measured(library)
    print("| cycles per MAC | no wait states | flash of the board | board | here, flash of the board |")
    print("|---|---|---|---|---|")
    ours = {model: here(file) for model, file in given().items()}
    for model, row in rows.items():
        figures = " | ".join(f"{figure:.2f}" for figure in (*row.values(), BOARD[model]))
        print(f"| {model} | {figures} | {f'{ours[model]:.2f}' if model in ours else '-'} |")
    extremes = {column: furthest(rows, column) for column in ("no wait states", "flash")}
    for column, (times, pair) in extremes.items():
        print(f"{column}: the ratio furthest from the board's is {pair}, {times:.2f} times")
    out = ROOT / "build" / "bench" / "peers.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"rows": rows, "board": BOARD, "here": ours, "furthest": extremes}, indent=1) + "\n")
    return int(extremes["flash"][0] > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
