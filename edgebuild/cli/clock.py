"""`edgebuild clock`: list clock configurations and write the C that switches between them."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.cli.common import add_json, json_file, publish_products, show, started


def arguments(parser: argparse.ArgumentParser) -> None:
    from edgebuild.base.options import add_options
    from edgebuild.base.request import ClockRequest

    parser.add_argument("--target", required=True, help="a name that `edgebuild targets` lists, or a YAML file")
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    add_options(parser, ClockRequest)
    parser.add_argument("--calibration", metavar="F", help="currents in the table as `edgebuild calibrate` fitted them")
    add_json(parser)
    parser.add_argument("--explain", metavar="M,N,P", help="only say why a PLL setting is legal or not")
    parser.add_argument("--depfile", type=Path, help="write what was read, in make's language")


def run(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.options import given
    from edgebuild.base.request import ClockRequest, clock_request
    from edgebuild.base.target import load_target
    from edgebuild.clock.configs import base_of, behind, explain, parse_setting
    from edgebuild.clock.emit import clock_files, requested_plan, target_tree
    from edgebuild.clock.power import figures, table
    from edgebuild.model.energy.fit import calibrated, read_calibration

    began = started(args)
    request = clock_request("clocks", args.target, given(args, ClockRequest))
    if args.explain is not None:
        tree = target_tree(load_target(args.target))
        base, _ = base_of(tree, request.hse, request.source)
        m, n, p = parse_setting(args.explain)
        print(explain(behind(tree, request.source), base, m, n, p))
        return 0
    plan = requested_plan(request)
    known = read_calibration(Path(args.calibration), plan.tree) if args.calibration else None
    shown = replace(plan, tree=calibrated(plan.tree, known)) if known else plan
    placement = known.placement if known else None
    files = [*load_target(args.target).files, *([args.calibration] if args.calibration else [])]
    check_replaced(json_file(args), files)
    show(args, table(shown, placement), {"configs": figures(shown, placement)})
    artifacts = clock_files(plan)
    check_replaced([args.output / a.name for a in artifacts] + ([args.depfile] if args.depfile else []), files)
    publish_products(artifacts, args, load_target(args.target).files, began)
    return 0
