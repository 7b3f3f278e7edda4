"""`edgebuild cmake-dir`: print the folder of the CMake package."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no arguments."""


def run(args: argparse.Namespace) -> int:
    from edgebuild.doors import cmake_dir

    print(cmake_dir())
    return 0
