"""A request goes down through the planner: hardly a call climbs back into a file that stands above its caller.

A call climbs if the file of the called function imports that of the caller, itself or by way of others: a callback, or
a method of a class that stands above. Whoever reads on from there has to go back up.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import plan_model
from tests.conftest import ROOT
from tests.house.test_floors import PACKAGE, files, imports, module

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
PLANNER = PACKAGE / "model" / "plan"
MAX_CLIMBS = 4
REQUESTS: dict[str, dict[str, Any]] = {
    "default": {},
    "ram": {"objective": "ram"},
    "auto": {"tile": "auto"},
    "rolling": {"tile": "rolling"},
    "fdt": {"tile": "fdt"},
    "fits": {"ram": 1500},
    "streamed": {"stream_input": "rows"},
    "layer by layer": {"map": "layer"},
}


@cache
def imported() -> dict[str, set[str]]:
    """The files that each file imports, itself or by way of others."""
    names = {module(file): str(file) for file in files()}
    direct = {
        str(file): {f for _, there in imports(file) if (f := names.get(there) or names.get(there[:-1]))}
        for file in files()
    }
    below = {}
    for file in direct:
        waiting, seen = [file], set[str]()
        while waiting:
            new = direct[waiting.pop()] - seen
            seen |= new
            waiting += new
        below[file] = seen - {file}
    return below


def climbs(request: ModelRequest, below: dict[str, set[str]], inside: Path) -> set[tuple[str, str]]:
    """Callers and what they call, of the calls of a compilation that climb from one file of a folder to another."""
    pairs = set[tuple[str, str]]()
    ours = {file for file in below if Path(file).is_relative_to(inside)}

    def called(frame: FrameType, event: str, _: object) -> None:
        there = frame.f_code.co_filename
        if event != "call" or there not in ours:
            return
        caller = frame.f_back
        while caller is not None and caller.f_code.co_filename not in below:
            caller = caller.f_back
        if caller is not None and (here := caller.f_code.co_filename) in ours and here in below[there]:
            pairs.add((f"{here} {caller.f_code.co_qualname}", f"{there} {frame.f_code.co_qualname}"))

    target = load_target(request.target)
    sys.setprofile(called)
    try:
        plan_model(request, target)
    finally:
        sys.setprofile(None)
    return pairs


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", REQUESTS)
def test_requests_go_down(name: str) -> None:
    options = REQUESTS[name]
    target = "stm32h743" if "map" in options else "mps2-an386"
    climbing = climbs(ModelRequest(DIGITS, "digits", target, **options), imported(), PLANNER)
    assert len(climbing) <= MAX_CLIMBS, climbing


def test_the_measure_finds_a_climb() -> None:
    """The search for tilings asks the planner, which stands above it, to lay out each candidate."""
    climbing = climbs(ModelRequest(DIGITS, "digits", "mps2-an386", tile="fdt"), imported(), PLANNER)
    assert any("tiling/explore.py" in here and "plan/search.py" in there for here, there in climbing)
    plain = climbs(ModelRequest(DIGITS, "digits", "mps2-an386"), imported(), PACKAGE / "model")
    folders = {name: str(PACKAGE / "model" / name) for name in ("passes", "formats")}
    inside = {name: {c for c in plain if all(end.startswith(f) for end in c)} for name, f in folders.items()}
    assert not inside["passes"]
    assert len(inside["formats"]) <= MAX_CLIMBS, "a builder stands below the readers of nodes, and calls them"
