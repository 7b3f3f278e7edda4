"""`edgebuild diff`: compare two models or reports."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.base.options import add_options, options_of
from edgebuild.base.request import ModelRequest
from edgebuild.cli.common import add_json, json_file, reports_of, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", type=Path, metavar="OLD", help="a model, or a report (NAME_report.json)")
    parser.add_argument("new", type=Path, metavar="NEW", help="the same")
    parser.add_argument("--target", help="for models: a name that `edgebuild targets` lists, or a YAML file")
    text = "end with status 1 where this holds, as 'arena>+2%%'; may be given several times"
    parser.add_argument("--fail-if", action="append", default=[], metavar="LIMIT", help=text)
    parser.add_argument("--junit", type=Path, metavar="F.xml", help="write a test case for each limit, for CI")
    add_json(parser)
    add_options(parser, ModelRequest, [name for name in options_of(ModelRequest) if name not in ("cluster", "device")])
    parser.set_defaults(wrong_usage=parser.error)


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.inputs import check_replaced
    from edgebuild.model.views.comparing import as_junit, as_text, comparison, limit_of

    limits = [limit_of(text) for text in args.fail_if]
    check_replaced([*json_file(args), *([args.junit] if args.junit else [])], [args.old, args.new])
    old, new = reports_of(args, [args.old, args.new])
    compared = comparison(old, new, limits)
    if args.junit:
        write_atomic(args.junit, as_junit(compared).encode())
    show(args, as_text(compared), compared)
    return 1 if any(each["broken"] for each in compared["limits"]) else 0
