"""`./sconsw bench`: every model that is there, compiled, run in QEMU and compared with its oracle.

The zoo (MLPerf Tiny architectures with seeded weights) is always there; `../shared/models` is used
where it exists. Prints a table and writes build/bench/models.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.zoo.builders import ZOO, quantized

ROOT = Path(__file__).parents[1]
COLUMNS = (
    ("model", 20),
    ("target", 12),
    ("tile", 8),
    ("equal", 5),
    ("arena", 8),
    ("peak", 8),
    ("bound", 8),
    ("proof", 7),
    ("stack", 6),
    ("flash", 8),
    ("code", 7),
    ("insn", 12),
    ("insn/MAC", 8),
    ("seconds", 7),
)


def models(folder: Path) -> list[Path]:
    """All model files: given ones, and the zoo written to `folder`, quantised."""
    found = sorted((ROOT.parent / "shared" / "models").glob("*.tflite"))
    for name in ("ds_cnn", "mobilenet_v1", "resnet8", "autoencoder"):
        file = folder / f"zoo_{name}.onnx"
        file.write_bytes(quantized(ZOO[name]()).SerializeToString())
        found.append(file)
    return [*found, ROOT / "sample_projects" / "digits" / "digits.onnx"]


def measure(model: Path, target: str, tile: str) -> dict[str, Any]:
    """A row of the table."""
    began = time.perf_counter()
    artifacts = compile_model(model_request(model, "model", target, {"tile": tile}))
    seconds = time.perf_counter() - began
    report = json.loads(artifacts[-1].data)
    result = verify(model, load_target(target), artifacts)
    proved = report["schedule"]["optimal"] and report["layout"]["optimal"]
    return {
        "model": model.stem,
        "target": target,
        "tile": tile,
        "equal": result["equal"],
        "arena": result["arena_bytes"],
        "peak": report["ram"]["peak_bytes"],
        "bound": report["ram"]["lower_bound_bytes"],
        "proof": "optimal" if proved else "layout" if report["layout"]["optimal"] else "-",
        "stack": result["stack_bytes"],
        "flash": result["flash_bytes"],
        "code": result["code_bytes"],
        "insn": result["instructions"],
        "insn/MAC": round(result["instructions"] / result["macs"], 2),
        "seconds": round(seconds, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", default="mps2-an386,riscv-virt")
    parser.add_argument("--only", default="", help="a part of the models' names")
    args = parser.parse_args()
    rows, failed = [], False
    print("  ".join(f"{name:>{width}}" for name, width in COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        for model in models(Path(folder)):
            for target in args.targets.split(","):
                for tile in ("off", "rolling"):
                    if args.only not in model.stem:
                        continue
                    try:
                        row = measure(model, target, tile)
                    except EdgebuildError as problem:
                        print(f"{model.stem} on {target}: {problem}")
                        failed = True
                        continue
                    failed |= not row["equal"]
                    rows.append(row)
                    print("  ".join(f"{row[name]!s:>{width}}" for name, width in COLUMNS), flush=True)
    out = ROOT / "build" / "bench" / "models.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
