"""Progress of a long search, and the user's request to end it with the best result so far.

Only interactive commands call `watch`. Builds call `follow`: they print less, and an interrupt ends the process, since
a result that depends on the time of an interrupt must not be cached.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from math import inf
from types import FrameType

from .errors import Diagnostic

ON_TERMINAL, IN_LOG = 1.0, 10.0  # seconds between lines in builds, and before the first
_stopped = False
_pause, _last = inf, 0.0  # seconds between lines; time of the last one
_warnings: list[Diagnostic] = []  # all warnings so far


def warnings() -> list[Diagnostic]:
    """The warnings that this process has printed."""
    return list(_warnings)


def watch() -> None:
    """Show progress on standard error if it is a terminal; the first Ctrl-C ends searches, the second the process."""
    global _pause
    _pause = 0.0 if sys.stderr.isatty() else inf
    if threading.current_thread() is threading.main_thread():  # other threads cannot set handlers
        signal.signal(signal.SIGINT, _stop)


def follow() -> None:
    """Show progress of a long search: each second on a terminal, each ten seconds in the log of a build."""
    global _pause, _last
    _pause, _last = ON_TERMINAL if sys.stderr.isatty() else IN_LOG, time.monotonic()


def say(text: str) -> None:
    global _last
    if _pause < inf and time.monotonic() - _last >= _pause:
        _last = time.monotonic()
        print(f"[edgebuild] {text}", file=sys.stderr, flush=True)


def warn(diagnostic: Diagnostic) -> None:
    """Print a warning, in builds too, and record it for `warnings`."""
    _warnings.append(diagnostic)
    print(diagnostic, file=sys.stderr, flush=True)


def stopped() -> bool:
    """Whether the user has asked searches to end with the best result so far."""
    return _stopped


def _stop(number: int, frame: FrameType | None) -> None:
    global _stopped
    _stopped = True
    signal.signal(signal.SIGINT, signal.default_int_handler)
    say("ends with the best plan found; once more: ends at once")
