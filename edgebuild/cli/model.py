"""`edgebuild model`: compile a model to C."""

from __future__ import annotations

import argparse

from edgebuild.cli.common import add_model_arguments, add_product_arguments, model_request_of, started, write_compiled


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=True)
    add_product_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.progress import watch

    began = started(args)
    if not args.quiet:
        watch()
    return write_compiled(model_request_of(args, args.name), args, began)
