"""Labels of the vectors: of how many is the largest output that of the right class?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...base.errors import fail
from .oracles import Array
from .vectors import read_inputs


def read_labels(file: Path) -> Array:
    """The classes in a .npy file, [vectors], as integers from 0. Raises EdgebuildError for anything else."""
    labels = read_inputs(file)
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu" or labels.size == 0:
        raise fail("labels are integers, one for each vector", file=str(file), hints=["write them with numpy.save"])
    return labels.reshape(-1)


def right(outputs: Sequence[Sequence[Array]], labels: Array, file: Path) -> int:
    """The number of vectors of which the first output is largest at the label; of equal values the first counts.

    Raises EdgebuildError where labels and outputs do not fit.
    """
    if len(labels) != len(outputs):
        raise fail(f"{len(labels)} labels for {len(outputs)} vectors", file=str(file))
    classes = int(outputs[0][0].size)
    if classes < 2:
        raise fail("the first output has one element, and labels need one for each class", file=str(file))
    if not set(np.unique(labels).tolist()) <= set(range(classes)):
        raise fail(f"a label is none of the {classes} classes, 0 to {classes - 1}", file=str(file))
    return sum(int(np.argmax(row[0])) == int(label) for row, label in zip(outputs, labels, strict=True))
