"""A bill of materials in SPDX 2.3 (JSON): the models and drivers of a program, their generated files, and the tool.

Equal inputs give equal bytes: the date is SOURCE_DATE_EPOCH, or the first second of 1970, and the document's namespace
ends with a digest of its content. Licences are those that files state; for models there is no assertion.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..base.errors import fail, from_os
from ..base.request import (
    CLOCK_OUTPUTS,
    CPP_SUFFIXES,
    KINDS,
    ClockRequest,
    DriverRequest,
    GroupRequest,
    ModelRequest,
    RequestFile,
    driver_outputs,
    model_outputs,
)
from ..base.target import load_target
from ..model.formats import files_beside

UNKNOWN = "NOASSERTION"
TOOL = "SPDXRef-edgebuild"
LICENCE = re.compile(rb"SPDX-License-Identifier: ([\w.+-]+)")
Json = dict[str, Any]


def bill_of_materials(name: str, requests: Sequence[RequestFile], program: Path | None = None) -> bytes:
    """The document for the products of requests, which must be built already. `program`: the program that links them.

    Raises EdgebuildError with the name of a missing file.
    """
    document = _Document(name)
    document.package(TOOL, "edgebuild", versionInfo=__version__, licenseDeclared="Apache-2.0",
                     licenseConcluded="Apache-2.0", primaryPackagePurpose="APPLICATION")  # fmt: skip
    whole = ""
    if program is not None:
        whole = document.package("SPDXRef-program", program.name, checksums=_checksums(_read(program))[1:],
                                 primaryPackagePurpose="FIRMWARE")  # fmt: skip
        document.relate("SPDXRef-DOCUMENT", "DESCRIBES", whole)
    for number, request in enumerate(requests, 1):
        component = document.component(number, request)
        document.relate(TOOL, "BUILD_TOOL_OF", component)
        document.relate(whole or "SPDXRef-DOCUMENT", "CONTAINS" if whole else "DESCRIBES", component)
    return document.text()


class _Document:
    def __init__(self, name: str) -> None:
        self._name = name
        self._packages: list[Json] = []
        self._files: list[Json] = []
        self._relations: list[Json] = []
        self._library = ""

    def package(self, reference: str, name: str, **more: Any) -> str:
        plain = {
            "copyrightText": UNKNOWN,
            "downloadLocation": UNKNOWN,
            "filesAnalyzed": False,
            "licenseConcluded": UNKNOWN,
            "licenseDeclared": UNKNOWN,
        }
        self._packages.append({"SPDXID": reference, "name": name, **plain, **more})
        return reference

    def relate(self, one: str, how: str, other: str) -> None:
        relation = {"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other}
        self._relations.append(relation)

    def component(self, number: int, file: RequestFile) -> str:
        """Add a package with the products of a request, and packages of its sources; returns its reference."""
        request, folder = file.request, file.output
        reference = f"SPDXRef-{number}-{_id(request.name)}"
        products = [folder / product for product in _products(file)]
        rows = [self._file(f"{reference}-{i}", p, f"./{request.name}/{p.name}") for i, p in enumerate(products, 1)]
        digests = sorted(row["checksums"][0]["checksumValue"] for row in rows)
        licences = sorted({licence for row in rows for licence in row["licenseInfoInFiles"]})
        kind = next(kind for kind, request_type in KINDS.items() if isinstance(request, request_type)).replace(
            "clock", "clocks"
        )
        self.package(
            reference,
            request.name,
            filesAnalyzed=True,
            hasFiles=[row["SPDXID"] for row in rows],
            licenseInfoFromFiles=licences,
            packageVerificationCode={"packageVerificationCodeValue": _sha1("".join(digests).encode())},
            primaryPackagePurpose="SOURCE",
            summary=f"C of a {kind}, for the target {load_target(request.target).name}",
            versionInfo=_sha256("".join(row["checksums"][1]["checksumValue"] for row in rows).encode())[:16],
        )
        for i, source in enumerate(_sources(file), 1):
            origin = self.package(f"{reference}-source-{i}", source.name, checksums=_checksums(_read(source))[1:],
                                  primaryPackagePurpose="FILE")  # fmt: skip
            self.relate(reference, "GENERATED_FROM", origin)
        models = request.models if isinstance(request, GroupRequest) else (request,)
        if any(isinstance(m, ModelRequest) and m.called_library is not None for m in models):
            self._library = self._library or self.package("SPDXRef-CMSIS-NN", "CMSIS-NN", licenseDeclared="Apache-2.0")
            self.relate(reference, "DEPENDS_ON", self._library)
        return reference

    def _file(self, reference: str, path: Path, name: str) -> Json:
        data = _read(path)
        stated = sorted({match.decode() for match in LICENCE.findall(data[:4096])})
        row = {
            "SPDXID": reference,
            "checksums": _checksums(data),
            "copyrightText": UNKNOWN,
            "fileName": name,
            "fileTypes": ["BINARY" if path.suffix == ".bin" else "SOURCE" if path.suffix in (".c", ".h") else "OTHER"],
            "licenseConcluded": stated[0] if len(stated) == 1 else UNKNOWN,
            "licenseInfoInFiles": stated or ["NONE"],
        }
        self._files.append(row)
        return row

    def text(self) -> bytes:
        epoch = os.environ.get("SOURCE_DATE_EPOCH", "0")
        if not epoch.isdigit():
            raise fail(f"SOURCE_DATE_EPOCH: '{epoch}' is no number of seconds")
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(epoch)))
        parts = {"packages": self._packages, "files": self._files, "relationships": self._relations}
        digest = _sha256(json.dumps([self._name, created, parts], sort_keys=True).encode())
        head = {
            "SPDXID": "SPDXRef-DOCUMENT",
            "creationInfo": {"created": created, "creators": [f"Tool: edgebuild-{__version__}"]},
            "dataLicense": "CC0-1.0",
            "documentNamespace": f"https://spdx.org/spdxdocs/{_id(self._name)}-{digest[:32]}",
            "name": self._name,
            "spdxVersion": "SPDX-2.3",
        }
        return (json.dumps({**head, **parts}, indent=1, sort_keys=True) + "\n").encode()


def _products(file: RequestFile) -> tuple[str, ...]:
    request = file.request
    if isinstance(request, ClockRequest):
        return CLOCK_OUTPUTS
    if isinstance(request, DriverRequest):
        return driver_outputs(request.name, any(str(s).endswith(CPP_SUFFIXES) for s in request.sources))
    if isinstance(request, GroupRequest):
        return request.outputs
    return model_outputs(request.name)


def _sources(file: RequestFile) -> list[Path]:
    """The sources of a request: models with the files of their weights, or the sources of a driver."""
    request = file.request
    if isinstance(request, ClockRequest):
        return []
    if isinstance(request, DriverRequest):
        return list(request.sources)
    models = request.models if isinstance(request, GroupRequest) else [request]
    return [file for m in models for file in (m.source, *map(Path, files_beside(m.source)))]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise from_os(error, "cannot read it; build it first", str(path)) from error


def _id(text: str) -> str:
    """The text with characters that SPDX does not admit replaced by dashes."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", text)


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()  # SPDX requires SHA-1


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _checksums(data: bytes) -> list[Json]:
    return [
        {"algorithm": "SHA1", "checksumValue": _sha1(data)},
        {"algorithm": "SHA256", "checksumValue": _sha256(data)},
    ]
