"""`edgebuild init`: write a project for a board that builds and runs."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=Path, help="the project's folder; files that are there stay as they are")
    parser.add_argument(
        "--board", required=True, metavar="TARGET", help="a name that `edgebuild targets` lists, or YAML"
    )
    parser.add_argument("--build", choices=("cmake", "scons"), default="cmake", help="default: cmake")
    parser.add_argument("--model", type=Path, metavar="M", help="a copy of it goes there; default: a small network")


def run(args: argparse.Namespace) -> int:
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
