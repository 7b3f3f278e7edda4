"""`edgebuild group`: several models and buffers of the application in one arena."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.cli.common import add_product_arguments, started, write_compiled


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "group", type=Path, metavar="G.yaml", help="models, buffers, and which of them are used together"
    )
    parser.add_argument("--target", required=True, help="a name that `edgebuild targets` lists, or a YAML file")
    add_product_arguments(parser, output=None)


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.group_file import read_group
    from edgebuild.base.progress import watch
    from edgebuild.base.text import identifier

    began = started(args)
    if not args.quiet:
        watch()
    group = read_group(args.group, args.name or identifier(args.group.stem), args.target)
    args.output = args.output or (None if args.json else Path())
    return write_compiled(group, args, began)
