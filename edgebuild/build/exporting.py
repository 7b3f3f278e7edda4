"""A model's C as a library for another build system: `edgebuild export`.

Each file in `forms/` is a form. Its first piece states in YAML the folders of sources and headers. Each further piece
is the template of a file; that of a `.md` page is the part of the shared page about this form. In names, NAME is the
model's, and VERSION and VENDOR are the library's. A new form needs no Python code.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import yaml

from ..base.artifacts import Artifact, publish
from ..base.errors import fail, from_os
from ..base.inputs import PACKAGE, check_replaced, read_bytes
from ..base.request import ModelRequest
from ..base.target import hal_dir, load_target
from ..base.templates import render
from ..model import ops
from ..model.compile import graph_of
from ..model.ir import Array, Tensor
from ..model.ops.base import C_TYPES
from ..model.verify.vectors import bounds
from ..model.views.reports import figures
from .api import Result
from .run import files_read, unused_weights

FORMS, SHARED = PACKAGE / "build" / "forms", "shared"
METADATA = {
    "version": (r"(0|[1-9]\d{0,5})(\.(0|[1-9]\d{0,5})){2}", "three numbers, as 1.0.0"),
    "vendor": (r"[A-Za-z][A-Za-z0-9_-]{0,60}", "letters, digits, - and _"),
    "url": (r"https?://[A-Za-z0-9._~:/?#@!$&()*+,;=%-]{1,200}", "as https://example.com/kws"),
}
EARLIEST = (1980, 1, 1, 0, 0, 0)  # the earliest date in zip archives


@dataclass(frozen=True)
class Form:
    """The layout of a library. `archive`: the zip file with all other files; "" for none.

    `cores`: prefix of the instruction sets of its chips; empty: any.
    `shared`: files that several forms have: by path, the name of the piece in `shared.j2`.
    """

    about: str
    sources: str
    headers: str
    archive: str = ""
    cores: str = ""
    shared: Mapping[str, str] = field(default_factory=dict)


def forms() -> list[str]:
    """The names of all forms."""
    return sorted(file.stem for file in FORMS.glob("*.j2") if file.stem != SHARED)


@dataclass(frozen=True)
class Library:
    """A compiled model with the options of its export. `command`: the user's command line, for the README."""

    result: Result
    form: str
    command: str
    version: str = "1.0.0"
    vendor: str = "edgebuild"
    url: str = "https://example.com/"

    def artifacts(self) -> tuple[Artifact, ...]:
        """All files of the library. Raises EdgebuildError for unsuitable metadata, options or targets."""
        self._check()
        stated, *pieces = re.split(
            r"^%% (.+)\n", (FORMS / f"{self.form}.j2").read_text(encoding="utf-8"), flags=re.MULTILINE
        )[2:]
        form, name = Form(**yaml.safe_load(stated)), self.result.request.name
        self._check_core(form)

        def placed(path: str) -> str:
            return path.replace("NAME", name).replace("VERSION", self.version).replace("VENDOR", self.vendor)

        code = [a for a in (*self.result.artifacts, *_support(self.result)) if a.name.endswith((".c", ".h"))]
        sources = [Artifact(f"{form.sources}/{a.name}", a.data) for a in code if a.name.endswith(".c")]
        headers = [Artifact(f"{form.headers}/{a.name}", a.data) for a in code if a.name.endswith(".h")]
        view = self._view([a.name for a in sources], [a.name for a in headers])
        # The page is shared by all forms, and includes the piece of this one.
        pages = {path: "shared:readme.md" for path in pieces[::2] if path.endswith(".md")}
        shared = {path: f"shared:{piece}" for path, piece in form.shared.items()}
        templates = {**{path: f"{self.form}:{path}" for path in pieces[::2]}, **pages, **shared}
        texts = (
            Artifact(placed(path), render(template, **view, use=f"{self.form}:{path}").encode())
            for path, template in templates.items()
        )
        files = (*(Artifact(placed(a.name), a.data) for a in (*sources, *headers)), *texts)
        return (*files, *([Artifact(placed(form.archive), _archive(files))] if form.archive else []))

    def _check(self) -> None:
        for name, (pattern, words) in METADATA.items():
            if not re.fullmatch(pattern, text := getattr(self, name)):
                raise fail(f"option '{name}': '{text}' is none that all package managers take", hints=[words])
        if unused_weights(self.result.request).endswith(".c"):
            hints = ["leave it out: an export has its weights in C"]
            raise fail("option 'weights': builds of others do not see a change of what .incbin reads", hints=hints)

    def _check_core(self, form: Form) -> None:
        """Raise EdgebuildError if the C is for an architecture that the form's chips lack; host C is for all chips."""
        target = load_target(self.result.request.target)
        if form.cores and target.core.isa != "native" and not target.core.isa.startswith(form.cores):
            other = f"{self.form} has no chip with a core of {target.name} ({target.core.isa})"
            raise fail(f"option 'target': {other}", hints=["name the chip of the project; `edgebuild fit` lists chips"])

    def _view(self, sources: Sequence[str], headers: Sequence[str]) -> dict[str, Any]:
        request, report = self.result.request, self.result.report
        target = load_target(request.target)
        return {
            "name": request.name,
            "upper": request.name.upper(),
            **{field: getattr(self, field) for field in (*METADATA, "command")},
            "model": report["model"],
            "target": target,
            "arch": target.toolchain.arch,
            "report": report,
            "figures": figures(report),
            "sources": sources,
            "headers": headers,
            "calls_cmsis_nn": request.called_library is not None,
            "sample": sample(request, report),
        }


def _support(result: Result) -> list[Artifact]:
    """C files of edgebuild that the model needs: ports of the target's DMA unit and engines, and their headers.

    Raises EdgebuildError if the target names no port.
    """
    target, include = load_target(result.request.target), hal_dir() / "include"
    if not any(_included(a.data) for a in result.artifacts if a.name.endswith(".c")):
        return []
    own = target.firmware.startup if target.firmware else ()
    ports = [hal_dir() / file for file in target.startup if file not in own]
    if not ports:
        hints = ["name it as `port:` in a YAML file that inherits the target"]
        raise fail(f"target {target.name} names no C for its DMA unit or engine, and an export has it", hints=hints)
    files = {port.name: port.read_bytes() for port in ports}
    wanted = [*map(_included, files.values()), *(_included(a.data) for a in result.artifacts)]
    while names := {name for each in wanted for name in each} - files.keys():
        files |= {name: (include / name).read_bytes() for name in names}
        wanted = [_included(files[name]) for name in names]
    return [Artifact(name, files[name]) for name in sorted(files)]


def _included(code: bytes) -> set[str]:
    """The headers of edgebuild that a source includes, by name."""
    return {name.decode() for name in re.findall(rb'#include "(eb_\w+\.h)"', code)}


def _archive(files: Sequence[Artifact]) -> bytes:
    """A zip file whose bytes do not depend on time or machine."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for a in sorted(files, key=lambda a: a.name):
            entry = zipfile.ZipInfo(a.name, EARLIEST)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, a.data)
    return stream.getvalue()


def write(library: Library, folder: Path) -> list[str]:
    """Write the library; return the names of the files that changed.

    `.NAME.edgebuild` in the folder lists the written files with digests. Files that edgebuild did not write, or that
    were changed since, are not replaced: they raise EdgebuildError, and nothing is written. Unchanged files of an
    earlier export that this one lacks are removed.
    """
    listed = f".{library.result.request.name}.edgebuild"
    files = library.artifacts()
    before = _listed(folder / listed)
    check_replaced([folder / a.name for a in files], files_read(library.result.request))
    for a in files:
        _check_owner(folder / a.name, a.data, before.get(a.name))
    lines = "".join(f"{_digest(a.data)}  {a.name}\n" for a in sorted(files, key=lambda a: a.name))
    changed = publish([*files, Artifact(listed, lines.encode())], folder)
    for name in before.keys() - {a.name for a in files}:
        path = folder / name
        if path.is_file() and not path.is_symlink() and _digest(path.read_bytes()) == before[name]:
            path.unlink()
    return [name for name in changed if name != listed]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _listed(file: Path) -> dict[str, str]:
    """The digests in the list by file name, without names that lead out of the folder."""
    if not file.is_file():
        return {}
    lines = (line.partition("  ") for line in read_bytes(file).decode(errors="replace").splitlines())
    rows = ((digest, name) for digest, _, name in lines if name and not name.startswith("/"))
    return {name: digest for digest, name in rows if ".." not in PurePosixPath(name).parts}


def _check_owner(path: Path, data: bytes, digest: str | None) -> None:
    try:
        there = path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise from_os(error, "cannot read it", str(path)) from None
    if there is None or there == data or _digest(there) == digest:
        return
    text = "edgebuild did not write it" if digest is None else "it was changed since edgebuild wrote it"
    hints = ["name another folder with -o", "or remove the file"]
    raise fail(f"{text}, and does not replace it", file=str(path), hints=hints)


MAX_COMPARED = 32  # elements of an output that are compared
FACTORS, SHIFT = (0x9E3779B1, 0x85EBCA6B), 15  # of the mixing, as in MurmurHash3, that fills the inputs
CLASSES = 10  # limit of integer inputs that are no indices of a table
SHARE = 1e-3  # tolerance of floats, as a share of the largest element: two C libraries differ by less


def sample(request: ModelRequest, report: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """A sample inference, computed by the operators' numpy definitions, as inputs and outputs in C.

    `value` of an input: C for an element, from the hash `h`. `rows` of an output: C for {index, expected value}.
    """
    graph = graph_of(request)
    table, sizes = bounds(request.source)
    inputs, values = list[dict[str, Any]](), graph.first_states
    for tensor, port in zip(graph.ports_in, report["inputs"], strict=True):
        t = graph.tensors[tensor]
        value, values[t.name] = _filled(t, sizes.get(t.name, table) or CLASSES)
        inputs.append({"function": port["function"], "type": C_TYPES[t.dtype], "elements": t.elements, "value": value})
    results = ops.run(graph, *(values[name] for name in graph.inputs))
    whole = all(t.dtype.startswith(("int", "uint")) for t in graph.tensors.values() if t.data is None)
    outputs = [_output(p, results[tensor], whole) for tensor, p in zip(graph.ports_out, report["outputs"], strict=True)]
    return {"inputs": inputs, "outputs": outputs}


def _filled(t: Tensor, size: int) -> tuple[str, Array]:
    """(C for element i from `h`, a hash of i; the array of all elements). `size`: limit of wide integers."""
    h: Array = np.arange(1, t.elements + 1, dtype=np.uint32) * np.uint32(FACTORS[0])
    h = (h ^ (h >> SHIFT)) * np.uint32(FACTORS[1])
    byte = (h >> 24).astype(np.uint8)
    dtype = np.dtype(t.dtype)
    if dtype.kind == "f":
        return "(float)(int8_t)(h >> 24) / 64.0f", (byte.view(np.int8).astype(dtype) / dtype.type(64)).reshape(t.shape)
    if dtype.kind == "b":
        return "(h >> 24) & 1u", (byte & 1).astype(dtype).reshape(t.shape)
    if dtype.itemsize >= 4:
        return f"(h >> 24) % {size}u", (byte % size).astype(dtype).reshape(t.shape)
    unused = 32 - 8 * dtype.itemsize
    return f"({C_TYPES[t.dtype]})(h >> {unused})", (h >> unused).astype(dtype).reshape(t.shape)


def _output(port: dict[str, Any], result: Array, whole: bool) -> dict[str, Any]:
    """The expected values of an output in C. `whole`: the model is integer-only, so its results are exact."""
    flat = np.ravel(result)
    places = range(0, flat.size, -(-flat.size // MAX_COMPARED))
    real = flat.dtype.kind == "f"
    texts = {at: _literal(flat[at], real) for at in places if np.isfinite(flat[at])}
    rows = [f"{{{at}, {text}}}" for at, text in texts.items()]
    largest = float(np.max(np.abs(flat[np.isfinite(flat)]), initial=0.0)) if real else 0.0
    tolerance = _literal(max(SHARE * largest, 1e-6), real) if real else "0" if whole else "1"
    named = {"function": port["function"], "type": C_TYPES[port["dtype"]], "elements": flat.size}
    return {**named, "rows": rows, "tolerance": tolerance}


def _literal(number: Any, real: bool) -> str:
    if not real:
        least = f"(-{-int(number) - 1} - 1)"  # INT32_MIN has no literal
        return least if number < -0x7FFFFFFF else f"{int(number)}{'u' if number > 0x7FFFFFFF else ''}"
    text = f"{float(number):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"
