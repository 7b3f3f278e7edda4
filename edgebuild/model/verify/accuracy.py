"""Classes: what an output says, and the labels that it is compared with.

Loss by other scales than those of the file: see passes/powers.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log10
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import fail
from .. import ops
from ..compile import prepare
from ..ir import Array, Graph, Tensor, reals_of
from ..passes.powers import FORMAT
from .oracles import Reading
from .vectors import read_inputs

MOST = 200.0  # dB


def scale_loss(model: Path, graph: Graph, vectors: list[list[Array]], reading: Reading) -> dict[str, Any]:
    """Compare the real outputs of a graph of other scales with those of its file, both by the ops' meanings.

    Returns `loss`: the signal-to-noise ratio in dB, and how often the largest is the same.
    Nothing for a graph with the scales of the file.
    """
    if graph.format != FORMAT:
        return {}
    first = prepare(model, *reading)

    def outputs(g: Graph, vector: list[Array]) -> list[Array]:
        values = ops.run(g, *vector)
        return [np.ravel(real_values(values[name], g.tensors[name])).astype(np.float64) for name in g.outputs]

    before, after = list[Array](), list[Array]()
    for vector in vectors:
        reals = [real_values(x, graph.tensors[n]) for x, n in zip(vector, graph.inputs, strict=True)]
        given = [stored(x, first.tensors[n]) for x, n in zip(reals, first.inputs, strict=True)]
        again = [stored(real_values(x, first.tensors[n]), graph.tensors[n])
                 for x, n in zip(given, graph.inputs, strict=True)]  # fmt: skip
        before += outputs(first, given)
        after += outputs(graph, again)
    noise = sum(float(((a - b) ** 2).sum()) for a, b in zip(before, after, strict=True))
    signal = sum(float((a**2).sum()) for a in before)
    same = sum(int(a.argmax() == b.argmax()) for a, b in zip(before, after, strict=True))
    snr = inf if not noise else 10 * log10(signal / noise) if signal else 0.0
    return {"loss": {"snr_db": round(min(snr, MOST), 2), "same_largest": same / max(1, len(before))}}


def real_values(x: Array, t: Tensor) -> Array:
    return x if t.quant is None else reals_of(x, t)


def stored(real: Array, t: Tensor) -> Array:
    if t.quant is None:
        return real
    ends = np.iinfo(t.dtype)
    whole = np.rint(real / t.quant.scale[0]) + t.quant.zero_point[0]
    return np.clip(whole, ends.min, ends.max).astype(t.dtype)


HALF = 0.5
ANOMALY = (0, 1)  # labels of a usual sample and of another one


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


def rebuilds(inputs: Array | None, outputs: Array, labels: Array) -> bool:
    """Whether a network is an autoencoder: as many outputs as inputs, more than two, and labels that are all 0 or 1.

    `inputs`: [samples, ...] of the only input, else None.
    """
    sizes = {x.size // len(x) for x in (inputs, outputs) if x is not None and len(x)}
    return inputs is not None and len(sizes) == 1 and max(sizes) > len(ANOMALY) and bool(np.isin(labels, ANOMALY).all())


def auc(inputs: Array, outputs: Array, labels: Array) -> float:
    """Area under the ROC curve of an autoencoder whose mean square error tells samples of label 1 from those of 0.

    It is the share of pairs, one of each label, in which the error of label 1 is larger; equal errors count half.
    Without samples of both labels it is 0.
    """
    count = len(inputs)
    errors = ((outputs.reshape(count, -1) - inputs.reshape(count, -1).astype(np.float64)) ** 2).mean(1)
    good, bad = np.sort(errors[labels == 0]), errors[labels == 1]
    below = np.searchsorted(good, bad, "left") + np.searchsorted(good, bad, "right")
    return float(below.sum() / 2 / max(1, len(good) * len(bad)))


def check_classes(labels: Array, outputs: Array, file: Path) -> None:
    """Refuse labels of classes that an output, [samples, ...], lacks. Raises EdgebuildError that names their file."""
    if labels.max() >= (count := max(outputs[0].size, 2)):
        hints = [f"the network's first output has {outputs[0].size} values for a sample"]
        text = f"label {labels.max()} is none of the {count} classes, 0 to {count - 1}"
        raise fail(text, file=str(file), hints=hints)


def accuracy(inputs: Array | None, outputs: Array, labels: Array, file: Path) -> dict[str, Any]:
    """How often an output, [samples, ...] real numbers, is of its label's class. `file`: of the labels, for messages.

    Returns `samples`, `accuracy` (a share) and `confusion` (rows: the labels' classes, columns: the outputs').
    Of an autoencoder (see `rebuilds`) they are `samples` and `auc`.
    Raises EdgebuildError for labels of another number of samples, or of classes that the output lacks.
    """
    if len(labels) != len(outputs):
        raise fail(f"{len(labels)} labels for {len(outputs)} vectors", file=str(file),
                   hints=["one whole number for each"])  # fmt: skip
    check_classes(labels, outputs, file)
    if inputs is not None and rebuilds(inputs, outputs, labels):
        return {"samples": len(outputs), "auc": auc(inputs, outputs, labels)}
    predicted = classes(outputs)
    confusion = np.zeros((int(max(labels.max(), predicted.max())) + 1,) * 2, int)
    np.add.at(confusion, (labels, predicted), 1)
    return {"samples": len(outputs), "accuracy": float(np.mean(predicted == labels)), "confusion": confusion.tolist()}
