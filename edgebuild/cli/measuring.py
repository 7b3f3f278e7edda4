"""Commands that search or run something and print what it costs.

Of each command there is `NAME(args)`, which returns the exit status; `commands.toml` has its arguments.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from edgebuild.base.artifacts import Artifact, publish, write_atomic
from edgebuild.base.errors import Diagnostic, EdgebuildError, fail
from edgebuild.base.options import parse_size
from edgebuild.base.progress import watch
from edgebuild.base.request import DriverRequest, read_request, requests_in
from edgebuild.base.target import load_target, target_names
from edgebuild.cli.common import check_written, model_request_of, show

if TYPE_CHECKING:
    from edgebuild.build.size import Linked, ProgramSizes


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


def bench(args: argparse.Namespace) -> int:
    from edgebuild.base.options import given
    from edgebuild.base.request import ModelRequest, model_request
    from edgebuild.build.benchmark import as_csv, as_markdown, table
    from edgebuild.model.fitting import chosen_targets

    targets = chosen_targets(args.targets)
    files = [args.output / f"bench.{end}" for end in ("md", "csv", "json")] if args.output else []
    check_written(args, files, [*args.models, *(file for target in targets for file in target.files)])
    watch()
    options = given(args, ModelRequest)
    names = [t.name if t.name in target_names() else str(t.files[0]) for t in targets]
    requests = (model_request(model, "model", name, options) for model in args.models for name in names)
    data = table(requests, args.base)
    texts = (as_markdown(data), as_csv(data), json.dumps(data, indent=1) + "\n")
    if args.output:
        publish([Artifact(file.name, text.encode()) for file, text in zip(files, texts, strict=True)], args.output)
    show(args, texts[0], data)
    return 1 if any(row["equal"] is False for row in data["rows"]) else 0


def reproduce(args: argparse.Namespace) -> int:
    from edgebuild.build.papers import as_text, reproduce

    check_written(args, (), ())
    watch()
    table = reproduce(args.paper)
    show(args, as_text(table), table)
    return 0


BUDGETS = ("flash", "ram", "stack")


def size(args: argparse.Namespace) -> int:
    try:
        return _size(args)
    except EdgebuildError as error:
        if not args.call:
            raise
        from edgebuild.build.check import at_call

        raise at_call(error, args.call, "", "edgebuild_report") from error


def _size(args: argparse.Namespace) -> int:
    import json

    from edgebuild.build.size import as_json, earlier, program_sizes, table

    budgets = {o: parse_size(o, value) for o in BUDGETS if (value := getattr(args, o)) is not None}
    allowed = parse_size("allow", args.allow) if args.allow is not None else 0
    check_written(args, [args.last], [args.elf, args.diff, args.requests])
    program = _program(args)
    sizes = program_sizes(program)
    base = earlier(args.diff, program) if args.diff else None
    rows = as_json(sizes)
    last = earlier(args.last, program) if args.last and args.last.exists() else None
    problems = _over_budget(args, sizes, budgets, last)
    text = f"{table(sizes, base)}\n" if problems or not args.quiet else ""
    more = {"base": as_json(base)} if base else {}
    show(args, text, json.dumps({**rows, **more}, indent=1, sort_keys=True) + "\n")
    if problems:
        raise EdgebuildError(*problems)
    if args.last:
        write_atomic(args.last, (json.dumps(rows, indent=1, sort_keys=True) + "\n").encode())
    if base:
        _check_growth(args, sizes, base, allowed)
    return 0


def _program(args: argparse.Namespace) -> Linked:
    from edgebuild.build.size import Linked

    requests = [read_request(f).request for f in requests_in(args.requests)] if args.requests else []
    drivers = [*args.driver, *(r.name for r in requests if isinstance(r, DriverRequest))]
    targets = dict.fromkeys([args.target] if args.target else [r.target for r in requests])
    memories = load_target(*targets).memories if len(targets) == 1 else ()
    if args.allow is not None and args.diff is None:
        raise fail("--allow says how much may grow since --diff BASE")
    return Linked(args.elf, drivers, memories, args.entry, args.stack_usage, args.objdump)


def _over_budget(
    args: argparse.Namespace, sizes: ProgramSizes, budgets: dict[str, int], last: ProgramSizes | None
) -> list[Diagnostic]:
    """The budgets that do not hold, with what grew and the largest parts."""
    from edgebuild.build.size import TOTAL, growth

    problems = []
    for what, most in budgets.items():
        used = sizes.used(what)
        reasons = sizes.stacks[TOTAL].reasons if what == "stack" else ()
        if used <= most and not reasons:
            continue
        text = f"{what}: {used:,} B, {used - most:,} B over the budget"
        if used <= most:
            text = f"{what}: at least {used:,} B, and no bound: {'; '.join(reasons)}"
        grown = growth(what, sizes, last) if last else []
        hints = [f"grew since it was within the budget: {', '.join(grown)}"] if grown else []
        problems.append(Diagnostic(text, str(args.elf), hints=(*hints, _largest(what, sizes))))
    return problems


def _largest(what: str, sizes: ProgramSizes) -> str:
    from edgebuild.build.size import MOST_NAMED, TOTAL

    bytes_of = {n: b.bytes for n, b in sizes.stacks.items() if n != TOTAL}
    if what != "stack":
        bytes_of = {name: getattr(part, what) for name, part in sizes.parts.items()}
    largest = sorted(bytes_of.items(), key=lambda part: -part[1])[:MOST_NAMED]
    return f"largest: {', '.join(f'{name} {size:,} B' for name, size in largest)}"


def _check_growth(args: argparse.Namespace, sizes: ProgramSizes, base: ProgramSizes, allowed: int) -> None:
    from edgebuild.build.size import growth

    problems = []
    for what in BUDGETS:
        more = sizes.used(what) - base.used(what)
        if more > allowed:
            beyond = f", {allowed:,} B are allowed" if allowed else ""
            hints = (", ".join(growth(what, sizes, base)),)
            problems.append(Diagnostic(f"{what}: {more:+,} B since {args.diff}{beyond}", str(args.elf), hints=hints))
    if problems:
        raise EdgebuildError(*problems)
