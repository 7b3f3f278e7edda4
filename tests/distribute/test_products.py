"""Products of a cluster: C of every device, run together, against one device."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgebuild.base.artifacts import publish
from edgebuild.base.errors import EdgebuildError, fail
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import firmware_support, hal_dir
from edgebuild.cli import main
from edgebuild.model.cluster import products
from edgebuild.model.cluster.products import BuiltCluster, ClusterRequest, build_cluster
from edgebuild.model.compile import compile_model
from edgebuild.model.ops import fixedpoint
from edgebuild.model.verify import cluster as together
from edgebuild.model.verify.relay import unharmed
from edgebuild.model.verify.vectors import random_inputs
from tests.fuzz.networks import WRITERS, recipes
from tests.zoo.others import svdf_spotter

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"
MEDIA = {"star": "kind: star", "bus": "kind: bus, broadcast: true", "switch": "kind: switch"}


def cluster_file(
    folder: Path,
    n: int,
    flash: str = "4K",
    medium: str = "star",
    source: int = 0,
    target: str = "host",
    ram: str = "16K",
) -> Path:
    targets = target.split()
    rows = [f"- {{name: d{k}, target: {targets[k % len(targets)]}, flash: {flash}, ram: {ram}}}" for k in range(n)]
    text = f"source: d{source}\nmedium: {{{MEDIA[medium]}, bits_per_s: 3e6, message_us: 20}}\n"
    file = folder / f"c{n}{medium}.yaml"
    file.write_text("devices:\n" + "\n".join(rows) + "\n" + text)
    return file


@pytest.mark.parametrize("target", ["host", "mps2-an386"])
def test_a_cluster_of_one_gets_the_files_of_the_model(tmp_path: Path, target: str) -> None:
    file = cluster_file(tmp_path, 1, flash="64K", target=target)
    built = build_cluster(ClusterRequest(DIGITS, file, "digits"))
    assert built.parts[0].artifacts == compile_model(ModelRequest(DIGITS, "digits", target))


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    request = ClusterRequest(DIGITS, cluster_file(tmp_path, 3), "digits")
    assert build_cluster(request).artifacts == build_cluster(request).artifacts


@pytest.mark.needs("gcc", "clang")
@pytest.mark.parametrize("method", ["joint", "owp"])
def test_products_compile_without_a_warning(tmp_path: Path, method: str) -> None:
    built = build_cluster(ClusterRequest(DIGITS, cluster_file(tmp_path, 3), "digits", method=method))
    publish(built.artifacts, tmp_path)
    files = [f"{part.name}.c" for part in built.parts]
    files += [str(hal_dir() / "src" / name) for name in ("cluster.c", "link_relay.c")]
    flags = ["-std=c11", "-ffreestanding", "-Wall", "-Wextra", "-Werror", "-O2", "-I.", f"-I{hal_dir() / 'include'}"]
    for compiler in ("gcc", "clang"):
        subprocess.run([compiler, *flags, "-c", *files], cwd=tmp_path, check=True)


@pytest.mark.one_in(6)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize(
    ("method", "n", "medium"),
    [
        *[("joint", 2, "bus"), ("owp", 3, "star"), ("fdto", 4, "switch"), ("paper", 2, "switch")],
        *[("pipeline", 3, "star"), ("pipeline", 2, "bus")],
    ],
)
def test_together_they_are_one_device(tmp_path: Path, method: str, n: int, medium: str) -> None:
    file = cluster_file(tmp_path, n, "4K" if method in ("joint", "pipeline") else "16K", medium, source=n - 1)
    result = together.verify_cluster(ClusterRequest(DIGITS, file, "digits", method=method))
    assert result["equal"] and result["as_planned"] and result["messages"]


@pytest.mark.one_in(4)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("form", "seed"), [("tflite", 11), ("qdq", 12), ("float", 13)])
def test_random_networks(tmp_path: Path, form: str, seed: int) -> None:
    (recipe,) = recipes(seed, 1, [form])
    model = tmp_path / f"network.{'tflite' if form == 'tflite' else 'onnx'}"
    model.write_bytes(WRITERS[form].write(recipe))
    file = cluster_file(tmp_path, 3, "1M", medium="bus" if seed % 2 else "star", source=1, ram="1M")
    result = together.verify_cluster(ClusterRequest(model, file, "net", method="owp"))
    assert result["equal"] and result["as_planned"]


@pytest.mark.needs("gcc")
def test_what_all_devices_compute_alike_and_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One device is judged by the reference: factors that are 1 % off everywhere make the cluster equal to it."""
    right = fixedpoint.quantize_multiplier
    monkeypatch.setattr(fixedpoint, "quantize_multiplier", lambda real: right(real * 1.01))
    request = ClusterRequest(DIGITS, cluster_file(tmp_path, 2), "digits")
    result = together.verify_cluster(request, judge_one=True)
    assert result["equal_to_one"] and not result["one_device"]["equal"] and not result["equal"]


@pytest.mark.needs("gcc")
def test_a_cluster_reads_the_model_as_one_device_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes that the file leaves open, an input that is bound, an output inside."""
    file = tmp_path / "open.onnx"
    weights = onnx.numpy_helper.from_array(np.random.default_rng(1).standard_normal((8, 6)).astype(np.float32), "w")
    nodes = [("MatMul", ["x", "w"], "m"), ("Mul", ["m", "gain"], "y"), ("Exp", ["y"], "z")]
    ports = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)
             for n, s in (("x", ["n", 8]), ("gain", [1]), ("z", ["n", 6]))]  # fmt: skip
    graph = onnx.helper.make_graph([onnx.helper.make_node(k, i, [o]) for k, i, o in nodes], "g", ports[:2], ports[2:],
                                   [weights])  # fmt: skip
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), file)
    cluster = cluster_file(tmp_path, 2, "1M", ram="1M")
    words = ["--cluster", str(cluster), "--shape", "x=3,8", "--bind", "gain=2", "--outputs", "y"]
    assert main(["verify", str(file), *words]) == 0
    assert "one device: equal to the reference, judged by onnxruntime" in capsys.readouterr().out
    assert main(["distribute", str(file), *words, "--name", "net", "-o", str(tmp_path / "made")]) == 0
    report = json.loads((tmp_path / "made" / "net_report.json").read_text())
    assert [p["name"] for p in report["inputs"]] == ["x"] and [p["shape"] for p in report["outputs"]] == [[3, 6]]


@pytest.mark.needs("gcc")
def test_a_network_that_remembers(tmp_path: Path) -> None:
    """States last from one inference to the next, at the source."""
    model = tmp_path / "svdf.tflite"
    model.write_bytes(svdf_spotter(0))
    result = together.verify_cluster(
        ClusterRequest(model, cluster_file(tmp_path, 2, "1M", ram="1M"), "net", method="owp")
    )
    assert result["equal"] and result["as_planned"] and result["messages"]


@pytest.mark.one_in(2)
@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm", "riscv64-unknown-elf-gcc", "qemu-system-riscv32", "gcc")
@pytest.mark.parametrize("n", [2, 4])
def test_in_simulators_of_two_kinds(tmp_path: Path, n: int) -> None:
    file = cluster_file(tmp_path, n, "16K", target="mps2-an386 riscv-virt", source=1)
    result = together.verify_cluster(ClusterRequest(DIGITS, file, "digits", method="owp"), simulate="qemu")
    assert result["equal"] and result["as_planned"] and result["messages"]


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("seed", "n"), [(1, 2), (3, 3)])
def test_faults_end_in_a_code_and_the_next_inference_works(tmp_path: Path, seed: int, n: int) -> None:
    file = cluster_file(tmp_path, n, "16K")
    request = ClusterRequest(DIGITS, file, "digits", method="owp")
    faults = together.verify_cluster(request, disturbed=(seed, 60))["faults"]
    assert faults["injected"] == 60 and sum(faults["codes"].values()) == 60
    assert (faults["wrong"], faults["hangs"], faults["not_recovered"]) == (0, 0, 0), faults
    assert len(faults["codes"]) > 2  # they did harm
    assert faults["kinds"]["restarted"] and faults["kinds"]["returned"]


IN_A_ROW = """\
devices:
- {name: d0, target: host, flash: 100, ram: 16K}
- {name: d1, target: host, flash: 5000, ram: 16K}
- {name: d2, target: host, flash: 5000, ram: 16K}
source: d0
medium: {kind: switch, bits_per_s: 3e6, message_us: 20}
"""


@pytest.mark.needs("gcc")
def test_devices_that_hear_nothing_of_the_source_recover_too(tmp_path: Path) -> None:
    """One waits only for others, and learns late that an inference has ended: the rest must not give up meanwhile."""
    file = tmp_path / "cluster.yaml"
    file.write_text(IN_A_ROW)
    request = ClusterRequest(DIGITS, file, "net")
    built = build_cluster(request)
    fed = {k for m in built.messages if m.transfer.sender == built.source for k in m.transfer.receivers}
    assert {p.number for p in built.parts} - fed - {built.source}
    faults = together.verify_cluster(request, disturbed=(1, 40))["faults"]
    assert faults["injected"] == 40 and (faults["wrong"], faults["hangs"], faults["not_recovered"]) == (0, 0, 0), faults


@pytest.mark.needs("gcc")
def test_firmware_of_two_plans_is_refused(tmp_path: Path) -> None:
    def built(folder: str, method: str) -> tuple[BuiltCluster, dict[int, list[str]]]:
        request = ClusterRequest(DIGITS, cluster_file(tmp_path, 2, "16K"), "model", method=method)
        cluster = build_cluster(request)
        programs = {p.number: together.program(p, tmp_path / folder / f"dev{p.number}", cluster) for p in cluster.parts}
        return cluster, programs

    cluster, one = built("one", "owp")
    _, other = built("other", "fdto")
    report = together.report_of(cluster.parts[0].artifacts)
    run = together.Run(cluster, {0: one[0], 1: other[1]}, tmp_path / "one", report)
    vectors = random_inputs(DIGITS, report, 2)
    assert run.all(vectors, unharmed).codes == [3, 3]  # EB_LINK_PLAN
    assert replace(run, programs=one).all(vectors, unharmed).codes == [0, 0]


def test_the_objective_may_be_in_the_file(tmp_path: Path) -> None:
    file = cluster_file(tmp_path, 2, "16K")
    asked = build_cluster(ClusterRequest(DIGITS, file, "digits", objective="latency"))
    file.write_text(file.read_text() + "objective: latency\n")
    read = build_cluster(ClusterRequest(DIGITS, file, "digits"))
    assert read.report["objective"] == "latency" and read.artifacts == asked.artifacts
    file.write_text(file.read_text().replace("latency", "speed"))
    with pytest.raises(EdgebuildError, match=":6:12: error: unknown word 'speed'"):
        build_cluster(ClusterRequest(DIGITS, file, "digits"))


@pytest.mark.needs("arm-none-eabi-gcc", "arm-none-eabi-size")
def test_flash_may_hold_code_too(tmp_path: Path) -> None:
    """The code that is reckoned with is no less than the compiler makes, and with the weights it fits."""
    file = cluster_file(tmp_path, 2, "12K", target="mps2-an386")
    file.write_text(file.read_text() + "flash_holds: products\n")
    built = build_cluster(ClusterRequest(DIGITS, file, "digits"))
    publish((*built.artifacts, *firmware_support(built.parts[0].target)), tmp_path)
    tools = built.parts[0].target.toolchain
    for part, row in zip(built.parts, built.report["devices"], strict=True):
        assert row["weights_bytes"] + row["code_bytes"] <= 12 << 10
        objects = []
        for source in (f"{part.name}.c", str(hal_dir() / "src" / "cluster.c")):
            objects.append(f"{part.name}_{Path(source).stem}.o")
            words = [tools.compiler, *tools.cflags, "-I.", f"-I{hal_dir() / 'include'}", "-c", "-o", objects[-1]]
            subprocess.run([*words, source], cwd=tmp_path, check=True, timeout=60)
        printed = subprocess.run(["arm-none-eabi-size", *objects], cwd=tmp_path, check=True, timeout=60,
                                 capture_output=True, text=True).stdout  # fmt: skip
        text = sum(int(line.split()[0]) for line in printed.splitlines()[1:])
        assert text <= row["code_bytes"] <= 2 * text
    file.write_text(file.read_text().replace("12K", "6K"))
    with pytest.raises(EdgebuildError, match="code about"):
        build_cluster(ClusterRequest(DIGITS, file, "digits"))


def test_a_device_whose_products_do_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(EdgebuildError, match=r"device 'd0': weights \d+ B, flash 2900 B|no plan"):
        build_cluster(ClusterRequest(DIGITS, cluster_file(tmp_path, 2, "2900"), "digits"))


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = cluster_file(tmp_path, 2)
    words = ["distribute", str(DIGITS), "--cluster", str(file), "--name", "digits", "-o", str(tmp_path)]
    assert main(words) == 0
    report = json.loads((tmp_path / "digits_cluster.json").read_text())
    assert [d["files"] for d in report["devices"]] == ["digits", "digits_dev1"]
    assert all(d["weights_bytes"] <= 4096 for d in report["devices"])
    assert report["wire"]["frame_bytes"] == sum(m["bytes"] + 28 for m in report["messages"]) + 3 * 24
    front = report["pareto"]
    assert front and front == sorted(front, key=lambda p: p["weights_bytes"])
    assert front[-1]["traffic_bytes"] == 0  # all of it on one device
    rising = [p["traffic_bytes"] for p in front]
    assert len(set(rising)) > 1
    assert "DIGITS_PLAN_HASH 0x" + report["plan_hash"][:8] in (tmp_path / "digits_cluster.h").read_text()
    with pytest.raises(SystemExit, match="2"):
        main(["verify", str(DIGITS)])


def test_a_plan_that_comes_again_is_left_for_one_that_takes_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products one byte too large, whatever the plan, until device 0 holds a good deal less than the first gave it."""
    planned: list[int] = []

    def built(*given: Any) -> BuiltCluster:
        planned.append(given[3]["devices"][0]["weights_bytes"])
        if planned[-1] > planned[0] - 100:
            raise products._Over({0: (1, 0)}, fail("one byte too many"))
        return original(*given)

    original = products._built
    monkeypatch.setattr(products, "_built", built)
    build_cluster(ClusterRequest(DIGITS, cluster_file(tmp_path, 2, flash="64K"), "digits"))
    assert planned[-1] <= planned[0] - 100
    assert len(set(planned)) > 1 and len(planned) <= products.ATTEMPTS
