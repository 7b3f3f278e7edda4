"""What the stages of the pipeline made of a driver; products, pictures and reports are views of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgebuild.drivers.cdfg import Cdfg
from edgebuild.drivers.conflicts import Conflicts
from edgebuild.drivers.dialect import Dialect
from edgebuild.drivers.layout import Layout
from edgebuild.drivers.merge import Merged
from edgebuild.drivers.problem import Uses
from edgebuild.drivers.simplify import Shapes
from edgebuild.drivers.sources import Source
from edgebuild.errors import Diagnostic
from edgebuild.request import DriverRequest


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
