"""The pipeline of a driver's stages: Source -> Cdfg -> Shapes -> Conflicts -> Layout -> Merged -> products."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from ..base.artifacts import Artifact
from ..base.errors import Diagnostic, EdgebuildError, did_you_mean, fail
from ..base.request import DriverRequest
from ..base.target import load_target
from .analysis.cdfg import Cdfg
from .analysis.conflicts import Conflicts, Shapes, find_conflicts, simplify
from .analysis.walk import read_functions
from .emit import products
from .layout.optimize import extend, group_uses, optimize, writers
from .layout.registers import Bus, Layout, Uses, read_profile
from .merge.check import check
from .merge.merging import Driver, Merged, hazards, merge, oversized_constants, races, refused
from .source import clang
from .source.dialect import Dialect
from .source.lowering import Program
from .source.sources import Source, read_sources

TRIPLES = {"rv32": "riscv32-unknown-elf", "rv64": "riscv64-unknown-elf", "arm": "thumbv7m-none-eabi"}


def compile_driver(request: DriverRequest) -> tuple[tuple[Artifact, ...], Driver]:
    """(products, results of all stages). Raises EdgebuildError if a source, a layout or the request is wrong."""
    driver = analyse(request)
    return products.produce(driver.request.name, driver), driver


def template(request: DriverRequest) -> str:
    """An overlay to begin with, for a driver on a fixed layout."""
    from .registers import fixed
    from .registers.overlay import overlay_template

    way, _, file = request.layout.partition(":")
    if way != "fixed" or not file:
        raise fail("option 'overlay-template': only a fixed layout has an overlay", hints=["--layout fixed:FILE"])
    target = load_target(request.target)
    source = read_sources(request.sources, triple_of(request.target), request.flags)
    cdfg = read_functions(source)
    shapes = simplify(source.dialect, cdfg)
    bus = Bus(request.register_width, target.bus == "bytes")
    silicon = fixed.fix(Path(file), source.unit.text, source.dialect, shapes, bus)
    return overlay_template(silicon.layout, cdfg)


def triple_of(target: str) -> str:
    """The triple with which sources for a target are parsed."""
    return TRIPLES.get(load_target(target).core.isa[:4], TRIPLES["arm"])


def check_devices(source: Source, layout: Layout) -> None:
    """Raise EdgebuildError unless every device begins at a whole register, and outside of all other devices.

    Fixed layouts are not checked.
    """
    devices = sorted(source.dialect.devices.values(), key=lambda d: d.address)
    step = layout.bus.width // 8
    for device in devices:
        if device.address % step:
            text = f"device '{device.name}' at {device.address:#x}: registers of {layout.bus.width} bits"
            raise clang.wrong(device.where, source.unit.text, f"{text} lie at multiples of {step}")
    for low, high in pairwise(devices):
        size = layout.groups[low.group].size
        if high.address < low.address + size:
            text = f"device '{high.name}' at {high.address:#x} lies within '{low.name}', which has {size} bytes at"
            raise clang.wrong(high.where, source.unit.text, f"{text} {low.address:#x}")


def _check_groups(request: DriverRequest, dialect: Dialect) -> None:
    if not dialect.groups:
        hints = ["registers are bfGroup NAME { ... }: docs/drivers.md", "`edgebuild adopt` makes them of C with masks"]
        raise fail("there is no bfGroup in it", file=str(request.sources[0]), hints=hints)


def _check_names(source: Source, cdfg: Cdfg, interrupts: frozenset[str], file: str) -> None:
    for f in cdfg.functions.values():
        if f.interrupt and interrupts and f.interrupt not in interrupts:
            text = f"{file} has no interrupt '{f.interrupt}'{did_you_mean(f.interrupt, interrupts)}"
            raise clang.wrong(f.where, source.unit.text, text)


def _merged(
    dialect: Dialect, cdfg: Cdfg, shapes: Shapes, layout: Layout, conflicts: Conflicts, program: Program
) -> tuple[Merged, tuple[Diagnostic, ...]]:
    """The merged accesses, checked, and warnings. Raises EdgebuildError for hazards and races."""
    merged = merge(dialect, cdfg, shapes, layout, conflicts)
    errors, warnings = hazards(cdfg, merged)
    more_errors, more_warnings = races(dialect, cdfg, merged)
    if wrong := [*errors, *more_errors, *oversized_constants(dialect, cdfg, program)]:
        raise EdgebuildError(*wrong)
    check(dialect, cdfg, merged)
    return merged, (*warnings, *more_warnings, *refused(cdfg, merged))


def analyse(request: DriverRequest) -> Driver:
    target = load_target(request.target)
    bus = Bus(request.register_width, target.bus == "bytes")
    source = read_sources(request.sources, triple_of(request.target), request.flags)
    dialect = source.dialect
    cdfg = read_functions(source)
    _check_groups(request, dialect)
    shapes = simplify(dialect, cdfg)
    files, absent = [*source.files, *target.files], tuple[str, ...]()
    uses: Mapping[str, Uses] = {}
    way, _, file = request.layout.partition(":")
    if way == "fixed" and file:
        from .registers import fixed  # late: imports readers that other layouts do not need

        silicon = fixed.fix(Path(file), source.unit.text, dialect, shapes, bus)
        dialect, layout, shapes = silicon.dialect, silicon.layout, silicon.shapes
        files += silicon.files
        absent = silicon.absent
        conflicts = find_conflicts(dialect, cdfg, shapes)
        _check_names(source, cdfg, silicon.interrupts, Path(file).name)
    elif way == "extend" and file:
        conflicts = find_conflicts(dialect, cdfg, shapes)
        uses = group_uses(conflicts, {})
        layout = extend(Path(file), dialect, shapes, uses, bus, writers(cdfg, conflicts))
        check_devices(source, layout)
        files.append(file)
    elif request.layout in ("optimize", "heuristic"):
        conflicts = find_conflicts(dialect, cdfg, shapes)
        weights: Mapping[str, int] = {}
        if request.profile:
            weights = read_profile(request.profile, cdfg)
            files.append(str(request.profile))
        uses = group_uses(conflicts, weights)
        layout = optimize(dialect, shapes, uses, bus, writers(cdfg, conflicts), exact=request.layout == "optimize")
        check_devices(source, layout)
    else:
        raise fail(
            f"layout '{request.layout}' is not known", hints=["one of: optimize, heuristic, fixed:FILE, extend:FILE"]
        )
    merged, warnings = _merged(dialect, cdfg, shapes, layout, conflicts, source.program)
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
        warnings,
        tuple(files),
        absent,
    )
