"""`edgebuild driver`: generate a driver."""

from __future__ import annotations

import argparse

from edgebuild.cli.common import write_depfile


def arguments(parser: argparse.ArgumentParser) -> None:
    from edgebuild.driver.command import add_arguments

    add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from edgebuild.driver.command import driver

    return driver(args, write_depfile)
