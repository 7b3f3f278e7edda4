"""Groups of models from YAML.

    share: exclusive            # or pipeline, concurrent
    models:
      kws: {file: kws.tflite, ram: 16K}
      vww: {file: vww.onnx}
    buffers:
      audio: {bytes: 8K, alive: [kws.input]}
      log: {bytes: 512, memory: RAM, align: 32}

Besides `file`, a model has the options of `edgebuild model`, as request files write them. Paths are relative to the
file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from edgebuild.base.errors import Diagnostic, EdgebuildError
from edgebuild.base.facts import compose, entries, keys_of, wrong
from edgebuild.base.options import SharedBuffer, options_of, shared_buffer
from edgebuild.base.request import GroupRequest, ModelRequest, check_buffer, grouped, model_request

if TYPE_CHECKING:
    from yaml.nodes import Node

T = TypeVar("T")


def read_group(file: Path, name: str, target: str) -> GroupRequest:
    """The group that a file describes. Raises EdgebuildError with file, line and column."""
    node = compose(file)
    if node is None:
        raise EdgebuildError(Diagnostic("the file is empty", str(file), 1))
    keys = keys_of(node, ("share", "models", "buffers"))
    if missing := [key for key in ("share", "models") if key not in keys]:
        hints = {"share": "share: exclusive, pipeline or concurrent", "models": "models: {NAME: {file: MODEL}}"}
        raise wrong(node, f"missing key '{missing[0]}'", hints[missing[0]])
    share = _located(keys["share"], lambda: options_of(GroupRequest)["share"].kind.read("share", _word(keys["share"])))
    models = [_model(n, entry, file, target) for n, entry in entries(keys["models"]).items()]
    if not models:
        raise wrong(keys["models"], "no models")
    given = entries(keys["buffers"]) if "buffers" in keys else {}
    buffers = [_buffer(n, entry, name, [m.name for m in models]) for n, entry in given.items()]
    return _located(node, lambda: grouped(GroupRequest(tuple(models), name, target, share, tuple(buffers), file)))


def _model(name: str, node: Node, file: Path, target: str) -> ModelRequest:
    of_group = options_of(GroupRequest)
    options = keys_of(node, ("file", *(o for o in options_of(ModelRequest) if o in of_group)))
    if "file" not in options:
        raise wrong(node, f"model '{name}': missing key 'file'")
    source = _relative_path(file, _word(options.pop("file")))
    words = {
        o: of_group[o].moved(_word(value), lambda path: str(_relative_path(file, path))) for o, value in options.items()
    }
    return _located(node, lambda: model_request(source, name, target, words))


def _relative_path(file: Path, path: str) -> Path:
    return Path(os.path.normpath(file.parent / path))


def _buffer(name: str, node: Node, group: str, models: list[str]) -> SharedBuffer:
    words = {key: _word(value) for key, value in entries(node).items()}
    buffer = _located(node, lambda: shared_buffer(name, words))
    _located(node, lambda: check_buffer(buffer, group, models))
    return buffer


def _word(node: Node) -> str:
    """A word as it stands; the words of a list with + between them."""
    if isinstance(node.value, str):
        return node.value
    from yaml.nodes import SequenceNode  # late: most commands read no YAML

    if not isinstance(node, SequenceNode):
        raise wrong(node, "expected a word, or a list of words")
    return "+".join(map(_word, node.value))


def _located(node: Node, read: Callable[[], T]) -> T:
    """Call `read`; its errors are those of the node."""
    try:
        return read()
    except EdgebuildError as error:
        raise wrong(node, error.diagnostics[0].text, *error.diagnostics[0].hints) from None
