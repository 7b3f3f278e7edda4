"""Networks that remember: sequences of inferences against TFLite Micro's interpreter, which keeps its variables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.ir import Quant
from edgebuild.model.plan.search import arena_memories
from edgebuild.model.verify import verify
from tests.graphs.tflite_models import File
from tests.importers.test_loops import packed

RNG = np.random.default_rng(5)
FEATURES, FILTERS, MEMORY, RANK = 12, 8, 5, 2


def svdf(integer: str, state_type: str) -> bytes:
    """One SVDF; `integer` is float32 or int8."""
    f, real = File(), integer == "float32"

    def quant(scale: float, zero: int = 0) -> Quant | None:
        return None if real else Quant((float(np.float32(scale)),), (zero,))

    def values(shape: tuple[int, ...], dtype: str, most: int) -> np.ndarray:
        return (RNG.standard_normal(shape) if real else RNG.integers(-most, most + 1, shape)).astype(dtype)

    x = f.tensor("x", (1, FEATURES), integer, quant(0.05, -7))
    w = values((FILTERS, FEATURES), integer, 127)
    wide = "float32" if real else state_type
    t = values((FILTERS, MEMORY), wide, 127 if state_type == "int8" else 3000)
    b = values((FILTERS // RANK,), "float32" if real else "int32", 2000)
    state_scale, time_scale = (0.004, 0.0001) if state_type == "int16" else (0.3, 0.01)
    weights = [
        f.tensor("w", w.shape, integer, quant(0.01), w),
        f.tensor("t", t.shape, wide, quant(time_scale), t),
        f.tensor("b", b.shape, str(b.dtype), quant(state_scale * time_scale), b),
    ]
    state = f.tensor("state", (1, FILTERS * MEMORY), wide, quant(state_scale))
    f.tensors[state].isVariable = True
    y = f.tensor("y", (1, FILTERS // RANK), integer, quant(0.03, -128))
    options = schema.SVDFOptionsT()
    options.rank, options.fusedActivationFunction = RANK, 1
    f.operator("SVDF", [x, *weights, state], [y], options)
    return f.pack([x], [y])


def verified(model: Path, target: str = "host") -> dict[str, object]:
    artifacts = compile_model(model_request(model, "model", target, {}))
    report = json.loads(next(a.data for a in artifacts if a.name == "model_report.json"))
    header = next(a.data for a in artifacts if a.name == "model.h").decode()
    assert "void model_reset(void);" in header
    return {**verify(model, load_target(target), artifacts), "state_bytes": report["state_bytes"]}


def test_a_caller_with_two_arenas_is_warned_that_the_state_is_one(tmp_path: Path) -> None:
    """Arenas of two threads would share it, so the header does not say that they may run at once."""
    (model := tmp_path / "svdf.tflite").write_bytes(svdf("int8", "int8"))
    artifacts = compile_model(model_request(model, "model", "host", {"arena": "caller"}))
    header = next(a.data for a in artifacts if a.name == "model.h").decode()
    assert "void model_invoke(void *arena);" in header and "One inference at a time." in header


FORMS: dict[str, Callable[[], bytes]] = {
    "float": lambda: svdf("float32", "float32"),
    "int8, state int16": lambda: svdf("int8", "int16"),
    "int8, state int8": lambda: svdf("int8", "int8"),
}


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("form", FORMS)
def test_svdf(form: str, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(FORMS[form]())
    result = verified(tmp_path / "m.tflite")
    assert result["equal"], result
    assert result["state_bytes"] == FILTERS * MEMORY * {"float": 4, "int8, state int16": 2, "int8, state int8": 1}[form]


def remembering(start: np.ndarray | None, zero: int = 0) -> bytes:
    """The sum of the input and what was: sum = x + old; old = sum. `start`: what it is at first."""
    f, init = File(), File()
    shape, q = (1, 6), Quant((0.5,), (zero,))

    def handle(file: File) -> int:
        options = schema.VarHandleOptionsT()
        options.container, options.sharedName = b"", b"memory"
        resource = file.tensor("handle", (), "resource")
        file.operator("VAR_HANDLE", [], [resource], options)
        return resource

    x, old, y = f.tensor("x", shape, "int8", q), f.tensor("old", shape, "int8", q), f.tensor("y", shape, "int8", q)
    if start is not None:
        once = schema.CallOnceOptionsT()
        once.initSubgraphIndex = 1
        f.operator("CALL_ONCE", [], [], once)
        init.buffers = f.buffers
        value = init.tensor("first", shape, "int8", q, start)
        init.operator("ASSIGN_VARIABLE", [handle(init), value], [], schema.AssignVariableOptionsT())
    resource = handle(f)
    f.operator("READ_VARIABLE", [resource], [old], schema.ReadVariableOptionsT())
    f.operator("ADD", [x, old], [y], schema.AddOptionsT())
    f.operator("ASSIGN_VARIABLE", [resource, y], [], schema.AssignVariableOptionsT())
    return f.pack([x], [y], [init] if start is not None else [])


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("zero", [0, 37])
@pytest.mark.parametrize("start", [None, np.arange(-30, 30, 10, np.int8).reshape(1, 6)], ids=["zeros", "call once"])
def test_variables(start: np.ndarray | None, zero: int, tmp_path: Path) -> None:
    """Without a first value a variable is real zero, which is stored as the zero point."""
    (tmp_path / "m.tflite").write_bytes(remembering(start, zero))
    result = verified(tmp_path / "m.tflite")
    assert result["equal"], result
    assert result["state_bytes"] == 6


def real_memory(alone: bool) -> bytes:
    """An int8 network around a variable of real numbers, as the converter quantises one: old is read in other steps.

    `alone`: nothing else reads the sum that is dequantised into the variable.
    """
    f, shape = File(), (1, 6)
    options = schema.VarHandleOptionsT()
    options.container, options.sharedName = b"", b"memory"
    handle = f.tensor("handle", (), "resource")
    f.operator("VAR_HANDLE", [], [handle], options)
    x, was, y = (f.tensor(n, shape, "int8", Quant(*q)) for n, q in
                 (("x", ((0.05,), (3,))), ("was", ((0.06,), (-12,))), ("y", ((0.03,), (-4,)))))  # fmt: skip
    old, new = (f.tensor(name, shape, "float32") for name in ("old", "new"))
    f.operator("READ_VARIABLE", [handle], [old], schema.ReadVariableOptionsT())
    f.operator("QUANTIZE", [old], [was])
    f.operator("ADD", [x, was], [y], schema.AddOptionsT())
    total = f.tensor("total", shape, "int8", Quant((0.07,), (9,))) if alone else y
    if alone:
        f.operator("ADD", [x, was], [total], schema.AddOptionsT())
    f.operator("DEQUANTIZE", [total], [new])
    f.operator("ASSIGN_VARIABLE", [handle, new], [], schema.AssignVariableOptionsT())
    return f.pack([x], [y])


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("alone", [False, True])
def test_a_variable_of_real_numbers_stays_real(alone: bool, tmp_path: Path) -> None:
    """It was read as int8 and written as float32, or in the steps of what writes it."""
    (tmp_path / "m.tflite").write_bytes(real_memory(alone))
    result = verified(tmp_path / "m.tflite")
    assert result["equal"], result
    assert result["state_bytes"] == 24


def branching(ends_at: str, both: bool = False, first: int = 0) -> bytes:
    """old = variable; if on: total = variable + x, and that is the variable; else the ReLU of x, perhaps that, too."""
    f, yes, no, init = File(), File(), File(), File()
    yes.buffers = no.buffers = init.buffers = f.buffers
    shape, q = (1, 6), Quant((0.5,), (3,))
    options = schema.VarHandleOptionsT()
    options.container, options.sharedName = b"", b"memory"
    handles = [file.tensor("handle", () if file is init else (1,), "resource") for file in (f, yes, no, init)]
    for file, at in ((f, 0), (init, 3)):
        file.operator("VAR_HANDLE", [], [handles[at]], options)
    value = init.tensor("first", shape, "int8", q, np.full(shape, first, np.int8))
    init.operator("ASSIGN_VARIABLE", [handles[3], value], [], schema.AssignVariableOptionsT())
    once = schema.CallOnceOptionsT()
    once.initSubgraphIndex = 3
    f.operator("CALL_ONCE", [], [], once)
    given = [file.tensor("x", shape, "int8", q) for file in (f, yes, no)]
    was, results = yes.tensor("was", shape, "int8", q), [g.tensor("y", shape, "int8", q) for g in (f, yes, no)]
    yes.operator("READ_VARIABLE", [handles[1]], [was], schema.ReadVariableOptionsT())
    yes.operator("ADD", [given[1], was], [results[1]], schema.AddOptionsT())
    no.operator("RELU", [given[2]], [results[2]])
    for file, at in ((yes, 1), (no, 2)) if both else ((yes, 1),):
        file.operator("ASSIGN_VARIABLE", [handles[at], results[at]], [], schema.AssignVariableOptionsT())
    on, old = f.tensor("on", (1,), "bool"), f.tensor("old", shape, "int8", q)
    f.operator("READ_VARIABLE", [handles[0]], [old], schema.ReadVariableOptionsT())
    choice = schema.IfOptionsT()
    choice.thenSubgraphIndex, choice.elseSubgraphIndex = 1, 2
    f.operator("IF", [on, handles[0], given[0]], [results[0]], choice)
    inner = [(yes, [handles[1], given[1]], [results[1]]), (no, [handles[2], given[2]], [results[2]])]
    return packed(f, [on, given[0]], [{"y": results[0], "old": old}[ends_at]], [*inner, (init, [], [])])


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("ends_at", ["y", "old"])
def test_branches_that_assign_a_variable(ends_at: str, both: bool, tmp_path: Path) -> None:
    """The variable is handed to the branches; the IF counts where nothing reads its result, too."""
    (tmp_path / "m.tflite").write_bytes(branching(ends_at, both, 5))
    result = verified(tmp_path / "m.tflite")
    assert result["equal"], result
    assert result["state_bytes"] == 6


def test_a_first_value_that_is_computed_is_refused(tmp_path: Path) -> None:
    f, init = File(), File()
    init.buffers = f.buffers
    once = schema.CallOnceOptionsT()
    once.initSubgraphIndex = 1
    f.operator("CALL_ONCE", [], [], once)
    f.operator("RELU", [f.tensor("x", (2,), "float32")], [f.tensor("y", (2,), "float32")])
    options = schema.VarHandleOptionsT()
    options.container, options.sharedName = b"", b"memory"
    handle = init.tensor("handle", (), "resource")
    init.operator("VAR_HANDLE", [], [handle], options)
    values = [init.tensor("seed", (2,), "float32", None, np.ones(2, np.float32)), init.tensor("v", (2,), "float32")]
    init.operator("RELU", values[:1], values[1:])
    init.operator("ASSIGN_VARIABLE", [handle, values[1]], [], schema.AssignVariableOptionsT())
    (tmp_path / "m.tflite").write_bytes(f.pack([0], [1], [init]))
    with pytest.raises(EdgebuildError, match="the first value of variable ':memory' is computed"):
        prepare(tmp_path / "m.tflite")


def test_a_variable_that_is_assigned_first_is_no_state(tmp_path: Path) -> None:
    f, shape = File(), (1, 6)
    options = schema.VarHandleOptionsT()
    options.container, options.sharedName = b"", b"memory"
    handle = f.tensor("handle", (), "resource")
    f.operator("VAR_HANDLE", [], [handle], options)
    x, kept, y = (f.tensor(name, shape, "float32") for name in ("x", "kept", "y"))
    f.operator("ASSIGN_VARIABLE", [handle, x], [], schema.AssignVariableOptionsT())
    f.operator("READ_VARIABLE", [handle], [kept], schema.ReadVariableOptionsT())
    f.operator("TANH", [kept], [y])
    (tmp_path / "m.tflite").write_bytes(f.pack([x], [y]))
    artifacts = compile_model(model_request(tmp_path / "m.tflite", "model", "host", {}))
    assert not prepare(tmp_path / "m.tflite").states
    assert verify(tmp_path / "m.tflite", load_target("host"), artifacts)["equal"]


def test_a_state_is_no_further_input_to_a_message(tmp_path: Path) -> None:
    """The message told of two inputs, of which the file has one."""
    (tmp_path / "m.tflite").write_bytes(remembering(None))
    request = model_request(tmp_path / "m.tflite", "model", "host", {"stream_input": "rows"})
    with pytest.raises(EdgebuildError, match="cannot stream: the model keeps a state"):
        compile_model(request)


def streaming() -> bytes:
    """A convolution over time, a frame a call: the frames before lie in a variable, as streaming wrappers write it."""
    f, q = File(), Quant((0.04,), (-3,))
    taps, bands, out = 3, 6, 4
    options = schema.VarHandleOptionsT()
    options.container, options.sharedName = b"", b"frames"
    resource = f.tensor("handle", (), "resource")
    f.operator("VAR_HANDLE", [], [resource], options)
    x = f.tensor("x", (1, 1, 1, bands), "int8", q)
    old = f.tensor("old", (1, taps - 1, 1, bands), "int8", q)
    every, kept = (f.tensor(n, (1, s, 1, bands), "int8", q) for n, s in (("every", taps), ("kept", taps - 1)))
    f.operator("READ_VARIABLE", [resource], [old], schema.ReadVariableOptionsT())
    joined = schema.ConcatenationOptionsT()
    joined.axis = 1
    f.operator("CONCATENATION", [old, x], [every], joined)
    numbers = [np.array(v, np.int32) for v in ([0, 1, 0, 0], [1, taps, 1, bands], [1, 1, 1, 1])]
    lists = [f.tensor(f"l{i}", (4,), "int32", None, v) for i, v in enumerate(numbers)]
    f.operator("STRIDED_SLICE", [every, *lists], [kept], schema.StridedSliceOptionsT())
    f.operator("ASSIGN_VARIABLE", [resource, kept], [], schema.AssignVariableOptionsT())
    data = RNG.integers(-127, 128, (out, taps, 1, bands)).astype(np.int8)
    w = f.tensor("w", data.shape, "int8", Quant((0.01,), (0,)), data)
    bias = RNG.integers(-500, 500, out).astype(np.int32)
    b = f.tensor("b", bias.shape, "int32", Quant((0.0004,), (0,)), bias)
    y = f.tensor("y", (1, 1, 1, out), "int8", Quant((0.1,), (5,)))
    conv = schema.Conv2DOptionsT()
    conv.padding, conv.strideH, conv.strideW, conv.dilationHFactor, conv.dilationWFactor = 1, 1, 1, 1, 1
    f.operator("CONV_2D", [every, w, b], [y], conv)
    return bytes(f.pack([x], [y]))


@pytest.mark.needs("gcc")
def test_streaming_convolution(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(streaming())
    result = verified(tmp_path / "m.tflite")
    assert result["equal"], result
    assert result["state_bytes"] == 12


def test_states_take_memory_from_the_arena(tmp_path: Path) -> None:
    """They lie in .bss, beside the arena and the stack."""
    (tmp_path / "m.tflite").write_bytes(streaming())
    target, request = load_target("microbit"), model_request(tmp_path / "m.tflite", "m", "microbit", {})
    graph = prepare(tmp_path / "m.tflite")
    assert target.firmware and graph.states
    (memory,) = arena_memories(graph, target, request)
    report = json.loads(next(a.data for a in compile_model(request) if a.name == "m_report.json"))
    assert report["state_bytes"] > 0
    assert memory.capacity == target.memories[1].size - target.firmware.stack - report["state_bytes"]
