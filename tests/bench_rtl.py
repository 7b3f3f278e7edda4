"""`./sconsw bench-rtl`: generated firmware on the RTL of a core, and the model of its cycles beside it.

Builds a simulator of VexRiscv with Verilator in build/rtl, from the Verilog that the Python package
`pythondata-cpu-vexriscv` ships, which is downloaded. Every network must give the bytes of its reference there, and
execute as many instructions as in QEMU. Prints a table and writes build/bench/rtl.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import hal_dir, load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.bench import ROOT, models

PACKAGE, VERSION = "pythondata-cpu-vexriscv", "1.0.1.post407"
FOLDER = ROOT / "build" / "rtl"
CORE, RTL, MODEL = "VexRiscv_IMAC", "vexriscv", "vexriscv-model"
FLAGS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal", "-Wno-lint", "-CFLAGS", "-O2")


class Unavailable(Exception):
    """Something that the simulator needs is not there."""


def simulator(core: str = CORE, name: str = RTL, verilog: Sequence[Path] = ()) -> Path:
    """The folder with the program `name`, which is built where it is older than its sources. Raises Unavailable.

    `verilog`: what stands beside the core, with a module VexRiscvTop around both.
    """
    sources, folder = [hal_dir() / "rtl" / "vexriscv.cpp", *verilog], FOLDER / f"{core}-{name}"
    program = folder / name
    if program.is_file() and all(program.stat().st_mtime > source.stat().st_mtime for source in sources):
        return folder
    if shutil.which("verilator") is None:
        raise Unavailable("verilator is not installed: apt-get install verilator")
    command = [
        "verilator",
        "--cc",
        "--exe",
        "--build",
        *FLAGS,
        "--top-module",
        "VexRiscvTop" if verilog else "VexRiscv",
        "--prefix",
        "VVexRiscv",
        str(_verilog(core)),
        *map(str, sources),
    ]
    done = subprocess.run([*command, "--Mdir", str(folder), "-o", name], capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"verilator failed: {done.stderr.strip()[-500:]}")
    return folder


def _verilog(core: str) -> Path:
    """The core's file, of the downloaded package."""
    folder = FOLDER / f"{PACKAGE}-{VERSION}"
    if not folder.is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target"]
        done = subprocess.run([*command, str(folder), f"{PACKAGE}=={VERSION}"], capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            raise Unavailable(f"pip install {PACKAGE}: {done.stderr.strip()[-300:]}")
    return next(folder.rglob(f"{core}.v"))


def measure(model: Path) -> dict[str, Any] | None:
    """A row; None where the model does not fit. Cycles are of one program that runs on both, layer by layer."""
    runs = {}
    for name in (RTL, MODEL):
        target = load_target(name)
        try:
            artifacts = compile_model(model_request(model, "model", name, {"tile": "off"}))
            runs[name] = verify(model, target, artifacts, by_cycles=name == MODEL, by_layer=True)
        except EdgebuildError as error:
            print(f"{model.stem}: {error}", file=sys.stderr)
            return None
    counted, modelled = runs[RTL], runs[MODEL]
    pairs = zip(counted["layers"], modelled["layers"], strict=True)
    return {
        "core": CORE,
        "model": model.stem,
        "macs": counted["macs"],
        "instructions": counted["instructions"],
        "cycles": sum(layer["cycles"] for layer in counted["layers"]),
        "modelled": sum(layer["cycles"] for layer in modelled["layers"]),
        "equal": counted["equal"] and modelled["equal"] and counted["instructions"] == modelled["instructions"],
        "layers": [
            {"kinds": c["kinds"], "macs": c["macs"], "cycles": c["cycles"], "modelled": m["cycles"]} for c, m in pairs
        ],
    }


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| network | instructions per MAC | cycles per MAC on the RTL | modelled | error | equal |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        per = [f"{row[key] / row['macs']:.2f}" for key in ("instructions", "cycles", "modelled")]
        error = f"{row['modelled'] / row['cycles'] - 1:+.1%}"
        lines.append(f"| {row['model']} | {' | '.join(per)} | {error} | {'yes' if row['equal'] else 'NO'} |")
    return "\n".join(lines)


def layers_table(row: dict[str, Any]) -> str:
    """Markdown: the layers of one network."""
    lines = ["| layer | MACs | cycles on the RTL | modelled | error |", "|---|---|---|---|---|"]
    for n, layer in enumerate(row["layers"]):
        counts = f"{layer['macs']:,} | {layer['cycles']:,} | {layer['modelled']:,}"
        error = f"{layer['modelled'] / layer['cycles'] - 1:+.1%}" if layer["cycles"] else "-"
        lines.append(f"| {n} {'+'.join(layer['kinds'])} | {counts} | {error} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the models' names")
    parser.add_argument("--layers", action="store_true", help="every layer of each network, too")
    args = parser.parse_args()
    try:
        os.environ["PATH"] = f"{simulator()}{os.pathsep}{os.environ['PATH']}"
    except Unavailable as missing:
        print(f"bench-rtl: {missing}", file=sys.stderr)
        return 3
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in models(Path(folder)):
            row = measure(model) if args.only in model.stem else None
            if row is not None:
                rows.append(row)
                print(table(rows[-1:]), flush=True)
                if args.layers:
                    print(layers_table(row), flush=True)
    print(table(rows))
    out = ROOT / "build" / "bench" / "rtl.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return int(not rows or not all(row["equal"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
