"""`python -m tests.bench_distribute`: plans for several devices, as tables and in build/bench/distribute.json.

`paper`: chapter 5 of Stahl 2024 from shapes alone (4-byte values, convolutions only, equal devices; YOLOv2's row of
communication is that of the layers from 17 on), with fully connected layers beside it. `plans`: traffic of the joint
plan on six devices, in float at the memory of the thesis' two steps, in int8 at given weights a device, and of the
baselines. `brute`: random chains against all plans. `exact`: processor time of a proof. `together`: models on several
devices of the build machine (1 to 8) and in QEMU (2 and 4), against one; the relay's bytes less the plan's. `times`:
predicted and simulated, in QEMU. `speeds`: predicted, on one device, two and four. `memory`: large
models on four devices, point to point and on a bus. `faults`: disturbed inferences.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgebuild.base.errors import EdgebuildError
from edgebuild.build.papers import FOLDER, MB, reproduce
from edgebuild.model.cluster.products import ClusterRequest, build_cluster
from edgebuild.model.cluster.terms import network_of
from edgebuild.model.compile import prepare
from edgebuild.model.formats import shapes
from edgebuild.model.plan.distribute import by_name
from edgebuild.model.plan.distribute.by_name import choose
from edgebuild.model.plan.distribute.forms import ClusterPlan, DeviceLimits, Medium
from edgebuild.model.plan.distribute.joint import Search
from edgebuild.model.verify.cluster import verify_cluster
from tests.distribute import naive
from tests.zoo.builders import ZOO, quantized
from tests.zoo.mobilenet_v2 import LARGE

ROOT = Path(__file__).parents[1]
TABLES = FOLDER / "shapes"
NETWORKS = ("yolov2", "alexnet", "vgg16", "extraction")
INT8_WEIGHTS = {"yolov2": 9.15e6, "alexnet": 0.65e6, "vgg16": 2.67e6, "extraction": 4.76e6}
ANY = float("inf")
DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
FAULTS = 10_000


def paper() -> list[dict[str, Any]]:
    """The thesis' tables, and what fully connected layers change."""
    names = {"F_single": "single", "F": "full", "first_weight_layer": "first", "F_sequential": "sequential",
             "C_fdto": "fdto", "C_owp": "owp"}  # fmt: skip
    rows = []
    for each in reproduce("deeperthings")["rows"]:
        table = shapes.read_shapes(TABLES / f"{each['case']}.yaml")
        dense = shapes.counts(table, dense=True)
        row = {"network": each["case"], "layers": len(table), **{key: each["ours"][of] for key, of in names.items()}}
        row |= {"F_single_dense": by_name.single(dense) * MB, "F_dense": by_name.full(dense, 10)[0] * MB}
        if each["case"] == "yolov2":
            row["F_switch_at_17"] = by_name.footprint(shapes.counts(table), 10, 16) * MB
        rows.append(row)
    return rows


def float_plan(name: str, n: int) -> dict[str, Any]:
    """Least traffic at the F of the thesis' two steps, by its rule of memory, for every split of F into both."""
    table = shapes.read_shapes(TABLES / f"{name}.yaml")
    counts = shapes.counts(table)
    footprint, switch = by_name.full(counts, n)
    network, room = shapes.network(table, 4, 4, dense=False), footprint * 4
    first = next((c.m for c in counts[switch:] if c.counted), 0)
    steps = by_name.optimized(counts[switch:], n)[0] + ((counts[0].m + first) * (n - 1) / n if switch else 0.0)
    best: ClusterPlan | None = None
    for arena in sorted({v * 4 for c in counts for v in (c.m + c.k, (c.m + c.k) / n)}):
        if room - arena >= network.weights / n:
            limits = DeviceLimits((room - arena,) * n, (arena,) * n, thesis_arena=True)
            bound = best.cost.bytes if best is not None else ANY
            best = Search(network, naive.cluster(n), limits).run(bound) or best
    traffic = best.cost.bytes / 1e6 if best is not None else None
    return {"network": name, "form": "float", "devices": n, "F": room / 1e6, "two_steps": steps * MB, "joint": traffic}


def int8_plan(name: str, n: int) -> dict[str, Any]:
    table = shapes.read_shapes(TABLES / f"{name}.yaml")
    network = shapes.network(table, 1, 3, dense=False)
    cluster = naive.cluster(n)
    cluster = replace(cluster, devices=tuple(replace(d, flash=int(INT8_WEIGHTS[name])) for d in cluster.devices))
    row: dict[str, Any] = {"network": name, "form": "int8", "devices": n, "weights": INT8_WEIGHTS[name] / 1e6}
    for method in ("joint", "fdto", "owp", "paper"):
        try:
            row[method] = choose(network, cluster, False, method).plan.cost.bytes / 1e6
        except EdgebuildError:
            row[method] = None
    return row


def brute(count: int) -> dict[str, int]:
    equal = 0
    for seed in range(count):
        n = 2 + seed % 2
        network = naive.chain(seed, 6, residual=seed % 3 == 0)
        search = Search(network, naive.cluster(n), naive.limits(network, n, seed), recompute=seed % 3)
        plan = search.run()
        equal += (plan.cost.bytes if plan else None) == naive.least(search)
    return {"networks": count, "equal": equal}


def exact() -> dict[str, Any]:
    """Processor seconds of the proved plan of 32 layers on 16 devices."""
    network = shapes.network(shapes.read_shapes(TABLES / "yolov2.yaml"), 1, 3, dense=False)
    limits = DeviceLimits((network.weights / 16 * 1.08,) * 16, (ANY,) * 16)
    began = time.process_time()
    plan = Search(network, naive.cluster(16, Medium()), limits).run()
    seconds = time.process_time() - began
    return {"layers": len(network.layers), "devices": 16, "cpu_s": round(seconds, 3), "proved": plan is not None}


def cluster_of(n: int, flash: int, medium: str, folder: Path, target: str = "host") -> Path:
    rows = [f"- {{name: d{k}, target: {target}, flash: {flash}, ram: 4M}}" for k in range(n)]
    file = folder / "cluster.yaml"
    file.write_text("\n".join(["devices:", *rows, "source: d0", f"medium: {{{medium}, bits_per_s: 3e6}}", ""]))
    return file


def models(folder: Path) -> list[Path]:
    """The sample's, the shared ones if they are there, and those of the zoo, written to a folder."""
    shared = ROOT.parent / "shared" / "models"
    for name, build in ZOO.items():
        (folder / f"{name}.onnx").write_bytes(quantized(build(0), 0).SerializeToString())
    return [DIGITS, *sorted(shared.glob("*.tflite")), *(folder / f"{name}.onnx" for name in ZOO)]


def together(model: Path, n: int, number: int, simulate: str = "host") -> dict[str, Any]:
    """A model on n devices; baselines have all methods of cutting, `joint` as little flash as has a plan."""
    medium = ("kind: star", "kind: bus, broadcast: true", "kind: switch")[number % 3]
    method = ("owp", "joint", "paper", "fdto")[number % 4]
    weights, verdict = network_of(prepare(model)).weights, dict[str, Any]()
    row: dict[str, Any] = {"model": model.stem, "devices": n, "medium": medium, "method": method}
    row["simulated"] = simulate
    target = "host" if simulate == "host" else "mps2-an386"
    for most in (int(1.4 * weights / n) + 3000, int(2.2 * weights / n) + 3000, 1 << 27)[2 * (method != "joint") :]:
        with tempfile.TemporaryDirectory() as name:
            request = ClusterRequest(model, cluster_of(n, most, medium, Path(name), target), "net", method=method)
            try:
                verdict = verify_cluster(request, simulate)
                break
            except EdgebuildError as error:
                row["refused"] = str(error).splitlines()[0]
    if not verdict:
        return row
    row.pop("refused", None)
    more = verdict["wire_bytes"] - verdict["planned_bytes"]
    return {**row, "equal": verdict["equal"], "messages": verdict["messages"], "bytes_more_than_planned": more}


LINKS = {
    "SPI at 20 MHz": "kind: star, bits_per_s: 18e6, message_us: 20",
    "CAN FD at 5 Mbit/s": "kind: bus, bits_per_s: 2.75e6, broadcast: true, mtu: 64, message_us: 20",
}


def speeds(model: Path) -> list[dict[str, Any]]:
    """Predicted milliseconds on one, two and four Cortex-M4 at 25 MHz; the table of README.md."""
    rows = []
    for link, medium in LINKS.items():
        row: dict[str, Any] = {"model": model.stem, "link": link}
        for n in (2, 4):
            with tempfile.TemporaryDirectory() as name:
                devices = [f"- {{name: d{k}, target: mps2-an386, flash: 1M, ram: 1M}}" for k in range(n)]
                lines = ["devices:", *devices, "source: d0", f"medium: {{{medium}}}", "objective: latency", ""]
                (Path(name) / "cluster.yaml").write_text("\n".join(lines))
                report = build_cluster(ClusterRequest(model, Path(name) / "cluster.yaml", "net")).report
            row["1"] = report["time_us"]["one_device"] / 1000
            row[str(n)] = report["time_us"]["cluster"] / 1000 if report["faster"] else "no gain"
        rows.append(row)
    return rows


ON_FOUR = (  # bytes of flash and RAM together, code included; RAM of the source, and of the others
    ("mobilenet_v2_035_144", 500_000, 90_000, 28_000),
    ("mobilenet_v2_100_224", 1_300_000, 280_000, 250_000),
)


def memory(folder: Path, name: str, total: int, own: int, others: int, medium: str) -> dict[str, Any]:
    """A large model on four devices, of which the source has the input."""
    model, file = folder / f"{name}.onnx", folder / "cluster.yaml"
    if not model.exists():
        model.write_bytes(quantized(LARGE[name](0), 0).SerializeToString(deterministic=True))
    sizes = [(total - own, own), *[(total - others, others)] * 3]
    rows = [f"- {{name: d{k}, target: mps2-an386, flash: {f}, ram: {r}}}" for k, (f, r) in enumerate(sizes)]
    tail = ["source: d0", f"medium: {{{medium}, bits_per_s: 3e6}}", "flash_holds: products", ""]
    file.write_text("\n".join(["devices:", *rows, *tail]))
    report = build_cluster(ClusterRequest(model, file, "net")).report
    most = max(d["weights_bytes"] + d.get("code_bytes", 0) + d["arena_bytes"] for d in report["devices"])
    sent = report["wire"]["payload_bytes"] / 1e6
    return {"model": name, "medium": medium, "most_bytes": most, "traffic": sent, "proved": report["optimal"]}


MUCH = "2M"
SMALL, LARGER = "microbit", "mps2-an385"  # where a model does not fit the first, the second takes its place
TIMED = (
    (f"mps2-an386 {SMALL} riscv-virt", "kind: star, bits_per_s: 3e6, message_us: 20", "owp"),
    ("mps2-an386 mps2-an386", "kind: switch, bits_per_s: 20e6, message_us: 5", "fdto"),
    ("riscv-virt riscv-virt riscv-virt", "kind: bus, bits_per_s: 1e6, broadcast: true", "owp"),
)


def timed(model: Path, targets: str, medium: str, method: str, room: str = "220K") -> dict[str, Any]:
    """Predicted and simulated time of an inference in QEMU. `room`: flash and RAM; more where it is too little."""
    with tempfile.TemporaryDirectory() as name:
        rows = [f"- {{name: d{k}, target: {t}, flash: {room}, ram: {room}}}" for k, t in enumerate(targets.split())]
        file = Path(name) / "cluster.yaml"
        file.write_text("\n".join(["devices:", *rows, "source: d0", f"medium: {{{medium}}}", ""]))
        row: dict[str, Any] = {"model": model.stem, "targets": targets, "medium": medium, "method": method}
        try:
            return row | verify_cluster(ClusterRequest(model, file, "net", method=method), simulate="qemu")["time_us"]
        except EdgebuildError as error:
            if SMALL in targets:
                return timed(model, targets.replace(SMALL, LARGER), medium, method)
            if room != MUCH:
                return timed(model, targets, medium, method, MUCH)
            return {**row, "refused": str(error).splitlines()[0]}


def faults(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        file = cluster_of(3, 1 << 20, "kind: switch", Path(name))
        verdict = verify_cluster(ClusterRequest(DIGITS, file, "digits", method="owp"), disturbed=(7, count))
    result: dict[str, Any] = verdict["faults"]
    return result


def main() -> None:
    figures: dict[str, Any] = {"paper": paper()}
    print(f"{'network':12} {'layers':>6} {'single':>7} {'F':>7} {'first':>5} {'seq.':>7} {'FDTO':>7} {'OWP':>7}")
    for r in figures["paper"]:
        numbers = (r["F_single"], r["F"], r["first_weight_layer"], r["F_sequential"], r["C_fdto"], r["C_owp"])
        print(f"{r['network']:12} {r['layers']:6}", *(f"{x:7.4g}" for x in numbers))
    figures["plans"] = []
    for make in (float_plan, int8_plan):
        for name in NETWORKS:
            row = make(name, 6)
            figures["plans"].append(row)
            print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    figures["brute"] = brute(500)
    figures["exact"] = exact()
    print(figures["brute"], figures["exact"])
    figures["memory"] = []
    with tempfile.TemporaryDirectory() as folder:
        for given in ON_FOUR:
            for medium in ("kind: switch", "kind: bus, broadcast: true"):
                figures["memory"].append(row := memory(Path(folder), *given, medium))
                print(row, flush=True)
    figures["speeds"] = []
    for model in sorted((ROOT.parent / "shared" / "models").glob("mlperf_*.tflite")):
        figures["speeds"] += (rows := speeds(model))
        print(*rows, sep="\n", flush=True)
    figures["together"], figures["times"] = [], []
    with tempfile.TemporaryDirectory() as folder:
        for at, model in enumerate(models(Path(folder))):
            for n, simulate in [*((n, "host") for n in range(1, 9)), (2, "qemu"), (4, "qemu")]:
                figures["together"].append(row := together(model, n, at + n, simulate))
                print(row, flush=True)
            for targets, medium, method in TIMED:
                figures["times"].append(row := timed(model, targets, medium, method))
                print(row, flush=True)
    figures["faults"] = faults(FAULTS)
    print(figures["faults"])
    (ROOT / "build" / "bench").mkdir(parents=True, exist_ok=True)
    (ROOT / "build" / "bench" / "distribute.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
