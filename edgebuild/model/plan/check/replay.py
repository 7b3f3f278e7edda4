"""The check of a plan: run it, with each byte tagged with its owner.

Always run. Each byte that a call needs must be in memory when it is read. No call may write over what it is reading,
unless the op goes element by element. A kernel's scratch spoils what lies there. `operations` says what each step does,
`machine` what becomes of the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ....base.target import Target
from ...ir import Graph
from ..memory.problem import Place
from ..printed import Moves, Start, Step, TiledOp
from .machine import BrokenPlan as BrokenPlan
from .machine import Machine
from .operations import Operations
from .relations import Relations, View


def replay(
    graph: Graph,
    steps: Sequence[Step],
    places: Mapping[str, Place],
    target: Target | None = None,
    level1_bytes: int | None = None,
    streamed: str | None = None,
    views: Mapping[str, tuple[str, int]] = MappingProxyType({}),
) -> None:
    """Raise BrokenPlan unless every read of every call finds its bytes, and all outputs stand at the end.

    `target`: whose memories and DMA units those steps use that move data. `level1_bytes`: of its first level, less than
    there are. `streamed`: the input whose rows the application brings. `views`: the storage of every activation and the
    bytes before it there, as they are printed.
    """
    relations, moves = Relations(graph), any(isinstance(s.moves, Moves) for s in steps)
    for name, (storage, start) in views.items():
        if (view := relations.views[name]) != View(storage, start):
            raise BrokenPlan(f"{name} begins {view.start} B behind {view.storage}, not {start} B behind {storage}")
    sizes, level, cached = _sizes(graph, steps, places), "", frozenset[str]()
    if moves:
        assert target is not None
        level, cached = target.levels[0].name, frozenset(m.name for m in target.memories if m.cached)
        sizes |= {name: target.memory_named(name).size for e in target.engines for name in e.memories}
        sizes[level] = min(target.levels[0].size, level1_bytes or target.levels[0].size)
    machine = Machine(sizes, target, cached & set(sizes))
    operations = Operations(relations, places, level, sizes.get(level, 0), streamed)
    for name in dict.fromkeys(relations.views[n].storage for n in graph.inputs):
        for part in operations.of_tensor(name) if name != streamed else ():
            machine.write(part)
    for section in steps:
        for operation in operations.step(section):
            machine.do(operation)
    if machine.pending:
        raise BrokenPlan("a copy of constants that nobody waits for")
    for name in graph.outputs:
        if not all(machine.holds(part, machine.seen) for part in operations.of_tensor(name)):
            raise BrokenPlan(f"output {name} does not stand at the end")


def _sizes(graph: Graph, steps: Sequence[Step], places: Mapping[str, Place]) -> dict[str, int]:
    """Bytes of the memories that tensors and constants on their way lie in: more than they need."""
    copies = [t.copy for s in steps for t in s.before if isinstance(t, Start)]
    copies += [c for s in steps if isinstance(s.moves, TiledOp) for c in s.moves.copies]
    staged = [c for c in copies if c.into]
    ends = [*(p.offset for p in places.values()), *(c.near + c.total for c in staged)]
    inner = max((size for s in steps for size in s.inner.values()), default=0)  # scratch may exceed all tensors
    size = max(ends, default=0) + max(4 * max((t.bytes for t in graph.tensors.values()), default=0), inner)
    return dict.fromkeys({*(p.memory for p in places.values()), *(c.stage for c in staged)}, size)
