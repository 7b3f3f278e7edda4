"""`edgebuild fit`: which targets a model fits."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.base.options import add_options
from edgebuild.base.request import ModelRequest
from edgebuild.cli.common import add_json, json_file, model_request_of, show

OPTIONS = ("qos", "optimize", "portable", "shape", "bind", "outputs")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="a model file; `edgebuild ops` names the formats")
    patterns = "names, patterns or YAML files; default: all that state a clock, which are chips and boards one can buy"
    parser.add_argument("--targets", metavar="GLOB,...", help=patterns)
    parser.add_argument(
        "--smallest", action="store_true", help="only the one of least memory that fits; exit 1 if none"
    )
    add_json(parser)
    add_options(parser, ModelRequest, OPTIONS)


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.progress import say
    from edgebuild.model.compile import prepare
    from edgebuild.model.fitting.chips import Fit, as_json, as_text, best_first, chosen_targets

    args.target = "host"
    request = model_request_of(args, "model")
    targets = chosen_targets(args.targets)
    files = [args.model, *(file for target in targets for file in target.files)]
    check_replaced(json_file(args), files)
    fit = Fit(prepare(request.source, request.shape, request.outputs, request.bind), request)
    rows = []
    for number, target in enumerate(targets):
        say(f"target {number + 1} of {len(targets)}: {target.name}")
        rows.append(fit.row(target))
    rows = best_first(rows)
    if args.smallest:
        rows = rows[:1]
    show(args, as_text(rows, request, short=args.smallest), as_json(rows, request))
    return 0 if not args.smallest or rows[0].fits else 1
