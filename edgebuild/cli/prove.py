"""`edgebuild prove`: whether versions of a driver make the same accesses; `adopt`: C as a source in the dialect."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgebuild.base.artifacts import write_atomic
from edgebuild.base.errors import Diagnostic, MissingTool, fail
from edgebuild.base.request import DriverRequest, driver_request
from edgebuild.cli.common import check_written, show


@contextmanager
def _solver() -> Iterator[None]:
    """Imports that need the solver, which is an extra. Raises MissingTool."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingTool(Diagnostic(f"{error}", hints=("pip install z3-solver",))) from error


def prove(args: argparse.Namespace) -> int:
    with _solver():
        from edgebuild.driver.prove.versions import prove_versions
    requests = [version_request(args, file) for file in (args.old, args.new)]
    check_written(args, (), [args.old, args.new, args.svd])
    rows = prove_versions(requests[0], requests[1], tuple(args.function))
    counts = {word: sum(r.verdict == word for r in rows) for word in ("proved", "different", "unknown")}
    lines = []
    for r in rows:
        lines.append(f"{r.function}: {r.verdict}{f': {r.why}' if r.why else ''}")
        lines += [f"  with {', '.join(f'{name} = {value}' for name, value in r.inputs.items())}"] if r.inputs else []
    lines.append(", ".join(f"{count} {word}" for word, count in counts.items()))
    data = {"schema": 1, **counts, "functions": [{k: v for k, v in vars(r).items() if v} for r in rows]}
    show(args, "\n".join(lines) + "\n", data)
    if not rows:
        print(f"{args.old}: warning: no function is in both files", file=sys.stderr)
    return int(counts["different"] > 0 or (args.strict and counts["unknown"] > 0))


def version_request(args: argparse.Namespace, file: Path) -> DriverRequest:
    """The request that a version in the dialect is compiled for; plain C takes its flags."""

    words = {name: ",".join(getattr(args, name)) or None for name in ("include_dirs", "defines", "force_include")}
    layout = {"layout": f"fixed:{args.svd}"} if args.svd else {}
    return driver_request((file,), "version", args.target, {**words, **layout})


def adopt(args: argparse.Namespace) -> int:
    with _solver():
        from edgebuild.driver.adopt import LEVELS
        from edgebuild.driver.adopt import adopt as adopted
    out = args.output if args.output.suffix == ".c" else args.output / f"{args.source.stem}.bf.c"
    check_written(args, [out], [args.source, args.svd])
    text, functions = adopted(version_request(args, args.source))
    converted = sum(len(f.accesses) for f in functions)
    lines = [f"{args.source}:{n}: {f.function.name}: stays C: {why}" for f in functions for n, why in f.stays]
    if not converted:
        raise fail("no function can be adopted", file=str(args.source), hints=lines or ["it accesses no registers"])
    write_atomic(out, text.encode())
    whole = sum(not f.stays for f in functions)
    lines.append(
        f"[edgebuild] adopt {args.source.name} -> {out.name}: {whole} of {len(functions)} functions with registers, "
        f"{converted} accesses, all proved"
    )
    rows = [
        {
            "function": f.function.full_name,
            "form": LEVELS[f.level][0],
            "accesses": len(f.accesses),
            "stays": [{"line": n, "why": why} for n, why in f.stays],
        }
        for f in functions
    ]
    show(args, "\n".join(lines) + "\n", {"schema": 1, "adopted": whole, "accesses": converted, "functions": rows})
    return 0
