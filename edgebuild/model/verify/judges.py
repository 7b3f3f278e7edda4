"""Script that runs an interpreter of models in its own process: JUDGE MODEL INPUTS.npz OUTPUTS.npz.

JUDGE is one of `JUDGES`: TFLite Micro, LiteRT (the interpreter for larger machines) or onnxruntime. The script shares
no code with edgebuild, so that no error of ours can be in both results. Each model has a process, because several
models in one have corrupted the heap, and some models crash it.

INPUTS.npz has `vectors`, their number, and `v<vector>_i<input>`. OUTPUTS.npz gets `v<vector>_o<output>` for outputs
that are tensors of numbers and, for TFLite files, `v<vector>_t_<tensor name>` for every result of an operator. Vectors
run one after another on one interpreter, so variable tensors carry over. If the interpreter fails, the exit status is
BAD_MODEL or BAD_INPUTS, and its message goes to stderr.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np

ARENA_BYTES = 256 << 20  # large enough for any model, because memory is not tested here
BAD_MODEL, BAD_INPUTS = 3, 4


def widened(data: bytes) -> bytes:
    """The TFLite file `data` with constants in float32 where TFLite Micro's float kernels need it.

    These are float16 constants, whose DEQUANTIZE is dropped because TFLM's reads integers only, and weights of 4 and
    8 bits of float ("hybrid") operators. LiteRT would also round activations of hybrid operators.
    """
    import flatbuffers
    from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

    model, changed = schema.ModelT.InitFromPackedBuf(data, 0), False
    codes = [max(code.builtinCode, code.deprecatedBuiltinCode) for code in model.operatorCodes]
    for graph in model.subgraphs:
        kept = []
        for op in graph.operators or []:
            is_dequantize = codes[op.opcodeIndex] == schema.BuiltinOperator.DEQUANTIZE
            halves = is_dequantize and graph.tensors[op.inputs[0]].type == schema.TensorType.FLOAT16
            values = _real(model, graph.tensors[op.inputs[0]]) if halves else None
            if values is not None:
                _store(model, graph.tensors[op.outputs[0]], values)
                changed = True
                continue
            kept.append(op)
            types = {graph.tensors[n].type for n in op.outputs}  # empty for ASSIGN_VARIABLE
            if not is_dequantize and types == {schema.TensorType.FLOAT32}:
                changed |= _widen_weights(model, graph, op)
        graph.operators = kept
    if not changed:
        return data
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _widen_weights(model: Any, graph: Any, op: Any) -> bool:
    """Replace an operator's quantised constants by new float32 tensors; return whether it had any."""
    real = {n: _real(model, graph.tensors[n]) for n in op.inputs if n >= 0 and graph.tensors[n].quantization}
    places = {n: len(graph.tensors) + k for k, n in enumerate(n for n in real if real[n] is not None)}
    for n in places:
        graph.tensors.append(copy.copy(graph.tensors[n]))
        _store(model, graph.tensors[-1], real[n])
    op.inputs = [places.get(n, n) for n in op.inputs]
    return bool(places)


def _real(model: Any, tensor: Any) -> Any:
    """Values of a dense constant of float16, int4, int8 or uint8, in float32; None for other tensors."""
    from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

    kinds = schema.TensorType
    types = {kinds.FLOAT16: np.float16, kinds.INT4: np.int8, kinds.INT8: np.int8, kinds.UINT8: np.uint8}
    data, q = model.buffers[tensor.buffer].data, tensor.quantization
    if tensor.type not in types or data is None or tensor.sparsity is not None:
        return None
    values = np.frombuffer(bytes(data), types[tensor.type])
    if tensor.type == kinds.FLOAT16:
        return values.astype(np.float32)
    if q is None or q.scale is None or not len(q.scale):
        return None
    if tensor.type == kinds.INT4:  # the first number is in the lower half of a byte
        values = np.stack([values << 4 >> 4, values >> 4], axis=-1).ravel()[: int(np.prod(tensor.shape))]
    shape = [1] * len(tensor.shape)
    if len(q.scale) > 1:
        shape[q.quantizedDimension] = -1
    steps = values.reshape(tensor.shape).astype(np.float32) - np.reshape(q.zeroPoint, shape).astype(np.float32)
    return steps * np.reshape(q.scale, shape).astype(np.float32)


def _store(model: Any, tensor: Any, values: Any) -> None:
    """Set a tensor to `values` in float32, in a new buffer."""
    from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

    buffer = schema.BufferT()
    buffer.data = np.frombuffer(values.astype("<f4").tobytes(), np.uint8)
    tensor.buffer, tensor.type, tensor.quantization = len(model.buffers), schema.TensorType.FLOAT32, None
    model.buffers.append(buffer)


class OfTflite:
    """Interpreter of a TFLite file. Inputs, outputs and tensors have the indices of its first graph."""

    def __init__(self, data: bytes) -> None:
        import tflite

        self.data = widened(data)
        graphs = tflite.Model.GetRootAsModel(self.data, 0)
        graph, self.several = graphs.Subgraphs(0), graphs.SubgraphsLength() > 1
        names = list[str]()  # a repeated name gets the tensor's index appended, as in edgebuild's importer
        for i in range(graph.TensorsLength()):
            name = (graph.Tensors(i).Name() or f"tensor_{i}".encode()).decode("utf-8", "replace")
            names.append(f"{name}#{i}" if name in names else name)
        ops = [graph.Operators(i) for i in range(graph.OperatorsLength())]
        produced = [op.Outputs(i) for op in ops for i in range(op.OutputsLength())]
        self.produced = {names[n]: n for n in produced if graph.Tensors(n).Type() != tflite.TensorType.RESOURCE}
        self.outputs = graph.OutputsLength()

    def run(self: Any, values: list[Any]) -> dict[str, Any]:
        """Results of one inference, by the names of the module's docstring without `v<vector>_`."""
        self.invoke(values)
        results = {f"o{o}": self.output(o) for o in range(self.outputs)}
        results |= {f"t_{name}": self.tensor(number) for name, number in self.produced.items()}
        return {name: np.array(value) for name, value in results.items() if value is not None}


class Micro(OfTflite):
    """Two interpreters of TFLite Micro: one as in firmware, for outputs, and one that keeps all tensors.

    Files of several graphs run only in the latter, because in the former the loop of a Keras LSTM never ends.
    """

    def __init__(self, data: bytes) -> None:
        from tflite_micro.python.tflite_micro import runtime

        super().__init__(data)
        keep = runtime.InterpreterConfig.kPreserveAllTensors
        self.traced = runtime.Interpreter.from_bytes(self.data, arena_size=ARENA_BYTES, intrepreter_config=keep)
        self.plain = self.traced if self.several else runtime.Interpreter.from_bytes(self.data, arena_size=ARENA_BYTES)

    def invoke(self, values: list[Any]) -> None:
        for interpreter in dict.fromkeys((self.plain, self.traced)):
            for i, value in enumerate(values):
                interpreter.set_input(value.reshape(interpreter.get_input_details(i)["shape"]), i)
            interpreter.invoke()

    def output(self, o: int) -> Any:
        return self.plain.get_output(o)

    def tensor(self, number: int) -> Any:
        return self.traced.GetTensor(number, 0)["tensor_data"]


class Lite(OfTflite):
    """LiteRT with its reference kernels."""

    def __init__(self, data: bytes) -> None:
        from ai_edge_litert import interpreter as litert  # type: ignore[import-untyped,import-not-found,unused-ignore]

        super().__init__(data)
        kernels = litert.OpResolverType.BUILTIN_REF
        self.whole = litert.Interpreter(
            model_content=self.data, experimental_op_resolver_type=kernels, experimental_preserve_all_tensors=True
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
        except ValueError:  # its size depends on the inputs
            return None


class Ort:
    """onnxruntime without graph optimisation."""

    def __init__(self, data: bytes) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def run(self, values: list[Any]) -> dict[str, Any]:
        names = [port.name for port in self.session.get_inputs()]
        results = enumerate(self.session.run(None, dict(zip(names, values, strict=True))))
        return {f"o{o}": x for o, x in results if isinstance(x, np.ndarray) and x.dtype.kind in "biuf"}


JUDGES: dict[str, Any] = {"TFLite Micro": Micro, "LiteRT": Lite, "onnxruntime": Ort}


def main(judge: str, model: str, inputs: str, outputs: str) -> int:
    status, vectors, results = BAD_MODEL, np.load(inputs), dict[str, Any]()
    try:
        with open(model, "rb") as file:
            interpreter = JUDGES[judge](file.read())
        status = BAD_INPUTS
        for v in (f"v{n}_" for n in range(vectors["vectors"])):
            given = [vectors[f"{v}i{i}"] for i in range(sum(name.startswith(v) for name in vectors.files))]
            results |= {v + name: value for name, value in interpreter.run(given).items()}
    except Exception as problem:  # the judges' exceptions have no class in common
        sys.stderr.write(str(problem).split("Status Message: ")[-1].strip())
        return status
    np.savez(outputs, **results)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
