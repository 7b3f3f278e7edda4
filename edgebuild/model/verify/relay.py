"""The medium of a simulated cluster: it relays frames over two pipes per device and keeps the simulated time.

Time stands still while a device computes. When all devices wait, it advances to the next timeout or the arrival of a
late frame. So a run depends only on the programs and the faults, not on the machine's speed. hal/src/link_relay.c has
the format of requests, hal/src/cluster.c that of frames."""

from __future__ import annotations

import heapq
import os
import random
import select
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...base.target import Target
from ..cluster.products import BuiltCluster
from ..ops.moves import EVERYONE
from ..plan.distribute.timeline import ComputeSpan, Receive, Send, Step, Timeline, simulate

HEAD, TAIL, RELAY_EVERYONE = 24, 4, 255
REQUEST, CHUNK = 16, 1 << 16  # bytes of a request's head; bytes read at once
SEND, RECEIVE, TIME = 0, 1, 2
KINDS = ("data", "start", "ready", "go")


@dataclass(frozen=True)
class Frame:
    """A frame on the medium. Fields but `data` are parsed from its head; `data` is the whole frame."""

    sender: int
    receiver: int
    kind: str
    message: int
    inference: int
    data: bytes

    @property
    def key(self) -> tuple[int, int, str, int]:
        """Fields that identify the frame and are the same in every inference."""
        return self.sender, self.receiver, self.kind, self.message


@dataclass(frozen=True)
class Delivery:
    """Bytes that arrive after a delay in microseconds. `kill`: the sender dies now and restarts in this inference."""

    data: bytes
    delay: int = 0
    kill: int | None = None


Fault = Callable[[Frame], Sequence[Delivery]]


@dataclass(frozen=True)
class LinkEvent:
    """A request of a device: it sent bytes to, or wants bytes from, `device` after `ticks` of computing.

    `what`: SEND, RECEIVE or TIME. `begins`: bytes of the frame that begins here; `kind`: the frame's kind.
    """

    what: int
    device: int
    bytes: int
    ticks: int
    begins: int = 0
    kind: str = ""


def unharmed(frame: Frame) -> Sequence[Delivery]:
    return (Delivery(frame.data),)


@dataclass
class Relay:
    """Serves the devices' requests. `folders`: of the devices, by number. `fault`: a frame's deliveries."""

    folders: dict[int, Path]
    fault: Fault = unharmed
    now: int = 0
    over: bool = False
    wire: dict[int, int] = field(default_factory=dict)  # bytes by inference, each transmission once
    frames: dict[tuple[int, int, str, int], int] = field(default_factory=dict)  # how often each was sent
    events: dict[int, list[LinkEvent]] = field(default_factory=dict)
    requests: int = 0  # of all devices; a constant count over a long time means that they hang

    def __post_init__(self) -> None:
        self.pipes: dict[int, tuple[int, int]] = {}
        for k, folder in self.folders.items():
            for name in ("to_relay", "from_relay"):
                (folder / name).unlink(missing_ok=True)
                os.mkfifo(folder / name)
            # Opened for both directions, so that neither side waits for the other to open it. Non-blocking, because a
            # dead device neither writes nor reads.
            both = os.O_RDWR | os.O_NONBLOCK
            self.pipes[k] = (os.open(folder / "to_relay", both), os.open(folder / "from_relay", both))
        self.asked = {k: bytearray() for k in self.folders}  # bytes of requests that are incomplete or not served yet
        self.answers = {k: bytearray() for k in self.folders}  # bytes that do not fit in the pipe yet
        self.streams = {(a, b): bytearray() for a in self.folders for b in self.folders if a != b}
        self.unfinished = {(a, b): bytearray() for a in self.folders for b in (*self.folders, RELAY_EVERYONE)}
        self.waiting: dict[int, tuple[int, int, int]] = {}  # device: sender, bytes, deadline
        self.expired: set[int] = set()
        self.ended: set[int] = set()
        self.killed: dict[int, int] = {}  # device to be ended -> inference in which it restarts
        self.awaiting_restart: dict[int, int] = {}  # ended device -> inference in which it restarts
        self.inference = 0  # latest inference number of any frame
        self.late: list[tuple[int, int, tuple[int, int], bytes]] = []
        self.events = {k: [] for k in self.folders}

    def serve(self, seconds: float) -> None:
        """Wait up to `seconds` for requests of devices, and serve them, except those of killed devices."""
        ready, ends = select.poll(), dict[int, tuple[int, bool]]()
        for k, pipes in self.pipes.items():
            ends |= {pipes[0]: (k, False), pipes[1]: (k, True)}
            if k not in self.killed and k not in self.awaiting_restart:
                ready.register(pipes[0], select.POLLIN)
            if self.answers[k]:
                ready.register(pipes[1], select.POLLOUT)
        for file, _ in ready.poll(1000 * seconds):
            k, writes = ends[file]
            if writes:
                self._answer(k, b"")
            else:
                self._ask(k, os.read(file, CHUNK))
        self._settle()

    def end(self, device: int) -> None:
        """Note that a device has ended or will never answer, so time no longer waits for it."""
        self.ended.add(device)
        self._settle()

    def dead(self) -> list[int]:
        """Killed devices, once all others wait; so the bytes sent before do not depend on the machine's speed."""
        quiet = all(k in self.killed or k in self.ended or self._stuck(k) for k in self.folders)
        return [*self.killed] if quiet or self.over else []

    def discard(self, device: int) -> None:
        """Discard bytes to and from a killed device whose program has ended."""
        for pipe in self.pipes[device]:
            with suppress(BlockingIOError):
                while os.read(pipe, CHUNK):
                    pass
        lost = [stream for link, stream in self.streams.items() if link[1] == device]
        lost += [rest for link, rest in self.unfinished.items() if link[0] == device]
        for data in (*lost, self.asked[device], self.answers[device]):
            data.clear()
        self.waiting.pop(device, None)
        self.expired.discard(device)
        self.awaiting_restart[device] = self.killed.pop(device)
        if self.awaiting_restart[device] > self.inference:
            self.end(device)

    def due(self) -> list[int]:
        """Devices that must restart in the current inference."""
        return [k for k, back in self.awaiting_restart.items() if back <= self.inference]

    def revive(self, device: int) -> None:
        """Note that a device restarts."""
        del self.awaiting_restart[device]

    def stop(self) -> None:
        """End the test: answer all waiting receivers with the code for its end."""
        self.over = True
        self._settle()

    def close(self) -> None:
        for pipe in (pipe for pair in self.pipes.values() for pipe in pair):
            os.close(pipe)

    # ---- one device

    def _ask(self, device: int, data: bytes) -> None:
        """Add bytes from a device, and serve its complete requests until one of them has to wait."""
        asked = self.asked[device]
        asked += data
        while len(asked) >= REQUEST and not (device in self.killed or device in self.waiting):
            word, size, timeout, ticks = struct.unpack_from("<4I", asked)
            what, other = word & 0xFF, word >> 8 & 0xFF
            if len(asked) < REQUEST + (size if what == SEND else 0):
                return
            self.requests += 1
            if what == TIME:
                self.events[device].append(LinkEvent(TIME, other, 0, ticks))
                self._answer(device, struct.pack("<I", self.now & 0xFFFFFFFF))
            elif what == SEND:
                self._send(device, other, bytes(asked[REQUEST : REQUEST + size]), ticks)
                del asked[:size]
            else:
                self.events[device].append(LinkEvent(RECEIVE, other, size, ticks))
                self.waiting[device] = (other, size, self.now + timeout)
            del asked[:REQUEST]

    def _answer(self, device: int, data: bytes) -> None:
        """Write bytes to a device; bytes that do not fit in its pipe are written later."""
        rest = self.answers[device]
        rest += data
        with suppress(BlockingIOError):
            del rest[: os.write(self.pipes[device][1], rest)]

    def _send(self, sender: int, to: int, data: bytes, ticks: int) -> None:
        """Collect bytes of a frame, and deliver the frame when it is complete, as `fault` says."""
        buffer = self.unfinished.setdefault((sender, to), bytearray())
        begins, kind_of = _begun(data) if not buffer else (0, "")
        buffer += data
        self.events[sender].append(LinkEvent(SEND, to, len(data), ticks, begins, kind_of))
        if len(buffer) < HEAD:
            return
        inference, message, _, kind, length = struct.unpack_from("<IHBBI", buffer, 8)
        total = HEAD + (length + TAIL if length else 0)
        if len(buffer) < total:
            return
        number = message if KINDS[kind] == "data" else 0  # in other kinds this field changes with each inference
        frame = Frame(sender, to, KINDS[kind], number, inference, bytes(buffer))
        buffer.clear()
        self.wire[inference] = self.wire.get(inference, 0) + total
        self.frames[frame.key] = self.frames.get(frame.key, 0) + 1
        self.inference = max(self.inference, inference)
        for k, back in self.awaiting_restart.items():
            if back <= self.inference:
                self.ended.discard(k)  # stops the time until the device has restarted
        receivers = [k for k in self.folders if k != sender] if to == RELAY_EVERYONE else [to]
        for delivery in self.fault(frame):
            if delivery.kill is not None:
                self.killed[sender] = delivery.kill
                continue
            for receiver in receivers:
                self._deliver((sender, receiver), delivery)

    def _deliver(self, link: tuple[int, int], delivery: Delivery) -> None:
        if link not in self.streams:
            return
        if delivery.delay:
            heapq.heappush(self.late, (self.now + delivery.delay, len(self.late), link, delivery.data))
        else:
            self.streams[link] += delivery.data

    def _settle(self) -> None:
        """Answer receivers whose bytes have arrived. If all devices wait, advance to the next arrival or timeout."""
        while True:
            while ready := [k for k in self.waiting if self.over or not self._stuck(k)]:
                self._receive(ready[0])
            alive = [k for k in self.waiting if k not in self.ended]
            if not alive or not all(k in self.ended or self._stuck(k) for k in self.folders):
                return
            deadline, first = min((self.waiting[k][2], k) for k in alive)
            if self.late and self.late[0][0] <= deadline:
                arrival, _, link, data = heapq.heappop(self.late)
                self.now = max(self.now, arrival)
                self.streams[link] += data
            else:
                self.now = max(self.now, deadline)
                self.expired.add(first)

    def _receive(self, device: int) -> None:
        """Answer a receiver with status 0 and its bytes, or with 1 for a timeout or 2 for the end of the test."""
        sender, size, _ = self.waiting.pop(device)
        self.expired.discard(device)
        stream = self.streams.get((sender, device), bytearray())
        data = bytes(stream[:size])
        del stream[:size]
        status = 0 if len(data) == size else 2 if self.over else 1
        self._answer(device, struct.pack("<I", status) + (b"" if status else data))
        self._ask(device, b"")

    def _stuck(self, device: int) -> bool:
        if device not in self.waiting or device in self.expired:
            return False
        sender, size, _ = self.waiting[device]
        return len(self.streams.get((sender, device), b"")) < size


def _begun(head: bytes) -> tuple[int, str]:
    """Size in bytes and kind of the frame that begins with this head; no kind if the head is incomplete."""
    if len(head) < HEAD:
        return len(head), ""
    kind, length = struct.unpack_from("<BI", head, 15)
    return HEAD + (length + TAIL if length else 0), KINDS[kind]


# Time of a simulated cluster, from counted instructions, clocks of the cores and the medium's byte rate.


def instructions_of(ticks: int, target: Target) -> float:
    """Executed instructions: on simulated Arm boards an instruction takes a nanosecond and the timer has `tick_hz`."""
    rate = target.runner.tick_hz if target.runner else 0
    return ticks * 1e9 / rate if rate else float(ticks)


def simulated_times(
    built: BuiltCluster, events: Mapping[int, Sequence[LinkEvent]]
) -> tuple[dict[str, float | bool], dict[int, int]]:
    """Microseconds of an inference, predicted and simulated, and instructions of each device without waits.

    An inference lasts from one START frame of the source to the next, so the last one is not measured.
    """
    cluster, parts = built.chosen.plan.cluster, {p.number: p for p in built.parts}
    programs: list[list[Step]] = [[] for _ in cluster.devices]
    for k, some in events.items():
        programs[k] = _program(k, some, parts[k].target, cluster.devices[k].hz, sorted(parts))
    timeline = simulate(programs, cluster.medium)
    marks = _starts(events[built.source], timeline, built.source)
    rounds = len(marks) - 1
    simulated = (marks[-1] - marks[0]) / rounds
    predicted = built.report["time_us"]
    counted = {
        k: sum(instructions_of(e.ticks, parts[k].target) for e in _between(some, k == built.source)) / rounds
        for k, some in events.items()
    }
    times = {
        "one_device": predicted["one_device"],
        "predicted": predicted["cluster"],
        "simulated": round(simulated, 3),
        "error": round(predicted["cluster"] / simulated - 1, 4),
        "faster": simulated < predicted["one_device"],
    }
    return times, {k: round(n) for k, n in counted.items()}


def unsent_times(built: BuiltCluster) -> dict[str, float | bool | None]:
    """The keys of `simulated_times` for a plan that sends nothing: without messages there is nothing to simulate."""
    predicted = built.report["time_us"]
    planned = {"one_device": predicted["one_device"], "predicted": predicted["cluster"]}
    return {**planned, "simulated": None, "error": None, "faster": False}


def _program(k: int, events: Sequence[LinkEvent], target: Target, hz: float, everyone: Sequence[int]) -> list[Step]:
    steps: list[Step] = []
    for e in events:
        steps.append(ComputeSpan(instructions_of(e.ticks, target) / hz * 1e6))
        if e.what == SEND:
            to = tuple(p for p in everyone if p != k) if e.device == EVERYONE else (e.device,)
            steps.append(Send(to, e.bytes, e.begins))
        elif e.what == RECEIVE:
            steps.append(Receive(e.device, e.bytes))
    return steps


def _first_starts(events: Sequence[LinkEvent]) -> list[int]:
    """Indices of the events that begin an inference: the first of each succession of START frames."""
    at = [i for i, e in enumerate(events) if e.kind == "start"]
    sends = [i for i, e in enumerate(events) if e.what == SEND]
    before = {i: sends[n - 1] if n else -1 for n, i in enumerate(sends)}
    return [i for i in at if before[i] < 0 or events[before[i]].kind != "start"]


def _starts(events: Sequence[LinkEvent], timeline: Timeline, source: int) -> list[float]:
    """Times in microseconds at which the source begins to send the first START of each inference."""
    place, times = set(_first_starts(events)), list[float]()
    at = 0
    for i, e in enumerate(events):
        at += 1  # the ComputeSpan before each event
        if i in place:
            times.append(next(s.start for s in timeline.spans[source] if s.step == at and s.kind == "send"))
        at += e.what in (SEND, RECEIVE)
    return times


def _between(events: Sequence[LinkEvent], is_source: bool) -> Sequence[LinkEvent]:
    """The events of complete inferences: from the first START or READY to the last."""
    marks = _first_starts(events) if is_source else [i for i, e in enumerate(events) if e.kind == "ready"]
    return events[marks[0] + 1 : marks[-1] + 1] if marks else ()


# Seeded faults of a medium: every second inference is disturbed once, and the next one must work.

FAULT_KINDS = (
    *("lost", "repeated", "damaged", "truncated", "late", "swapped", "foreign", "stale", "spliced", "noise", "dead"),
    *("restarted", "returned"),  # the program of a device ends and restarts at once, or in the next inference
)
Key = tuple[int, int, str, int]


class Faults:
    """The `fault` of a relay. `keys`: frames of an undisturbed inference; `timeout_us`: timeout of the devices.

    The source is never restarted, because it counts the inferences.
    """

    def __init__(self, seed: int, keys: Sequence[Key], timeout_us: int, source: int) -> None:
        self.seed, self.keys, self.timeout, self.source = seed, sorted(keys), timeout_us, source
        self.injected: Counter[str] = Counter()
        self.kinds: dict[int, str] = {}  # by inference
        self.done: set[int] = set()
        self.before: dict[Key, bytes] = {}
        self.dead: tuple[int, int] | None = None  # a device and the inference in which its further frames are lost

    def __call__(self, frame: Frame) -> Sequence[Delivery]:
        number, good = frame.inference, Delivery(frame.data)
        rng = random.Random(f"{self.seed} {number}")
        key, kind = rng.choice(self.keys), rng.choice(FAULT_KINDS)
        before = self.before.get(frame.key, frame.data)
        self.before[frame.key] = frame.data
        if self.dead == (frame.sender, number):
            return ()
        if number % 2 == 0 or frame.key != key or number in self.done:
            return (good,)
        self.done.add(number)
        if kind in ("restarted", "returned") and frame.sender == self.source:
            kind = "dead"
        self.injected[kind] += 1
        self.kinds[number] = kind
        if kind == "dead":
            self.dead = (frame.sender, number)
        if kind in ("restarted", "returned"):
            return (Delivery(b"", kill=number + (kind == "returned")),)
        return self._deliveries(kind, frame.data, before, rng)

    def _deliveries(self, kind: str, data: bytes, before: bytes, rng: random.Random) -> Sequence[Delivery]:
        good = Delivery(data)
        match kind:
            case "repeated":
                return good, good
            case "damaged":
                wrong = bytearray(data)
                for _ in range(rng.randint(1, 3)):
                    wrong[rng.randrange(len(wrong))] ^= 1 << rng.randrange(8)
                return (Delivery(bytes(wrong)),)
            case "truncated":
                return (Delivery(data[: rng.randrange(len(data))]),)
            case "late":
                return (Delivery(data, rng.randint(1, 3 * self.timeout)),)
            case "swapped":  # it arrives after every frame that is sent before all devices wait
                return (Delivery(data, 1),)
            case "foreign":  # of another plan, with a valid checksum
                return Delivery(foreign(data)), good
            case "stale":
                return Delivery(before), good
            case "spliced":  # this frame's head with the previous inference's data
                return (Delivery(data[:HEAD] + before[HEAD:]),)
            case "noise":
                return Delivery(rng.randbytes(rng.randint(1, 2 * HEAD))), good
            case _:
                return ()


def foreign(data: bytes) -> bytes:
    """The frame with another plan's identifier and valid checksums."""
    head, payload = bytearray(data[: HEAD - TAIL]), data[HEAD:-TAIL]
    head[4] ^= 0xFF
    checked_head = bytes(head) + _crc(bytes(head))
    return checked_head + payload + _crc(bytes(head) + payload) if data[HEAD:] else checked_head


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(TAIL, "little")
