"""`edgebuild prove`: whether two versions of a driver make the same accesses, function by function."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgebuild.cli.common import add_json, json_file, show

if TYPE_CHECKING:
    from edgebuild.base.request import DriverRequest

TARGET = "stm32f411"


def prove_arguments(parser: argparse.ArgumentParser) -> None:
    source = "C or C++ with registers as volatile objects, or a source in the bfGroup dialect"
    parser.add_argument("old", type=Path, metavar="OLD", help=source)
    parser.add_argument("new", type=Path, metavar="NEW", help="the other version")
    parser.add_argument(
        "--svd", type=Path, metavar="F", help="the registers (.svd, .rdl), whose names messages then have"
    )
    parser.add_argument("--function", action="append", default=[], metavar="NAME", help="only this; may be repeated")
    parser.add_argument("--strict", action="store_true", help="what cannot be proved is an error, too")
    add_reading(parser)
    add_json(parser)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Give the command what says how C sources are read."""
    parser.add_argument("--target", default=TARGET, help=f"whose processor the sources are read for; default: {TARGET}")
    for flag, name in (("-I", "include_dirs"), ("-D", "defines"), ("-include", "force_include")):
        help_ = "as that of a C preprocessor; may be repeated"
        parser.add_argument(flag, action="append", default=[], metavar="X", dest=name, help=help_)


def prove(args: argparse.Namespace) -> int:
    from edgebuild.base.errors import Diagnostic, MissingTool
    from edgebuild.base.inputs import check_replaced

    try:
        from edgebuild.driver.prove.versions import prove_versions  # late: the solver is an extra
    except ModuleNotFoundError as error:
        raise MissingTool(Diagnostic(f"{error}", hints=("pip install 'edgebuild[prove]'",))) from error
    requests = [version_request(args, file) for file in (args.old, args.new)]
    check_replaced(json_file(args), [args.old, args.new, *([args.svd] if args.svd else [])])
    rows = prove_versions(requests[0], requests[1], tuple(args.function))
    counts = {word: sum(r.verdict == word for r in rows) for word in ("proved", "different", "unknown")}
    lines = []
    for r in rows:
        lines.append(f"{r.function}: {r.verdict}{f': {r.why}' if r.why else ''}")
        lines += [f"  with {', '.join(f'{name} = {value}' for name, value in r.inputs.items())}"] if r.inputs else []
    lines.append(", ".join(f"{count} {word}" for word, count in counts.items()))
    data = {"schema": 1, **counts, "functions": [{k: v for k, v in vars(r).items() if v} for r in rows]}
    show(args, "\n".join(lines) + "\n", data)
    if not rows:
        print(f"{args.old}: warning: no function is in both files", file=sys.stderr)
    return int(counts["different"] > 0 or (args.strict and counts["unknown"] > 0))


def version_request(args: argparse.Namespace, file: Path) -> DriverRequest:
    """The request that a version in the dialect is compiled for; plain C takes its flags."""
    from edgebuild.base.request import driver_request

    words = {name: ",".join(getattr(args, name)) or None for name in ("include_dirs", "defines", "force_include")}
    layout = {"layout": f"fixed:{args.svd}"} if args.svd else {}
    return driver_request((file,), "version", args.target, {**words, **layout})
