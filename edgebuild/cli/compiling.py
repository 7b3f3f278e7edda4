"""Commands about models: compile, export, quantise and look at them.

Each command is a function `NAME(args)`, which returns the exit status; `commands.toml` has its arguments.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ..base.artifacts import Artifact, publish, write_atomic
from ..base.errors import EdgebuildError, fail
from ..base.inputs import check_file, check_replaced
from ..base.options import checked, given, options_of, parse_size
from ..base.progress import watch
from ..base.request import READING, ModelRequest
from ..base.target import load_target
from ..base.text import identifier, visible
from .common import check_written, error_kinds, model_request_of, reports_of, show, started, write_compiled

if TYPE_CHECKING:
    from ..model.quantizer import Quantised, Trial
    from ..model.quantizer.samples import Quality


def model(args: argparse.Namespace) -> int:
    began = started(args)
    if not args.quiet:
        watch()
    return write_compiled(model_request_of(args, args.name), args, began)


def group(args: argparse.Namespace) -> int:
    from ..base.request import read_group

    began = started(args)
    if not args.quiet:
        watch()
    group = read_group(args.group, args.name or identifier(args.group.stem), args.target)
    args.output = args.output or (None if args.json else Path())
    return write_compiled(group, args, began)


def export(args: argparse.Namespace) -> int:
    from ..build.api import compiled_model
    from ..build.exporting import Library, write
    from ..build.run import files_read

    args.weights = "asm" if args.weights == "asm" else "c"
    if not args.quiet:
        watch()
    result = compiled_model(model_request_of(args, args.name))
    command = _command(args, result.request.name)
    library = Library(result, args.form, command, args.version, args.vendor, args.url)
    check_written(args, (), files_read(result.request))
    changed = write(library, args.output)
    text = f"{result}\n[edgebuild] {len(changed)} files for {args.form} in {args.output}\n"
    names = [a.name for a in library.artifacts()]
    show(args, "" if args.quiet else text, {"form": args.form, "files": names, "report": result.report})
    return 0


def _command(args: argparse.Namespace, name: str) -> str:
    """The command line without folders, so that it does not depend on the current folder."""
    import os
    import shlex

    from ..build.exporting import METADATA, Library

    words = ["edgebuild", "export", args.model.name, "--as", args.form, "--name", name]
    words += ["--target", os.path.basename(args.target)]
    for field in METADATA:
        words += [f"--{field}", getattr(args, field)] if getattr(args, field) != getattr(Library, field) else []
    for option, row in options_of(ModelRequest).items():
        if option != "weights" and (value := given(args, ModelRequest, [option])[option]) is not None:
            moved = row.moved(value, os.path.basename)
            words += [f"--{option.replace('_', '-')}", *([] if row.kind.switch else [str(moved)])]
    return f"{visible(shlex.join(words))} -o DIR"


def distribute(args: argparse.Namespace) -> int:
    from ..model.cluster.products import ClusterRequest, build_cluster
    from ..model.cluster.terms import SHAPES, json_artifact, pareto_rows, plan_cluster, words

    check_written(args, [args.output / f"{args.name}_report.json"], [args.model, args.cluster])
    if args.model.suffix in SHAPES:
        chosen, report = plan_cluster(args.model, args.cluster, args.devices, args.method, args.objective, None)
        report["pareto"] = pareto_rows(chosen)
        publish((json_artifact(args.name, report),), args.output, owned=False)
    else:
        reading = checked(ModelRequest, given(args, ModelRequest, READING))
        request = ClusterRequest(
            args.model, args.cluster, args.name, args.devices, args.method, args.objective, **reading
        )
        cluster = build_cluster(request)
        report = cluster.report
        report["pareto"] = pareto_rows(cluster.chosen)
        publish(cluster.artifacts, args.output, owned=False)
    show(args, words(report), report)
    return 0


def fit(args: argparse.Namespace) -> int:
    from ..model.compile import graph_of
    from ..model.fitting import as_json, as_text, best_first, chosen_targets, fit_rows

    args.target = "host"
    request = model_request_of(args, "model")
    targets = chosen_targets(args.targets)
    check_written(args, (), [args.model, *(file for target in targets for file in target.files)])
    rows = best_first(fit_rows(graph_of(request), request, targets, args.scheduler))
    if args.smallest:
        rows = rows[:1]
    show(args, as_text(rows, request, short=args.smallest), as_json(rows, request))
    return 0 if not args.smallest or rows[0].fits else 1


def report(args: argparse.Namespace) -> int:
    from ..base.templates import PACKAGE
    from ..model.views.reports import checked_reports, page, trace

    if args.schema:
        print((PACKAGE / "model/views/report.schema.json").read_text(encoding="utf-8"), end="")
        return 0
    if not args.models:
        args.wrong_usage("no model: name models, or reports")
    if not (args.output or args.trace or args.json):
        args.wrong_usage("nothing to write: give -o F.html, --trace F.json or --json F")
    check_written(args, [args.output, args.trace], [*args.models, args.compare])
    reports = reports_of(args, args.models)
    earlier = reports_of(args, [args.compare])[0] if args.compare else None
    with checked_reports(*args.models, args.compare):
        texts = {args.output: args.output and page(reports, earlier), args.trace: args.trace and trace(reports)}
    for file, text in texts.items():
        if file:
            write_atomic(file, text.encode())
    show(args, "", reports)
    return 0


def diff(args: argparse.Namespace) -> int:
    from ..model.views.reports import as_junit, as_text, checked_reports, comparison, limit_of

    limits = [limit_of(text) for text in args.fail_if]
    check_written(args, [args.junit], [args.old, args.new])
    old, new = reports_of(args, [args.old, args.new])
    with checked_reports(args.old, args.new):
        compared = comparison(old, new, limits)
        if args.junit:
            write_atomic(args.junit, as_junit(compared).encode())
        show(args, as_text(compared), compared)
    return 1 if any(each["broken"] for each in compared["limits"]) else 0


def explain(args: argparse.Namespace) -> int:
    if kind := error_kinds().get(args.model.name):
        show(args, f"{args.model.name}: {kind['title']}\n\n{fill(kind['page'], 100)}\n", kind)
        return 0
    if re.fullmatch(r"E\d*", args.model.name):
        raise fail(f"no error has the code {args.model.name}", hints=[f"codes: {', '.join(error_kinds())}"])
    from ..model.explain import kernel_rows, kernel_words

    if not args.kernels:
        args.wrong_usage("say what to explain of the model: --kernels")
    args.target = args.target or "host"
    rows = kernel_rows(model_request_of(args, "model"))
    show(args, kernel_words(rows, args.model.name, args.target), rows)
    return 0


def run_sweep(args: argparse.Namespace) -> int:
    from ..model.mapping import sizes_of, sweep, sweep_json, sweep_words

    target = load_target(args.target)
    sizes = sizes_of(args.sweep, target)
    times = sweep(model_request_of(args, "model"), target, sizes)
    show(args, sweep_words(sizes, times), sweep_json(sizes, times))
    return 0


def run_cluster(args: argparse.Namespace) -> int:
    """Print the plan of a cluster, and draw when each device computes, sends and waits."""
    from ..model.cluster.products import ClusterRequest, build_cluster
    from ..model.cluster.terms import words
    from ..model.emit.pictures import timeline_picture

    check_written(args, [args.picture], [args.model, args.cluster])
    cluster = build_cluster(ClusterRequest(args.model, Path(args.cluster), "model", target=args.target))
    show(args, words(cluster.report), cluster.report)
    if args.picture:
        if cluster.timeline is None:
            raise fail("there is no timeline of one device", file=str(args.cluster), hints=["leave out --cluster"])
        names = [d["name"] for d in cluster.report["devices"]]
        caption = f"{args.model.name} on {len(names)} devices, modelled"
        drawn = timeline_picture(cluster.timeline, names, cluster.report["time_us"]["one_device"], caption)
        write_atomic(args.picture, drawn.svg().encode())
    return 0


def write_graph(args: argparse.Namespace) -> None:
    """Write the graph after a stage: as ONNX for viewers, or as text that can be read as a model."""
    from ..model.compile import drawn_graph, graph_after
    from ..model.formats.text import data_file
    from ..model.formats.text.graph_text import written

    request = model_request_of(args, "model")
    if args.output.suffix.lower() == ".onnx":
        check_replaced([args.output], [args.model])
        write_atomic(args.output, drawn_graph(request, args.after))
        return
    if args.after == "plan":
        args.wrong_usage("--output: a plan has no text to read back; name a stage with --after, or write F.onnx")
    files = args.output, data_file(args.output)
    check_replaced(files, [args.model])
    text, data = written(graph_after(request, args.after))
    publish([Artifact(files[1].name, data), Artifact(files[0].name, text.encode())], args.output.parent)


def _is_program(file: Path) -> bool:
    try:
        check_file(file)
        with file.open("rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except (OSError, EdgebuildError):
        return False  # the reader of models reports the error


def _inspect_program(args: argparse.Namespace) -> int:
    """Print the notes in an ELF file on the models in it."""
    import json

    from ..build.size import note_text, notes_of

    notes = notes_of(args.model)
    if not notes:
        raise fail("the program says of no model", file=str(args.model), hints=["compile the model with --note"])
    show(args, "".join(f"{note_text(note)}\n" for note in notes), json.dumps(notes, indent=1) + "\n")
    return 0


def inspect(args: argparse.Namespace) -> int:
    from ..model.compile import inspect, inspect_plan, inspect_stages

    if args.json and (args.stages or args.output or args.after != "plan"):
        args.wrong_usage("--json has the figures of a plan; leave out --stages, --after and --output")
    if args.cluster is not None and args.device is None:
        return run_cluster(args)
    if _is_program(args.model):
        return _inspect_program(args)
    args.target = args.target or "host"
    if args.sweep is not None:
        return run_sweep(args)
    if args.stages:
        print(inspect_stages(model_request_of(args, "model")), end="")
        return 0
    if args.output is not None:
        write_graph(args)
        return 0
    if args.after != "plan":
        print(inspect(model_request_of(args, "model"), args.after), end="")
        return 0
    scale = parse_size("scale", args.scale) if args.scale is not None else None
    check_written(args, [args.picture, args.pareto], [args.model])
    args.objective = "energy" if args.energy else args.objective
    text, picture, trade, figures = inspect_plan(model_request_of(args, "model"), args.tiling, scale, args.energy)
    show(args, text, figures)
    for file, drawn in ((args.picture, picture), (args.pareto, trade)):
        if file:
            write_atomic(file, drawn.encode())
    return 0


NAMES = {"accuracy": "accuracy", "auc": "AUC"}  # metrics in messages
RECURRENT = {"GRU", "LSTM", "RNN"}  # operators that onnxruntime's quantiser leaves in float


def quantize(args: argparse.Namespace) -> int:
    from ..model.quantizer import METHODS, quantise

    check_written(args, [args.output], [args.model, args.data, args.labels])
    methods, say = tuple(dict.fromkeys(args.method or METHODS)), [] if args.json == "-" else [_say_trial]
    result = quantise(args.model, args.data, args.labels, methods, args.max_drop, args.wide, *say)
    write_atomic(args.output, result.chosen.model.SerializeToString(deterministic=True))
    show(args, _loss_words(result, args.output), _losses(result))
    return 0


def _say_trial(trial: Trial) -> None:
    print(f"  {trial.way:44} {_quality_words(trial.quality)}", flush=True)


def _quality_words(q: Quality) -> str:
    return (f"{100 * q.accuracy:6.2f} %  " if q.accuracy is not None else "") + f"{q.sqnr:6.1f} dB"


def _loss_words(result: Quantised, output: Path) -> str:
    lines = [
        f"{output}: {result.chosen.way}; {result.calibrated} samples to calibrate, {result.judged} others to judge"
    ]
    if result.real.accuracy is not None:
        shares = [100 * (q.accuracy or 0) for q in (result.chosen.quality, result.real)]
        words = "  {} {:.2f} %, float {:.2f} %".format(NAMES[result.real.metric], *shares)
        lines.append(f"{words}: {result.drop:+.2f} points lost")
    lines.append(f"  signal to quantisation noise {result.chosen.quality.sqnr:.1f} dB")
    if result.chosen.wide:
        lines.append(f"  wide: {', '.join(result.chosen.wide)}")
    if kinds := sorted({n.op_type for n in result.chosen.model.graph.node} & RECURRENT):
        lines.append(f"  stays in float32: {', '.join(kinds)}")
    return "\n".join(lines) + "\n"


def _losses(result: Quantised) -> dict[str, Any]:
    def of(q: Quality) -> dict[str, Any]:
        return {q.metric: q.accuracy, "snr_db": round(q.sqnr, 3)}

    trials = [{"way": t.way, **of(t.quality), "wide": list(t.wide)} for t in result.trials]
    return {
        "float": {result.real.metric: result.real.accuracy},
        "chosen": {"way": result.chosen.way, **of(result.chosen.quality), "wide": list(result.chosen.wide)},
        "drop_points": round(result.drop, 4) if result.real.accuracy is not None else None,
        "samples": {"calibrated": result.calibrated, "judged": result.judged},
        "trials": trials,
    }
