"""The stages, each with its own value: Source -> Cdfg -> Shapes -> Conflicts -> Layout -> Merged -> products."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from edgebuild.artifacts import Artifact
from edgebuild.drivers import clang, products
from edgebuild.drivers.conflicts import find_conflicts
from edgebuild.drivers.layout import Bus, Layout
from edgebuild.drivers.merge import hazards, merge
from edgebuild.drivers.optimize import group_uses, optimize
from edgebuild.drivers.problem import Uses
from edgebuild.drivers.simplify import simplify
from edgebuild.drivers.sources import Source, read_sources
from edgebuild.drivers.stages import Driver
from edgebuild.drivers.verify import check
from edgebuild.drivers.walk import read_functions
from edgebuild.errors import EdgebuildError, fail
from edgebuild.request import DriverRequest
from edgebuild.target import load_target

TRIPLES = {"rv32": "riscv32-unknown-elf", "rv64": "riscv64-unknown-elf", "arm": "thumbv7m-none-eabi"}


def compile_driver(request: DriverRequest) -> tuple[tuple[Artifact, ...], Driver]:
    """The products and the stages. Raises EdgebuildError if a source, a layout or the request is wrong."""
    driver = analyse(request)
    return products.produce(driver.request.name, driver), driver


def check_devices(source: Source, layout: Layout) -> None:
    """No device begins within the registers of another. Where the layout is fixed, the silicon answers for that."""
    devices = sorted(source.dialect.devices.values(), key=lambda d: d.address)
    for low, high in pairwise(devices):
        size = layout.groups[low.group].size
        if high.address < low.address + size:
            text = f"device '{high.name}' at {high.address:#x} lies within '{low.name}', which has {size} bytes at"
            raise clang.wrong(high.where, source.unit.text, f"{text} {low.address:#x}")


def analyse(request: DriverRequest) -> Driver:
    target = load_target(request.target)
    bus = Bus(request.width, target.bus == "bytes")
    source = read_sources(request.sources, TRIPLES.get(target.core.isa[:4], TRIPLES["arm"]))
    dialect = source.dialect
    cdfg = read_functions(source.unit, dialect)
    shapes = simplify(dialect, cdfg)
    files = [*source.files, *target.files]
    uses: Mapping[str, Uses] = {}
    way, _, file = request.layout.partition(":")
    if way == "fixed" and file:
        from edgebuild.drivers import fixed  # late: brings readers that other drivers do without

        found = fixed.fix(Path(file), source.unit.text, dialect, shapes, bus)
        dialect, layout = found.dialect, found.layout
        files += found.files
        conflicts = find_conflicts(dialect, cdfg, shapes)
    elif request.layout in ("optimize", "heuristic"):
        conflicts = find_conflicts(dialect, cdfg, shapes)
        weights: Mapping[str, int] = {}
        if request.profile:
            from edgebuild.drivers.profile import read_profile  # late, as above

            weights = read_profile(request.profile, cdfg)
            files.append(str(request.profile))
        uses = group_uses(conflicts, weights)
        layout = optimize(dialect, shapes, uses, bus, exact=request.layout == "optimize")
        check_devices(source, layout)
    else:
        raise fail(f"layout '{request.layout}' is not known", hints=["one of: optimize, heuristic, fixed:FILE"])
    merged = merge(dialect, cdfg, shapes, layout, conflicts)
    errors, warnings = hazards(dialect, cdfg, merged)
    if errors:
        raise EdgebuildError(*errors)
    check(dialect, cdfg, merged)
    return Driver(
        request,
        target.name,
        source,
        dialect,
        cdfg,
        shapes,
        conflicts,
        uses,
        layout,
        merged,
        (*cdfg.warnings, *warnings),
        tuple(files),
    )
