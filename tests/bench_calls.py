"""`./sconsw bench-calls`: instructions of a call, which no kernel's estimate has, on processors that count them.

A chain of poolings of a column: its instructions grow with its rows, and what is left for no rows is the calls. Row by
row each row is a call, so a call takes what one row costs more than a row of a whole op. Prints a table and writes
build/bench/calls.json. The planner's constants for both stand in edgebuild/model/ops/base.py.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.bench import ROOT
from tests.graphs.tflite_models import File
from tests.layer_models import IN

TARGETS = ("mps2-an386", "mps3-an547", "riscv-virt")
OPS = 24
ROWS = (40, 80)


def chain(rows: int) -> bytes:
    """Poolings of two rows each, so that the result of the last has `rows`."""
    file = File()
    first = last = file.tensor("x", (1, rows + OPS, 1, 1), "int8", IN)
    for number in reversed(range(OPS)):
        options = schema.Pool2DOptionsT()
        options.padding, options.strideH, options.strideW = schema.Padding.VALID, 1, 1
        options.filterHeight, options.filterWidth = 2, 1
        y = file.tensor(f"y{number}", (1, rows + number, 1, 1), "int8", IN)
        file.operator("MAX_POOL_2D", [last], [y], options)
        last = y
    return file.pack([first], [last])


def counted(folder: Path, rows: int, target: str, tile: str) -> int:
    model = folder / f"chain{rows}.tflite"
    model.write_bytes(chain(rows))
    request = model_request(model, "model", target, {"tile": tile})
    return int(verify(model, load_target(target), compile_model(request))["instructions"])


def of_calls(folder: Path, target: str) -> tuple[float, float]:
    """Of an op in one call; of a call that makes a row."""
    few, many = (counted(folder, rows, target, "off") for rows in ROWS)
    row = (many - few) / (OPS * (ROWS[1] - ROWS[0]))
    total = sum(ROWS[0] + number for number in range(OPS))
    rolled = counted(folder, ROWS[0], target, "rolling")
    return (few - total * row) / OPS, rolled / total - row


def main() -> int:
    table = []
    print(f"{'instructions':14} {'of a call':>12} {'by rows':>12}")
    with tempfile.TemporaryDirectory() as name:
        for target in TARGETS:
            whole, rows = of_calls(Path(name), target)
            table.append({"target": target, "call": round(whole, 1), "row_call": round(rows, 1)})
            print(f"{target:14} {whole:12.1f} {rows:12.1f}", flush=True)
    out = ROOT / "build" / "bench" / "calls.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
