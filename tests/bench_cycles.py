"""`./sconsw bench-cycles`: modelled cycles per multiply-accumulate of whole models on every core with a table.

Each layer by itself. Cortex-M4 has three columns: memory without wait states, and kernels for a core that waits, with
lines of 16 and of 8 bytes and five wait states. Below, instructions. Prints tables and writes build/bench/cycles.json.
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
from edgebuild.model.compile import compile_model
from edgebuild.model.kernels import cycles_of
from edgebuild.model.verify import verify
from tests.bench import ROOT, models

WAITS = "m4-flash-model"
COLUMNS = (
    ("M0+", "m0plus-model", None),
    ("M3", "mps2-an385", None),
    ("M4", "mps2-an386", None),
    ("M4, flash of F4", WAITS, "stm32f429"),
    ("M4, flash of L4", WAITS, None),
    ("M7", "mps2-an500", None),
    ("M55", "mps3-an547", None),
    ("RV32", "riscv-virt", None),
)


def measure(model: Path, target: str, flash: str | None, optimize: str) -> dict[str, Any] | None:
    """Per multiply-accumulate; None where the model does not fit."""
    chip, options = load_target(target), {"tile": "off", "optimize": optimize}
    try:
        artifacts = compile_model(model_request(model, "model", target, options))
        result = verify(model, chip, artifacts, by_cycles=cycles_of(chip, 1) is not None, flash_of=flash)
    except EdgebuildError:
        return None
    each = {key: round(result[key] / result["macs"], 3) for key in ("instructions", "cycles") if key in result}
    return each | {"equal": result["equal"], "model": result.get("cycles_model")}


def table(rows: list[dict[str, Any]], key: str) -> str:
    """Markdown: a row for each model, a column for each core that has figures of this kind."""
    names = [name for name, *_ in COLUMNS if any(key in (row["cores"][name] or {}) for row in rows)]
    lines = [f"| {key} per MAC | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for row in rows:
        cells = [str((row["cores"][name] or {}).get(key, "-")) for name in names]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the models' names")
    parser.add_argument("--optimize", default="balanced", choices=("speed", "balanced", "size"))
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in models(Path(folder)):
            if args.only in model.stem:
                cores = {name: measure(model, target, flash, args.optimize) for name, target, flash in COLUMNS}
                rows.append({"name": model.stem, "cores": cores})
                print(table(rows[-1:], "cycles"), flush=True)
    print("\n".join(table(rows, key) for key in ("cycles", "instructions")))
    out = ROOT / "build" / "bench" / "cycles.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=1) + "\n")
    return int(not all(r["equal"] for row in rows for r in row["cores"].values() if r is not None))


if __name__ == "__main__":
    raise SystemExit(main())
