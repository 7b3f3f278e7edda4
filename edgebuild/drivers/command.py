"""`edgebuild driver`: the arguments, and what the command does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgebuild.artifacts import Artifact
    from edgebuild.drivers.stages import Driver
    from edgebuild.request import DriverRequest


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("sources", type=Path, nargs="+", metavar="SRC", help="C in the bfGroup dialect")
    sub.add_argument("--name", required=True, help="prefix of the products' files")
    sub.add_argument("--target", required=True, help="a name that `edgebuild targets` lists, or a YAML file")
    sub.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    sub.add_argument(
        "--layout", default="optimize", metavar="L", help="optimize, heuristic, or fixed:FILE (.svd, .rdl)"
    )
    sub.add_argument("--register-width", type=int, choices=(8, 16, 32), default=32, metavar="BITS", help="8, 16 or 32")
    sub.add_argument("--profile", type=Path, metavar="FILE", help="how often functions run, for the layout (YAML)")
    sub.add_argument(
        "--pareto", type=Path, metavar="SVG", help="draw the layouts of which none is better in both map and accesses"
    )
    sub.add_argument("--depfile", type=Path, help="write what was read, in make's language")
    sub.add_argument("-q", "--quiet", action="store_true", help="print nothing")


def driver(args: argparse.Namespace, depfile: Callable[[str, list[str]], str]) -> int:
    """`depfile` writes one rule in make's language from a target and its prerequisites."""
    from edgebuild.artifacts import publish, write_atomic
    from edgebuild.doors import code_files
    from edgebuild.errors import fail
    from edgebuild.request import driver_request

    options = {
        "layout": args.layout,
        "profile": args.profile and str(args.profile),
        "register_width": args.register_width,
    }
    request = driver_request(tuple(args.sources), args.name, args.target, options)
    if args.pareto and request.layout.startswith("fixed:"):
        raise fail("option 'pareto': a fixed layout leaves nothing to choose")
    artifacts, made = _compiled(request)
    text = "" if args.quiet else summary(args.name, made)
    publish(artifacts, args.output)
    if args.pareto:
        from edgebuild.drivers.pareto import front, picture

        points = front(made.dialect, made.shapes, made.uses, made.layout.bus)
        text += "".join(f"\n{size:>8} B {accesses:>6} accesses" for size, accesses in points)
        write_atomic(args.pareto, picture(points, (made.layout.bytes, made.layout.cost), args.name).encode())
    if args.depfile:
        read = [*made.files, *code_files()]
        write_atomic(args.depfile, depfile(str(args.output / artifacts[0].name), read).encode())
    if not args.quiet:
        print(text)
    return 0


def generate(request: DriverRequest) -> tuple[tuple[Artifact, ...], list[str], str]:
    """(products, files that were read, what a build says); warnings go to stderr."""
    artifacts, made = _compiled(request)
    return artifacts, list(made.files), summary(request.name, made)


def _compiled(request: DriverRequest) -> tuple[tuple[Artifact, ...], Driver]:
    from edgebuild.drivers.pipeline import compile_driver

    artifacts, made = compile_driver(request)
    for warning in made.warnings:
        print(warning, file=sys.stderr)
    return artifacts, made


def summary(name: str, made: Driver) -> str:
    """What a build says about a driver."""
    from edgebuild.drivers import report

    before = sum(report.before(made, f) for f in made.cdfg.functions)
    after = sum(report.after(made, f) for f in made.cdfg.functions)
    layout = made.layout
    proof = "optimal" if layout.optimal else f"bound {layout.bound}"
    return (
        f"[edgebuild] driver {name} -> {made.target}: {before} -> {after} register accesses in "
        f"{len(made.cdfg.functions)} functions\n[edgebuild] layout {layout.method} ({proof}), map {layout.bytes} B"
    )
