"""`./sconsw bench-hierarchy`: temporal mapping against equation 4.1, DORY's rule and LOMA.

The 27 layers of the Turin thesis on `diana`: cycles of the exact search, the best that was known, those of the
baselines, and the processor time of the search. Random layers: the same against both baselines. All cycles are
modelled. Writes build/bench/hierarchy.json.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.mapping import map_layers, sweep
from edgebuild.model.plan.check.replay import BrokenPlan, replay
from edgebuild.model.plan.dma.levels import engine_hardware, rooms
from edgebuild.model.plan.dma.tiles import MappedOp
from edgebuild.model.plan.hierarchy.mapper import NoMapping, best, dory, loma
from edgebuild.model.plan.hierarchy.nest import ShapeRow, layer_of
from edgebuild.model.verify import verify
from tests.bench import ROOT
from tests.graphs import examples, single_ops, small_graphs
from tests.hierarchy import test_run_mutations as run_mutations
from tests.hierarchy.layers27 import KNOWN, layers
from tests.hierarchy.test_auto import any_plan
from tests.hierarchy.test_moved import KINDS, MODES, build, changed, check, in_tiles, run
from tests.hierarchy.test_mutations import MUTATIONS, feed, planned
from tests.zoo.builders import ZOO, mobilenet_v1, quantized
from tests.zoo.mobilenet_v2 import LARGE, mobilenet_v2

FACTORS = 9
RANDOM = 100
LAYERS, SECTIONS = 500, 60
V1, V2 = partial(mobilenet_v1, classes=1000), mobilenet_v2
# MobileNets by width and size, what DORY's paper measured (Burrello 2021, table 4), in million cycles, and how kernels
# are chosen: the fastest of V2 leave too little room for code.
GAP8 = {
    "MobileNetV1 1.0-128": (partial(V1, width=1.0, size=128), 23.3, "balanced"),
    "MobileNetV1 0.5-192": (partial(V1, width=0.5, size=192), 16.0, "balanced"),
    "MobileNetV1 0.25-128": (partial(V1, width=0.25, size=128), 2.8, "balanced"),
    "MobileNetV2 1.0-128": (partial(V2, width=1.0, size=128), 19.0, "size"),
}
MODELS, LIMIT = ("mlperf_kws", "mlperf_resnet", "person_detect"), "L1=16K"
PLANNED = (
    *((name, "pulp-cluster", way) for name in ("mobilenet_v1", "resnet8", "mobilenet_v2_035_144")
      for way in ("layer", "dory", "auto")),
    *(("mobilenet_v2_035_144", "host", way) for way in ("layer", "auto")),  # one core: no run leaves others idle
    ("mobilenet_v2_100_224", "pulp-cluster", "auto"),
)  # fmt: skip
# MobileNetV1 1.0-128 on `gap8`: L1 and L2; DORY's figure 11 compares the first pair with the second.
SWEPT = {"L1": (80 << 10, 400 << 10), "L2": (384 << 10, 4 << 20)}


def layers27() -> list[dict[str, Any]]:
    """A row for each layer."""
    rows = []
    for layer, room in layers():
        began = time.process_time()
        mapped, found = best(layer, room)
        spent = (time.process_time() - began) * 1e3
        whole = best(layer, dict.fromkeys(room, 1 << 30))[1].compute
        equation, known = KNOWN[layer.name]
        row: dict[str, Any] = {"name": layer.name, "tile": dict(mapped.tile), "order": list(mapped.order)}
        row |= {"compute": whole, "equation": equation, "total": found.total, "best_known": known, "cpu_ms": spent}
        row |= {"dory": dory(layer, room, False)[1].total, "loma9": loma(layer, room, FACTORS)}
        row |= {"holds": whole == equation and found.total <= known and found.total <= row["loma9"]}
        rows.append(row)
    return rows


def random_layers() -> dict[str, Any]:
    """How often the exact search is above a baseline (never), and by how much it is below on average."""
    target = load_target("diana")
    engine = target.engines[0]
    hardware, whole = engine_hardware(target, engine), rooms(target, engine)
    r, gains, above, mapped = random.Random(13), [], 0, 0
    for i in range(RANDOM):
        window = r.choice((1, 1, 3, 5))
        sizes = {"K": r.choice((8, 16, 24, 32, 64)), "C": r.choice((3, 16, 32, 70)), "OY": r.randint(4, 50)}
        row = ShapeRow(
            f"r{i}", **sizes, OX=r.randint(4, 50), FY=window, FX=window, pad_y=window // 2, pad_x=window // 2
        )
        layer, room = layer_of(row, hardware), {**whole, "activations": r.choice((8, 24, 64, 128)) << 10}
        try:
            exact, rule = best(layer, room)[1].total, dory(layer, room, False)[1].total
        except NoMapping:
            continue
        mapped, above = mapped + 1, above + (exact > rule)
        gains.append(1 - exact / rule)
    return {"layers": mapped, "above_dory": above, "mean_gain": statistics.mean(gains)}


def networks() -> list[dict[str, Any]]:
    """Public models on `gap8`, every op by itself: cycles by the exact search and by DORY's rule."""
    target, found = load_target("gap8"), []
    for name in MODELS:
        file = ROOT.parent / "shared" / "models" / f"{name}.tflite"
        if file.exists():
            totals = {way: sum(f.cycles for f in map_layers(file, target, way, LIMIT)) for way in ("exact", "dory")}
            found.append({"name": name, "target": target.name, "limit": LIMIT, **totals})
    return found


def whole_plans() -> list[dict[str, Any]]:
    """Networks of the zoo by layers, by DORY's rule and jointly: figures of their reports."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, target, way in PLANNED:
            file = Path(folder) / f"{name}.onnx"
            if not file.exists():
                model = quantized({**ZOO, **LARGE}[name](0), 0)
                file.write_bytes(model.SerializeToString(deterministic=True))
            began = time.process_time()
            artifacts = compile_model(ModelRequest(file, name, target, map=way))
            report = json.loads(next(a.data for a in artifacts if a.name.endswith("_report.json")))["hierarchy"]
            row = {"name": name, "target": target, "method": way, **report["cycles"]}
            row |= {"activation_bytes": report["activation_bytes"], "cpu_s": time.process_time() - began}
            found.append(row)
    return found


def swept() -> list[dict[str, Any]]:
    """Modelled cycles of MobileNetV1 1.0-128 on `gap8` by sizes of its levels."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mobilenet_v1.onnx"
        model = quantized(mobilenet_v1(0, width=1.0, size=128, classes=1000), 0)
        file.write_bytes(model.SerializeToString(deterministic=True))
        found = sweep(ModelRequest(file, "model", "gap8"), load_target("gap8"), SWEPT)
    return [{**dict(zip(SWEPT, key, strict=True)), "cycles": cycles} for key, cycles in sorted(found.items())]


def gap8() -> list[dict[str, Any]]:
    """MobileNets by width and size on `gap8`, in million cycles, beside what the paper measured for DORY.

    `simulated`: eight cores run the printed program, whose results are the oracle's. `modelled`: by its plan.
    """
    rows, target = list[dict[str, Any]](), load_target("gap8")
    with tempfile.TemporaryDirectory() as folder:
        for name, (network, measured, optimize) in GAP8.items():
            file = Path(folder) / "model.onnx"
            file.write_bytes(quantized(network(0), 0).SerializeToString(deterministic=True))
            artifacts = compile_model(ModelRequest(file, "model", "gap8", map="auto", optimize=optimize))
            result = verify(file, target, artifacts)
            report = json.loads(next(a.data for a in artifacts if a.name.endswith("_report.json")))
            assert result["equal"]
            figures = {"modelled": report["hierarchy"]["cycles"]["total"], "simulated": result["cycles"]}
            rows.append({"name": name, "measured_by_the_paper": measured} | {k: v / 1e6 for k, v in figures.items()})
    return rows


def tiles(count: int) -> dict[str, int]:
    """Layers in random tiles and networks in random sections, run in all modes of the DMA model. Wrong ones raise."""
    each, done, tiled = -(-count // len(KINDS)), 0, 0
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            plans = check(examples(single_ops(kind), each), Path(folder))
            done, tiled = done + len(plans), tiled + in_tiles(plans)
    with tempfile.TemporaryDirectory() as folder:
        whole = check(examples(small_graphs(), SECTIONS), Path(folder), any_plan)
    return {"layers": done, "of_several_tiles": tiled, "networks": len(whole), "modes": len(MODES), "wrong": 0}


def mutations() -> dict[str, int]:
    """How many broken movements the replay of the plan refuses, and the model of a DMA unit catches."""
    plan, run_plan, refused, caught = planned(), run_mutations.planned(), 0, 0
    broken = [changed(plan, MappedOp, change) for change in MUTATIONS.values()]
    broken += [change(run_plan) for change in run_mutations.MUTATIONS.values()]
    wanted = [feed] * len(MUTATIONS) + [run_mutations.feed] * len(run_mutations.MUTATIONS)
    for p, want_of in zip(broken, wanted, strict=True):
        try:
            replay(p.graph, p.steps, p.places, p.target, p.layout.heights["L1"])
        except BrokenPlan:
            refused += 1
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            build([p], 2, folder)
            want = want_of(folder)
            wrong = [run(folder, mode).returncode or (folder / "out.bin").read_bytes() != want for mode in MODES]
            caught += any(wrong)
    return {"mutations": len(broken), "refused_by_replay": refused, "caught_by_the_dma_model": caught}


def main() -> None:
    rows, drawn, whole, broken = layers27(), random_layers(), networks(), mutations()
    cluster = gap8()
    plans, sizes, drawn = whole_plans(), swept(), {**drawn, "tiles": tiles(LAYERS)}
    print(f"{'layer':7} {'compute':>9} {'total':>9} {'known':>9} {'dory':>9} {'loma:9':>9} {'CPU ms':>7}")
    for row in rows:
        figures = " ".join(f"{row[k]:9,.0f}" for k in ("compute", "total", "best_known", "dory", "loma9"))
        print(f"{row['name']:7} {figures} {row['cpu_ms']:7.1f}{'' if row['holds'] else '  MISSED'}")
    sets: dict[str, list[float]] = {}
    for row in rows:
        sets.setdefault(row["name"].partition(".")[0], []).append(1 - row["total"] / row["dory"])
    means = {name: statistics.mean(gains) for name, gains in sets.items()}
    print("below DORY's rule, mean:", ", ".join(f"{n} {g:.1%}" for n, g in means.items()))
    print(f"{drawn['layers']} random layers: {drawn['mean_gain']:.1%} below it, {drawn['above_dory']} above")
    for row in whole:
        print(f"{row['name']} on {row['target']}, {LIMIT}: {row['exact']:,.0f} cycles, DORY's rule {row['dory']:,.0f}")
    for row in plans:
        print(
            f"{row['name']} on {row['target']}, {row['method']}: {row['total']:,.0f} cycles, {row['gap_percent']:.2f} %"
            f" above the bound; {row['activation_bytes']:,} B of activations moved; {row['cpu_s']:.1f} s"
        )
    for row in cluster:
        print(
            f"{row['name']} on gap8: {row['simulated']:.2f} million cycles simulated, {row['modelled']:.2f} modelled;"
            f" DORY's paper measured {row['measured_by_the_paper']}"
        )
    for row in sizes:
        print(f"mobilenet_v1 1.0-128 on gap8, L1 {row['L1']:,}, L2 {row['L2']:,}: {row['cycles']:,.0f} cycles")
    print(f"in random tiles and sections, equal to the ops: {drawn['tiles']}")
    print(f"broken movements: {broken}")
    folder = ROOT / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    spent = [row["cpu_ms"] for row in rows]
    data = {"layers27": rows, "holds": sum(row["holds"] for row in rows), "below_dory": means, "random": drawn}
    data |= {"networks": [*whole, *plans], "mutations": broken, "gap8": cluster, "sweep": sizes}
    data |= {"cpu_ms": {"median": statistics.median(spent), "worst": max(spent)}, "modelled": True}
    (folder / "hierarchy.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
