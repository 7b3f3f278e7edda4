"""Functions that several commands share."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..base.artifacts import Artifact, publish, write_atomic
from ..base.errors import fail
from ..base.inputs import check_replaced
from ..base.options import given
from ..base.progress import warn
from ..base.request import GroupRequest, ModelRequest, model_outputs

MaybePath = str | Path | None


def check_written(args: argparse.Namespace, written: Iterable[MaybePath], read: Iterable[MaybePath]) -> None:
    """Raise EdgebuildError if an output (or the file of --json) is also an input, or cannot be written.

    None stands for an option that is not given.
    """
    files = [Path(f) for f in (*written, args.json if args.json != "-" else None) if f]
    check_replaced(files, [f for f in read if f])
    for file in files:
        folder = next(p for p in file.absolute().parents if p.exists())  # missing folders are created
        if not folder.is_dir():
            raise fail(f"cannot write it: {folder.name} is not a folder", file=str(file))
        if not os.access(folder, os.W_OK) and (file.is_file() or not file.exists()):
            raise fail("cannot write it: Permission denied", file=str(file))


def show(args: argparse.Namespace, text: str, data: Any) -> None:
    """Print the text, or with `--json -` the data as JSON instead. With `--json F` also write the data to F.

    `data`: a JSON value, or text in JSON.
    """
    import json

    if not args.json:
        print(text, end="")
        return
    data = data if isinstance(data, str) else json.dumps(data, indent=1) + "\n"
    if args.json != "-":
        write_atomic(Path(args.json), data.encode())
    print(data if args.json == "-" else text, end="")


def started(args: argparse.Namespace) -> int:
    """The time (ns) for the date of products. With a depfile, the file that represents the code is updated before."""
    from ..base.own_code import code_inputs

    if args.depfile:
        code_inputs()
    return time.time_ns()


def write_compiled(request: ModelRequest | GroupRequest, args: argparse.Namespace, began: int) -> int:
    """Compile, write the products below `args.output`, if it is given, and print the summary or the report.

    Raises EdgebuildError, with nothing written, for wrong input, and for products that would replace inputs.
    """
    from ..build.run import compiled_files, files_read, unused_weights

    unused = [unused_weights(m) for m in (request.models if isinstance(request, GroupRequest) else (request,))]
    names = request.outputs if isinstance(request, GroupRequest) else model_outputs(request.name)
    products = [args.output / name for name in names if name not in unused] if args.output else []
    files = files_read(request)
    check_written(args, [*products, args.depfile], files)
    artifacts, text = compiled_files(request)
    report = next(a.data for a in artifacts if a.name == f"{request.name}_report.json")
    products = [a for a in artifacts if a.name not in unused]
    if args.dry_run:
        text += "".join(f"\n{len(a.data):>10,} B  {a.name}" for a in products)
    elif args.output:
        publish_products(products, args, files, began, unused)
    show(args, "" if args.quiet else f"{text}\n", report.decode())
    return 0


def publish_products(
    artifacts: Sequence[Artifact], args: argparse.Namespace, read: Iterable[str], began: int, gone: Iterable[str] = ()
) -> None:
    """Write the products below `args.output`, and their inputs into `args.depfile`, if it is given.

    `read`: inputs other than edgebuild's own files. With a depfile, all products get the date `began` (ns): unchanged
    products would otherwise stay older than their inputs, and make or Ninja would run the command in every build.
    Raises EdgebuildError, with nothing written, for a path that make cannot express.
    """
    from ..base.depfile import make_depfile, unread_by_make
    from ..base.own_code import code_inputs, with_code

    products = [args.output / a.name for a in artifacts]
    rule = (str(products[0]), with_code(list(read), code_inputs())) if args.depfile else None
    text = make_depfile(*rule) if rule else ""
    publish(artifacts, args.output, owned=False, gone=gone)
    if rule is None:
        return
    if problem := unread_by_make(*rule):
        warn(problem)
    write_atomic(args.depfile, os.fsencode(text))
    for product in products:
        os.utime(product, ns=(began, began))


def model_request_of(args: argparse.Namespace, name: str | None) -> ModelRequest:
    """The request of the command line, with the kernel choices of `edgebuild tune`. `name`: default: the file's."""
    from ..build.api import request_of

    return request_of(args.model, name, args.target, given(args, ModelRequest))


def reports_of(args: argparse.Namespace, files: Sequence[Path]) -> list[dict[str, Any]]:
    """The report of each file: read from a report, or of a model that is compiled for `args.target`."""
    from ..build.api import compiled_model, request_of
    from ..model.formats import read_model
    from ..model.views.reports import is_report, read_report

    reports = list[dict[str, Any]]()
    for file in files:
        if is_report(file):
            reports.append(read_report(file))
            continue
        if args.target is None:
            read_model(file)  # raises EdgebuildError if it is no model, either
            args.wrong_usage(f"{file} is a model, and models need --target")
        request = request_of(file, None, args.target, given(args, ModelRequest))
        reports.append(compiled_model(request).report)
    return reports


@cache
def error_kinds() -> dict[str, dict[str, str]]:
    """The kinds of errors by code, each with `pattern`, `title` and `page`."""
    import yaml

    return yaml.safe_load((Path(__file__).parent / "errors.yaml").read_text(encoding="utf-8"))


def code_of(message: str) -> str:
    """The code of the first kind whose pattern matches in the first line of a message."""
    line = message.partition("\n")[0]
    return next(code for code, kind in error_kinds().items() if re.search(kind["pattern"], line))
