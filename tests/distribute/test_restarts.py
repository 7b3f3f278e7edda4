"""A source that dies at any frame and starts anew: it counts inferences from 1 again, and takes nothing old for new."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgebuild.base.target import hal_dir
from edgebuild.model.cluster.products import ClusterRequest, build_cluster
from edgebuild.model.ir import Array
from edgebuild.model.verify import cluster as together
from edgebuild.model.verify.relay import Delivery, Frame, Relay
from edgebuild.model.verify.vectors import random_inputs
from tests.distribute.cases import alone

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"
WALL_S = 120.0


@dataclass
class Death:
    """The source dies when it sends its frame number `left`."""

    left: int

    def __call__(self, frame: Frame) -> Sequence[Delivery]:
        if frame.sender == 0:
            self.left -= 1
            if self.left == 0:
                return (Delivery(frame.data), Delivery(b"", kill=0))
        return (Delivery(frame.data),)


def restarted(
    run: together.Run, first: list[list[Array]], then: list[list[Array]], at: int, arrives: bool
) -> list[int]:
    """Codes of the source's second life. Its outputs are in its folder.

    `arrives`: what was on its way to the source when it died arrives behind its start.
    """
    home, relay = run.place(0), Relay({k: run.place(k) for k in run.programs}, Death(at))
    (home / "input.bin").write_bytes(b"".join(x.tobytes() for vector in first for x in vector))
    started: dict[int, subprocess.Popen[bytes]] = {}
    limit, lives = time.monotonic() + WALL_S, 1
    try:
        started |= {k: run._start(k, subprocess.Popen) for k in run.programs}
        while lives == 1 or started[0].poll() is None:
            assert time.monotonic() < limit, "the devices hang"
            if relay.dead():
                started[0].kill()
                started[0].wait()
                (home / "input.bin").write_bytes(b"".join(x.tobytes() for vector in then for x in vector))
                in_flight = {link: bytes(stream) for link, stream in relay.streams.items() if link[1] == 0}
                relay.discard(0)
                for link, stream in in_flight.items():
                    relay.streams[link] += stream if arrives else b""
                relay.revive(0)
                started[0], lives = run._start(0, subprocess.Popen), 2
            relay.serve(0.002)
    finally:
        relay.stop()
        limit = time.monotonic() + 20
        while any(process.poll() is None for process in started.values()) and time.monotonic() < limit:
            relay.serve(0.002)
        for process in started.values():
            process.kill()
            process.wait()
        relay.close()
    return run._results(home / "output.bin")[0]


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("arrives", [False, True])
def test_a_source_that_starts_anew(tmp_path: Path, arrives: bool) -> None:
    rows = [f"- {{name: d{k}, target: host, flash: 16K, ram: 16K}}" for k in range(3)]
    file = tmp_path / "cluster.yaml"
    file.write_text("\n".join(["devices:", *rows, "source: d0", "medium: {kind: switch, bits_per_s: 3e6}", ""]))
    built = build_cluster(ClusterRequest(DIGITS, file, "model", method="owp"))
    programs = {p.number: together.program(p, tmp_path / f"dev{p.number}", built) for p in built.parts}
    run = together.Run(built, programs, tmp_path, together.report_of(built.parts[0].artifacts))
    vectors = random_inputs(DIGITS, run.report, 7)
    expected = alone(DIGITS, tmp_path / "one", vectors)
    sent = 4 + sum(m.transfer.sender == 0 for m in built.messages)  # frames of the source in an inference
    for at in range(1, 2 * sent + 1):
        codes = restarted(run, vectors[:3], vectors[3:], at, arrives)
        outputs = run._results(run.place(0) / "output.bin")[1]
        assert len(codes) == 4, at
        for code, mine, theirs in zip(codes, outputs, expected[3:], strict=True):
            assert code or together._same(mine, theirs), (at, codes)
        assert codes[2:] == [0, 0], (at, codes)


@pytest.mark.needs("gcc")
def test_a_source_without_inputs_runs_once(tmp_path: Path) -> None:
    """Nothing is read of its input file, which so never ends."""
    (tmp_path / "input.bin").write_bytes(b"")
    (tmp_path / "harness_cluster.h").write_text(
        "int eb_relay_over;\nstatic int run(void) { return 7; }\nstatic const int *y(void) { return &eb_relay_over; }\n"
        "#define NODE_ENTRY run\n#define NODE_IS_SOURCE 1\n#define NODE_INPUTS\n#define NODE_OUTPUTS X(y, 4u)\n"
    )
    files = [hal_dir() / f for f in ("harness/node.c", "src/semihost_host.c")]
    subprocess.run(["gcc", "-I.", f"-I{hal_dir()}/include", *files, "-o", "node"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "node"], cwd=tmp_path, timeout=20).returncode == 0
    assert (tmp_path / "output.bin").read_bytes() == bytes([7, 0, 0, 0, 0, 0, 0, 0])
