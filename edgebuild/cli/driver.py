"""`edgebuild driver`: generate a driver."""

from __future__ import annotations

import argparse
from functools import partial

from edgebuild.cli.common import publish_products, started


def arguments(parser: argparse.ArgumentParser) -> None:
    from edgebuild.driver.command import add_arguments

    add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from edgebuild.driver.command import driver

    return driver(args, partial(publish_products, args=args, began=started(args)))
