"""Which files this installation consists of."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
_NO_CODE = (".pyc", ".md", "py.typed")


def cmsis_nn_sources(library: Path) -> list[Path]:
    """The sources of CMSIS-NN that its int8 convolutions need, in the library's folder; sorted."""
    groups = ("ConvolutionFunctions", "NNSupportFunctions", "TransposeFunctions")
    found = [file for group in groups for file in (library / "Source" / group).glob("*.c")]
    return sorted(file for file in found if not file.stem.endswith(("_f16", "_f32")))


def hal_dir() -> Path:
    """The folder with the C files, linker scripts and targets that ship."""
    checkout = PACKAGE.parent / "hal"
    return checkout if (checkout / "targets").is_dir() else PACKAGE / "hal"


@cache
def code_files() -> tuple[str, ...]:
    """All files of this installation that products depend on, sorted: modules, templates, and what ships in C.

    An installed package is no exception: its files may be edited, or replaced by others of the same version.
    """
    found: list[str] = []
    for top in dict.fromkeys((str(PACKAGE), str(hal_dir()))):
        for folder, folders, files in os.walk(top):
            folders[:] = [f for f in folders if f not in ("__pycache__", "cmake", "scons")]
            found += [os.path.join(folder, f) for f in files if not f.endswith(_NO_CODE)]
    return tuple(sorted(set(found)))
