"""Progress of a long search for a terminal, and whether the user wants it to end with what it has.

Only the command that a user waits for calls `watch`. In builds nothing is said, and an interrupt ends the process:
a result that depends on when somebody lost patience must not be kept as that of the input.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from .errors import Diagnostic

_watched = _stopped = False
_warnings: list[Diagnostic] = []  # all that were given


def warnings() -> list[Diagnostic]:
    """The warnings that this process gave."""
    return list(_warnings)


def watch() -> None:
    """Show progress on standard error if it is a terminal; the first Ctrl-C ends searches, the second the process."""
    global _watched
    _watched = sys.stderr.isatty()
    signal.signal(signal.SIGINT, _stop)


def say(text: str) -> None:
    if _watched:
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
