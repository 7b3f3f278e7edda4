"""The report of a cluster: its keys, and sums that follow from its rows; the joint plan against all other methods."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.build.papers import FOLDER
from edgebuild.cli import main
from edgebuild.model.cluster.terms import network_of
from edgebuild.model.compile import prepare
from edgebuild.model.plan.distribute.by_name import METHODS, choose, macs, usage
from edgebuild.model.plan.distribute.forms import Cluster, Device, Layer, Medium, Network, RowWindow, Sizes
from tests.distribute import naive
from tests.fuzz.networks import WRITERS, drawn

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"
ALEXNET = FOLDER / "shapes" / "alexnet.yaml"
KEYS = {
    "": ("schema model method objective optimal bound plan_hash devices layers messages wire time_us faster pareto"),
    "model": "name sha256",
    "devices": "name target weights_bytes arena_bytes macs bytes_sent bytes_received",
    "layers": "node method state_in state_out shares",
    "messages": "number step from to tensor dtype bytes frames",
    "wire": "payload_bytes frame_bytes by_link",
    "time_us": "one_device cluster compute wire",
    "pareto": "weights_bytes arena_bytes traffic_bytes time_us",
}
PAPER = "F F_single F_sequential first_weight_layer C_fdto C_owp"


def reported(folder: Path, model: Path, n: int, medium: str, method: str) -> dict[str, Any]:
    rows = "\n".join(f"- {{name: d{k}, target: host, flash: 80M, ram: 80M}}" for k in range(n))
    file = folder / "c.yaml"
    file.write_text(f"devices:\n{rows}\nsource: d0\nmedium: {{{medium}, bits_per_s: 1e6, mtu: 64}}\n")
    words = ["distribute", str(model), "--cluster", str(file), "--name", "n", "-o", str(folder), "--method", method]
    assert main(words) == 0
    report: dict[str, Any] = json.loads((folder / "n_cluster.json").read_text())
    return report


@pytest.mark.parametrize(
    ("model", "n", "medium", "method"),
    [
        (DIGITS, 1, "kind: star", "joint"),
        (DIGITS, 3, "kind: star", "owp"),
        (DIGITS, 4, "kind: bus, broadcast: true", "fdto"),
        (ALEXNET, 3, "kind: switch", "paper"),
    ],
)
def test_sums_follow_from_rows(tmp_path: Path, model: Path, n: int, medium: str, method: str) -> None:
    r = reported(tmp_path, model, n, medium, method)
    for name, keys in KEYS.items():
        rows = r if not name else r[name]
        for row in rows if isinstance(rows, list) else [rows]:
            assert set(keys.split()) <= set(row), (name, row)
    assert (set(PAPER.split()) <= set(r.get("paper", {}))) == (model == ALEXNET)
    sent, wire, devices = r["messages"], r["wire"], r["devices"]
    assert [m["number"] for m in sent] == list(range(len(sent)))
    assert wire["payload_bytes"] == sum(m["bytes"] for m in sent) == sum(d["bytes_sent"] for d in devices)
    assert wire["payload_bytes"] == sum(link["payload_bytes"] for link in wire["by_link"])
    assert sum(d["bytes_received"] for d in devices) == sum(m["bytes"] * len(m["to"]) for m in sent)
    assert all(m["frames"] == -(-m["bytes"] // 64) for m in sent)
    busy = {d for m in sent for d in (m["from"], *m["to"])} - {"d0"}
    assert wire["frame_bytes"] == wire["payload_bytes"] + 28 * len(sent) + 72 * len(busy)
    assert r["time_us"]["cluster"] == pytest.approx(r["time_us"]["compute"] + r["time_us"]["wire"], abs=0.01)
    assert {m["dtype"] for m in sent} <= {"int8", "int24", "int32"}
    assert n == 1 or any(m["dtype"] == "int8" for m in sent)


def sizes(seed: int, folder: Path) -> tuple[Network, Cluster, bool] | None:
    """A random network, and devices with little flash and perhaps little RAM."""
    rng, form = random.Random(seed), ("tflite", "qdq", "float")[seed % 3]
    try:
        data = WRITERS[form].write(drawn(form, seed))
    except ValueError:  # no layer is left
        return None
    file = folder / f"network.{'tflite' if form == 'tflite' else 'onnx'}"
    file.write_bytes(data)
    network = network_of(prepare(file))
    n, stated = rng.choice((2, 3, 4, 8)), rng.random() < 0.5
    flash = int(network.weights * rng.uniform(1 / n, 1.2)) + 50
    ram = rng.choice((1 << 30, 3 * max(t.bytes for t in network.tensors)))
    device = Device("d", "host", flash, ram, float(flash))
    devices = [replace(device, name=f"d{k}", share=rng.choice((1.0, 2.0)) if stated else flash) for k in range(n)]
    medium = Medium(rng.choice(("star", "bus", "switch")))
    return network, Cluster(tuple(devices), rng.randrange(n), medium), stated


@pytest.mark.parametrize("seed", range(24))
def test_no_other_method_sends_less(seed: int, tmp_path: Path) -> None:
    """Random networks: a plan is found where another method has one, and nobody sends less."""
    drawn_sizes = sizes(seed, tmp_path)
    if drawn_sizes is None or len(drawn_sizes[0].layers) > 20:
        return
    network, cluster, stated = drawn_sizes
    sent = dict[str, int]()
    for method in METHODS:
        try:
            sent[method] = choose(network, cluster, stated, method).plan.cost.bytes
        except EdgebuildError:
            continue
    assert not sent or sent["joint"] == min(sent.values()), sent


def test_layers_that_are_not_split_may_send_least() -> None:
    """Wide, narrow, wide: the source runs the ends, the other device what is between; two tensors are sent."""
    widths = (64, 8, 64, 8, 64)
    tensors = tuple(Sizes(f"t{i}", 1, w, w) for i, w in enumerate(widths))
    layers = tuple(Layer(f"l{i}", "dense", (i,), i + 1, 512, 512, True, True, partial=3) for i in range(4))
    network = Network(tensors, layers, (0,), (4,))
    group = naive.cluster(2)
    group = replace(group, devices=tuple(replace(d, flash=1100) for d in group.devices))
    choice = choose(network, group, False)
    assert [d.method for d in choice.plan.decisions] == ["stage"] * 4
    assert choice.plan.cost.bytes == choice.bound == 16 and choice.optimal and choice.mixed
    assert usage(choice.plan)[0] == (1024, 1024) and [macs(choice.plan, k) for k in range(2)] == [1024, 1024]


def test_an_input_that_no_layer_reads() -> None:
    tensors = tuple(Sizes(f"t{i}", 1, 64, 64) for i in range(3))
    network = Network(tensors, (Layer("l", "dense", (0,), 2, 4096, 4096, True, True, partial=3),), (0, 1), (2,))
    assert choose(network, naive.cluster(2), False).plan.cost.bytes == 0


def test_only_the_source_has_flash() -> None:
    """The input takes most of its RAM, so others would do its rows; their shares are 0."""
    tensors = (Sizes("t0", 8, 64, 8), Sizes("t1", 8, 8, 1))
    layer = Layer("l", "conv", (0,), 1, 8, 512, True, True, window=RowWindow())
    devices = (Device("a", "host", 100, 600, 100.0), Device("b", "host", 0, 600, 0.0))
    choice = choose(Network(tensors, (layer,), (0,), (1,)), Cluster(devices, 0, Medium()), False)
    assert choice.plan.cost.bytes == 0 and choice.weights == (8, 0)
