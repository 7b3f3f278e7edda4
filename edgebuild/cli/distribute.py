"""`edgebuild distribute`: one network on several devices."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.base.options import add_options, checked, given
from edgebuild.base.request import READING, ModelRequest
from edgebuild.cli.common import add_json, json_file, show


def arguments(parser: argparse.ArgumentParser) -> None:
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


def run(args: argparse.Namespace) -> int:
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
        made = build_cluster(request)
        report = made.report
        report["pareto"] = pareto_rows(made.chosen)
        publish(made.artifacts, args.output, owned=False)
    show(args, words(report), report)
    return 0
