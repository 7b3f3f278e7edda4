"""Which files this installation consists of."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def cmsis_nn_sources(library: Path) -> list[Path]:
    """The sources of CMSIS-NN that its int8 convolutions need, in the library's folder; sorted."""
    groups = ("ConvolutionFunctions", "NNSupportFunctions", "TransposeFunctions")
    sources = [file for group in groups for file in (library / "Source" / group).glob("*.c")]
    return sorted(file for file in sources if not file.stem.endswith(("_f16", "_f32")))


def hal_dir() -> Path:
    """The folder with the C files, linker scripts and targets that ship."""
    checkout = PACKAGE.parent / "hal"
    return checkout if (checkout / "targets").is_dir() else PACKAGE / "hal"
