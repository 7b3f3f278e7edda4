"""Frames that a medium harms: hal/src/cluster.c accepts none for another, and mistakes in it are found."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from edgebuild.base.target import hal_dir
from tests.fuzz.wire import LEAST, PORTS, program, run

SLICE, MANY = 3_000, 60_000  # streams
REPEATED = 100_853_396  # a stream in which a START comes five times behind its GO
HEAD_CRC = "crc_of(~0u, h, 20)"
WITHOUT_NUMBER = "crc_of(crc_of(crc_of(~0u, h, 12), (const uint8_t[2]){0}, 2), h + 14, 6)"
SEND = "send_head(c, to, DATA, message, count * wire, &crc);"
PLANTED = {
    "a checksum of the data alone": [("from, h.crc, y,", "from, ~0u, y,"), (SEND, f"{SEND} crc = ~0u;")],
    "a checksum without the number": [(HEAD_CRC, WITHOUT_NUMBER)],
    "the next message in place of this one": [("h.message == message", "(uint16_t)(h.message - message) <= 1u")],
    "the length that a frame has": [(" && h.length == count * wire", ""), ("y, count, item, wire, begin);",
                                    "y, h.length / wire + 0u * count, item, wire, begin);")],
    "any sender": [("if (h[14] == from)", "if (h[14] != 255u)")],
    "any inference": [("h.plan == c->plan && h.inference == c->inference;", "h.plan == c->plan;")],
    "an inference before": [("h.inference == c->inference;", "c->inference - h.inference <= 1u;")],
    "no checksum of the data": [("get(end, TAIL) == (uint32_t)~crc", "(void)crc, 1")],
}  # fmt: skip


@pytest.mark.needs("gcc")
def test_harmed_streams(tmp_path: Path) -> None:
    file = program("bytes", tmp_path, optimize="-O0")
    counts, text = run(file, REPEATED, 1)
    assert counts and not counts["not_recovered"], text
    counts, text = run(file, 1, SLICE)
    assert counts and not counts["wrong"] and not counts["not_recovered"], text
    assert counts["accepted"] > LEAST * SLICE and all(counts["codes"][k] for k in (0, 1, 2, 4)), counts


@pytest.mark.slow
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("port", PORTS)
def test_harmed_streams_over_a_port(tmp_path: Path, port: str) -> None:
    counts, text = run(program(port, tmp_path), MANY, MANY)
    assert counts and not counts["wrong"] and not counts["not_recovered"], text
    assert counts["accepted"] > LEAST * MANY, counts


def counted(folder: Path, port: str, file: str, edits: list[tuple[str, str]]) -> tuple[dict[str, Any], str]:
    """Counts of a program in whose hal a file has mistakes."""
    hal = folder / "hal"
    for part in ("include", "src"):
        shutil.copytree(hal_dir() / part, hal / part)
    text = (hal / file).read_text(encoding="utf-8")
    for was, becomes in edits:
        assert text.count(was) >= 1, was
        text = text.replace(was, becomes)
    (hal / file).write_text(text, encoding="utf-8")
    return run(program(port, folder, hal), 1, MANY)


@pytest.mark.slow
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", PLANTED)
def test_mistakes_of_the_receiver(tmp_path: Path, name: str) -> None:
    counts, output = counted(tmp_path, "bytes", "src/cluster.c", PLANTED[name])
    assert counts.get("wrong") or "AddressSanitizer" in output, counts


NUMBER = ("include/eb_ring.h", "behind <= EB_LINK_LATE && number != c->moved", "behind <= mask / 2u")
STUCK = {"a wrong number of a datagram": ("udp", *NUMBER), "a wrong number of a frame": ("can", *NUMBER)}


@pytest.mark.slow
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", STUCK)
def test_mistakes_after_which_nothing_works(tmp_path: Path, name: str) -> None:
    port, file, *edit = STUCK[name]
    counts, _ = counted(tmp_path, port, file, [(edit[0], edit[1])])
    assert counts["not_recovered"], counts
