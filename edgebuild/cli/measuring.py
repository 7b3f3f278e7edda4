"""Commands that search or run something and print what it costs.

Of each command there is `NAME(args)`, which returns the exit status; `commands.toml` has its arguments.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.base.errors import fail
from edgebuild.base.options import parse_size
from edgebuild.base.progress import watch
from edgebuild.base.target import load_target
from edgebuild.cli.common import check_written, model_request_of, show


def map(args: argparse.Namespace) -> int:
    from edgebuild.model.mapping import as_json, as_text, map_layers

    target = load_target(args.target)
    check_written(args, (), [args.source, *target.files])
    mapping = map_layers(args.source, target, args.search, args.limit, args.objective, args.scales or "file")
    show(args, as_text(mapping), as_json(mapping, target, args.search, args.objective))
    return 0


def layout(args: argparse.Namespace) -> int:
    from edgebuild.model.plan.memory.layout import solve_file, words

    capacity = parse_size("capacity", args.capacity) if args.capacity is not None else None
    check_written(args, (), [args.file])
    result = solve_file(args.file, capacity, args.output, args.time_limit)
    if result is None:
        return 1
    figures = {name: getattr(result, name) for name in ("height", "bound", "optimal", "method")}
    show(args, words(result), figures)
    return 0


def tune(args: argparse.Namespace) -> int:
    from edgebuild.model import choices
    from edgebuild.model.verify.tune import CYCLES, INSTRUCTIONS, tune

    if args.clear:
        count = choices.clear()
        show(args, f"forgot the choices for {count} kinds of processors\n", {"forgotten": count})
        return 0
    if args.model is None or args.target is None:
        args.wrong_usage("name a model and --target, or give --clear")
    by, lines = CYCLES if args.cycles else INSTRUCTIONS, list[str]()
    chosen = tune(model_request_of(args, "model"), lines.append, by, args.scheduler)
    show(args, "".join(f"{line}\n" for line in lines), {"by": by, "choices": chosen})
    return 0


def calibrate(args: argparse.Namespace) -> int:
    from edgebuild.model.verify.calibrate import fitted, profile, profile_words

    request = model_request_of(args, "model")
    if args.supply_ms < 0 or (args.supply_log and not args.fit):
        raise fail("--supply-ms is 0 or more, and --supply-log goes with --fit")
    check_written(args, (), [args.model, args.fit, args.supply_log])
    if args.fit:
        show(args, *fitted(request, args.fit, args.supply_log, args.output))
    else:
        figures = profile(request, args.output, args.pin, args.supply_ms)
        show(args, profile_words(figures), figures)
    return 0


def simulate(args: argparse.Namespace) -> int:
    import os
    import subprocess
    import sys
    import tempfile

    from edgebuild.base.programs import together
    from edgebuild.model.verify.harness import xpulp_simulator

    if not args.program.is_file():
        raise fail("no such program", file=str(args.program))
    check_written(args, (), [args.program])
    with tempfile.TemporaryDirectory(prefix="edgebuild-simulate-") as name:
        simulator, counts = xpulp_simulator(Path(name)), Path(name) / "counts"
        sys.stdout.flush()
        with together() as start:
            own = sys.stderr if args.json == "-" else None  # where the program's lines go
            words = [simulator, args.encoding, args.program, str(args.cores)]
            environment = {**os.environ, "XPULP_COUNTS": str(counts)}
            status = int(start(words, stdin=subprocess.DEVNULL, stdout=own, env=environment).wait())
        lines = counts.read_text(encoding="utf-8").splitlines() if counts.exists() else []
    cores = [dict(zip(("instructions", "cycles"), [int(word) for word in line.split()], strict=True)) for line in lines]
    if args.json:
        show(args, "", {"status": status, "cores": cores})
    elif cores:
        text = f"{sum(c['instructions'] for c in cores):,} instructions, {max(c['cycles'] for c in cores):,} cycles"
        print(f"[edgebuild] {args.program.name}: {text}", file=sys.stderr)
    return status


def reproduce(args: argparse.Namespace) -> int:
    from edgebuild.build.papers import as_text, reproduce

    check_written(args, (), ())
    watch()
    table = reproduce(args.paper)
    show(args, as_text(table), table)
    return 0
