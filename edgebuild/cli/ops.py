"""`edgebuild ops`: list the supported operators."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("format", nargs="?", choices=("tflite", "onnx"), help="of one format alone")


def run(args: argparse.Namespace) -> int:
    from edgebuild.model.supported import FORMATS, supported

    print(supported([args.format] if args.format else FORMATS))
    return 0
