"""The command. Every subcommand imports what it needs when it runs, so that `--help` is quick."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import __version__
from .errors import EdgebuildError, MissingTool, fail

Command = Callable[[argparse.Namespace], int]


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 the input is wrong, 2 wrong usage, 3 a required tool is missing."""
    argv = sys.argv[1:] if argv is None else argv
    asked = next((word for word in argv if not word.startswith("-")), "")
    args = _parser(asked).parse_args(argv)
    try:
        command: Command = args.command
        return command(args)
    except EdgebuildError as error:
        print(error, file=sys.stderr)
        return 3 if isinstance(error, MissingTool) else 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130


def _parser(asked: str) -> argparse.ArgumentParser:
    """`asked`: the command whose arguments are to be read, the first word that is no option."""
    parser = argparse.ArgumentParser("edgebuild", description="Neural networks as build inputs of firmware.")
    parser.add_argument("--version", action="version", version=f"edgebuild {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str) -> argparse.ArgumentParser | None:
        """The parser of the command that is asked for, to be given its arguments; None for all others.

        With nothing asked for, all commands are there by name, for the help and for what is wrong.
        """
        if asked not in ("", name):
            return None
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        return sub if name == asked else None

    if sub := add("model", _model, "compile a model to C for a target"):
        _model_arguments(sub, target_required=True)
        sub.add_argument("--name", help="prefix of functions and files; default: from the file's name")
        sub.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
        sub.add_argument("--depfile", type=Path, help="write what was read, in make's language")
        sub.add_argument("-q", "--quiet", action="store_true", help="print nothing")

    if sub := add("driver", _driver, "generate a driver and its register layout from sources in the bfGroup dialect"):
        from .drivers.command import add_arguments as driver_arguments

        driver_arguments(sub)

    if sub := add("verify", _verify, "build a test firmware, run it, compare with the model's reference interpreter"):
        _model_arguments(sub, target_required=True)
        sub.add_argument("--inputs", type=Path, metavar="F.npy", help="[vectors, ...] in the type of the C interface")
        sub.add_argument("--json", metavar="FILE", help="write the result as JSON; - for standard output")
        sub.add_argument("--keep", type=Path, metavar="DIR", help="keep the test firmware there")
        sub.add_argument("--layers", action="store_true", help="count the instructions of every step, too")

    if sub := add("layout", _layout, "solve a memory layout problem from a file with columns id,lower,upper,size"):
        sub.add_argument("file", type=Path)
        sub.add_argument("--capacity", help="decide whether it fits, instead of looking for the least height")
        sub.add_argument("-o", "--output", type=Path, metavar="OUT.csv", help="the offsets found")
        sub.add_argument("--time-limit", type=float, metavar="S")

    if sub := add("clock", _clock, "list a chip's clock configurations and write the C that switches between them"):
        sub.add_argument("--target", required=True, help="a name that `edgebuild targets` lists, or a YAML file")
        sub.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
        sub.add_argument("--hse", metavar="HZ", help="the board's external clock, as 8000000 or 8MHz")
        sub.add_argument("--sysclk", metavar="HZ,...", help="the clocks to switch between; default: the tree's")
        sub.add_argument(
            "--calibration", metavar="F", help="currents in the table as `edgebuild calibrate` fitted them"
        )
        sub.add_argument("--explain", metavar="M,N,P", help="only say why a PLL setting is legal or not")
        sub.add_argument("--depfile", type=Path, help="write what was read, in make's language")

    if sub := add(
        "calibrate", _calibrate, "build a firmware that measures a model's steps, or fit the cost model to that"
    ):
        _model_arguments(sub, target_required=True)
        sub.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
        sub.add_argument("--pin", metavar="PIN", help="a pin to be high while a step runs, as PB0")
        sub.add_argument(
            "--supply-ms", type=int, default=0, metavar="MS", help="run so long in each clock, the pin high"
        )
        sub.add_argument("--fit", type=Path, metavar="F", help="measurements, CSV or JSON; writes calibration.yaml")
        sub.add_argument(
            "--supply-log", type=Path, metavar="F.csv", help="with --fit: columns ma and pin, as of an INA219"
        )

    if sub := add("inspect", _inspect, "print a model as edgebuild sees it, and what was tiled and why"):
        _model_arguments(sub, target_required=False)
        sub.add_argument("--after", default="plan", metavar="STAGE", help="import, one of the passes' stages, or plan")
        sub.add_argument("--tiling", action="store_true", help="say what was tiled, and what the next limit is")
        sub.add_argument(
            "--energy", action="store_true", help="say which clock each layer runs at, and what that saves"
        )
        sub.add_argument("--picture", type=Path, metavar="F.svg", help="draw the arena over time")
        sub.add_argument("--pareto", type=Path, metavar="F.svg", help="draw memory against time of all ways to run it")
        sub.add_argument("--scale", metavar="BYTES", help="what the picture's height stands for; default: the arena")

    add("ops", _ops, "list the supported operators and their limits")
    if sub := add("targets", _targets, "list the targets, or show one"):
        sub.add_argument("name", nargs="?")
        sub.add_argument("--json", action="store_true", help="compiler, flags, sources and runner, for build systems")

    if sub := add("tune", _tune, "measure variants of the heaviest kernels in the simulator, for later compilations"):
        _model_arguments(sub, target_required=False, nargs="?")
        sub.add_argument("--clear", action="store_true", help="forget all that was measured")

    if sub := add("run", _run, "do what a request file of a build system asks"):
        sub.add_argument("request", type=Path)
    if sub := add("cache", _cache, "the cache of compiled models: where it is and how large, or clear it"):
        sub.add_argument("action", nargs="?", choices=("show", "clear"), default="show")
    add("cmake-dir", _cmake_dir, "print the folder of the CMake package")
    if sub := add("cmake-module", _cmake_module, "write a FindEdgeBuild.cmake to keep in a project"):
        sub.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR")
    return parser if commands.choices else _parser("")


def _model_arguments(sub: argparse.ArgumentParser, target_required: bool, nargs: str | None = None) -> None:
    from .request import ARENAS, BACKENDS, OBJECTIVES, OPTIMIZE, TILINGS, WEIGHTS

    sub.add_argument("model", type=Path, nargs=nargs, help="a .tflite or .onnx file")
    sub.add_argument("--target", required=target_required, help="a name that `edgebuild targets` lists, or a YAML file")
    sub.add_argument("--objective", choices=OBJECTIVES)
    sub.add_argument("--tile", choices=TILINGS)
    sub.add_argument("--max-mac-overhead", metavar="PERCENT", help="of the MACs, that may be computed twice")
    sub.add_argument("--ram", metavar="BYTES", help="largest arena, as 16384, 0x4000 or 16K")
    sub.add_argument("--stream-input", choices=("rows",), help="the application pushes rows; the input is never whole")
    sub.add_argument("--qos", metavar="MS", help="time for one inference")
    sub.add_argument("--arena", choices=ARENAS, help="caller: every function takes the arena as argument")
    sub.add_argument("--weights", choices=WEIGHTS, help="asm: .incbin; c: string literals")
    sub.add_argument("--optimize", choices=OPTIMIZE, help="kernels: fewer instructions or less code")
    sub.add_argument("--portable", action="store_true", default=None, help="kernels in plain C alone")
    sub.add_argument("--backend", choices=BACKENDS, help="cmsis-nn: its kernels too, where they are better")
    sub.add_argument("--cmsis-nn", metavar="DIR", help="where CMSIS-NN is")
    sub.add_argument("--hse", metavar="HZ", help="the board's external clock, as 8000000 or 8MHz")
    sub.add_argument("--calibration", metavar="F", help="what `edgebuild calibrate` fitted to measurements")
    sub.add_argument("--time-limit", metavar="S", help="for solvers; without it results are reproducible")


def _request(args: argparse.Namespace, name: str) -> Any:
    from .choices import with_choices
    from .request import MODEL_OPTIONS, model_request

    return with_choices(model_request(args.model, name, args.target, {o: getattr(args, o) for o in MODEL_OPTIONS}))


def _model(args: argparse.Namespace) -> int:
    from .artifacts import publish, write_atomic
    from .compile import compile_model
    from .doors import code_files
    from .emit.names import identifier
    from .progress import watch
    from .run import depfile
    from .summary import summary
    from .target import load_target

    if not args.quiet:
        watch()
    request = _request(args, args.name or identifier(args.model.stem))
    artifacts = compile_model(request)
    publish(artifacts, args.output)
    if args.depfile:
        read = [*map(str, request.files), *load_target(request.target).files, *code_files()]
        write_atomic(args.depfile, depfile(str(args.output / artifacts[0].name), read).encode())
    if not args.quiet:
        print(summary(artifacts))
    return 0


def _driver(args: argparse.Namespace) -> int:
    from .drivers.command import driver

    def depfile(target: str, read: list[str]) -> str:
        from .run import depfile

        return depfile(target, read)

    return driver(args, depfile)


def _verify(args: argparse.Namespace) -> int:
    from .compile import compile_model
    from .target import load_target
    from .verify import verify

    inputs = None
    if args.inputs:
        import numpy as np

        inputs = np.load(args.inputs)
    request = _request(args, "model")
    artifacts = compile_model(request)
    result = verify(
        args.model, load_target(args.target), artifacts, inputs, args.keep, args.layers, request.called_library
    )
    text = json.dumps(result, indent=1) + "\n"
    if args.json and args.json != "-":
        Path(args.json).write_text(text)
    print(text if args.json == "-" else _verdict(result), end="")
    return 0 if result["equal"] else 1


def _verdict(r: dict[str, Any]) -> str:
    shown = ", ".join(r["compared"][:4]) + (f" and {len(r['compared']) - 4} more" if len(r["compared"]) > 4 else "")
    what = "equal to the reference" if r["equal"] else f"DIFFERS from the reference by up to {r['max_abs_diff']}"
    lines = [f"{r['model']} on {r['target']}: {what} ({r['inputs_tried']} inputs; {shown})"]
    for key in ("arena_bytes", "stack_bytes", "flash_bytes", "code_bytes", "ram_bytes", "instructions", "macs"):
        if r.get(key) is not None:
            lines.append(f"  {key.replace('_', ' '):13} {r[key]:>12,}")
    if "layers" in r:
        lines.append(f"  {'step':>4} {'calls':>6} {'MACs':>11} {'instructions':>13} {'per MAC':>8}")
    for i, layer in enumerate(r.get("layers", ())):
        each = f"{layer['instructions'] / layer['macs']:.2f}" if layer["macs"] else ""
        numbers = f"{layer['calls']:>6} {layer['macs']:>11,} {layer['instructions']:>13,} {each:>8}"
        lines.append(f"  {i:>4} {numbers}  {', '.join(dict.fromkeys(layer['kinds']))}")
    return "\n".join(lines) + "\n"


def _layout(args: argparse.Namespace) -> int:
    from .memory.csvfile import solve_file
    from .request import parse_size

    capacity = parse_size("capacity", args.capacity) if args.capacity is not None else None
    return solve_file(args.file, capacity, args.output, args.time_limit)


def _clock(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from .artifacts import publish, write_atomic
    from .doors import code_files
    from .emit.clock import clock_files, requested_plan, target_tree
    from .energy.calibrate import calibrated, read_calibration
    from .energy.configs import check_hse, explain, parse_setting
    from .energy.table import table
    from .request import clock_request
    from .run import depfile
    from .target import load_target

    request = clock_request("clocks", args.target, {"hse": args.hse, "sysclk": args.sysclk})
    if args.explain is not None:
        tree = target_tree(load_target(args.target))
        setting, hse = parse_setting(args.explain), request.hse or tree.hse.default_hz
        check_hse(tree, hse)
        print(explain(tree, hse, *setting))
        return 0
    plan = requested_plan(request)
    known = read_calibration(Path(args.calibration), plan.tree) if args.calibration else None
    shown = replace(plan, tree=calibrated(plan.tree, known)) if known else plan
    print(table(shown, known.placement if known else None), end="")
    artifacts = clock_files(plan)
    publish(artifacts, args.output)
    if args.depfile:
        read = [*load_target(args.target).files, *code_files()]
        write_atomic(args.depfile, depfile(str(args.output / artifacts[0].name), read).encode())
    return 0


def _calibrate(args: argparse.Namespace) -> int:
    from .calibrate import fitted, profile

    request = _request(args, "model")
    if args.supply_ms < 0 or (args.supply_log and not args.fit):
        raise fail("--supply-ms is 0 or more, and --supply-log goes with --fit")
    if args.fit:
        print(fitted(request, args.fit, args.supply_log, args.output), end="")
    else:
        print(profile(request, args.output, args.pin, args.supply_ms), end="")
    return 0


def _inspect(args: argparse.Namespace) -> int:
    from .artifacts import write_atomic
    from .compile import inspect, inspect_plan
    from .request import parse_size

    args.target = args.target or "host"
    if args.after != "plan":
        print(inspect(args.model, args.after), end="")
        return 0
    scale = parse_size("scale", args.scale) if args.scale is not None else None
    args.objective = "energy" if args.energy else args.objective
    text, picture, trade = inspect_plan(_request(args, "model"), args.tiling, scale, args.energy)
    print(text, end="")
    for file, drawn in ((args.picture, picture), (args.pareto, trade)):
        if file:
            write_atomic(file, drawn.encode())
    return 0


def _ops(args: argparse.Namespace) -> int:
    from .ops import SPECS

    for kind, spec in sorted(SPECS.items()):
        print(kind)
        for format_, names in (("TFLite", spec.tflite), ("ONNX", spec.onnx)):
            if names:
                print(f"  {format_}: {', '.join(sorted(names))}")
        for limit in spec.limits:
            print(f"  - {' '.join((limit.__doc__ or '').split())}")
    print(
        "ONNX also: QuantizeLinear, DequantizeLinear, BatchNormalization; on constants: Shape, Cast, Slice and others"
    )
    return 0


def _targets(args: argparse.Namespace) -> int:
    from .firmware import describe
    from .target import load_target, target_names

    if not args.name:
        for name in target_names():
            print(f"{name:12} {load_target(name).description}")
        return 0
    target = load_target(args.name)
    if args.json:
        print(json.dumps(describe(target), indent=1))
        return 0
    print(f"{target.name}: {target.description}\n  {target.core.isa} {' '.join(target.core.features)}")
    for m in target.memories:
        print(f"  {m.name:8} {m.size:>12,} B at {m.origin:#010x}  {', '.join(m.roles)}")
    return 0


def _run(args: argparse.Namespace) -> int:
    from .run import run

    return run(args.request)


def _tune(args: argparse.Namespace) -> int:
    from . import choices
    from .tune import tune

    if args.clear:
        print(f"forgot the choices for {choices.clear()} kinds of processors")
        return 0
    if args.model is None or args.target is None:
        print("usage: edgebuild tune MODEL --target TARGET, or edgebuild tune --clear", file=sys.stderr)
        return 2
    tune(_request(args, "model"))
    return 0


def _cache(args: argparse.Namespace) -> int:
    from . import cache

    if args.action == "clear":
        print(f"removed {cache.clear()} entries")
        return 0
    found = list(cache.entries())
    size = sum(file.stat().st_size for entry in found for file in entry.iterdir())
    print(f"{cache.folder() or 'off'}: {len(found)} entries, {size:,} B")
    return 0


def _cmake_dir(args: argparse.Namespace) -> int:
    from .doors import cmake_dir

    print(cmake_dir())
    return 0


def _cmake_module(args: argparse.Namespace) -> int:
    from .doors import write_cmake_module

    write_cmake_module(args.output)
    return 0
