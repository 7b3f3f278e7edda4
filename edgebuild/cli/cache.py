"""`edgebuild cache`: show or clear the cache of compiled models."""

from __future__ import annotations

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("show", "clear"), default="show", help="default: show")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base import cache

    if args.action == "clear":
        print(f"removed {cache.clear()} entries")
        return 0
    found = list(cache.entries())
    size = sum(file.stat().st_size for entry in found for file in entry.iterdir())
    print(f"{cache.folder() or 'off'}: {len(found)} entries, {size:,} B")
    return 0
