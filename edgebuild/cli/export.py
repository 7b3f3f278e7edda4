"""`edgebuild export`: a model's C as a library of another build system."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgebuild.base.options import add_options, given, options_of
from edgebuild.base.request import ModelRequest
from edgebuild.cli.common import add_json, json_file, model_request_of, show

OPTIONS = tuple(name for name in options_of(ModelRequest) if name not in ("cluster", "device"))


def arguments(parser: argparse.ArgumentParser) -> None:
    from edgebuild.build.exporting import forms

    parser.add_argument("model", type=Path, help="a model file; `edgebuild ops` names the formats")
    parser.add_argument("--as", dest="form", required=True, choices=forms(), help="the build system")
    parser.add_argument("--target", required=True, help="a name that `edgebuild targets` lists, or a YAML file")
    parser.add_argument("--name", help="prefix of functions and files; default: from the file's name")
    parser.add_argument("-o", "--output", type=Path, default=Path(), metavar="DIR", help="default: this folder")
    parser.add_argument("--version", default="1.0.0", metavar="X.Y.Z", help="of the library; default: %(default)s")
    parser.add_argument("--vendor", default="edgebuild", help="its author, in one word; default: %(default)s")
    parser.add_argument("--url", default="https://example.com/", help="its page; default: %(default)s")
    add_json(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing")
    add_options(parser, ModelRequest, OPTIONS)


def run(args: argparse.Namespace) -> int:
    from edgebuild.base.inputs import check_replaced
    from edgebuild.base.progress import watch
    from edgebuild.build.api import compiled_model
    from edgebuild.build.exporting import Library, write
    from edgebuild.build.run import files_read

    args.weights = "asm" if args.weights == "asm" else "c"
    if not args.quiet:
        watch()
    result = compiled_model(model_request_of(args, args.name))
    command = _command(args, result.request.name)
    library = Library(result, args.form, command, args.version, args.vendor, args.url)
    check_replaced(json_file(args), files_read(result.request))
    changed = write(library, args.output)
    text = f"{result}\n[edgebuild] {len(changed)} files for {args.form} in {args.output}\n"
    names = [a.name for a in library.artifacts()]
    show(args, "" if args.quiet else text, {"form": args.form, "files": names, "report": result.report})
    return 0


def _command(args: argparse.Namespace, name: str) -> str:
    """The command that was given, without folders: the same from wherever it is called."""
    import os
    import shlex

    from edgebuild.base.text import visible
    from edgebuild.build.exporting import METADATA, Library

    words = ["edgebuild", "export", args.model.name, "--as", args.form, "--name", name]
    words += ["--target", os.path.basename(args.target)]
    for field in METADATA:
        words += [f"--{field}", getattr(args, field)] if getattr(args, field) != getattr(Library, field) else []
    options = options_of(ModelRequest)
    for option, value in given(args, ModelRequest, [o for o in OPTIONS if o != "weights"]).items():
        if value is not None:
            moved = options[option].moved(value, os.path.basename)
            words += [f"--{option.replace('_', '-')}", *([] if options[option].kind.switch else [str(moved)])]
    return f"{visible(shlex.join(words))} -o DIR"
