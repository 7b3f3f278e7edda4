"""`./sconsw bench`: every model that is there, compiled, run in QEMU and compared with its oracle.

The zoo (MLPerf Tiny architectures with seeded weights) is always there; `../shared/models` is used
where it exists. Writes the tables of `edgebuild bench` with layers whole and rolled to build/bench/off and rolling.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from edgebuild.cli import main as command
from tests.zoo.builders import ZOO, quantized

ROOT = Path(__file__).parents[1]


def models(folder: Path) -> list[Path]:
    """All model files: given ones, and the zoo written to `folder`, quantised."""
    files = sorted((ROOT.parent / "shared" / "models").glob("*.tflite"))
    for name in ("ds_cnn", "mobilenet_v1", "resnet8", "autoencoder"):
        file = folder / f"zoo_{name}.onnx"
        file.write_bytes(quantized(ZOO[name]()).SerializeToString())
        files.append(file)
    return [*files, ROOT / "sample_projects" / "digits" / "digits.onnx"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", default="mps2-an386,riscv-virt")
    parser.add_argument("--only", default="", help="a part of the models' names")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = [str(model) for model in models(Path(folder)) if args.only in model.stem]
        words = ["bench", *files, "--targets", args.targets]
        tables = [(tile, str(ROOT / "build" / "bench" / tile)) for tile in ("off", "rolling")]
        return max(command([*words, "--tile", tile, "-o", out]) for tile, out in tables)


if __name__ == "__main__":
    raise SystemExit(main())
