"""Code that the commands that read a model share."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from edgebuild.base.options import add_options, given
from edgebuild.base.request import ModelRequest, model_request


def add_model_arguments(parser: argparse.ArgumentParser, target_required: bool, nargs: str | None = None) -> None:
    """Give the command a model, a target and all options of a model's request."""
    parser.add_argument("model", type=Path, nargs=nargs, help="a .tflite or .onnx file")
    target = "a name that `edgebuild targets` lists, or a YAML file"
    parser.add_argument("--target", required=target_required, help=target)
    add_options(parser, ModelRequest)


def write_depfile(file: Path, products: Sequence[Path], read: Iterable[str], began: int) -> None:
    """Write the rule, in make's language, that the first product depends on these files and on edgebuild.

    All products get the date when the command `began` (ns). Those with the bytes of before would stay older than what
    was read, and make or Ninja would run the command in every build.
    """
    from edgebuild.base.artifacts import write_atomic
    from edgebuild.base.installation import code_files
    from edgebuild.build.run import depfile

    write_atomic(file, os.fsencode(depfile(str(products[0]), [*read, *code_files()])))
    for product in products:
        os.utime(product, ns=(began, began))


def model_request_of(args: argparse.Namespace, name: str) -> ModelRequest:
    """The request that the command line is, with what was measured for its target."""
    from edgebuild.model.choices import with_choices

    return with_choices(model_request(args.model, name, args.target, given(args, ModelRequest)))
