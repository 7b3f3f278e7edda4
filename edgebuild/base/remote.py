"""A cache that machines share: blobs by digest, and lists of files by key, as served by bazel-remote and others.

$EDGEBUILD_REMOTE_CACHE is its URL. With `http://` and `https://`, blobs are read by GET and written by PUT; any other
URL is opened by fsspec, an optional package (`pip install fsspec`). Below the URL are `cas/<sha256>`, a blob, and
`ac/<key>`, an ActionResult of the Remote Execution API v2, which lists files by digest. Nothing is written unless
$EDGEBUILD_REMOTE_CACHE_WRITE is 1. All content is data, and `cache` checks it as it checks its own entries. After a
failure the cache is not used again in this process, and the user gets one warning.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .errors import Diagnostic
from .progress import warn

URL, WRITE = "EDGEBUILD_REMOTE_CACHE", "EDGEBUILD_REMOTE_CACHE_WRITE"
SECONDS, WHOLE = 5.0, 60.0  # timeouts: without any data; for a whole blob
MAX_RESULT = 1 << 20  # bytes of an ActionResult
PIECE = 1 << 20  # bytes
MESSAGES = {  # fields: name, number, type
    "Digest": (("hash", 1, "TYPE_STRING"), ("size_bytes", 2, "TYPE_INT64")),
    "OutputFile": (("path", 1, "TYPE_STRING"), ("digest", 2, "Digest")),
    "ActionResult": (("output_files", 2, "OutputFile"), ("stdout_raw", 5, "TYPE_BYTES")),
}

_failed = False  # whether an access has failed in this process


@dataclass(frozen=True)
class Result:
    """The files of a key: (name, digest, bytes) of each; `seal`: an HMAC of the writer."""

    files: tuple[tuple[str, str, int], ...]
    seal: bytes


def result_of(key: str) -> Result | None:
    """The result of a key; None if there is none, or it is malformed."""
    data = _read(f"ac/{key}", MAX_RESULT)
    return _parsed(data) if data is not None else None


def blob(digest: str, size: int) -> bytes | None:
    """The bytes of a blob, or None. The caller must check the digest."""
    data = _read(f"cas/{digest}", size)
    return data if data is not None and len(data) == size else None


def store(key: str, files: Mapping[str, bytes], digests: Mapping[str, str], seal: bytes) -> None:
    """Write the files of a key, and then its result, if the user has enabled writing."""
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
    """Access the cache; None if the item is missing, or the cache fails."""
    global _failed
    if not is_on():
        return None
    url = os.environ[URL].rstrip("/")
    try:
        return do(_Http(url) if url.startswith(("http://", "https://")) else _Files(url))
    except FileNotFoundError:
        return None
    except Exception as problem:  # any failure of a server or of an fsspec package: the build goes on
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
        fs.pipe_file(f"{path}.{os.getpid()}", data)  # then moved in one step, for concurrent readers
        fs.mv(f"{path}.{os.getpid()}", path)

    def _system(self) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise RuntimeError("fsspec is not installed; pip install fsspec") from None
        fs, root = url_to_fs(self.url)
        return fs, root.rstrip("/")


# ---- ActionResult, with the fields that are used


@cache
def _action_result() -> Any:
    """The class of the message (build/bazel/remote/execution/v2/remote_execution.proto)."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # late: few caches are remote

    file = descriptor_pb2.FileDescriptorProto(name="remote_execution.proto", package="edgebuild", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields in MESSAGES.items():
        row = file.message_type.add(name=message)
        for name, number, kind in fields:
            many = kinds.LABEL_REPEATED if name == "output_files" else kinds.LABEL_OPTIONAL
            named = {"type_name": f".edgebuild.{kind}"} if kind in MESSAGES else {"type": kinds.Type.Value(kind)}
            row.field.add(name=name, number=number, label=many, **named)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("edgebuild.ActionResult"))


def _printed(files: Mapping[str, bytes], digests: Mapping[str, str], seal: bytes) -> bytes:
    result = _action_result()(stdout_raw=seal)
    for name, data in files.items():
        result.output_files.add(path=name, digest={"hash": digests[name], "size_bytes": len(data)})
    return bytes(result.SerializeToString())


def _parsed(data: bytes) -> Result | None:
    from google.protobuf.message import DecodeError

    try:
        result = _action_result().FromString(data)
    except DecodeError:
        return None
    files = ((f.path, f.digest.hash, f.digest.size_bytes) for f in result.output_files)
    return Result(tuple(files), result.stdout_raw)
