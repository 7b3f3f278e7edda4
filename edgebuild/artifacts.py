"""Generated files as values, and the one place that writes them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Artifact:
    """A file to be: its name relative to the output folder, and its bytes."""

    name: str
    data: bytes


def write_atomic(path: Path, data: bytes) -> bool:
    """Write `data` to `path` unless it already holds it; say whether it was written.

    The bytes go to a temporary file in the same folder which then takes the name, so that an
    interrupted run leaves either the old file or the new one, never half of one.
    """
    try:
        if path.read_bytes() == data:
            return False
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return True


def publish(artifacts: Iterable[Artifact], folder: Path) -> list[str]:
    """Write the artifacts below `folder`; return the names of those that changed."""
    return [a.name for a in artifacts if write_atomic(folder / a.name, a.data)]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
