"""`edgebuild sbom`: a bill of materials of what was generated."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("request", type=Path, nargs="*", help="NAME.req.json, as SCons and CMake write it; it is built")
    parser.add_argument("--requests", type=Path, metavar="F", help="a file with paths of requests")
    parser.add_argument("--program", type=Path, metavar="ELF", help="what links all of it")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="F", help="the document: SPDX 2.3, JSON")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.errors import fail
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.request import read_request, requests_in
    from edgebuild.build.sbom import bill_of_materials

    files = [*args.request, *(requests_in(args.requests) if args.requests else [])]
    if not files:
        raise fail("no requests are given", hints=["build folders have them as NAME.req.json"])
    check_replaced([args.output], [f for f in (*files, args.requests, args.program) if f])
    name = args.program.name if args.program else args.output.name.partition(".")[0]
    write_atomic(args.output, bill_of_materials(name, [read_request(f) for f in files], args.program))
    return 0
