"""Newest rows of rings apart from the others: less memory, the same values on every core, and mistakes are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model, plan_model
from edgebuild.model.ir import Graph
from edgebuild.model.plan import cuts, rolling, section
from edgebuild.model.plan.check.replay import BrokenPlan
from edgebuild.model.plan.rolling import Event, Rolled, Trace
from edgebuild.model.plan.search import Plan
from edgebuild.model.verify import verify
from tests.rolling.test_networks import Net
from tests.rolling.test_rolling import check
from tests.zoo.builders import Net as Onnx
from tests.zoo.builders import quantized

Patch = pytest.MonkeyPatch
CORES = ("host", "mps2-an386", "mps3-an547", "riscv-virt", "microbit")


def chain() -> Graph:
    """Windows of three rows in a row, on a small image with many channels."""
    net, y = Net(1, 24, 6, 2), "x"
    for _ in range(4):
        y = net.conv(net.conv(y, 8, 3), 8, 1)
    return net.graph(net.conv(y, 2, 3, 2))


def separate(plan: Plan) -> list[str]:
    return [name for s in plan.steps if s.rolled is not None for name in s.rolled.separate]


def test_they_take_less_memory(monkeypatch: Patch) -> None:
    rolled = check(chain(), tile="rolling")
    assert len(separate(rolled)) >= 2
    monkeypatch.setattr(cuts, "with_separate_rows", lambda *a: None)
    assert rolled.arena_bytes < check(chain(), tile="rolling").arena_bytes


def early_room(patch: Patch) -> None:
    """The place is thought to be wanted when the row is read alone, and not yet when it is made."""
    right = Trace._newest.func  # type: ignore[attr-defined]
    patch.setattr(Trace, "_newest", property(lambda self: {n: (self.index[n] + 1,) * 2 for n in right(self)}))


def changed(change: Callable[[tuple[Event, ...], int], Sequence[Event]]) -> Callable[[Patch], None]:
    """The calls of a run in another order. The change gets them and the number of the first that keeps a row."""

    def plant(patch: Patch) -> None:
        right = Rolled.events.func  # type: ignore[attr-defined]
        patch.setattr(Rolled, "events", property(lambda self: tuple(change(right(self), len(self.ops) + 1))))

    return plant


def sooner(events: tuple[Event, ...], first: int) -> list[Event]:
    """Each row is kept a call too early."""
    order = list(events)
    for at in range(1, len(order)):
        if order[at].op >= first:
            order[at - 1], order[at] = order[at], order[at - 1]
    return order


def later(events: tuple[Event, ...], first: int) -> list[Event]:
    """Each row is kept a call too late."""
    return sooner(events[::-1], first)[::-1]


def never(events: tuple[Event, ...], first: int) -> list[Event]:
    return [event for event in events if event.op < first]


def together(patch: Patch) -> None:
    """Kernels look for the newest row in the ring."""
    rings, by_rows = section.rings_of, section.Choices.by_rows
    patch.setattr(section.Choices, "in_run", lambda self, op, run: by_rows(self, op, rings(self.rolling, run, op)))


def other_row(patch: Patch) -> None:
    """The row that a copy goes over is one that is still wanted."""
    right = rolling.with_copies
    patch.setattr(rolling, "with_copies", lambda events, rings, first: right(
        events, {name: rows + 1 for name, rows in rings.items()}, first))  # fmt: skip


PLANTED = {
    "the place serves others too early": early_room,
    "a row is kept too early": changed(sooner),
    "a row is kept too late": changed(later),
    "no row is kept": changed(never),
    "kernels look in the ring": together,
    "a copy is made when its row is not free": other_row,
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistakes_are_noticed(name: str, monkeypatch: Patch) -> None:
    PLANTED[name](monkeypatch)
    with pytest.raises(BrokenPlan):
        check(chain(), tile="rolling")


@pytest.mark.one_in(6)
@pytest.mark.parametrize("target", CORES)
def test_every_core_finds_them(target: str, tmp_path: Path) -> None:
    """With windows of three rows, depthwise ones, strides, and a row that pixel by pixel takes the place of another."""
    net = Onnx("newest", (3, 22, 10), 5, 13)
    x = net.conv("input", 8, (3, 3))
    for channels, stride in ((8, 1), (12, 1), (12, 2)):
        x = (
            net.conv(x, channels, (3, 3), depthwise=True, stride=stride)
            if channels == 8
            else net.conv(x, channels, (3, 3))
        )
        x = net.conv(x, channels, (1, 1))
        x = net.conv(x, channels, (3, 3), depthwise=True, stride=stride)
        x = net.conv(x, channels, (3, 3))
    file = tmp_path / "model.onnx"
    file.write_bytes(quantized(net.model(net.conv(x, 2, (3, 3), stride=2))).SerializeToString())
    request = model_request(file, "model", target, {"objective": "ram"})
    assert len(separate(plan_model(request, load_target(target)))) >= 3
    assert verify(file, load_target(target), compile_model(request))["equal"]
