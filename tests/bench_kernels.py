"""`./sconsw bench-kernels`: instructions per multiply-accumulate of whole models on every simulated processor.

Below each model the kernels that Cortex-M4 and RV32 got: variant, scratch, and the estimate it was chosen by, as
instructions per multiply-accumulate. Writes build/bench/kernels.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from edgebuild import ops
from edgebuild.compile import compile_model, plan_model
from edgebuild.errors import EdgebuildError
from edgebuild.explore import features_of
from edgebuild.ops.base import Form
from edgebuild.request import model_request
from edgebuild.sections import kernel_of
from edgebuild.target import load_target
from edgebuild.verify import verify
from tests.bench import ROOT, models

TARGETS = ("microbit", "mps2-an385", "mps2-an386", "mps2-an500", "mps3-an547", "riscv-virt")


def measure(model: Path, target: str) -> dict[str, Any] | None:
    """Instructions per MAC and bytes; None where the model does not fit."""
    try:
        result = verify(model, load_target(target), compile_model(model_request(model, "model", target, {})))
    except EdgebuildError:
        return None
    rate = round(result["instructions"] / result["macs"], 2)
    return {"insn_per_mac": rate, "code_bytes": result["code_bytes"], "equal": result["equal"]}


def layers(model: Path, name: str) -> list[dict[str, Any]]:
    """What each op got, and what it was expected to cost."""
    target = load_target(name)
    plan, rows = plan_model(model_request(model, "model", name, {"tile": "off"}), target), []
    for op in (op for step in plan.steps for op in step.ops):
        kernel, macs = kernel_of(op, plan.graph, Form(features_of(target))), ops.nest(op, plan.graph).mac_count
        estimate = round(kernel.estimate / macs, 2) if macs and kernel.estimate else None
        rows.append({"kernel": kernel.stem, "variant": kernel.variant, "scratch": kernel.scratch, "estimate": estimate})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the models' names")
    args = parser.parse_args()
    rows, failed = [], False
    print(f"{'model':22} " + " ".join(f"{t:>11}" for t in TARGETS))
    with tempfile.TemporaryDirectory() as folder:
        for model in models(Path(folder)):
            if args.only not in model.stem:
                continue
            found = {t: measure(model, t) for t in TARGETS}
            failed |= any(r is not None and not r["equal"] for r in found.values())
            shown = (f"{r['insn_per_mac']:>11}" if r is not None else f"{'-':>11}" for r in found.values())
            print(f"{model.stem:22} " + " ".join(shown), flush=True)
            row: dict[str, Any] = {"model": model.stem, "targets": found}
            for target in ("mps2-an386", "riscv-virt"):
                row[target] = layers(model, target)
                for r in row[target]:
                    print(f"    {target:10} {r['kernel']:34} {r['variant'] or 'portable':24} {r['estimate'] or '':>6}")
            rows.append(row)
    out = ROOT / "build" / "bench" / "kernels.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
