"""Rows of the fuzzer's TFLite operators: the audio front end, and what remembers samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from flatbuffers import flexbuffers
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from .recipe import DoesNotFit
from .tflite_elements import Row
from .tflite_parts import Parts, Value

FORMS = ("tflite", "tflite_float")  # of which results are quantised from real numbers, or are these
SMOOTHING = {"smoothing": 409, "one_minus_smoothing": 15975, "smoothing_bits": 10, "spectral_subtraction_bits": 14}
SMOOTHING |= {"alternate_smoothing": 983, "alternate_one_minus_smoothing": 15401, "min_signal_remaining": 819}


def _signal(w: Parts, name: str, inputs: list[Any], results: list[tuple[tuple[int, ...], str]], **attrs: Any) -> Value:
    """A custom operator; its first result. The others are left."""
    tensors = [w.file.tensor(f"t{len(w.file.tensors)}", shape, dtype) for shape, dtype in results]
    operands = [v.index if isinstance(v, Value) else v for v in inputs]
    w.file.operator(f"custom Signal{name}", operands, tensors, bytes(flexbuffers.Dumps(attrs)))
    return Value(tensors[0], results[0][0], None)


def _beside(first: Value, shape: tuple[int, ...]) -> Value:
    """The second result of the operator whose first one this is."""
    return Value(first.index + 1, shape, None)


def _finished(w: Parts, x: Value) -> Value:
    """Whole numbers as activations of the network, in a scale that keeps them apart."""
    options = schema.CastOptionsT()
    options.inDataType, options.outDataType = 7, 0
    real = w.emit("CAST", [x], x.shape, None, options, "float32", exact=True)
    part = Value(w.constant(np.full((1,) * len(x.shape), 2.0**-9, np.float32)), (1,) * len(x.shape), None)
    multiplied = schema.MulOptionsT()
    multiplied.fusedActivationFunction = 0
    small = w.emit("MUL", [real, part], x.shape, None, multiplied, "float32", exact=True)
    row = w.emit("RESHAPE", [small, w.list_of([1, *x.shape])], (1, *x.shape), None, None, "float32", exact=True)
    return w.as_activation(row)


def alone(w: Parts) -> None:
    if w.batch > 1:
        raise DoesNotFit  # one line of samples has no batch


def bands(w: Parts, x: Value, *_: Value) -> Value:
    """From a frame of samples to log energies of bands, as TFLM's micro_speech has it."""
    alone(w)
    s, length = w.s, w.s.pick(32, 64, 128)
    size, half, count = s.between(length // 2, length), length // 2 + 1, s.between(2, 6)
    frame = w.given((size,), None, "int16")
    window = w.constant(s.rng.integers(0, 4096, size).astype(np.int16))
    frame = _signal(w, "Window", [frame, window], [((size,), "int16")], shift=12)
    scaled = _signal(w, "FftAutoScale", [frame], [((size,), "int16"), ((), "int32")])
    spectrum = _signal(w, "Rfft", [scaled], [((2 * half,), "int16")], T=7, fft_length=length)
    energy = _signal(w, "Energy", [spectrum], [((half,), "uint32")], start_index=0, end_index=half)
    ends = np.sort(s.rng.integers(0, half, count + 2))
    widths = np.diff(ends)
    rising = [s.rng.integers(0, 4097, max(int(widths.sum()), 1)).astype(np.int16)]
    tables = [*rising, 4096 - rising[0], ends[:-1], np.cumsum(widths) - widths, widths]
    held = [w.constant(t.astype(np.int16)) for t in tables]
    channels = _signal(w, "FilterBank", [energy, *held], [((count,), "uint64")], num_channels=count)
    bits = _beside(scaled, ())
    channels = _signal(w, "FilterBankSquareRoot", [channels, bits], [((count,), "uint32")])
    both = [((count,), "uint32")] * 2
    attrs = {**SMOOTHING, "clamping": s.pick(True, False), "num_channels": count}
    channels = _signal(w, "FilterBankSpectralSubtraction", [channels], both, **attrs)
    gains = w.constant(s.rng.integers(0, 4096, 125).astype(np.int16))
    noise = _beside(channels, (count,))
    channels = _signal(w, "PCAN", [channels, noise, gains], [((count,), "uint32")], snr_shift=6)
    attrs = {"input_correction_bits": s.between(0, 3), "output_scale": s.pick(64, 1600)}
    return _finished(w, _signal(w, "FilterBankLog", [channels], [((count,), "int16")], **attrs))


def frames(w: Parts, x: Value, *_: Value) -> Value:
    """Samples late, in frames, there and back, added again, and the last ones in a row."""
    alone(w)
    s, step = w.s, w.s.pick(2, 4)
    count, size, left = s.between(1, 3), w.s.pick(4, 8), s.between(0, 2)
    line = w.given((count * step,), None, "int16")
    late = _signal(w, "Delay", [line], [(line.shape, "int16")], delay_length=s.between(0, 9))
    cut = [((count, size), "int16"), ((), "bool")]
    framed = _signal(w, "Framer", [late], cut, frame_size=size, frame_step=step, prefill=True)
    spectra = _signal(w, "Rfft", [framed], [((count, size + 2), "int16")], T=7, fft_length=size)
    back = _signal(w, "Irfft", [spectra], [((count, size), "int16")], T=7, fft_length=size)
    added = _signal(w, "OverlapAdd", [back], [((count * step,), "int16")], T=7, frame_step=step)
    attrs = {"num_channels": count * step, "stacker_left_context": left, "stacker_right_context": 0, "stacker_step": 1}
    stack = [((count * step * (left + 1),), "int16"), ((), "bool")]
    return _finished(w, _signal(w, "Stacker", [added], stack, **attrs))


def last_slots(w: Parts, x: Value, *_: Value) -> Value:
    """TFLM keeps the slots in the result, which is a variable tensor."""
    alone(w)
    flat, slots = int(np.prod(x.shape)), w.s.between(1, 4)
    slot = w.emit("RESHAPE", [x, w.list_of([1, 1, 1, flat])], (1, 1, 1, flat), x.quant)
    packed = bytes(flexbuffers.Dumps({"cycles_max": 1}))
    y = w.emit("custom CIRCULAR_BUFFER", [slot], (1, slots, 1, flat), x.quant, packed, exact=x.exact)
    w.file.tensors[y.index].isVariable = True
    return y


SIGNAL = {
    "custom SignalFilterBankLog": Row(bands, FORMS),
    "custom SignalStacker": Row(frames, FORMS),
    "custom CIRCULAR_BUFFER": Row(last_slots, ("tflite",)),
}
