"""Values of all stages of a driver's pipeline; products, pictures and reports are views of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgebuild.base.errors import Diagnostic
from edgebuild.base.request import DriverRequest
from edgebuild.driver.analysis.cdfg import Cdfg
from edgebuild.driver.analysis.conflicts import Conflicts
from edgebuild.driver.analysis.simplify import Shapes
from edgebuild.driver.layout.registers import Layout, Uses
from edgebuild.driver.merge.merging import Merged
from edgebuild.driver.source.dialect import Dialect
from edgebuild.driver.source.sources import Source


@dataclass(frozen=True)
class Driver:
    """All stages of one driver."""

    request: DriverRequest
    target: str  # its name, where the request may have a file
    source: Source
    dialect: Dialect  # with what a register description says of the fields
    cdfg: Cdfg
    shapes: Shapes
    conflicts: Conflicts
    uses: Mapping[str, Uses]  # what the layout is best for; empty where it was fixed
    layout: Layout
    merged: Merged
    warnings: tuple[Diagnostic, ...]
    files: tuple[str, ...]  # all that was read
    absent: tuple[str, ...]  # and what would have been, but does not exist
