"""`edgebuild report`: a page about models, and their steps as a trace."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.base.options import add_options, options_of
from edgebuild.base.request import ModelRequest
from edgebuild.cli.common import add_json, json_file, reports_of, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", type=Path, nargs="*", metavar="MODEL", help="models, or reports (NAME_report.json)")
    parser.add_argument("--target", help="for models: a name that `edgebuild targets` lists, or a YAML file")
    parser.add_argument("-o", "--output", type=Path, metavar="F.html", help="the page")
    parser.add_argument("--trace", type=Path, metavar="F.json", help="steps, memories and DMA as a trace, for Perfetto")
    parser.add_argument("--compare", type=Path, metavar="OLD", help="a model or a report: what the first one changed")
    add_json(parser)
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of reports, and end")
    add_options(parser, ModelRequest, [name for name in options_of(ModelRequest) if name not in ("cluster", "device")])
    parser.set_defaults(wrong_usage=parser.error)


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.templates import PACKAGE
    from edgebuild.model.views.page import page
    from edgebuild.model.views.reports import trace

    if args.schema:
        print((PACKAGE / "model/views/report.schema.json").read_text(encoding="utf-8"), end="")
        return 0
    if not args.models:
        args.wrong_usage("no model: name models, or reports")
    if not (args.output or args.trace or args.json):
        args.wrong_usage("nothing to write: give -o F.html, --trace F.json or --json F")
    written = [*json_file(args), *(f for f in (args.output, args.trace) if f)]
    read = [*args.models, *([args.compare] if args.compare else [])]
    check_replaced(written, read)
    reports = reports_of(args, args.models)
    earlier = reports_of(args, [args.compare])[0] if args.compare else None
    if args.output:
        write_atomic(args.output, page(reports, earlier).encode())
    if args.trace:
        write_atomic(args.trace, trace(reports).encode())
    show(args, "", reports)
    return 0
