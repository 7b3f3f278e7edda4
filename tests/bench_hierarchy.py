"""`./sconsw bench-hierarchy`: temporal mapping against equation 4.1, DORY's rule and LOMA.

The 27 layers of the Turin thesis on `diana`: cycles of the exact search, the best that was known, those of the
baselines, and the processor time of the search. Random layers: the same against both baselines. All cycles are
modelled. Writes build/bench/hierarchy.json.

Names of sections run these alone, and `--only` the rows whose name has that part. The file keeps the other rows.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
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
from tests.hierarchy.layers27 import BEST, layers
from tests.hierarchy.test_auto import any_plan
from tests.hierarchy.test_moved import KINDS, changed, check, equal_by_mode, in_tiles
from tests.hierarchy.test_mutations import MUTATIONS, feed, planned
from tests.zoo.builders import ZOO, mobilenet_v1, quantized
from tests.zoo.mobilenet_v2 import LARGE, mobilenet_v2

Row = dict[str, Any]
FACTORS = 9
RANDOM = 100
LAYERS, NETWORKS = 500, 60
V1, V2 = partial(mobilenet_v1, classes=1000), mobilenet_v2
# MobileNets by width and size, and what DORY's paper measured (Burrello 2021, table 4), in million cycles.
GAP8 = {
    "MobileNetV1 1.0-128": (partial(V1, width=1.0, size=128), 23.3),
    "MobileNetV1 0.5-192": (partial(V1, width=0.5, size=192), 16.0),
    "MobileNetV1 0.25-128": (partial(V1, width=0.25, size=128), 2.8),
    "MobileNetV2 1.0-128": (partial(V2, width=1.0, size=128), 19.0),
}
MODELS, LIMIT = ("mlperf_kws", "mlperf_resnet", "person_detect"), "L1=16K"
PLANNED = (
    *((name, "pulp-cluster", method) for name in ("mobilenet_v1", "resnet8", "mobilenet_v2_035_144")
      for method in ("layer", "dory", "auto")),
    *(("mobilenet_v2_035_144", "host", method) for method in ("layer", "auto")),  # one core: no run leaves others idle
    ("mobilenet_v2_100_224", "pulp-cluster", "auto"),
)  # fmt: skip
# MobileNetV1 1.0-128 on `gap8`: L1 and L2; DORY's figure 11 compares the first pair with the second.
SWEPT = {"L1": (80 << 10, 400 << 10), "L2": (384 << 10, 4 << 20)}


def layers27(only: str) -> Iterator[Row]:
    """A row for each layer."""
    for layer, room in layers():
        if only not in layer.name:
            continue
        began = time.process_time()
        mapped, figures = best(layer, room)
        spent = (time.process_time() - began) * 1e3
        whole = best(layer, dict.fromkeys(room, 1 << 30))[1].compute
        equation, least = BEST[layer.name]
        row: Row = {"name": layer.name, "tile": dict(mapped.tile), "order": list(mapped.order)}
        row |= {"compute": whole, "equation": equation, "total": figures.total, "best_known": least, "cpu_ms": spent}
        row |= {"dory": dory(layer, room, False)[1].total, "loma9": loma(layer, room, FACTORS)}
        yield row | {"holds": whole == equation and figures.total <= least and figures.total <= row["loma9"]}


def random_layers(only: str) -> Iterator[Row]:
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
    yield {"name": "random", "layers": mapped, "above_dory": above, "mean_gain": statistics.mean(gains)}


def by_op(only: str) -> Iterator[Row]:
    """Public models on `gap8`, every op by itself: cycles by the exact search and by DORY's rule."""
    target = load_target("gap8")
    for name in MODELS:
        file = ROOT.parent / "shared" / "models" / f"{name}.tflite"
        if only in name and file.exists():
            totals = {
                method: sum(f.cycles for f in map_layers(file, target, method, LIMIT)) for method in ("exact", "dory")
            }
            yield {"name": name, "target": target.name, "limit": LIMIT, **totals}


def networks(only: str) -> Iterator[Row]:
    """Networks of the zoo by layers, by DORY's rule and jointly: figures of their reports."""
    for name, target, method in PLANNED:
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{name}.onnx"
            model = quantized({**ZOO, **LARGE}[name](0), 0)
            file.write_bytes(model.SerializeToString(deterministic=True))
            began = time.process_time()
            artifacts = compile_model(ModelRequest(file, name, target, map=method))
        report = json.loads(next(a.data for a in artifacts if a.name.endswith("_report.json")))["hierarchy"]
        row = {"name": name, "target": target, "method": method, **report["cycles"]}
        yield row | {"activation_bytes": report["activation_bytes"], "cpu_s": time.process_time() - began}


def swept(only: str) -> Iterator[Row]:
    """Modelled cycles of MobileNetV1 1.0-128 on `gap8` by sizes of its levels."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mobilenet_v1.onnx"
        model = quantized(mobilenet_v1(0, width=1.0, size=128, classes=1000), 0)
        file.write_bytes(model.SerializeToString(deterministic=True))
        table = sweep(ModelRequest(file, "model", "gap8"), load_target("gap8"), SWEPT)
    for key, cycles in sorted(table.items()):
        yield {"name": " ".join(map(str, key)), **dict(zip(SWEPT, key, strict=True)), "cycles": cycles}


def gap8(only: str) -> Iterator[Row]:
    """MobileNets by width and size on `gap8`, in million cycles, beside what the paper measured for DORY.

    `simulated`: eight cores run the printed program, whose results are the oracle's. `modelled`: by its plan.
    """
    target = load_target("gap8")
    for name, (network, measured) in GAP8.items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.onnx"
            file.write_bytes(quantized(network(0), 0).SerializeToString(deterministic=True))
            artifacts = compile_model(ModelRequest(file, "model", "gap8", map="auto"))
            result = verify(file, target, artifacts)
        report = json.loads(next(a.data for a in artifacts if a.name.endswith("_report.json")))
        assert result["equal"]
        figures = {"modelled": report["hierarchy"]["cycles"]["total"], "simulated": result["cycles"]}
        yield {"name": name, "measured_by_the_paper": measured} | {k: v / 1e6 for k, v in figures.items()}


def tiles(only: str) -> Iterator[Row]:
    """Layers in random tiles and networks in random sections, run in all modes of the DMA model. Wrong ones raise."""
    for kind in KINDS:
        if only in str(kind):
            with tempfile.TemporaryDirectory() as folder:
                plans = check(examples(single_ops(kind), -(-LAYERS // len(KINDS))), Path(folder))
                yield {"name": str(kind), "equal": len(plans), "of_several_tiles": in_tiles(plans)}
    with tempfile.TemporaryDirectory() as folder:
        yield {"name": "networks", "equal": len(check(examples(small_graphs(), NETWORKS), Path(folder), any_plan))}


def mutations(only: str) -> Iterator[Row]:
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
            caught += not all(equal_by_mode(p, want_of, Path(name)))
    yield {"name": "broken", "mutations": len(broken), "refused_by_replay": refused, "caught_by_the_dma_model": caught}


SECTIONS: dict[str, Callable[[str], Iterator[Row]]] = {
    "layers27": layers27, "random": random_layers, "by_op": by_op, "networks": networks, "gap8": gap8, "sweep": swept,
    "tiles": tiles, "mutations": mutations,
}  # fmt: skip


def below_dory(rows: list[Row]) -> dict[str, float]:
    """Mean gain of the exact search over DORY's rule, by set of layers."""
    sets: dict[str, list[float]] = {}
    for row in rows:
        sets.setdefault(row["name"].partition(".")[0], []).append(1 - row["total"] / row["dory"])
    return {name: statistics.mean(gains) for name, gains in sets.items()}


def _shown(value: Any) -> str:
    return (
        f"{value:,.4g}"
        if isinstance(value, float) and value < 1e4
        else f"{value:,.0f}"
        if type(value) in (int, float)
        else str(value)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--only", default="", help="a part of the rows' names")
    args = parser.parse_args()
    if unknown := set(args.sections) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    file = ROOT / "build" / "bench" / "hierarchy.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    data = json.loads(file.read_text()) if file.exists() else {}
    for section in args.sections:
        data[section] = [row for row in data.get(section, ()) if args.only and args.only not in row["name"]]
        for row in SECTIONS[section](args.only):
            if args.only in row["name"]:
                data[section].append(row)
                print(f"{section}:", ", ".join(f"{k} {_shown(v)}" for k, v in row.items()), flush=True)
                data["below_dory"] = below_dory(data.get("layers27", []))
                file.write_text(json.dumps(data, indent=1) + "\n")
    print(
        "below DORY's rule, mean:",
        ", ".join(f"{name} {gain:.1%}" for name, gain in below_dory(data.get("layers27", [])).items()),
    )


if __name__ == "__main__":
    main()
