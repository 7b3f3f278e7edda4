"""Networks and plans for tests: random networks, and plans that use one method wherever they can."""

from __future__ import annotations

from pathlib import Path

from edgebuild.base.request import ModelRequest
from edgebuild.model.cluster.terms import network_of
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.ir import Array, Graph
from edgebuild.model.plan.distribute.by_name import INFINITY, MAX_OPTIONS, MIXED
from edgebuild.model.plan.distribute.forms import Cluster, ClusterPlan, Device, DeviceLimits, Medium
from edgebuild.model.plan.distribute.joint import Search
from edgebuild.model.verify import cluster as together
from tests.fuzz.networks import WRITERS, recipes

ANY = float("inf")
METHODS = ("joint", "mixed", "fan-out", "fan-in", "parts", "rows")


def random_graph(form: str, seed: int, folder: Path) -> Graph | None:
    """A random network of a form of `tests.fuzz`; None if there is none for this seed."""
    for recipe in recipes(seed, 1, [form]):
        file = folder / f"{form}{seed}.{'tflite' if form == 'tflite' else 'onnx'}"
        file.write_bytes(WRITERS[form].write(recipe))
        return prepare(file)
    return None


def alone(model: Path, folder: Path, vectors: list[list[Array]]) -> list[list[Array]]:
    """The outputs of one device for each vector."""
    artifacts = compile_model(ModelRequest(model, "model", "host"))
    return together._one_device(artifacts, folder, len(vectors))(vectors)


def cluster(n: int, kind: str = "switch", source: int = 0, shares: tuple[float, ...] = (1.0, 1.4, 1.8)) -> Cluster:
    """Unequal devices, so that parts have unequal sizes."""
    devices = tuple(Device(f"d{i}", "host", 1 << 30, 1 << 30, shares[i % len(shares)]) for i in range(n))
    return Cluster(devices, source, Medium(kind, broadcast=kind == "bus"))


def plan_by(graph: Graph, devices: Cluster, method: str) -> ClusterPlan | None:
    """A plan by one method wherever a layer has it.

    `joint`: with little more flash than the weights divided by n. `mixed`: the same, and devices run layers alone.
    """
    network, n = network_of(graph), len(devices.devices)
    if method in ("joint", "mixed"):
        limits = DeviceLimits((1.3 * network.weights / n + 200,) * n, (ANY,) * n)
        search = Search(network, devices, limits, stages=method == "mixed" and n <= MIXED)
        ways = search.graph(most=MAX_OPTIONS if search.stages else INFINITY)
        return search.solved(ways)[0] if ways else None
    limits = DeviceLimits((ANY,) * n, (ANY,) * n)
    search, methods = Search(network, devices, limits), []
    for number in range(len(network.layers)):
        possible = {option[0] for option in search.options[number]}
        wanted = [m for m in (method, "fan-out" if method != "rows" else "copies") if m in possible]
        methods.append(frozenset(wanted[:1] or ["copies"]))
    return Search(network, devices, limits, methods=tuple(methods)).run()
