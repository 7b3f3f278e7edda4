"""`edgebuild model`: compile a model to C."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.cli.common import add_model_arguments, model_request_of, publish_products, started


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=True)
    parser.add_argument("--name", help="prefix of functions and files; default: from the file's name")
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    parser.add_argument("--depfile", type=Path, help="write what was read, in make's language")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import withdraw
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.progress import watch
    from edgebuild.base.request import model_outputs
    from edgebuild.base.text import identifier
    from edgebuild.build.run import files_read, kept_or_compiled, unused_weights
    from edgebuild.build.summary import summary

    began = started(args)
    if not args.quiet:
        watch()
    request = model_request_of(args, args.name or identifier(args.model.stem))
    unused = unused_weights(request)
    names = [file for file in model_outputs(request.name) if file != unused]
    files, products = files_read(request), [args.output / file for file in names]
    check_replaced([*products, *([args.depfile] if args.depfile else [])], files)
    artifacts = kept_or_compiled(request)
    publish_products([a for a in artifacts if a.name != unused], args, files, began)
    withdraw(unused, args.output)
    if not args.quiet:
        print(summary(artifacts))
    return 0
