"""`edgebuild size`: flash, RAM and stack of a linked program, by models, drivers and memories."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from edgebuild.cli.common import add_json, json_file, show

if TYPE_CHECKING:
    from edgebuild.base.errors import Diagnostic
    from edgebuild.build.size import Linked, ProgramSizes

BUDGETS = ("flash", "ram", "stack")


def size_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("elf", type=Path, help="a linked program")
    parser.add_argument("--diff", type=Path, metavar="BASE", help="an earlier one, or its --json: growth is an error")
    parser.add_argument("--allow", metavar="BYTES", help="with --diff: growth of flash, RAM or stack that is no error")
    parser.add_argument("--driver", action="append", default=[], metavar="NAME", help="count this driver by itself")
    parser.add_argument("--target", help="count the bytes in each of its memories")
    requests = "a file with paths of requests, whose drivers and target these are"
    parser.add_argument("--requests", type=Path, metavar="F", help=requests)
    for budget in BUDGETS:
        parser.add_argument(f"--{budget}", metavar="BYTES", help="a budget: more is an error")
    last = "sizes of the last program within its budgets: says what grew since, and is written when they hold"
    parser.add_argument("--last", type=Path, metavar="F", help=last)
    parser.add_argument(
        "--entry", metavar="FUNCTION", default="", help="where the stack begins; default: the program's"
    )
    usage = "a folder with .su files of -fstack-usage, for frames whose size depends on a value"
    parser.add_argument("--stack-usage", type=Path, metavar="DIR", help=usage)
    parser.add_argument("--objdump", default="", metavar="COMMAND", help="default: that of the processor's compiler")
    parser.add_argument("--quiet", action="store_true", help="print nothing while budgets hold")
    add_json(parser)


def size(args: argparse.Namespace) -> int:
    import json

    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.errors import EdgebuildError
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.options import parse_size
    from edgebuild.build.size import as_json, earlier, program_sizes, table

    budgets = {o: parse_size(o, value) for o in BUDGETS if (value := getattr(args, o)) is not None}
    allowed = parse_size("allow", args.allow) if args.allow is not None else 0
    check_replaced(
        [*json_file(args), *([args.last] if args.last else [])], [f for f in (args.elf, args.diff, args.requests) if f]
    )
    program = _program(args)
    sizes = program_sizes(program)
    base = earlier(args.diff, program) if args.diff else None
    rows = as_json(sizes)
    last = earlier(args.last, program) if args.last and args.last.exists() else None
    problems = _over(args, sizes, budgets, last)
    text = f"{table(sizes, base)}\n" if problems or not args.quiet else ""
    more = {"base": as_json(base)} if base else {}
    show(args, text, json.dumps({**rows, **more}, indent=1, sort_keys=True) + "\n")
    if problems:
        raise EdgebuildError(*problems)
    if args.last:
        write_atomic(args.last, (json.dumps(rows, indent=1, sort_keys=True) + "\n").encode())
    if base:
        _check_growth(args, sizes, base, allowed)
    return 0


def _program(args: argparse.Namespace) -> Linked:
    from edgebuild.base.errors import fail
    from edgebuild.base.request import DriverRequest, read_request, requests_in
    from edgebuild.base.target import load_target
    from edgebuild.build.size import Linked

    requests = [read_request(f).request for f in requests_in(args.requests)] if args.requests else []
    drivers = [*args.driver, *(r.name for r in requests if isinstance(r, DriverRequest))]
    targets = dict.fromkeys([args.target] if args.target else [r.target for r in requests])
    memories = load_target(*targets).memories if len(targets) == 1 else ()
    if args.allow is not None and args.diff is None:
        raise fail("--allow says how much may grow since --diff BASE")
    return Linked(args.elf, drivers, memories, args.entry, args.stack_usage, args.objdump)


def _over(
    args: argparse.Namespace, sizes: ProgramSizes, budgets: dict[str, int], last: ProgramSizes | None
) -> list[Diagnostic]:
    """The budgets that do not hold, with what grew and the largest parts."""
    from edgebuild.base.errors import Diagnostic
    from edgebuild.build.size import TOTAL, growth

    problems = []
    for what, most in budgets.items():
        used = sizes.used(what)
        reasons = sizes.stacks[TOTAL].reasons if what == "stack" else ()
        if used <= most and not reasons:
            continue
        text = f"{what}: {used:,} B, {used - most:,} B over the budget"
        if used <= most:
            text = f"{what}: at least {used:,} B, and no bound: {'; '.join(reasons)}"
        grown = growth(what, sizes, last) if last else []
        hints = [f"grew since it was within the budget: {', '.join(grown)}"] if grown else []
        problems.append(Diagnostic(text, str(args.elf), hints=(*hints, _largest(what, sizes))))
    return problems


def _largest(what: str, sizes: ProgramSizes) -> str:
    from edgebuild.build.size import MOST_NAMED, TOTAL

    bytes_of = {n: b.bytes for n, b in sizes.stacks.items() if n != TOTAL}
    if what != "stack":
        bytes_of = {name: getattr(part, what) for name, part in sizes.parts.items()}
    largest = sorted(bytes_of.items(), key=lambda part: -part[1])[:MOST_NAMED]
    return f"largest: {', '.join(f'{name} {size:,} B' for name, size in largest)}"


def _check_growth(args: argparse.Namespace, sizes: ProgramSizes, base: ProgramSizes, allowed: int) -> None:
    from edgebuild.base.errors import Diagnostic, EdgebuildError
    from edgebuild.build.size import growth

    problems = []
    for what in BUDGETS:
        more = sizes.used(what) - base.used(what)
        if more > allowed:
            beyond = f", {allowed:,} B are allowed" if allowed else ""
            hints = (", ".join(growth(what, sizes, base)),)
            problems.append(Diagnostic(f"{what}: {more:+,} B since {args.diff}{beyond}", str(args.elf), hints=hints))
    if problems:
        raise EdgebuildError(*problems)
