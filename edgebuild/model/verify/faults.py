"""Seeded faults of a medium: every second inference is disturbed once, and the one behind it must work."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Sequence

from .relay import HEAD, TAIL, Delivery, Frame

KINDS = (
    *("lost", "repeated", "damaged", "truncated", "late", "swapped", "foreign", "stale", "spliced", "noise", "dead"),
    *("restarted", "returned"),  # the program of a device ends, and starts anew at once or in the next inference
)
Key = tuple[int, int, str, int]


class Faults:
    """A fault for a relay. `keys`: frames of an undisturbed inference; `timeout_us`: how long devices wait.

    The source, which counts the inferences, does not start anew.
    """

    def __init__(self, seed: int, keys: Sequence[Key], timeout_us: int, source: int) -> None:
        self.seed, self.keys, self.timeout, self.source = seed, sorted(keys), timeout_us, source
        self.injected: Counter[str] = Counter()
        self.kinds: dict[int, str] = {}  # by inference
        self.done: set[int] = set()
        self.before: dict[Key, bytes] = {}
        self.dead: tuple[int, int] | None = None  # a device and the inference in which it says nothing more

    def __call__(self, frame: Frame) -> Sequence[Delivery]:
        number, good = frame.inference, Delivery(frame.data)
        rng = random.Random(f"{self.seed} {number}")
        key, kind = rng.choice(self.keys), rng.choice(KINDS)
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
        return self._made(kind, frame.data, before, rng)

    def _made(self, kind: str, data: bytes, before: bytes, rng: random.Random) -> Sequence[Delivery]:
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
            case "swapped":  # all that can be sent before it overtakes it
                return (Delivery(data, 1),)
            case "foreign":  # of another plan: its head is whole
                return Delivery(foreign(data)), good
            case "stale":
                return Delivery(before), good
            case "spliced":  # the head of this one and the data of the one before
                return (Delivery(data[:HEAD] + before[HEAD:]),)
            case "noise":
                return Delivery(rng.randbytes(rng.randint(1, 2 * HEAD))), good
            case _:
                return ()


def foreign(data: bytes) -> bytes:
    """The same frame as firmware of another plan sends it."""
    head, payload = bytearray(data[: HEAD - TAIL]), data[HEAD:-TAIL]
    head[4] ^= 0xFF
    made = bytes(head) + _crc(bytes(head))
    return made + payload + _crc(bytes(head) + payload) if data[HEAD:] else made


def _crc(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(TAIL, "little")
