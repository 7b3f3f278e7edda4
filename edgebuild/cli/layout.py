"""`edgebuild layout`: solve a memory layout problem."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.cli.common import add_json, json_file, show


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="a table of buffers: id, first step, the step behind the last, bytes")
    parser.add_argument("--capacity", help="decide whether it fits, instead of looking for the least height")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.csv", help="the offsets found")
    add_json(parser)
    parser.add_argument("--time-limit", type=float, metavar="S", help="of the solver; default: until it is optimal")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.options import parse_size
    from edgebuild.model.plan.memory.layout import solve_file, words

    capacity = parse_size("capacity", args.capacity) if args.capacity is not None else None
    check_replaced(json_file(args), [args.file])
    result = solve_file(args.file, capacity, args.output, args.time_limit)
    if result is None:
        return 1
    figures = {name: getattr(result, name) for name in ("height", "bound", "optimal", "method")}
    show(args, words(result), figures)
    return 0
