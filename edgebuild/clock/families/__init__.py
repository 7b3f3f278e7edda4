"""Families of chips whose clocks are switched by one sequence of C.

A family is a folder: `view` gives the values of its template, `clock_config.c.j2`. A clock tree names its family beside
the addresses of its registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..configs import ClockPlan
from ..tree import Registers
from . import stm32_f4f7

FAMILIES: Mapping[str, Callable[[ClockPlan, Registers], dict[str, Any]]] = {"stm32_f4f7": stm32_f4f7.view}
