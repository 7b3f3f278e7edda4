"""Summary of a model for a build's output: a view of its report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from edgebuild.base.artifacts import Artifact


def summary(artifacts: Sequence[Artifact]) -> str:
    """Summary of a model in three lines, and one each for what less memory would cost and for clocks."""
    files = {a.name: a.data for a in artifacts}
    r = json.loads(next(data for name, data in files.items() if name.endswith("_report.json")))
    ram, rom, macs = r["ram"], r["rom"], r["macs"]["model"]
    proved = r["layout"]["optimal"] and (r["schedule"]["optimal"] or r["tiling"])
    proof = "optimal" if proved else f"bound {ram['lower_bound_bytes']} B"
    size = f"{macs / 1e6:.2f} M" if macs >= 10000 else str(macs)
    count = sum(len(step["ops"]) for step in r["schedule"]["steps"])
    saved = f"{ram['untiled_arena_bytes']} B -> " if r["tiling"] else ""
    how = f"{_tiling(r)}; layout {proof}" if r["tiling"] else proof
    return "\n".join(
        f"[edgebuild] {line}"
        for line in (
            f"{r['model']['file']} -> {r['target']}: {count} ops, {size} MACs",
            f"arena {saved}{ram['arena_bytes']} B ({how})",
            *_less(r),
            f"weights {rom['weights_bytes']} B in {rom['memory']}, code about {rom['estimated_code_bytes']} B",
            *([_energy(r["energy"])] if "energy" in r else []),
        )
    )


def _tiling(r: dict[str, Any]) -> str:
    rolled = sum(len(t["ops"]) for t in r["tiling"] if t["kind"] == "rolling")
    parts = sum(t["kind"] != "rolling" for t in r["tiling"])
    macs = r["macs"]["generated"] - r["macs"]["model"]
    words = [f"{rolled} ops row by row"] if rolled else []
    words += [f"{parts} {'run' if parts == 1 else 'runs'} of ops in parts"] if parts else []
    return ", ".join([*words, f"{100 * macs / r['macs']['model']:.1f} % more MACs" if macs > 0 else "no extra MACs"])


def _less(r: dict[str, Any]) -> list[str]:
    """Costs of less memory: of the next way, and of the last. Nothing where no way takes less."""
    ways = r.get("trade_off", [])
    at = next((i for i, way in enumerate(ways) if way["chosen"]), 0)
    if not at:
        return []
    now = max(ways[at]["estimated_instructions"], 1)
    costs = [f"{w['peak_bytes']} B for {w['estimated_instructions'] / now - 1:+.1%}" for w in (ways[at - 1], ways[0])]
    known = ", ".join(dict.fromkeys(costs))
    return [f"less memory: {known} instructions, estimated (--ram BYTES, --objective ram)"]


def _energy(e: dict[str, Any]) -> str:
    clocks = ", ".join(dict.fromkeys(layer["config"] for layer in e["layers"]))
    spent = f"{e['time_us'] / 1000:.1f} of {e['qos_us'] / 1000:g} ms at {clocks}"
    return f"energy {e['energy_uj'] / 1000:.2f} mJ modelled, {spent}, then {e['idle']['mode'].replace('_', ' ')}"
