"""Progress of a long search, and whether the user wants it to end with what it has.

Only the command that a user waits for calls `watch`. Builds call `follow`: they say less, and an interrupt ends the
process, for a result that depends on when somebody lost patience must not be kept as that of the input.
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
_pause, _last = inf, 0.0  # seconds between lines; when the last one was said
_warnings: list[Diagnostic] = []  # all that were given


def warnings() -> list[Diagnostic]:
    """The warnings that this process gave."""
    return list(_warnings)


def watch() -> None:
    """Show progress on standard error if it is a terminal; the first Ctrl-C ends searches, the second the process."""
    global _pause
    _pause = 0.0 if sys.stderr.isatty() else inf
    if threading.current_thread() is threading.main_thread():  # a worker's threads may not
        signal.signal(signal.SIGINT, _stop)


def follow() -> None:
    """Show now and then what a long search is at: each second on a terminal, seldom in the log of a build."""
    global _pause, _last
    _pause, _last = ON_TERMINAL if sys.stderr.isatty() else IN_LOG, time.monotonic()


def say(text: str) -> None:
    global _last
    if _pause < inf and time.monotonic() - _last >= _pause:
        _last = time.monotonic()
        print(f"[edgebuild] {text}", file=sys.stderr, flush=True)


def warn(diagnostic: Diagnostic) -> None:
    """Say what the user should know though the command succeeds; in builds, too."""
    _warnings.append(diagnostic)
    print(diagnostic, file=sys.stderr, flush=True)


def stopped() -> bool:
    """Whether to take the best that was found."""
    return _stopped


def _stop(number: int, frame: FrameType | None) -> None:
    global _stopped
    _stopped = True
    signal.signal(signal.SIGINT, signal.default_int_handler)
    say("ends with the best plan found; once more: ends at once")
