"""`edgebuild completion`: scripts for shells that complete commands, options and values.

The scripts ask this command for the words that fit, so they need not be written anew when options change.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from edgebuild.base.target import target_names
from edgebuild.cli.parsing import COMMANDS, command_parser

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
