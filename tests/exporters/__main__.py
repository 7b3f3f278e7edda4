"""`python -m tests.exporters [--target T] [--forms F,...] [NAME...]`: compile and verify every network; a table."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import onnx

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify

from . import NETWORKS, exported


def outcome(name: str, form: str, target: str) -> str:
    """ "equal", or what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.onnx")
        onnx.save(exported(name, form), file)
        try:
            artifacts = compile_model(model_request(file, "model", target, {}))
            result = verify(file, load_target(target), artifacts)
        except EdgebuildError as error:
            return f"refused: {error}"
    return "equal" if result["equal"] else f"WRONG by {result['max_abs_diff']}: {', '.join(result['differs'])}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.exporters", description=__doc__)
    parser.add_argument("--target", default="host")
    parser.add_argument("--forms", default="float,qdq")
    parser.add_argument("names", nargs="*", help="parts of names; default: all")
    arguments = parser.parse_args()
    good = tried = 0
    for name in NETWORKS:
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        for form in arguments.forms.split(","):
            verdict = outcome(name, form, arguments.target)
            good, tried = good + (verdict == "equal"), tried + 1
            print(f"{name:26} {form:10} {verdict}", flush=True)
    print(f"{good} of {tried} equal on {arguments.target}")


if __name__ == "__main__":
    main()
