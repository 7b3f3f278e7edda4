"""`edgebuild run`: do what a request file asks."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("request", type=Path, help="NAME.req.json, as SCons and CMake write it")


def run(args: argparse.Namespace) -> int:
    from edgebuild.build.run import run

    return run(args.request)
