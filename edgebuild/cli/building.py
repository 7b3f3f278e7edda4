"""Commands for drivers and clocks, and those that builds call.

Of each command there is `NAME_arguments(parser)`, and `NAME(args)`, which returns the exit status.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

from edgebuild.base.errors import fail
from edgebuild.build.entry import HEADER_ALONE, MAKEFILES
from edgebuild.cli.common import add_json, json_file, publish_products, show, started


def driver_arguments(parser: argparse.ArgumentParser) -> None:
    from edgebuild.driver.command import add_arguments

    add_arguments(parser)
    add_json(parser)


def driver(args: argparse.Namespace) -> int:
    from edgebuild.driver.command import driver

    return driver(args, partial(publish_products, args=args, began=started(args)), partial(show, args))


def clock_arguments(parser: argparse.ArgumentParser) -> None:
    from edgebuild.base.options import add_options
    from edgebuild.base.request import ClockRequest

    parser.add_argument("--target", required=True, help="a name that `edgebuild targets` lists, or a YAML file")
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    add_options(parser, ClockRequest)
    parser.add_argument("--calibration", metavar="F", help="currents in the table as `edgebuild calibrate` fitted them")
    add_json(parser)
    parser.add_argument("--explain", metavar="M,N,P", help="only say why a PLL setting is legal or not")
    parser.add_argument("--depfile", type=Path, help="write what was read, in make's language")


def clock(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.options import given
    from edgebuild.base.request import ClockRequest, clock_request
    from edgebuild.base.target import load_target
    from edgebuild.clock.configs import base_of, behind, explain, parse_setting
    from edgebuild.clock.emit import clock_files, requested_plan, target_tree
    from edgebuild.clock.power import figures, table
    from edgebuild.model.energy.fit import calibrated, read_calibration

    began = started(args)
    request = clock_request("clocks", args.target, given(args, ClockRequest))
    if args.explain is not None:
        tree = target_tree(load_target(args.target))
        base, _ = base_of(tree, request.hse, request.source)
        m, n, p = parse_setting(args.explain)
        print(explain(behind(tree, request.source), base, m, n, p))
        return 0
    plan = requested_plan(request)
    calibration = read_calibration(Path(args.calibration), plan.tree) if args.calibration else None
    shown = replace(plan, tree=calibrated(plan.tree, calibration)) if calibration else plan
    placement = calibration.placement if calibration else None
    files = [*load_target(args.target).files, *([args.calibration] if args.calibration else [])]
    check_replaced(json_file(args), files)
    show(args, table(shown, placement), {"configs": figures(shown, placement)})
    artifacts = clock_files(plan)
    check_replaced([args.output / a.name for a in artifacts] + ([args.depfile] if args.depfile else []), files)
    publish_products(artifacts, args, load_target(args.target).files, began)
    return 0


def ops_arguments(parser: argparse.ArgumentParser) -> None:
    from edgebuild.model.formats import exported

    parser.add_argument("format", nargs="?", choices=tuple(exported()), help="of one format alone")


def ops(args: argparse.Namespace) -> int:
    from edgebuild.model.supported import supported

    print(supported([args.format] if args.format else []))
    return 0


def targets_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the target to show, or a pattern such as 'nrf5*'; default: list all")
    parser.add_argument("--json", action="store_true", help="compiler, flags, sources and runner, for build systems")


def targets(args: argparse.Namespace) -> int:
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


def init_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=Path, help="the project's folder; files that are there stay as they are")
    parser.add_argument(
        "--board", required=True, metavar="TARGET", help="a name that `edgebuild targets` lists, or YAML"
    )
    parser.add_argument("--build", choices=("cmake", "scons"), default="cmake", help="default: cmake")
    parser.add_argument("--model", type=Path, metavar="M", help="a copy of it goes there; default: a small network")


def init(args: argparse.Namespace) -> int:
    import os
    import re
    import tempfile

    from edgebuild.base.artifacts import Artifact, publish
    from edgebuild.base.errors import fail
    from edgebuild.base.inputs import read_bytes
    from edgebuild.base.request import model_request
    from edgebuild.base.target import load_target
    from edgebuild.build.api import compiled_model
    from edgebuild.build.project import Project, demo_model, files, next_steps

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
    print(f"{len(new)} files in {args.dir}; there, build and run it:", *next_steps(project), sep="\n  ")
    return 0


def sbom_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("request", type=Path, nargs="*", help="NAME.req.json, as SCons and CMake write it; it is built")
    parser.add_argument("--requests", type=Path, metavar="F", help="a file with paths of requests")
    parser.add_argument("--program", type=Path, metavar="ELF", help="what links all of it")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="F", help="the document: SPDX 2.3, JSON")


def sbom(args: argparse.Namespace) -> int:
    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.errors import fail
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.request import read_request, requests_in
    from edgebuild.build.sbom import bill_of_materials

    files = [*args.request, *(requests_in(args.requests) if args.requests else [])]
    if not files:
        raise fail("no requests are given", hints=["build folders have them as NAME.req.json"])
    check_replaced([args.output], [f for f in (*files, args.requests, args.program) if f])
    name = args.program.name if args.program else args.output.name.partition(".")[0]
    write_atomic(args.output, bill_of_materials(name, [read_request(f) for f in files], args.program))
    return 0


def run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(MAKEFILES, action="store_true", help="products in the depfile, too, as CMake's makefiles need")
    parser.add_argument(HEADER_ALONE, action="store_true", help="write a model's header alone, which needs no plan")
    parser.add_argument("request", type=Path, help="NAME.req.json, as SCons and CMake write it")


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.errors import EdgebuildError
    from edgebuild.build.run import run, run_header

    try:
        return (run_header if args.header else run)(args.request, args.makefiles)
    except EdgebuildError as error:
        from edgebuild.build.check import spelled

        raise type(error)(*map(spelled, error.diagnostics)) from error


SHOWN = 5
ACTIONS = ("show", "stats", "verify", "clear", "explain")


def cache_arguments(parser: argparse.ArgumentParser) -> None:
    text = "stats: also its bound; verify: name damaged entries; clear: remove all entries; explain: what differs"
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="show", help=text)
    text = "of explain: two requests (NAME.req.json), or what `explain` printed of one elsewhere"
    add_json(parser)
    parser.add_argument("files", nargs="*", metavar="FILE", help=text)


def cache(args: argparse.Namespace) -> int:
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
    from edgebuild.build.run import for_any_name, model_files
    from edgebuild.model import choices

    data = read_json(file, "neither a request nor what `cache explain` printed", "cannot read it")
    if isinstance(data, dict) and "code" in data and all(isinstance(v, str) for v in data.values()):
        return data
    request = checked_request(data, str(file), str(file.absolute().parent)).request
    if not isinstance(request, ModelRequest):
        raise fail("only results of models are kept", file=str(file))
    request = for_any_name(choices.with_choices(request))
    return cache.recipe(request, model_files(request))


def cmake_dir_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no arguments."""


def cmake_dir(args: argparse.Namespace) -> int:
    from edgebuild.doors import cmake_dir

    print(cmake_dir())
    return 0


def cmake_module_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")


def cmake_module(args: argparse.Namespace) -> int:
    from edgebuild.doors import write_cmake_module

    write_cmake_module(args.output)
    return 0
