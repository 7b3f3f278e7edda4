"""The command: a function for each subcommand and one for its arguments, in the modules of this folder.

Only the module that is asked for is imported, and it imports late what it needs, so that `--help` is quick.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from edgebuild import __version__
from edgebuild.base.errors import NO_MEMORY, EdgebuildError, MissingTool, fail, fault, from_import, from_os, is_strict
from edgebuild.base.text import terminal
from edgebuild.cli.parsing import Parser

COMMANDS = {
    "model": "compile a model to C for a target",
    "export": "write a model's C as a library for Arduino, PlatformIO, Zephyr, ESP-IDF and others",
    "driver": "generate a driver and its register layout from sources in the bfGroup dialect",
    "adopt": "make a source in the bfGroup dialect of a driver in C with masks, and prove it",
    "prove": "prove that two versions of a driver make the same accesses, function by function",
    "group": "put several models and buffers of the application into one arena",
    "verify": "build a test firmware, run it, compare with the model's reference interpreter",
    "distribute": "one network on several devices: plan it and write C for each",
    "layout": "solve a memory layout problem from a file with columns id,lower,upper,size",
    "clock": "list a chip's clock configurations and write the C that switches between them",
    "calibrate": "build a firmware that measures a model's steps, or fit the cost model to that",
    "inspect": "print a model as edgebuild sees it, and what was tiled and why",
    "fit": "which targets a model fits, by arena, flash and modelled time; no compiler is needed",
    "report": "a page about a model's plan, from models or their reports; and its steps as a trace",
    "diff": "compare two models or reports, and fail where a figure grew too much",
    "explain": "say why the compiler chose as it did, and what else there was",
    "map": "tile layers for a target's memory levels and print what that costs (modelled)",
    "ops": "list the supported operators and their limits",
    "targets": "list the targets, or show one",
    "tune": "measure variants of the heaviest kernels in the simulator, for later compilations",
    "simulate": "run a program of a core with XpulpV2 and count its instructions and cycles",
    "reproduce": "a paper's table beside what this version computes for the same networks",
    "quantize": "make an int8 network of a float one and samples, and measure what it loses",
    "size": "flash, RAM and stack of a linked program, by models, drivers and memories",
    "init": "write a project for a board that builds and runs, with settings for editors",
    "sbom": "write a bill of materials of what was generated: models, drivers, licences, digests",
    "run": "do what a request file of a build system asks",
    "cache": "the cache of compiled models: where it is and how large, or clear it",
    "completion": "print a script with which bash, zsh or fish completes commands, options and values",
    "cmake-dir": "print the folder of the CMake package",
    "cmake-module": "write a FindEdgeBuild.cmake to keep in a project",
}
COMPILING = ("model", "export", "group", "distribute", "inspect", "fit", "report", "diff", "explain")
MEASURING = ("layout", "calibrate", "map", "tune", "simulate", "reproduce")
OWN_MODULES = ("adopt", "prove", "verify", "quantize", "size", "completion")


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 the input is wrong, 2 wrong usage, 3 a required tool is missing."""
    argv = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names that the terminal's encoding cannot show
    out, err = _Shown(sys.stdout), _Shown(sys.stderr, _wants_colour(sys.stderr))
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
        return _main(argv)


def _wants_colour(stream: TextIO) -> bool:
    """Whether it is a terminal, and nobody forbids colour (no-color.org) or asks for it in any case."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def _coloured(match: re.Match[str]) -> str:
    return f"{match[1]}\33[1;{31 if match[2] == 'error' else 33}m{match[2]}\33[0m"


class _Shown:
    """A stream on which nothing that is printed steers the terminal, but for the colour of a message's first word."""

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
    args = _parser(asked).parse_args(argv)
    try:
        return int(_function(args.command)(args))
    except EdgebuildError as error:
        from edgebuild.cli.common import code_of

        print(error, file=sys.stderr)
        print(f"  `edgebuild explain {code_of(str(error))}` says more", file=sys.stderr)
        return 3 if isinstance(error, MissingTool) else 1
    except BrokenPipeError:
        return 1
    except OSError as error:
        print(from_os(error), file=sys.stderr)
        return 1
    except UnicodeEncodeError as error:
        print(fail(f"'{error.object}' is no name that this machine can write"), file=sys.stderr)
        return 1
    except MemoryError:
        print(fail(NO_MEMORY), file=sys.stderr)
        return 1
    except ImportError as error:
        if (error.name or "").startswith("edgebuild"):
            raise
        print(reason := from_import(error), file=sys.stderr)
        return 3 if isinstance(reason, MissingTool) else 1
    except KeyboardInterrupt:
        return 130
    except Exception as bug:
        if is_strict():
            raise
        print(fault(bug), file=sys.stderr)
        return 1


def _function(command: str, part: str = "") -> Callable[[Any], Any]:
    """Import the function of a command; with the part `_arguments`, the one that gives them to a parser."""
    shared = "compiling" if command in COMPILING else "measuring" if command in MEASURING else "building"
    module = importlib.import_module(f"edgebuild.cli.{command if command in OWN_MODULES else shared}")
    return getattr(module, command.replace("-", "_") + part)


def command_parser(command: str) -> argparse.ArgumentParser:
    """The parser of a command's arguments."""
    parsers = _parser(command)._subparsers
    assert parsers is not None
    choices = parsers._group_actions[0].choices
    assert isinstance(choices, dict)
    return choices[command]


def _parser(asked: str) -> argparse.ArgumentParser:
    """`asked`: the command whose arguments are to be read, the first word that is no option.

    If it is none of ours, all commands are there by name, for the help and for what is wrong.
    """
    parser = Parser("edgebuild", description="Neural networks as build inputs of firmware.")
    parser.add_argument("--version", action="version", version=f"edgebuild {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name in [asked] if asked in COMMANDS else COMMANDS:
        sub = commands.add_parser(name, help=COMMANDS[name], description=COMMANDS[name])
        if name == asked:
            _function(name, "_arguments")(sub)
    return parser
