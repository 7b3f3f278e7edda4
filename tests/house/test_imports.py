"""Modules that commands import: every build feels the time that they take. No test here measures time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.graphs.tiny import tiny_tflite

PACKAGES = {"numpy", "jinja2", "markupsafe", "yaml", "_yaml", "flatbuffers", "tflite"}  # of others
ROOMS = {
    "base", "build.api", "build.entry", "build.header", "build.run", "build.stamp", "cli.common",
    "cli.parsing",
    "cli.compiling", "model.ir", "model.axes",
    "model.choices", "model.compile", "model.emit", "model.formats", "model.interface_of", "model.kernels", "model.ops",
    "model.passes", "model.plan", "model.program_size", "model.surface",
}  # fmt: skip
# Parts of these rooms and packages that few models need.
LATE = {
    "model.plan.distribute",
    "model.plan.dma.assembly",
    "numpy.random",
    "numpy.ma",
    "model.formats.onnx.onnx_reader",
    "importlib.metadata",
}
TFLITE = 20  # modules of the schema's 187
ASK = """
import sys
before = set(sys.modules)
from edgebuild.build.entry import main
try:
    status = main(sys.argv[1:])
except SystemExit as stop:
    status = stop.code
print("\\n" + " ".join(sorted(set(sys.modules) - before)))
raise SystemExit(status)
"""


def imported(*words: str, cache: str = "") -> set[str]:
    """The modules that a command imports."""
    environment = {**os.environ, "EDGEBUILD_CACHE": cache}
    command = [sys.executable, "-c", ASK, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return set(done.stdout.splitlines()[-1].split())


def own(modules: set[str]) -> set[str]:
    return {m.removeprefix("edgebuild.") for m in modules if m.startswith("edgebuild.")}


def of_others(modules: set[str]) -> set[str]:
    """Packages that are not of the standard library."""
    packages = {m.partition(".")[0] for m in modules} - set(sys.stdlib_module_names) - {"edgebuild"}
    return {p for p in packages if "cython" not in p}  # what yaml's compiled half makes of itself


def test_a_small_model_needs_few_modules(tmp_path: Path) -> None:
    model = tmp_path / "small.tflite"
    model.write_bytes(tiny_tflite())
    modules = imported("model", str(model), "--target", "mps2-an386", "-o", str(tmp_path))
    assert of_others(modules) <= PACKAGES
    rooms = [m for m in own(modules) if m not in ("build", "cli", "model")]
    assert not [m for m in rooms if not any(m == r or m.startswith(f"{r}.") for r in ROOMS)]
    assert not LATE & (own(modules) | modules)
    assert len([m for m in modules if m.startswith("tflite")]) <= TFLITE


def test_a_model_in_the_cache_needs_no_numbers(tmp_path: Path) -> None:
    model, request = tmp_path / "small.tflite", tmp_path / "small.req.json"
    model.write_bytes(tiny_tflite())
    facts = {"schema": 1, "kind": "model", "name": "small", "source": "small.tflite", "target": "host", "output": "."}
    request.write_text(json.dumps({**facts, "options": {}}))
    assert "numpy" in imported("run", str(request), cache=str(tmp_path / "cache"))
    (tmp_path / "small.stamp").unlink()
    assert not of_others(imported("run", str(request), cache=str(tmp_path / "cache"))) - {"yaml", "_yaml"}


def test_help_and_version_need_no_package() -> None:
    for words in (["--version"], ["-h"], ["model", "-h"]):
        assert not of_others(imported(*words)), words
