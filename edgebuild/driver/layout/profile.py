"""Profiles: how often each function of a driver runs, for a layout that is best where it matters.

functions: {set_gpio_pin_value: 50000, get_gpio_irq_status: 900}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgebuild.base.dataclass import dataclass
from edgebuild.base.errors import did_you_mean, fail
from edgebuild.base.facts import read_facts
from edgebuild.base.inputs import read_text
from edgebuild.driver.analysis.cdfg import Cdfg

MOST = 10**9


@dataclass(frozen=True)
class Profile:
    """Runs in any unit of time. Functions that are not named count once."""

    functions: Mapping[str, int]

    def __post_init__(self) -> None:
        for name, count in self.functions.items():
            if not 1 <= count <= MOST:
                raise ValueError(f"'{name}' runs {count} times: from 1 to {MOST} are possible")


def read_profile(path: Path, cdfg: Cdfg) -> Mapping[str, int]:
    """Raises EdgebuildError if the file is not right, or names a function that the driver does not have."""
    functions = read_facts(Profile, path).functions
    for name in functions:
        if name not in cdfg.functions:
            lines = read_text(path).splitlines()
            line = next((i for i, text in enumerate(lines, 1) if name in text), 0)
            raise fail(
                f"the driver has no function '{name}'{did_you_mean(name, cdfg.functions)}", file=str(path), line=line
            )
    return functions
