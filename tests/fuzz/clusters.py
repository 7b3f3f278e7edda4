"""Random networks on random clusters: together all devices give what one gives, and that is judged as `verify` does."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

from edgebuild.base.errors import EdgebuildError
from edgebuild.model.cluster.products import ClusterRequest
from edgebuild.model.compile import prepare
from edgebuild.model.verify import cluster as together

from .machine import PLAN_SECONDS, TooLong, at_most
from .networks import WRITERS, drawn
from .others import Trouble

FORMS = ("tflite", "tflite_int16", "tflite_float", "qdq", "qoperator", "float")
MEDIA = ("star", "bus", "switch")


def described(random: Random, weights: int) -> str:
    """A cluster file: two to four devices, whose flash mostly leaves no room for all weights on one of them."""
    count, room = random.randint(2, 4), random.choice((1.2, 1.5, 2.0, 10.0))
    rows = [
        f"- {{name: d{n}, target: host, flash: {int(room * weights / count * random.uniform(1, 1.6)) + 400}, ram: 1M}}"
        for n in range(count)
    ]
    medium = f"kind: {random.choice(MEDIA)}, bits_per_s: 3e6, message_us: {random.choice((0, 20, 500))}"
    lines = ["devices:", *rows, f"source: d{random.randrange(count)}", f"medium: {{{medium}}}"]
    return "\n".join([*lines, f"objective: {random.choice(('traffic', 'latency', 'memory'))}", ""])


def distributed(form: str, seed: int, folder: Path, scores: dict[str, int]) -> Iterator[Trouble]:
    """One network on one cluster; `scores` gets how many ran, sent messages, or were refused."""
    place, random, recipe = folder / f"{form}_{seed}", Random(seed), drawn(form, seed)
    place.mkdir(parents=True, exist_ok=True)
    file, cluster = place / f"network.{recipe.suffix}", place / "cluster.yaml"
    command = f"edgebuild verify {file} --cluster {cluster}"
    try:
        file.write_bytes(WRITERS[form].write(recipe))
        graph = prepare(file)
        weights = sum(t.bytes for t in graph.tensors.values() if t.constant)
        cluster.write_text(described(random, weights), encoding="utf-8")
        with patch.object(together, "SANITIZERS", ()), at_most(PLAN_SECONDS):
            result = together.verify_cluster(ClusterRequest(file, cluster, "model"), judge_one=True)
    except (EdgebuildError, ValueError, TooLong):
        scores["clusters_refused"] = scores.get("clusters_refused", 0) + 1
        return
    except Exception:
        yield Trouble("traceback", command, traceback.format_exc())
        return
    for name in ("clusters", *(["clusters_that_send"] if result["messages"] else [])):
        scores[name] = scores.get(name, 0) + 1
    if not (result["equal"] and result["as_planned"]):
        yield Trouble("wrong", command, f"{ {k: v for k, v in result.items() if k not in ('devices',)} }")
    else:
        shutil.rmtree(place)
