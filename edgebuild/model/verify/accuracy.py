"""Classes: what an output says, and the labels that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import fail
from .oracles import Array
from .vectors import read_inputs

HALF = 0.5


def classes(output: Array) -> Array:
    """The class of each vector, of [vectors, ...] real numbers: the largest; of equal ones the first counts.

    One number is of two classes: above 0, or above 1/2 if all are in 0..1.
    """
    scores = output.reshape(len(output), -1)
    if scores.shape[1] > 1:
        return scores.argmax(1)
    middle = HALF if scores.min() >= 0 and scores.max() <= 1 else 0.0
    return (scores[:, 0] > middle).astype(np.int64)


def read_labels(file: Path) -> Array:
    """The classes in a .npy file, or in a .npz file of one array, as integers from 0. Raises EdgebuildError."""
    given: Any = read_inputs(file)
    if isinstance(given, Mapping):
        if len(given) != 1:
            raise fail(f"{len(given)} arrays; labels are one", file=str(file))
        given = next(iter(given.values()))
    labels = np.asarray(given.unpacked() if hasattr(given, "unpacked") else given)
    if labels.dtype.kind not in "iu" or labels.size == 0 or labels.min() < 0:
        least = f" with {labels.min()} among them" if labels.dtype.kind == "i" and labels.size else ""
        raise fail(f"labels are {labels.dtype}{least}, not whole numbers from 0", file=str(file),
                   hints=["give the number of each vector's class, written with numpy.save"])  # fmt: skip
    return labels.reshape(-1).astype(np.int64)


def check_classes(labels: Array, outputs: Array, file: Path) -> None:
    """Refuse labels of classes that an output, [samples, ...], lacks. Raises EdgebuildError that names their file."""
    if labels.max() >= (count := max(outputs[0].size, 2)):
        hints = [f"the network's first output has {outputs[0].size} values for a sample"]
        text = f"label {labels.max()} is none of the {count} classes, 0 to {count - 1}"
        raise fail(text, file=str(file), hints=hints)


def accuracy(outputs: Array, labels: Array, file: Path) -> dict[str, Any]:
    """How often an output, [samples, ...] real numbers, is of its label's class. `file`: of the labels, for messages.

    Returns `samples`, `accuracy` (a share) and `confusion` (rows: the labels' classes, columns: the outputs').
    Raises EdgebuildError for labels of another number of samples, or of classes that the output lacks.
    """
    if len(labels) != len(outputs):
        raise fail(f"{len(labels)} labels for {len(outputs)} vectors", file=str(file),
                   hints=["one whole number for each"])  # fmt: skip
    check_classes(labels, outputs, file)
    mine = classes(outputs)
    confusion = np.zeros((int(max(labels.max(), mine.max())) + 1,) * 2, int)
    np.add.at(confusion, (labels, mine), 1)
    return {"samples": len(outputs), "accuracy": float(np.mean(mine == labels)), "confusion": confusion.tolist()}
