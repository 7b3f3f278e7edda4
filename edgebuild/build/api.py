"""Compilation of models from Python: `edgebuild.compile`, which the command uses, too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.artifacts import Artifact, publish
from ..base.errors import fail
from ..base.inputs import check_replaced
from ..base.options import Value, options_of
from ..base.request import ModelRequest, model_request
from ..base.text import identifier, xml
from .run import files_read, kept_or_compiled, summary, unused_weights

if TYPE_CHECKING:
    from ..model.ir import Array

Option = str | int | float | bool | PathLike[str] | None
Options = Option | Sequence[Option] | Mapping[str, Option | Sequence[int | float]]


@dataclass(frozen=True)
class Result:
    """A compiled model: its files, its report, and its memory in bytes. `str(result)` is the summary."""

    request: ModelRequest
    artifacts: tuple[Artifact, ...]

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The bytes of each file that `write` writes, by name."""
        return {a.name: a.data for a in self.artifacts}

    @cached_property
    def report(self) -> dict[str, Any]:
        """The report; docs/report.md describes its schema."""
        return json.loads(self.files[f"{self.request.name}_report.json"])

    @property
    def arena_bytes(self) -> int:
        return self.report["ram"]["arena_bytes"]

    @property
    def weights_bytes(self) -> int:
        return self.report["rom"]["weights_bytes"]

    @property
    def code_bytes(self) -> int:
        """Estimated bytes of code, since no C compiler has run."""
        return self.report["rom"]["estimated_code_bytes"]

    def write(self, folder: str | PathLike[str] = ".") -> list[Path]:
        """Write the files, all or none, and return their paths.

        Raises EdgebuildError if that would replace an input file, or a file that edgebuild did not write.
        """
        paths = [Path(folder) / a.name for a in self.artifacts]
        check_replaced(paths, files_read(self.request))
        publish(self.artifacts, Path(folder), owned=False, gone=[unused_weights(self.request)])
        return paths

    def run(self, inputs: Array | Mapping[str, Array]) -> list[Array]:
        """Run the generated C on the target: in its emulator, or on the build machine.

        `inputs`: an array [vectors, *shape], or a dict with one for each input by name, in the types of the C
        interface. Returns an array [vectors, *shape] for each output. Raises EdgebuildError for other inputs and for
        targets without a runner, MissingTool if their compiler or emulator is missing.
        """
        import numpy as np

        from ..base.target import load_target
        from ..model.verify import outputs_on_target
        from ..model.verify.harness import NAME
        from ..model.verify.vectors import split_vectors

        request = replace(self.request, name=NAME)
        rows = outputs_on_target(
            load_target(request.target), kept_or_compiled(request), split_vectors(inputs, self.report),
            request.called_library,
        )  # fmt: skip
        return [np.stack([row[i] for row in rows]) for i in range(len(rows[0]))]

    def __str__(self) -> str:
        return summary(self.artifacts)

    def _repr_svg_(self) -> str:
        """The picture of memory over time, for notebooks."""
        from ..model.views.drawing import memory_picture

        return memory_picture(self.report).svg()

    def _repr_html_(self) -> str:
        """The summary above the picture."""
        return f"<pre>{'<br>'.join(map(xml, str(self).splitlines()))}</pre>\n{self._repr_svg_()}"


def compiled_model(request: ModelRequest) -> Result:
    """Compile a request, or read the result from the cache. Raises EdgebuildError."""
    unused = unused_weights(request)
    return Result(request, tuple(a for a in kept_or_compiled(request) if a.name != unused))


def request_of(model: Path, name: str | None, target: str, options: Mapping[str, Any]) -> ModelRequest:
    """The request with these options and the kernel choices of `edgebuild tune`. `name`: default: the file's."""
    from ..model.choices import with_choices

    return with_choices(model_request(model, name or identifier(model.stem), target, options))


def compile(
    model: str | PathLike[str], target: str | PathLike[str], *, name: str | None = None, **options: Options
) -> Result:
    """Compile a model to C for a target, as `edgebuild model` does.

    `target`: a name that `edgebuild targets` lists, or a YAML file. `name`: the prefix of functions and files; default:
    the file's name. `options`: those of the command, with `_` for `-`. List options also accept Python lists, and
    `shape` and `bind` a dict. Raises EdgebuildError if the model, the target or an option is wrong.
    """
    values = {option: _written(option, value) for option, value in options.items()}
    return compiled_model(request_of(Path(model), name, str(target), values))


def _written(option: str, value: Options) -> Value:
    """The value as written on a command line."""
    if isinstance(value, Mapping):
        value = [f"{key}={_joined(each, ',')}" for key, each in value.items()]
    row = options_of(ModelRequest).get(option)
    if isinstance(value, list | tuple) and row is not None and not row.kind.separator:
        raise fail(f"option '{option}': takes one value, and no list")
    return _joined(value, row.kind.separator if row else ",")


def _joined(value: Any, separator: str) -> Value:
    if isinstance(value, list | tuple):
        return separator.join(map(str, value))
    return str(value) if isinstance(value, PathLike) else value
