"""`edgebuild verify`: run a model in a simulator and compare it with its reference."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from edgebuild.cli.common import add_model_arguments, model_request_of


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=True)
    parser.add_argument("--inputs", type=Path, metavar="F.npy", help="[vectors, ...] in the type of the C interface")
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON; - for standard output")
    parser.add_argument("--dma", metavar="MODE", help="of the DMA model on host: eager, lazy (default) or random:SEED")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the test firmware there")
    parser.add_argument("--layers", action="store_true", help="count the instructions of every step, too")
    parser.add_argument("--cycles", action="store_true", help="model the cycles of the core, too")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.target import load_target
    from edgebuild.model.compile import compile_model
    from edgebuild.model.verify import read_inputs, verify

    inputs = read_inputs(args.inputs) if args.inputs else None
    request = model_request_of(args, "model")
    artifacts = compile_model(request)
    result = verify(
        args.model,
        load_target(args.target),
        artifacts,
        inputs,
        args.keep,
        args.layers,
        args.cycles,
        request.called_library,
        args.dma,
        (request.shape, request.outputs),
    )
    text = json.dumps(result, indent=1) + "\n"
    if args.json and args.json != "-":
        write_atomic(Path(args.json), text.encode())
    print(text if args.json == "-" else _verdict(result), end="")
    return 0 if result["equal"] else 1


def _verdict(r: dict[str, Any]) -> str:
    shown = ", ".join(r["compared"][:4]) + (f" and {len(r['compared']) - 4} more" if len(r["compared"]) > 4 else "")
    what = "equal to the reference" if r["equal"] else f"DIFFERS from the reference by up to {r['max_abs_diff']}"
    lines = [f"{r['model']} on {r['target']}: {what} ({r['inputs_tried']} inputs; {shown})"]
    sizes = ("arena_bytes", "stack_bytes", "flash_bytes", "code_bytes", "ram_bytes")
    for key in (*sizes, "instructions", "cycles", "macs"):
        if r.get(key) is not None:
            lines.append(f"  {key.replace('_', ' '):13} {r[key]:>12,}")
    if "layers" in r:
        lines.append(f"  {'step':>4} {'calls':>6} {'MACs':>11} {'instructions':>13} {'per MAC':>8}")
    for i, layer in enumerate(r.get("layers", ())):
        each = f"{layer['instructions'] / layer['macs']:.2f}" if layer["macs"] else ""
        numbers = f"{layer['calls']:>6} {layer['macs']:>11,} {layer['instructions']:>13,} {each:>8}"
        lines.append(f"  {i:>4} {numbers}  {', '.join(dict.fromkeys(layer['kinds']))}")
    return "\n".join(lines) + "\n"
