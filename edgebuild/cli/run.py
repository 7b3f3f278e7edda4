"""`edgebuild run`: do what a request file asks."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.build.entry import HEADER_ALONE, MAKEFILES


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(MAKEFILES, action="store_true", help="products in the depfile, too, as CMake's makefiles need")
    parser.add_argument(HEADER_ALONE, action="store_true", help="write a model's header alone, which needs no plan")
    parser.add_argument("request", type=Path, help="NAME.req.json, as SCons and CMake write it")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.errors import EdgebuildError
    from edgebuild.build.run import run, run_header

    try:
        return (run_header if args.header else run)(args.request, args.makefiles)
    except EdgebuildError as error:
        from edgebuild.build.check import spelled

        raise type(error)(*map(spelled, error.diagnostics)) from error
