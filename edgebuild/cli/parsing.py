"""The parser of the command line, shell completion, and the manual page.

An error is one line, with the most similar valid word. Shells call the command for completions.
"""

from __future__ import annotations

import argparse
import importlib
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__
from ..base import request
from ..base.errors import did_you_mean
from ..base.inputs import sections
from ..base.options import add_options, options_of
from ..base.target import target_names

# Commands of other tools, and the corresponding commands here.
OTHERS = {"analyze": "inspect", "benchmark": "verify", "build": "model", "codegen": "model", "compile": "model",
          "convert": "model", "estimate": "fit", "generate": "model", "info": "inspect", "new": "init",
          "profile": "verify", "test": "verify", "validate": "verify"}  # fmt: skip
REQUIRED = "the following arguments are required: "  # the begin of argparse's message
TYPES: Mapping[str, Callable[[str], Any]] = {"path": Path, "int": int, "float": float, "": str}
TABLE: dict[str, dict[str, Any]] = tomllib.loads((Path(__file__).parent / "commands.toml").read_text(encoding="utf-8"))
SHARED = TABLE.pop("shared")
COMMANDS = {name: str(row["about"]) for name, row in TABLE.items()}


def add_arguments(parser: argparse.ArgumentParser, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the arguments of a command to a parser, and `wrong_usage`, with which commands report usage errors."""
    parser.set_defaults(wrong_usage=parser.error)
    for words, own in rows.items():
        if words == "options":
            kind = getattr(request, own["of"])
            names = own.get("names", options_of(kind).keys())
            add_options(parser, kind, [name for name in names if name not in own.get("without", ())])
            continue
        row = dict(own) if "help" in own else {**SHARED[words], **own}
        if row.get("action") == "append":
            row["default"] = []
        if "type" in row or "pattern" in row:
            read = TYPES[row.pop("type", "")]
            row["type"] = _matching(row.pop("pattern"), row.pop("wrong"), read) if "pattern" in row else read
        if isinstance(choices := row.get("choices"), str):
            module, _, function = choices.rpartition(".")
            row["choices"] = tuple(getattr(importlib.import_module(f"edgebuild.{module}"), function)())
        parser.add_argument(*words.split(), **row)


def _matching(pattern: str, wrong: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    def checked(text: str) -> Any:
        if not re.fullmatch(pattern, text):
            raise argparse.ArgumentTypeError(f"'{text}' {wrong}")
        return read(text)

    return checked


def examples() -> dict[str, str]:
    """The examples of each command: its section in `examples.txt`."""
    return sections(Path(__file__).parent / "examples.txt")


class Parser(argparse.ArgumentParser):
    """A parser in which an option with an optional value only takes the next word if that is one of its choices."""

    words: tuple[str, ...] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(args)
        for i, (word, after) in enumerate(zip(words, [*words[1:], ""][: len(words)], strict=True)):
            action = self._option_string_actions.get(word)
            if action is not None and action.nargs == "?" and after not in (action.choices or [after]):
                words[i] = f"{word}={action.const}"
        self.words = tuple(words)
        flag = words[0].partition("=")[0] if words and self._subparsers is not None else ""
        if flag.startswith("-") and flag not in self._option_string_actions:
            near = did_you_mean(flag, self._option_string_actions) or "; options stand behind the command"
            self.error(f"unknown option '{flag}'{near}")
        result, rest = super().parse_known_args(words, namespace)
        if rest and self._subparsers is None:
            self.error(f"unexpected argument '{rest[0]}'")
        return result, rest

    def format_help(self) -> str:
        """The help, with the command's examples at the end."""
        if self._subparsers is None:
            self.formatter_class = argparse.RawDescriptionHelpFormatter
            self.epilog = f"examples:\n{examples()[self.prog.split()[-1]]}"
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print the error and a remedy, and exit with status 2."""
        hints = list(self._required(message))
        options = [flag for flag in self._option_string_actions if flag.startswith("--")]
        flags = [word.partition("=")[0] for word in self.words if word.startswith("--") and word != "--"]
        if self._subparsers is None and (wrong := [f for f in flags if not any(o.startswith(f) for o in options)]):
            message, hints = f"unknown option '{wrong[0]}'{did_you_mean(wrong[0], options)}", []
        message = re.sub(r"invalid int value: (.*)", r"\1 is no whole number", message)
        lines = [f"{self.prog}: error: {message.removeprefix('argument ')}", *hints, f"`{self.prog} --help` says more"]
        self.exit(2, "\n  ".join(lines) + "\n")

    def _required(self, message: str) -> Iterator[str]:
        """The help of each missing argument."""
        names = message.removeprefix(REQUIRED).split(", ") if message.startswith(REQUIRED) else []
        for action in self._actions:
            if set(names) & {"/".join(action.option_strings), action.metavar, action.dest} and action.help:
                yield f"{action.option_strings[0] if action.option_strings else action.dest}: {action.help}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        near = did_you_mean(str(value), choices) or f"; one of: {', '.join(choices)}"
        if not isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(action, f"unknown value '{value}'{near}")
        if value in OTHERS:
            near = f"; did you mean '{OTHERS[value]}'?"
        elif "." in value:
            near = f"; it stands before a file: `edgebuild model {value} --target NAME`"
        raise argparse.ArgumentError(None, f"there is no command '{value}'{near}")


def command_parser(command: str) -> argparse.ArgumentParser:
    """The parser of a command's arguments."""
    parser = Parser(prog=f"edgebuild {command}")
    add_arguments(parser, TABLE[command].get("arguments", {}))
    return parser


def command_line(asked: str) -> argparse.ArgumentParser:
    """The parser of the whole command line. `asked`: the requested command, the first word that is no option.

    If it is no command, the parser has the names of all commands, for the help and for errors.
    """
    parser = Parser("edgebuild", description="Neural networks as build inputs of firmware.")
    parser.add_argument("--version", action="version", version=f"edgebuild {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name in [asked] if asked in COMMANDS else COMMANDS:
        sub = commands.add_parser(name, help=COMMANDS[name], description=COMMANDS[name])
        if name == asked:
            add_arguments(sub, TABLE[name].get("arguments", {}))
    return parser


ASK = "edgebuild completion words"
BASH = f"""\
_edgebuild() {{
    local IFS=$'\\n'
    COMPREPLY=($({ASK} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null))
}}
complete -o default -F _edgebuild edgebuild
"""
SCRIPTS = {
    "bash": BASH,
    "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{BASH}",
    "fish": f"complete -c edgebuild -a '({ASK} (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'\n",
}
TARGETS = ("target", "board", "flash_of")


def completion(args: argparse.Namespace) -> int:
    print(SCRIPTS[args.shell] if args.shell in SCRIPTS else "".join(f"{w}\n" for w in fitting(args.line)), end="")
    return 0


def fitting(line: list[str]) -> list[str]:
    """The completions of the last word of a line; empty where a file is expected."""
    return sorted(word for word in map(str, _words(line)) if word.startswith(line[-1] if line else ""))


def _words(line: list[str]) -> Iterable[str]:
    if len(line) < 2:
        return COMMANDS
    if line[0] not in COMMANDS:
        return ()
    actions = command_parser(line[0])._actions
    options = {flag: action for action in actions for flag in action.option_strings}
    before = options.get(line[-2])
    if before is None or before.nargs == 0:
        if line[-1].startswith("-"):
            return options
        places = [action for action in actions if not action.option_strings]
        return (word for action in places for word in action.choices or ())
    return target_names() if before.dest in TARGETS else before.choices or ()


def man(args: argparse.Namespace) -> int:
    print("\n".join(_page()))
    return 0


STATUS = ("0 done, 1 the input is wrong or a limit is exceeded, 2 wrong usage, 3 a tool is missing. `edgebuild explain "
          "CODE` has more on an error than its message.")  # fmt: skip


def _page() -> Iterator[str]:
    """The lines of the manual page, section 1, in the macros of man(7)."""
    yield f'.TH EDGEBUILD 1 "" "edgebuild {__version__}"'
    yield from (".SH NAME", r"edgebuild \- neural networks and register drivers as build inputs of firmware")
    yield from (".SH SYNOPSIS", r"\fBedgebuild\fR \fICOMMAND\fR [\fIARGUMENT\fR ...]", ".SH COMMANDS")
    shown = examples()
    for command, about in COMMANDS.items():
        yield from (f".SS {_roff(command)}", _roff(f"{about[0].upper()}{about[1:]}."))
        parser = command_parser(command)
        for action in parser._actions[1:]:  # all but --help
            text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
            head = parser._get_formatter()._format_action_invocation(action)
            yield from (".TP", rf"\fB{_roff(head)}\fR", _roff(text))
        yield from (".PP", "Examples:", ".PP", ".nf", *map(_roff, shown[command].rstrip().split("\n")), ".fi")
    yield from (".SH EXIT STATUS", _roff(STATUS))


def _roff(text: str) -> str:
    """A line of text, escaped for roff."""
    for plain, escaped in (("\\", r"\e"), ("-", r"\-"), ("'", r"\(aq"), ("`", r"\(ga")):
        text = text.replace(plain, escaped)
    return re.sub(r"^(?=\.)", r"\\&", text)
