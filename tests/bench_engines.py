"""`./sconsw bench-engines`: generated firmware on the RTL of a core with the accelerators of hal.

Builds a simulator of each in build/rtl, as `bench-rtl` does. Every network must give the bytes of its reference there.
Prints a table and writes build/bench/engines.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import hal_dir, load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.bench import ROOT, models
from tests.bench_rtl import CORE, Unavailable, simulator

SAMPLES = hal_dir() / "accelerators"
CORES = {"cfu": "VexRiscv_FullCfu", "ne16": CORE, "systolic": CORE}  # by sample: the variant of the core


def target_of(sample: str) -> Path:
    return SAMPLES / sample / f"vexriscv-{sample}.yaml"


def prepared(sample: str) -> Path:
    """The folder with a sample's simulator. Raises Unavailable."""
    verilog = sorted((*(SAMPLES / sample).glob("*.v"), *(SAMPLES / sample).glob("*.sv")))
    return simulator(CORES[sample], f"vexriscv-{sample}", verilog)


def measure(model: Path, sample: str) -> dict[str, Any] | None:
    """A row; None where the model does not fit, or no layer runs on the accelerator."""
    file = target_of(sample)
    try:
        artifacts = compile_model(model_request(model, "model", str(file), {"tile": "off"}))
        run = verify(model, load_target(str(file)), artifacts)
    except EdgebuildError as error:
        print(f"{model.stem}: {error}", file=sys.stderr)
        return None
    macs = sum(engine["macs"] for engine in run["engines"])
    row = {
        "accelerator": sample,
        "model": model.stem,
        "on_engine": macs,
        "layers": sum(e["layers"] for e in run["engines"]),
    }
    return row | {key: run[key] for key in ("macs", "instructions", "cycles", "equal")} if macs else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the models' names")
    parser.add_argument("--sample", choices=sorted(CORES), help="one accelerator")
    args = parser.parse_args()
    print("| accelerator | network | layers on it | share of MACs | cycles | cycles per MAC | equal |")
    print("|---|---|---|---|---|---|---|")
    rows: list[dict[str, Any]] = []
    try:
        for sample in [args.sample] if args.sample else sorted(CORES):
            os.environ["PATH"] = f"{prepared(sample)}{os.pathsep}{os.environ['PATH']}"
            with tempfile.TemporaryDirectory() as folder:
                for model in models(Path(folder)):
                    row = measure(model, sample) if args.only in model.stem else None
                    if row is not None:
                        rows.append(row)
                        share, each = row["on_engine"] / row["macs"], row["cycles"] / row["macs"]
                        print(f"| {sample} | {row['model']} | {row['layers']} | {share:.1%} | {row['cycles']:,} "
                              f"| {each:.2f} | {'yes' if row['equal'] else 'NO'} |", flush=True)  # fmt: skip
    except Unavailable as missing:
        print(f"bench-engines: {missing}", file=sys.stderr)
        return 3
    out = ROOT / "build" / "bench" / "engines.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return int(not rows or not all(row["equal"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
