"""The signal operators of TensorFlow Lite Micro against its interpreter, over sequences, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats.tflite.tflite_reader import read_tflite
from edgebuild.model.ir import Array, Graph, Quant
from edgebuild.model.passes.canonicalize import canonicalize
from tests.graphs.tflite_models import File
from tests.importers.test_state import verified
from tests.ops.test_tflm import interpreted

CALLS = 6


def node(
    name: str,
    x: tuple[tuple[int, ...], str],
    results: list[tuple[tuple[int, ...], str]],
    settings: dict[str, Any],
    *constants: Array,
    more: list[tuple[tuple[int, ...], str]] | None = None,
    quant: Quant | None = None,
    variable: bool = False,
) -> bytes:
    """A file of one custom operator: its operands are inputs, and the constants behind them."""
    f = File()
    inputs = [f.tensor(f"x{i}", shape, dtype, quant) for i, (shape, dtype) in enumerate([x, *(more or [])])]
    held = [f.tensor(f"c{i}", c.shape, str(c.dtype), None, c) for i, c in enumerate(constants)]
    outputs = [f.tensor(f"y{i}", shape, dtype, quant) for i, (shape, dtype) in enumerate(results)]
    f.tensors[outputs[0]].isVariable = variable
    f.operator(f"custom {name}", [*inputs, *held], outputs, bytes(flexbuffers.Dumps(settings)))
    return f.pack(inputs, outputs)


def plain(name: str, dtype: str, to: str, *constants: Array) -> bytes:
    """An operator of the schema on numbers of this type."""
    f = File()
    x = f.tensor("x", (4,), dtype)
    held = [f.tensor(f"c{i}", c.shape, str(c.dtype), None, c) for i, c in enumerate(constants)]
    y = f.tensor("y", (4,) if not held else (), to)
    options = schema.ReducerOptionsT() if held else schema.CastOptionsT() if name == "CAST" else None
    f.operator(name, [x, *held], [y], options)
    return f.pack([x], [y])


def line(size: int, dtype: str = "int16") -> tuple[tuple[int, ...], str]:
    return (size,), dtype


def spectrum(name: str, dtype: str, length: int, size: int, front: tuple[int, ...] = ()) -> bytes:
    code = {"float32": 0, "int32": 2, "int16": 7}[dtype]
    x, y = ((*front, n) for n in ((size, length + 2) if name == "SignalRfft" else (length + 2, length)))
    return node(name, (x, dtype), [(y, dtype)], {"T": code, "fft_length": length})


def stacked(left: int, right: int, step: int) -> bytes:
    settings = {"num_channels": 3, "stacker_left_context": left, "stacker_right_context": right, "stacker_step": step}
    return node("SignalStacker", line(3), [line(3 * (left + right + 1)), ((), "bool")], settings)


def framed(size: int, step: int, samples: int, prefill: bool, front: tuple[int, ...] = ()) -> bytes:
    settings = {"frame_size": size, "frame_step": step, "prefill": prefill}
    y = (*front, samples // step, size)
    return node("SignalFramer", ((*front, samples), "int16"), [(y, "int16"), ((), "bool")], settings)


def overlapping(dtype: str, size: int, step: int, count: int, front: tuple[int, ...] = ()) -> bytes:
    settings = {"T": 0 if dtype == "float32" else 7, "frame_step": step}
    return node("SignalOverlapAdd", ((*front, count, size), dtype), [((*front, count * step), dtype)], settings)


SUBTRACTION = {
    "alternate_one_minus_smoothing": 15401, "alternate_smoothing": 983, "min_signal_remaining": 819, "num_channels": 5,
    "one_minus_smoothing": 15975, "smoothing": 409, "smoothing_bits": 10, "spectral_subtraction_bits": 14,
}  # fmt: skip
BANK = [np.arange(12, dtype=np.int16) * 321, 4096 - np.arange(12, dtype=np.int16) * 321]
BANK += [np.array(n, np.int16) for n in ([1, 4, 6, 9], [0, 3, 5, 8], [3, 2, 3, 4])]
GAINS = np.random.default_rng(3).integers(0, 4000, 125).astype(np.int16)

FILES: dict[str, bytes] = {
    **{f"rfft {t} {n} of {m}": spectrum("SignalRfft", t, n, m) for t, n, m in (
        ("int16", 512, 480), ("int16", 256, 256), ("int32", 64, 60), ("int32", 8, 7), ("float32", 128, 100),
        ("int16", 4, 3),
    )},
    **{f"irfft {t} {n}": spectrum("SignalIrfft", t, n, 0)
       for t, n in (("int16", 512), ("int32", 32), ("float32", 256))},
    "rfft of lines": spectrum("SignalRfft", "int16", 16, 13, (2, 3)),
    "irfft of lines": spectrum("SignalIrfft", "int16", 32, 0, (3,)),
    "window": node("SignalWindow", ((2, 30), "int16"), [((2, 30), "int16")], {"shift": 11}, GAINS[:30] * 8 - 9000),
    "scale": node("SignalFftAutoScale", line(20), [line(20), ((), "int32")], {}),
    "energy": node("SignalEnergy", line(34), [line(17, "uint32")], {"start_index": 0, "end_index": 17}),
    "bank": node("SignalFilterBank", line(14, "uint32"), [line(3, "uint64")], {"num_channels": 3}, *BANK),
    "root": node("SignalFilterBankSquareRoot", line(9, "uint64"), [line(9, "uint32")], {}, more=[((), "int32")]),
    **{f"subtraction, clamping {on}": node(
        "SignalFilterBankSpectralSubtraction", line(5, "uint32"), 2 * [line(5, "uint32")],
        {**SUBTRACTION, "clamping": on}
    ) for on in (False, True)},
    "gain": node("SignalPCAN", line(40, "uint32"), [line(40, "uint32")], {"snr_shift": 6}, GAINS,
                 more=[line(40, "uint32")]),
    "log": node("SignalFilterBankLog", line(60, "uint32"), [line(60)],
                {"input_correction_bits": 3, "output_scale": 64}),
    **{f"circular buffer{' of a variable' * on}": node(
        "CIRCULAR_BUFFER", ((1, 1, 2, 3), "int8"), [((1, 4, 2, 3), "int8")], {"cycles_max": 1},
        quant=Quant((0.5,), (9,)), variable=on
    ) for on in (False, True)},
    **{f"delay {n}": node("SignalDelay", ((2, 4), "int16"), [((2, 4), "int16")], {"delay_length": n})
       for n in (0, 3, 9)},
    **{f"frames {a}": framed(*a)
       for a in ((5, 3, 6, True), (5, 3, 6, False), (4, 4, 8, False), (7, 2, 2, False, (2,)))},
    **{f"overlap {a}": overlapping(*a) for a in (("int16", 7, 3, 2), ("int16", 5, 5, 2), ("float32", 6, 2, 1, (2,)))},
    **{f"stack {a}": stacked(*a) for a in ((2, 1, 1), (1, 2, 3), (0, 0, 1), (3, 0, 2), (0, 1, 2))},
}  # fmt: skip


LATE = {
    "frames (5, 3, 6, False)",
    "frames (7, 2, 2, False, (2,))",
    "stack (2, 1, 1)",
    "stack (1, 2, 3)",
    "stack (3, 0, 2)",
    "stack (0, 1, 2)",
}  # that have results which do not count yet


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers of all magnitudes; now and then the ends of the type."""
    if dtype == "float32":
        return (100 * rng.standard_normal(shape)).astype(np.float32)
    info = np.iinfo(dtype)
    sizes = rng.integers(0, info.bits - (info.min < 0) + 1, shape).astype(np.uint64)
    signs = np.where(rng.random(shape) < 0.5, 1, -1) if info.min < 0 else np.ones(shape, np.int64)
    drawn = [int(s) * int(rng.integers(0, 2 ** min(int(n), 62) or 1, endpoint=True)) << max(int(n) - 62, 0)
             for s, n in zip(np.ravel(signs), np.ravel(sizes), strict=True)]  # fmt: skip
    return np.array([min(max(v, info.min), info.max) for v in drawn]).reshape(shape).astype(dtype)


def vectors(graph: Graph) -> list[list[Array]]:
    """Inputs without the states, for each call. A second operand of one number tells bits."""
    rng = np.random.default_rng(7)
    own = [graph.tensors[n] for n in graph.inputs[: len(graph.inputs) - len(graph.states)]]
    calls = [[values(rng, t.shape, t.dtype) for t in own] for _ in range(CALLS)]
    for vector in calls:
        vector[1:] = [np.array(rng.integers(0, 9), x.dtype) if not x.shape else x for x in vector[1:]]
    return calls


def in_sequence(graph: Graph, calls: list[list[Array]]) -> list[list[Array]]:
    """The outputs by the ops' numpy meanings; states go on from call to call."""

    def zeros(position: int) -> Array:
        t = graph.tensors[graph.inputs[position]]
        return np.zeros(t.shape, t.dtype)

    held = [zeros(s.read) if s.start is None else s.start for s in graph.states]
    results = []
    for call in calls:
        y = ops.run(graph, *call, *held)
        held = [y[graph.outputs[s.write]] for s in graph.states]
        results.append([y[n] for n in graph.outputs[: len(graph.outputs) - len(graph.states)]])
    return results


@pytest.mark.parametrize("name", FILES)
def test_meanings_are_those_of_tflm(name: str, tmp_path: Path) -> None:
    graph = canonicalize(read_tflite(FILES[name], f"{name}.tflite"))
    calls = vectors(graph)
    (want,) = interpreted([FILES[name]], [calls], tmp_path)
    late = False
    for mine, theirs in zip(in_sequence(graph, calls), want, strict=True):
        if len(theirs) == 2 and theirs[1].dtype == bool:
            np.testing.assert_array_equal(mine[1].ravel(), theirs[1].ravel())
            if not theirs[1].all():
                late = True
                continue  # TFLM leaves the first output as it was
        for a, b in zip(mine, theirs, strict=True):
            if a.dtype == np.float32:
                np.testing.assert_allclose(a.ravel(), b.ravel(), rtol=1e-5, atol=1e-3)
            else:
                np.testing.assert_array_equal(a.ravel(), b.ravel())
    assert late == (name in LATE)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(
    "name",
    [
        "frames (5, 3, 6, True)",
        "overlap ('int16', 7, 3, 2)",
        "subtraction, clamping True",
        "circular buffer of a variable",
    ],
)
def test_firmware_is_the_interpreter(name: str, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(FILES[name])
    result = verified(tmp_path / "m.tflite")
    assert result["equal"], result


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (node("SignalRfft", line(9), [line(14)], {"T": 7, "fft_length": 12}), "a length of 12"),
        (node("SignalRfft", line(9), [line(14)], {"T": 7}), "its options are damaged"),
        (node("SignalWindow", line(9), [line(9)], {"shift": 50}, GAINS[:9]), "shift 50"),
        (node("SignalDelay", line(9), [line(9)], {"delay_length": -1}), "delay_length -1"),
        (node("SignalDelay", line(9), [line(9)], {"delay_length": 2**40}), "more than 32 bits"),
        (node("SignalStacker", line(3), [line(9), ((), "bool")], {"num_channels": 3, "stacker_left_context": 10**9,
              "stacker_right_context": 0, "stacker_step": 1}), "stacker_left_context 1000000000"),
        (stacked(300, 0, 1), "steps of 1 in 301 frames"),
        (plain("CAST", "float32", "uint32"), "type uint32"),
        (plain("ABS", "uint32", "uint32"), "abs of uint32"),
        (plain("REDUCE_MAX", "uint64", "uint64", np.array([0], np.int32)), "values of type uint64"),
        (framed(5, 4, 6, True), "frames of 5 every 4"),
        (node("SignalFilterBank", line(7, "uint32"), [line(3, "uint64")], {"num_channels": 3}, *BANK),
         "bands beyond 7"),
        (node("CIRCULAR_BUFFER", ((1, 1, 2, 3), "int8"), [((1, 4, 2, 3), "int8")], {"cycles_max": 2},
              quant=Quant((0.5,), (0,))), "cycles_max 2"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(EdgebuildError, match=text):
        canonicalize(read_tflite(data, "signal.tflite"))
