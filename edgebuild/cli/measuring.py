"""Commands that search or run something and print what it costs.

Of each command there is `NAME_arguments(parser)`, and `NAME(args)`, which returns the exit status.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.base.errors import fail
from edgebuild.cli.common import add_json, add_model_arguments, json_file, model_request_of, show


def map_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="FILE|MODEL", help="YAML `layers:`, or a .tflite or .onnx file")
    parser.add_argument("--target", required=True, help="a name that `edgebuild targets` lists, or a YAML file")
    parser.add_argument("--search", default="exact", metavar="METHOD", help="exact, dory or loma:N; default: exact")
    parser.add_argument("--limit", metavar="NAME=BYTES,...", help="leave that much of a memory, as activations=24K")
    add_json(parser)


def map(args: argparse.Namespace) -> int:
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.target import load_target
    from edgebuild.model.mapping import as_json, as_text, map_layers

    target = load_target(args.target)
    check_replaced(json_file(args), [args.source, *target.files])
    mapping = map_layers(args.source, target, args.search, args.limit)
    show(args, as_text(mapping), as_json(mapping, target, args.search))
    return 0


def layout_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a table of buffers: id, first step, the step behind the last, bytes")
    parser.add_argument("--capacity", help="decide whether it fits, instead of looking for the least height")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.csv", help="the offsets found")
    add_json(parser)
    parser.add_argument("--time-limit", type=float, metavar="S", help="of the solver; default: until it is optimal")


def layout(args: argparse.Namespace) -> int:
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.options import parse_size
    from edgebuild.model.plan.memory.layout import solve_file, words

    capacity = parse_size("capacity", args.capacity) if args.capacity is not None else None
    check_replaced(json_file(args), [args.file])
    result = solve_file(args.file, capacity, args.output, args.time_limit)
    if result is None:
        return 1
    figures = {name: getattr(result, name) for name in ("height", "bound", "optimal", "method")}
    show(args, words(result), figures)
    return 0


def tune_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=False, nargs="?")
    parser.add_argument("--cycles", action="store_true", help="compare modelled cycles, not instructions: slower")
    parser.add_argument("--clear", action="store_true", help="forget all that was measured")
    add_json(parser)
    parser.set_defaults(wrong_usage=parser.error)


def tune(args: argparse.Namespace) -> int:
    from edgebuild.model import choices
    from edgebuild.model.verify.tune import CYCLES, INSTRUCTIONS, tune

    if args.clear:
        print(f"forgot the choices for {choices.clear()} kinds of processors")
        return 0
    if args.model is None or args.target is None:
        args.wrong_usage("name a model and --target, or give --clear")
    by, lines = CYCLES if args.cycles else INSTRUCTIONS, list[str]()
    chosen = tune(model_request_of(args, "model"), lines.append, by)
    show(args, "".join(f"{line}\n" for line in lines), {"by": by, "choices": chosen})
    return 0


def calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=True)
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    parser.add_argument("--pin", metavar="PIN", help="a pin to be high while a step runs, as PB0")
    parser.add_argument(
        "--supply-ms", type=int, default=0, metavar="MS", help="run so long in each clock, the pin high"
    )
    parser.add_argument("--fit", type=Path, metavar="F", help="measurements, CSV or JSON; writes calibration.yaml")
    parser.add_argument(
        "--supply-log", type=Path, metavar="F.csv", help="with --fit: columns ma and pin, as of an INA219"
    )


def calibrate(args: argparse.Namespace) -> int:
    from edgebuild.model.verify.calibrate import fitted, profile

    request = model_request_of(args, "model")
    if args.supply_ms < 0 or (args.supply_log and not args.fit):
        raise fail("--supply-ms is 0 or more, and --supply-log goes with --fit")
    if args.fit:
        print(fitted(request, args.fit, args.supply_log, args.output), end="")
    else:
        print(profile(request, args.output, args.pin, args.supply_ms), end="")
    return 0


def simulate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("encoding", choices=("corev", "gap8"), help="of XpulpV2: CV32E40P 1.x, or RI5CY as in GAP8")
    parser.add_argument("program", type=Path, metavar="ELF", help="the program, whose file calls see this folder")
    parser.add_argument("--cores", type=int, default=1, metavar="N", help="of a PULP cluster: 1 to 16 (default: 1)")


def simulate(args: argparse.Namespace) -> int:
    import subprocess
    import sys
    import tempfile

    from edgebuild.base.errors import fail
    from edgebuild.base.programs import together
    from edgebuild.model.verify.harness import xpulp_simulator

    if not args.program.is_file():
        raise fail("no such program", file=str(args.program))
    with tempfile.TemporaryDirectory(prefix="edgebuild-simulate-") as name:
        simulator = xpulp_simulator(Path(name))
        sys.stdout.flush()
        with together() as start:
            program = start([simulator, args.encoding, args.program, str(args.cores)], stdin=subprocess.DEVNULL)
            return int(program.wait())


PAPERS = ("fdt", "dory", "zigzag", "daedvfs", "deeperthings", "drivers")


def reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paper", choices=PAPERS, help="fdt, deeperthings and drivers: Stahl; the others by their names")
    add_json(parser)


def reproduce(args: argparse.Namespace) -> int:
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.progress import watch
    from edgebuild.build.papers.paper_tables import as_text, reproduce

    check_replaced(json_file(args), [])
    watch()
    table = reproduce(args.paper)
    show(args, as_text(table), table)
    return 0
