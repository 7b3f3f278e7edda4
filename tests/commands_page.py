"""Writes docs/commands.md from the command itself: `python -m tests.commands_page`."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

from edgebuild.base.options import options_of
from edgebuild.base.request import ModelRequest
from edgebuild.cli.parsing import COMMANDS, TABLE, command_parser

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
HEAD = """\
# Commands

Made from the command by `python -m tests.commands_page`; `edgebuild COMMAND --help` prints the same. The functions of
SCons and CMake take the options of a model, a driver and clocks by the same names, in capitals: `TILE='auto'`.
"""


def page() -> str:
    of_models = _rows(command_parser("model"), options_of(ModelRequest))
    sections = [HEAD, _section("Options of a model", "Commands that compile a model take these.", of_models)]
    for command, text in COMMANDS.items():
        options = TABLE[command].get("arguments", {}).get("options", {})
        shared = options.get("of") == "ModelRequest" and "names" not in options
        rows = _rows(command_parser(command))
        if shared:
            rows = [row for row in rows if row not in of_models]
            but = " and ".join(f"`--{name}`" for name in options.get("without", ()))
            rows.append(f"| | the [options of a model](#options-of-a-model){but and f', without {but}'} |")
        sections.append(_section(command, f"{text[0].upper()}{text[1:]}.", rows))
    return "".join(sections)


def _section(name: str, text: str, rows: list[str]) -> str:
    return "\n".join(
        [f"\n## {name}\n\n{text}\n", *(["| argument | meaning |", "|---|---|", *rows, ""] if rows else [])]
    )


def _rows(parser: argparse.ArgumentParser, names: Collection[str] | None = None) -> list[str]:
    """The table's lines of all arguments, or of those of these names."""
    return [row for a in parser._actions if (names is None or a.dest in names) and (row := _row(a))]


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
