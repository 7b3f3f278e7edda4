"""A cache of compiled models by their inputs, so that a clean build or another checkout compiles nothing twice.

The key is a hash of all inputs of the generated files: the request, the model, the target's files and this package. It
includes no paths and no dates. An entry is used only if its files match the digests that were written with it, under a
seal that only this user can make. A folder into which other users may write is not used. $EDGEBUILD_CACHE names the
folder; an empty value turns the cache off.

An entry is a folder `ab/cd...`, named by its key. It has the products of one model with the compiler's warnings, or the
answer to one question of the planner, and the list `digests` with its `seal`. None of it is code.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from .. import __version__
from . import private, progress, remote
from .artifacts import Artifact
from .errors import Diagnostic
from .inputs import MODEL, check_file
from .options import parse_size
from .own_code import code_at_start, code_digest
from .progress import warn
from .request import ModelRequest, model_outputs
from .target import load_target
from .text import NAME

Compile = Callable[[ModelRequest], tuple[Artifact, ...]]
LIST, SEAL, WARNINGS, ANSWER, SECRET = "digests", "seal", "warnings", "answer.json", "cache.key"
ROOM, ENTRY = re.compile("[0-9a-f]{2}"), re.compile("[0-9a-f]{62}")
ASIDE = re.compile(r"\.([0-9a-f]{62})\.\d+\.\d+")  # an unfinished entry, possibly of a killed process
LOCK = re.compile(r"\.[0-9a-f]{62}\.lock")
MAX_BYTES = 1 << 30  # most bytes of a product that is read from the cache
DEFAULT_BOUND = 1 << 30  # default limit of all entries in bytes


def folder() -> Path | None:
    """The folder of the cache; None if it is off, or if the user has no home, as in containers."""
    named = os.environ.get("EDGEBUILD_CACHE")
    if named is not None:
        return Path(named) if named else None
    place = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return None if place.startswith("~") else Path(place) / "edgebuild"


@contextmanager
def used(make: bool = False) -> Iterator[int | None]:
    """Open the folder and yield its descriptor; None if the cache is off, missing, or (with a warning) not private."""
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
        pass  # it cannot be created or opened: the build goes on without it
    return None


@functools.cache  # once in a process
def _warn(where: Path, why: str) -> None:
    hints = ("make it yours alone with chown and chmod go-w, or name another folder in EDGEBUILD_CACHE",)
    warn(Diagnostic(f"the cache is not used: {why}", str(where), hints=hints, severity="warning"))


def compiled(request: ModelRequest, files: Sequence[str], compile_model: Compile) -> tuple[Artifact, ...]:
    """The artifacts of a request, from the cache or else from `compile_model`.

    `files`: all inputs of the compiler, without the target's files and this package. Cached warnings of the compiler
    are printed again. Of concurrent builds with the same request, one compiles and the others wait.
    """
    before = states(files)
    name = key(request, files) if folder() is not None else None
    if name is None:
        return compile_model(request)
    with used(make=True) as top:
        if top is None:
            return compile_model(request)
        outputs = (*model_outputs(request.name), WARNINGS)
        data = _read(top, name, outputs)
        if data is not None:
            return _entry_artifacts(request, data)
        with _key_lock(top, name):
            data = _read(top, name, outputs) or _fetched(top, name, outputs)
            if data is not None:
                return _entry_artifacts(request, data)
            earlier = len(progress.warnings())
            artifacts = compile_model(request)
            warned = Artifact(WARNINGS, _warnings_json(request, progress.warnings()[earlier:]))
            # Keep the result only if no file changed meanwhile, and the user has not stopped the search.
            is_same = states(files) == before and key(request, files) == name and code_digest() == code_at_start()
            if is_same and not progress.stopped():
                _write(top, name, (*artifacts, warned))
                _shared(name, (*artifacts, warned))
            return artifacts


def _fetched(top: int, name: str, outputs: Sequence[str]) -> dict[str, bytes] | None:
    """The files of an entry of the remote cache, if they match the user's seal. They are also added to this cache."""
    result = remote.result_of(name) if remote.is_on() and _secret() else None  # seals without a secret prove nothing
    if result is None:
        return None
    digests = {file: digest for file, digest, _ in result.files}
    listed = "\n".join([name, *(f"{digest} {file}" for file, digest in digests.items()), ""]).encode()
    sizes, data = {file: size for file, _, size in result.files}, dict[str, bytes]()
    is_ours = tuple(digests) == tuple(outputs) and hmac.compare_digest(result.seal, _seal(listed))
    for file, digest in digests.items() if is_ours and max(sizes.values(), default=0) <= MAX_BYTES else ():
        content = remote.blob(digest, sizes[file])
        if content is None or _digest(content) != digest:
            break
        data[file] = content
    if len(data) < len(outputs):
        if remote.is_on():
            _warn_remote(is_ours)
        return None
    _write(top, name, [Artifact(file, content) for file, content in data.items()])
    return data


def _shared(name: str, artifacts: Sequence[Artifact]) -> None:
    """Write an entry to the remote cache, if the user has enabled that."""
    if remote.is_on() and _secret():
        data = {a.name: a.data for a in artifacts}
        remote.store(name, data, {file: _digest(d) for file, d in data.items()}, _seal(_list(name, data)))


@functools.cache  # once in a process
def _warn_remote(is_ours: bool) -> None:
    text = "an entry of the remote cache is not used: "
    text += "a part of it is gone or damaged" if is_ours else "it is damaged, or was written with another key"
    hints = () if is_ours else ("give all machines that share it the same secret in EDGEBUILD_CACHE_KEY",)
    warn(Diagnostic(text, hints=hints, severity="warning"))


def _entry_artifacts(request: ModelRequest, data: Mapping[str, bytes]) -> tuple[Artifact, ...]:
    """The artifacts of an entry; its warnings are printed."""
    for fields in json.loads(data[WARNINGS]):
        file = str(request.source) if fields["file"] is None else fields["file"]
        progress.warn(Diagnostic(**{**fields, "file": file, "hints": tuple(fields["hints"])}))
    return tuple(Artifact(file, content) for file, content in data.items() if file != WARNINGS)


def _warnings_json(request: ModelRequest, warnings: Sequence[Diagnostic]) -> bytes:
    """Warnings as JSON. The model's path is None, since the entry also serves for models at other paths."""
    rows = [{**asdict(w), "file": None if w.file == str(request.source) else w.file} for w in warnings]
    return json.dumps(rows).encode()


def remembered(question: str) -> Any:
    """The cached answer (a JSON value) to a question, or None. The caller must check it like a new one."""
    with used() as top:
        data = _read(top, _question(question), (ANSWER,)) if top is not None else None
    try:
        return None if data is None else json.loads(data[ANSWER])
    except (RecursionError, ValueError):
        return None


def remember(question: str, answer: Any) -> None:
    """Cache the answer to a question. `question` must state all inputs of the answer except this package."""
    if folder() is not None and not progress.stopped():
        with used(make=True) as top:
            if top is not None:
                _write(top, _question(question), (Artifact(ANSWER, json.dumps(answer).encode()),))


def _question(text: str) -> str:
    return _digest(f"{code_at_start()} {text}".encode())


@contextmanager
def _key_lock(top: int, name: str) -> Iterator[None]:
    """Lock a key against other processes; does nothing on file systems without locks."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            room = stack.enter_context(private.inside(top, name[:2], make=True))
            file = f".{name[2:]}.lock"
            while True:
                handle = os.open(file, os.O_RDWR | os.O_CREAT | private.NO_LINK, 0o600, dir_fd=room)
                stack.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_EX)
                with suppress(FileNotFoundError):
                    there = os.stat(file, dir_fd=room, follow_symlinks=False)
                    if there.st_ino == os.fstat(handle).st_ino:  # else its last owner has removed it
                        stack.callback(_unlink, file, room)
                        break
        yield


def _unlink(file: str, room: int) -> None:
    with suppress(OSError):
        os.unlink(file, dir_fd=room)


def key(request: ModelRequest, files: Sequence[str]) -> str | None:
    """Hash of all inputs of the artifacts; None if they are not reproducible, or a file cannot be read.

    Raises EdgebuildError for a file that is a pipe or a device.
    """
    if request.time_limit is not None or request.cmsis_nn:
        return None  # the result depends on the machine, or on a library
    try:
        text = json.dumps(recipe(request, files), sort_keys=True)
    except OSError:
        return None
    return _digest(text.encode())


def recipe(request: ModelRequest, files: Sequence[str]) -> dict[str, str]:
    """The parts of a key by name: options, digests of files, and the code. Raises OSError."""
    target = load_target(request.target)
    is_any = request.name == NAME  # then the file may have any name, too
    source = request.source.suffix if is_any else request.source.name
    paths = {"source": source, "calibration": request.calibration and request.calibration.name}
    paths["cluster"] = request.cluster and request.cluster.name
    options = {**asdict(request), **paths, "target": target.name}
    rows = {f"option {name}": json.dumps(value) for name, value in options.items()}
    for number, file in enumerate(files):
        check_file(file, most=MODEL)  # a device would never end
        rows[f"file {number}"] = _digest(Path(file).read_bytes())
    for file in target.files:
        rows[f"target file {os.path.basename(file)}"] = _digest(Path(file).read_bytes())
    return {**rows, "version": __version__, "code": code_at_start()}


def states(files: Iterable[str]) -> list[tuple[int, int, int] | None]:
    """(modification time, size, inode) of each file, or None: they differ after a write, even of equal bytes."""
    stats: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            stats.append(None)
        else:
            stats.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return stats


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Content:
    """Content of the folder: `entries` (keys), their `bytes`, `others` (names of other items), `damaged` (keys)."""

    entries: tuple[str, ...] = ()
    bytes: int = 0
    others: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


def content() -> Content | None:
    """The content of the folder, without a check of the entries; None if the folder is not private."""
    return _visit(_size)


def verified() -> Content | None:
    """The content of the folder, with the keys of damaged entries; None if the folder is not private."""
    damaged = list[str]()

    def entry_bytes(room: int, name: str, key: str) -> int:
        files = _listed(room, name, key) or ()
        if _entry(room, name, key, files) is None:
            damaged.append(key)
        return _size(room, name, key)

    seen = _visit(entry_bytes)
    return seen and replace(seen, damaged=tuple(k for k in damaged if k in seen.entries))


def clear() -> Content | None:
    """Remove all entries, also unfinished ones. Returns what was removed, and the names of other items, which stay."""
    return _visit(_removed)


def bound() -> int:
    """The limit of all entries in bytes: $EDGEBUILD_CACHE_SIZE, such as 500M, or the default."""
    text = os.environ.get("EDGEBUILD_CACHE_SIZE")
    return parse_size("EDGEBUILD_CACHE_SIZE", text) if text else DEFAULT_BOUND


def _trim(top: int) -> None:
    """Remove the least recently used entries until the others are within the limit."""
    rows = list[tuple[float, int, str]]()
    for room in filter(ROOM.fullmatch, os.listdir(top)):
        with suppress(OSError), private.inside(top, room) as opened:
            for name in filter(ENTRY.fullmatch, os.listdir(opened)):
                with suppress(OSError):
                    used_at = os.stat(name, dir_fd=opened, follow_symlinks=False).st_mtime
                    rows.append((used_at, _size(opened, name, room + name), room + name))
    total, most = sum(size for _, size, _ in rows), bound()
    for _, size, key in sorted(rows):
        if total <= most:
            break
        with suppress(OSError), private.inside(top, key[:2]) as opened:
            _remove(opened, key[2:], _listed(opened, key[2:], key) or ())
            total -= size


def _visit(entry_bytes: Callable[[int, str, str], int]) -> Content | None:
    """Call `entry_bytes` with the folder, the name and the key of each entry; it returns the entry's bytes."""
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
                    elif LOCK.fullmatch(name) and entry_bytes is _removed:
                        _unlink(name, opened)
                if not os.listdir(opened):
                    os.rmdir(room, dir_fd=top)
        rooms = {k[:2] for k in keys}
        return Content(tuple(keys), size, tuple(n for n in sorted(os.listdir(top)) if n not in rooms))


def _listed(room: int, name: str, key: str) -> list[str] | None:
    """The files that an entry of this key lists; None if it is no valid entry."""
    try:
        with private.inside(room, name) as entry:
            first, *lines, end = private.read(entry, LIST, MAX_BYTES).decode("ascii").split("\n")
    except (OSError, ValueError):
        return None
    files = [line[65:] for line in lines]
    return files if first == key and not end and all(map(_is_product, files)) else None


def _is_product(file: str) -> bool:
    products = (file.removesuffix(s) for s in ModelRequest.SUFFIXES if file.endswith(s))
    return file in (WARNINGS, ANSWER) or any(map(str.isidentifier, products))


def _size(room: int, name: str, key: str) -> int:
    with private.inside(room, name) as entry:
        files = (*(_listed(room, name, key) or ()), LIST, SEAL)
        return sum(
            os.stat(file, dir_fd=entry, follow_symlinks=False).st_size
            for file in files
            if os.access(file, os.F_OK, dir_fd=entry)
        )


def _removed(room: int, name: str, key: str) -> int:
    size = _size(room, name, key)
    _remove(room, name, _listed(room, name, key) or ())
    return size


def _remove(room: int, name: str, files: Iterable[str]) -> None:
    """Remove these files of an entry, its list and seal, and its folder if that is empty then."""
    with suppress(OSError), private.inside(room, name) as entry:
        for file in (*files, SEAL, LIST):
            with suppress(OSError):
                os.unlink(file, dir_fd=entry)
    with suppress(OSError):
        os.rmdir(name, dir_fd=room)


def _read(top: int, name: str, outputs: Sequence[str]) -> dict[str, bytes] | None:
    """The files of an entry, if it is complete and has this user's seal. Any other entry gets a warning."""
    try:
        with private.inside(top, name[:2]) as room:
            data = _entry(room, name[2:], name, outputs)
            if data is None and os.access(name[2:], os.F_OK, dir_fd=room, follow_symlinks=False):
                _warn_entry(name)
            elif data is not None:
                with suppress(OSError):  # a folder that cannot be written
                    os.utime(name[2:], dir_fd=room)  # the time of its last use, for `_trim`
            return data
    except OSError:
        return None


def _entry(room: int, name: str, key: str, outputs: Sequence[str]) -> dict[str, bytes] | None:
    """The files of an entry, if they match its list, and the list has this key and this user's seal; else None."""
    try:
        with private.inside(room, name) as entry:
            data = {file: private.read(entry, file, MAX_BYTES) for file in outputs}
            listed, seal = private.read(entry, LIST, MAX_BYTES), private.read(entry, SEAL, MAX_BYTES)
    except OSError:
        return None
    is_ours = listed == _list(key, data) and hmac.compare_digest(seal, _seal(listed))
    return data if is_ours else None


@functools.cache  # once in a process
def _warn_entry(name: str) -> None:
    text = f"entry {name[:2]}/{name[2:]} is not used: it is damaged, or somebody else wrote it"
    hints = ("`edgebuild cache verify` names all of them, `edgebuild cache clear` removes them",)
    warn(Diagnostic(text, str(folder()), hints=hints, severity="warning"))


def _list(name: str, data: Mapping[str, bytes]) -> bytes:
    """The list of an entry: its key, and the digest of each file."""
    return "\n".join([name, *(f"{_digest(content)} {file}" for file, content in data.items()), ""]).encode()


def _seal(listed: bytes) -> bytes:
    return hmac.new(_secret(), listed, "sha256").hexdigest().encode()


@functools.cache
def _secret() -> bytes:
    """The user's secret for seals, stored outside of the cache; $EDGEBUILD_CACHE_KEY, if set, for several machines.

    Empty if it cannot be stored: seals then only detect damage.
    """
    given = os.environ.get("EDGEBUILD_CACHE_KEY")
    place = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    if given or place.startswith("~"):
        return (given or "").encode()
    try:
        with private.opened(Path(place) / "edgebuild", make=True) as where:
            if not os.access(SECRET, os.F_OK, dir_fd=where):
                private.replace(where, SECRET, os.urandom(32).hex().encode())
            return private.read(where, SECRET, 1 << 10)
    except OSError:
        return b""


def _write(top: int, name: str, artifacts: Sequence[Artifact]) -> None:
    """Write an entry atomically: its files are written to a temporary folder, which is renamed."""
    data, number = {a.name: a.data for a in artifacts}, count()
    listed = _list(name, data)
    try:
        with private.inside(top, name[:2], make=True) as room:
            while os.access(aside := f".{name[2:]}.{os.getpid()}.{next(number)}", os.F_OK, dir_fd=room):
                continue
            try:
                with private.inside(room, aside, make=True) as entry:
                    private.write(entry, LIST, listed)  # first, so that it lists the files of an unfinished entry
                    private.write(entry, SEAL, _seal(listed))
                    for file, content in data.items():
                        private.write(entry, file, content)
                if _entry(room, name[2:], name, tuple(data)) is None:
                    _remove(room, name[2:], data)  # an incomplete or damaged entry
                os.rename(aside, name[2:], src_dir_fd=room, dst_dir_fd=room)
            finally:
                _remove(room, aside, data)
        if ANSWER not in data:  # trimming looks at all entries; a compilation writes many small answers
            _trim(top)
    except OSError:
        pass  # another process was first, something else is in its place, the disk is full: the build goes on
