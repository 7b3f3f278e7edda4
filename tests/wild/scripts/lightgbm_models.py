"""Models of LightGBM as ONNX: `lightgbm_models.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import lightgbm
import numpy as np
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType
from sklearn.datasets import make_classification

MODELS = {
    "binary": lightgbm.LGBMClassifier(n_estimators=20, num_leaves=15, verbose=-1),
    "multiclass": lightgbm.LGBMClassifier(n_estimators=10, num_leaves=15, verbose=-1),
    "regression": lightgbm.LGBMRegressor(n_estimators=20, num_leaves=31, verbose=-1),
}


def main(folder: Path) -> None:
    for name, model in MODELS.items():
        classes = 3 if name == "multiclass" else 2
        x, y = make_classification(300, 8, n_informative=6, n_classes=classes, random_state=0)
        model.fit(x.astype(np.float32), y)
        options = {"zipmap": False} if name != "regression" else {}
        file = convert_lightgbm(model, initial_types=[("x", FloatTensorType([1, 8]))], target_opset=15, **options)
        (folder / f"{name}.onnx").write_bytes(file.SerializeToString())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
