"""`./sconsw bench-tiling`: what every way of tiling saves, and what it costs.

For each model a row with the arena by the rules of TFLite Micro and of TVM's graph planner (every op whole; see
baselines.py), the arena of every op by itself, and by each way the arena, the savings in percent, the
multiply-accumulates done again in percent (negative where parts leave out what nobody reads), and the growth of flash
(Cortex-M4, weights and code). Beside them the savings that Stahl 2024, table 4.1, printed for the same networks
(PoseNet and SSDLite by shape, radar of the kind; of the running example that of FDT in three parts). The thesis
compiled with TVM, whose buffers are wider: convolutions of int8 in int32; and it copied at every CONCAT, where parts
are put into their place here. The untiled arena here already
uses results in the place of operands. FFMT and auto may do
half of the model's MACs again, as FFMT does there.

Then how fast the exploration is, and arenas with rows pushed by the application. Writes build/bench/tiling.json.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.build.papers import papers
from edgebuild.model.compile import compile_model, plan_model, prepare
from tests.baselines import tflm, tvm
from tests.bench import ROOT, models
from tests.zoo.builders import ZOO, quantized
from tests.zoo.papers import PAPERS, running_example
from tests.zoo.pictures import radar

SHARED = ROOT.parent / "shared" / "models"
MODES: dict[str, dict[str, Any]] = {
    "untiled": {"tile": "off"},
    "ffmt": {"tile": "ffmt", "max_mac_overhead": 50},
    "fdt": {"tile": "fdt"},
    "rolling": {"tile": "rolling"},
    "auto": {"tile": "auto", "max_mac_overhead": 50},
    "ram": {"objective": "ram", "max_mac_overhead": 50},
}
STREAMED = {"stream_input": "rows"}
NAMES = {"paper_txt": "TXT", "paper_mw": "MW", "paper_cif": "CIF", "zoo_kws_float": "AWW", "mlperf_kws": "AWW",
         "zoo_radar": "RAD", "zoo_posenet": "POS", "zoo_ssdlite_300": "SSD"}  # fmt: skip
PUBLISHED = {  # percent saved by FFMT, MACs again; by FDT
    **{file: tuple(papers()["fdt"].rows[name][key] for key in ("ffmt", "ffmt_macs", "fdt"))
       for file, name in NAMES.items()},
    "zoo_running_example": (math.nan, math.nan, 33.3),
}  # fmt: skip


def networks(folder: Path) -> Iterator[Path]:
    """Those of the thesis that are there, and the zoo's of their kind."""
    yield from (f for name in PUBLISHED if (f := SHARED / f"{name}.tflite").exists())
    builders: dict[str, Callable[[], onnx.ModelProto]] = {
        "kws_float": ZOO["ds_cnn"],
        "running_example": running_example,
    }
    builders |= {name: partial(_quantized, build) for name, build in (("radar", radar), *PAPERS.items())}
    for name, build in builders.items():
        model = build()
        file = folder / f"zoo_{name}.onnx"
        file.write_bytes(model.SerializeToString())
        yield file


def _quantized(build: Callable[[], onnx.ModelProto]) -> onnx.ModelProto:
    return quantized(build())


def others(model: Path) -> dict[str, int]:
    """Arenas of every op whole by the rules of other tools."""
    graph = prepare(model)
    return {"tflm": tflm(graph), "tvm": tvm(graph)}


def measure(model: Path, mode: dict[str, Any]) -> dict[str, Any]:
    """One way of tiling on the host, whose kernels need no scratch memory."""
    began = time.perf_counter()
    report = json.loads(compile_model(model_request(model, "model", "host", mode))[-1].data)
    macs = report["macs"]
    return {
        "arena": report["ram"]["arena_bytes"],
        "calls": sum(step["calls"] for step in report["schedule"]["steps"]),
        "extra_macs": macs["generated"] - macs["model"],
        "extra_percent": round(100 * (macs["generated"] / macs["model"] - 1), 1),
        "seconds": round(time.perf_counter() - began, 2),
    }


def flash(model: Path, mode: dict[str, Any]) -> int:
    """Bytes of weights and code on a Cortex-M4."""
    target = load_target("mps2-an386")
    artifacts = {a.name: a.data for a in compile_model(model_request(model, "model", target.name, mode))}
    with tempfile.TemporaryDirectory() as folder:
        for name, data in artifacts.items():
            Path(folder, name).write_bytes(data)
        command = [target.toolchain.compiler, *target.toolchain.cflags, "-I.", "-c", "model.c", "-o", "model.o"]
        subprocess.run(command, cwd=folder, check=True)
        sizes = subprocess.run(
            ["arm-none-eabi-size", "model.o"], cwd=folder, check=True, capture_output=True, text=True
        )
    return int(sizes.stdout.splitlines()[1].split()[0]) + len(artifacts["model_weights.bin"])


def compare(model: Path) -> dict[str, Any]:
    """A row of the first table, printed as soon as it is known."""
    row: dict[str, Any] = {"model": model.stem, **others(model)}
    text = f"{model.stem:18} {row['tflm']:>8} {row['tvm']:>8}"
    for name, mode in MODES.items():
        row[name] = {**measure(model, mode), "flash": flash(model, mode)}
        whole = row["untiled"]
        row[name]["saved_percent"] = round(100 - 100 * row[name]["arena"] / whole["arena"], 1)
        row[name]["flash_percent"] = round(100 * row[name]["flash"] / whole["flash"] - 100, 1)
        r = row[name]
        text += f" {r['arena']:>7}"
        if name != "untiled":
            text += f" {r['saved_percent']:>5} {r['extra_percent']:>+5} {r['flash_percent']:>+5}"
    ffmt, macs, fdt = PUBLISHED[model.stem]
    print(f"{text} | {ffmt:>4} {macs:>+5} {fdt:>5}", flush=True)
    return row


def speed(model: Path, tile: str) -> dict[str, Any]:
    """How many configurations the exploration looks at in a second."""
    plan = plan_model(model_request(model, "model", "host", MODES[tile]), load_target("host"))
    assert plan.tiling is not None
    tiling = plan.tiling
    row = {"model": model.stem, "tile": tile, "estimated": tiling.estimated, "evaluated": tiling.evaluated}
    rate = round((tiling.estimated + tiling.evaluated) / tiling.seconds)
    row |= {"seconds": round(tiling.seconds, 2), "per_second": rate, "paths": len(tiling.tilings)}
    print(
        f"{model.stem:18} {tile:5} {tiling.estimated:>6} estimated {tiling.evaluated:>3} scheduled and laid out "
        f"{row['seconds']:>7} s {rate:>6}/s"
    )
    return row


def streamed(model: Path) -> dict[str, Any]:
    """Arena if the application pushes rows; None where it cannot."""
    try:
        arena = measure(model, STREAMED)["arena"]
    except EdgebuildError:
        arena = None
    return {"model": model.stem, "untiled": measure(model, MODES["untiled"])["arena"], "streamed": arena,
            "rolling": measure(model, MODES["rolling"])["arena"]}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the models' names")
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # onnxruntime's advice on preparing models that are prepared
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = [m for m in networks(folder) if args.only in m.stem]
        ways = " ".join(f"{mode:>7}  saved  MACs flash" for mode in list(MODES)[1:])
        print(f"{'model':18} {'TFLM':>8} {'like TVM':>8} untiled {ways} | FFMT  MACs   FDT published")
        rows = [compare(model) for model in chosen]
        speeds = [speed(model, tile) for model in chosen for tile in ("ffmt", "fdt")]
        large = folder / "zoo_swiftnet_like.onnx"
        large.write_bytes(quantized(ZOO["swiftnet_like"]()).SerializeToString())
        pushed = [streamed(m) for m in [*models(folder), large] if args.only in m.stem]
        for row in pushed:
            print(f"{row['model']:22} whole {row['untiled']:>7} rolling {row['rolling']:>6} pushed {row['streamed']}")
    out = ROOT / "build" / "bench" / "tiling.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"ways": rows, "exploration": speeds, "pushed": pushed}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
