"""`edgebuild size`: flash and RAM of a linked program, by models, drivers and memories."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("elf", type=Path, help="a linked program")
    parser.add_argument("--diff", type=Path, metavar="BASE", help="an earlier one: what grew since")
    parser.add_argument("--driver", action="append", default=[], metavar="NAME", help="count this driver by itself")
    parser.add_argument("--target", help="count the bytes in each of its memories")
    parser.add_argument("--flash", metavar="BYTES", help="a budget: more is an error")
    parser.add_argument("--ram", metavar="BYTES", help="a budget: more is an error")
    parser.add_argument("--json", type=Path, metavar="F", help="write the numbers there")


def run(args: argparse.Namespace) -> int:
    import json

    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.errors import fail
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.options import parse_size
    from edgebuild.base.target import load_target
    from edgebuild.build.size import as_json, program_sizes, table

    budgets = {o: parse_size(o, v) for o, v in (("flash", args.flash), ("ram", args.ram)) if v is not None}
    memories = load_target(args.target).memories if args.target else ()
    read = [p for p in (args.elf, args.diff) if p]
    check_replaced([args.json] if args.json else [], read)
    sizes = program_sizes(args.elf, args.driver, memories)
    base = program_sizes(args.diff, args.driver, memories) if args.diff else None
    print(table(sizes, base))
    if args.json:
        rows = {**as_json(sizes), **({"base": as_json(base)} if base else {})}
        write_atomic(args.json, (json.dumps(rows, indent=1, sort_keys=True) + "\n").encode())
    for option, most in budgets.items():
        used = getattr(sizes.total, option)
        if used > most:
            largest = sorted(sizes.parts.items(), key=lambda part: -getattr(part[1], option))
            hints = [", ".join(f"{name} {getattr(s, option):,} B" for name, s in largest[:4])]
            raise fail(f"{option}: {used:,} B, {used - most:,} B over the budget", file=str(args.elf), hints=hints)
    return 0
