"""Wrong input of a cluster: exit 1, and a message that says what is wrong, by how much, and what would be right."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.target import hal_dir
from edgebuild.cli import main
from edgebuild.model.cluster.products import ClusterRequest, build_cluster
from tests.fuzz.networks import WRITERS, drawn
from tests.zoo.builders import OPSET, Net, quantized

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"


def cluster(folder: Path, devices: list[str], source: str = "d0", medium: str = "kind: bus, bits_per_s: 1e6") -> Path:
    file = folder / "cluster.yaml"
    rows = [f"- {{name: d{i}, {d}}}" for i, d in enumerate(devices)]
    file.write_text("\n".join(["devices:", *rows, f"source: {source}", f"medium: {{{medium}}}", ""]))
    return file


def refused(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    words = ["distribute", str(DIGITS), "--cluster", str(file), "--name", "net", "-o", str(file.parent / "out")]
    assert main(words) == 1
    assert not (file.parent / "out").exists()
    return capsys.readouterr().err


BIG = "target: host, flash: 1M, ram: 1M"


def test_devices_without_flash_for_the_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(cluster(tmp_path, ["target: host, flash: 1K, ram: 1M"] * 2), capsys)
    assert "cluster.yaml: error: no plan of method joint fits" in text
    assert "B each if all is split" in text and "more or larger devices" in text


def test_a_device_without_ram(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(cluster(tmp_path, ["target: host, flash: 1M, ram: 40"] * 2), capsys)
    assert "of device 'd0' 1088 B of RAM, has 40 B" in text


def test_devices_have_no_more_than_their_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two micro:bits of which the file says too much: the plan keeps to what there is, or the message says it."""
    file = cluster(tmp_path, ["target: microbit, flash: 1M, ram: 200K"] * 2)
    built = build_cluster(ClusterRequest(DIGITS, file, "net"))
    assert [(d.flash, d.ram) for d in built.chosen.plan.cluster.devices] == [(256 << 10, 14 << 10)] * 2
    model = tmp_path / "wide.onnx"
    net = Net("wide", (64, 128, 128), 0, OPSET)
    model.write_bytes(quantized(net.model(net.conv("input", 8, (1, 1))), 0).SerializeToString())
    assert main(["distribute", str(model), "--cluster", str(file), "--name", "net", "-o", str(tmp_path / "out")]) == 1
    text = capsys.readouterr().err
    assert "device 'd0': microbit has 14336 B of RAM beside stack and states, not 204800 B" in text
    assert "device 'd1': microbit has 262144 B of flash, not 1048576 B" in text


def test_tensors_that_do_not_fit_as_they_lie_name_the_device(tmp_path: Path) -> None:
    """The plan counts the tensors of a step. Those of this random network take 20 B more as they lie in the arena."""
    file, small = tmp_path / "net.tflite", "target: host, flash: 312, ram: 1292, share: "
    file.write_bytes(WRITERS["tflite"].write(drawn("tflite", 1001)))
    devices = cluster(tmp_path, [small + "2", small + "5"], medium="kind: bus, bits_per_s: 1e6, message_us: 20")
    with pytest.raises(EdgebuildError, match=r"cluster\.yaml: node .*: error: device 'd0': does not fit"):
        build_cluster(ClusterRequest(file, devices, "net", objective="latency"))


def test_a_source_that_is_no_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(cluster(tmp_path, [BIG] * 2, "d7"), capsys)
    assert "source 'd7' is no device" in text and "devices: d0, d1" in text


def test_a_medium_without_a_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(cluster(tmp_path, [BIG] * 2, medium="kind: bus"), capsys)
    assert "cluster.yaml:5:9: error: missing key 'bits_per_s'" in text


def test_devices_without_any_flash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(cluster(tmp_path, ["target: host, flash: 0, ram: 1M"] * 2), capsys)
    assert "cluster.yaml: error: no device has flash" in text


def test_devices_by_name_in_place_of_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("devices: {a: 1}\nsource: a\nmedium: {kind: bus, bits_per_s: 1}\n")
    assert "cluster.yaml:1:10: error: expected a list of devices" in refused(file, capsys)


def test_more_than_16_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "17 devices; a cluster has 1 to 16" in refused(cluster(tmp_path, [BIG] * 17), capsys)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"devices": ["microbit"]}, "2:14: error: unknown key 'microbit'"),
        (
            {"devices": ["target: microbitt, flash: 1M, ram: 1M"]},
            "2:22: error: unknown target 'microbitt'; did you mean",
        ),
        ({"devices": [BIG, "target: a/b.yaml, flash: 1M, ram: 1M"]}, "3:22: error: no such target file: a/b.yaml"),
        ({"devices": ["target: host, flash: lots, ram: 1M"]}, "2:35: error: 'lots' is not a size"),
        ({"devices": ["target: host, flash: 1M, ram: [1]"]}, "2:44: error: 'a list' is not a size"),
        ({"devices": [BIG, f"{BIG}, name: d0"]}, "3:48: error: key 'name' is given twice"),
        ({"devices": [f"{BIG}, share: 1e18"] * 2}, "2:3: error: device 'd0': share is at most 1e+09"),
        ({"devices": [BIG], "medium": "kind: bus, bits_per_s: 1, timeout_ms: 1e-9"}, "4:9: error: a medium has a rate"),
        (
            {"devices": [BIG], "medium": "kind: bus, bits_per_s: 1e-300"},
            "4:9: error: bits_per_s is from 0.001 to 1e+15",
        ),
        ({"devices": [BIG], "medium": "kind: bus, bits_per_s: 1, message_us: 1e18"}, "4:9: error: bits_per_s is from"),
        ({"devices": [f"{BIG}, clock_hz: 1e-300"]}, "2:3: error: device 'd0': macs_per_us and clock_hz are from"),
        ({"devices": [BIG], "source": "d7"}, "3:9: error: source 'd7' is no device"),
        ({"devices": [BIG], "medium": "kind: starr, bits_per_s: 1"}, "4:16: error: unknown word 'starr'; did you mean"),
    ],
)
def test_wrong_words_have_a_place(
    tmp_path: Path, words: dict[str, object], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"cluster.yaml:{text}" in refused(cluster(tmp_path, **words), capsys)  # type: ignore[arg-type]


def test_two_devices_of_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = cluster(tmp_path, [BIG] * 2)
    file.write_text(file.read_text().replace("name: d1", "name: d0"))
    assert "cluster.yaml:3:3: error: two devices are named 'd0'" in refused(file, capsys)


@pytest.mark.parametrize("name", ['""', r'"a\n*/ int x; /*"'])
def test_names_that_no_line_shows(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = cluster(tmp_path, [BIG] * 2)
    file.write_text(file.read_text().replace("name: d1", f"name: {name}"))
    assert "cluster.yaml:3:10: error: a device is named '" in refused(file, capsys)


@pytest.mark.needs("gcc")
def test_devices_whose_names_are_alike_in_c(tmp_path: Path) -> None:
    file = cluster(tmp_path, [BIG] * 3)
    text = file.read_text().replace("name: d1", "name: 'a b'").replace("name: d2", "name: A_B")
    file.write_text(text)
    header = build_cluster(ClusterRequest(DIGITS, file, "net", method="fdto")).header
    assert b"NET_DEVICE_A_B_1 = 1, /* a b: " in header.data and b"NET_DEVICE_A_B_2 = 2" in header.data
    (tmp_path / header.name).write_bytes(header.data)
    command = ["gcc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-x", "c", header.name]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)


@pytest.mark.parametrize("key", ["share: 0", "clock_hz: -1", "macs_per_us: 0"])
def test_numbers_that_must_be_above_zero(tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "share, macs_per_us and clock_hz are above 0" in refused(cluster(tmp_path, [f"{BIG}, {key}"]), capsys)


def test_targets_of_different_byte_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = tmp_path / "big.yaml"
    text = (hal_dir() / "targets" / "host.yaml").read_text()
    big.write_text(text.replace("cflags: [", "cflags: [-mbig-endian, "))
    text = refused(cluster(tmp_path, [BIG, f"target: {big}, flash: 1M, ram: 1M"]), capsys)
    assert "device 'd1' is big endian, device 'd0' little endian" in text and "messages are in little endian" in text


def test_an_op_without_a_method_runs_whole_at_the_source(tmp_path: Path) -> None:
    """Fan-out alone has no way to split filters of single channels; the layers around them are split."""
    built = build_cluster(ClusterRequest(DIGITS, cluster(tmp_path, [BIG] * 3), "net", method="fdto"))
    rows = {row["node"]: (row["method"], row["state_in"], row["state_out"]) for row in built.report["layers"]}
    assert rows["depthwise_1"] == ("whole", "S", "S")
    assert rows["pointwise_1"] == ("fan-out", "A", "P")


def test_sizes_are_numbers_with_or_without_a_unit(tmp_path: Path) -> None:
    file = cluster(tmp_path, ["target: host, flash: 65536, ram: 0x8000"] * 2)
    devices = build_cluster(ClusterRequest(DIGITS, file, "net")).chosen.plan.cluster.devices
    assert [(d.flash, d.ram) for d in devices] == [(65536, 32768)] * 2
    with pytest.raises(EdgebuildError, match="not a size"):
        build_cluster(ClusterRequest(DIGITS, cluster(tmp_path, ["target: host, flash: [1], ram: 1M"]), "net"))


def test_products_that_are_larger_than_a_device_s_flash(tmp_path: Path) -> None:
    """The file of a device without weights has 16 B; less room for the plan is no more flash for the device."""
    file = tmp_path / "net.tflite"
    file.write_bytes(WRITERS["tflite_uint8"].write(drawn("tflite_uint8", 132)))
    devices = cluster(tmp_path, ["target: host, flash: 15, ram: 1M", "target: host, flash: 4K, ram: 1M"])
    with pytest.raises(EdgebuildError, match=r"device 'd0': weights 16 B, flash 15 B"):
        build_cluster(ClusterRequest(file, devices, "net", method="pipeline"))


@pytest.mark.parametrize("words", ["--ram 4K", "--tile off", "--target host", "--layers"])
def test_verify_takes_no_option_that_nobody_would_read(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["verify", str(DIGITS), "--cluster", str(cluster(tmp_path, [BIG] * 2)), *words.split()])
    assert f"error: a cluster takes no {words.split()[0]}\n" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["verify", str(DIGITS), "--target", "host", "--faults", "1"])
    assert "error: only a whole cluster takes --faults\n" in capsys.readouterr().err
