"""Models of scikit-learn as ONNX: `sklearn_models.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.tree import DecisionTreeClassifier

CLASSIFIERS = {
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
    "tree": DecisionTreeClassifier(max_depth=6, random_state=0),
    "forest": RandomForestClassifier(12, max_depth=6, random_state=0),
    "boosted": GradientBoostingClassifier(n_estimators=10, random_state=0),
    "adaboost": AdaBoostClassifier(n_estimators=8, random_state=0),
    "svc": SVC(probability=False, random_state=0),
    "bayes": GaussianNB(),
    "neighbours": KNeighborsClassifier(3),
    "mlp": make_pipeline(MinMaxScaler(), MLPClassifier(hidden_layer_sizes=(24, 12), max_iter=60, random_state=0)),
}
REGRESSORS = {
    "ridge": make_pipeline(PolynomialFeatures(2), Ridge()),
    "svr": SVR(),
    "gradient": GradientBoostingRegressor(n_estimators=12, random_state=0),
    "mlp_regressor": MLPRegressor(hidden_layer_sizes=(16,), max_iter=60, random_state=0),
    "gaussian_process": GaussianProcessRegressor(random_state=0),
    "isolation": IsolationForest(n_estimators=10, random_state=0),
}


def main(folder: Path) -> None:
    x, y = make_classification(160, 10, n_informative=6, n_classes=3, random_state=0)
    rx, ry = make_regression(80, 6, random_state=0)
    for models, inputs, labels in ((CLASSIFIERS, x, y), (REGRESSORS, rx, ry / np.abs(ry).max())):
        for name, model in models.items():
            model.fit(inputs.astype(np.float32), labels)
            options = {"zipmap": False} if models is CLASSIFIERS else None
            file = to_onnx(
                model, inputs[:1].astype(np.float32), options=options, target_opset={"": 17, "ai.onnx.ml": 3}
            )
            (folder / f"{name}.onnx").write_bytes(file.SerializeToString())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
