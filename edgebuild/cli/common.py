"""Code that the commands that read a model share."""

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
    """Raise EdgebuildError if a file that is read is written, or is that of --json, or if a folder takes no file.

    None: the option is not given.
    """
    files = [Path(f) for f in (*written, args.json if args.json != "-" else None) if f]
    check_replaced(files, [f for f in read if f])
    for file in files:
        folder = next(p for p in file.absolute().parents if p.exists())  # those that are missing are made
        if not folder.is_dir():
            raise fail(f"cannot write it: {folder.name} is not a folder", file=str(file))
        if not os.access(folder, os.W_OK) and (file.is_file() or not file.exists()):
            raise fail("cannot write it: Permission denied", file=str(file))


def show(args: argparse.Namespace, text: str, data: Any) -> None:
    """Print the text, or the data as JSON in its place where `--json -` asks for it; or write them to a file, too.

    `data`: what JSON can hold, or a text that is JSON.
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
    """The time (ns) from which products are dated. What stands for the code in a depfile is up to date by then."""
    from ..base.own_code import code_inputs

    if args.depfile:
        code_inputs()
    return time.time_ns()


def write_compiled(request: ModelRequest | GroupRequest, args: argparse.Namespace, began: int) -> int:
    """Compile, write the products below `args.output`, if there is one, and print the summary or the report.

    Raises EdgebuildError, with nothing written, for whatever is wrong, and for products in place of what is read.
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
    """Write the products below `args.output`, and into `args.depfile`, if it is given, what they were made from.

    `read`: files besides those of edgebuild. With a depfile all products get the date when the command `began` (ns).
    Those with the bytes of before would stay older than what was read, and make or Ninja would run the command in
    every build. Raises EdgebuildError, with nothing written, for a path that make has no way to write.
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
    """The request that the command line is, with what was measured for its target. `name`: default: of the file."""
    from ..build.api import request_of

    return request_of(args.model, name, args.target, given(args, ModelRequest))


def reports_of(args: argparse.Namespace, files: Sequence[Path]) -> list[dict[str, Any]]:
    """The report of each file: as it is read, or of a model that is compiled for `args.target`, which it then needs."""
    from ..build.api import compiled_model, request_of
    from ..model.formats import read_model
    from ..model.views.reports import is_report, read_report

    reports = list[dict[str, Any]]()
    for file in files:
        if is_report(file):
            reports.append(read_report(file))
            continue
        if args.target is None:
            read_model(file)  # which says so of a file that is no model either
            args.wrong_usage(f"{file} is a model, and models need --target")
        request = request_of(file, None, args.target, given(args, ModelRequest))
        reports.append(compiled_model(request).report)
    return reports


@cache
def error_kinds() -> dict[str, dict[str, str]]:
    """Each kind of error by its code: `pattern`, `title` and `page`."""
    import yaml

    return yaml.safe_load((Path(__file__).parent / "errors.yaml").read_text(encoding="utf-8"))


def code_of(message: str) -> str:
    """The code of the first kind whose pattern is in the first line of a message."""
    line = message.partition("\n")[0]
    return next(code for code, kind in error_kinds().items() if re.search(kind["pattern"], line))
