"""`edgebuild tune`: measure variants of kernels."""

from __future__ import annotations

import argparse

from edgebuild.cli.common import add_model_arguments, model_request_of


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=False, nargs="?")
    parser.add_argument("--cycles", action="store_true", help="compare modelled cycles, not instructions: slower")
    parser.add_argument("--clear", action="store_true", help="forget all that was measured")
    parser.set_defaults(wrong_usage=parser.error)


def run(args: argparse.Namespace) -> int:
    from edgebuild.model import choices
    from edgebuild.model.verify.tune import CYCLES, INSTRUCTIONS, tune

    if args.clear:
        print(f"forgot the choices for {choices.clear()} kinds of processors")
        return 0
    if args.model is None or args.target is None:
        args.wrong_usage("name a model and --target, or give --clear")
    tune(model_request_of(args, "model"), by=CYCLES if args.cycles else INSTRUCTIONS)
    return 0
