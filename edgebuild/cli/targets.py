"""`edgebuild targets`: list the targets, or show one."""

from __future__ import annotations

import argparse
import json


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the target to show, or a pattern such as 'nrf5*'; default: list all")
    parser.add_argument("--json", action="store_true", help="compiler, flags, sources and runner, for build systems")


def run(args: argparse.Namespace) -> int:
    from fnmatch import fnmatchcase

    from edgebuild.base.errors import fail
    from edgebuild.base.firmware import describe
    from edgebuild.base.target import load_target, target_names

    if not args.name or set(args.name) & set("*?["):
        pattern = args.name or "*"
        names = [name for name in target_names() if fnmatchcase(name, pattern)]
        if not names:
            raise fail(f"no target is called '{pattern}'", hints=["`edgebuild targets` lists them all"])
        if args.json:
            print(json.dumps([describe(load_target(name)) for name in names], indent=1))
            return 0
        width = max(map(len, names))
        for name in names:
            print(f"{name:{width}} {load_target(name).description}")
        return 0
    target = load_target(args.name)
    if args.json:
        print(json.dumps(describe(target), indent=1))
        return 0
    print(f"{target.name}: {target.description}\n  {target.core.isa} {' '.join(target.core.features)}")
    if target.clock_hz:
        print(f"  up to {target.clock_hz / 1e6:g} MHz")
    for m in target.memories:
        print(f"  {m.name:8} {m.size:>12,} B at {m.origin:#010x}  {', '.join(m.roles)}")
    if target.source:
        print(f"  source: {target.source}")
    return 0
