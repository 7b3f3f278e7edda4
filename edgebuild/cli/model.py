"""`edgebuild model`: compile a model to C."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.cli.common import (
    add_json,
    add_model_arguments,
    json_file,
    model_request_of,
    publish_products,
    show,
    started,
)


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=True)
    parser.add_argument("--name", help="prefix of functions and files; default: from the file's name")
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    parser.add_argument("--depfile", type=Path, help="write what was read, in make's language")
    add_json(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import withdraw
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.progress import watch
    from edgebuild.build.api import compiled_model, products
    from edgebuild.build.run import files_read, unused_weights

    began = started(args)
    if not args.quiet:
        watch()
    request = model_request_of(args, args.name)
    files = files_read(request)
    outputs = [args.output / file for file in products(request)]
    check_replaced([*outputs, *json_file(args), *([args.depfile] if args.depfile else [])], files)
    result = compiled_model(request)
    publish_products(result.artifacts, args, files, began)
    withdraw(unused_weights(request), args.output)
    show(args, "" if args.quiet else f"{result}\n", result.files[f"{request.name}_report.json"].decode())
    return 0
