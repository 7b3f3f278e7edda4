"""Compiled models by what they were made from, so that a clean build or another checkout compiles nothing twice.

The key is the content of everything that generated files depend on: the request, the model, the
target's files and this package. No path and no date is part of it. An entry is read only if the digests of its files
are those that were written with it: that is against decay. Against others it helps that nobody else may write into the
folder, or it is not used. $EDGEBUILD_CACHE names the folder; set to nothing it turns the cache off.

An entry is a folder `ab/cd...`, named by its key, with the products of one model and the list `digests`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from edgebuild import __version__
from edgebuild.base import private
from edgebuild.base.artifacts import Artifact
from edgebuild.base.errors import Diagnostic
from edgebuild.base.own_code import code_digest
from edgebuild.base.progress import warn
from edgebuild.base.request import ModelRequest, model_outputs
from edgebuild.base.target import load_target

Compile = Callable[[ModelRequest], tuple[Artifact, ...]]
LIST = "digests"
ROOM, ENTRY = re.compile("[0-9a-f]{2}"), re.compile("[0-9a-f]{62}")
ASIDE = re.compile(r"\.([0-9a-f]{62})\.\d+\.\d+")  # an entry that is being written, or one whose writer was ended
MOST = 1 << 30  # bytes of a product; what is larger is not read from here


def folder() -> Path | None:
    """Where entries are kept; None if the cache is off, or if the user has no home, as in containers."""
    named = os.environ.get("EDGEBUILD_CACHE")
    if named is not None:
        return Path(named) if named else None
    place = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return None if place.startswith("~") else Path(place) / "edgebuild"


@contextmanager
def used(make: bool = False) -> Iterator[int | None]:
    """The folder, opened; None if it is off, is not there, or may not be used, of which the user gets a word."""
    with ExitStack() as stack:
        yield _entered(stack, make)


def _entered(stack: ExitStack, make: bool) -> int | None:
    where = folder()
    if where is None:
        return None
    try:
        return stack.enter_context(private.opened(where, make))
    except private.Refused as why:
        _warn(where, str(why))
    except (FileExistsError, NotADirectoryError):
        _warn(where, "it is not a folder")
    except OSError:
        pass  # nobody may make or enter it: the build goes on without
    return None


@functools.cache  # once in a process
def _warn(where: Path, why: str) -> None:
    hints = ("make it yours alone with chown and chmod go-w, or name another folder in EDGEBUILD_CACHE",)
    warn(Diagnostic(f"the cache is not used: {why}", str(where), hints=hints, severity="warning"))


def compiled(request: ModelRequest, files: Sequence[str], compile_model: Compile) -> tuple[Artifact, ...]:
    """The artifacts of a request, from the cache if it has them; the caller's compiler makes what it has not.

    `files`: all that the compiler reads for this request, besides the target's files and this package.
    """
    before = states(files)
    name = key(request, files) if folder() is not None else None
    if name is None:
        return compile_model(request)
    with used() as top:
        kept = _read(top, name, model_outputs(request.name)) if top is not None else None
    if kept is not None:
        return kept
    artifacts = compile_model(request)
    if states(files) == before and key(request, files) == name:  # no file was changed meanwhile, nor changed back
        with used(make=True) as top:
            if top is not None:
                _write(top, name, artifacts)
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
        for file in target.files:
            digest.update(f"{os.path.basename(file)} {_digest(Path(file).read_bytes())}\n".encode())
        digest.update(code_digest().encode())
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


@dataclass(frozen=True)
class Content:
    """Items in the folder: keys and bytes of entries, and names of what is none and stays."""

    entries: tuple[str, ...] = ()
    bytes: int = 0
    others: tuple[str, ...] = ()


def content() -> Content | None:
    """Count what the folder holds; None if it is refused."""
    return _visit(_size)


def clear() -> Content | None:
    """Remove all entries, and those that were never finished: what was removed, and what is there and stays."""
    return _visit(_removed)


def _visit(entry_bytes: Callable[[int, str, str], int]) -> Content | None:
    """Call the function with the room, the name and the key of each entry; it answers how many bytes it had."""
    with used() as top:
        if top is None:
            where = folder()
            return Content() if where is None or not os.path.lexists(where) else None
        keys, size = list[str](), 0
        for room in filter(ROOM.fullmatch, sorted(os.listdir(top))):
            with suppress(OSError), private.inside(top, room) as opened:
                for name in sorted(os.listdir(opened)):
                    aside = ASIDE.fullmatch(name)
                    key = room + (aside[1] if aside else name)
                    if (aside or ENTRY.fullmatch(name)) and _listed(opened, name, key) is not None:
                        size += entry_bytes(opened, name, key)
                        keys += [] if aside else [key]
                if not os.listdir(opened):
                    os.rmdir(room, dir_fd=top)
        rooms = {k[:2] for k in keys}
        return Content(tuple(keys), size, tuple(n for n in sorted(os.listdir(top)) if n not in rooms))


def _listed(room: int, name: str, key: str) -> list[str] | None:
    """The products that an entry of this key lists; None if it is no entry of ours."""
    try:
        with private.inside(room, name) as entry:
            first, *lines, end = private.read(entry, LIST, MOST).decode("ascii").split("\n")
    except (OSError, ValueError):
        return None
    files = [line[65:] for line in lines]
    return files if first == key and not end and all(map(_is_product, files)) else None


def _is_product(file: str) -> bool:
    return any(file.removesuffix(s).isidentifier() for s in ModelRequest.SUFFIXES if file.endswith(s))


def _size(room: int, name: str, key: str) -> int:
    with private.inside(room, name) as entry:
        files = [file for file in (*(_listed(room, name, key) or ()), LIST) if os.access(file, os.F_OK, dir_fd=entry)]
        return sum(os.stat(file, dir_fd=entry, follow_symlinks=False).st_size for file in files)


def _removed(room: int, name: str, key: str) -> int:
    size = _size(room, name, key)
    _remove(room, name, _listed(room, name, key) or ())
    return size


def _remove(room: int, name: str, products: Iterable[str]) -> None:
    """Remove these files of an entry, its list, and its folder if nothing else is in it."""
    with suppress(OSError), private.inside(room, name) as entry:
        for file in (*products, LIST):
            with suppress(OSError):
                os.unlink(file, dir_fd=entry)
    with suppress(OSError):
        os.rmdir(name, dir_fd=room)


def _read(top: int, name: str, outputs: Sequence[str]) -> tuple[Artifact, ...] | None:
    """The artifacts of an entry, if it is whole: every byte is as its list says, and the list is of this key."""
    try:
        with private.inside(top, name[:2]) as room, private.inside(room, name[2:]) as entry:
            data = {file: private.read(entry, file, MOST) for file in outputs}
            listed = private.read(entry, LIST, MOST)
    except OSError:
        return None
    return tuple(Artifact(file, found) for file, found in data.items()) if listed == _list(name, data) else None


def _list(name: str, data: Mapping[str, bytes]) -> bytes:
    """The text that stands beside the files of an entry: its key, and the digest of each file."""
    return "\n".join([name, *(f"{_digest(content)} {file}" for file, content in data.items()), ""]).encode()


def _write(top: int, name: str, artifacts: Sequence[Artifact]) -> None:
    """A whole entry or none: the files are written aside and take their place by one rename."""
    data, number = {a.name: a.data for a in artifacts}, count()
    try:
        with private.inside(top, name[:2], make=True) as room:
            while os.access(aside := f".{name[2:]}.{os.getpid()}.{next(number)}", os.F_OK, dir_fd=room):
                continue
            try:
                with private.inside(room, aside, make=True) as entry:
                    private.write(entry, LIST, _list(name, data))  # first: so it says which of the files are ours
                    for file, found in data.items():
                        private.write(entry, file, found)
                if _read(top, name, tuple(data)) is None:
                    _remove(room, name[2:], data)  # a part of it may be there, or another's bytes
                os.rename(aside, name[2:], src_dir_fd=room, dst_dir_fd=room)
            finally:
                _remove(room, aside, data)
    except OSError:
        pass  # somebody else was first, something else is in its place, the disk is full: the build goes on without
