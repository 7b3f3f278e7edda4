"""Measures what pages say, each command run at most once: builds of a model, and results of the benches."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from edgebuild.base.request import model_request
from edgebuild.base.target import hal_dir, load_target
from edgebuild.model.cluster.products import ClusterRequest, build_cluster
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.conftest import ROOT

MODELS = ROOT.parent / "shared" / "models"
MODEL_FILES = {
    "kws": MODELS / "mlperf_kws.tflite",
    "resnet": MODELS / "mlperf_resnet.tflite",
    "person": MODELS / "person_detect.tflite",
    "ad": MODELS / "mlperf_ad.tflite",
    "digits": ROOT / "sample_projects" / "digits" / "digits.onnx",
}
BENCHES = ROOT / "build" / "bench"

Figures = Mapping[str, float]


def build(model: str, target: str, *, cycles: bool = False, **options: object) -> Figures:
    """All figures of one build: compiled, linked, run and equal to the reference.

    `model` is a key of MODEL_FILES, `options` are those of `edgebuild model`. Bytes are read from the ELF and the
    painted memory, instructions counted; `cycles` adds modelled ones.
    """
    return _build(model, target, cycles, tuple(sorted(options.items())))


@cache
def _build(model: str, target: str, cycles: bool, options: tuple[tuple[str, object], ...]) -> Figures:
    artifacts = compile_model(model_request(MODEL_FILES[model], "model", target, dict(options)))
    report = json.loads(next(a.data for a in artifacts if a.name.endswith("_report.json")))
    result = verify(MODEL_FILES[model], load_target(target), artifacts, by_cycles=cycles)
    assert result["equal"], f"{model} on {target} differs from the reference"
    figures = {
        "arena": result["arena_bytes"],
        "stack": result["stack_bytes"],
        "flash": result["flash_bytes"],
        "ram": result["ram_bytes"],
        "code": result["code_bytes"],
        "constants": report["rom"]["weights_bytes"],
        "header": report["rom"]["header_bytes"],
        "tensors": report["rom"]["tensors_bytes"],
        "instructions": result["instructions"],
        "instructions per MAC": result["instructions"] / result["macs"],
        "macs": result["macs"],
    }
    if cycles:
        figures |= {"cycles": result["cycles"], "cycles per MAC": result["cycles"] / result["macs"]}
    return figures


class NotMeasured(Exception):
    """A bench lacks what it needs on this machine."""


@cache
def bench(name: str) -> Any:
    """Result of `./sconsw bench-NAME`. It runs here, unless REUSE is set and its file lies in build/bench.

    Raises NotMeasured if the bench writes none.
    """
    file = BENCHES / f"{name}.json"
    if not (REUSE and file.is_file()):
        file.unlink(missing_ok=True)
        subprocess.run([sys.executable, "-m", f"tests.bench_{name}"], cwd=ROOT, check=True)
    if not file.is_file():
        raise NotMeasured(f"./sconsw bench-{name} says what it needs")
    return json.loads(file.read_text())


REUSE: list[bool] = []  # not empty: benches whose file is there are not run again


@cache
def rtl() -> list[dict[str, Any]]:
    """Cycles counted on RTL that is no part of the project, as rtl.yaml has them, by core."""
    rows: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("rtl.yaml").read_text())
    return rows


@cache
def peers() -> dict[str, Any]:
    """Figures of others, as peers.yaml has them, by source."""
    figures: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("peers.yaml").read_text())
    return figures


def bench_row(name: str, /, *path: str, **where: object) -> Mapping[str, Any]:
    """The one row of a bench whose keys have these values; `path` leads to the list of rows."""
    rows = bench(name)
    for key in path:
        rows = rows[key]
    (row,) = [row for row in rows if all(row.get(key) == value for key, value in where.items())]
    return dict(row)


def object_bytes(source: str, target: str, *flags: str) -> int:
    """Bytes of code and constants of a file of hal/src, compiled for a target."""
    toolchain = load_target(target).toolchain
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "object.o"
        command = [
            toolchain.compiler,
            *toolchain.cflags,
            *flags,
            f"-I{hal_dir() / 'include'}",
            "-c",
            hal_dir() / "src" / source,
        ]
        subprocess.run([*command, "-o", out], check=True)
        size = toolchain.prefix + "size"
        text = subprocess.run([size, out], check=True, capture_output=True, text=True).stdout
    return int(text.splitlines()[1].split()[0])


@cache
def sample_network(sample: str) -> bytes:
    """The network that a sample's network.py writes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.onnx"
        subprocess.run([sys.executable, ROOT / "sample_projects" / sample / "network.py", file], check=True)
        return file.read_bytes()


@cache
def sample_model(sample: str, target: str, **options: object) -> dict[str, Any]:
    """The report of a sample's network, compiled for a target."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.onnx"
        file.write_bytes(sample_network(sample))
        return compiled(file, target, **options)


@cache
def compiled(file: Path, target: str, **options: object) -> dict[str, Any]:
    """The report of a network, compiled for a target."""
    artifacts = compile_model(model_request(file, "network", target, options))
    report: dict[str, Any] = json.loads(next(a.data for a in artifacts if a.name.endswith("_report.json")))
    return report


@cache
def sample_cluster(sample: str, boards: int, objective: str) -> dict[str, Any]:
    """The report of a sample's network on this many boards like the first of its cluster file."""
    described = yaml.safe_load((ROOT / "sample_projects" / sample / "cluster.yaml").read_text())
    first = described["devices"][0]
    described["devices"] = [{**first, "name": f"d{k}"} for k in range(boards)]
    described |= {"source": "d0", "objective": objective}
    with tempfile.TemporaryDirectory() as folder:
        model, cluster = Path(folder) / "network.onnx", Path(folder) / "cluster.yaml"
        model.write_bytes(sample_network(sample))
        cluster.write_text(yaml.safe_dump(described))
        return dict(build_cluster(ClusterRequest(model, cluster, "network")).report)
