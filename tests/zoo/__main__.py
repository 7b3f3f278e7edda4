"""`python -m tests.zoo -o DIR`: write every network as NAME.onnx (float) and NAME_int8.onnx, one as .tflite."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from tests.exporters.writer import quantised

from .builders import ZOO, quantized
from .mobilenet_v2 import LARGE
from .others import OTHERS, svdf_spotter
from .pictures import PICTURES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seed", type=int, default=0, help="of weights and calibration inputs (0)")
    parser.add_argument("--large", action="store_true", help="the large ones too, which the tests leave out")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # onnxruntime's advice on preparing models that are prepared

    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, build in {**ZOO, **PICTURES, **OTHERS, **(LARGE if arguments.large else {})}.items():
        model = build(arguments.seed)
        small = quantised(model) if name in OTHERS else quantized(model, arguments.seed)
        for file, network in [(f"{name}.onnx", model), (f"{name}_int8.onnx", small)]:
            data = network.SerializeToString(deterministic=True)
            (arguments.output / file).write_bytes(data)
            print(f"{file}: {len(data)} bytes")
    spotter = svdf_spotter(arguments.seed)
    (arguments.output / "svdf_spotter.tflite").write_bytes(spotter)
    print(f"svdf_spotter.tflite: {len(spotter)} bytes")


if __name__ == "__main__":
    main()
