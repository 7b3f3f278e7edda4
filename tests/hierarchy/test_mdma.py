"""The port to the MDMA of STM32H7, instruction by instruction against a register model."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("unicorn", reason="the register model runs under unicorn")

from edgebuild.base.artifacts import publish
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import firmware_support, hal_dir, link_flags, load_target
from edgebuild.model import ops
from edgebuild.model.compile import compile_model, prepare
from tests.conftest import ROOT
from tests.graphs import random_inputs
from tests.hierarchy.mdma import AXI, RAM, TCM, Board, Violation

pytestmark = pytest.mark.needs("arm-none-eabi-gcc")
DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
PORT = hal_dir() / "src" / "dma_mdma.c"
COPY, LOWEST = 0x2001_0000, 0x4000  # where tests put an eb_copy; bytes of RAM that belong to the program
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef", "-Wmissing-prototypes", "-Werror")
KEEP = '#include "eb_dma.h"\nint main(void) { eb_dma_start(0, 0); eb_dma_wait(0); return 0; }\n'


def link(folder: Path, sources: list[str], fragments: tuple[str, ...] = (), flags: tuple[str, ...] = WARNINGS) -> Path:
    """A program for the chip, with the linker script that its users get."""
    target = load_target("stm32h743")
    publish(firmware_support(target), folder)
    assert target.firmware
    startup = [str(hal_dir() / s) for s in target.firmware.startup]
    tools = target.toolchain
    command = [
        tools.compiler,
        *tools.cflags,
        *flags,
        f"-I{hal_dir() / 'include'}",
        "-I.",
        *link_flags(target, fragments),
    ]
    done = subprocess.run(
        [*command, *sources, *startup, *tools.libs, "-o", "p.elf"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "p.elf"


def port(folder: Path, change: tuple[str, str] | None = None, flags: tuple[str, ...] = WARNINGS) -> Path:
    text = PORT.read_text()
    if change:
        assert change[0] in text, change[0]
        text, flags = text.replace(*change), ()
    (folder / "dma.c").write_text(text)
    (folder / "keep.c").write_text(KEEP)
    return link(folder, ["dma.c", "keep.c"], flags=flags)


class Copies:
    """Random copies: sizes, steps in both directions, alignments, memories."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def steps(self, bytes_: int, rows: int, planes: int, room: int, unit: int) -> tuple[int, int, int] | None:
        """Steps of rows and planes of one side, and how far the first piece lies above the lowest."""
        r = self.random
        row = r.choice((1, 1, -1)) * (bytes_ + unit * r.choice((0, 1, 5, 200, 20000)))
        span = bytes_ + abs(row) * (rows - 1)
        plane = r.choice((1, -1)) * (span + unit * r.choice((0, 3, 100)))
        if span + abs(plane) * (planes - 1) > room:
            return None
        return row, plane, max(0, -row * (rows - 1)) + max(0, -plane * (planes - 1))

    def one(self) -> tuple[int, ...]:
        """to, from, bytes, rows, planes, to_row, from_row, to_plane, from_plane"""
        r = self.random
        while True:
            unit = r.choice((1, 1, 2, 4, 8))
            bytes_ = unit * r.choice((1, 3, 16, 17, 40, 128, 200, 1000, 9000))
            rows, planes = r.choice((1, 1, 2, 5, 30)), r.choice((1, 1, 2, 9, 20))
            to, from_ = r.choice(RAM), r.choice((TCM[1], *AXI))
            room = [size // 2 - 2 * LOWEST for _, size in (to, from_)]
            sides = [self.steps(bytes_, rows, planes, n, unit) for n in room]
            if sides[0] and sides[1]:
                (to_row, to_plane, to_up), (from_row, from_plane, from_up) = sides[0], sides[1]
                first = to[0] + LOWEST + unit * r.randint(0, 15) + to_up
                second = from_[0] + from_[1] // 2 + LOWEST + unit * r.randint(0, 15) + from_up
                return first, second, bytes_, rows, planes, to_row, from_row, to_plane, from_plane


def memory(board: Board) -> dict[int, bytearray]:
    return {first: bytearray(board.uc.mem_read(first, size)) for first, size in (AXI[0], *RAM)}


def copied(before: dict[int, bytearray], copy: tuple[int, ...]) -> None:
    """Do a copy in numpy's stead: piece after piece."""
    to, from_, n, rows, planes, to_row, from_row, to_plane, from_plane = copy

    def place(address: int) -> tuple[bytearray, int]:
        first = max(f for f in before if f <= address)
        return before[first], address - first

    for p in range(planes):
        for q in range(rows):
            there, i = place(from_ + p * from_plane + q * from_row)
            here, k = place(to + p * to_plane + q * to_row)
            here[k : k + n] = there[i : i + n]


def same(board: Board, want: dict[int, bytearray]) -> None:
    low = {TCM[1][0]: (LOWEST, 0x1_0000), AXI[1][0]: (LOWEST, AXI[1][1])}  # without stack, variables and lists
    for first, (begin, end) in low.items():
        if board.uc.mem_read(first + begin, end - begin) != want[first][begin:end]:  # no assert: it prints both
            raise Violation(f"the memory at {first:#x} is not as it should be")


def start(board: Board, channel: int, copy: tuple[int, ...], at: int = COPY) -> None:
    board.uc.mem_write(at, struct.pack("<5I4i", *copy))
    board.call("eb_dma_start", channel, at)


def run(board: Board, seed: int, count: int) -> None:
    copies = Copies(seed)
    for i in range(count):
        copy, want = copies.one(), memory(board)
        copied(want, copy)
        start(board, i % 32, copy)
        board.call("eb_dma_wait", i % 32)
        same(board, want)


@pytest.mark.parametrize("seed", range(3))
def test_random_copies(seed: int, tmp_path: Path) -> None:
    board = Board(port(tmp_path), seed)
    run(board, seed, 60)
    assert board.mdma.lists > 20


def test_blocks_beyond_the_registers(tmp_path: Path) -> None:
    """More than 64 KB in a piece, more than 64 KB between rows, more than 4096 rows, more blocks than a list has."""
    board = Board(port(tmp_path), 1)
    axi, flash = AXI[1][0] + LOWEST, AXI[0][0] + 0x100000
    for copy in (
        (axi, flash, 200_001, 1, 1, 0, 0, 0, 0),
        (axi, flash, 64, 5, 1, 64, 70_000, 0, 0),
        (axi, flash, 64, 4, 3, 70_000, -64, 64, 256),
        (axi, flash, 4, 9000, 1, 8, 4, 0, 0),
        (axi, flash, 12, 3, 40, 12, 20, 36, 100),
        (axi, flash, 12, 1, 40, 0, 0, 36, 100),
    ):
        want = memory(board)
        copied(want, copy)
        start(board, 3, copy)
        board.call("eb_dma_wait", 3)
        same(board, want)


def test_channels_run_beside_each_other(tmp_path: Path) -> None:
    board, want = Board(port(tmp_path), 2), {}
    flash = AXI[0][0] + 0x100000
    want = memory(board)
    for channel in range(16):
        copy = (AXI[1][0] + LOWEST + 8192 * channel, flash + 5000 * channel, 100, 20, 2, 200, 100, 4000, 3000)
        copied(want, copy)
        start(board, channel, copy, COPY + 64 * channel)
    assert sum(c.values[0] >> 16 & 1 for c in board.mdma.channels) > 8
    for channel in range(16):
        board.call("eb_dma_wait", channel)
    same(board, want)


def test_an_error_of_the_bus_is_no_end(tmp_path: Path) -> None:
    """A copy that leaves AXI SRAM ends in eb_dma_failed, whose default never returns."""
    board = Board(port(tmp_path), 3)
    start(board, 0, (AXI[1][0] + AXI[1][1] - 64, AXI[0][0], 4096, 1, 1, 0, 0, 0, 0))
    end = board.symbols["eb_dma_failed"]
    board.uc.mem_write(end & ~1, b"\x70\x47")  # bx lr instead: tells that it was called
    seen: list[int] = []
    board.uc.hook_add(4, lambda uc, address, size, data: seen.append(address), begin=end & ~1, end=end & ~1)
    board.call("eb_dma_wait", 0)
    assert seen


MISTAKES = {
    "no clock": ("RCC_AHB3ENR |= MDMAEN;", ""),
    "flags that stay": ("CHANNEL(channel, IFCR) = ALL_FLAGS;", ""),
    "double words on the TCM port": ("if (size == 3u && (to_tcm || from_tcm))", "if (0)"),
    "no port for the destination": ("(to_tcm ? DBUS : 0u)", "0u"),
    "no port for the source": ("(from_tcm ? SBUS : 0u)", "0u"),
    "words at any address": ("both & 1u ? 0u :", "0 ? 0u :"),
    "gaps forgotten in the alignment": ("to | from | bytes | gaps", "to | from | bytes"),
    "one repeat too many": ("(count - 1u) << 20", "count << 20"),
    "steps instead of gaps": ("to_row - (int32_t)bytes", "to_row"),
    "the sign of a gap": ("(from_gap < 0 ? BRSUM : 0u)", "0u"),
    "long bursts": ("(2u << burst << size) < length && ", ""),
    "less than the list": ("WHOLE_LIST (3u", "WHOLE_LIST (2u"),
    "lists in the cache": ("DCCMVAC = (uint32_t)(uintptr_t)list + 32u * i;", "(void)0;"),
    "no request": ("EN | SWRQ", "EN"),
    "registers of a channel that runs": ("finish(p->channel);", ""),
    "no wait": ("while (!(CHANNEL(channel, ISR) & (CTCIF | TEIF)))", "while (0)"),
    "lists in tightly coupled memory": (".bss.edgebuild.lists", ".bss.lists"),
}


@pytest.mark.parametrize("name", [n for n in MISTAKES if n != "lists in tightly coupled memory"])
def test_mistakes_are_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.hierarchy.mdma.INSTRUCTIONS", 500_000)
    board = Board(port(tmp_path, MISTAKES[name]), 4)
    with pytest.raises(Violation):
        run(board, 4, 60)


def test_lists_in_tightly_coupled_memory_are_not_used(tmp_path: Path) -> None:
    """With a linker script of the user's own: blocks go one by one."""
    board = Board(port(tmp_path, MISTAKES["lists in tightly coupled memory"]), 5)
    assert any(first <= board.symbols["lists"] < first + size for first, size in TCM)
    run(board, 5, 30)
    assert board.mdma.lists == 0


@pytest.mark.parametrize("method", ["layer", "auto"])
def test_a_network_runs(method: str, tmp_path: Path) -> None:
    """Generated code with the port on the chip's memories, compared with the ops' own meaning."""
    request = ModelRequest(DIGITS, "net", "stm32h743", map=method, limit=(("DTCM", 12 << 10),))
    publish(compile_model(request), tmp_path)
    (tmp_path / "main.c").write_text(
        '#include "net.h"\nint main(void) { net_invoke(); return *net_output() + *net_input(); }\n'
    )
    sources = ["main.c", "net.c", "net_weights.S", str(PORT)]
    board = Board(link(tmp_path, sources, ("net_memory.ld",), ()), 6)
    graph = prepare(DIGITS)
    for vector in random_inputs(graph, 3, 7):
        board.uc.mem_write(board.call("net_input"), np.ascontiguousarray(vector[0]).tobytes())
        board.call("net_invoke")
        (y,) = (graph.tensors[n] for n in graph.outputs)
        have = np.frombuffer(board.uc.mem_read(board.call("net_output"), y.bytes), y.dtype).reshape(y.shape)
        assert np.array_equal(have, ops.run(graph, *vector)[y.name])
    assert board.mdma.blocks > 10
