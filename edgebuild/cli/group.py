"""`edgebuild group`: several models and buffers of the application in one arena."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.cli.common import add_json, json_file, publish_products, show, started


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "group", type=Path, metavar="G.yaml", help="models, buffers, and which of them are used together"
    )
    parser.add_argument("--target", required=True, help="a name that `edgebuild targets` lists, or a YAML file")
    parser.add_argument("--name", help="prefix of functions and files; default: from the file's name")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="default: this folder")
    add_json(parser)
    parser.add_argument("--depfile", type=Path, help="write what was read, in make's language")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import withdraw
    from edgebuild.base.group_file import read_group
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.progress import watch
    from edgebuild.base.text import identifier
    from edgebuild.build.run import compiled_group, files_read, unused_weights

    began = started(args)
    if not args.quiet:
        watch()
    group = read_group(args.group, args.name or identifier(args.group.stem), args.target)
    files, unused = files_read(group), [unused_weights(m) for m in group.models]
    args.output = args.output or (None if args.json else Path())
    written = [args.output / n for n in group.outputs if n not in unused] if args.output else []
    check_replaced([*written, *([args.depfile] if args.depfile else []), *json_file(args)], files)
    artifacts, text = compiled_group(group)
    report = next(a.data for a in artifacts if a.name == f"{group.name}_report.json")
    if args.output:
        publish_products([a for a in artifacts if a.name not in unused], args, files, began)
        for name in unused:
            withdraw(name, args.output)
    show(args, "" if args.quiet else f"{text}\n", report.decode())
    return 0
