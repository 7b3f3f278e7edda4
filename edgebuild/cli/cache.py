"""`edgebuild cache`: show or clear the cache of compiled models."""

from __future__ import annotations

import argparse

SHOWN = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("show", "clear"), default="show", help="default: show")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base import cache

    found = cache.clear() if args.action == "clear" else cache.content()
    if found is None:
        return 1
    what = f"{len(found.entries)} entries, {found.bytes:,} B"
    print(f"removed {what}" if args.action == "clear" else f"{cache.folder() or 'off'}: {what}")
    if found.others and args.action == "clear":
        more = f" and {len(found.others) - SHOWN} more" if len(found.others) > SHOWN else ""
        print(f"what is no entry stays in {cache.folder()}: {', '.join(found.others[:SHOWN])}{more}")
    return 0
