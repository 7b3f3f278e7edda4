"""Rings, newest rows and sums over an operand that is read for the last time: less memory, and mistakes are found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model, plan_model
from edgebuild.model.ir import Array, Graph, dump
from edgebuild.model.plan import cuts, section
from edgebuild.model.plan.check.replay import BrokenPlan
from edgebuild.model.verify import verify
from tests.graphs import examples, small_graphs
from tests.rolling.test_networks import Net
from tests.rolling.test_rolling import check, planned
from tests.zoo.builders import Net as Onnx
from tests.zoo.builders import quantized

Patch = pytest.MonkeyPatch


def layers() -> Graph:
    """An image of four channels, rings of eight, and a result that grows behind the rows that have been read."""
    net = Net(1, 16, 6, 4)
    y = net.conv("x", 8, 1)
    for _ in range(2):
        y = net.conv(net.conv(y, 8, 3), 8, 1)
    return net.graph(net.conv(y, 4, 3, 2))


def test_they_take_less_memory(monkeypatch: Patch) -> None:
    rolled = check(layers(), tile="rolling")
    assert any(s.overlaid for s in rolled.steps)
    assert any(b.overlaps and b.calls for b in rolled.buffers)
    monkeypatch.setattr(cuts, "with_overlaid", lambda trace, step, *a: step)
    assert rolled.arena_bytes < check(layers(), tile="rolling").arena_bytes


def test_they_never_take_more(monkeypatch: Patch) -> None:
    """A result behind more than there is room for would stick out of the operand."""
    graphs = examples(small_graphs(), 100)
    plans = [planned(replace(graph), tile="rolling") for graph in graphs]
    assert any(section.overlaid for plan in plans for section in plan.steps)
    monkeypatch.setattr(cuts, "with_overlaid", lambda trace, step, *a: step)
    for graph, plan in zip(graphs, plans, strict=True):
        assert plan.arena_bytes <= planned(replace(graph), tile="rolling").arena_bytes, dump(graph)


def too_early(patch: Patch) -> None:
    """More of the operand counts as read."""
    right = section.Consumed.before

    def before(self: section.Consumed, call: Array) -> Array:
        distances: Array = right(self, call) + 96
        return distances

    patch.setattr(section.Consumed, "before", before)


def over_each_other(patch: Patch) -> None:
    """All that is overlaid lies at the start of the operand."""
    patch.setattr(section, "_packed", lambda parts: {part.name: 0 for part in parts})


def below_the_result(patch: Patch) -> None:
    """The result does not keep behind what is overlaid."""
    right = section.with_overlaid

    def with_overlaid(*a: object) -> object:
        step = right(*a)  # type: ignore[arg-type]
        overlap = step.overlap
        return replace(step, overlap=overlap and replace(overlap, distance=max(0, overlap.distance)))

    patch.setattr(cuts, "with_overlaid", with_overlaid)


PLANTED = {
    "what comes too early": too_early,
    "parts over each other": over_each_other,
    "a result over what is overlaid": below_the_result,
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistakes_are_noticed(name: str, monkeypatch: Patch) -> None:
    PLANTED[name](monkeypatch)
    with pytest.raises(BrokenPlan):
        check(layers(), tile="rolling")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("target", ["mps2-an386", "riscv-virt"])
def test_cores_compute_the_same(target: str, tmp_path: Path) -> None:
    net = Onnx("overlaid", (4, 24, 10), 3, 13)
    x = net.conv("input", 8, (1, 1))
    for _ in range(2):
        x = net.conv(net.conv(x, 8, (3, 3)), 8, (1, 1))
    x = net.conv(x, 4, (3, 3), stride=2)
    file = tmp_path / "model.onnx"
    file.write_bytes(quantized(net.model(net.conv(x, 4, (1, 1)))).SerializeToString())
    request = model_request(file, "model", target, {"objective": "ram"})
    assert any(s.overlaid for s in plan_model(request, load_target(target)).steps)
    assert verify(file, load_target(target), compile_model(request))["equal"]
