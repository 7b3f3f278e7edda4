"""`edgebuild run NAME.req.json`: do what a request asks, and leave what build systems need to know.

Beside the products these are `NAME.d`, the files that were read, in make's language, and `NAME.stamp`, which is written
last: whoever finds it finds complete products of what it names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from edgebuild import choices, entry
from edgebuild.artifacts import Artifact, publish, write_atomic
from edgebuild.cache import compiled
from edgebuild.doors import code_files
from edgebuild.errors import fail
from edgebuild.request import ClockFile, ClockRequest, DriverFile, ModelRequest, RequestFile, read_request
from edgebuild.summary import summary
from edgebuild.target import load_target

SETTLED_NS = 2_000_000_000  # no file system has a coarser clock


def run(path: Path) -> int:
    """Compile what the request file asks for; 0 when done.

    Raises EdgebuildError for wrong input; then the products of an earlier run stay as they are.
    """
    began = time.time_ns()
    request = read_request(path)
    if isinstance(request, DriverFile):
        return _run_driver(path, request, began)
    inputs = [os.path.abspath(p) for p in (*_read_by(request), *code_files())]
    # Fingerprints come before the work: a file that changes meanwhile then differs from what is recorded of it.
    try:
        lines = [entry.fingerprint(p, began - SETTLED_NS) for p in [os.path.abspath(path), *inputs]]
    except OSError as error:
        raise fail(f"cannot read it: {error.strerror}", file=str(error.filename)) from error
    artifacts, text = _clocks(request.clock) if isinstance(request, ClockFile) else _model(request.model)
    _finish(path, began, request.output, artifacts, inputs, lines)
    print(text)
    return 0


def _read_by(request: RequestFile | ClockFile) -> Iterable[str]:
    """The files that the work will read, besides those of this package."""
    if isinstance(request, ClockFile):
        return load_target(request.clock.target).files
    return [*map(str, request.model.files), *load_target(request.model.target).files, *choices.files(request.model)]


def _run_driver(path: Path, request: DriverFile, began: int) -> int:
    """Which headers a driver reads is known only when it was read, so they are looked at afterwards."""
    from edgebuild.drivers.command import generate

    sources = [os.path.abspath(p) for p in (path, *request.driver.sources)]
    try:
        lines = [entry.fingerprint(p, began - SETTLED_NS) for p in sources]
    except OSError as error:
        raise fail(f"cannot read it: {error.strerror}", file=str(error.filename)) from error
    artifacts, files, text = generate(request.driver)
    inputs = list(dict.fromkeys([*sources[1:], *(os.path.abspath(f) for f in (*files, *code_files()))]))
    lines += [entry.fingerprint(p, began - SETTLED_NS) for p in inputs if p not in sources]
    _finish(path, began, request.output, artifacts, inputs, lines)
    print(text)
    return 0


def _finish(
    path: Path, began: int, output: Path, artifacts: tuple[Artifact, ...], inputs: list[str], lines: list[str]
) -> None:
    """Write the products, the depfile, and last the stamp."""
    publish(artifacts, output)
    lines += [entry.fingerprint(str(output / a.name), time.time_ns()) for a in artifacts]

    stamp = Path(entry.stamp_of(os.path.abspath(path)))
    write_atomic(stamp.with_suffix(".d"), os.fsencode(depfile(str(stamp), inputs)))
    write_atomic(stamp, os.fsencode("\n".join([entry.HEADER, *lines, ""])))
    os.utime(stamp, ns=(began, began))  # so that an input which changed during the work is newer


def _model(request: ModelRequest) -> tuple[tuple[Artifact, ...], str]:
    def compile_late(request: ModelRequest) -> tuple[Artifact, ...]:
        from edgebuild.compile import compile_model  # it imports what a cached result does without

        return compile_model(request)

    artifacts = compiled(choices.with_choices(request), compile_late)
    return artifacts, summary(artifacts)


def _clocks(request: ClockRequest) -> tuple[tuple[Artifact, ...], str]:
    from edgebuild.emit import clock

    plan = clock.requested_plan(request)
    return clock.clock_files(plan), clock.summary(request, plan)


def depfile(target: str, prerequisites: Iterable[str]) -> str:
    """One rule in make's language, as gcc writes it."""
    return " \\\n  ".join([_escape(target) + ":", *map(_escape, prerequisites)]) + "\n"


def _escape(path: str) -> str:
    return path.replace("$", "$$").replace("#", "\\#").replace(" ", "\\ ")
