"""Commands that search for plans, or run programs, and print costs; `verify` compares a model with its reference.

Each command is a function `NAME(args)`, which returns the exit status; `commands.toml` has its arguments.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.artifacts import Artifact, publish, write_atomic
from ..base.errors import Diagnostic, EdgebuildError, fail
from ..base.options import checked, given, options_of, parse_size
from ..base.progress import watch
from ..base.request import READING, DriverRequest, GroupRequest, ModelRequest, read_request, requests_in
from ..base.target import Runner, Target, load_target, target_names
from ..base.text import by_reason
from .common import check_written, model_request_of, show

if TYPE_CHECKING:
    from ..build.size import Linked, ProgramSizes

EXPECTED = ("labels", "min_accuracy", "max_instructions")
ONE_DEVICE = (
    "target",
    "layers",
    "all",
    "cycles",
    "flash_of",
    "dma",
    "on_engine",
    "port",
    "data",
    "reference",
    *EXPECTED,
)
CLUSTER = ("devices", "simulate", "faults", "count")
DISTURBED = 100  # default number of inferences with injected faults


def _refuse(args: argparse.Namespace, why: str, *names: Iterable[str]) -> None:
    """Exit with a usage error if one of these options is given, since it would have no effect."""
    unread = [name for name in chain(*names) if getattr(args, name) not in (None, False, [])]
    if unread:
        args.wrong_usage(f"{why} --{unread[0].replace('_', '-')}")


def verify(args: argparse.Namespace) -> int:
    samples = (args.data, args.labels, args.reference)
    check_written(args, (), [args.model, args.inputs, args.cluster, args.target, args.calibration, *samples])
    if args.cluster is not None and args.device is None:
        others = (name for name in options_of(ModelRequest) if name not in ("cluster", *READING))
        _refuse(args, "a cluster takes no", ONE_DEVICE, others)
        return _cluster(args)
    _refuse(args, "only a whole cluster takes", CLUSTER)
    if args.flash_of is not None and not args.cycles:
        args.wrong_usage("--flash-of needs --cycles")
    _check_samples(args)
    requests = _requests(args)
    results = [_verified(args, request) for request in requests]
    result = results[0] if len(results) == 1 else {"equal": all(r["equal"] for r in results), "models": results}
    show(args, "".join(_verdict(r, args.all) for r in results), result)
    if problems := [problem for r in results for problem in _missed(args, r)]:
        raise EdgebuildError(*problems)
    if args.on_engine and not any(row["layers"] for r in results for row in r.get("engines", ())):
        text, core = f"no layer runs on an engine of {results[0]['target']}", results[0].get("core", ())
        raise fail(text, file=str(args.model), hints=by_reason(core))
    return 0 if result["equal"] else 1


def _verified(args: argparse.Namespace, request: ModelRequest) -> dict[str, Any]:
    """Build and run the test firmware of one model; returns its figures and its verdict."""
    from ..build.check import check_tested
    from ..model.compile import compile_model
    from ..model.formats import bound_file
    from ..model.verify import verify
    from ..model.verify.vectors import read_inputs

    inputs = read_inputs(args.inputs) if args.inputs else None
    target = _on_board(args, load_target(request.target))
    check_tested(target, args.max_instructions is not None)
    artifacts = compile_model(request)
    with bound_file(request.source, request.bind) as model:
        result = verify(
            model,
            target,
            artifacts,
            inputs,
            args.keep,
            args.layers,
            args.cycles,
            request.called_library,
            args.dma,
            (request.shape, request.outputs),
            args.flash_of,
            args.labels if args.data is None else None,
            args.all,
        )
    if args.data is not None:
        from ..model.quantizer import against_float

        samples = (args.data, args.labels, args.reference)
        result |= against_float(request.source, target, artifacts, *samples, request.called_library)
    return result


def _on_board(args: argparse.Namespace, target: Target) -> Target:
    """The target, with the board at `--port` as its runner if that is given. Raises EdgebuildError."""
    from ..model.verify.harness import opened

    port = args.port or (target.runner.port if target.runner else "")
    if not port:
        return target
    if target.firmware is None:
        raise fail(f"target {target.name} is no board", hints=["name the board, or a YAML file that inherits its chip"])
    if args.board_io is None and not (target.runner and target.runner.port):
        args.wrong_usage("--port needs --board-io F.c, the functions of eb_serial.h for the board")
    with opened(port):  # before anything is compiled
        pass
    files = ("src/serial_files.c", str(args.board_io.resolve())) if args.board_io else ()
    stated = target.runner if target.runner is not None and not files else Runner((), files)
    command = tuple(shlex.split(args.flash_with)) if args.flash_with else stated.command
    counter = "the board's mcycle" if target.core.isa.startswith("rv") else "the board's SysTick, at the core's clock"
    return replace(target, runner=replace(stated, command=command, port=port, tick_hz=0, cycles=counter))


def _check_samples(args: argparse.Namespace) -> None:
    """Exit with a usage error if an option lacks another one that it needs."""
    if args.port is None and (args.board_io or args.flash_with):
        args.wrong_usage("--board-io and --flash-with need --port")
    if args.labels is None and args.min_accuracy is not None:
        args.wrong_usage("--min-accuracy needs --labels")
    if args.labels is not None and (args.inputs is None) == (args.data is None):
        args.wrong_usage("--labels needs one of --inputs and --data")
    if args.reference is not None and args.data is None:
        args.wrong_usage("--reference needs --data")
    if args.data is not None and not (args.labels or args.reference):
        args.wrong_usage("--data needs --labels or --reference")


def _requests(args: argparse.Namespace) -> list[ModelRequest]:
    """The request of the command line, or of a build system's request file, for its target or for `--target`.

    For a group, the requests of all models, each with its own arena, since the harness has one model.
    """
    if not args.model.name.endswith(".req.json"):
        if args.target is None:
            args.wrong_usage("--target or --cluster is required")
        asked = model_request_of(args, "model")
        return [replace(asked, arena="static") if asked.arena == "shared" else asked]
    from ..model.choices import with_choices

    _refuse(args, "the request has the options, so there is no", options_of(ModelRequest))
    request = read_request(args.model).request
    given_models = request.models if isinstance(request, GroupRequest) else (request,)
    models = [m for m in given_models if isinstance(m, ModelRequest) and m.cluster is None]
    if len(models) < len(given_models):
        raise fail("not the request of a whole model", file=str(args.model))
    if len(models) > 1:
        _refuse(args, "a group has several models, and takes no", ("inputs", "data", "labels", "reference", "keep"))
    target = args.target or request.target
    plain = [replace(m, arena="static") if m.arena == "shared" else m for m in models]
    return [with_choices(replace(m, name="model", target=target)) for m in plain]


def _missed(args: argparse.Namespace, result: dict[str, Any]) -> list[Diagnostic]:
    """Diagnostics for expectations that the model misses: accuracy, AUC, instructions."""
    missed = []
    if result.get("accuracy", 1) < (args.min_accuracy or 0):
        of = result["samples"]
        count = round(result["accuracy"] * of)
        missed.append(f"accuracy {count / of:.4f}, {count} of {of} labels; {args.min_accuracy:g} is expected")
    if result.get("auc", 1) < (args.min_accuracy or 0):
        missed.append(f"AUC {result['auc']:.4f}; {args.min_accuracy:g} is expected")
    if args.max_instructions is not None and (counted := result["instructions"]) > args.max_instructions:
        missed.append(f"{counted:,} instructions, {counted - args.max_instructions:,} more than expected")
    return [Diagnostic(text, str(args.model)) for text in missed]


def _cluster(args: argparse.Namespace) -> int:
    from ..model.cluster.products import ClusterRequest
    from ..model.verify.cluster import verify_cluster
    from ..model.verify.vectors import read_inputs

    inputs = read_inputs(args.inputs) if args.inputs else None
    reading = checked(ModelRequest, given(args, ModelRequest, READING))
    request = ClusterRequest(args.model, Path(args.cluster), "model", args.devices, **reading)
    disturbed = (args.faults, args.count or DISTURBED) if args.faults is not None else (0, 0)
    result = verify_cluster(request, args.simulate or "host", inputs, disturbed, args.keep, judge_one=True)
    show(args, _cluster_verdict(result), result)
    return 0 if result["equal"] else 1


def _cluster_verdict(r: dict[str, Any]) -> str:
    what = "equal to one device" if r["equal_to_one"] else f"DIFFERS from one device, by up to {r['max_abs_diff']}"
    plan = "as planned" if r["as_planned"] else f"planned {r['planned_bytes']}"
    lines = [f"{r['model']} on {len(r['devices'])} devices ({r['simulated']}): {what} ({r['inputs_tried']} inputs)"]
    one = r["one_device"]
    if one["judge"]:
        same = "equal to the reference" if one["equal"] else f"DIFFERS from the reference: {', '.join(one['differs'])}"
        lines.append(f"  one device: {same}, judged by {one['judge']}")
    lines += [f"  note: {note}" for note in one["notes"]]
    lines.append(f"  {r['messages']} messages, {r['wire_bytes']} B on the wire, {plan}")
    if "faults" in r:
        f = r["faults"]
        codes = ", ".join(f"{n} {code}" for code, n in f["codes"].items())
        lines.append(f"  {f['injected']} faults: {codes}")
        lines.append(f"  {f['wrong']} wrong, {f['hangs']} hang, {f['not_recovered']} not recovered")
    return "\n".join(lines) + "\n"


def _difference(first: dict[str, Any]) -> list[str]:
    """A line about the first wrong result of a step."""
    by = f"op '{first['op']}' makes" if first["op"] else "another step changes"
    return [
        f"  first: {by} '{first['tensor']}'{_place(first['index'])} {first['value']:g}, right is {first['right']:g}"
    ]


def _place(index: list[int]) -> str:
    """The position of an element; for images, [images, rows, columns, channels], with the names of the axes."""
    at = f"[{', '.join(str(i) for i in index)}]"
    return f"{at} (row {index[1]}, column {index[2]}, channel {index[3]})" if len(index) == 4 else at


def _all_results(results: list[dict[str, Any]]) -> list[str]:
    """A line for each op's result, in the order of the model."""
    wide = max((len(r["kind"]) for r in results), default=0)
    lines = []
    for r in results:
        state = "equal" if r["seen"] else "only through those behind it"
        if r["difference"]:
            state = f"{'equal but for rounding' if r['equal'] else 'DIFFERS'} by up to {r['difference']:g}"
        if r["first"]:
            state += f", first at {_place(r['first']['index'])}: {r['first']['value']:g} for {r['first']['right']:g}"
        lines.append(f"  {r['kind']:{wide}} '{r['tensor'].split(';')[0]}': {state}")
    return lines


def _of_samples(s: dict[str, Any]) -> list[str]:
    """Lines with the results of the user's samples, compared with the float network."""
    lines = [f"  {s['samples']} samples" + (f": accuracy {100 * s['accuracy']:.2f} %" if "accuracy" in s else "")]
    if "auc" in s:
        lines[0] += f": AUC {100 * s['auc']:.2f} %"
    if "reference_auc" in s:
        lines[0] += f", float {100 * s['reference_auc']:.2f} %"
    if "reference_accuracy" in s:
        lines[0] += f", float {100 * s['reference_accuracy']:.2f} %"
    if "same_class" in s:
        lines.append(f"  same class as the float network: {100 * s['same_class']:.2f} %")
    if "snr_db" in s:
        lines.append(f"  noise {s['snr_db']} dB below the float network's results")
    if worst := s.get("worst_layers"):
        lines.append("  most noise: " + ", ".join(f"'{w['tensor']}' {w['snr_db']} dB" for w in worst))
    table = s.get("confusion", [])
    wide = max((len(str(n)) for row in [range(len(table)), *table] for n in row), default=1) + 1
    if table:
        lines.append("  class" + "".join(f"{i:>{wide}}" for i in range(len(table))) + "  (as which)")
    lines += [f"  {i:>5}" + "".join(f"{n or '.':>{wide}}" for n in row) for i, row in enumerate(table)]
    return lines


def _verdict(r: dict[str, Any], all_results: bool) -> str:
    compared = [name.split(";")[0] for name in r["compared"]]
    shown = ", ".join(compared[:4]) + (f" and {len(r['compared']) - 4} more" if len(r["compared"]) > 4 else "")
    what = "equal to the reference" if r["equal"] else f"DIFFERS from the reference by up to {r['max_abs_diff']}"
    lines = [f"{r['model']} on {r['target']}: {what} ({r['inputs_tried']} inputs; {shown})"]
    lines += _difference(r["first_difference"]) if r.get("first_difference") else []
    reached = "; {} of {} bounds reached".format(*r["bounds_reached"]) if r.get("bounds_reached", (0, 0))[1] else ""
    unseen = f"; {len(r['unseen'])} results only through those behind them" if r.get("unseen") else ""
    lines += [f"  judged by {r['judge']}{reached}{unseen}", *(f"  note: {note}" for note in r.get("notes", ()))]
    lines += _all_results(r.get("results", [])) if all_results else []
    lines += _of_samples(r) if "samples" in r else []
    sizes = ("arena_bytes", "stack_bytes", "flash_bytes", "code_bytes", "ram_bytes")
    for key in (*sizes, "instructions", "cycles", "macs"):
        if r.get(key) is not None:
            lines.append(f"  {key.replace('_', ' '):13} {r[key]:>12,}")
    counted = [name for name in ("instructions", "cycles") if name in r and r[name] is not None]
    if "layers" in r:
        names = "".join(f" {name:>13} {'per MAC':>8}" for name in counted)
        lines.append(f"  {'step':>4} {'calls':>6} {'MACs':>11}{names}")
    if "loss" in r:
        same, snr = r["loss"]["same_largest"], r["loss"]["snr_db"]
        lines.append(f"  against the scales of the file: {snr:.1f} dB, the same largest output for {same:.0%}")
    for row in r.get("engines", ()):
        part = f"{100 * row['macs'] / max(1, r['macs']):.1f} % of the MACs"
        lines.append(f"  engine {row['name']}: {row['layers']} layers, {part}")
    lines += [f"    core: {text}" for text in by_reason(r.get("core", ()))]
    for i, layer in enumerate(r.get("layers", ())):
        figures = (f"{layer[name] / layer['macs']:.2f}" if layer["macs"] else "" for name in counted)
        numbers = "".join(f" {layer[name]:>13,} {each:>8}" for name, each in zip(counted, figures, strict=True))
        counts = f"{layer['calls']:>6} {layer['macs']:>11,}{numbers}"
        lines.append(f"  {i:>4} {counts}  {', '.join(dict.fromkeys(layer['kinds']))}")
    return "\n".join(lines) + "\n"


def map(args: argparse.Namespace) -> int:
    from ..model.mapping import as_json, as_text, map_layers

    target = load_target(args.target)
    check_written(args, (), [args.source, *target.files])
    mapping = map_layers(args.source, target, args.search, args.limit, args.objective, args.scales or "file")
    show(args, as_text(mapping), as_json(mapping, target, args.search, args.objective))
    return 0


def layout(args: argparse.Namespace) -> int:
    from ..model.plan.memory.layout import solve_file, words

    capacity = parse_size("capacity", args.capacity) if args.capacity is not None else None
    check_written(args, (), [args.file])
    result = solve_file(args.file, capacity, args.output, args.time_limit)
    if result is None:
        return 1
    figures = {name: getattr(result, name) for name in ("height", "bound", "optimal", "method")}
    show(args, words(result), figures)
    return 0


def tune(args: argparse.Namespace) -> int:
    from ..model import choices
    from ..model.verify.tune import CYCLES, INSTRUCTIONS, tune

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
    from ..model.verify.tune import fitted, profile, profile_words

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

    from ..base.programs import together
    from ..model.verify.harness import xpulp_simulator

    if not args.program.is_file():
        raise fail("no such program", file=str(args.program))
    if not 1 <= args.cores <= 16:
        args.wrong_usage(f"--cores: {args.cores} is not from 1 to 16")
    check_written(args, (), [args.program])
    with tempfile.TemporaryDirectory(prefix="edgebuild-simulate-") as name:
        simulator, counts = xpulp_simulator(Path(name)), Path(name) / "counts"
        sys.stdout.flush()
        with together() as start:
            own = sys.stderr if args.json == "-" else None  # the program's standard output
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
    from ..base.options import given
    from ..base.request import ModelRequest, model_request
    from ..build.benchmark import as_csv, as_markdown, table
    from ..model.fitting import chosen_targets

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
    from ..build.papers import as_text, reproduce

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
        from ..build.check import at_call

        budgets = " ".join(f"{o}_BUDGET {value}" for o in BUDGETS if (value := getattr(args, o)) is not None)
        raise at_call(error, args.call, "", "edgebuild_report", budgets) from error


def _size(args: argparse.Namespace) -> int:
    import json

    from ..build.size import as_json, earlier, program_sizes, table

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
    from ..build.size import Linked

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
    """Diagnostics for exceeded budgets, with the parts that grew and the largest parts."""
    from ..build.size import TOTAL, growth

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
    from ..build.size import MAX_NAMED, TOTAL

    bytes_of = {n: b.bytes for n, b in sizes.stacks.items() if n != TOTAL}
    if what != "stack":
        bytes_of = {name: getattr(part, what) for name, part in sizes.parts.items()}
    largest = sorted(bytes_of.items(), key=lambda part: -part[1])[:MAX_NAMED]
    return f"largest: {', '.join(f'{name} {size:,} B' for name, size in largest)}"


def _check_growth(args: argparse.Namespace, sizes: ProgramSizes, base: ProgramSizes, allowed: int) -> None:
    from ..build.size import growth

    problems = []
    for what in BUDGETS:
        more = sizes.used(what) - base.used(what)
        if more > allowed:
            beyond = f", {allowed:,} B are allowed" if allowed else ""
            hints = (", ".join(growth(what, sizes, base)),)
            problems.append(Diagnostic(f"{what}: {more:+,} B since {args.diff}{beyond}", str(args.elf), hints=hints))
    if problems:
        raise EdgebuildError(*problems)
