"""`edgebuild cache`: show, verify or clear the cache of compiled models."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from edgebuild.base.errors import fail
from edgebuild.cli.common import add_json, show

SHOWN = 5
ACTIONS = ("show", "stats", "verify", "clear", "explain")


def arguments(parser: argparse.ArgumentParser) -> None:
    text = "stats: also its bound; verify: name damaged entries; clear: remove all entries; explain: what differs"
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="show", help=text)
    text = "of explain: two requests (NAME.req.json), or what `explain` printed of one elsewhere"
    add_json(parser)
    parser.add_argument("files", nargs="*", metavar="FILE", help=text)


def run(args: argparse.Namespace) -> int:
    from edgebuild.base import cache

    if args.action == "explain":
        return _explain(args.files)
    if args.files:
        raise fail(f"cache {args.action}: takes no file")
    count = {"clear": cache.clear, "verify": cache.verified}.get(args.action, cache.content)
    content = count()
    if content is None:
        return 1
    what = f"{len(content.entries)} entries, {content.bytes:,} B"
    lines = [f"removed {what}" if args.action == "clear" else f"{cache.folder() or 'off'}: {what}"]
    if args.action == "stats":
        lines.append(f"bound: {cache.bound():,} B; those not asked for the longest go first (EDGEBUILD_CACHE_SIZE)")
    damaged = [f"{cache.folder()}/{key[:2]}/{key[2:]}" for key in content.damaged if args.action == "verify"]
    lines += [f"{path}: damaged, or written by somebody else; no build takes it" for path in damaged]
    if content.others and args.action == "clear":
        more = f" and {len(content.others) - SHOWN} more" if len(content.others) > SHOWN else ""
        lines.append(f"what is no entry stays in {cache.folder()}: {', '.join(content.others[:SHOWN])}{more}")
    figures = {"entries": len(content.entries), "bytes": content.bytes, "bound": cache.bound(), "damaged": damaged}
    show(args, "\n".join([*lines, ""]), {"folder": str(cache.folder() or ""), **figures})
    return 1 if damaged else 0


def _explain(files: list[str]) -> int:
    """Print what the key of a request is made of, or the fields in which two differ; 1 if there are some."""
    if len(files) not in (1, 2):
        raise fail("cache explain: one request or two", hints=["as in: cache explain a.req.json b.req.json"])
    recipes = [_recipe(Path(file)) for file in files]
    if len(files) == 1:
        print(json.dumps(recipes[0], indent=1))
        return 0
    one, two = recipes
    differing = [name for name in {**one, **two} if one.get(name) != two.get(name)]
    for name in differing:
        print(f"{name}: {one.get(name, 'nothing')} in {files[0]}, {two.get(name, 'nothing')} in {files[1]}")
    print("" if differing else "nothing differs: both have the same entry", end="" if differing else "\n")
    return 1 if differing else 0


def _recipe(file: Path) -> dict[str, str]:
    """The fields of the key of a request file, or those that were printed of one."""
    from edgebuild.base import cache
    from edgebuild.base.inputs import read_json
    from edgebuild.base.request import ModelRequest, checked_request
    from edgebuild.build.run import model_files
    from edgebuild.model import choices

    data = read_json(file, "neither a request nor what `cache explain` printed", "cannot read it")
    if isinstance(data, dict) and "code" in data and all(isinstance(v, str) for v in data.values()):
        return data
    request = checked_request(data, str(file), str(file.absolute().parent)).request
    if not isinstance(request, ModelRequest):
        raise fail("only results of models are kept", file=str(file))
    request = choices.with_choices(request)
    return cache.recipe(request, model_files(request))
