"""When devices compute, send and wait: their programs run on a medium, as a simulation of events.

A program is the sequence of a device's steps: it computes for some microseconds, sends bytes, waits for bytes. A send
takes the sender as long as the bytes take on the medium; a wait ends when the last byte is there. The device that is
ready first sends first. On a bus and in a star one device sends at a time; on a switch each device has a port for each
direction.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from .forms import Medium, frames

SOON = 1e-9  # microseconds: sums of floats that are equal


@dataclass(frozen=True)
class ComputeSpan:
    """Microseconds of computing; `what` names it."""

    us: float
    what: str = ""


@dataclass(frozen=True)
class Send:
    """Bytes to other devices. `begins`: bytes of the message that begins here; 0: the bytes continue a message."""

    to: tuple[int, ...]
    bytes: int
    begins: int = 0
    what: str = ""


@dataclass(frozen=True)
class Receive:
    """A wait for bytes from another device."""

    sender: int
    bytes: int
    what: str = ""


Step = ComputeSpan | Send | Receive


@dataclass(frozen=True)
class Span:
    """A device computes, sends or waits (`kind`) from `start` to `end`, microseconds. `step`: number in the program."""

    device: int
    kind: str
    start: float
    end: float
    step: int
    what: str


@dataclass(frozen=True)
class Timeline:
    """Spans by device, in their order. `stuck`: devices that wait for bytes that no device sends."""

    spans: tuple[tuple[Span, ...], ...]
    stuck: tuple[int, ...]

    def end(self, device: int) -> float:
        return self.spans[device][-1].end if self.spans[device] else 0.0

    def computing(self) -> float:
        """Microseconds in which at least one device computes."""
        total, reached = 0.0, 0.0
        for s in sorted((s for some in self.spans for s in some if s.kind == "compute"), key=lambda s: s.start):
            total += max(0.0, s.end - max(s.start, reached))
            reached = max(reached, s.end)
        return total

    def longest_wait(self) -> float:
        return max((s.end - s.start for some in self.spans for s in some if s.kind == "wait"), default=0.0)


@dataclass
class _Device:
    program: Sequence[Step]
    at: int = 0
    now: float = 0.0
    spans: list[Span] = field(default_factory=list)

    @property
    def step(self) -> Step | None:
        return self.program[self.at] if self.at < len(self.program) else None


class _Simulation:
    """State of a simulation. `arrivals`: for each pair of devices, (bytes in all, microseconds) as they arrive."""

    def __init__(self, programs: Sequence[Sequence[Step]], medium: Medium) -> None:
        self.devices = [_Device(p) for p in programs]
        self.medium = medium
        self.arrivals: dict[tuple[int, int], list[tuple[int, float]]] = {}
        self.occupied: dict[tuple[int, int], int] = {}
        self.free: dict[tuple[int, str], float] = {}

    def passed(self, k: int, kind: str, end: float) -> None:
        device = self.devices[k]
        step = device.step
        assert step is not None
        if end - device.now > SOON:
            device.spans.append(Span(k, kind, device.now, end, device.at, step.what))
        device.now = max(end, device.now)
        device.at += 1

    def advance(self, k: int) -> bool:
        """Run a device until it has to send, ends, or waits for bytes not sent yet. Returns whether it did a step."""
        moved = False
        while not isinstance(step := self.devices[k].step, Send | None):
            if isinstance(step, ComputeSpan):
                self.passed(k, "compute", self.devices[k].now + step.us)
            else:
                when = self.arrival(step, k)
                if when is None:
                    return moved
                self.occupied[step.sender, k] = self.occupied.get((step.sender, k), 0) + step.bytes
                self.passed(k, "wait", max(when, self.devices[k].now))
            moved = True
        return moved

    def arrival(self, step: Receive, k: int) -> float | None:
        """When the last byte of a wait is there; None: it has not been sent."""
        wanted, some = self.occupied.get((step.sender, k), 0) + step.bytes, self.arrivals.get((step.sender, k), [])
        at = bisect_left(some, wanted, key=lambda arrived: arrived[0])
        return some[at][1] if at < len(some) else None

    def ports(self, k: int, step: Send) -> list[tuple[int, str]]:
        if self.medium.kind != "switch":
            return [(0, "medium")]
        return [(k, "out"), *((r, "in") for r in step.to)]

    def start(self, k: int) -> float:
        step = self.devices[k].step
        assert isinstance(step, Send)
        return max(self.devices[k].now, *(self.free.get(p, 0.0) for p in self.ports(k, step)))

    def send(self, k: int) -> None:
        step, begin = self.devices[k].step, self.start(k)
        assert isinstance(step, Send)
        end = begin + step.bytes * 8e6 / self.medium.bits_per_s
        end += frames(step.begins, self.medium) * self.medium.message_us if step.begins else 0.0
        for port in self.ports(k, step):
            self.free[port] = end
        for receiver in step.to:
            some = self.arrivals.setdefault((k, receiver), [])
            some.append(((some[-1][0] if some else 0) + step.bytes, end))
        if begin - self.devices[k].now > SOON:
            self.devices[k].spans.append(Span(k, "wait", self.devices[k].now, begin, self.devices[k].at, "the medium"))
            self.devices[k].now = begin
        self.passed(k, "send", end)


def simulate(programs: Sequence[Sequence[Step]], medium: Medium) -> Timeline:
    """Run the programs of all devices, by number, from time 0 on."""
    run, every = _Simulation(programs, medium), range(len(programs))
    while True:
        while sum(run.advance(k) for k in every):
            pass
        ready = [k for k in every if isinstance(run.devices[k].step, Send)]
        if not ready:
            break
        run.send(min(ready, key=lambda k: (run.start(k), run.devices[k].now, k)))
    stuck = tuple(k for k in every if run.devices[k].step is not None)
    return Timeline(tuple(tuple(d.spans) for d in run.devices), stuck)
