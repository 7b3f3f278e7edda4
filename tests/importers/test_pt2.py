"""Exported programs of PyTorch (.pt2): every operator against torch's own results, and archives of anybody."""

from __future__ import annotations

import copy
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.cli import main
from edgebuild.model import ops
from edgebuild.model.formats import pt2, read_model
from edgebuild.model.formats.pt2.aten import READERS
from edgebuild.model.ir import Array, Graph, Tensor, real_values
from edgebuild.model.passes.canonicalize import canonicalize
from tests.graphs.pt2_models import CASES, FIRST_ALONE, T, archive, judged, library, program

JUDGED = judged()
Change = Callable[[dict[str, Any]], Any]


def written(case: str, path: Path) -> Path:
    results = [(dtype, tuple(shape)) for dtype, shape, _ in JUDGED[case]]
    path.write_bytes(archive(*program(case, results)))
    return path


def inputs(case: str) -> list[Array]:
    values = [v for value in CASES[case].values() for v in (value if isinstance(value, list) else [value])]
    return [v.data for v in {id(v): v for v in values if isinstance(v, T)}.values() if not v.parameter]


def outputs(graph: Graph, given: list[Array]) -> list[Tensor]:
    """Results by the ops' meanings, as constants; inputs with a scale go in as the firmware stores them."""
    stored = []
    for name, value in zip(graph.ports_in, given, strict=True):
        if (quant := graph.tensors[name].quant) is not None and value.dtype.kind == "f":
            value = np.clip(np.rint(value / quant.scale[0]) + quant.zero_point[0], -128, 127).astype("int8")
        stored.append(value)
    values = ops.run(graph, *stored)
    return [replace(graph.tensors[name], data=values[name]) for name in graph.ports_out]


@pytest.mark.parametrize("case", CASES)
def test_every_operator_gives_what_torch_gives(case: str, tmp_path: Path) -> None:
    graph = read_model(written(case, tmp_path / "m.pt2"))
    assert graph.format == "pt2"
    for form in (graph, canonicalize(graph)):
        for y, (dtype, shape, numbers) in zip(
            outputs(form, inputs(case)), JUDGED[case], strict=case not in FIRST_ALONE
        ):
            got = real_values(y) if dtype == "float32" else y.data
            assert got is not None and (got.dtype, got.shape) == (np.dtype(dtype), tuple(shape))
            assert np.allclose(got.ravel(), np.array(numbers, dtype), rtol=2e-5, atol=2e-6)


def test_every_operator_has_a_case() -> None:
    assert {library(case) for case in CASES} == READERS.keys()


def changed(case: str, change: Change, tmp_path: Path) -> Path:
    document, weights = program(case, [(dtype, tuple(shape)) for dtype, shape, _ in JUDGED[case]])
    document = copy.deepcopy(document)
    change(document)
    (tmp_path / "m.pt2").write_bytes(archive(document, weights))
    return tmp_path / "m.pt2"


def node(document: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = document["graph_module"]["graph"]["nodes"][0]
    return first


def with_argument(name: str, **arg: Any) -> Change:
    return lambda document: node(document)["inputs"].append({"name": name, "arg": arg, "kind": 1})


def sizes(name: str, *values: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        document["graph_module"]["graph"]["tensor_values"][name]["sizes"] = list(values)

    return change


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        ("relu", lambda m: node(m).update(target="torch.ops.aten.fft_fft.default"),
         r"node 'one' \(aten.fft_fft\): error: operator aten.fft_fft is not supported\n  edgebuild ops pt2"),
        ("relu", lambda m: node(m).update(target="torch.ops.aten.relu_.default"), "aten.relu_ is not.*exporter"),
        ("mul", with_argument("out_dtype", as_scalar_type=7), "argument out_dtype float32 is not supported"),
        ("div", with_argument("rounding_mode", as_string="floor"), "argument rounding_mode floor is not supported"),
        ("relu", sizes("y0", {"as_int": 4}, {"as_int": 2}), r"shape \(2, 4\), in the file float32 of \(4, 2\)"),
        ("relu", sizes("t0", {"as_expr": {"expr_str": "s0"}}, {"as_int": 4}), r"'t0' .*\['\?', 4\]\n.*dynamic_shapes"),
        ("relu", sizes("t0", {"as_int": 1 << 20}, {"as_int": 1 << 20}), "tensor 't0' of shape .* bytes"),
        ("dropout", lambda m: node(m)["inputs"][2].update(arg={"as_bool": True}), "drops elements at random"),
        ("batch_norm", lambda m: node(m)["inputs"][5].update(arg={"as_bool": True}), "the batch's own statistics"),
        ("adaptive_avg_pool2d", lambda m: node(m)["inputs"][1].update(arg={"as_ints": [4, 4]}), "divide the image's"),
        ("quantize_per_tensor", lambda m: node(m)["inputs"][1].update(arg={"as_float": 0.0}), "int8 of scale 0.0"),
        ("dequantize_per_tensor", lambda m: node(m)["inputs"][5].update(arg={"as_scalar_type": 7}), "float32 of scale"),
        ("conv2d", lambda m: node(m)["inputs"][1]["arg"]["as_tensor"].update(name="nobody"), "reads 'nobody'"),
        ("full", lambda m: (sizes("y0", *[{"as_int": 1 << 13}] * 2)(m)), "a constant of shape .* is too large"),
        ("relu", lambda m: node(m).update(inputs=[]), r"\(aten.relu\): error: (operand 0 is missing|cannot be read)"),
    ],
)  # fmt: skip
def test_what_is_wrong_names_the_node(
    case: str, change: Change, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pt2, "missing", lambda framework: ["torch"])
    with pytest.raises(EdgebuildError, match=f"(?s){message}"):
        read_model(changed(case, change, tmp_path))


WEIGHTS = "m/data/weights/model_weights_config.json"


def rewritten(data: bytes, path: Path, part: str, change: Callable[[Any], Any]) -> Path:
    """The archive with the JSON of a part changed."""
    (path.parent / "was.pt2").write_bytes(data)
    with zipfile.ZipFile(path.parent / "was.pt2") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == part:
                content = json.dumps(change(json.loads(content))).encode()
            new.writestr(name, content)
    return path


def weight(**values: Any) -> Callable[[Any], Any]:
    def change(config: Any) -> Any:
        own = config["config"]["p_t1"]
        own.update({k: v for k, v in values.items() if k in own})
        own["tensor_meta"].update({k: v for k, v in values.items() if k not in own})
        return config

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (weight(use_pickle=True), "is pickled"),
        (weight(path_name="../../other"), "not a valid .pt2 file: KeyError"),
        (weight(storage_offset={"as_int": -1}), "is not in its 15 elements"),
        (weight(storage_offset={"as_int": 1}), "is not in its 15 elements"),
        (weight(strides=[{"as_int": 1 << 60}, {"as_int": 1}]), "is not in its 15 elements"),
        (weight(strides=[{"as_int": -5}, {"as_int": 1}]), "is not in its 15 elements"),
        (weight(strides=[{"as_int": 0}, {"as_int": 0}], sizes=[{"as_int": 1 << 30}] * 2), "is not in its 15 elements"),
        (weight(sizes=[{"as_int": 3}]), "not a valid .pt2 file: ValueError"),
        (weight(dtype=99), "tensor 'p_t1' of type 99"),
    ],
)
def test_weights_lie_inside_of_their_storage(change: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    data = written("linear", tmp_path / "a.pt2").read_bytes()
    with pytest.raises(EdgebuildError, match=message):
        read_model(rewritten(data, tmp_path / "m.pt2", WEIGHTS, change))


def test_weights_may_share_a_storage(tmp_path: Path) -> None:
    """A transposed view of a storage: strides count, and what stands before it."""
    data = written("linear", tmp_path / "a.pt2").read_bytes()
    turned = weight(strides=[{"as_int": 1}, {"as_int": 3}])
    graph = read_model(rewritten(data, tmp_path / "m.pt2", WEIGHTS, turned))
    w = graph.tensors["p_t1"].data
    assert w is not None and w.shape == (3, 5)
    assert (w == np.frombuffer(CASES["linear"]["weight"].data.tobytes(), "f4").reshape(5, 3).T).all()


def test_archives_of_anybody_are_read_or_refused(tmp_path: Path) -> None:
    """Cut anywhere, or with any byte another: an error of ours, or a graph."""
    rng, whole = np.random.default_rng(1), written("conv2d", tmp_path / "whole.pt2").read_bytes()
    path, refused = tmp_path / "m.pt2", 0
    for turn in range(120):
        data = bytearray(whole)
        if turn % 3:
            for place in rng.integers(0, len(data), 1 + turn % 4):
                data[place] = rng.integers(256)
        else:
            del data[int(rng.integers(len(data))) :]
        path.write_bytes(data)
        try:
            read_model(path)
        except EdgebuildError:
            refused += 1
    assert refused > 40


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda parts: archive(*parts, zipfile.ZIP_DEFLATED), "compressed or too large"),
        (lambda parts: archive(*parts, more={"models/b.json": b"{}"}), "has 2 exported programs"),
        (
            lambda parts: archive(*parts).replace(b"m/models/model.json", b"m/modelz/model.json"),
            "has 0 exported programs",
        ),
        (lambda parts: archive(*parts).replace(b"little", b"bigend"), r"not a valid \.pt2 file"),
        (lambda parts: archive([[[]]], parts[1]), r"not a valid \.pt2 file"),
        (lambda parts: archive({"graph_module": 3}, parts[1]), r"not a valid \.pt2 file"),
    ],
)
def test_other_archives_are_refused(data: Callable[[Any], bytes], message: str, tmp_path: Path) -> None:
    parts = program("linear", [("float32", (2, 2, 3))])
    (tmp_path / "m.pt2").write_bytes(data(parts))
    with pytest.raises(EdgebuildError, match=message):
        read_model(tmp_path / "m.pt2")


def test_deep_json_is_refused(tmp_path: Path) -> None:
    data = archive({"a": 1}, {}).replace(b'{"a": 1}', b"[" * 8)
    (tmp_path / "m.pt2").write_bytes(data)
    with pytest.raises(EdgebuildError, match=r"not a valid \.pt2 file"):
        read_model(tmp_path / "m.pt2")


def test_a_buffer_that_changes_is_a_state(tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        signature = document["graph_module"]["signature"]
        signature["input_specs"][1] = {"buffer": {"arg": {"name": "p_t1"}, "buffer_name": "p_t1", "persistent": True}}
        mutation = {"buffer_mutation": {"arg": {"name": "y0"}, "buffer_name": "p_t1"}}
        signature["output_specs"].insert(0, mutation)

    case = CASES["add alpha"] | {"other": replace(CASES["add alpha"]["self"], parameter=True)}
    CASES["kept"], JUDGED["kept"] = case, JUDGED["add alpha"]
    try:
        document, weights = program("kept", [("float32", (2, 3))])
        node(document)["target"] = "torch.ops.aten.add.Tensor"
        change(document)
        (tmp_path / "m.pt2").write_bytes(archive(document, weights))
    finally:
        del CASES["kept"], JUDGED["kept"]
    (state,) = read_model(tmp_path / "m.pt2").states
    assert state.start is not None and (state.start == case["other"].data).all()


def test_options_of_other_formats_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written("relu", tmp_path / "m.pt2")
    for option in (["--shape", "t0=1,2"], ["--bind", "t0=1"], ["--outputs", "nobody"]):
        words = ["model", str(path), "--name", "n", "--target", "host", "-o", str(tmp_path / "out"), *option]
        assert main(words) == 1
        errors = capsys.readouterr().err
        assert errors.startswith("m.pt2: error: option '") and not (tmp_path / "out").exists()


def test_whole_networks_of_torch(tmp_path: Path) -> None:
    """Exported by torch itself, as they stand and decomposed."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1, stride=2), torch.nn.BatchNorm2d(8)
            self.deep, self.out = torch.nn.Conv2d(8, 8, 3, groups=8), torch.nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            x = torch.nn.functional.relu6(self.norm(self.conv(x)))
            x = torch.nn.functional.max_pool2d(self.deep(x), 2)
            return torch.softmax(self.out(torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)), -1)

    torch.manual_seed(1)
    net, x = Net().eval(), torch.randn(1, 3, 16, 16)
    exported = torch.export.export(net, (x,))
    for whole in (exported, exported.run_decompositions()):
        torch.export.save(whole, tmp_path / "m.pt2")
        (y,) = outputs(canonicalize(read_model(tmp_path / "m.pt2")), [x.numpy()])
        assert np.allclose(y.data, net(x).detach().numpy(), atol=1e-5)
