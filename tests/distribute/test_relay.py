"""The relay of simulated clusters ends, whatever has become of the devices."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from edgebuild.model.verify.relay import HEAD, RECEIVE, SEND, Relay

PIPE = 1 << 20  # bytes: more than a pipe holds


def relay_of_two(tmp_path: Path) -> Relay:
    folders = {k: tmp_path / f"dev{k}" for k in range(2)}
    for folder in folders.values():
        folder.mkdir()
    relay = Relay(folders)
    relay.start()
    return relay


def request(relay: Relay, device: int, what: int, other: int, size: int, data: bytes = b"") -> None:
    pipe = os.open(relay.folders[device] / "to_relay", os.O_WRONLY | os.O_NONBLOCK)
    assert os.write(pipe, struct.pack("<4I", what | other << 8, size, 1000, 0) + data) == 16 + len(data)
    os.close(pipe)


def ended(relay: Relay) -> None:
    relay.close()
    assert not any(thread.is_alive() for thread in relay.threads)


def test_a_device_that_died_in_the_middle_of_a_request(tmp_path: Path) -> None:
    relay = relay_of_two(tmp_path)
    request(relay, 0, SEND, 1, 100, b"half")
    ended(relay)


def test_a_device_that_does_not_read_its_answer(tmp_path: Path) -> None:
    relay = relay_of_two(tmp_path)
    with relay.lock:
        relay.streams[0, 1] += bytes(PIPE)
    request(relay, 1, RECEIVE, 0, PIPE)
    request(relay, 1, RECEIVE, 0, 1)
    ended(relay)


def test_a_request_that_nobody_understands_is_an_error(tmp_path: Path) -> None:
    relay = relay_of_two(tmp_path)
    request(relay, 0, SEND, 1, HEAD, bytes([*b"EBD1", *[0] * 11, 77, *[0] * 8]))
    until = time.monotonic() + 60
    while relay.broken is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert isinstance(relay.broken, IndexError)
    ended(relay)


def test_a_killed_device_is_dead_once_the_others_wait(tmp_path: Path) -> None:
    """Else it would be chance whether what they send it is lost."""
    relay = relay_of_two(tmp_path)
    relay.killed[0] = 1
    assert not relay.dead()
    request(relay, 1, RECEIVE, 0, 1)
    until = time.monotonic() + 60
    while relay.dead() != [0]:
        assert time.monotonic() < until
        time.sleep(0.01)
    ended(relay)
