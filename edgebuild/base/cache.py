"""Compiled models by what they were made from, so that a clean build or another checkout compiles nothing twice.

The key is the content of everything that generated files depend on: the request, the model, the
target's files and this package. No path and no date is part of it. An entry is read only if the digests of its files
are those that were written with it. $EDGEBUILD_CACHE names the
folder; set to nothing it turns the cache off.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from edgebuild import __version__
from edgebuild.base.artifacts import Artifact
from edgebuild.base.installation import PACKAGE, code_files
from edgebuild.base.request import ModelRequest, model_outputs
from edgebuild.base.target import load_target

Compile = Callable[[ModelRequest], tuple[Artifact, ...]]
LIST = "digests"


def folder() -> Path | None:
    """Where entries are kept; None if the cache is off, or if the user has no home, as in containers."""
    named = os.environ.get("EDGEBUILD_CACHE")
    if named is not None:
        return Path(named) if named else None
    place = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return None if place.startswith("~") else Path(place) / "edgebuild"


def compiled(request: ModelRequest, files: Sequence[str], compile_model: Compile) -> tuple[Artifact, ...]:
    """The artifacts of a request, from the cache if it has them; the caller's compiler makes what it has not.

    `files`: all that the compiler reads for this request, besides the target's files and this package.
    """
    before = states(files)
    where, name = folder(), key(request, files)
    if where is None or name is None:
        return compile_model(request)
    entry = where / name[:2] / name[2:]
    kept = _read(entry, name, request)
    if kept is not None:
        return kept
    artifacts = compile_model(request)
    if states(files) == before and key(request, files) == name:  # no file was changed meanwhile, nor changed back
        _write(entry, name, artifacts)
    return artifacts


def key(request: ModelRequest, files: Sequence[str]) -> str | None:
    """Hash of everything that the artifacts depend on; None if that cannot be told."""
    if request.time_limit is not None or request.cmsis_nn:
        return None  # the result depends on the machine, or on a library
    target = load_target(request.target)
    paths = {"source": request.source.name, "calibration": request.calibration and request.calibration.name}
    paths["cluster"] = request.cluster and request.cluster.name
    options = {**asdict(request), **paths, "target": target.name, "version": __version__}
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
    try:
        for file in files:
            digest.update(_digest(Path(file).read_bytes()).encode())
        for file in (*target.files, *code_files()):
            inside = os.path.relpath(file, PACKAGE) if Path(file).is_relative_to(PACKAGE) else os.path.basename(file)
            digest.update(f"{inside} {_digest(Path(file).read_bytes())}\n".encode())
    except OSError:
        return None
    return digest.hexdigest()


def states(files: Iterable[str]) -> list[tuple[int, int, int] | None]:
    """Dates, sizes and numbers of files: other ones when a file was written meanwhile, even with the same bytes."""
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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


def _read(entry: Path, name: str, request: ModelRequest) -> tuple[Artifact, ...] | None:
    """The artifacts of an entry, if it is whole: every byte is as its list says, and the list is of this key."""
    try:
        data = {file: (entry / file).read_bytes() for file in model_outputs(request.name)}
        listed = (entry / LIST).read_bytes()
    except OSError:
        return None
    if listed != _list(name, data):
        shutil.rmtree(entry, ignore_errors=True)
        return None
    return tuple(Artifact(file, content) for file, content in data.items())


def _list(name: str, data: Mapping[str, bytes]) -> bytes:
    """The text that stands beside the files of an entry: its key, and the digest of each file."""
    return "\n".join([name, *(f"{_digest(content)} {file}" for file, content in data.items()), ""]).encode()


def _write(entry: Path, name: str, artifacts: Sequence[Artifact]) -> None:
    """A whole entry or none: the files are written aside and take their place by one rename."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=entry.parent, prefix=".") as folder:
            aside = Path(folder) / "entry"
            aside.mkdir()
            for a in artifacts:
                (aside / a.name).write_bytes(a.data)
            (aside / LIST).write_bytes(_list(name, {a.name: a.data for a in artifacts}))
            if entry.is_symlink() or entry.is_file():  # nothing of ours, and in the way
                entry.unlink()
            elif entry.exists():  # half of one: it was not read
                shutil.rmtree(entry)
            aside.rename(entry)
    except OSError:
        pass  # somebody else was first, or the disk is full: the build goes on without
