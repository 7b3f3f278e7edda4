"""N_cluster.h: facts that all devices of a cluster have in common."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.artifacts import Artifact
from ...base.dataclass import dataclass
from ...base.templates import render
from ...base.text import identifier
from .names import comment


@dataclass(frozen=True)
class TrafficRow:
    """A message as the header shows it."""

    number: int
    sender: int
    receiver: int
    bytes: int
    tensor: str


def cluster_header(
    name: str,
    file: str,
    plan_hash: int,
    source: int,
    devices: Sequence[tuple[str, str]],
    messages: Sequence[TrafficRow],
) -> Artifact:
    """`devices`: names, and what they do. `plan_hash`: 32 bits."""
    ids = [identifier(n).upper() for n, _ in devices]
    ids = [f"{own}_{k}" if ids.count(own) > 1 else own for k, own in enumerate(ids)]
    rows_of = zip(ids, devices, strict=True)
    shown = [{"id": own, "name": comment(n), "does": comment(does)} for own, (n, does) in rows_of]
    rows = [TrafficRow(m.number, m.sender, m.receiver, m.bytes, comment(m.tensor)) for m in messages]
    text = render("cluster.h.j2", name=name, prefix=name.upper(), file=comment(file), hash=plan_hash, source=source,
                  devices=shown, messages=rows)  # fmt: skip
    return Artifact(f"{name}_cluster.h", text.encode())
