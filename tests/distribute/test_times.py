"""The time of a cluster: events by hand, and predictions against what simulators count."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from edgebuild.cli import main
from edgebuild.model.cluster.products import ClusterRequest, _Program, build_cluster
from edgebuild.model.plan.check.replay import BrokenPlan
from edgebuild.model.plan.distribute.forms import Medium
from edgebuild.model.plan.distribute.timeline import ComputeSpan, Receive, Send, simulate
from edgebuild.model.verify.cluster import verify_cluster
from edgebuild.model.verify.relay import SEND, TIME, LinkEvent, _first_starts
from tests import bench_distribute
from tests.conftest import ROOT
from tests.zoo.builders import ZOO, quantized

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"
HOST = "target: host, flash: 16K, ram: 16K"
DEVICES = f"devices: [{{name: a, {HOST}}}, {{name: b, {HOST}}}]\nsource: a\n"
SLOW = {"bits_per_s": 8e6}  # a microsecond a byte


def test_a_wait_ends_with_the_last_byte() -> None:
    timeline = simulate([[ComputeSpan(10), Send((1,), 5, 5)], [Receive(0, 5), ComputeSpan(3)]], Medium("bus", **SLOW))
    assert (timeline.end(0), timeline.end(1), timeline.stuck) == (15, 18, ())
    assert [(s.kind, s.start, s.end) for s in timeline.spans[1]] == [("wait", 0, 15), ("compute", 15, 18)]
    assert timeline.computing() == 13 and timeline.longest_wait() == 15


def test_one_sends_at_a_time_but_on_a_switch() -> None:
    programs = [[Send((2,), 10, 10)], [Send((3,), 10, 10)], [Receive(0, 10)], [Receive(1, 10)]]
    assert [simulate(programs, Medium("bus", **SLOW)).end(k) for k in (2, 3)] == [10, 20]
    assert [simulate(programs, Medium("switch", **SLOW)).end(k) for k in (2, 3)] == [10, 10]


def test_who_is_ready_first_sends_first() -> None:
    programs = [[ComputeSpan(5), Send((2,), 10, 10)], [ComputeSpan(4), Send((2,), 10, 10)], [Receive(0, 10)]]
    assert simulate(programs, Medium("bus", **SLOW)).end(2) == 24


def test_a_message_costs_for_each_frame() -> None:
    medium = Medium("bus", **SLOW, message_us=100, mtu=64)
    assert simulate([[Send((1,), 24, 128), Send((1,), 104)], [Receive(0, 128)]], medium).end(1) == 128 + 2 * 100


def test_a_broadcast_reaches_all() -> None:
    timeline = simulate([[Send((1, 2), 8, 8)], [Receive(0, 8)], [Receive(0, 8)]], Medium("bus", **SLOW))
    assert timeline.end(1) == timeline.end(2) == 8


def test_who_waits_for_nothing_is_stuck() -> None:
    assert simulate([[Send((1,), 4, 4)], [Receive(0, 8)]], Medium("bus", **SLOW)).stuck == (1,)


def test_a_prediction_that_never_ends_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.yaml").write_text(f"{DEVICES}medium: {{kind: bus, bits_per_s: 3e6}}\n")
    monkeypatch.setattr(_Program, "send", lambda *_: iter(()))
    with pytest.raises(BrokenPlan, match="wait for what nobody sends: "):
        build_cluster(ClusterRequest(DIGITS, tmp_path / "c.yaml", "digits", method="owp"))


def test_an_inference_begins_with_the_first_of_a_row_of_starts() -> None:
    def sent(kind: str) -> LinkEvent:
        return LinkEvent(SEND, 1, 24, 0, 24, kind)

    events = [sent("start"), LinkEvent(TIME, 0, 0, 0), sent("start"), sent("data"), sent("start"), sent("start")]
    assert _first_starts(events) == [0, 4]


def cluster(folder: Path, targets: str, medium: str, flash: str = "16K") -> Path:
    rows = [f"- {{name: d{i}, target: {t}, flash: {flash}, ram: 32K}}" for i, t in enumerate(targets.split())]
    file = folder / "cluster.yaml"
    file.write_text("\n".join(["devices:", *rows, "source: d0", f"medium: {{{medium}}}", ""]))
    return file


@pytest.mark.one_in(4)
@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm", "riscv64-unknown-elf-gcc", "qemu-system-riscv32", "gcc")
@pytest.mark.parametrize(
    ("targets", "medium", "method"),
    [
        ("mps2-an386 microbit riscv-virt", "kind: star, bits_per_s: 3e6, message_us: 20", "owp"),
        ("microbit microbit", "kind: bus, bits_per_s: 50e6, broadcast: true", "owp"),
        ("mps2-an500 mps3-an547 mps2-an385 mps2-an386", "kind: switch, bits_per_s: 20e6, message_us: 5", "fdto"),
    ],
)
def test_predicted_times_are_within_a_tenth_of_the_simulated(
    tmp_path: Path, targets: str, medium: str, method: str
) -> None:
    request = ClusterRequest(DIGITS, cluster(tmp_path, targets, medium), "digits", method=method)
    verdict = verify_cluster(request, simulate="qemu")
    assert verdict["equal"] and verdict["time_us"]["simulated"] > 0
    assert abs(verdict["time_us"]["predicted"] / verdict["time_us"]["simulated"] - 1) < 0.1, verdict["time_us"]
    for row in verdict["devices"]:
        assert row["instructions"] > 0 and row["stack_bytes"] > 0 and row["flash_bytes"] > row["weights_bytes"]


@pytest.mark.one_in(4)
@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm", "riscv64-unknown-elf-gcc", "qemu-system-riscv32", "gcc")
@pytest.mark.parametrize(
    ("model", "timed"), [("paper_mw.tflite", 0), ("paper_mw.tflite", 2), ("paper_txt.tflite", 2), ("swiftnet_like", 1)]
)
def test_times_of_floats_and_of_many_moves(tmp_path: Path, model: str, timed: int) -> None:
    """Floats without an FPU take calls, and kernels that only move state no instructions."""
    file = ROOT.parent / "shared" / "models" / model
    if model in ZOO:
        file = tmp_path / f"{model}.onnx"
        file.write_bytes(quantized(ZOO[model](0), 0).SerializeToString())
    if not file.exists():
        pytest.skip("no shared models")
    times = bench_distribute.timed(file, *bench_distribute.TIMED[timed])
    assert abs(times["error"]) < 0.1, times


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm", "gcc")
def test_where_nothing_is_sent_the_same_keys_are_there(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    rows = "\n".join(f"- {{name: d{k}, target: mps2-an386, flash: 64K, ram: 32K}}" for k in range(2))
    file.write_text(f"devices:\n{rows}\nsource: d0\nmedium: {{kind: star, bits_per_s: 3e6}}\n")
    verdict = verify_cluster(ClusterRequest(DIGITS, file, "net"), simulate="qemu")
    assert verdict["equal"] and verdict["messages"] == 0
    assert verdict["time_us"]["predicted"] == verdict["time_us"]["one_device"] > 0
    assert verdict["time_us"]["simulated"] is verdict["time_us"]["error"] is None


def test_clocks_are_those_of_targets_or_of_the_file(tmp_path: Path) -> None:
    file = cluster(tmp_path, "microbit stm32f767 riscv-virt", "kind: bus, bits_per_s: 1e6")
    devices = build_cluster(ClusterRequest(DIGITS, file, "digits")).chosen.plan.cluster.devices
    assert [d.hz for d in devices] == [16e6, 216e6, 168e6]
    file.write_text(file.read_text().replace("target: microbit,", "target: microbit, clock_hz: 8e6,"))
    slower = build_cluster(ClusterRequest(DIGITS, file, "digits"))
    assert slower.chosen.plan.cluster.devices[0].hz == 8e6


def test_times_add_up(tmp_path: Path) -> None:
    file = cluster(tmp_path, "microbit mps2-an386", "kind: star, bits_per_s: 1e5, timeout_ms: 20")
    time = build_cluster(ClusterRequest(DIGITS, file, "digits", method="owp")).report["time_us"]
    assert time["compute"] + time["wire"] == pytest.approx(time["cluster"], abs=0.01)
    assert time["longest_wait"] > 20_000


def test_a_picture_of_the_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, drawn = cluster(tmp_path, "microbit mps2-an386", "kind: bus, bits_per_s: 1e6", "4K"), tmp_path / "time.svg"
    assert main(["inspect", str(DIGITS), "--cluster", str(file), "--picture", str(drawn)]) == 0
    assert "modelled: one device" in capsys.readouterr().out
    root = ElementTree.fromstring(drawn.read_text())
    boxes = [r for r in root.iter("{http://www.w3.org/2000/svg}rect") if len(r)]
    places = {(r.get("y"), r.get("fill")) for r in boxes}
    assert len({y for y, _ in places}) == 2 and len({colour for _, colour in places}) == 3
    assert all(float(r.get("x", "")) + float(r.get("width", "")) <= 720 for r in boxes)


def test_no_picture_of_one_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = cluster(tmp_path, "host", "kind: bus, bits_per_s: 1e6", "64K")
    assert main(["inspect", str(DIGITS), "--cluster", str(file), "--picture", str(tmp_path / "time.svg")]) == 1
    assert "no timeline" in capsys.readouterr().err
