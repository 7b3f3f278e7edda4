"""`edgebuild distribute`: plan one network on several devices."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model, or a table of layers (YAML)")
    parser.add_argument("--cluster", type=Path, required=True, metavar="FILE", help="devices and medium (YAML)")
    parser.add_argument("--name", required=True, help="prefix of the products' files")
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    parser.add_argument("--objective", choices=("traffic", "latency", "memory"), default="traffic")
    parser.add_argument("--devices", type=int, metavar="N", help="use the first N devices of the cluster")
    parser.add_argument("--method", choices=("joint", "fdto", "owp", "paper"), default="joint")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import Artifact, publish
    from edgebuild.model.cluster import SHAPES, plan_cluster, words

    graph = None
    if args.model.suffix not in SHAPES:
        from edgebuild.model.compile import prepare

        graph = prepare(args.model)
    _, report = plan_cluster(args.model, args.cluster, args.devices, args.method, args.objective, graph)
    publish((Artifact(f"{args.name}_cluster.json", json.dumps(report, indent=1).encode() + b"\n"),), args.output)
    print(words(report), end="")
    return 0
