"""Commands for shells and terminals: completion of commands, options and values, and the manual page.

The scripts ask this command for the words that fit, so they need not be written anew when options change.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator

from edgebuild import __version__
from edgebuild.base.target import target_names
from edgebuild.cli.parsing import COMMANDS, command_parser, examples

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
    """The words that go on from the last one of a line; none where any file may stand."""
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
    """The manual page, section 1, in the macros of man(7)."""
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
    """A line of text that roff reads as nothing else."""
    for plain, escaped in (("\\", r"\e"), ("-", r"\-"), ("'", r"\(aq"), ("`", r"\(ga")):
        text = text.replace(plain, escaped)
    return re.sub(r"^(?=\.)", r"\\&", text)
