"""Ports of eb_link.h against models of their media: the whole cluster runs, undisturbed and with harm."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgebuild.base.artifacts import publish
from edgebuild.base.target import firmware_support, hal_dir, load_target
from edgebuild.model.cluster.products import BuiltCluster, ClusterRequest, Part, build_cluster
from edgebuild.model.ir import Array
from edgebuild.model.verify import cluster as together
from edgebuild.model.verify.harness import SANITIZERS, Builder, run_tool
from edgebuild.model.verify.vectors import random_inputs
from tests.distribute.cases import alone

DIGITS = Path(__file__).parents[2] / "sample_projects" / "digits" / "digits.onnx"
FAKES = Path(__file__).parent / "links"
WALL_S = 240.0
Started = dict[int, subprocess.Popen[bytes]]


def build_for(folder: Path, targets: str, medium: str) -> BuiltCluster:
    rows = [f"- {{name: d{i}, target: {t}, flash: 16K, ram: 32K}}" for i, t in enumerate(targets.split())]
    file = folder / "cluster.yaml"
    file.write_text("\n".join(["devices:", *rows, "source: d0", f"medium: {{{medium}}}", ""]))
    return build_cluster(ClusterRequest(DIGITS, file, "model", method="owp"))


def prepared(built: BuiltCluster, part: Part, folder: Path) -> Builder:
    """A folder with a device's files and what the test program needs."""
    folder.mkdir(parents=True, exist_ok=True)
    publish((*part.artifacts, built.header, *firmware_support(part.target)), folder)
    (folder / "harness_cluster.h").write_text(together._harness(part, part.number == built.source), encoding="utf-8")
    return Builder(part.target, folder, False, () if part.target.firmware else SANITIZERS, name=part.name)


def files_of(part: Part) -> list[Path]:
    return [Path(part.name + suffix) for suffix in (".c", "_weights.S", "_weights.c")]


def vectors_of(built: BuiltCluster, count: int) -> tuple[together.Run, list[list[Array]]]:
    report = together.report_of(next(p for p in built.parts if p.number == built.source).artifacts)
    return together.Run(built, {}, Path(), report), random_inputs(DIGITS, report, count)


@contextmanager
def running(
    commands: dict[int, list[str]], folder: Path, env: dict[str, str]
) -> Iterator[dict[int, subprocess.Popen[bytes]]]:
    started: Started = {}
    try:
        for k, command in commands.items():
            log = (folder / f"dev{k}" / "log.txt").open("wb")
            started[k] = subprocess.Popen(command, cwd=folder / f"dev{k}", stdin=subprocess.DEVNULL, stdout=log,
                                          stderr=log, env={**os.environ, **env})  # fmt: skip
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.wait()


def wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    limit = time.monotonic() + WALL_S
    while not ready():
        if process.poll() is not None and not ready():
            raise AssertionError((folder / "log.txt").read_text(errors="replace"))
        assert time.monotonic() < limit, "the devices hang"
        time.sleep(0.02)


@pytest.mark.needs("gcc", "clang")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("port", ["can", "spi", "udp"])
def test_ports_compile_without_a_warning(tmp_path: Path, port: str, compiler: str) -> None:
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Werror", "-O2"]
    for device in (0, 1):
        names = [f"-I{hal_dir() / 'include'}", f"-I{FAKES}", f"-DEB_LINK_DEVICE={device}", "-DEB_LINK_SOURCE=0"]
        source = hal_dir() / "src" / f"link_{port}.c"
        subprocess.run([compiler, *flags, *names, "-c", "-o", "x.o", str(source)], cwd=tmp_path, check=True)


@pytest.mark.needs("arm-none-eabi-gcc", "riscv64-unknown-elf-gcc")
@pytest.mark.parametrize(("port", "target"), [("uart", "mps2-an386"), ("harts", "riscv-virt")])
def test_ports_of_boards_compile_without_a_warning(tmp_path: Path, port: str, target: str) -> None:
    tools = load_target(target).toolchain
    flags = [*tools.cflags, "-Wall", "-Wextra", "-Werror", f"-I{hal_dir() / 'include'}"]
    source = hal_dir() / "src" / f"link_{port}.c"
    subprocess.run([tools.compiler, *flags, "-c", "-o", "x.o", str(source)], cwd=tmp_path, check=True)


FLOODS = {"noise": (2, 2, 2), "START": (1, 0, 1), "READY": (1, 1, 1), "DATA": (1, 1, 1), "foreign": (3, 3, 3),
          "stranger": (2, 2, 2)}  # fmt: skip


@pytest.mark.needs("gcc")
def test_a_link_that_never_falls_silent_holds_nobody(tmp_path: Path) -> None:
    """Codes of the source, of a device, and of a device in an inference, whatever comes again and again."""
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", *SANITIZERS, f"-I{hal_dir() / 'include'}"]
    run_tool(["gcc", *flags, "-o", "flood", str(FAKES / "flood.c"), str(hal_dir() / "src" / "cluster.c")], tmp_path, "")
    for what, codes in FLOODS.items():
        for role, code in enumerate(codes):
            done = subprocess.run([tmp_path / "flood", str(role), what], timeout=60, capture_output=True, text=True)
            assert done.returncode == code, (what, role, done.stderr)


def ends_of_a_link(folder: Path, program: str, receiver: Path) -> int:
    """Exit status of a program of several ends of a link, with a cluster.c."""
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", *SANITIZERS, f"-I{hal_dir() / 'include'}"]
    run_tool(["gcc", *flags, "-o", program, str(FAKES / f"{program}.c"), str(receiver)], folder, "")
    return subprocess.run([folder / program], timeout=60).returncode


@pytest.mark.needs("gcc")
def test_a_source_that_starts_anew_learns_what_devices_know(tmp_path: Path) -> None:
    assert ends_of_a_link(tmp_path, "anew", hal_dir() / "src" / "cluster.c") == 0


@pytest.mark.needs("gcc")
def test_what_an_inference_left_does_not_harm_the_next_one(tmp_path: Path) -> None:
    assert ends_of_a_link(tmp_path, "leftovers", hal_dir() / "src" / "cluster.c") == 0


LEFT = {
    "nothing is dropped": ("c->broken != 0u;", "c->broken > 1u;"),
    "a START begins anew what went": ("if (h.kind == START && h.inference == c->gone)", "if (h.kind == 99)"),
    "a repeated START gets no answer": ("h->inference == c->inference ? send_ready(c) : EB_OK", "EB_OK"),
    "a later START is forgotten": ("        c->pending = h->inference;\n", ""),
    "a READY without what is known": ("(uint16_t)(c->gone != 0u ? KNOWN", "(uint16_t)(c->gone > 9u ? KNOWN"),
}


@pytest.mark.slow
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("mistake", LEFT)
def test_mistakes_with_what_is_left(tmp_path: Path, mistake: str) -> None:
    text, (was, becomes) = (hal_dir() / "src" / "cluster.c").read_text(encoding="utf-8"), LEFT[mistake]
    assert was in text
    (tmp_path / "cluster.c").write_text(text.replace(was, becomes), encoding="utf-8")
    assert ends_of_a_link(tmp_path, "leftovers", tmp_path / "cluster.c") not in (0, 1)


def hosted(tmp_path: Path, port: str, medium: str, devices: int) -> tuple[BuiltCluster, dict[int, list[str]]]:
    built = build_for(tmp_path, "host " * devices, medium)
    commands = {}
    for part in built.parts:
        builder = prepared(built, part, tmp_path / f"dev{part.number}")
        own = (f"-DEB_LINK_DEVICE={part.number}", f"-DEB_LINK_SOURCE={built.source}", f"-DDEVICES={devices}")
        hal = [hal_dir() / f for f in ("harness/node.c", "src/cluster.c", "src/semihost_host.c")]
        special = {hal_dir() / "src" / f"link_{port}.c": (*own[:2], f"-I{FAKES}")}
        special |= {FAKES / f"fake_{port}.c": (*own, f"-I{FAKES}"), FAKES / "wire.c": (f"-I{FAKES}",)}
        commands[part.number] = [str(builder.program("device", [*files_of(part), *hal], special).resolve())]
    return built, commands


@pytest.mark.slow
@pytest.mark.one_in(6)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("harm", [0, 25])
@pytest.mark.parametrize(
    ("port", "medium"),
    [
        ("can", "kind: bus, bits_per_s: 5e6, broadcast: true, mtu: 64"),
        ("spi", "kind: star, bits_per_s: 10e6"),
        ("udp", "kind: switch, bits_per_s: 100e6"),
    ],
)
def test_a_cluster_over_a_port(tmp_path: Path, port: str, medium: str, harm: int) -> None:
    """With harm no output is wrong, and when it ends, all is well again."""
    group, commands = hosted(
        tmp_path, port, f"{medium}, timeout_ms: 200" if harm else f"{medium}, timeout_ms: 20000", 3
    )
    run, vectors = vectors_of(group, 12)
    expected = alone(DIGITS, tmp_path / "one", vectors)
    (tmp_path / "dev0" / "input.bin").write_bytes(b"".join(x.tobytes() for vector in vectors for x in vector) * 3)
    output, env = tmp_path / "dev0" / "output.bin", {"EB_LINK_FOLDER": str(tmp_path), "EB_LINK_HARM": str(harm)}
    size = 4 + sum(p["bytes"] for p in run.report["outputs"])

    def rounds() -> int:
        return output.stat().st_size // size if output.exists() else 0

    with running(commands, tmp_path, env) as started:
        wait_for(lambda: rounds() >= 12, started[0], tmp_path / "dev0")
        (tmp_path / "calm").touch()
        wait_for(lambda: rounds() == 36, started[0], tmp_path / "dev0")
    codes, outputs = run._results(output)
    for code, mine, theirs in zip(codes, outputs, expected * 3, strict=True):
        assert code or together._same(mine, theirs)
    assert codes[-12:] == [0] * 12, codes
    assert (codes == [0] * 36) or harm


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm", "gcc")
def test_a_cluster_over_uarts(tmp_path: Path) -> None:
    """Two boards in QEMU, whose UARTs are joined by a socket."""
    built = build_for(tmp_path, "mps2-an386 mps2-an386", "kind: star, bits_per_s: 1e6, timeout_ms: 100000")
    run, vectors = vectors_of(built, 3)
    expected = alone(DIGITS, tmp_path / "one", vectors)
    (tmp_path / "dev0").mkdir()
    (tmp_path / "dev0" / "input.bin").write_bytes(b"".join(x.tobytes() for vector in vectors for x in vector))
    commands, over = {}, tmp_path / "over.c"
    over.write_text("int eb_relay_over;\n")
    for part in built.parts:
        builder = prepared(built, part, tmp_path / f"dev{part.number}")
        assert part.target.runner is not None
        hal = [hal_dir() / f for f in ("harness/node.c", "src/cluster.c", *part.target.runner.sources)]
        special = {hal_dir() / "src" / "link_uart.c": (f"-DEB_LINK_PEER={1 - part.number}",)}
        elf = builder.program("device", [*files_of(part), *hal, over], special)
        words = [w.replace("{elf}", elf.name) for w in part.target.runner.command]
        at = words.index("-serial")
        side = "server=on,wait=on" if part.number == 0 else "server=off,reconnect=1"
        chardev = ["-chardev", f"socket,id=uart,path={tmp_path}/uart,{side}", "-serial", "chardev:uart"]
        commands[part.number] = [*words[:at], *chardev, *words[at + 2 :]]
    with running(commands, tmp_path, {}) as started:
        wait_for(lambda: started[0].poll() is not None, started[1], tmp_path / "dev1")
    codes, outputs = run._results(tmp_path / "dev0" / "output.bin")
    assert codes == [0, 0, 0]
    assert all(map(together._same, outputs, expected))


@pytest.mark.needs("riscv64-unknown-elf-gcc", "qemu-system-riscv32", "gcc")
def test_a_cluster_of_two_harts(tmp_path: Path) -> None:
    """One program, whose harts share memory; the same bytes in two runs."""
    built = build_for(tmp_path, "riscv-virt riscv-virt", "kind: switch, bits_per_s: 1e9")
    run, vectors = vectors_of(built, 3)
    expected = alone(DIGITS, tmp_path / "one", vectors)
    source, other = built.parts
    folder = tmp_path / "dev0"
    builder = prepared(built, source, folder)
    publish(other.artifacts, folder)
    assert source.target.runner is not None
    hal = [
        hal_dir() / f for f in ("harness/node.c", "src/cluster.c", "src/link_harts.c", *source.target.runner.sources)
    ]
    elf = builder.program("device", [*files_of(source), *files_of(other), *hal, FAKES / "harts.c"])
    command = [*(w.replace("{elf}", elf.name) for w in source.target.runner.command), "-smp", "2"]
    (folder / "input.bin").write_bytes(b"".join(x.tobytes() for vector in vectors for x in vector))
    seen = []
    for _ in range(2):
        subprocess.run(command, cwd=folder, check=True, timeout=WALL_S, stdin=subprocess.DEVNULL)
        seen.append((folder / "output.bin").read_bytes())
    codes, outputs = run._results(folder / "output.bin")
    assert codes == [0, 0, 0] and seen[0] == seen[1]
    assert all(map(together._same, outputs, expected))
