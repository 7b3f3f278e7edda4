"""Files of the user, before they are read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from edgebuild.base.errors import fail, from_os


def read_bytes(path: Path, text: str = "cannot read it") -> bytes:
    """The bytes of a file. Raises EdgebuildError that begins with `text`."""
    try:
        check_file(path, text)
        return path.read_bytes()
    except OSError as error:
        raise from_os(error, text, str(path)) from None


def check_file(path: str | Path, text: str = "cannot read it") -> None:
    """Refuse a pipe, which is empty at the second reading, and a device: /dev/zero never ends. Raises EdgebuildError
    that begins with `text`, and OSError if there is nothing.
    """
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise fail(f"{text}: it is a pipe or a device, and no file", file=str(path))
