"""`edgebuild reproduce`: the tables of papers beside ours."""

from __future__ import annotations

import argparse

from edgebuild.cli.common import add_json, json_file, show

PAPERS = ("fdt", "dory", "zigzag", "daedvfs", "deeperthings", "drivers")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paper", choices=PAPERS, help="fdt, deeperthings and drivers: Stahl; the others by their names")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.progress import watch
    from edgebuild.build.papers.paper_tables import as_text, reproduce

    check_replaced(json_file(args), [])
    watch()
    table = reproduce(args.paper)
    show(args, as_text(table), table)
    return 0
