"""Interpreter of TFLite files in a process of its own: JUDGE MODEL INPUTS.npz OUTPUTS.npz.

JUDGE is "tflm", TFLite Micro, or "litert", the interpreter of larger machines. Run as a script. It shares nothing with
edgebuild, so that no mistake of ours can be in both results. One process per model: several in one process have been
seen to corrupt the heap.

INPUTS.npz has `v<vector>_i<input>`; OUTPUTS.npz gets `v<vector>_o<output>` and `v<vector>_t_<tensor name>` for every
result of an operator. Vectors run one after another on one interpreter, so variable tensors carry over.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

import flatbuffers
import numpy as np
import tflite
from tflite_micro.python.tflite_micro import runtime
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

ARENA_BYTES = 256 << 20  # the host's memory is not what is tested


def widened(data: bytes) -> bytes:
    """The model with its float16 constants in float32, without their DEQUANTIZE, which TFLM has for integers alone."""
    model, changed = schema.ModelT.InitFromPackedBuf(data, 0), False
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
            buffer, changed = schema.BufferT(), True
            buffer.data = np.frombuffer(np.frombuffer(bytes(values), np.float16).astype(np.float32).tobytes(), np.uint8)
            graph.tensors[op.outputs[0]].buffer = len(model.buffers)
            model.buffers.append(buffer)
        graph.operators = kept
    if not changed:
        return data
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


class Interpreter(Protocol):
    """Interface of both. Inputs, outputs and tensors have the numbers that the first graph of the file gives them."""

    def invoke(self, values: list[Any]) -> None: ...

    def output(self, o: int) -> Any: ...

    def tensor(self, number: int) -> Any:
        """Value of a tensor; None if the interpreter holds it no more."""


class Micro:
    """TFLite Micro twice: as firmware runs it, and keeping all tensors.

    Files of several graphs run in the latter alone: in the other one the loop of a Keras LSTM never ends.
    """

    def __init__(self, data: bytes) -> None:
        keep = runtime.InterpreterConfig.kPreserveAllTensors
        self.traced = runtime.Interpreter.from_bytes(data, arena_size=ARENA_BYTES, intrepreter_config=keep)
        alone = tflite.Model.GetRootAsModel(data, 0).SubgraphsLength() > 1
        self.plain = self.traced if alone else runtime.Interpreter.from_bytes(data, arena_size=ARENA_BYTES)

    def invoke(self, values: list[Any]) -> None:
        for interpreter in dict.fromkeys((self.plain, self.traced)):
            for i, value in enumerate(values):
                interpreter.set_input(value.reshape(interpreter.get_input_details(i)["shape"]), i)
            interpreter.invoke()

    def output(self, o: int) -> Any:
        return self.plain.get_output(o)

    def tensor(self, number: int) -> Any:
        return self.traced.GetTensor(number, 0)["tensor_data"]


class Lite:
    """LiteRT with its reference kernels."""

    def __init__(self, data: bytes) -> None:
        from ai_edge_litert import interpreter as litert  # type: ignore[import-untyped,import-not-found,unused-ignore]

        kernels = litert.OpResolverType.BUILTIN_REF
        self.whole = litert.Interpreter(
            model_content=data, experimental_op_resolver_type=kernels, experimental_preserve_all_tensors=True
        )
        self.whole.allocate_tensors()

    def invoke(self, values: list[Any]) -> None:
        for value, port in zip(values, self.whole.get_input_details(), strict=True):
            self.whole.set_tensor(port["index"], value.reshape(port["shape"]))
        self.whole.invoke()

    def output(self, o: int) -> Any:
        return self.whole.get_tensor(self.whole.get_output_details()[o]["index"])

    def tensor(self, number: int) -> Any:
        try:
            return self.whole.get_tensor(number)
        except ValueError:  # of a size that the run decides
            return None


def main(judge: str, model: str, inputs: str, outputs: str) -> None:
    with open(model, "rb") as file:
        data = widened(file.read())
    graph = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)
    vectors = np.load(inputs)
    results: dict[str, Any] = {}
    interpreter: Interpreter = Lite(data) if judge == "litert" else Micro(data)
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
    for v in range(len({name.split("_")[0] for name in vectors.files})):
        interpreter.invoke([vectors[f"v{v}_i{i}"] for i in range(graph.InputsLength())])
        for o in range(graph.OutputsLength()):
            results[f"v{v}_o{o}"] = np.array(interpreter.output(o))
        for tensor in produced:
            if (value := interpreter.tensor(tensor)) is not None:
                results[f"v{v}_t_{names[tensor]}"] = np.array(value)
    with open(outputs, "wb") as file:
        np.savez(file, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
