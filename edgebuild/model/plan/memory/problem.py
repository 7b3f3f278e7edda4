"""Inputs and results of memory planning. All sizes and offsets are bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ALIGN = 4  # bytes; every buffer starts and ends on it, so kernels may use word accesses


def aligned(size: int, align: int = ALIGN) -> int:
    """The least multiple of `align` that is not below a size, in bytes."""
    return -(-size // align) * align


@dataclass(frozen=True)
class Phase:
    """Part of a buffer that is in use in [lower, upper): `size` bytes from `offset` on."""

    lower: int
    upper: int
    offset: int
    size: int


@dataclass(frozen=True)
class Buffer:
    """`size` bytes at one fixed offset, a multiple of `align`, live in the half-open time [lower, upper).

    `memories` names where it may lie; empty means anywhere. `phases`, if there are any, cut the
    lifetime into parts in which only a part of the bytes is taken: an operand and the result that
    grows into it are one such buffer.
    """

    name: str
    size: int
    lower: int
    upper: int
    align: int = 1
    memories: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()

    @property
    def extents(self) -> tuple[Phase, ...]:
        """The phases; one that is the whole buffer if none are given."""
        return self.phases or (Phase(self.lower, self.upper, 0, self.size),)


@dataclass(frozen=True)
class BufferMemory:
    """A memory that buffers are placed in; `capacity` None is unlimited. `line`: sizes round up to so many bytes."""

    name: str
    capacity: int | None = None
    line: int = 1


@dataclass(frozen=True)
class MemoryProblem:
    """Buffers to place. `memories` are in order of preference. Raises ValueError for an inconsistent problem."""

    buffers: tuple[Buffer, ...]
    memories: tuple[BufferMemory, ...] = (BufferMemory("memory"),)

    def __post_init__(self) -> None:
        memories = {m.name for m in self.memories}
        if len(memories) != len(self.memories) or not memories:
            raise ValueError("memories need distinct names, and there must be one")
        if len({b.name for b in self.buffers}) != len(self.buffers):
            raise ValueError("buffers need distinct names")
        for b in self.buffers:
            if b.lower >= b.upper or b.size < 0 or b.align < 1:
                raise ValueError(f"buffer {b.name!r}: empty lifetime, negative size or alignment below 1")
            times = [t for phase in b.phases for t in (phase.lower, phase.upper)]
            within = all(p.offset >= 0 and p.size >= 0 and p.offset + p.size <= b.size for p in b.phases)
            if not within or [b.lower, *times, b.upper] != sorted((b.lower, *times, b.upper)):
                raise ValueError(f"buffer {b.name!r}: phases must follow each other within its lifetime and size")
            if not memories.issuperset(b.memories):
                raise ValueError(f"buffer {b.name!r}: unknown memory in {b.memories}")


@dataclass(frozen=True)
class Place:
    memory: str
    offset: int


@dataclass(frozen=True)
class Layout:
    """Where every buffer lies.

    `heights` has the bytes used of every memory of the problem. `bound` is a proven lower bound
    of their sum for the buffers assigned to each memory (with one memory: of any layout).
    `optimal`: no layout of these buffers is lower. `method` names the algorithm.
    """

    places: Mapping[str, Place]
    heights: Mapping[str, int]
    bound: int
    optimal: bool
    method: str

    @property
    def height(self) -> int:
        return sum(self.heights.values())


class DoesNotFit(Exception):
    """The buffers do not fit into a memory of `capacity` bytes.

    `needed` is a proven lower bound when `proven`, else the height of the best layout.
    `buffers` names the buffers live at the moment of most live bytes.
    """

    def __init__(self, memory: str, needed: int, capacity: int, buffers: tuple[str, ...], proven: bool) -> None:
        self.memory, self.needed, self.capacity, self.buffers, self.proven = memory, needed, capacity, buffers, proven
        proof = "at least" if proven else "no layout found below"
        super().__init__(f"memory {memory} has {capacity} B; {proof} {needed} B")


@dataclass(frozen=True)
class Task:
    """A step that reads and writes storages.

    `in_place` pairs (read storage, written storage) may share their bytes if this task is the
    last to use the storage it reads.
    """

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    in_place: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class TaskGraph:
    """Tasks in some valid order, and the storages between them.

    The order of `tasks` gives the dependencies: a read comes after every write of its storage
    that is listed before it, and a write after every read listed before it. Writes of one
    storage with no read between them (slices of a concatenation) may change places.

    A storage is live from its first write (`inputs`: from the start) to its last use; `outputs`, and inputs that no
    task uses, are live to the end. While a task runs, all that it reads and writes is live. A storage is counted once,
    however many tasks read it. An in-place pair saves the smaller of its two sizes while the task runs, if the read
    storage dies here. The written one has this one writer and is not an input. A storage is in one pair at most.
    Raises ValueError for an inconsistent graph.
    """

    tasks: tuple[Task, ...]
    sizes: Mapping[str, int]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        written = set(self.inputs)
        for task in self.tasks:
            if missing := set(task.reads) - written:
                raise ValueError(f"task {task.name!r} reads {sorted(missing)} before it is written")
            if any(r not in task.reads or w not in task.writes for r, w in task.in_place):
                raise ValueError(f"task {task.name!r}: an in-place pair is (a storage it reads, one it writes)")
            written.update(task.writes)
        if missing := (written | set(self.outputs)) - set(self.sizes):
            raise ValueError(f"no size for {sorted(missing)}")
        if missing := set(self.outputs) - written:
            raise ValueError(f"outputs {sorted(missing)} are never written")


@dataclass(frozen=True)
class Schedule:
    """An order of execution: `order[k]` is the index of the task that runs in step k.

    `profile[k]` are the bytes live while step k runs, and `peak` is the largest of them. `bound` is
    a proven lower bound of the peak of any order. `in_place` has the (read, written) pairs used.
    """

    order: tuple[int, ...]
    profile: tuple[int, ...]
    peak: int
    bound: int
    optimal: bool
    method: str
    in_place: tuple[tuple[str, str], ...]
