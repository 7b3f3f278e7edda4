"""Writes docs/commands.md from the command itself: `python -m tests.commands_page`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.cli.parsing import COMMANDS, command_parser

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
HEAD = """\
# Commands

Made from the command by `python -m tests.commands_page`; `edgebuild COMMAND --help` prints the same. The functions of
SCons and CMake take the options of a model, a driver and clocks by the same names, in capitals: `TILE='auto'`.
"""


def page() -> str:
    found = [HEAD]
    for command, text in COMMANDS.items():
        rows = [row for action in command_parser(command)._actions if (row := _row(action))]
        found.append(f"\n## {command}\n\n{text[0].upper()}{text[1:]}.\n")
        found.append("\n".join(["\n| argument | meaning |", "|---|---|", *rows, ""]) if rows else "")
    return "".join(found)


def _row(action: argparse.Action) -> str:
    """A line of the table: an argument, its values, what it is for."""
    if isinstance(action, argparse._HelpAction):
        return ""
    values = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest)
    values = values if isinstance(values, str) else " ".join(values)
    if not action.option_strings:
        shown = values
    elif action.nargs == 0:
        shown = action.option_strings[-1]
    else:
        shown = f"{action.option_strings[-1]} {values if action.metavar or action.choices else values.upper()}"
    meaning = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    return f"| `{shown}` | {meaning} |".replace("|`", "| `").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(page())
