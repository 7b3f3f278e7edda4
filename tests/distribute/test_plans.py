"""Plans for several devices: the thesis' figures, the exact search against all plans, and what the command says."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.build.papers import FOLDER
from edgebuild.cli import main
from edgebuild.model.formats import shapes
from edgebuild.model.plan.distribute import by_name
from edgebuild.model.plan.distribute.by_name import Counts, choose, pipeline, usage
from edgebuild.model.plan.distribute.forms import DeviceLimits, Layer, Medium, Network, Sizes, split
from edgebuild.model.plan.distribute.joint import Search
from tests.bench_distribute import float_plan, int8_plan
from tests.distribute import naive

ANY = float("inf")
TABLES = FOLDER / "shapes"
SIZES = (4, 8, 16, 4, 4)  # the running example of Stahl 2024, ch. 5
EXAMPLE = tuple(Counts(m, k, m * k) for m, k in pairwise(SIZES))
MB = 4e-6
# Stahl 2024, table 5.1, ten devices: layers, F of one device, F, first layer with split weights, F of pipelines.
TABLE_1 = {
    "yolov2": (32, 255.5, 28.42, 13, 51.76),
    "alexnet": (14, 16.76, 2.650, 3, 5.828),
    "vgg16": (25, 84.53, 13.24, 8, 25.84),
    "extraction": (27, 97.49, 12.21, 5, 20.08),
}
# Table 5.2, six devices: C of fan-out and of OWP. YOLOv2's are those of the layers from 17 on, an earlier switch.
TABLE_2 = {
    "yolov2": (16, 83.99, 59.75),
    "alexnet": (0, 9.69, 9.11),
    "vgg16": (0, 202.0, 181.6),
    "extraction": (0, 46.99, 41.79),
}


def test_running_example() -> None:
    assert sum(c.q for c in EXAMPLE) == 240 and by_name.footprint(EXAMPLE, 2, 0) - 24 == 120
    assert [round(by_name.fan_out(EXAMPLE, n), 2) for n in (2, 3, 4)] == [34, 66.67, 99]
    assert [round(by_name.communication(EXAMPLE, n, ["in"] * len(EXAMPLE)), 2) for n in (2, 3, 4)] == [48, 85.33, 120]
    pairs = ["first", "second"] * 2
    assert [by_name.communication(EXAMPLE, n, pairs) for n in (2, 3, 4)] == [40, 80, 120]
    assert [round(by_name.optimized(EXAMPLE, n)[0], 2) for n in (2, 3, 4)] == [22, 42.67, 63]


@pytest.mark.parametrize(("n", "least"), [(2, 20), (3, 40), (4, 60)])
def test_running_example_jointly(n: int, least: int) -> None:
    tensors = tuple(Sizes(f"t{i}", 1, size, size) for i, size in enumerate(SIZES))
    layers = tuple(Layer(f"l{i}", "dense", (i,), i + 1, c.q, c.q, True, True, partial=1) for i, c in enumerate(EXAMPLE))
    methods = (frozenset({"fan-out", "fan-in"}),) * 4
    limits = DeviceLimits((240 / n,) * n, (float("inf"),) * n)
    plan = Search(Network(tensors, layers, (0,), (4,)), naive.cluster(n), limits, methods=methods).run()
    assert plan is not None and plan.cost.bytes == least


def table(name: str) -> tuple[shapes.Shape, ...]:
    return shapes.read_shapes(TABLES / f"{name}.yaml")


@pytest.mark.parametrize("name", TABLE_1)
def test_table_of_footprints(name: str) -> None:
    layers, single, full, first, sequential = TABLE_1[name]
    counts = shapes.counts(table(name))
    footprint, switch = by_name.full(counts, 10)
    assert (len(counts), switch + 1) == (layers, first)
    assert [f"{x * MB:.4g}" for x in (by_name.single(counts), footprint, by_name.sequential(counts))] == [
        f"{x:.4g}" for x in (single, full, sequential)
    ]


@pytest.mark.parametrize("name", TABLE_2)
def test_table_of_communication(name: str) -> None:
    start, fan_out, optimized = TABLE_2[name]
    counts = shapes.counts(table(name))[start:]
    traffic = by_name.fan_out(counts, 6) * MB, by_name.optimized(counts, 6)[0] * MB
    assert traffic == pytest.approx((fan_out, optimized), rel=5e-4)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(60))
def test_search_finds_the_best_of_all_plans(seed: int) -> None:
    n = 2 + seed % 2
    network = naive.chain(seed, 6, residual=seed % 3 == 0)
    search = Search(network, naive.cluster(n), naive.limits(network, n, seed), recompute=seed % 3)
    plan, least = search.run(), naive.least(search)
    assert (plan.cost.bytes if plan else None) == least


@pytest.mark.parametrize("seed", range(40))
def test_search_finds_the_best_where_devices_run_layers_alone(seed: int) -> None:
    """Chains, so that no tensor is read twice; two and three devices."""
    n = 2 + seed % 2
    network = naive.chain(seed, 4 - seed % 2)
    search = Search(network, naive.cluster(n), naive.limits(network, n, seed), recompute=0, stages=True)
    (plan, bound), least = search.solve(), naive.least(search)
    assert (plan.cost.bytes if plan else None) == least and (plan is None or bound == least)


def test_layers_alone_and_layers_in_parts() -> None:
    """Some plans have both, and send less than plans that split layers and than pipelines."""
    less = 0
    for seed in range(100):
        network, group = naive.chain(seed, 5, residual=seed % 2 == 0), naive.cluster(2 + seed % 3)
        room = int(network.weights * (1.2 + seed % 5 / 10) / len(group.devices)) + 20
        group = replace(group, devices=tuple(replace(d, flash=room) for d in group.devices))
        limits = DeviceLimits((float(room),) * len(group.devices), (ANY,) * len(group.devices))
        search = Search(network, group, limits)
        others = [p.cost.bytes for p in (search.run(), pipeline(network, group, search)[0]) if p is not None]
        choice = choose(network, group, True) if others else None
        if choice is not None:
            assert choice.mixed and choice.bound <= choice.plan.cost.bytes <= min(others)
            assert choice.optimal == (choice.bound == choice.plan.cost.bytes)
            less += choice.plan.cost.bytes < min(others)
    assert less > 5


@pytest.mark.parametrize("seed", range(12))
def test_tensors_side_by_side_take_what_is_best(seed: int) -> None:
    network, n = naive.chain(seed, 2, joined=True), 2 + seed % 2
    search = Search(network, naive.cluster(n), naive.limits(network, n, seed), recompute=0)
    plan, least = search.run(), naive.least(search)
    assert (plan.cost.bytes if plan else None) == least


def test_tensors_side_by_side_are_joined_where_their_reader_wants_them() -> None:
    """Both stay split by channels, each along the ends of its readers' parts: the join sends nothing."""
    searches = [
        Search(naive.chain(s, 2, joined=True), naive.cluster(2), DeviceLimits((ANY,) * 2, (ANY,) * 2))
        for s in range(12)
    ]
    forms = [s.channel_forms[len(s.network.tensors) - 3] for s in searches]
    assert any(len(some) == 2 for some in forms)
    for search in searches:
        join = search.network.layers[-2]
        parts = [search.joined(join, i).ranges for i in range(2)]
        sizes = [sum(past - first for first, past in device) for device in zip(*parts, strict=True)]
        whole = search.channels(join.output).ranges
        assert sizes == [past - first for first, past in whole]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "in_float", "in_int8"),
    [("alexnet", 5.14, 1.40), ("yolov2", 131.8, 26.9), ("vgg16", 68.2, 17.1), ("extraction", 28.3, 4.6)],
)
def test_traffic_of_large_networks(name: str, in_float: float, in_int8: float) -> None:
    """Megabytes on six devices: in float at the memory of the thesis' two steps, in int8 at given weights a device."""
    assert float_plan(name, 6)["joint"] <= in_float
    row = int8_plan(name, 6)
    assert row["joint"] <= min(in_int8, *(row[key] for key in ("fdto", "owp", "paper") if row[key] is not None))


@pytest.mark.parametrize("seed", range(20))
def test_what_a_plan_uses_is_within_its_limits(seed: int) -> None:
    network, n = naive.chain(seed, 6, residual=True), 2
    limits = naive.limits(network, n, seed)
    plan = Search(network, naive.cluster(n), limits).run()
    assert plan is not None
    weights, _ = usage(plan)
    most = max(layer.weights for layer in network.layers)
    assert all(w <= flash + most / n * len(network.layers) for w, flash in zip(weights, limits.flash, strict=True))
    assert sum(weights) >= network.weights - len(network.layers) * n  # rounding down of parts


MEDIA = (
    Medium("star", 1e5, 200.0),
    Medium("bus", 1e6, 50.0, mtu=16, broadcast=True),
    Medium("bus", 1e4),
    Medium("switch", 1e8, 5.0, mtu=1),
)


def test_each_objective_is_least_in_what_it_asks_for() -> None:
    """Unequal devices, every medium: nobody is faster than `latency`, and nobody sends less than `traffic`."""
    differ = 0
    for seed in range(40):
        network, n = naive.chain(seed, 5, residual=seed % 2 == 0), 2 + seed % 4
        group = naive.cluster(n, MEDIA[seed % len(MEDIA)])
        room = network.weights * (0.3 + seed % 7 / 5) + 20
        devices = [replace(d, flash=int(room), share=1 + k % 3) for k, d in enumerate(group.devices)]
        group = replace(group, devices=tuple(replace(d, macs_per_us=1 + k) for k, d in enumerate(devices)))
        try:
            quick, quiet = (choose(network, group, False, objective=o) for o in ("latency", "traffic"))
        except EdgebuildError:
            continue
        assert all(c.optimal or c.plan.decisions[0].method == "stage" for c in (quick, quiet))
        times = [c.plan.cost.time_us + c.plan.compute_us for c in (quick, quiet)]
        assert times[0] <= times[1] * (1 + 1e-9) and quiet.plan.cost.bytes <= quick.plan.cost.bytes, seed
        differ += times[0] < times[1] and quiet.plan.cost.bytes < quick.plan.cost.bytes
    assert differ > 5


def test_split_is_in_proportion() -> None:
    assert split(10, (0.5, 0.3, 0.2)) == ((0, 5), (5, 8), (8, 10))
    assert split(2, (0.25,) * 4)[-1][1] == 2


@pytest.mark.parametrize("method", ["fdto", "owp", "paper"])
def test_joint_is_never_worse(method: str) -> None:
    network = shapes.network(table("alexnet"), 1, 4, dense=False)
    cluster = naive.cluster(6)
    assert choose(network, cluster, True).plan.cost.bytes <= choose(network, cluster, True, method).plan.cost.bytes


def test_a_broadcast_reaches_all_at_once() -> None:
    network = shapes.network(table("alexnet"), 1, 4, dense=False)
    flash = DeviceLimits((network.weights / 6 * 1.01,) * 6, (float("inf"),) * 6)
    switch = Search(network, naive.cluster(6), flash).run()
    bus = Search(network, naive.cluster(6, Medium("bus", broadcast=True)), flash).run()
    assert switch is not None and bus is not None and bus.cost.bytes < 0.6 * switch.cost.bytes


CLUSTER = """
devices:
- {{name: a, target: microbit, flash: {flash}, ram: 256K}}
- {{name: b, target: microbit, flash: 3M, ram: 256K}}
source: {source}
medium: {{kind: {kind}, bits_per_s: {rate}}}
"""


def run(tmp_path: Path, model: Path, **values: object) -> int:
    given = {"flash": "3M", "source": "a", "kind": "star", "rate": 3e6, **values}
    (tmp_path / "c.yaml").write_text(CLUSTER.format(**given))
    return main(["distribute", str(model), "--cluster", str(tmp_path / "c.yaml"), "--name", "net", "-o", str(tmp_path)])


def test_report_adds_up(tmp_path: Path) -> None:
    digits = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"
    assert run(tmp_path, digits) == 0
    report = json.loads((tmp_path / "net_cluster.json").read_text())
    sent = sum(m["bytes"] for m in report["messages"])
    assert report["wire"]["payload_bytes"] == sent == sum(d["bytes_sent"] for d in report["devices"])
    assert report["wire"]["payload_bytes"] == sum(link["wire_bytes"] for link in report["wire"]["by_link"])
    assert [row["node"] for row in report["layers"]] and report["faster"] is False


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source": "z"}, "error: source 'z' is no device"),
        ({"rate": 0}, "a medium has a rate above 0"),
        ({"kind": "buss"}, ".yaml:6:16: error: unknown word 'buss'; did you mean 'bus'?"),
        ({"flash": "many"}, "error: 'many' is not a size"),
    ],
)
def test_wrong_clusters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], values: dict[str, object], message: str
) -> None:
    assert run(tmp_path, TABLES / "alexnet.yaml", **values) == 1
    assert message in capsys.readouterr().err


def test_too_small_devices_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, TABLES / "alexnet.yaml") == 1
    assert "no plan of method joint fits" in capsys.readouterr().err


def test_shapes_that_do_not_chain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = (
        (TABLES / "vgg16.yaml")
        .read_text()
        .replace("name: conv3, kind: conv, x: 112", "name: conv3, kind: conv, x: 111")
    )
    (tmp_path / "wrong.yaml").write_text(rows)
    assert run(tmp_path, tmp_path / "wrong.yaml") == 1
    assert (
        "node 'conv3' (conv): error: reads 111x112x64, but the layer before gives 112x112x64" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("name", "kind", "o", "message"),
    [
        ("b", "depthwise", 7, ".yaml:3:3: error: layer 'b': depthwise of 4 channels gives 4, not 7"),
        ("b", "reorg", 8, "error: layer 'b': reorg of 4 channels gives 16, not 8"),
        ("a", "conv", 4, "node 'a' (conv): error: two layers have this name"),
    ],
)
def test_wrong_rows_of_shapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str, o: int, message: str
) -> None:
    sizes = "x: 8, y: 8, c: {}, o: {}, u: 2, v: 2, stride: 2, pad: 0"
    first = sizes.format(3, 4).replace("8", "16")
    rows = [f"- {{name: a, kind: conv, {first}}}", f"- {{name: {name}, kind: {kind}, {sizes.format(4, o)}}}"]
    (tmp_path / "rows.yaml").write_text("\n".join(["layers:", *rows, ""]))
    assert run(tmp_path, tmp_path / "rows.yaml") == 1
    assert message in capsys.readouterr().err


def _two_results(rows: int) -> Network:
    """A device may make both results, of which the source must hold all in the end."""
    tensors = (Sizes("x", rows, 8, 8), Sizes("a", rows, 16, 16), Sizes("b", rows, 16, 16))
    layers = tuple(Layer(f"l{k}", "dense", (0,), k, 64, 64, True) for k in (1, 2))
    return Network(tensors, layers, (0,), (1, 2))


@pytest.mark.parametrize(("ram", "fits"), [(128, True), (127, False)])
def test_the_source_has_room_for_all_results(ram: int, fits: bool) -> None:
    network, devices = _two_results(4), naive.cluster(2)
    plan = Search(network, devices, DeviceLimits((40, 1000), (ram, 1000)), stages=True).run()
    assert (plan is not None) == fits
    if plan is not None:
        assert usage(plan)[1][0] == 128


def test_tables_are_whole_on_each_device_that_looks_up() -> None:
    """Both devices have the table of a function that both compute, and one where only that one computes."""
    tensors = (Sizes("x", 1, 8, 8), Sizes("h", 1, 8, 8), Sizes("y", 1, 8, 8))
    layers = (
        Layer("dense", "dense", (0,), 1, 64, 64, True),
        Layer("curve", "pointwise", (1,), 2, by_channel=True, table=256),
    )
    network, devices = Network(tensors, layers, (0,), (2,)), naive.cluster(2)
    assert network.weights == 320
    limits, ways = DeviceLimits((288, 288), (ANY, ANY)), (frozenset({"fan-out"}), frozenset({"parts"}))
    both = Search(network, devices, limits, methods=ways)
    plan = both.run()
    assert plan is not None and usage(plan)[0] == (288, 288)
    assert replace(both, limits=DeviceLimits((287, 287), (ANY, ANY))).run() is None
    limits, ways = DeviceLimits((288, 32), (ANY, ANY)), (frozenset({"fan-out"}), frozenset({"whole"}))
    alone = Search(network, devices, limits, methods=ways)
    plan = alone.run()
    assert plan is not None and usage(plan)[0] == (288, 32)


def test_a_plan_of_whole_channels_that_fits_is_no_refusal() -> None:
    """Five channels on three devices are 2, 1 and 2: the second needs less than a third of the weights."""
    tensors = (Sizes("x", 1, 10, 10), Sizes("y", 1, 5, 5))
    network = Network(tensors, (Layer("dense", "dense", (0,), 1, 50, 50, True),), (0,), (1,))
    devices = naive.cluster(3)
    flash = (20, 10, 20)
    pairs = zip(devices.devices, flash, strict=True)
    devices = replace(devices, devices=tuple(replace(d, flash=f, ram=1000, share=1.0) for d, f in pairs))
    choice = choose(network, devices, True, "fdto")
    assert choice.weights == flash and not choice.optimal
    smaller = replace(devices, devices=(*devices.devices[:2], replace(devices.devices[2], flash=19)))
    with pytest.raises(EdgebuildError, match="fits the cluster") as error:
        choose(network, smaller, True, "fdto")
    assert "of device 'd2' 20 B of flash, has 19 B" in "".join(error.value.diagnostics[0].hints)
