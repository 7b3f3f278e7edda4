"""Compiled models by what they were made from, so that a clean build or another checkout compiles nothing twice.

The key is the content of everything that generated files depend on: the request, the model, the
target's files and this package. No path and no date is part of it. $EDGEBUILD_CACHE names the
folder; set to nothing it turns the cache off.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from edgebuild import __version__
from edgebuild.artifacts import Artifact
from edgebuild.doors import PACKAGE, code_files
from edgebuild.request import ModelRequest, model_outputs
from edgebuild.target import load_target

Compile = Callable[[ModelRequest], tuple[Artifact, ...]]


def folder() -> Path | None:
    """Where entries are kept; None if the cache is off."""
    named = os.environ.get("EDGEBUILD_CACHE")
    if named is not None:
        return Path(named) if named else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgebuild"


def compiled(request: ModelRequest, compile_model: Compile) -> tuple[Artifact, ...]:
    """The artifacts of a request, from the cache if it has them; the caller's compiler makes what it has not."""
    where = folder()
    entry = where / found[:2] / found[2:] if where is not None and (found := key(request)) else None
    if entry is not None and (kept := _read(entry, request)) is not None:
        return kept
    artifacts = compile_model(request)
    if entry is not None:
        _write(entry, artifacts)
    return artifacts


def key(request: ModelRequest) -> str | None:
    """What the artifacts depend on, hashed; None if that cannot be told."""
    try:
        model, *others = (file.read_bytes() for file in request.files)
    except OSError:
        return None
    elsewhere = request.cmsis_nn or (request.source.suffix == ".onnx" and b"location" in model)
    if request.time_limit is not None or elsewhere:
        return None  # the result depends on the machine, or on files that ONNX keeps beside the model
    target = load_target(request.target)
    paths = {"source": request.source.name, "calibration": request.calibration and request.calibration.name}
    options = {**asdict(request), **paths, "target": target.name, "version": __version__}
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
    for data in (model, *others):
        digest.update(hashlib.sha256(data).digest())
    for file in (*target.files, *code_files()):
        inside = os.path.relpath(file, PACKAGE) if Path(file).is_relative_to(PACKAGE) else os.path.basename(file)
        digest.update(inside.encode() + hashlib.sha256(Path(file).read_bytes()).digest())
    return digest.hexdigest()


def clear() -> int:
    """Remove all entries; how many there were."""
    count = len(list(entries()))
    where = folder()
    if where is not None:
        shutil.rmtree(where, ignore_errors=True)
    return count


def entries() -> Iterable[Path]:
    where = folder()
    return where.glob("??/*") if where is not None else ()


def _read(entry: Path, request: ModelRequest) -> tuple[Artifact, ...] | None:
    try:
        return tuple(Artifact(name, (entry / name).read_bytes()) for name in model_outputs(request.name))
    except OSError:
        return None


def _write(entry: Path, artifacts: Iterable[Artifact]) -> None:
    """A whole entry or none: the files are written aside and take their place by one rename."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=entry.parent, prefix=".") as name:
            aside = Path(name) / "entry"
            aside.mkdir()
            for a in artifacts:
                (aside / a.name).write_bytes(a.data)
            aside.rename(entry)
    except OSError:
        pass  # somebody else was first, or the disk is full: the build goes on without
