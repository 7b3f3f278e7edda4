"""The command: one function per subcommand, in the modules of this folder; `commands.toml` has their arguments.

Only the module of the requested subcommand is imported, and its own imports are late, so that `--help` is quick.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from ..base.errors import NO_MEMORY, EdgebuildError, MissingTool, fail, fault, from_import, from_os, is_strict
from ..base.text import terminal
from .common import code_of
from .parsing import TABLE, command_line


def main(argv: list[str] | None = None) -> int:
    """Run the command. Exit status: 0 done, 1 the input is wrong, 2 wrong usage, 3 a required tool is missing."""
    argv = sys.argv[1:] if argv is None else argv
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, io.StringIO())
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that the terminal's encoding cannot show
    out, err = _Shown(sys.stdout), _Shown(sys.stderr, _wants_colour(sys.stderr))
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
        return _main(argv)


def _wants_colour(stream: TextIO) -> bool:
    """Whether it is a terminal. NO_COLOR (no-color.org) and TERM=dumb forbid colour, FORCE_COLOR enforces it."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def _coloured(match: re.Match[str]) -> str:
    return f"{match[1]}\33[1;{31 if match[2] == 'error' else 33}m{match[2]}\33[0m"


class _Shown:
    """A stream that escapes control characters, and may colour the word "error" or "warning" of a message."""

    def __init__(self, stream: TextIO, coloured: bool = False) -> None:
        self._stream, self._coloured = stream, coloured

    def write(self, text: str) -> int:
        shown = terminal(text)
        if self._coloured:
            shown = re.sub(r"(?m)^((?:\S.*?: )?)(error|warning)(?=: )", _coloured, shown, count=1)
        self._stream.write(shown)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _main(argv: list[str]) -> int:
    asked = next((word for word in argv if not word.startswith("-")), "")
    args = command_line(asked).parse_args(argv)
    try:
        return int(_function(args.command)(args))
    except EdgebuildError as error:
        return _refused(error)
    except BrokenPipeError:
        return 1
    except OSError as error:
        return _refused(from_os(error))
    except UnicodeEncodeError as error:
        return _refused(fail(f"'{error.object}' is no name that this machine can write"))
    except MemoryError:
        return _refused(fail(NO_MEMORY))
    except ImportError as error:
        if (error.name or "").startswith("edgebuild"):
            raise
        return _refused(from_import(error))
    except Exception as bug:
        if is_strict():
            raise
        return _refused(fault(bug))


def _refused(error: EdgebuildError) -> int:
    """Print an error with the command that explains its kind; returns the exit status."""
    print(error, file=sys.stderr)
    print(f"  `edgebuild explain {code_of(str(error))}` says more", file=sys.stderr)
    return 3 if isinstance(error, MissingTool) else 1


def _function(command: str) -> Callable[[Any], Any]:
    """Import the function of a command."""
    return getattr(importlib.import_module(f"edgebuild.cli.{TABLE[command]['module']}"), command.replace("-", "_"))
