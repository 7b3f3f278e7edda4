"""`edgebuild run --header NAME.req.json`: write only the header of a model, so that applications can compile early.

The header needs the model's inputs and outputs, but no plan. For plain files they are read directly from the bytes, in
a few hundredths of a second; other files are read as graphs. `edgebuild run` later checks the header. Beside it are
`NAME.header.d`, the files that were read, and `NAME.header.stamp`, which is written last.
"""

from __future__ import annotations

import json
import os
import time

from ..base.atomic import in_cmake, replace_file, rule
from ..base.own_code import PACKAGE, code_inputs
from ..base.text import visible
from ..model.surface import TFLITE_MARK, Interface, Ports, header, surface
from . import stamp as stamps

SUFFIX = ".header"
MAX_BYTES = 512 << 20  # most bytes of a model
# Options on which the interface does not depend.
IDLE = frozenset((
    "objective", "tile", "ram", "flash", "max_mac_overhead", "time_limit", "weights", "optimize", "portable",
    "calibration", "backend", "cmsis_nn", "hse", "map", "limit",
))  # fmt: skip


def write_plain(path: str, makefiles: bool) -> bool:
    """Write the header if model and request are plain. If False, `run_header` writes it, or reports errors."""
    code = code_inputs()
    began = time.time_ns()
    try:
        plain = _quick(path)
        if plain is not None:
            finish(path, began, *plain, code, makefiles)
        return plain is not None
    except Exception:
        return False


def is_header(path: str, product: str, data: bytes) -> bool:
    """Whether the header that was written ahead has these bytes; True if none was written."""
    return not os.path.exists(stamps.stamp_of(os.path.abspath(path), SUFFIX)) or _holds(product, data)


def _quick(path: str) -> tuple[Interface, str, list[str]] | None:
    """(interface, output folder, files read) of a plain model and request; None if `run_header` must do it.

    Values of options are not checked here: `run` does that.
    """
    try:
        data = json.loads(_bytes(path))
        name, source, options, target = data["name"], data["source"], data["options"], data["target"]
        is_plain = data["kind"] == "model" and data["schema"] == 1 and name.isidentifier() and name.isascii()
        arena = options.get("arena", "static")
        plain_options = {*options} - IDLE <= {"arena"} and arena in ("static", "caller")
        place = os.path.dirname(os.path.abspath(path))
        if (
            not (is_plain and plain_options and os.path.isfile(_target_file(target)))
            or options.get("objective") == "energy"
        ):
            return None
        model = os.path.normpath(os.path.join(place, source))
        ports = _ports(model)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if ports is None:
        return None
    file = visible(os.path.basename(model))
    interface = Interface(name, file, target, ports, arena == "caller")
    return interface, os.path.normpath(os.path.join(place, data["output"])), [model]


def _bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _target_file(name: str) -> str:
    """The file of a target by name. It is not read, since the interface does not depend on it."""
    beside = os.path.join(os.path.dirname(PACKAGE), "hal", "targets")
    folder = beside if os.path.isdir(beside) else os.path.join(PACKAGE, "hal", "targets")
    return os.path.join(folder, f"{name}.yaml") if name.replace("-", "").replace("_", "").isalnum() else ""


def _ports(model: str) -> Ports | None:
    if not os.path.isfile(model) or os.path.getsize(model) > MAX_BYTES:
        return None
    data = _bytes(model)
    return surface(data) if data[4:8] == TFLITE_MARK or model.endswith(".onnx") else None


def finish(
    path: str, began: int, i: Interface, output: str, inputs: list[str], code: tuple[str, ...], makefiles: bool
) -> None:
    """Write the header if its bytes change, the depfile, and last the stamp, as `run` does."""
    stamp = stamps.stamp_of(os.path.abspath(path), SUFFIX)
    product, data = os.path.join(output, f"{i.name}.h"), header(i).encode()
    read = [os.path.abspath(path), *inputs, *code]
    lines = [stamps.fingerprint(p, began - stamps.SETTLED_NS) for p in read]
    is_new = not _holds(product, data)
    if is_new:
        if os.path.lexists(stamp):
            os.unlink(stamp)
        os.makedirs(output, exist_ok=True)
        replace_file(product, data)
    if is_new or stamps.is_ahead(read):
        os.utime(product, ns=(began, began))
    lines.append(stamps.fingerprint(product, time.time_ns()))
    words = [*map(in_cmake, read[1:]), *([in_cmake(product)] if makefiles else [])]
    replace_file(stamp.removesuffix(".stamp") + ".d", os.fsencode(rule(in_cmake(stamp), words)))
    replace_file(stamp, os.fsencode("\n".join([stamps.HEADER, *lines, stamps.END, ""])))
    os.utime(stamp, ns=(began, began))


def _holds(path: str, data: bytes) -> bool:
    """Whether the file has these bytes."""
    try:
        with open(path, "rb") as file:
            return os.path.isfile(path) and file.read() == data
    except OSError:
        return False
