"""Files of models that others made: out of packages, and written by exporters in an environment of their own."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT

FOLDER = ROOT / "build" / "wild"
HERE = Path(__file__).parent
SUFFIXES = (".onnx", ".tflite")


@dataclass(frozen=True)
class Model:
    """A file, where it comes from, and the options with which it is compiled."""

    name: str
    source: str  # package and version, or exporter
    file: Path
    options: tuple[str, ...] = ()


class Unavailable(Exception):
    """A package or an exporter cannot be had here; the text says which and why."""


def packages() -> list[dict[str, Any]]:
    """Entries of packages.yaml."""
    entries: list[dict[str, Any]] = yaml.safe_load((HERE / "packages.yaml").read_text())
    return entries


def of_package(entry: dict[str, Any]) -> Iterator[Model]:
    """The models of a package, unpacked once; of equal files the first in the order of names."""
    folder = _unpacked(entry)
    seen = set()
    for file in sorted(f for f in folder.rglob("*") if f.suffix in SUFFIXES and f.is_file()):
        inside = str(file.relative_to(folder))
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        if digest not in seen and any(fnmatch.fnmatch(f"/{inside}", pattern) for pattern in entry["files"]):
            seen.add(digest)
            yield Model(inside, f"{entry['package']} {entry['version']}", file, _options(entry, file.name))


def _options(entry: dict[str, Any], name: str) -> tuple[str, ...]:
    matching = (options for pattern, options in entry.get("options", {}).items() if fnmatch.fnmatch(name, pattern))
    return tuple(next(matching, ()))


def _unpacked(entry: dict[str, Any]) -> Path:
    """The folder of a package's files; the registry's client downloads it where it is not there yet."""
    name, version = entry["package"], entry["version"]
    folder = FOLDER / "packages" / f"{name.strip('@').replace('/', '-')}-{version}"
    if folder.is_dir():
        return folder
    partial = folder.with_suffix(".part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    if entry.get("registry") == "npm":
        command = ["npm", "pack", "--silent", f"{name}@{version}"]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"{name}=={version}"]
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{name} {version}: {command[0]} is not installed")
    done = subprocess.run(command, cwd=partial, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"{name} {version}: {' '.join(command)}: {done.stderr.strip()[-300:]}")
    (archive,) = [file for file in partial.iterdir() if file.is_file()]
    if archive.suffix in (".whl", ".zip"):
        zipfile.ZipFile(archive).extractall(partial)
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(partial, filter="data")
    archive.unlink()
    partial.rename(folder)
    return folder


def exporters() -> list[dict[str, Any]]:
    """Entries of exporters.yaml."""
    entries: list[dict[str, Any]] = yaml.safe_load((HERE / "exporters.yaml").read_text())
    return entries


def of_exporter(entry: dict[str, Any]) -> Iterator[Model]:
    """The models that a script writes in an environment of its own, made once."""
    name = entry["script"]
    folder = FOLDER / "exports" / name
    if not (folder / "done.json").is_file():
        python = _environment(name, entry["packages"])
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([python, HERE / "scripts" / f"{name}.py", folder], capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"{name}: {done.stderr.strip()[-500:]}")
        (folder / "done.json").write_text(json.dumps(entry["packages"]))
    for file in sorted(f for f in folder.iterdir() if f.suffix in SUFFIXES):
        yield Model(file.name, entry["name"], file)


def _environment(name: str, names: list[str]) -> Path:
    """The interpreter of an environment with these packages."""
    folder = FOLDER / "environments" / name
    python = folder / "bin" / "python"
    if not (folder / "ready").is_file():
        venv.create(folder, clear=True, with_pip=True)
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", *names], capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"{name}: pip install {' '.join(names)}: {done.stderr.strip()[-300:]}")
        (folder / "ready").touch()
    return python
