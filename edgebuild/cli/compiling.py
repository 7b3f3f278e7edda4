"""Commands about models: compile, export and look at them.

Of each command there is `NAME_arguments(parser)`, and `NAME(args)`, which returns the exit status.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from textwrap import fill

from edgebuild.base.options import add_options, checked, given, options_of
from edgebuild.base.request import READING, ModelRequest
from edgebuild.cli.common import (
    add_json,
    add_model_arguments,
    add_product_arguments,
    error_kinds,
    json_file,
    model_request_of,
    product,
    reports_of,
    show,
    started,
    write_compiled,
)


def model_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=True)
    add_product_arguments(parser)


def model(args: argparse.Namespace) -> int:
    from edgebuild.base.progress import watch

    began = started(args)
    if not args.quiet:
        watch()
    return write_compiled(model_request_of(args, args.name), args, began)


def group_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "group", type=Path, metavar="G.yaml", help="models, buffers, and which of them are used together"
    )
    parser.add_argument("--target", required=True, help="a name that `edgebuild targets` lists, or a YAML file")
    add_product_arguments(parser, output=None)


def group(args: argparse.Namespace) -> int:
    from edgebuild.base.group_file import read_group
    from edgebuild.base.progress import watch
    from edgebuild.base.text import identifier

    began = started(args)
    if not args.quiet:
        watch()
    group = read_group(args.group, args.name or identifier(args.group.stem), args.target)
    args.output = args.output or (None if args.json else Path())
    return write_compiled(group, args, began)


EXPORT_OPTIONS = tuple(name for name in options_of(ModelRequest) if name not in ("cluster", "device"))


def export_arguments(parser: argparse.ArgumentParser) -> None:
    from edgebuild.build.exporting import forms

    parser.add_argument("model", type=Path, help="a model file; `edgebuild ops` names the formats")
    parser.add_argument("--as", dest="form", required=True, choices=forms(), help="the build system")
    parser.add_argument("--target", required=True, help="a name that `edgebuild targets` lists, or a YAML file")
    parser.add_argument("--name", help="prefix of functions and files; default: from the file's name")
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    parser.add_argument("--version", default="1.0.0", metavar="X.Y.Z", help="of the library; default: %(default)s")
    parser.add_argument("--vendor", default="edgebuild", help="its author, in one word; default: %(default)s")
    parser.add_argument("--url", default="https://example.com/", help="its page; default: %(default)s")
    add_json(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")
    add_options(parser, ModelRequest, EXPORT_OPTIONS)


def export(args: argparse.Namespace) -> int:
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.progress import watch
    from edgebuild.build.api import compiled_model
    from edgebuild.build.exporting import Library, write
    from edgebuild.build.run import files_read

    args.weights = "asm" if args.weights == "asm" else "c"
    if not args.quiet:
        watch()
    result = compiled_model(model_request_of(args, args.name))
    command = _command(args, result.request.name)
    library = Library(result, args.form, command, args.version, args.vendor, args.url)
    check_replaced(json_file(args), files_read(result.request))
    changed = write(library, args.output)
    text = f"{result}\n[edgebuild] {len(changed)} files for {args.form} in {args.output}\n"
    names = [a.name for a in library.artifacts()]
    show(args, "" if args.quiet else text, {"form": args.form, "files": names, "report": result.report})
    return 0


def _command(args: argparse.Namespace, name: str) -> str:
    """The command that was given, without folders: the same from wherever it is called."""
    import os
    import shlex

    from edgebuild.base.text import visible
    from edgebuild.build.exporting import METADATA, Library

    words = ["edgebuild", "export", args.model.name, "--as", args.form, "--name", name]
    words += ["--target", os.path.basename(args.target)]
    for field in METADATA:
        words += [f"--{field}", getattr(args, field)] if getattr(args, field) != getattr(Library, field) else []
    options = options_of(ModelRequest)
    for option, value in given(args, ModelRequest, [o for o in EXPORT_OPTIONS if o != "weights"]).items():
        if value is not None:
            moved = options[option].moved(value, os.path.basename)
            words += [f"--{option.replace('_', '-')}", *([] if options[option].kind.switch else [str(moved)])]
    return f"{visible(shlex.join(words))} -o DIR"


def distribute_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model, or a table of layers (YAML)")
    parser.add_argument("--cluster", type=Path, required=True, metavar="FILE", help="devices and medium (YAML)")
    parser.add_argument("--name", required=True, help="prefix of the products' files")
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    add_json(parser)
    add_options(parser, ModelRequest, READING)
    parser.add_argument("--objective", choices=("traffic", "latency", "memory"), help="default: that of the cluster")
    parser.add_argument("--devices", type=int, metavar="N", help="use the first N devices of the cluster")
    parser.add_argument(
        "--method",
        choices=("joint", "fdto", "owp", "paper", "pipeline"),
        default="joint",
        help="how layers are split; default: joint, the exact plan; the others are baselines to compare with",
    )


def distribute(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import publish
    from edgebuild.base.inputs import check_replaced
    from edgebuild.model.cluster.products import ClusterRequest, build_cluster
    from edgebuild.model.cluster.terms import SHAPES, json_artifact, pareto_rows, plan_cluster, words

    check_replaced([args.output / f"{args.name}_report.json", *json_file(args)], [args.model, args.cluster])
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


FIT_OPTIONS = ("qos", "optimize", "portable", "shape", "bind", "outputs")


def fit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a model file; `edgebuild ops` names the formats")
    patterns = "names, patterns or YAML files; default: all that state a clock, which are chips and boards one can buy"
    parser.add_argument("--targets", metavar="GLOB,...", help=patterns)
    parser.add_argument(
        "--smallest", action="store_true", help="only the one of least memory that fits; exit 1 if none"
    )
    add_json(parser)
    add_options(parser, ModelRequest, FIT_OPTIONS)


def fit(args: argparse.Namespace) -> int:
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.progress import say
    from edgebuild.model.compile import graph_of
    from edgebuild.model.fitting.chips import Fit, as_json, as_text, best_first, chosen_targets

    args.target = "host"
    request = model_request_of(args, "model")
    targets = chosen_targets(args.targets)
    files = [args.model, *(file for target in targets for file in target.files)]
    check_replaced(json_file(args), files)
    fit = Fit(graph_of(request), request)
    rows = []
    for number, target in enumerate(targets):
        say(f"target {number + 1} of {len(targets)}: {target.name}")
        rows.append(fit.row(target))
    rows = best_first(rows)
    if args.smallest:
        rows = rows[:1]
    show(args, as_text(rows, request, short=args.smallest), as_json(rows, request))
    return 0 if not args.smallest or rows[0].fits else 1


def report_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", type=Path, nargs="*", metavar="MODEL", help="models, or reports (NAME_report.json)")
    parser.add_argument("--target", help="for models: a name that `edgebuild targets` lists, or a YAML file")
    parser.add_argument("-o", "--output", type=product(".html", ".htm"), metavar="F.html", help="the page")
    parser.add_argument(
        "--trace", type=product(".json"), metavar="F.json", help="steps, memories and DMA as a trace, for Perfetto"
    )
    parser.add_argument("--compare", type=Path, metavar="OLD", help="a model or a report: what the first one changed")
    add_json(parser)
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of reports, and end")
    add_options(parser, ModelRequest, [name for name in options_of(ModelRequest) if name not in ("cluster", "device")])
    parser.set_defaults(wrong_usage=parser.error)


def report(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.templates import PACKAGE
    from edgebuild.model.views.page import page
    from edgebuild.model.views.reports import trace

    if args.schema:
        print((PACKAGE / "model/views/report.schema.json").read_text(encoding="utf-8"), end="")
        return 0
    if not args.models:
        args.wrong_usage("no model: name models, or reports")
    if not (args.output or args.trace or args.json):
        args.wrong_usage("nothing to write: give -o F.html, --trace F.json or --json F")
    written = [*json_file(args), *(f for f in (args.output, args.trace) if f)]
    read = [*args.models, *([args.compare] if args.compare else [])]
    check_replaced(written, read)
    reports = reports_of(args, args.models)
    earlier = reports_of(args, [args.compare])[0] if args.compare else None
    if args.output:
        write_atomic(args.output, page(reports, earlier).encode())
    if args.trace:
        write_atomic(args.trace, trace(reports).encode())
    show(args, "", reports)
    return 0


def diff_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", type=Path, metavar="OLD", help="a model, or a report (NAME_report.json)")
    parser.add_argument("new", type=Path, metavar="NEW", help="the same")
    parser.add_argument("--target", help="for models: a name that `edgebuild targets` lists, or a YAML file")
    text = "end with status 1 where this holds, as 'arena>+2%%'; may be given several times"
    parser.add_argument("--fail-if", action="append", default=[], metavar="LIMIT", help=text)
    parser.add_argument(
        "--junit", type=product(".xml"), metavar="F.xml", help="write a test case for each limit, for CI"
    )
    add_json(parser)
    add_options(parser, ModelRequest, [name for name in options_of(ModelRequest) if name not in ("cluster", "device")])
    parser.set_defaults(wrong_usage=parser.error)


def diff(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.inputs import check_replaced
    from edgebuild.model.views.comparing import as_junit, as_text, comparison, limit_of

    limits = [limit_of(text) for text in args.fail_if]
    check_replaced([*json_file(args), *([args.junit] if args.junit else [])], [args.old, args.new])
    old, new = reports_of(args, [args.old, args.new])
    compared = comparison(old, new, limits)
    if args.junit:
        write_atomic(args.junit, as_junit(compared).encode())
    show(args, as_text(compared), compared)
    return 1 if any(each["broken"] for each in compared["limits"]) else 0


def explain_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=False, what="a model file, or the code of an error, as E0201")
    parser.add_argument("--kernels", action="store_true", help="the kernel of each op, what others would cost, and why")
    parser.set_defaults(wrong_usage=parser.error)


def explain(args: argparse.Namespace) -> int:
    if kind := error_kinds().get(args.model.name):
        print(f"{args.model.name}: {kind['title']}\n\n{fill(kind['page'], 100)}")
        return 0
    from edgebuild.model.explain import kernel_words

    if not args.kernels:
        args.wrong_usage("say what to explain of the model: --kernels")
    args.target = args.target or "host"
    print(kernel_words(model_request_of(args, "model")), end="")
    return 0


def inspect_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=False)
    parser.add_argument("--after", default="plan", metavar="STAGE", help="import, one of the passes' stages, or plan")
    parser.add_argument("--stages", action="store_true", help="print the graph as it is read, and each stage's changes")
    text = "with --after: write the graph as a text that is read as a model, and its constants beside it (F.bin)"
    parser.add_argument("-o", "--output", type=Path, metavar="F.txt", help=text)
    parser.set_defaults(wrong_usage=parser.error)
    parser.add_argument("--tiling", action="store_true", help="say what was tiled, and what the next limit is")
    parser.add_argument("--energy", action="store_true", help="say which clock each layer runs at, and what that saves")
    parser.add_argument(
        "--picture", type=product(".svg"), metavar="F.svg", help="draw the arena over time, or the devices of a cluster"
    )
    parser.add_argument(
        "--pareto", type=product(".svg"), metavar="F.svg", help="draw memory against time of all its plans"
    )
    sizes = "modelled cycles with levels of so many bytes, as L1=22K:400K,L2=256K:4M"
    parser.add_argument("--sweep", metavar="NAME=LEAST:MOST,...", help=sizes)
    parser.add_argument("--scale", metavar="BYTES", help="what the picture's height stands for; default: the arena")
    add_json(parser)


def run_sweep(args: argparse.Namespace) -> int:
    from edgebuild.base.target import load_target
    from edgebuild.model.sweep import sizes_of, sweep, sweep_words

    target = load_target(args.target)
    sizes = sizes_of(args.sweep, target)
    print(sweep_words(sizes, sweep(model_request_of(args, "model"), target, sizes)), end="")
    return 0


def run_cluster(args: argparse.Namespace) -> int:
    """Print the plan of a cluster, and draw who computes, sends and waits when."""
    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.errors import fail
    from edgebuild.base.inputs import check_replaced
    from edgebuild.model.cluster.products import ClusterRequest, build_cluster
    from edgebuild.model.cluster.terms import words
    from edgebuild.model.emit.timeline_picture import timeline_picture

    check_replaced([args.picture] if args.picture else [], [args.model, args.cluster])
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


def inspect(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.options import parse_size
    from edgebuild.model.compile import graph_after, inspect, inspect_plan, inspect_stages

    if args.json and (args.sweep or args.stages or args.output or args.after != "plan"):
        args.wrong_usage("--json has the figures of a plan; leave out --sweep, --stages, --after and --output")
    if args.cluster is not None and args.device is None:
        return run_cluster(args)
    args.target = args.target or "host"
    if args.sweep is not None:
        return run_sweep(args)
    if args.stages:
        print(inspect_stages(model_request_of(args, "model")), end="")
        return 0
    if args.output is not None:
        from edgebuild.model.formats.text import data_file
        from edgebuild.model.formats.text.graph_text import written

        if args.after == "plan":
            args.wrong_usage("--output: a plan has no text to read back; name a stage with --after")
        files = args.output, data_file(args.output)
        check_replaced(files, [args.model])
        text, data = written(graph_after(model_request_of(args, "model"), args.after))
        write_atomic(files[1], data)
        write_atomic(files[0], text.encode())
        return 0
    if args.after != "plan":
        print(inspect(model_request_of(args, "model"), args.after), end="")
        return 0
    scale = parse_size("scale", args.scale) if args.scale is not None else None
    check_replaced([*json_file(args), *(f for f in (args.picture, args.pareto) if f)], [args.model])
    args.objective = "energy" if args.energy else args.objective
    text, picture, trade, figures = inspect_plan(model_request_of(args, "model"), args.tiling, scale, args.energy)
    show(args, text, figures)
    for file, drawn in ((args.picture, picture), (args.pareto, trade)):
        if file:
            write_atomic(file, drawn.encode())
    return 0
