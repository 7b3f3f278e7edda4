"""The relay of simulated clusters ends, whatever has become of the devices."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from edgebuild.model.verify.relay import HEAD, RECEIVE, SEND, Relay

PIPE = 1 << 20  # bytes: more than a pipe holds


def relay_of_two(tmp_path: Path) -> Relay:
    folders = {k: tmp_path / f"dev{k}" for k in range(2)}
    for folder in folders.values():
        folder.mkdir()
    return Relay(folders)


def request(relay: Relay, device: int, what: int, other: int, size: int, data: bytes = b"") -> None:
    pipe = os.open(relay.folders[device] / "to_relay", os.O_WRONLY | os.O_NONBLOCK)
    assert os.write(pipe, struct.pack("<4I", what | other << 8, size, 1000, 0) + data) == 16 + len(data)
    os.close(pipe)


def ended(relay: Relay) -> None:
    """It serves what it can, without a word from a device, and closes."""
    relay.serve(0.0)
    relay.stop()
    relay.serve(0.0)
    relay.close()


def test_a_device_that_died_in_the_middle_of_a_request(tmp_path: Path) -> None:
    relay = relay_of_two(tmp_path)
    request(relay, 0, SEND, 1, 100, b"half")
    ended(relay)
    assert not relay.requests


def test_a_device_that_does_not_read_its_answer(tmp_path: Path) -> None:
    relay = relay_of_two(tmp_path)
    relay.streams[0, 1] += bytes(PIPE)
    request(relay, 1, RECEIVE, 0, PIPE)
    request(relay, 1, RECEIVE, 0, 1)
    relay.serve(0.0)
    assert relay.requests == 2 and relay.answers[1]
    ended(relay)


def test_a_request_that_nobody_understands_is_an_error(tmp_path: Path) -> None:
    relay = relay_of_two(tmp_path)
    request(relay, 0, SEND, 1, HEAD, bytes([*b"EBD1", *[0] * 11, 77, *[0] * 8]))
    with pytest.raises(IndexError):
        relay.serve(0.0)
    relay.close()


def test_a_killed_device_is_dead_once_the_others_wait(tmp_path: Path) -> None:
    """Else it would be chance whether what they send it is lost."""
    relay = relay_of_two(tmp_path)
    relay.killed[0] = 1
    assert not relay.dead()
    request(relay, 1, RECEIVE, 0, 1)
    relay.serve(0.0)
    assert relay.dead() == [0]
    ended(relay)
