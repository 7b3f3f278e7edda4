"""Random .tflite files of one operator: extremes along dimensions, and where they are."""

from __future__ import annotations

from collections.abc import Callable

from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from .tflite_models import OPERATORS, Draft

Make = Callable[[Draft], bytes]


def extreme(name: str) -> Make:
    def make(f: Draft) -> bytes:
        shape, q = (1, *f.s.shape(1, 3)), f.quant()
        axes = [d for d in range(1, len(shape)) if f.s.pick(True, False)] or [1]
        options = schema.ReducerOptionsT()
        options.keepDims = True
        out = [1 if d in axes else n for d, n in enumerate(shape)]
        return f.done(name, [f.input(shape, q), f.list_of(axes)], out, q, options)

    return make


def place(name: str) -> Make:
    def make(f: Draft) -> bytes:
        shape = (1, *f.s.shape(1, 3))
        axis = f.s.between(1, len(shape) - 1)
        options = getattr(schema, "ArgMaxOptionsT" if name == "ARG_MAX" else "ArgMinOptionsT")()
        options.outputType = 2
        out = shape[:axis] + shape[axis + 1 :]
        return f.done(name, [f.input(shape, f.quant()), f.list_of([axis])], out, None, options, "int32")

    return make


OPERATORS |= {name: extreme(name) for name in ("REDUCE_MAX", "REDUCE_MIN")}
OPERATORS |= {name: place(name) for name in ("ARG_MAX", "ARG_MIN")}
