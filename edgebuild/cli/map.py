"""`edgebuild map`: tile layers for memory levels."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.cli.common import add_json, json_file, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="FILE|MODEL", help="YAML `layers:`, or a .tflite or .onnx file")
    parser.add_argument("--target", required=True, help="a name that `edgebuild targets` lists, or a YAML file")
    parser.add_argument("--search", default="exact", metavar="METHOD", help="exact, dory or loma:N; default: exact")
    parser.add_argument("--limit", metavar="NAME=BYTES,...", help="leave that much of a memory, as activations=24K")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.target import load_target
    from edgebuild.model.mapping import as_json, as_text, map_layers

    target = load_target(args.target)
    check_replaced(json_file(args), [args.source, *target.files])
    found = map_layers(args.source, target, args.search, args.limit)
    show(args, as_text(found), as_json(found, target, args.search))
    return 0
