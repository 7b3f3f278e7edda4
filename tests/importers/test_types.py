"""Files with types that TFLite Micro cannot run, judged by it all the same: the same file in types that it has.

Legacy uint8 is int8 with 128 more in values and zero points. float16 weights are float32 weights of the same values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats.tflite.tflite_reader import read_tflite
from edgebuild.model.passes.canonicalize import canonicalize
from tests.fuzz import tflite_writer
from tests.fuzz.networks import drawn
from tests.fuzz.recipe import choice
from tests.graphs import described, examples, random_inputs, tflite_files
from tests.graphs.tflite_models import TYPES, Draft
from tests.ops.test_tflm import interpreted

FLOAT16 = 1
OPERATORS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "MUL", "MAX_POOL_2D", "SOFTMAX", "LOGISTIC",
             "CONCATENATION", "MEAN", "PAD")  # fmt: skip
FILES, NETWORKS = 8, 20


def model_of(data: bytes) -> Any:
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(bytearray(data), 0))


def packed(model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def as_uint8(data: bytes) -> bytes:
    """The file with uint8 for int8."""
    model = model_of(data)
    shifted = set[int]()
    for t in model.subgraphs[0].tensors:
        if t.type != TYPES["int8"] or t.quantization is None or t.quantization.zeroPoint is None:
            continue
        t.type, t.quantization.zeroPoint = TYPES["uint8"], [int(z) + 128 for z in t.quantization.zeroPoint]
        values = model.buffers[t.buffer].data
        if values is not None and t.buffer not in shifted:
            model.buffers[t.buffer].data = np.asarray(values, np.uint8) ^ 0x80
            shifted.add(t.buffer)
    return packed(model)


def in_half(data: bytes, stored: bool) -> tuple[bytes, int]:
    """The file with float constants rounded to float16, and `stored` so behind DEQUANTIZE; how many these are."""
    model = model_of(data)
    graph = model.subgraphs[0]
    count, code = 0, len(model.operatorCodes)
    for t in list(graph.tensors):
        values = model.buffers[t.buffer].data
        if t.type != TYPES["float32"] or values is None or len(values) == 0:
            continue
        half = np.frombuffer(np.asarray(values, np.uint8).tobytes(), np.float32).astype(np.float16)
        count += 1
        if not stored:
            model.buffers[t.buffer].data = np.frombuffer(half.astype(np.float32).tobytes(), np.uint8)
            continue
        source, op = schema.TensorT(), schema.OperatorT()
        source.name, source.shape, source.type, source.buffer = f"half{count}".encode(), t.shape, FLOAT16, t.buffer
        model.buffers[t.buffer].data = np.frombuffer(half.tobytes(), np.uint8)
        op.opcodeIndex, op.inputs, op.outputs = code, [len(graph.tensors)], [graph.tensors.index(t)]
        graph.tensors.append(source)
        graph.operators.insert(0, op)
        t.buffer = 0
    dequantize = schema.OperatorCodeT()
    dequantize.builtinCode = dequantize.deprecatedBuiltinCode = schema.BuiltinOperator.DEQUANTIZE
    model.operatorCodes.append(dequantize)
    return packed(model), count


@pytest.mark.parametrize("operator", OPERATORS)
def test_uint8_is_the_int8_file_of_tflm(operator: str, tmp_path: Path) -> None:
    files = examples(tflite_files(operator), FILES)
    graphs = [canonicalize(read_tflite(as_uint8(data), "uint8.tflite")) for data in files]
    inputs = [random_inputs(graph, 3, seed) for seed, graph in enumerate(graphs)]
    for graph, vectors, rows in zip(graphs, inputs, interpreted(files, inputs, tmp_path), strict=True):
        for vector, want in zip(vectors, rows, strict=True):
            values = ops.run(graph, *vector)
            for name, y in zip(graph.outputs, want, strict=True):
                np.testing.assert_array_equal(values[name].ravel(), y.ravel(), err_msg=described(graph))


def test_float16_weights_are_their_values(tmp_path: Path) -> None:
    files, graphs, constants = list[bytes](), [], 0
    for seed in range(NETWORKS):
        data = tflite_writer.TfliteWriter(drawn("tflite_float", seed), twin=True).write()
        rounded, _ = in_half(data, stored=False)
        stored, count = in_half(data, stored=True)
        if b"VAR_HANDLE" in data or model_of(data).subgraphs[1:]:
            continue
        graph = canonicalize(read_tflite(stored, "half.tflite"))
        if graph.states:  # inputs of the graph, which the interpreter keeps to itself
            continue
        files.append(rounded)
        graphs.append(graph)
        constants += count
    inputs = [[[np.abs(x) if x.dtype == np.int32 else x / 3 for x in v] for v in random_inputs(g, 1, s)]
              for s, g in enumerate(graphs)]  # fmt: skip
    inputs = [[[x.astype(g.tensors[n].dtype) for x, n in zip(v, g.inputs, strict=True)] for v in vectors]
              for g, vectors in zip(graphs, inputs, strict=True)]  # fmt: skip
    for graph, vectors, rows in zip(graphs, inputs, interpreted(files, inputs, tmp_path), strict=True):
        values = ops.run(graph, *vectors[0])
        size = max(float(np.max(np.abs(v.astype(float)), initial=0)) for v in values.values())
        for name, y in zip(graph.outputs, rows[0], strict=True):
            np.testing.assert_allclose(values[name].ravel(), y.ravel(), rtol=1e-4, atol=1e-5 * size)
    assert constants > NETWORKS


@pytest.mark.parametrize(
    ("operator", "code", "text", "hint"),
    [
        ("RFFT2D", "COMPLEX64", "tensor 'y' is complex", "spectra"),
        ("custom FlexTensorListPushBack", "VARIANT", "operator custom FlexTensorListPushBack", "batch"),
    ],
)
def test_what_the_file_has_of_tensorflow_is_refused(operator: str, code: str, text: str, hint: str) -> None:
    """Lists are those of recurrent layers of an open batch."""
    f = Draft(choice(0))
    x, size, y = f.input((1, 8), None, "float32"), f.list_of([1, 8]), f.tensor("y", (1, 5), "float32")
    f.tensors[y].type = getattr(schema.TensorType, code)
    f.operator(operator, [x, size], [y])
    with pytest.raises(EdgebuildError, match=text) as refusal:
        read_tflite(f.pack([x], [y]), "spectrum.tflite")
    (diagnostic,) = refusal.value.diagnostics
    assert (diagnostic.node, diagnostic.kind) == ("y", operator) and hint in diagnostic.hints[0]
