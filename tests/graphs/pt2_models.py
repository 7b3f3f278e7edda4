"""Small .pt2 archives, as torch.export.save writes them, and one case for each operator that is read.

`python tests/graphs/pt2_models.py`, where torch is installed, writes pt2_outputs.json: its own results of the cases.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

OUTPUTS = Path(__file__).with_name("pt2_outputs.json")
TYPES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float32": 7, "float64": 8, "bool": 12}
Array = np.ndarray[Any, Any]
EMPTY: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True)
class T:
    """A tensor that is an argument: an input of the graph, or a `parameter`. Its numbers follow from its shape."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    parameter: bool = False
    scale: float = 1.5
    offset: float = 0.0

    @property
    def data(self) -> Array:
        wave = np.sin(np.arange(np.prod(self.shape, dtype=int)) * 1.7 + len(self.shape)).reshape(self.shape)
        return np.asarray(wave * self.scale + self.offset).astype(self.dtype)


def X(*shape: int, **more: Any) -> T:
    return T(shape, **more)


def W(*shape: int, **more: Any) -> T:
    return T(shape, parameter=True, **more)


INT8 = {"dtype": "int8", "scale": 100.0}
Q = {"scale": 0.02, "zero_point": 3, "quant_min": -128, "quant_max": 127, "dtype": "torch.int8"}
ALL = "abs acos asin atan ceil cos cosh exp expm1 floor mish neg reciprocal relu round rsqrt sigmoid sign sin sinh"
ALL += " softplus square sqrt tan tanh log log1p erf acosh atanh asinh selu celu elu gelu silu hardswish isnan"
ALL += " hardsigmoid leaky_relu relu6 hardtanh alias clone detach detach_ lift_fresh_copy contiguous dropout"
MOVED = {"acosh": 2.0, "log": 1.0, "sqrt": 1.0, "rsqrt": 1.0, "reciprocal": 1.0}  # so that the function is defined
PAIRS = "add sub rsub mul div maximum minimum eq ne gt ge lt le pow"
IMAGE, WEIGHTS = X(1, 4, 6, 7), W(8, 2, 3, 3, scale=0.5)
CONV = {"input": IMAGE, "weight": WEIGHTS, "bias": W(8), "groups": 2}
NORM = {"input": X(1, 3, 2, 2), "weight": W(3), "bias": W(3), "running_mean": W(3), "running_var": W(3, offset=2.0)}
# Operator -> arguments. An overload stands behind a point; what is behind a space only makes a name unique.
CASES: dict[str, dict[str, Any]] = {
    **{name: {"self": X(2, 4, scale=0.5, offset=MOVED.get(name, 0.0) + 0.1)} for name in ALL.split()},
    **{name: {"self": X(2, 3, offset=2.0), "other": X(3, scale=0.9, offset=2.0)} for name in PAIRS.split()},
    "dropout": {"input": X(2, 3), "p": 0.5, "train": False},
    "pow": {"self": X(2, 3, offset=2.0), "exponent": 2},
    "add alpha": {"self": X(2, 3), "other": 2, "alpha": 3},
    "mul.Tensor int": {"self": X(2, 3, dtype="int32", scale=9), "other": 0.5},
    "elu alpha": {"self": X(2, 3), "alpha": 0.5},
    "gelu tanh": {"self": X(2, 3), "approximate": "tanh"},
    "leaky_relu slope": {"self": X(2, 3), "negative_slope": 0.2},
    "hardtanh bounds": {"self": X(2, 3), "min_val": -0.5, "max_val": 0.25},
    "clamp": {"self": X(2, 3), "min": -0.5, "max": 0.25},
    "clamp one": {"self": X(2, 3), "max": 0.25},
    "clamp_min": {"self": X(2, 3), "min": 0.5},
    "clamp_max": {"self": X(2, 3), "max": 0.5},
    **{f"logical_{k}": {"self": X(2, 3, dtype="bool"), "other": X(3, dtype="bool")} for k in ("and", "or", "xor")},
    "logical_not": {"self": X(2, 3, dtype="bool")},
    "bitwise_not": {"self": X(2, 3, dtype="int32", scale=9)},
    "where": {"condition": X(2, 3, dtype="bool"), "self": X(2, 3, offset=1), "other": X(1, 3)},
    "conv2d": {**CONV, "stride": [2, 2], "padding": [1, 1]},
    "conv2d.padding": {**CONV, "padding": "same"},
    "conv2d bare": {"input": IMAGE, "weight": W(4, 4, 3, 2)},
    "conv1d": {"input": X(1, 4, 9), "weight": W(6, 4, 3), "stride": [2], "padding": [1]},
    "convolution": {**CONV, "stride": [1, 1], "padding": [0, 0], "dilation": [2, 2], "transposed": False,
                    "output_padding": [0, 0]},
    "conv_transpose2d.input": {"input": X(1, 4, 3, 4), "weight": W(4, 3, 3, 3), "stride": [2, 2], "padding": [1, 1],
                               "output_padding": [1, 1]},
    "conv_transpose1d": {"input": X(1, 4, 5), "weight": W(4, 3, 3), "stride": [2]},
    "max_pool2d": {"self": IMAGE, "kernel_size": [2, 2]},
    "max_pool2d ceil": {"self": IMAGE, "kernel_size": [3, 3], "stride": [2, 2], "ceil_mode": True},
    "max_pool2d_with_indices": {"self": IMAGE, "kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]},
    "max_pool1d": {"self": X(1, 2, 9), "kernel_size": [2], "dilation": [2]},
    "avg_pool2d": {"self": IMAGE, "kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]},
    "avg_pool2d own": {"self": IMAGE, "kernel_size": [3], "padding": [1], "count_include_pad": False},
    "avg_pool1d": {"self": X(1, 2, 9), "kernel_size": [3]},
    **{f"{p}adaptive_avg_pool2d": {"self": X(1, 2, 6, 4), "output_size": [3, 1]} for p in ("", "_")},
    "adaptive_avg_pool1d": {"self": X(1, 2, 6), "output_size": [2]},
    "adaptive_max_pool2d": {"self": X(1, 2, 6, 4), "output_size": [3, 2]},
    "linear": {"input": X(2, 2, 5), "weight": W(3, 5), "bias": W(3)},
    "linear computed": {"input": X(2, 5), "weight": X(3, 5), "bias": X(3)},
    "addmm": {"self": W(4), "mat1": X(2, 3), "mat2": W(3, 4)},
    "addmm factors": {"self": W(4), "mat1": X(2, 3), "mat2": W(3, 4), "beta": 0.5, "alpha": 2},
    "mm": {"self": X(2, 3), "mat2": W(3, 4)},
    "bmm": {"self": X(2, 3, 4), "mat2": X(2, 4, 2)},
    "matmul": {"self": X(2, 3, 4), "other": X(4)},
    "batch_norm": {**NORM, "training": False, "momentum": 0.1, "eps": 1e-3, "cudnn_enabled": True},
    "_native_batch_norm_legit_no_training": {**NORM, "momentum": 0.1, "eps": 1e-3},
    "layer_norm": {"input": X(2, 3, 4), "normalized_shape": [3, 4], "weight": W(3, 4), "bias": W(3, 4)},
    "layer_norm bare": {"input": X(2, 3, 4), "normalized_shape": [4]},
    "native_layer_norm": {"input": X(2, 4), "normalized_shape": [4], "weight": W(4), "bias": W(4), "eps": 1e-5},
    "group_norm": {"input": X(1, 4, 3), "num_groups": 2, "weight": W(4), "bias": W(4)},
    "mean": {"self": X(2, 3)},
    "mean.dim": {"self": X(2, 3, 4), "dim": [-1, 0], "keepdim": True},
    "sum.dim_IntList": {"self": X(2, 3, 4), "dim": [1]},
    "amax": {"self": X(2, 3, 4), "dim": [1, 2]},
    "amin": {"self": X(2, 3, 4), "dim": [0], "keepdim": True},
    "max": {"self": X(2, 3)},
    "max.dim": {"self": X(2, 3, 4), "dim": 1},
    "min.dim": {"self": X(2, 3, 4), "dim": -1, "keepdim": True},
    "argmax": {"self": X(2, 3)},
    "argmin": {"self": X(2, 3, 4), "dim": 1, "keepdim": True},
    **{n: {"self": X(2, 3, 2), "dim": 1} for n in ("softmax.int", "log_softmax.int")},
    **{n: {"self": X(2, 3), "dim": -1, "half_to_float": False} for n in ("_softmax", "_log_softmax")},
    **{n: {"self": X(2, 3, 4), "size": [6, -1]} for n in ("view", "_unsafe_view")},
    "reshape": {"self": X(2, 3, 4), "shape": [4, 6]},
    "flatten.using_ints": {"self": X(2, 3, 4), "start_dim": 1},
    "unflatten.int": {"self": X(2, 6), "dim": 1, "sizes": [3, 2]},
    "squeeze.dim": {"self": X(2, 1, 3), "dim": 1},
    "unsqueeze": {"self": X(2, 3), "dim": -1},
    "to.dtype": {"self": X(2, 3, scale=9), "dtype": "torch.int32"},
    "_to_copy": {"self": X(2, 3, dtype="bool"), "dtype": "torch.float32"},
    "type_as": {"self": X(2, 3, dtype="int32", scale=9), "other": X(1)},
    "permute": {"self": X(2, 3, 4), "dims": [2, 0, -2]},
    "transpose.int": {"self": X(2, 3, 4), "dim0": 0, "dim1": -1},
    "t": {"self": X(2, 3)},
    "cat": {"tensors": [X(2, 3), W(2, 1)], "dim": -1},
    "stack": {"tensors": [X(2, 3), X(2, 3, offset=1)], "dim": 1},
    "flip": {"self": X(2, 3), "dims": [-1]},
    "slice.Tensor": {"self": X(3, 6), "dim": 1, "start": 1, "end": 9223372036854775807, "step": 2},
    "select.int": {"self": X(3, 4), "dim": -1, "index": -2},
    "split.Tensor": {"self": X(2, 5), "split_size": 2, "dim": -1},
    "split_with_sizes": {"self": X(5, 2), "split_sizes": [1, 4]},
    "chunk": {"self": X(2, 6), "chunks": 3, "dim": 1},
    "unbind.int": {"self": X(2, 3), "dim": 1},
    "expand": {"self": X(2, 1, 3), "size": [-1, 4, -1]},
    "expand_as": {"self": X(3), "other": X(2, 3)},
    "repeat": {"self": X(2, 3), "repeats": [2, 3]},
    "constant_pad_nd": {"self": X(2, 3), "pad": [1, 2, 0, 1], "value": 0.5},
    "constant_pad_nd cut": {"self": X(2, 5), "pad": [-1, 1]},
    "pad": {"self": X(1, 2, 3), "pad": [1, 2], "mode": "reflect"},
    "pad edge": {"self": X(1, 2, 3), "pad": [1, 2], "mode": "replicate"},
    "upsample_nearest2d": {"self": X(1, 2, 3, 2), "output_size": [5, 4]},
    "pixel_shuffle": {"self": X(1, 8, 2, 3), "upscale_factor": 2},
    "embedding": {"weight": W(5, 3), "indices": X(2, 2, dtype="int64", scale=1.9, offset=2.0)},
    "index_select": {"self": X(2, 4), "dim": 1, "index": W(3, dtype="int64", scale=1.4, offset=1.5)},
    "full": {"size": [2, 3], "fill_value": 2.5},
    "full_like": {"self": X(2, 3), "fill_value": 2.5},
    **{name: {"size": [2, 3]} for name in ("zeros", "ones")},
    **{f"{name}_like": {"self": X(2, 3)} for name in ("zeros", "ones")},
    "quantize_per_tensor": {"input": X(2, 3, scale=4), **Q},
    "quantize_per_tensor narrow": {"input": X(2, 3, scale=4), **Q, "quant_min": -127, "quant_max": 100},
    "quantize_per_tensor bytes": {"input": W(2, 3), **Q, "quant_min": 0, "quant_max": 255, "dtype": "torch.uint8"},
    "dequantize_per_tensor": {"input": X(2, 3, **INT8), **Q},
    "dequantize_per_tensor constant": {"input": W(2, 3, **INT8), **Q},
    "quantize_per_channel": {"input": W(2, 3), "scales": W(2, offset=2), "zero_points": W(2, dtype="int64", scale=4),
                             "axis": 0, "quant_min": -128, "quant_max": 127, "dtype": "torch.int8"},
    "dequantize_per_channel": {"input": W(2, 3, **INT8), "scales": W(2, offset=2), "axis": 0, "quant_min": -128,
                               "zero_points": W(2, dtype="int64", scale=4), "quant_max": 127, "dtype": "torch.int8"},
}  # fmt: skip
FIRST_ALONE = ("max_pool2d_with_indices", "adaptive_max_pool2d", "_native_batch_norm_legit_no_training")


def library(case: str) -> str:
    """The operator's name in the file, without its overload."""
    name = case.split()[0].split(".")[0]
    return f"quantized_decomposed.{name}" if "quantize_per" in name else f"aten.{name}"


def target(case: str) -> str:
    return f"torch.ops.{library(case)}.{[*case.split()[0].split('.'), 'default'][1]}"


def _argument(value: Any, names: dict[int, str]) -> dict[str, Any]:
    if isinstance(value, T):
        return {"as_tensor": {"name": names[id(value)]}}
    if isinstance(value, str) and value.startswith("torch."):
        return {"as_scalar_type": TYPES[value.removeprefix("torch.")]}
    if isinstance(value, list) and isinstance(value[0], T):
        return {"as_tensors": [{"name": names[id(one)]} for one in value]}
    kinds = {bool: "as_bool", int: "as_int", float: "as_float", str: "as_string", list: "as_ints"}
    return {kinds[type(value)]: value}


def meta(dtype: str, shape: tuple[int, ...]) -> dict[str, Any]:
    steps = [int(np.prod(shape[d + 1 :], dtype=int)) for d in range(len(shape))]
    strides, sizes = ([{"as_int": n} for n in numbers] for numbers in (steps, shape))
    return {"dtype": TYPES[dtype], "sizes": sizes, "strides": strides, "storage_offset": {"as_int": 0}, "layout": 7}


Results = list[tuple[str, tuple[int, ...]]]


def program(case: str, results: Results) -> tuple[dict[str, Any], dict[str, Array]]:
    """The exported program of one operator, with the types of its results, and its parameters."""
    values = [v for value in CASES[case].values() for v in (value if isinstance(value, list) else [value])]
    tensors = {id(v): v for v in values if isinstance(v, T)}
    names = {key: f"{'p_' if t.parameter else ''}t{i}" for i, (key, t) in enumerate(tensors.items())}
    outputs = [f"y{i}" for i in range(len(results))]
    several = {"as_tensors": [{"name": name} for name in outputs]}
    parts = library(case).split(".")[1] in ("split", "split_with_sizes", "chunk", "unbind")
    node = {
        "target": target(case), "name": "one", "metadata": {},
        "inputs": [{"name": n, "arg": _argument(v, names), "kind": 1} for n, v in CASES[case].items()],
        "outputs": [several] if parts else [{"as_tensor": {"name": name}} for name in outputs],
    }  # fmt: skip
    values_of = {names[key]: meta(t.dtype, t.shape) for key, t in tensors.items()}
    values_of |= {name: meta(*result) for name, result in zip(outputs, results, strict=True)}
    specs = [
        {"parameter": {"arg": {"name": names[k]}, "parameter_name": names[k]}}
        if t.parameter
        else {"user_input": {"arg": {"as_tensor": {"name": names[k]}}}}
        for k, t in tensors.items()
    ]
    used = outputs[:1] if case in FIRST_ALONE else outputs
    ends = [{"user_output": {"arg": {"as_tensor": {"name": name}}}} for name in used]
    graph = {"inputs": [], "outputs": [], "nodes": [node], "tensor_values": values_of}
    module = {"graph": graph, "signature": {"input_specs": specs, "output_specs": ends}}
    data = {names[key]: t.data for key, t in tensors.items() if t.parameter}
    return {"graph_module": module, "schema_version": {"major": 8, "minor": 20}}, data


def archive(
    program: Any, weights: dict[str, Array], compression: int = zipfile.ZIP_STORED, more: Mapping[str, bytes] = EMPTY
) -> bytes:
    """The bytes of a .pt2 file; `more`: further files by their names in the archive."""
    config = {
        name: {"path_name": name, "use_pickle": False, "tensor_meta": meta(str(data.dtype), data.shape)}
        for name, data in weights.items()
    }
    files = {f"data/weights/{name}": data.tobytes() for name, data in weights.items()}
    files |= {"data/weights/model_weights_config.json": json.dumps({"config": config}).encode()}
    files |= {"models/model.json": json.dumps(program).encode(), "archive_format": b"pt2", "byteorder": b"little"}
    files |= more
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", compression) as zipped:
        for name, data in files.items():
            zipped.writestr(f"m/{name}", data)
    return whole.getvalue()


def judged() -> dict[str, list[list[Any]]]:
    """By case, torch's results: type, shape, elements."""
    return dict(json.loads(OUTPUTS.read_text()))


def main() -> None:
    import torch
    import torch.ao.quantization.fx._decomposed

    def given(value: Any) -> Any:
        if isinstance(value, list):
            return [given(one) for one in value]
        if isinstance(value, str) and value.startswith("torch."):
            return getattr(torch, value.removeprefix("torch."))
        return torch.from_numpy(value.data) if isinstance(value, T) else value

    lines = []
    for case, arguments in CASES.items():
        operator: Any = torch.ops
        for part in target(case).split(".")[2:-1]:
            operator = getattr(operator, part)
        output = operator(**{name: given(value) for name, value in arguments.items()})
        results = [output] if isinstance(output, torch.Tensor) else list(output)
        rows = [[str(y.dtype).removeprefix("torch."), list(y.shape), np.ravel(y.numpy()).tolist()] for y in results]
        rounded = [[d, s, [float(f"{v:.7g}") if isinstance(v, float) else v for v in data]] for d, s, data in rows]
        lines.append(f"{json.dumps(case)}: {json.dumps(rounded)}")
    OUTPUTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
