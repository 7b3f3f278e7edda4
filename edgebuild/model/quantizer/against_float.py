"""The firmware beside the float network: accuracy of both, what is taken for what, and where the noise arises."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ...base.artifacts import Artifact
from ...base.errors import fail, visible
from ...base.target import Target
from ..passes.powers import FORMAT
from ..verify import outputs_on_target, real_values, report_of
from ..verify.accuracy import accuracy, auc, classes
from .corrections import BACK, clipped
from .samples import Array, Port, Row, float_model, folded, only_input, ports, read_rows, run, signal_to_noise

WORST = 5  # layers that are named
NOISE_SAMPLES = 32  # of which the noise of each layer is taken
NHWC = (0, 2, 3, 1)


def against_float(
    model: Path,
    target: Target,
    artifacts: Sequence[Artifact],
    data: Path,
    labels: Path | None,
    reference: Path | None,
    library: Path | None = None,
) -> dict[str, Any]:
    """Run the firmware on every sample of `data`: float32, as `quantise` takes them.

    Returns `samples`, and what there is of: `accuracy`, `confusion` (rows: right classes, columns: the firmware's);
    with a `reference` network in ONNX `snr_db`, and with labels `reference_accuracy` and `same_class` (a share);
    of an autoencoder `auc` and `reference_auc` in their place;
    for an ONNX `model` with its own scales `worst_layers`, too, by their signal to noise on the build machine.
    Raises EdgebuildError for samples, labels or networks that do not fit each other.
    """
    report = report_of(artifacts)
    real = float_model(reference) if reference else None
    rows, right = read_rows(data, labels, ports(real) if real else [_port(p) for p in report["inputs"]])
    vectors = [_vector(row, report["inputs"]) for row in rows]
    outputs = outputs_on_target(target, artifacts, vectors, library)
    values = [real_values(np.stack([o[i] for o in outputs]), port) for i, port in enumerate(report["outputs"])]
    result: dict[str, Any] = {"samples": len(rows)}
    inputs = only_input(rows)
    if right is not None and labels is not None:
        result = accuracy(inputs, values[0], right, labels)
    if real is None:
        return result
    simple = folded(real, rows[0])
    theirs = run(simple, rows)
    if [x.size for x in theirs] != [x.size for x in values]:
        raise fail("has other outputs than the network", file=visible(reference.name if reference else ""))
    chosen = classes(theirs[0])
    if right is not None and inputs is not None and "auc" in result:
        result["reference_auc"] = auc(inputs, theirs[0], right)
    elif right is not None:
        same = float(np.mean(chosen == classes(values[0])))
        result |= {"reference_accuracy": float(np.mean(chosen == right)), "same_class": same}
    noise = [signal_to_noise(_like(a, b), b) for a, b in zip(theirs, values, strict=True)]
    result["snr_db"] = round(min(noise), 2)
    if model.suffix == ".onnx" and report["model"]["format"] != FORMAT:
        result["worst_layers"] = _worst(model, simple, rows[:NOISE_SAMPLES])
    return result


def _port(port: dict[str, Any]) -> Port:
    return Port(port["name"], tuple(port["shape"]))


def _vector(row: Row, wanted: Sequence[dict[str, Any]]) -> list[Array]:
    """One sample as the firmware takes it: quantised by the scale of each input."""
    by_order = list(row.values())
    vector = []
    for i, port in enumerate(wanted):
        value = row.get(port["name"], by_order[i] if len(by_order) == len(wanted) else None)
        if value is None or value.size != int(np.prod(port["shape"])):
            raise fail(f"no sample fits input '{visible(port['name'])}' of the network: {port['shape']}")
        dtype = np.dtype(port["dtype"])
        fitted = _like(value[None], np.empty((1, *port["shape"])))[0]
        if dtype.kind == "f":
            vector.append(np.ascontiguousarray(fitted, dtype))
            continue
        limits = np.iinfo(dtype)
        steps = np.rint(fitted / np.float32(port["scale"])) + port["zero_point"]
        vector.append(np.ascontiguousarray(np.clip(steps, limits.min, limits.max).astype(dtype)))
    return vector


def _like(value: Array, other: Array) -> Array:
    """[samples, ...] in the layout of `other`: as it is, or with the channels last."""
    if value.shape != other.shape and value.ndim == 5:
        turned = value.transpose(0, *(1 + axis for axis in NHWC))
        value = turned if turned.shape == other.shape else value
    return value.reshape(other.shape)


def _worst(model: Path, real: onnx.ModelProto, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The tensors of the float network that the quantised one, run with its own scales, makes with the most noise."""
    quantised = onnx.load(model)
    computed = {name for node in quantised.graph.node for name in node.output}
    inner = clipped(real.graph)
    names = [n for node in real.graph.node for n in node.output if n + BACK in computed and n not in inner]
    if not names:
        return []
    right, value = run(real, rows, names), run(quantised, rows, [name + BACK for name in names])
    pairs = [(n, a, b) for n, a, b in zip(names, right, value, strict=True) if a.shape == b.shape]
    noise = {n: round(signal_to_noise(a, _scaled(b, a)), 2) for n, a, b in pairs}
    worst = sorted(noise, key=lambda n: noise[n])[:WORST]
    return [{"tensor": name, "snr_db": noise[name]} for name in worst]


def _scaled(value: Array, right: Array) -> Array:
    """`value` with each channel times what brings it nearest to `right`: equalised layers have other scales."""
    if value.ndim < 3:
        return value
    axes = tuple(i for i in range(value.ndim) if i != 2)  # samples, the batch of 1, channels
    power = np.sum(value.astype(np.float64) ** 2, axis=axes, keepdims=True)
    factor = np.sum(value.astype(np.float64) * right, axis=axes, keepdims=True) / np.where(power > 0, power, 1)
    return value * factor
