"""`edgebuild inspect`: print a model and its plan."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.cli.common import add_model_arguments, model_request_of


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=False)
    parser.add_argument("--after", default="plan", metavar="STAGE", help="import, one of the passes' stages, or plan")
    parser.add_argument("--stages", action="store_true", help="print the graph as it is read, and each stage's changes")
    text = "with --after: write the graph as a text that is read as a model, and its constants beside it (F.bin)"
    parser.add_argument("-o", "--output", type=Path, metavar="F.txt", help=text)
    parser.set_defaults(wrong_usage=parser.error)
    parser.add_argument("--tiling", action="store_true", help="say what was tiled, and what the next limit is")
    parser.add_argument("--energy", action="store_true", help="say which clock each layer runs at, and what that saves")
    parser.add_argument(
        "--picture", type=Path, metavar="F.svg", help="draw the arena over time, or the devices of a cluster"
    )
    parser.add_argument("--pareto", type=Path, metavar="F.svg", help="draw memory against time of all ways to run it")
    sizes = "modelled cycles with levels of so many bytes, as L1=22K:400K,L2=256K:4M"
    parser.add_argument("--sweep", metavar="NAME=LEAST:MOST,...", help=sizes)
    parser.add_argument("--scale", metavar="BYTES", help="what the picture's height stands for; default: the arena")


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
    made = build_cluster(ClusterRequest(args.model, Path(args.cluster), "model", target=args.target))
    print(words(made.report), end="")
    if args.picture:
        if made.timeline is None:
            raise fail("there is no timeline of one device", file=str(args.cluster), hints=["leave out --cluster"])
        names = [d["name"] for d in made.report["devices"]]
        caption = f"{args.model.name} on {len(names)} devices, modelled"
        drawn = timeline_picture(made.timeline, names, made.report["time_us"]["one_device"], caption)
        write_atomic(args.picture, drawn.svg().encode())
    return 0


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.options import parse_size
    from edgebuild.model.compile import graph_after, inspect, inspect_plan, inspect_stages

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
    check_replaced([f for f in (args.picture, args.pareto) if f], [args.model])
    args.objective = "energy" if args.energy else args.objective
    text, picture, trade = inspect_plan(model_request_of(args, "model"), args.tiling, scale, args.energy)
    print(text, end="")
    for file, drawn in ((args.picture, picture), (args.pareto, trade)):
        if file:
            write_atomic(file, drawn.encode())
    return 0
