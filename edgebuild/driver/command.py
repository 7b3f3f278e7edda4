"""The command `edgebuild driver`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from ..base.artifacts import Artifact, write_atomic
from ..base.errors import Diagnostic, MissingTool, fail
from ..base.inputs import check_replaced
from ..base.options import given
from ..base.request import DriverRequest, driver_request
from .emit import products
from .layout.optimize import front, picture
from .merge.merging import Driver
from .pipeline import compile_driver, template, triple_of


def driver(args: argparse.Namespace, publish: Callable[..., None], show: Callable[[str, str], None]) -> int:
    """Run the command; returns its exit status. `publish(artifacts, read=files)` writes the products and the depfile.

    `show(text, report)` prints the text or the JSON report.
    """
    options = given(args, DriverRequest)
    for name in ("include_dirs", "defines", "force_include"):
        words = [*([str(options[name])] if options[name] else []), *getattr(args, f"more_{name}")]
        options[name] = ",".join(words) or None
    request = driver_request(tuple(args.sources), args.name, args.target, options)
    if args.pareto and request.layout.startswith("fixed:"):
        raise fail("option 'pareto': a fixed layout leaves nothing to choose")
    if args.overlay_template:
        print(template(request), end="")
        return 0
    artifacts, driver = _compiled(request)
    if args.prove and not _proved(driver, artifacts, quiet=args.quiet, strict=args.prove == "strict"):
        return 1
    text = "" if args.quiet else summary(args.name, driver)
    more = [f for f in (args.pareto, args.graph, args.depfile, args.json if args.json != "-" else None) if f]
    check_replaced([*(args.output / a.name for a in artifacts), *more], driver.files)
    publish(artifacts, read=driver.files)
    if args.pareto:
        points = front(driver.dialect, driver.shapes, driver.uses, driver.layout.bus)
        text += "".join(f"\n{size:>8} B {accesses:>6} accesses" for size, accesses in points)
        write_atomic(args.pareto, picture(points, (driver.layout.bytes, driver.layout.cost), args.name).encode())
    if args.graph:
        write_atomic(args.graph, products.picture(driver).encode())
    show("" if args.quiet else f"{text}\n", next(a.data for a in artifacts if a.name.endswith("_report.json")).decode())
    return 0


def _proved(driver: Driver, artifacts: tuple[Artifact, ...], quiet: bool, strict: bool) -> bool:
    """Whether no function of the generated code is refuted; with `strict`, whether all are proved.

    Failures are printed even if `quiet`.
    """
    try:
        from .prove import verdicts  # late: the solver is an extra
    except ModuleNotFoundError as error:
        raise MissingTool(Diagnostic(f"{error}", hints=("pip install z3-solver",))) from error
    proofs = verdicts.prove(driver, triple_of(driver.request.target), artifacts)
    wrong = [v for v in proofs if v.what == "refuted" or (strict and v.what == "unknown")]
    if not quiet or wrong:
        print("\n".join(verdicts.summary(proofs)), file=sys.stderr if quiet else sys.stdout)
    return not wrong


def generate(request: DriverRequest) -> tuple[tuple[Artifact, ...], Driver, str]:
    """(products, results of all stages, summary for a build's output). Prints warnings to stderr."""
    artifacts, driver = _compiled(request)
    return artifacts, driver, summary(request.name, driver)


def _compiled(request: DriverRequest) -> tuple[tuple[Artifact, ...], Driver]:
    artifacts, driver = compile_driver(request)
    for warning in driver.warnings:
        print(warning, file=sys.stderr)
    return artifacts, driver


def summary(name: str, driver: Driver) -> str:
    """Summary of a driver for a build's output."""
    before = sum(products.before(driver, f) for f in driver.cdfg.functions)
    after = sum(products.after(driver, f) for f in driver.cdfg.functions)
    layout = driver.layout
    proof = "optimal" if layout.optimal else f"bound {layout.bound}"
    return (
        f"[edgebuild] driver {name} -> {driver.target}: {before} -> {after} register accesses in "
        f"{len(driver.cdfg.functions)} functions\n[edgebuild] layout {layout.method} ({proof}), map {layout.bytes} B"
    )
