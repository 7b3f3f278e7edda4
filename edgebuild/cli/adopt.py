"""`edgebuild adopt`: a driver in C with masks becomes a source in the bfGroup dialect."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.cli.common import add_json, json_file, show
from edgebuild.cli.prove import add_reading, version_request


def adopt_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, metavar="DRIVER", help="C with registers as volatile objects, and masks")
    parser.add_argument("--svd", type=Path, metavar="F", required=True, help="the registers (.svd, .rdl)")
    out = "the source to write (.c), or its folder; default: DRIVER.bf.c here"
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="OUT", help=out)
    add_reading(parser)
    add_json(parser)


def adopt(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.errors import Diagnostic, MissingTool, fail
    from edgebuild.base.inputs import check_replaced

    try:
        from edgebuild.driver.adopt import adopting  # late: the solver is an extra
    except ModuleNotFoundError as error:
        raise MissingTool(Diagnostic(f"{error}", hints=("pip install 'edgebuild[prove]'",))) from error
    out = args.output if args.output.suffix == ".c" else args.output / f"{args.source.stem}.bf.c"
    check_replaced([out, *json_file(args)], [args.source, args.svd])
    text, functions = adopting.adopt(version_request(args, args.source))
    converted = sum(len(f.accesses) for f in functions)
    lines = [f"{args.source}:{n}: {f.function.name}: stays C: {why}" for f in functions for n, why in f.stays]
    if not converted:
        raise fail("no function can be adopted", file=str(args.source), hints=lines or ["it accesses no registers"])
    write_atomic(out, text.encode())
    whole = sum(not f.stays for f in functions)
    lines.append(
        f"[edgebuild] adopt {args.source.name} -> {out.name}: {whole} of {len(functions)} functions with registers, "
        f"{converted} accesses, all proved"
    )
    rows = [
        {
            "function": f.function.full_name,
            "form": adopting.LEVELS[f.level][0],
            "accesses": len(f.accesses),
            "stays": [{"line": n, "why": why} for n, why in f.stays],
        }
        for f in functions
    ]
    show(args, "\n".join(lines) + "\n", {"schema": 1, "adopted": whole, "accesses": converted, "functions": rows})
    return 0
