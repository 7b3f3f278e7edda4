"""The TFLite Micro interpreter in a process of its own: MODEL INPUTS.npz OUTPUTS.npz.

Run as a script. It shares nothing with edgebuild, so that no mistake of ours can be in both results. One process per
model: several in one process have been seen to corrupt the heap.

INPUTS.npz has `v<vector>_i<input>`; OUTPUTS.npz gets `v<vector>_o<output>` and `v<vector>_t_<tensor name>` for every
result of an operator. Vectors run one after another on one interpreter, so variable tensors carry over.
"""

from __future__ import annotations

import sys
from typing import Any

import flatbuffers
import numpy as np
import tflite
from tflite_micro.python.tflite_micro import runtime
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

ARENA_BYTES = 256 << 20  # the host's memory is not what is tested


def widened(data: bytes) -> bytes:
    """The model with its float16 constants in float32, without their DEQUANTIZE, which TFLM has for integers alone."""
    model, found = schema.ModelT.InitFromPackedBuf(data, 0), False
    codes = [max(code.builtinCode, code.deprecatedBuiltinCode) for code in model.operatorCodes]
    for graph in model.subgraphs:
        kept = []
        for op in graph.operators or []:
            values = None
            if codes[op.opcodeIndex] == schema.BuiltinOperator.DEQUANTIZE:
                source = graph.tensors[op.inputs[0]]
                values = model.buffers[source.buffer].data if source.type == schema.TensorType.FLOAT16 else None
            if values is None:
                kept.append(op)
                continue
            buffer, found = schema.BufferT(), True
            buffer.data = np.frombuffer(np.frombuffer(bytes(values), np.float16).astype(np.float32).tobytes(), np.uint8)
            graph.tensors[op.outputs[0]].buffer = len(model.buffers)
            model.buffers.append(buffer)
        graph.operators = kept
    if not found:
        return data
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def main(model: str, inputs: str, outputs: str) -> None:
    with open(model, "rb") as file:
        data = widened(file.read())
    graph = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)
    vectors = np.load(inputs)
    count = len({name.split("_")[0] for name in vectors.files})
    results: dict[str, Any] = {}
    keep = runtime.InterpreterConfig.kPreserveAllTensors
    plain = runtime.Interpreter.from_bytes(data, arena_size=ARENA_BYTES)
    traced = runtime.Interpreter.from_bytes(data, arena_size=ARENA_BYTES, intrepreter_config=keep)
    produced = [
        graph.Operators(op).Outputs(i)
        for op in range(graph.OperatorsLength())
        for i in range(graph.Operators(op).OutputsLength())
        if graph.Tensors(graph.Operators(op).Outputs(i)).Type() != tflite.TensorType.RESOURCE
    ]
    names = list[str]()  # of tensors with one name the later ones have their index behind it, as for edgebuild
    for i in range(graph.TensorsLength()):
        name = (graph.Tensors(i).Name() or f"tensor_{i}".encode()).decode("utf-8", "replace")
        names.append(f"{name}#{i}" if name in names else name)
    for v in range(count):
        for interpreter in (plain, traced):
            for i in range(graph.InputsLength()):
                interpreter.set_input(vectors[f"v{v}_i{i}"].reshape(interpreter.get_input_details(i)["shape"]), i)
            interpreter.invoke()
        for o in range(graph.OutputsLength()):
            results[f"v{v}_o{o}"] = np.array(plain.get_output(o))
        for tensor in produced:
            results[f"v{v}_t_{names[tensor]}"] = np.array(traced.GetTensor(tensor, 0)["tensor_data"])
    with open(outputs, "wb") as file:
        np.savez(file, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
