"""Fastest kernel variants that the user has measured: stored beside the cache, used by later compilations.

A choice is a word `LAYER=VARIANT`; a layer is named by the start of its kernel's name and the shape that it reads. One
file holds the choices for processors of equal features. Without a file nothing changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..base import private
from ..base.cache import folder, used
from ..base.request import ModelRequest
from ..base.target import load_target

FOLDER, FILE = "tuned", re.compile(r"[0-9a-f]{16}\.json")
MAX_BYTES = 1 << 20  # bytes of a file


def with_choices(request: ModelRequest) -> ModelRequest:
    """The request with the choices measured for its target and its wishes."""
    return replace(request, choices=tuple(f"{layer}={variant}" for layer, variant in sorted(read(request).items())))


def files(request: ModelRequest) -> list[str]:
    """Path of the file with choices for the request's target; empty if no readable file exists."""
    where = folder()
    return (
        [str(where / FOLDER / _name(request))]
        if where is not None and _stored_choices(_name(request)) is not None
        else []
    )


def read(request: ModelRequest) -> dict[str, str]:
    """Maps layers to variants; empty if none were measured."""
    try:
        stored = json.loads(_stored_choices(_name(request)) or b"{}")
    except (RecursionError, ValueError):
        return {}
    return {str(layer): str(variant) for layer, variant in stored.items()} if isinstance(stored, dict) else {}


def store(request: ModelRequest, choices: Mapping[str, str]) -> Path | None:
    """Add choices to the stored ones. Returns the file; None if there is no cache."""
    where, name = folder(), _name(request)
    text = json.dumps({**read(request), **choices}, indent=1, sort_keys=True) + "\n"
    with used(make=True) as top:
        if top is None or where is None:
            return None
        with private.inside(top, FOLDER, make=True) as tuned:
            private.replace(tuned, name, text.encode())
    return where / FOLDER / name


def clear() -> int:
    """Delete all choices; returns the number of files. They stay, empty: builds that read them depend on them."""
    try:
        with used() as top:
            if top is None:
                return 0
            with private.inside(top, FOLDER) as tuned:
                names = list(filter(FILE.fullmatch, os.listdir(tuned)))
                for name in names:
                    private.replace(tuned, name, b"{}\n")
                return len(names)
    except FileNotFoundError:
        return 0


def _stored_choices(name: str) -> bytes | None:
    """The bytes of a file with choices; None if no readable file exists."""
    try:
        with used() as top:
            if top is None:
                return None
            with private.inside(top, FOLDER) as tuned:
                return private.read(tuned, name, MAX_BYTES)
    except OSError:
        return None


def _name(request: ModelRequest) -> str:
    features = load_target(request.target).words
    words = [*sorted(features), request.optimize, *(["portable"] if request.portable else [])]
    return f"{hashlib.sha256(' '.join(words).encode()).hexdigest()[:16]}.json"
