"""Which variant of a kernel was the fastest when somebody measured: kept beside the cache, taken by later compilations.

A choice is a word `LAYER=VARIANT`; a layer is named by the start of its kernel's name and the shape that it reads. One
file holds the choices for processors of equal features. Without a file nothing changes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from edgebuild.base.artifacts import write_atomic
from edgebuild.base.cache import folder
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target


def with_choices(request: ModelRequest) -> ModelRequest:
    """The request with what was measured for its target and its wishes."""
    return replace(request, choices=tuple(f"{layer}={variant}" for layer, variant in sorted(read(request).items())))


def files(request: ModelRequest) -> list[str]:
    """The file with choices for the request's target, if there is one."""
    place = _file(request)
    return [str(place)] if place is not None and os.path.exists(place) else []


def read(request: ModelRequest) -> dict[str, str]:
    """Layer to variant; empty if nothing was measured."""
    place = _file(request)
    try:
        found = json.loads(place.read_text(encoding="utf-8")) if place is not None else {}
    except (OSError, ValueError):
        return {}
    return {str(layer): str(variant) for layer, variant in found.items()} if isinstance(found, dict) else {}


def store(request: ModelRequest, found: Mapping[str, str]) -> Path | None:
    """Add choices to those that are known; the file, or None if there is no cache."""
    place = _file(request)
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**read(request), **found}, indent=1, sort_keys=True) + "\n"
        write_atomic(place, text.encode())
    return place


def clear() -> int:
    """Forget all choices; how many files there were. They stay, empty: builds that have read them look for them."""
    where = folder()
    found = list((where / "tuned").glob("*.json")) if where is not None else []
    for file in found:
        write_atomic(file, b"{}\n")
    return len(found)


def _file(request: ModelRequest) -> Path | None:
    where, known = folder(), load_target(request.target).words
    words = [*sorted(known), request.optimize, *(["portable"] if request.portable else [])]
    return where / "tuned" / f"{hashlib.sha256(' '.join(words).encode()).hexdigest()[:16]}.json" if where else None
