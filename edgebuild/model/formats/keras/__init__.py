"""Networks that Keras 3 saved (.keras), read by way of Keras's own ONNX exporter."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....base.errors import EdgebuildError, did_you_mean, fail, visible
from ....base.inputs import JSON, MODEL, read_bytes, sections
from ..exporting import exported, read_exported
from ..format import Format, Wanted

if TYPE_CHECKING:
    from ...ir import Graph


def _holds(data: bytes) -> bool:
    """Whether this is a zip archive whose directory, at the end, has the files of Keras."""
    end = data[-(1 << 22) :] if data.startswith(b"PK") else b""
    return b"config.json" in end and b"model.weights.h5" in end


def _onnx(path: Path) -> bytes:
    file = visible(path.name)
    return exported("keras", file, {"net.keras": admitted(path, file)})


def _read(path: Path, wanted: Wanted) -> Graph:
    return read_exported(FORMAT, path, wanted)


# Keras calls any class that the file names by module and name, so only those of admitted.txt may be in it.

CONFIG, WEIGHTS, META = "config.json", "model.weights.h5", "metadata.json"
MODELS = ("Sequential", "Functional", "Model")
CLASSES = {module: names.split() for module, names in sections(Path(__file__).parent / "admitted.txt").items()}
OPERATIONS = CLASSES.pop("operations")  # of any module of operations
ADMITTED = {(module, name) for module, names in CLASSES.items() for name in names}
VALUES = ("__keras_tensor__", "__tuple__", "__ellipsis__", "__slice__", "__tensor__", "__numpy__")
OPERATION = re.compile(r"keras\.(src\.)?ops(\.[a-z_]+)*")
FUNCTION = re.compile(r"[a-z][a-z0-9_]{0,40}")  # of keras.activations
MAX_CONFIGURATION = 100_000  # most values in a configuration
HINT = "supported: layers of Keras that only compute; export the network to ONNX where it was trained"


def admitted(path: Path, file: str) -> bytes:
    """A new archive with the layers and weights of the file at `path`, without training settings and other members.

    Raises EdgebuildError for archives that are damaged or too large, and for classes that are not ADMITTED.
    """
    parts = _parts(read_bytes(path, "cannot read the model", MODEL), file)
    try:
        config = json.loads(parts[CONFIG])
        meta = json.loads(parts.get(META, b"{}"))
        version = str(meta.get("keras_version", "3.0.0"))
        if not re.fullmatch(r"3(\.\d+){1,3}\S{0,8}", version):
            raise fail(f"was saved by Keras {visible(version)[:20]}", file=file, hints=["supported: Keras 3", HINT])
        config.pop("compile_config", None)
        if config["class_name"] not in MODELS:
            raise ValueError(f"its class is {config['class_name']}")
        _check(config, file)
    except EdgebuildError:
        raise
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as problem:
        raise fail(
            visible(f"not a valid .keras file: {problem}"[:200]), file=file, hints=["fetch or save it again"]
        ) from None
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as copy:
        for name, data in ((META, json.dumps({"keras_version": version, "date_saved": ""}).encode()),
                           (CONFIG, json.dumps(config).encode()), (WEIGHTS, parts[WEIGHTS])):  # fmt: skip
            copy.writestr(zipfile.ZipInfo(name), data)  # with a fixed date, so the cache key is stable
    return whole.getvalue()


def _parts(data: bytes, file: str) -> dict[str, bytes]:
    most = {CONFIG: JSON, META: JSON, WEIGHTS: MODEL}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = [info for info in archive.infolist() if info.filename in most]
            names = sorted(info.filename for info in infos)
            if len(set(names)) < len(names) or not {CONFIG, WEIGHTS} <= {*names}:
                raise fail(f"its parts are {', '.join(names) or 'others'}", file=file,
                           hints=[f"a .keras file has one {CONFIG} and one {WEIGHTS}"])  # fmt: skip
            for info in infos:
                if info.file_size > most[info.filename]:
                    text = f"{info.filename} has more than {most[info.filename] >> 20} MiB"
                    raise fail(text, file=file, hints=["fetch or save it again"])
            return {info.filename: archive.read(info) for info in infos}
    except (EOFError, RuntimeError, zipfile.BadZipFile, zipfile.zlib.error) as problem:  # type: ignore[attr-defined]
        text = f"not a valid .keras file: {type(problem).__name__}: {str(problem)[:200]}"
        raise fail(text, file=file, hints=["fetch or save it again"]) from None


def _check(config: Any, file: str) -> None:
    """Raise EdgebuildError for a class, anywhere in the configuration, that is not admitted."""
    todo, seen = [("", config)], 0
    while todo:
        (where, value), seen = todo.pop(), seen + 1
        if seen > MAX_CONFIGURATION:
            raise fail(f"its configuration has more than {MAX_CONFIGURATION:,} values", file=file, hints=[HINT])
        if isinstance(value, list):
            todo += [(where, one) for one in value]
        elif isinstance(value, dict):
            inner = value["config"] if isinstance(value.get("config"), dict) else {}
            where = str(inner.get("name", where)) if "class_name" in value else where
            if "class_name" in value:
                _check_class(value, where, file)
            todo += [(where, one) for one in value.values()]


def _check_class(value: Mapping[str, Any], where: str, file: str) -> None:
    module, name, registered = (value.get(key) for key in ("module", "class_name", "registered_name"))
    if not isinstance(name, str) or not isinstance(module, (str, type(None))):
        raise _refused(str(name), str(module), where, file)
    if registered not in (None, name):
        raise _refused(str(registered), "a registry of its own", where, file)
    operation = module and OPERATION.fullmatch(module) and name in OPERATIONS
    if not ((module, name) in ADMITTED or operation or (name in VALUES and module is None)):
        raise _refused(name, module or "no module", where, file)
    if name == "function" and not FUNCTION.fullmatch(str(value.get("config"))):
        raise _refused(str(value.get("config")), "builtins", where, file)


def _refused(name: str, module: str, where: str, file: str) -> EdgebuildError:
    more = did_you_mean(name, CLASSES["keras.layers"])
    text = f"its class {visible(name)[:60]} of {visible(module)[:60]} is not admitted{more}"
    return fail(text, file=file, node=visible(where)[:60], hints=[HINT])


FORMAT = Format("keras", "Keras", ".keras", _holds, _read, None, to_onnx=_onnx)
