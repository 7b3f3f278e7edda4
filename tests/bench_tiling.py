"""`./sconsw bench-tiling`: what rolling and a streamed input save, compiled for the host and replayed.

A row for each model: arena with every op whole, rolled, and with rows pushed by the application;
steps, calls, seconds to plan. MACs never change. Writes build/bench/tiling.json.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from edgebuild.compile import compile_model
from edgebuild.errors import EdgebuildError
from edgebuild.request import model_request
from tests.bench import ROOT, models
from tests.zoo.builders import ZOO, quantized

MODES: dict[str, dict[str, Any]] = {
    "untiled": {"tile": "off"},
    "rolling": {"tile": "rolling"},
    "streamed": {"stream_input": "rows"},
}


def measure(model: Path, mode: str) -> dict[str, Any]:
    began = time.perf_counter()
    report = json.loads(compile_model(model_request(model, "model", "host", MODES[mode]))[-1].data)
    return {
        "arena": report["ram"]["arena_bytes"],
        "bound": report["ram"]["lower_bound_bytes"],
        "calls": sum(step["calls"] for step in report["schedule"]["steps"]),
        "extra_macs": report["macs"]["generated"] - report["macs"]["model"],
        "seconds": round(time.perf_counter() - began, 2),
    }


def main() -> int:
    rows = []
    print(f"{'model':22} {'untiled':>9} {'rolling':>9} {'streamed':>9} {'calls':>6} {'MACs':>5} {'seconds':>7}")
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "zoo_swiftnet_like.onnx"
        large.write_bytes(quantized(ZOO["swiftnet_like"]()).SerializeToString())
        for model in [*models(Path(folder)), large]:
            row: dict[str, Any] = {"model": model.stem}
            for mode in MODES:
                try:
                    row[mode] = measure(model, mode)
                except EdgebuildError:
                    row[mode] = {"arena": None, "calls": None, "seconds": None}
            rows.append(row)
            arenas = " ".join(f"{row[m]['arena'] or '-':>9}" for m in MODES)
            r = row["rolling"]
            print(f"{model.stem:22} {arenas} {r['calls']:>6} {r['extra_macs']:>+5} {r['seconds']:>7}", flush=True)
    out = ROOT / "build" / "bench" / "tiling.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
