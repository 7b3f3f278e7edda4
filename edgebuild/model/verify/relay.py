"""The medium of a simulated cluster: it has two pipes to every device, hands on frames and keeps the time.

Time stands still while a device computes. When all devices wait, it goes on to the next timeout or the arrival of a
late frame. So a run is a function of the programs and the faults, however fast the machine is. The pipes' requests are
those of hal/src/link_relay.c, the frames those of hal/src/cluster.c.
"""

from __future__ import annotations

import heapq
import os
import select
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from ...base.dataclass import dataclass

HEAD, TAIL, EVERYONE = 24, 4, 255
SEND, RECEIVE, TIME = 0, 1, 2
KINDS = ("data", "start", "ready", "go")


@dataclass(frozen=True)
class Frame:
    """A frame on its way, from its head."""

    sender: int
    receiver: int
    kind: str
    message: int
    inference: int
    data: bytes

    @property
    def key(self) -> tuple[int, int, str, int]:
        """The same in every inference."""
        return self.sender, self.receiver, self.kind, self.message


@dataclass(frozen=True)
class Delivery:
    """Bytes that arrive after a delay, microseconds. `kill`: the sender dies, and starts anew in this inference."""

    data: bytes
    delay: int = 0
    kill: int | None = None


Fault = Callable[[Frame], Sequence[Delivery]]


class _Closed(Exception):
    """The relay closes."""


@dataclass(frozen=True)
class LinkEvent:
    """Bytes that a device sent to another or received from it, after `ticks` of computing.

    `begins`: bytes of the frame whose head this is; `kind`: that of the frame.
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
    """`folders`: of the devices that take part, by number. `fault`: what arrives of each frame."""

    folders: dict[int, Path]
    fault: Fault = unharmed
    now: int = 0
    over: bool = False
    wire: dict[int, int] = field(default_factory=dict)  # bytes by inference, each transmission once
    frames: dict[tuple[int, int, str, int], int] = field(default_factory=dict)  # how often each was sent
    events: dict[int, list[LinkEvent]] = field(default_factory=dict)
    requests: int = 0  # of all devices; it stands still where they hang
    broken: BaseException | None = None  # why a thread has ended before its time

    def __post_init__(self) -> None:
        self.lock = threading.Condition()
        self.pipes: dict[int, tuple[int, int]] = {}
        for k, folder in self.folders.items():
            for name in ("to_relay", "from_relay"):
                (folder / name).unlink(missing_ok=True)
                os.mkfifo(folder / name)
            # For reading and writing: neither side waits for the other to open it. A device that has died neither
            # writes nor reads, so no read or write here may block.
            both = os.O_RDWR | os.O_NONBLOCK
            self.pipes[k] = (os.open(folder / "to_relay", both), os.open(folder / "from_relay", both))
        self.closed, self._closing = os.pipe()  # the first can be read from when the relay closes
        self.streams = {(a, b): bytearray() for a in self.folders for b in self.folders if a != b}
        self.unfinished = {(a, b): bytearray() for a in self.folders for b in (*self.folders, EVERYONE)}
        self.waiting: dict[int, tuple[int, int, int]] = {}  # device: sender, bytes, deadline
        self.expired: set[int] = set()
        self.ended: set[int] = set()
        self.killed: dict[int, int] = {}  # devices that are to be ended, by the inference in which they return
        self.buried: dict[int, int] = {}  # those that have been
        self.inference = 0  # the latest
        self.late: list[tuple[int, int, tuple[int, int], bytes]] = []
        self.events = {k: [] for k in self.folders}
        self.threads = [threading.Thread(target=self._serve, args=(k,), daemon=True) for k in self.folders]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def end(self, device: int) -> None:
        """A device has ended, or will never answer."""
        with self.lock:
            self.ended.add(device)
            self._advance()
            self.lock.notify_all()

    def bury(self, device: int) -> None:
        """A killed device has been ended: what it had received and not yet sent is gone."""
        with self.lock:
            for pipe in self.pipes[device]:
                _drain(pipe)
            for way, stream in self.streams.items():
                if way[1] == device:
                    stream.clear()
            for way, rest in self.unfinished.items():
                if way[0] == device:
                    rest.clear()
            self.waiting.pop(device, None)
            self.expired.discard(device)
            self.buried[device] = self.killed.pop(device)
            if self.buried[device] > self.inference:
                self.ended.add(device)
                self._advance()
            self.lock.notify_all()

    def due(self) -> list[int]:
        """Devices that are to start anew now."""
        with self.lock:
            return [k for k, back in self.buried.items() if back <= self.inference]

    def revive(self, device: int) -> None:
        """A device is about to start anew."""
        with self.lock:
            del self.buried[device]
            self.lock.notify_all()

    def stop(self) -> None:
        """All receivers learn that the test is over."""
        with self.lock:
            self.over = True
            self.lock.notify_all()

    def close(self) -> None:
        self.stop()
        os.close(self._closing)
        for thread in self.threads:
            thread.join(timeout=10)
        for pipe in (self.closed, *(pipe for pair in self.pipes.values() for pipe in pair)):
            os.close(pipe)

    # ---- one device

    def _serve(self, device: int) -> None:
        try:
            while True:
                self._answer(device)
        except _Closed:
            pass
        except BaseException as error:
            self.broken = error
            self.stop()

    def _answer(self, device: int) -> None:
        """Take a request of a device and answer it. Raises _Closed when the relay closes."""
        source, sink = self.pipes[device]
        word, size, timeout, ticks = struct.unpack("<4I", self._read(source, 16))
        what, other = word & 0xFF, word >> 8 & 0xFF
        self.requests += 1
        if what == TIME:
            self.events[device].append(LinkEvent(TIME, other, 0, ticks))
            self._write(sink, struct.pack("<I", self.now & 0xFFFFFFFF))
        elif what == SEND:
            self._send(device, other, self._read(source, size), ticks)
            with self.lock:
                while (device in self.killed or device in self.buried) and not self.over:
                    self.lock.wait()
        else:
            self.events[device].append(LinkEvent(RECEIVE, other, size, ticks))
            status, data = self._receive(device, other, size, timeout)
            self._write(sink, struct.pack("<I", status) + data)

    def _read(self, pipe: int, size: int) -> bytes:
        found = b""
        while len(found) < size:
            self._wait_for(pipe, select.POLLIN)
            with suppress(BlockingIOError):
                found += os.read(pipe, size - len(found))
        return found

    def _write(self, pipe: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            with suppress(BlockingIOError):
                view = view[os.write(pipe, view) :]
                continue
            self._wait_for(pipe, select.POLLOUT)

    def _wait_for(self, pipe: int, what: int) -> None:
        waiting = select.poll()
        waiting.register(pipe, what)
        waiting.register(self.closed, select.POLLIN)
        if any(file == self.closed for file, _ in waiting.poll()):
            raise _Closed

    def _send(self, sender: int, to: int, data: bytes, ticks: int) -> None:
        """Take bytes; hand on the frame that they complete."""
        with self.lock:
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
            number = message if KINDS[kind] == "data" else 0  # others say what changes from one inference to the next
            frame = Frame(sender, to, KINDS[kind], number, inference, bytes(buffer))
            buffer.clear()
            self.wire[inference] = self.wire.get(inference, 0) + total
            self.frames[frame.key] = self.frames.get(frame.key, 0) + 1
            self.inference = max(self.inference, inference)
            for k, back in self.buried.items():
                if back <= self.inference:
                    self.ended.discard(k)  # so that the time stands still until it has started
            receivers = [k for k in self.folders if k != sender] if to == EVERYONE else [to]
            for delivery in self.fault(frame):
                if delivery.kill is not None:
                    self.killed[sender] = delivery.kill
                    continue
                for receiver in receivers:
                    self._deliver((sender, receiver), delivery)
            self.lock.notify_all()

    def _deliver(self, way: tuple[int, int], delivery: Delivery) -> None:
        if way not in self.streams:
            return
        if delivery.delay:
            heapq.heappush(self.late, (self.now + delivery.delay, len(self.late), way, delivery.data))
        else:
            self.streams[way] += delivery.data

    def _receive(self, device: int, sender: int, size: int, timeout: int) -> tuple[int, bytes]:
        with self.lock:
            stream = self.streams.get((sender, device), bytearray())
            self.waiting[device] = (sender, size, self.now + timeout)
            while len(stream) < size and device not in self.expired and not self.over:
                self._advance()
                if len(stream) < size and device not in self.expired:
                    self.lock.wait()
            del self.waiting[device]
            self.expired.discard(device)
            data = bytes(stream[:size])
            del stream[:size]
            if len(data) == size:
                return 0, data
            return (2, b"") if self.over else (1, b"")

    def _advance(self) -> None:
        """If all wait for what is not there: on to the next arrival or timeout."""
        while not self.over and all(k in self.ended or self._stuck(k) for k in self.folders):
            alive = [k for k in self.waiting if k not in self.ended]
            if not alive:
                return
            deadline, first = min((self.waiting[k][2], k) for k in alive)
            if self.late and self.late[0][0] <= deadline:
                arrival, _, way, data = heapq.heappop(self.late)
                self.now = max(self.now, arrival)
                self.streams[way] += data
            else:
                self.now = max(self.now, deadline)
                self.expired.add(first)
            self.lock.notify_all()

    def _stuck(self, device: int) -> bool:
        if device not in self.waiting or device in self.expired:
            return False
        sender, size, _ = self.waiting[device]
        return len(self.streams.get((sender, device), b"")) < size


def _begun(head: bytes) -> tuple[int, str]:
    """Bytes and kind of the frame that begins with this head."""
    if len(head) < HEAD:
        return len(head), ""
    kind, length = struct.unpack_from("<BI", head, 15)
    return HEAD + (length + TAIL if length else 0), KINDS[kind]


def _drain(pipe: int) -> None:
    """Forget what is in a pipe."""
    with suppress(BlockingIOError):
        while os.read(pipe, 65536):
            pass
