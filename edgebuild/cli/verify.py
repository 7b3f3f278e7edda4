"""`edgebuild verify`: run a model in a simulator and compare it with its reference."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from edgebuild.base.options import options_of
from edgebuild.base.request import ModelRequest
from edgebuild.cli.common import add_model_arguments, model_request_of

ONE_DEVICE = ("target", "layers", "cycles", "flash_of", "dma")
CLUSTER = ("devices", "simulate", "faults", "count")
DISTURBED = 100  # inferences


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=False)
    given = "[vectors, ...] in the type of the C interface: a .npy file, or a .npz with an array for each input"
    parser.add_argument("--inputs", type=Path, metavar="F", help=given)
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON; - for standard output")
    moments = "of the DMA model on host: eager, lazy (default) or random:SEED"
    parser.add_argument("--dma", type=_dma_mode, metavar="MODE", help=moments)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the test firmware there")
    parser.add_argument("--layers", action="store_true", help="count the instructions of every step, too")
    parser.add_argument("--cycles", action="store_true", help="model the cycles of the core, too")
    waits = "model the wait states of this target's flash, with --cycles"
    parser.add_argument("--flash-of", metavar="TARGET", help=waits)
    parser.add_argument("--devices", type=int, metavar="N", help="use the first N devices of the cluster")
    parser.add_argument("--simulate", choices=("host", "qemu"), help="of a cluster; default: host")
    parser.add_argument("--faults", type=int, metavar="SEED", help="disturb messages between devices")
    parser.add_argument("--count", type=int, metavar="N", help="of inferences to disturb; default: 100")
    parser.set_defaults(wrong_usage=parser.error)


def _dma_mode(text: str) -> str:
    if not re.fullmatch(r"eager|lazy|random:\d{1,9}", text):
        raise argparse.ArgumentTypeError(f"'{text}' is neither eager nor lazy nor random:SEED")
    return text


def _refuse(args: argparse.Namespace, why: str, *names: Iterable[str]) -> None:
    """End with the usage if one of these options was given, for nobody would read it."""
    given = [name for name in chain(*names) if getattr(args, name) not in (None, False, [])]
    if given:
        args.wrong_usage(f"{why} --{given[0].replace('_', '-')}")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.inputs import check_replaced

    read = [f for f in (args.model, args.inputs, args.cluster, args.target, args.calibration) if f]
    check_replaced([args.json] if args.json and args.json != "-" else [], read)
    if args.cluster is not None and args.device is None:
        _refuse(
            args, "a cluster takes no", ONE_DEVICE, (name for name in options_of(ModelRequest) if name != "cluster")
        )
        return _cluster(args)
    _refuse(args, "only a whole cluster takes", CLUSTER)
    if args.target is None:
        args.wrong_usage("--target or --cluster is required")
    if args.flash_of is not None and not args.cycles:
        args.wrong_usage("--flash-of needs --cycles")
    from edgebuild.base.target import load_target
    from edgebuild.model.compile import compile_model
    from edgebuild.model.formats import bound_file
    from edgebuild.model.verify import verify
    from edgebuild.model.verify.vectors import read_inputs

    inputs = read_inputs(args.inputs) if args.inputs else None
    request = model_request_of(args, "model")
    artifacts = compile_model(request)
    with bound_file(args.model, request.bind) as model:
        result = verify(
            model,
            load_target(args.target),
            artifacts,
            inputs,
            args.keep,
            args.layers,
            args.cycles,
            request.called_library,
            args.dma,
            (request.shape, request.outputs),
            args.flash_of,
        )
    return _tell(args, result, _verdict)


def _tell(args: argparse.Namespace, result: dict[str, Any], verdict: Callable[[dict[str, Any]], str]) -> int:
    from edgebuild.base.artifacts import write_atomic

    text = json.dumps(result, indent=1) + "\n"
    if args.json and args.json != "-":
        write_atomic(Path(args.json), text.encode())
    print(text if args.json == "-" else verdict(result), end="")
    return 0 if result["equal"] else 1


def _cluster(args: argparse.Namespace) -> int:
    from edgebuild.model.cluster.products import ClusterRequest
    from edgebuild.model.verify.cluster import verify_cluster
    from edgebuild.model.verify.vectors import read_inputs

    inputs = read_inputs(args.inputs) if args.inputs else None
    request = ClusterRequest(args.model, Path(args.cluster), "model", args.devices)
    disturbed = (args.faults, args.count or DISTURBED) if args.faults is not None else (0, 0)
    return _tell(args, verify_cluster(request, args.simulate or "host", inputs, disturbed, args.keep), _cluster_verdict)


def _cluster_verdict(r: dict[str, Any]) -> str:
    what = "equal to one device" if r["equal"] else f"DIFFERS from one device, by up to {r['max_abs_diff']}"
    plan = "as planned" if r["as_planned"] else f"planned {r['planned_bytes']}"
    lines = [f"{r['model']} on {len(r['devices'])} devices ({r['simulated']}): {what} ({r['inputs_tried']} inputs)"]
    lines.append(f"  {r['messages']} messages, {r['wire_bytes']} B on the wire, {plan}")
    if "faults" in r:
        f = r["faults"]
        codes = ", ".join(f"{n} {code}" for code, n in f["codes"].items())
        lines.append(f"  {f['injected']} faults: {codes}")
        lines.append(f"  {f['wrong']} wrong, {f['hangs']} hang, {f['not_recovered']} not recovered")
    return "\n".join(lines) + "\n"


def _difference(first: dict[str, Any]) -> list[str]:
    """The first wrong result of a step, in words."""
    by = f"op '{first['op']}' makes" if first["op"] else "another step changes"
    at = ", ".join(map(str, first["index"]))
    return [f"  first: {by} '{first['tensor']}'[{at}] {first['value']:g}, right is {first['right']:g}"]


def _verdict(r: dict[str, Any]) -> str:
    shown = ", ".join(r["compared"][:4]) + (f" and {len(r['compared']) - 4} more" if len(r["compared"]) > 4 else "")
    what = "equal to the reference" if r["equal"] else f"DIFFERS from the reference by up to {r['max_abs_diff']}"
    lines = [f"{r['model']} on {r['target']}: {what} ({r['inputs_tried']} inputs; {shown})"]
    lines += _difference(r["first_difference"]) if r.get("first_difference") else []
    reached = "; {} of {} bounds reached".format(*r["bounds_reached"]) if "bounds_reached" in r else ""
    lines += [f"  judged by {r['judge']}{reached}", *(f"  note: {note}" for note in r.get("notes", ()))]
    sizes = ("arena_bytes", "stack_bytes", "flash_bytes", "code_bytes", "ram_bytes")
    for key in (*sizes, "instructions", "cycles", "macs"):
        if r.get(key) is not None:
            lines.append(f"  {key.replace('_', ' '):13} {r[key]:>12,}")
    counted = ("instructions", "cycles") if "cycles" in r else ("instructions",)
    if "layers" in r:
        names = "".join(f" {name:>13} {'per MAC':>8}" for name in counted)
        lines.append(f"  {'step':>4} {'calls':>6} {'MACs':>11}{names}")
    for i, layer in enumerate(r.get("layers", ())):
        figures = (f"{layer[name] / layer['macs']:.2f}" if layer["macs"] else "" for name in counted)
        numbers = "".join(f" {layer[name]:>13,} {each:>8}" for name, each in zip(counted, figures, strict=True))
        counts = f"{layer['calls']:>6} {layer['macs']:>11,}{numbers}"
        lines.append(f"  {i:>4} {counts}  {', '.join(dict.fromkeys(layer['kinds']))}")
    return "\n".join(lines) + "\n"
