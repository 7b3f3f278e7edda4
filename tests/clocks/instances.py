"""Random instances of the selection problem, shaped like a network on a chip with a PLL that takes its time."""

from __future__ import annotations

import random

from edgebuild.model.energy.layer_cost import EnergyLayer, EnergyProblem, IdleMode, OperatingPoint, SwitchCost


def random_problem(
    seed: int, layers: int = 60, points: int = 12, configs: int = 6, slack: float | None = None
) -> EnergyProblem:
    """`points` per layer over `configs` clocks with a voltage step, stalls that no clock makes faster, relock times,
    and three ways to idle. The slack over the fastest plan is 5 to 60 % unless given."""
    rng = random.Random(seed)
    clocks = [216.0, 180.0, 168.0, 144.0, 108.0, 75.0, 60.0, 50.0, *range(200, 40, -15)][:configs]
    volts = {216.0: 1.32, 180.0: 1.32, 168.0: 1.26}
    names = [f"{f:g}MHZ" for f in clocks]
    rows = []
    for k in range(layers):
        cycles, stall = rng.uniform(5e4, 6e5), rng.uniform(0.05, 0.45)
        row = []
        for i in range(points):
            f = clocks[i % configs]
            g = i // configs
            saved = 1 - stall * min(0.25 * g, 0.7) * rng.uniform(0.5, 1.0)
            time = cycles * (1 - stall) / f + cycles * stall * saved / 216.0 * (216.0 / f) ** 0.4
            power = 30.0 + 0.9 * f * (volts.get(f, 1.14) / 1.14) ** 2 - 9.0 * g
            row.append(OperatingPoint(names[i % configs], 4 * g, time, power * time / 1000 * rng.uniform(0.97, 1.03)))
        rows.append(EnergyLayer(f"layer{k}", tuple(row)))
    switches = {(a, b): SwitchCost(rng.uniform(150, 380), rng.uniform(8, 25)) for a in names for b in names if a != b}
    idle = {
        name: (
            IdleMode("busy", 30.0 + 0.9 * f, 0.0, 0.0, returns=True),
            IdleMode("gated", 10.0 + 0.25 * f, 0.0, 0.0, returns=True),
            IdleMode("stop", 1.2, rng.uniform(15, 40), rng.uniform(200, 500)),
        )
        for name, f in zip(names, clocks, strict=True)
    }
    fastest = sum(min(p.time_us for p in layer.points) for layer in rows)
    share = rng.uniform(0.05, 0.6) if slack is None else slack
    return EnergyProblem(tuple(rows), switches, idle, fastest * (1 + share) + 400)
