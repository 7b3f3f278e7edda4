"""Arenas that other tools would need for the same network with every op whole: their published rules, rebuilt.

Both place what ops read and write, without scratch. Rules: TensorFlow Lite Micro's GreedyMemoryPlanner
(`greedy_memory_planner.cc`) and the storage allocator of TVM's graph planner (`graph_plan_memory.cc`).
"""

from __future__ import annotations

from edgebuild.model import ops
from edgebuild.model.ir import Graph
from edgebuild.model.plan.rolling import RollingGraph

TFLM_ALIGN = 16  # kBufferAlignment
TVM_RANGE = 16  # a free block serves requests of its size divided, or multiplied, by this


def lifetimes(graph: Graph) -> dict[str, tuple[int, int, int]]:
    """Of every storage bytes, and the first and the last op in the model's order that need it."""
    root = RollingGraph(graph).storage
    running = [op for op in graph.ops if not ops.SPECS[op.kind].view]
    uses: dict[str, list[int]] = {root[n]: [0] for n in graph.inputs}
    for at, op in enumerate(running):
        for name in (*op.inputs, *op.outputs):
            if name in root:
                uses.setdefault(root[name], []).append(at)
    for name in graph.outputs:
        uses[root[name]].append(len(running))
    return {n: (graph.tensors[n].bytes, min(at), max(at)) for n, at in uses.items()}


def tflm(graph: Graph) -> int:
    """Largest first, each in the first gap among those that live at the same time."""
    placed: list[tuple[int, int, int, int]] = []  # offset, bytes, first, last
    for size, first, last in sorted(lifetimes(graph).values(), key=lambda b: -b[0]):
        size, at = -(-size // TFLM_ALIGN) * TFLM_ALIGN, 0
        for start, length, begin, end in sorted(placed):
            if begin <= last and first <= end and start < at + size:
                at = max(at, start + length)
        placed.append((at, size, first, last))
    return max((at + size for at, size, _, _ in placed), default=0)


def tvm(graph: Graph) -> int:
    """In the order of the ops: a result takes a free block of a like size, which grows if it is smaller."""
    lives = lifetimes(graph)
    blocks, free, block_of = list[int](), set[int](), dict[str, int]()
    for name, (size, first, _) in sorted(lives.items(), key=lambda item: item[1][1]):
        for other, (_, _, last) in lives.items():
            if other in block_of and last < first and block_of[other] >= 0:
                free.add(block_of[other])
                block_of[other] = -1
        larger = [b for b in free if size <= blocks[b] <= size * TVM_RANGE]
        smaller = [b for b in free if size // TVM_RANGE <= blocks[b] < size]
        block = min(larger, key=lambda b: blocks[b], default=max(smaller, key=lambda b: blocks[b], default=-1))
        if block < 0:
            block = len(blocks)
            blocks.append(size)
        blocks[block] = max(blocks[block], size)
        free.discard(block)
        block_of[name] = block
    return sum(blocks)
