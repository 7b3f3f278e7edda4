"""`edgebuild targets`: list the targets, or show one."""

from __future__ import annotations

import argparse
import json


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the target to show; default: list all")
    parser.add_argument("--json", action="store_true", help="compiler, flags, sources and runner, for build systems")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.firmware import describe
    from edgebuild.base.target import load_target, target_names

    if not args.name:
        for name in target_names():
            print(f"{name:12} {load_target(name).description}")
        return 0
    target = load_target(args.name)
    if args.json:
        print(json.dumps(describe(target), indent=1))
        return 0
    print(f"{target.name}: {target.description}\n  {target.core.isa} {' '.join(target.core.features)}")
    for m in target.memories:
        print(f"  {m.name:8} {m.size:>12,} B at {m.origin:#010x}  {', '.join(m.roles)}")
    return 0
