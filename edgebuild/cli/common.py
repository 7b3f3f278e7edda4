"""Code that the commands that read a model share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgebuild.base.options import add_options, given
from edgebuild.base.request import ModelRequest, model_request

if TYPE_CHECKING:
    from edgebuild.base.artifacts import Artifact


def add_model_arguments(parser: argparse.ArgumentParser, target_required: bool, nargs: str | None = None) -> None:
    """Give the command a model, a target and all options of a model's request."""
    parser.add_argument("model", type=Path, nargs=nargs, help="a model file; `edgebuild ops` names the formats")
    target = "a name that `edgebuild targets` lists, or a YAML file"
    parser.add_argument("--target", required=target_required, help=target)
    add_options(parser, ModelRequest)


def publish_products(artifacts: Sequence[Artifact], args: argparse.Namespace, read: Iterable[str], began: int) -> None:
    """Write the products below `args.output`, and into `args.depfile`, if it is given, what they were made from.

    `read`: files besides those of edgebuild. With a depfile all products get the date when the command `began` (ns).
    Those with the bytes of before would stay older than what was read, and make or Ninja would run the command in
    every build. Raises EdgebuildError, with nothing written, for a path that make has no way to write.
    """
    from edgebuild.base.artifacts import publish, write_atomic
    from edgebuild.base.depfile import make_depfile, unread_by_make
    from edgebuild.base.installation import code_files
    from edgebuild.base.progress import warn

    products = [args.output / a.name for a in artifacts]
    rule = (str(products[0]), [*read, *code_files()]) if args.depfile else None
    text = make_depfile(*rule) if rule else ""
    publish(artifacts, args.output, owned=False)
    if rule is None:
        return
    if problem := unread_by_make(*rule):
        warn(problem)
    write_atomic(args.depfile, os.fsencode(text))
    for product in products:
        os.utime(product, ns=(began, began))


def model_request_of(args: argparse.Namespace, name: str) -> ModelRequest:
    """The request that the command line is, with what was measured for its target."""
    from edgebuild.model.choices import with_choices

    return with_choices(model_request(args.model, name, args.target, given(args, ModelRequest)))
