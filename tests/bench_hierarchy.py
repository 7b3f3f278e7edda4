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
from pathlib import Path
from typing import Any

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.mapping import map_layers
from edgebuild.model.plan.hierarchy.baselines import dory, loma
from edgebuild.model.plan.hierarchy.files import Row, layer_of
from edgebuild.model.plan.hierarchy.search import NoMapping, best
from edgebuild.model.plan.levels import engine_hardware, rooms
from edgebuild.model.plan.replay import BrokenPlan, replay
from tests.bench import ROOT
from tests.hierarchy.layers27 import KNOWN, layers
from tests.hierarchy.test_mutations import MUTATIONS, planned
from tests.zoo.builders import ZOO, quantized
from tests.zoo.mobilenet_v2 import LARGE

FACTORS = 9
RANDOM = 100
MODELS, LIMIT = ("mlperf_kws", "mlperf_resnet", "person_detect"), "L1=16K"
PLANS, PLANNED = ("mobilenet_v1", "resnet8", "mobilenet_v2_035_144"), "pulp-cluster"


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
        row = Row(f"r{i}", **sizes, OX=r.randint(4, 50), FY=window, FX=window, pad_y=window // 2, pad_x=window // 2)
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
    """Networks of the zoo on `PLANNED`, by layers, by DORY's rule and jointly: figures of their reports."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, build in {**ZOO, **LARGE}.items():
            if name not in PLANS:
                continue
            file = Path(folder) / f"{name}.onnx"
            file.write_bytes(quantized(build(0), 0).SerializeToString(deterministic=True))
            for way in ("layer", "dory", "auto"):
                began = time.process_time()
                artifacts = compile_model(ModelRequest(file, name, PLANNED, map=way))
                report = json.loads(next(a.data for a in artifacts if a.name.endswith("_report.json")))["hierarchy"]
                row = {"name": name, "target": PLANNED, "method": way, **report["cycles"]}
                row |= {"activation_bytes": report["activation_bytes"], "cpu_s": time.process_time() - began}
                found.append(row)
    return found


def mutations() -> dict[str, int]:
    """How many broken movements the replay of the plan refuses."""
    plan, refused = planned(), 0
    for change in MUTATIONS.values():
        try:
            replay(plan.rolling, plan.steps, plan.places, {"y": change(plan.moved["y"])})
        except BrokenPlan:
            refused += 1
    return {"mutations": len(MUTATIONS), "refused_by_replay": refused}


def main() -> None:
    rows, drawn, whole, broken = layers27(), random_layers(), networks(), mutations()
    plans = whole_plans()
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
    print(f"replay refuses {broken['refused_by_replay']} of {broken['mutations']} broken movements")
    folder = ROOT / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    spent = [row["cpu_ms"] for row in rows]
    data = {"layers27": rows, "holds": sum(row["holds"] for row in rows), "below_dory": means, "random": drawn}
    data |= {"networks": [*whole, *plans], "mutations": broken}
    data |= {"cpu_ms": {"median": statistics.median(spent), "worst": max(spent)}, "modelled": True}
    (folder / "hierarchy.json").write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
