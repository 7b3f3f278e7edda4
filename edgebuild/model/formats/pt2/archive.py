"""The archive of torch.export.save: a zip file with the program as JSON and each weight as the bytes of its storage.

Layout and numbers of types are those of torch/export/pt2_archive and torch/_export/serde/schema.py of PyTorch 2.13.
Nothing of an archive is run or unpickled, and sizes that it tells are checked before anything is as large.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ....base.errors import fail
from ....base.inputs import JSON, MODEL, read_bytes
from ...ir import Array
from ..builder import GraphBuilder
from ..named_arguments import Name, NamedArgumentsNode, tensors_of

NAMES = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]  # from 1 on
TYPES = dict(enumerate(NAMES, 1)) | {12: "bool", 13: "bfloat16"}
REALS = ("float16", "float32", "float64", "bfloat16")  # all are read as float32
IGNORED = ("momentum", "cudnn_enabled", "device", "pin_memory", "non_blocking", "implicit", "copy", "padding_idx")
AGAIN = "export it again with torch.export.export and torch.export.save of PyTorch 2.8 or later"


class Archive:
    """`program`: the exported program. Damaged archives raise EdgebuildError, or whatever Python does."""

    def __init__(self, path: Path, file: str) -> None:
        self.file, self._zip = file, zipfile.ZipFile(io.BytesIO(read_bytes(path, "cannot read the model", MODEL)))
        infos = self._zip.infolist()
        if any(i.compress_type != zipfile.ZIP_STORED for i in infos) or sum(i.file_size for i in infos) > MODEL:
            raise fail(
                "its parts are compressed or too large; PyTorch stores them as they are", file=file, hints=[AGAIN]
            )
        names = [info.filename for info in infos]
        models = [name for name in names if "/models/" in name and name.endswith(".json")]
        if len(models) != 1:
            raise fail(f"the archive has {len(models)} exported programs, not one", file=file, hints=[AGAIN])
        self._root, self._stored = models[0].partition("/models/")[0], dict[str, str]()
        self._meta: dict[str, Any] = {}
        for name in names:
            if name.startswith(f"{self._root}/data/") and name.endswith("_config.json"):
                self._meta |= (listed := self._json(name)["config"])
                self._stored |= dict.fromkeys(listed, name.rpartition("/")[0])
        if f"{self._root}/byteorder" in names and self._zip.read(f"{self._root}/byteorder") != b"little":
            raise fail("its numbers have the most significant byte first", file=file, hints=[AGAIN])
        self.program: Mapping[str, Any] = self._json(models[0])

    def _json(self, name: str) -> Any:
        if self._zip.getinfo(name).file_size > JSON:
            raise fail(f"{name} has more than {JSON >> 20} MiB", file=self.file)
        return json.loads(self._zip.read(name))

    def constant(self, name: str) -> Array:
        """A parameter, buffer or constant by its name in the module; real numbers in float32."""
        own = self._meta[name]
        if own["use_pickle"]:
            raise fail(f"constant '{name}' is pickled: a tensor of a class of its own", file=self.file, hints=[AGAIN])
        meta, (usual, shape) = own["tensor_meta"], self.type_of(own["tensor_meta"], name)
        dtype = TYPES[meta["dtype"]]
        stored = np.dtype("uint16" if dtype == "bfloat16" else dtype).newbyteorder("<")
        data = np.frombuffer(self._zip.read(f"{self._stored[name]}/{own['path_name']}"), stored)
        steps, first = [n["as_int"] for n in meta["strides"]], meta["storage_offset"]["as_int"]
        past = first + sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) + 1
        if min(first, *steps, 0) < 0 or past > len(data) or np.prod(shape, dtype=object) > MODEL:
            raise fail(f"constant '{name}' of shape {shape} is not in its {len(data)} elements", file=self.file)
        bytes_ = [step * stored.itemsize for step in steps]
        view = np.lib.stride_tricks.as_strided(data[first:], shape, bytes_, writeable=False)
        whole = (view.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else view  # its upper half
        whole = np.array(whole, usual)
        if whole.dtype.kind == "f" and np.isnan(whole).any():
            raise fail(f"constant '{name}' holds values that are not numbers", file=self.file)
        return whole

    def type_of(self, meta: Mapping[str, Any], name: str) -> tuple[str, tuple[int, ...]]:
        """Type of a tensor here, and its shape."""
        sizes = [n.get("as_int", "?") for n in meta["sizes"]]
        if meta["dtype"] not in TYPES or not all(isinstance(n, int) and n > 0 for n in sizes):
            text = f"tensor '{name}' of type {TYPES.get(meta['dtype'], meta['dtype'])} has the shape {sizes}"
            hint = f"supported: {', '.join(TYPES.values())}; shapes that are neither open (dynamic_shapes) nor empty"
            raise fail(text, file=self.file, hints=[hint])
        return "float32" if TYPES[meta["dtype"]] in REALS else TYPES[meta["dtype"]], tuple(sizes)


class AtenNode(NamedArgumentsNode):
    def __init__(self, builder: GraphBuilder, entry: Mapping[str, Any], archive: Archive) -> None:
        target = ".".join(entry["target"].removeprefix("torch.ops.").split(".")[:2])
        outputs = [name for out in entry["outputs"] for name in tensors_of(value_of(out)) or [""]]
        arguments = {one["name"]: value_of(one["arg"]) for one in entry["inputs"]}
        super().__init__(builder, entry.get("name") or (outputs or [target])[0], target, arguments, outputs)
        self._archive = archive

    def output_type(self, output: int = 0) -> tuple[str, tuple[int, ...]]:
        """Type and shape that the file tells of a result."""
        name, values = self.outputs[output], self._archive.program["graph_module"]["graph"]["tensor_values"]
        return self._archive.type_of(values[name], name)

    def result_type(self) -> str:
        return self.output_type()[0]

    def check(self) -> None:
        """Raise EdgebuildError for arguments that nobody looked at, and for results that are not those of the file."""
        for name in list(self.arguments)[1:]:
            if name not in {*self.read, *IGNORED} and self.arguments[name] not in (None, False, []):
                raise self.error(f"argument {name} {self.arguments[name]} is not supported")
        for output, name in enumerate(self.outputs):
            y = self.builder.tensors.get(name)
            if y is not None and y.quant is None and (y.dtype, y.shape) != (own := self.output_type(output)):
                raise self.error(f"result '{name}' is {y.dtype} of shape {y.shape}, in the file {own[0]} of {own[1]}")


def value_of(arg: Mapping[str, Any]) -> Any:
    """An argument in Python's types, a tensor as a Name, one that is left out as None."""
    ((kind, value),) = arg.items()
    match kind.removeprefix("as_").replace("optional_", ""):
        case "tensor":
            return Name(value["name"]) if "name" in value else value_of(value)
        case "tensors":
            return [value_of({"as_tensor": one}) for one in value]
        case "scalar_type":
            return TYPES.get(value, f"type {value}")
        case "none" | "memory_format" | "layout" | "device":
            return None
        case "sym_int" | "sym_float" | "sym_bool":
            return value_of(value)
    return [value_of(one) for one in value] if kind == "as_sym_ints" else value
