"""`edgebuild explain`: the reasons for what the compiler chose."""

from __future__ import annotations

import argparse

from edgebuild.cli.common import add_model_arguments, model_request_of


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=False)
    parser.add_argument("--kernels", action="store_true", help="the kernel of each op, what others would cost, and why")
    parser.set_defaults(wrong_usage=parser.error)


def run(args: argparse.Namespace) -> int:
    from edgebuild.model.explain import kernel_words

    if not args.kernels:
        args.wrong_usage("say what to explain of the model: --kernels")
    args.target = args.target or "host"
    print(kernel_words(model_request_of(args, "model")), end="")
    return 0
