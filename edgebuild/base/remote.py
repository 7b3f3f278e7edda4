"""A cache that machines share: blobs by their digest, and what is made of a key, as bazel-remote and others serve them.

$EDGEBUILD_REMOTE_CACHE is its URL. Under `http://` and `https://` blobs are read by GET and written by PUT; any other
URL is opened by fsspec, which is an optional extra (`pip install fsspec`). Below the URL lie
`cas/<sha256>`, a blob, and `ac/<key>`, an ActionResult of the Remote Execution API v2, which lists files by digest.
Nothing is written unless $EDGEBUILD_REMOTE_CACHE_WRITE is 1. What is read is data, and `cache` checks it as it checks
its own entries. A cache that fails is not asked again in this process, and the user gets one warning.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edgebuild.base.errors import Diagnostic
from edgebuild.base.progress import warn

URL, WRITE = "EDGEBUILD_REMOTE_CACHE", "EDGEBUILD_REMOTE_CACHE_WRITE"
SECONDS, WHOLE = 5.0, 60.0  # without an answer; for one blob
MOST_RESULT = 1 << 20  # bytes of an ActionResult
PIECE = 1 << 20  # bytes
# Numbers of fields (build/bazel/remote/execution/v2/remote_execution.proto).
FILES, STDOUT = 2, 5
PATH, DIGEST, HASH, SIZE = 1, 2, 1, 2

_failed = False  # in this process


@dataclass(frozen=True)
class Result:
    """The files of a key: name, digest and bytes of each; `seal`: of who wrote it."""

    files: tuple[tuple[str, str, int], ...]
    seal: bytes


def result_of(key: str) -> Result | None:
    """The result of a key; None if there is none, or nothing that is one."""
    data = _read(f"ac/{key}", MOST_RESULT)
    try:
        return _parsed(data) if data is not None else None
    except (ValueError, IndexError):
        return None


def blob(digest: str, size: int) -> bytes | None:
    """The bytes of a digest, which the caller checks."""
    data = _read(f"cas/{digest}", size)
    return data if data is not None and len(data) == size else None


def store(key: str, files: Mapping[str, bytes], digests: Mapping[str, str], seal: bytes) -> None:
    """Write the files of a key and then its result, if the user wants that."""
    if os.environ.get(WRITE) == "1":
        for name, data in files.items():
            if not _write(f"cas/{digests[name]}", data):
                return
        _write(f"ac/{key}", _printed(files, digests, seal))


def is_on() -> bool:
    return bool(os.environ.get(URL)) and not _failed


def _read(place: str, most: int) -> bytes | None:
    return _asked(lambda store: store.read(place, most))


def _write(place: str, data: bytes) -> bool:
    return _asked(lambda store: store.write(place, data) or True) is True


def _asked(do: Callable[[Any], Any]) -> Any:
    """The answer of the cache; None if it has none, or if it fails."""
    global _failed
    if not is_on():
        return None
    url = os.environ[URL].rstrip("/")
    try:
        return do(_Http(url) if url.startswith(("http://", "https://")) else _Files(url))
    except FileNotFoundError:
        return None
    except Exception as problem:  # whatever a server or a package for some URL comes up with: the build goes on
        _failed = True
        text = " ".join(str(problem).split())[:200] or type(problem).__name__
        hints = ("the build goes on without it",)
        shown = url.rpartition("@")[2]  # without a password
        warn(Diagnostic(f"the remote cache is not used: {text}", shown, hints=hints, severity="warning"))
        return None


@dataclass(frozen=True)
class _Http:
    url: str

    def read(self, place: str, most: int) -> bytes:
        until, data = time.monotonic() + WHOLE, bytearray()
        with self._opened("GET", place) as answer:
            while piece := answer.read(min(PIECE, most + 1 - len(data))):
                data += piece
                if len(data) > most:
                    raise FileNotFoundError("it is longer than it may be")
                if time.monotonic() > until:
                    raise TimeoutError(f"no whole answer within {WHOLE:g} s")
        return bytes(data)

    def write(self, place: str, data: bytes) -> None:
        with self._opened("PUT", place, data) as answer:
            answer.read(PIECE)

    def _opened(self, method: str, place: str, data: bytes | None = None) -> Any:
        from base64 import b64encode
        from urllib.error import HTTPError
        from urllib.parse import unquote, urlsplit
        from urllib.request import Request, urlopen

        parts, headers = urlsplit(self.url), {"Content-Type": "application/octet-stream"} if data is not None else {}
        if parts.username:
            words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = f"Basic {b64encode(words.encode()).decode()}"
        base = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        try:
            return urlopen(Request(f"{base}/{place}", data, headers, method=method), timeout=SECONDS)
        except HTTPError as problem:
            if problem.code == 404 and method == "GET":
                raise FileNotFoundError(place) from None
            raise


@dataclass(frozen=True)
class _Files:
    url: str

    def read(self, place: str, most: int) -> bytes:
        fs, root = self._system()
        with fs.open(f"{root}/{place}", "rb") as file:
            data: bytes = file.read(most + 1)
        if len(data) > most:
            raise FileNotFoundError("it is longer than it may be")
        return data

    def write(self, place: str, data: bytes) -> None:
        fs, root = self._system()
        path = f"{root}/{place}"
        fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        fs.pipe_file(f"{path}.{os.getpid()}", data)  # then in one move: others may read meanwhile
        fs.mv(f"{path}.{os.getpid()}", path)

    def _system(self) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise RuntimeError("fsspec is not installed; pip install fsspec") from None
        fs, root = url_to_fs(self.url)
        return fs, root.rstrip("/")


# ---- ActionResult


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _printed(files: Mapping[str, bytes], digests: Mapping[str, str], seal: bytes) -> bytes:
    message = b""
    for name, data in files.items():
        digest = _field(HASH, digests[name].encode()) + _varint(SIZE << 3) + _varint(len(data))
        message += _field(FILES, _field(PATH, name.encode()) + _field(DIGEST, digest))
    return message + _field(STDOUT, seal)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of the fields of a message. Raises ValueError or IndexError for what is none."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("a number without an end")

    while at < len(data):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
            continue
        length = number() if key & 7 == 2 else {1: 8, 5: 4}.get(key & 7, -1)
        if length < 0 or at + length > len(data):
            raise ValueError("a field that ends behind its message")
        yield key >> 3, data[at : at + length]
        at += length


def _parsed(data: bytes) -> Result:
    files, seal = list[tuple[str, str, int]](), b""
    for number, value in _fields(data):
        if number == FILES:
            file = dict(_fields(_bytes(value)))
            digest = dict(_fields(_bytes(file.get(DIGEST, b""))))
            name, hashed = _bytes(file.get(PATH, b"")).decode(), _bytes(digest.get(HASH, b"")).decode("ascii")
            size = digest.get(SIZE, 0)
            files.append((name, hashed, size if isinstance(size, int) else -1))
        elif number == STDOUT:
            seal = _bytes(value)
    return Result(tuple(files), seal)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number in the place of bytes")
    return value
