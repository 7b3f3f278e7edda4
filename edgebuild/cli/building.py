"""Commands for drivers and clocks, and those that builds call.

Each command is a function `NAME(args)`, which returns the exit status; `commands.toml` has its arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ..base import progress
from ..base.artifacts import Artifact, publish, write_atomic
from ..base.errors import Diagnostic, EdgebuildError, MissingTool, fail
from ..base.inputs import check_replaced, read_bytes, read_json
from ..base.options import given
from ..base.request import (
    ClockRequest,
    DriverRequest,
    ModelRequest,
    checked_request,
    clock_request,
    driver_request,
    model_request,
    read_request,
    requests_in,
)
from ..base.target import load_target, target_names
from ..build.stamp import REQUEST_SUFFIX
from .common import check_written, publish_products, show, started


def driver(args: argparse.Namespace) -> int:
    from ..driver.command import driver

    return driver(args, partial(publish_products, args=args, began=started(args)), partial(show, args))


def clock(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from ..clock.configs import base_of, behind, explain, figures, parse_setting, table, violation
    from ..clock.emit import clock_files, requested_plan, target_tree
    from ..model.energy.layer_cost import calibrated, read_calibration

    began = started(args)
    request = clock_request("clocks", args.target, given(args, ClockRequest))
    if args.explain is not None:
        tree = target_tree(load_target(args.target))
        base, _ = base_of(tree, request.hse, request.source)
        m, n, p = parse_setting(args.explain)
        behind_source = behind(tree, request.source)
        text = explain(behind_source, base, m, n, p)
        legal = violation(behind_source, base, m, n, p) is None
        show(args, f"{text}\n", {"m": m, "n": n, "p": p, "legal": legal, "text": text})
        return 0
    plan = requested_plan(request)
    calibration = read_calibration(Path(args.calibration), plan.tree) if args.calibration else None
    shown = replace(plan, tree=calibrated(plan.tree, calibration)) if calibration else plan
    placement = calibration.placement if calibration else None
    files = [*load_target(args.target).files, args.calibration]
    check_written(args, (), files)
    show(args, table(shown, placement), {"configs": figures(shown, placement)})
    artifacts = clock_files(plan)
    check_written(args, [*(args.output / a.name for a in artifacts), args.depfile], files)
    publish_products(artifacts, args, load_target(args.target).files, began)
    return 0


def ops(args: argparse.Namespace) -> int:
    from ..model.supported import as_json, supported

    names = [args.format] if args.format else []
    show(args, f"{supported(names)}\n", as_json(names))
    return 0


def targets(args: argparse.Namespace) -> int:
    from fnmatch import fnmatchcase

    from ..base.target import describe

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
    if target.firmware and target.firmware.loader:
        print(f"  starts with: {target.firmware.loader}")
    return 0


def init(args: argparse.Namespace) -> int:
    import os
    import re
    import tempfile

    from ..build.api import compiled_model
    from ..build.project import Project, demo_model, files, next_steps

    target = load_target(args.board)
    if target.firmware is None and target.core.isa != "native":
        raise fail(f"target {target.name} names no `firmware:`, so there is no program for it")
    data = read_bytes(args.model) if args.model else demo_model()
    file = args.model.name if args.model else "demo.onnx"
    model = re.sub(r"\W", "_", Path(file).stem, flags=re.ASCII)
    model = model if re.match("[A-Za-z_]", model) else f"m_{model}"
    name = re.sub(r"\W", "_", Path(os.path.abspath(args.dir)).name, flags=re.ASCII) or "app"
    name = f"{name}_app" if name == model or not re.match("[A-Za-z_]", name) else name
    board = os.path.relpath(args.board, args.dir) if args.board.endswith((".yaml", ".yml")) else args.board
    with tempfile.TemporaryDirectory() as folder:
        (source := args.model or Path(folder) / file).exists() or source.write_bytes(data)
        report = compiled_model(model_request(source, model, args.board, {})).report  # fails here if it does not fit
    written, read = (next((p["function"] for p in report[side]), "") for side in ("inputs", "outputs"))
    libc = bool(report.get("needs_libm"))
    project = Project(name, board, target, args.build, model, file, written, read, libc)
    new = []
    for a in (*files(project), Artifact(file, data)):
        path = args.dir / a.name
        if path.exists() or path.is_symlink():
            if not path.is_file() or path.read_bytes() != a.data:
                print(f"{path} is there, and stays as it is")
        else:
            new.append(a)
    publish(new, args.dir)
    if target.firmware and target.firmware.loader:
        text = f"{target.name} does not start this program by itself: it needs {target.firmware.loader}"
        hint = "`edgebuild export` writes the model as a library for such a project"
        progress.warn(Diagnostic(text, hints=(hint,), severity="warning"))
    print(f"{len(new)} files in {args.dir}; there, build and run it:", *next_steps(project), sep="\n  ")
    return 0


def sbom(args: argparse.Namespace) -> int:
    from ..build.sbom import bill_of_materials

    files = [*args.request, *(requests_in(args.requests) if args.requests else [])]
    if not files:
        raise fail("no requests are given", hints=["build folders have them as NAME.req.json"])
    check_replaced([args.output], [f for f in (*files, args.requests, args.program) if f])
    name = args.program.name if args.program else args.output.name.partition(".")[0]
    write_atomic(args.output, bill_of_materials(name, [read_request(f) for f in files], args.program))
    return 0


def run(args: argparse.Namespace) -> int:
    from ..build.run import run, run_header

    try:
        return (run_header if args.header else run)(args.request, args.makefiles)
    except EdgebuildError as error:
        from ..build.check import at_call

        words = ""
        if args.request.is_file():
            with args.request.open(encoding="utf-8", errors="replace") as file:
                words = file.read(1 << 16)  # it may be too large
        raise at_call(error, args.call, args.request.name.removesuffix(REQUEST_SUFFIX), words=words) from error


SHOWN = 5
ACTIONS = ("show", "stats", "verify", "clear", "explain")


def cache(args: argparse.Namespace) -> int:
    from ..base import cache

    if args.action == "explain":
        return _explain(args)
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


def _explain(args: argparse.Namespace) -> int:
    """Print the parts of a request's key, or the parts in which two keys differ; returns 1 if they differ."""
    files = args.files
    if len(files) not in (1, 2):
        raise fail("cache explain: one request or two", hints=["as in: cache explain a.req.json b.req.json"])
    recipes = [_recipe(Path(file)) for file in files]
    if len(files) == 1:
        show(args, json.dumps(recipes[0], indent=1) + "\n", recipes[0])
        return 0
    one, two = recipes
    differing = [name for name in {**one, **two} if one.get(name) != two.get(name)]
    lines = [f"{name}: {one.get(name, 'nothing')} in {files[0]}, {two.get(name, 'nothing')} in {files[1]}\n"
             for name in differing]  # fmt: skip
    text = "".join(lines) or "nothing differs: both have the same entry\n"
    show(args, text, {name: [one.get(name), two.get(name)] for name in differing})
    return 1 if differing else 0


def _recipe(file: Path) -> dict[str, str]:
    """The parts of the key of a request file, or those in the JSON that `cache explain` printed."""
    from ..base import cache
    from ..build.run import for_any_name, model_files
    from ..model import choices

    data = read_json(file, "neither a request nor what `cache explain` printed", "cannot read it")
    if isinstance(data, dict) and "code" in data and all(isinstance(v, str) for v in data.values()):
        return data
    request = checked_request(data, str(file), str(file.absolute().parent)).request
    if not isinstance(request, ModelRequest):
        raise fail("only results of models are kept", file=str(file))
    request = for_any_name(choices.with_choices(request))
    return cache.recipe(request, model_files(request))


def cmake_dir(args: argparse.Namespace) -> int:
    from ..doors import cmake_dir

    print(cmake_dir())
    return 0


def cmake_module(args: argparse.Namespace) -> int:
    from ..doors import write_cmake_module

    write_cmake_module(args.output)
    return 0


@contextmanager
def _solver() -> Iterator[None]:
    """Guard imports of the solver, an optional package. Raises MissingTool."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingTool(Diagnostic(f"{error}", hints=("pip install z3-solver",))) from error


def prove(args: argparse.Namespace) -> int:
    with _solver():
        from ..driver.prove.versions import prove_versions
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
    """The request to compile a version in the dialect; plain C is parsed with its flags."""

    words = {name: ",".join(getattr(args, name)) or None for name in ("include_dirs", "defines", "force_include")}
    layout = {"layout": f"fixed:{args.svd}"} if args.svd else {}
    return driver_request((file,), "version", args.target, {**words, **layout})


def adopt(args: argparse.Namespace) -> int:
    with _solver():
        from ..driver.adopt import LEVELS, patch_of
        from ..driver.adopt import adopt as adopted
    out = args.output if args.output.suffix == ".c" else args.output / f"{args.source.stem}.bf.c"
    patch = out.with_name(f"{args.source.stem}.yaml")
    check_written(args, [out, patch], [args.source, args.svd])
    text, functions, sizes = adopted(version_request(args, args.source))
    converted = sum(len(f.accesses) for f in functions)
    lines = [f"{args.source}:{n}: {f.function.name}: stays C: {why}" for f in functions for n, why in f.stays]
    if not converted:
        raise fail("no function can be adopted", file=str(args.source), hints=lines or ["it accesses no registers"])
    write_atomic(out, text.encode())
    if sizes:
        svd = os.path.relpath(args.svd.resolve(), patch.parent.resolve())
        write_atomic(patch, patch_of(svd, sizes).encode())
        lines.append(f"{patch}: sizes of registers that the C accesses; take it in place of {args.svd.name}")
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
