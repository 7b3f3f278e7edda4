"""`verify --cluster`: a program for each device, all run together with a relay as the medium."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ...base import programs
from ...base.artifacts import Artifact, publish
from ...base.errors import Diagnostic, MissingTool, fail
from ...base.programs import Start
from ...base.target import firmware_support, hal_dir, load_target
from ..cluster.products import BuiltCluster, ClusterRequest, Part, build_cluster
from ..compile import compile_model
from ..formats import bound_file
from ..ir import Array
from . import report_of, verify
from .harness import NAME, SANITIZERS, Builder, folder_of, read_sizes, run_harness, sources, write_sources
from .oracles import NoJudge
from .relay import Fault, Faults, Key, Relay, simulated_times, unharmed, unsent_times
from .rounding import distance, limit, moves
from .vectors import Given, random_inputs, split_vectors

VECTORS = 3
WALL_S, EACH_S = 900.0, 0.2  # seconds of a run, and in addition per vector, after which devices are killed
POLL_S, ENDING_S = 0.003, 20.0  # seconds between checks of the programs; seconds in which they must end
STILL_S = 240.0  # seconds without any request to the relay after which the devices are taken to hang
CODES = ("EB_OK", "EB_LINK_TIMEOUT", "EB_LINK_CRC", "EB_LINK_PLAN", "EB_LINK_ORDER")
HOST, PROGRAM = "host", "device"
ELF = f"{PROGRAM}.elf"


@dataclass(frozen=True)
class Result:
    """The outcome of a run of all devices: the source's code and outputs for each vector, and the relay's counts."""

    codes: list[int]
    outputs: list[list[Array]]
    workers: dict[int, Counter[int]]  # device except the source -> code -> how often it returned the code
    relay: Relay
    finished: bool


def verify_cluster(
    request: ClusterRequest,
    simulate: str = HOST,
    inputs: Given | None = None,
    disturbed: tuple[int, int] = (0, 0),
    keep: Path | None = None,
    judge_one: bool = False,
) -> dict[str, Any]:
    """Run all devices of a cluster; compare outputs with one device's, and sent bytes with the plan's.

    `simulate`: "host" builds all devices for the build machine, with sanitizers; "qemu" each for its own target.
    `inputs`: as of `verify`. `disturbed`: a seed, and how many inferences to disturb. `judge_one`: also verify the
    program of one device.

    Returns `equal`, `equal_to_one`, `max_abs_diff` and `one_device`, the verdict of `verify` on one device: `equal`,
    `judge` ("" if it was not verified), `differs`, `compared`, `notes`. `wire_bytes` of an inference are counted by the
    relay, `planned_bytes` are the plan's. `devices` has the codes that they returned, for firmware also sizes and
    instructions. In QEMU there is `time_us`; `faults` if inferences were disturbed.
    Raises MissingTool and EdgebuildError as `verify` does.
    """
    built = build_cluster(replace(request, name=NAME, target=HOST if simulate == HOST else None))
    report = report_of(next(p for p in built.parts if p.number == built.source).artifacts)
    given = split_vectors(inputs, report) if inputs is not None else None
    vectors = given or random_inputs(request.source, report, VECTORS if report["inputs"] else 1)
    with folder_of(keep) as folder:
        alone = compile_model(request.one_device(NAME, HOST))
        one = _one_device(alone, folder / "one", len(vectors))
        expected, moved = one(vectors), dict[str, float]()
        programs = {part.number: program(part, folder / f"dev{part.number}", built) for part in built.parts}
        run = Run(built, programs, folder, report)
        clean = run.all(vectors, unharmed)
        verdict = _judged(built, clean, expected)
        if clean.finished and not verdict["equal"]:
            moved = moves(vectors, lambda near, _: [_numbered(row) for row in one(near)])
            verdict = _judged(built, clean, expected, moved)
        if simulate != HOST:
            _measure(built, run, verdict["devices"])
        if simulate != HOST and len(programs) > 1:
            verdict["time_us"], counted = simulated_times(built, clean.relay.events)
            for k, count in counted.items():
                verdict["devices"][k]["instructions"] = count
        elif simulate != HOST:
            verdict["time_us"] = unsent_times(built)
        if disturbed[1] and len(programs) > 1:
            verdict["faults"] = _disturb(run, vectors, expected, moved, list(clean.relay.frames), *disturbed)
            bad = sum(verdict["faults"][k] for k in ("wrong", "hangs", "not_recovered"))
            verdict["equal"] = verdict["equal"] and not bad
    judged = _judged_alone(request, alone, inputs) if judge_one else UNJUDGED
    both = {"equal": verdict["equal"] and judged["equal"], "equal_to_one": verdict["equal"], "one_device": judged}
    return {"model": request.source.name, "simulated": simulate, **verdict, **both}


UNJUDGED: Mapping[str, Any] = {"equal": True, "judge": "", "differs": [], "compared": [], "notes": []}


def _judged_alone(request: ClusterRequest, alone: Sequence[Artifact], inputs: Given | None) -> Mapping[str, Any]:
    """The verdict of `verify` on one device, or a note if no interpreter can run the model."""
    try:
        with bound_file(request.source, request.bind) as model:
            verdict = verify(model, load_target(HOST), alone, inputs, reading=(request.shape, request.outputs))
    except (NoJudge, MissingTool) as reason:
        return {**UNJUDGED, "notes": [f"one device is not judged: {reason.diagnostics[0].text}"]}
    return {name: verdict.get(name, value) for name, value in UNJUDGED.items()}


def _measure(built: BuiltCluster, run: Run, rows: list[dict[str, Any]]) -> None:
    """Add the sizes in bytes of each device's program to its row, including the simulation's own code."""
    for part in built.parts:
        if part.target.firmware is not None:
            sizes = read_sizes(run.place(part.number) / ELF, part.name, allow_libm=True)
            stack = int.from_bytes((run.place(part.number) / "stack.bin").read_bytes(), "little")
            rows[part.number] |= {"flash_bytes": sizes.flash, "ram_bytes": sizes.ram, "stack_bytes": stack}


def _one_device(
    artifacts: Sequence[Artifact], folder: Path, count: int
) -> Callable[[list[list[Array]]], list[list[Array]]]:
    """A function from `count` vectors to their outputs, computed on the build machine with sanitizers."""
    target = load_target(HOST)
    report = report_of(artifacts)
    folder.mkdir(parents=True, exist_ok=True)
    write_sources(folder, target, artifacts, report, count)
    builder = Builder(target, folder, False, SANITIZERS)
    hal = [hal_dir() / name for name in ("harness/harness.c", "src/counter.c", "src/semihost_host.c")]
    elf = builder.program("harness", [*sources(target, report), *hal])
    return lambda vectors: run_harness(elf, target, vectors, report).outputs


def program(part: Part, folder: Path, built: BuiltCluster) -> list[str]:
    """Build a device's program; return the command that runs it. Raises EdgebuildError if the target has no runner."""
    target, is_source = part.target, part.number == built.source
    if target.firmware is not None and target.runner is None:
        raise fail(f"target {target.name} names no `runner:`, so nothing can run its programs",
                   hints=["--simulate host runs all devices on the build machine"])  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    publish((*part.artifacts, built.header, *firmware_support(target)), folder)
    (folder / "harness_cluster.h").write_text(_harness(part, is_source), encoding="utf-8", newline="\n")
    builder = Builder(target, folder, False, () if target.firmware else SANITIZERS, name=part.name)
    own = [Path(part.name + suffix) for suffix in (".c", "_weights.S", "_weights.c")]
    io = target.runner.sources if target.runner else ("src/semihost_host.c",)
    hal = [hal_dir() / f for f in ("harness/node.c", "src/cluster.c", "src/link_relay.c", "src/counter.c", *io)]
    elf = builder.program(PROGRAM, [*own, *hal])
    return [w.replace("{elf}", elf.name) for w in target.runner.command] if target.runner else [str(elf.resolve())]


def _harness(part: Part, is_source: bool) -> str:
    report, entry = report_of(part.artifacts), part.entry
    inputs, outputs = (
        " ".join(f"X({p['function']}, {p['bytes']}u)" for p in report[side]) for side in ("inputs", "outputs")
    )
    lines = [f'#include "{part.name}.h"']
    if part.plan is None:  # a cluster of one device, whose function returns void
        lines.append(f"static int alone(void) {{ {entry}(); return 0; }}")
        entry = "alone"
    lines += [f"#define NODE_ENTRY {entry}", f"#define NODE_IS_SOURCE {int(is_source)}"]
    lines += [f"#define NODE_INPUTS {inputs}", f"#define NODE_OUTPUTS {outputs}", ""]
    return "\n".join(lines)


@dataclass(frozen=True)
class Run:
    """Commands of all devices by number, which run in folders in `folder`. `report`: the source's."""

    built: BuiltCluster
    programs: dict[int, list[str]]
    folder: Path
    report: dict[str, Any]

    def place(self, device: int) -> Path:
        return self.folder / f"dev{device}"

    def all(self, vectors: list[list[Array]], fault: Fault) -> Result:
        """Start all devices, and wait until the source has computed all vectors. Raises EdgebuildError if one fails."""
        home = self.place(self.built.source)
        (home / "input.bin").write_bytes(b"".join(x.tobytes() for vector in vectors for x in vector))
        relay = Relay({k: self.place(k) for k in self.programs}, fault)
        started: dict[int, subprocess.Popen[bytes]] = {}
        try:
            with programs.together() as start:
                for k in self.programs:
                    started[k] = self._start(k, start)
                finished = self._wait(started, relay, WALL_S + EACH_S * len(vectors), start)
                relay.stop()
                until = time.monotonic() + ENDING_S
                while any(p.poll() is None for p in started.values()) and time.monotonic() < until:
                    relay.serve(POLL_S)
        finally:
            relay.close()
        for k, process in started.items():
            if finished and process.returncode and k not in relay.killed and k not in relay.awaiting_restart:
                text = (self.place(k) / "log.txt").read_text(encoding="utf-8", errors="replace")
                raise fail(f"the program of device {k} ended with status {process.returncode}",
                           hints=text.strip().splitlines()[-30:])  # fmt: skip
        codes, outputs = self._results(home / "output.bin")
        workers = {k: Counter((self.place(k) / "output.bin").read_bytes()) for k in started if k != self.built.source}
        return Result(codes, outputs, workers, relay, finished)

    def _start(self, device: int, start: Start) -> subprocess.Popen[bytes]:
        part, command = next(p for p in self.built.parts if p.number == device), self.programs[device]
        log = (self.place(device) / "log.txt").open("wb")
        try:
            return start(command, cwd=self.place(device), stdin=subprocess.DEVNULL, stdout=log,
                         stderr=subprocess.STDOUT)  # fmt: skip
        except FileNotFoundError:
            package = part.target.runner.package if part.target.runner else ""
            hints = (f"apt-get install {package}",) if package else ()
            raise MissingTool(Diagnostic(f"'{command[0]}' is not installed", hints=hints)) from None

    def _wait(self, started: dict[int, subprocess.Popen[bytes]], relay: Relay, limit: float, start: Start) -> bool:
        """Whether the source ended by itself within the time."""
        began = heard = time.monotonic()
        requests, source = 0, started[self.built.source]
        while source.poll() is None and (now := time.monotonic()) - began < limit:
            if relay.requests != requests:
                requests, heard = relay.requests, now
            elif now - heard > STILL_S:
                break
            self._bring_back(started, relay, start)
            ended = [k for k, process in started.items() if process.poll() is not None]
            relay.serve(POLL_S)  # serves the last requests of ended programs before `end`
            for k in ended:
                if k != self.built.source and not (
                    k in relay.killed or k in relay.awaiting_restart or k in relay.ended
                ):
                    relay.end(k)
        return source.poll() is not None

    def _bring_back(self, started: dict[int, subprocess.Popen[bytes]], relay: Relay, start: Start) -> None:
        """Kill the programs that a fault killed, and restart those that are due."""
        for k in relay.dead():
            started[k].kill()
            started[k].wait()
            relay.discard(k)
        for k in relay.due():
            relay.revive(k)
            started[k] = self._start(k, start)

    def _results(self, file: Path) -> tuple[list[int], list[list[Array]]]:
        ports = self.report["outputs"]
        size, data = 4 + sum(p["bytes"] for p in ports), file.read_bytes()
        codes, outputs = [], []
        for at in range(0, len(data) - size + 1, size):
            codes.append(int.from_bytes(data[at : at + 4], "little"))
            arrays, start = [], at + 4
            for p in ports:
                arrays.append(np.frombuffer(data[start : start + p["bytes"]], p["dtype"]).reshape(p["shape"]))
                start += p["bytes"]
            outputs.append(arrays)
        return codes, outputs


def _numbered(outputs: Sequence[Array]) -> dict[str, Array]:
    return {str(o): value for o, value in enumerate(outputs)}


def _same(
    measured: Sequence[Array], oracle: Sequence[Array], moved: Mapping[str, float] = MappingProxyType({})
) -> bool:
    """Whether integers are equal and floats differ by rounding only. `moved`: `rounding.moves` by output number."""
    pairs = enumerate(zip(measured, oracle, strict=True))
    return all(distance(a, b) <= limit(b, moved.get(str(o), 0.0)) for o, (a, b) in pairs)


def _judged(
    built: BuiltCluster, clean: Result, expected: list[list[Array]], moved: Mapping[str, float] = MappingProxyType({})
) -> dict[str, Any]:
    """The verdict on an undisturbed run."""
    pairs = [
        (a, b)
        for measured, oracle in zip(clean.outputs, expected, strict=False)
        for a, b in zip(measured, oracle, strict=True)
    ]
    complete = clean.finished and clean.codes == [0] * len(expected)
    planned = built.report["wire"]["frame_bytes"] if len(built.parts) > 1 else 0
    counted = set(clean.relay.wire.values()) or {0}
    return {
        "equal": complete and all(_same(a, b, moved) for a, b in zip(clean.outputs, expected, strict=True)),
        "max_abs_diff": max((distance(a, b) for a, b in pairs), default=0.0),
        "inputs_tried": len(expected),
        "codes": clean.codes,
        "wire_bytes": max(counted),
        "planned_bytes": planned,
        "as_planned": counted == {planned},
        "messages": len(built.messages),
        "devices": [
            {key: row.get(key) for key in ("name", "target", "weights_bytes", "arena_bytes", "macs")}
            | {"serves": dict(clean.workers.get(row["number"], {}))}
            for row in built.report["devices"]
        ],
    }


def _disturb(
    run: Run,
    vectors: list[list[Array]],
    expected: list[list[Array]],
    moved: Mapping[str, float],
    keys: list[Key],
    seed: int,
    count: int,
) -> dict[str, Any]:
    """Disturb every second inference: it must give an error code or the right result, and the next one must work."""
    faults = Faults(seed, keys, _timeout(run.built), run.built.source)
    some = [vectors[i // 2 % len(vectors)] for i in range(2 * count)]
    result = run.all(some, faults)
    codes, wrong, lost = Counter[str](), 0, list[str]()
    for i, (code, outputs) in enumerate(zip(result.codes, result.outputs, strict=True)):
        right = _same(outputs, expected[i // 2 % len(vectors)], moved)
        wrong += code == 0 and not right
        if i % 2 == 0:
            codes[CODES[code]] += 1
        elif code:
            lost.append(f"{faults.kinds.get(i, 'none')}: {CODES[code]}")
    return {
        "seed": seed,
        "injected": sum(faults.injected.values()),
        "kinds": dict(sorted(faults.injected.items())),
        "codes": dict(sorted(codes.items())),
        "wrong": wrong,
        "hangs": 2 * count - len(result.codes),
        "recovered": len(result.codes) // 2 - len(lost),
        "not_recovered": len(lost),
        "examples": lost[:5],
    }


def _timeout(built: BuiltCluster) -> int:
    link = next(p.plan.graph.link for p in built.parts if p.plan is not None)
    assert link is not None
    return link.timeout_us
