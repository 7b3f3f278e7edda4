"""`edgebuild cache`: show, verify or clear the cache of compiled models."""

from __future__ import annotations

import argparse

SHOWN = 5
ACTIONS = ("show", "stats", "verify", "clear")


def arguments(parser: argparse.ArgumentParser) -> None:
    text = "stats: also its bound; verify: name damaged entries; clear: remove all entries; default: show"
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="show", help=text)


def run(args: argparse.Namespace) -> int:
    from edgebuild.base import cache

    count = {"clear": cache.clear, "verify": cache.verified}.get(args.action, cache.content)
    content = count()
    if content is None:
        return 1
    what = f"{len(content.entries)} entries, {content.bytes:,} B"
    print(f"removed {what}" if args.action == "clear" else f"{cache.folder() or 'off'}: {what}")
    if args.action == "stats":
        print(f"bound: {cache.bound():,} B; those not asked for the longest go first (EDGEBUILD_CACHE_SIZE)")
    if args.action == "verify":
        for key in content.damaged:
            print(f"{cache.folder()}/{key[:2]}/{key[2:]}: damaged, or written by somebody else; no build takes it")
        return 1 if content.damaged else 0
    if content.others and args.action == "clear":
        more = f" and {len(content.others) - SHOWN} more" if len(content.others) > SHOWN else ""
        print(f"what is no entry stays in {cache.folder()}: {', '.join(content.others[:SHOWN])}{more}")
    return 0
