"""`edgebuild ops`: list the supported operators."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    from edgebuild.model.formats import exported

    parser.add_argument("format", nargs="?", choices=tuple(exported()), help="of one format alone")


def run(args: argparse.Namespace) -> int:
    from edgebuild.model.supported import supported

    print(supported([args.format] if args.format else []))
    return 0
