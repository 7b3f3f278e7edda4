"""`edgebuild ops`: list the supported operators."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    from edgebuild.model.formats import formats

    parser.add_argument("format", nargs="?", choices=tuple(formats()), help="of one format alone")


def run(args: argparse.Namespace) -> int:
    from edgebuild.model.supported import supported

    print(supported([args.format] if args.format else []))
    return 0
