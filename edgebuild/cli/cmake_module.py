"""`edgebuild cmake-module`: write FindEdgeBuild.cmake."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")


def run(args: argparse.Namespace) -> int:
    from edgebuild.doors import write_cmake_module

    write_cmake_module(args.output)
    return 0
