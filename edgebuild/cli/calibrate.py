"""`edgebuild calibrate`: measure the steps of a model, or fit the cost model to measurements."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.base.errors import fail
from edgebuild.cli.common import add_model_arguments, model_request_of


def arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, target_required=True)
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    parser.add_argument("--pin", metavar="PIN", help="a pin to be high while a step runs, as PB0")
    parser.add_argument(
        "--supply-ms", type=int, default=0, metavar="MS", help="run so long in each clock, the pin high"
    )
    parser.add_argument("--fit", type=Path, metavar="F", help="measurements, CSV or JSON; writes calibration.yaml")
    parser.add_argument(
        "--supply-log", type=Path, metavar="F.csv", help="with --fit: columns ma and pin, as of an INA219"
    )


def run(args: argparse.Namespace) -> int:
    from edgebuild.model.verify.calibrate import fitted, profile

    request = model_request_of(args, "model")
    if args.supply_ms < 0 or (args.supply_log and not args.fit):
        raise fail("--supply-ms is 0 or more, and --supply-log goes with --fit")
    if args.fit:
        print(fitted(request, args.fit, args.supply_log, args.output), end="")
    else:
        print(profile(request, args.output, args.pin, args.supply_ms), end="")
    return 0
