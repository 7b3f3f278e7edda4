"""Summary of a model for a build's output: a view of its report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from edgebuild.base.artifacts import Artifact

NOTED = 1024  # bytes of flash that another plan must take more, to be told


def summary(artifacts: Sequence[Artifact]) -> str:
    """Summary of a model in three lines, and one each for what less memory costs or would cost, and for clocks."""
    files = {a.name: a.data for a in artifacts}
    r = json.loads(next(data for name, data in files.items() if name.endswith("_report.json")))
    ram, rom, macs = r["ram"], r["rom"], r["macs"]["model"]
    proved = r["layout"]["optimal"] and (r["schedule"]["optimal"] or r["tiling"])
    proof = "optimal" if proved else f"bound {ram['lower_bound_bytes']} B"
    size = f"{macs / 1e6:.2f} M" if macs >= 10000 else str(macs)
    count = sum(len(step["ops"]) for step in r["schedule"]["steps"])
    saved = f"{ram['untiled_arena_bytes']} B -> " if r["tiling"] else ""
    how = f"{_tiling(r)}; layout {proof}" if r["tiling"] else f"layout {proof}"
    return "\n".join(
        f"[edgebuild] {line}"
        for line in (
            f"{r['model']['file']} -> {r['target']}: {count} ops, {size} MACs",
            f"arena {saved}{ram['arena_bytes']} B ({how})",
            *_slices(r),
            *_price(r),
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


def _slices(r: dict[str, Any]) -> list[str]:
    """The longest step of an inference in steps, where the clock is known, and why it is longer than it may be."""
    if (s := r.get("slices")) is None:
        return []
    name, limit = r["schedule"]["order"][s["step"]], s.get("limit_us")
    text = f"longest step {s['longest_us']:.0f} us, modelled: {s['step']} {name.split(';')[0]}"
    if limit is None or s["longest_us"] <= limit:
        return [text]
    return [f"{text}; it is longer than {limit:g} us, for it cannot be cut further"]


def _price(r: dict[str, Any]) -> list[str]:
    """Cost of less memory against every op by itself. Nothing where nothing is tiled."""
    if not r["tiling"] or "price" not in r:
        return []
    more = _share_words(r["price"]["instructions"], r["price"]["cycles"])
    return [f"{more} against --tile off ({r['ram']['untiled_arena_bytes']} B), estimated"]


def _less(r: dict[str, Any]) -> list[str]:
    """Costs of less memory: of the next cut, and of the last. Nothing where no cut takes less."""
    cuts = r.get("trade_off", [])
    at = next((i for i, cut in enumerate(cuts) if cut["chosen"]), 0)
    if not at:
        return []
    costs = dict.fromkeys(f"{cut['peak_bytes']} B for {_against(cuts[at], cut)}" for cut in (cuts[at - 1], cuts[0]))
    return [f"less memory: {'; '.join(costs)}, estimated (--ram BYTES, --objective ram)"]


def _against(now: dict[str, Any], cut: dict[str, Any]) -> str:
    """Shares that another cut takes more than that of the plan, and bytes of flash."""
    more = _share_words(cut["estimated_instructions"] / max(now["estimated_instructions"], 1) - 1, cut["time"] - 1)
    flash = cut["flash_bytes"] - now["flash_bytes"]
    return f"{more}, {flash:+d} B of flash" if flash >= NOTED else more


def _share_words(instructions: float, cycles: float) -> str:
    """Shares in words; cycles only where they are another share."""
    words = f"{instructions:+.1%} instructions"
    return words if abs(cycles - instructions) < 0.005 else f"{words}, {cycles:+.1%} cycles"


def _energy(e: dict[str, Any]) -> str:
    clocks = ", ".join(dict.fromkeys(layer["config"] for layer in e["layers"]))
    spent = f"{e['time_us'] / 1000:.1f} of {e['qos_us'] / 1000:g} ms at {clocks}"
    return f"energy {e['energy_uj'] / 1000:.2f} mJ modelled, {spent}, then {e['idle']['mode'].replace('_', ' ')}"
