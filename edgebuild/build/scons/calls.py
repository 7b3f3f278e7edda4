"""Code that the methods of the SCons tool share: errors at the line of a call, and the action that writes a text."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

from SCons.Errors import UserError

from edgebuild.base.artifacts import write_atomic

HERE = os.path.dirname(__file__)


def wrong(text: str) -> UserError:
    """With the line of the SConscript; SCons would point at the innermost line, which is in this package."""
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(HERE) and f"{os.sep}SCons{os.sep}" not in frame.filename:
            return UserError(f"{frame.filename}:{frame.lineno}: {text}")
    return UserError(text)


def write_value(target: list[Any], source: list[Any], env: Any) -> None:
    """The action that writes the text of a Value."""
    write_atomic(Path(target[0].abspath), source[0].read().encode())
