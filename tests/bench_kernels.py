"""`./sconsw bench-kernels`: instructions per multiply-accumulate of whole models on every simulated processor.

A second line has the modelled cycles per multiply-accumulate, where there is a table of the core (hal/cycles). Below
each model the kernels that the processors of COUNTED got: variant, bytes of weights and of scratch, instructions per
multiply-accumulate as measured and as estimated, and the estimate's error. At the end networks of one layer each
(tests/layer_models.py): instructions per multiply-accumulate, or per element of the result. Writes
build/bench/kernels.json; `--layers` measures these alone and writes build/bench/layers.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model, plan_model
from edgebuild.model.kernels import cycles_of, kernel_of
from edgebuild.model.verify import verify
from tests.bench import ROOT, models
from tests.layer_models import ELEMENTS, LAYERS, written

COUNTED = ("mps2-an386", "mps3-an547", "riscv-virt")
TARGETS = ("microbit", "mps2-an385", "mps2-an386", "mps2-an500", "mps3-an547", "riscv-virt")


def measure(model: Path, target: str) -> dict[str, Any] | None:
    """Instructions per MAC, bytes, and where they were counted the layers; None where the model does not fit."""
    try:
        artifacts = compile_model(model_request(model, "model", target, {"tile": "off"}))
        chip = load_target(target)
        result = verify(model, chip, artifacts, by_layer=target in COUNTED, by_cycles=cycles_of(chip, 1) is not None)
    except EdgebuildError:
        return None
    rate = round(result["instructions"] / result["macs"], 2)
    cycles = round(result["cycles"] / result["macs"], 2) if "cycles" in result else None
    counted = [layer["instructions"] for layer in result.get("layers", ())]
    layers = layer_rows(model, target, counted) if counted else []
    figures = {"insn_per_mac": rate, "cycles_per_mac": cycles, "code_bytes": result["code_bytes"]}
    return figures | {"equal": result["equal"], "layers": layers}


def layer_rows(model: Path, name: str, counted: list[int]) -> list[dict[str, Any]]:
    """Kernel, estimate and count of each op; per MAC, or in all where there are none."""
    target = load_target(name)
    plan = plan_model(model_request(model, "model", name, {"tile": "off"}), target)
    rows = []
    for step, instructions in zip(plan.steps, counted, strict=True):
        (op,), (form,) = step.ops, step.forms
        kernel = kernel_of(op, plan.graph, form)
        each = ops.nest(op, plan.graph).mac_count or 1
        row = {"kernel": kernel.stem, "variant": kernel.variant, "scratch": kernel.scratch}
        row |= {"weights": sum(c.data.nbytes for c in kernel.constants), "measured": round(instructions / each, 2)}
        if kernel.estimate:
            estimate = kernel.estimate * (step.calls if form.rolled else 1)
            error = round(100 * (estimate / max(instructions, 1) - 1), 1)
            row |= {"estimate": round(estimate / each, 2), "error_percent": error}
        rows.append(row)
    return rows


def single_layers(folder: Path, only: str) -> list[dict[str, Any]]:
    """Print the table of the networks of one layer; its rows."""
    print(f"{'layer, per MAC or per element':32} " + " ".join(f"{t:>11}" for t in COUNTED))
    rows = []
    for name in LAYERS:
        if only not in name:
            continue
        row: dict[str, Any] = {"layer": name, "unit": "element" if name in ELEMENTS else "mac", "targets": {}}
        for target in COUNTED:
            model, chip = written(name, folder), load_target(target)
            result = verify(model, chip, compile_model(model_request(model, "model", target, {"tile": "off"})))
            count = ELEMENTS.get(name) or result["macs"]
            figures = {"insn": round(result["instructions"] / count, 2), "equal": result["equal"]}
            keys = ("code_bytes", "stack_bytes", "arena_bytes", "weights_bytes")
            row["targets"][target] = figures | {key: result[key] for key in keys}
        rows.append(row)
        print(f"{name:32} " + " ".join(f"{row['targets'][t]['insn']:>11}" for t in COUNTED), flush=True)
    return rows


def write(rows: list[dict[str, Any]], name: str) -> None:
    out = ROOT / "build" / "bench" / name
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the models' names")
    parser.add_argument("--layers", action="store_true", help="only the networks of one layer")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = [] if args.layers else whole_models(Path(name), args.only)
        layers = single_layers(Path(name), args.only)
    if args.layers:
        write(layers, "layers.json")
    else:
        write([*rows, *layers], "kernels.json")
    equal = [r["equal"] for row in [*rows, *layers] for r in row["targets"].values() if r is not None]
    return int(not all(equal))


def whole_models(folder: Path, only: str) -> list[dict[str, Any]]:
    """Print the table of the models; its rows."""
    print(f"{'model':22} " + " ".join(f"{t:>11}" for t in TARGETS))
    rows = []
    for model in models(folder):
        if only not in model.stem:
            continue
        figures = {t: measure(model, t) for t in TARGETS}
        for title, key in ((model.stem, "insn_per_mac"), ("  cycles, modelled", "cycles_per_mac")):
            rates = [r[key] if r is not None else None for r in figures.values()]
            print(f"{title:22} " + " ".join(f"{'-' if n is None else n:>11}" for n in rates), flush=True)
        rows.append({"model": model.stem, "targets": figures})
        for target, result in figures.items():
            for r in result["layers"] if result is not None else ():
                error = f"{r['error_percent']:>+7.1f} %" if "error_percent" in r else ""
                print(f"    {target:10} {r['kernel']:32} {r['variant'] or 'portable':22} {r['weights']:>7} B"
                      f" {r['scratch']:>5} B {r['measured']:>9} {r.get('estimate', ''):>8} {error}")  # fmt: skip
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
