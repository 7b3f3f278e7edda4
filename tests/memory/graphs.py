"""Task graphs and layout problems to try: random small ones, and the shapes that networks have."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import permutations
from random import Random

from edgebuild.model.plan.memory.problem import Buffer, MemoryProblem, Phase, Task, TaskGraph


def random_graph(random: Random, tasks: int) -> TaskGraph:
    """Any graph: several writers, in-place pairs, unread storages and inputs, extra outputs."""
    sizes = {f"in{i}": random.randint(0, 9) for i in range(random.randint(0, 2))}
    inputs = tuple(sizes)
    written, outputs, drawn = list(inputs), [], []
    for t in range(tasks):
        reads = random.sample(written, min(len(written), random.choice([0, 1, 1, 1, 2, 2, 3])))
        writes = []
        for k in range(random.choice([1, 1, 1, 1, 2])):
            again = written and random.random() < 0.08
            storage = random.choice(written) if again else f"s{t}_{k}"
            sizes.setdefault(storage, random.randint(0, 12))
            writes += [storage] if storage not in writes else []
        written += [s for s in writes if s not in written]
        if random.random() < 0.3:
            written.remove(random.choice(written[:-1] or written))
        pairs = tuple((r, w) for r in reads for w in writes if random.random() < 0.4)
        drawn.append(Task(f"t{t}", tuple(reads), tuple(writes), pairs))
        outputs += writes[:1] if random.random() < 0.15 else []
        written = written or writes[:1]
    return TaskGraph(tuple(drawn), sizes, inputs, tuple(dict.fromkeys(outputs)))


def series_parallel(random: Random, depth: int) -> TaskGraph:
    """A nested fork and join graph in which every edge has a storage of its own."""
    sizes, tasks = {"in": random.randint(0, 20)}, list[Task]()

    def task(reads: list[str], results: int) -> list[str]:
        writes = [f"e{len(sizes) + k}" for k in range(results)]
        sizes.update((w, random.randint(0, 20)) for w in writes)
        pairs = tuple((r, w) for r in reads for w in writes if random.random() < 0.2)
        tasks.append(Task(f"t{len(tasks)}", tuple(reads), tuple(writes), pairs))
        return writes

    def block(storage: str, depth: int) -> str:
        if depth == 0 or random.random() < 0.2:
            for _ in range(random.randint(1, 2)):
                (storage,) = task([storage], 1)
            return storage
        if random.random() < 0.4:
            return block(block(storage, depth - 1), depth - 1)
        ends = [block(s, depth - 1) for s in task([storage], random.randint(2, 3))]
        return task(ends, 1)[0]

    output = block("in", depth)
    return TaskGraph(tuple(tasks), sizes, ("in",), (output,))


def tiles(count: int, depth: int, jitter: int, slices: bool = False) -> TaskGraph:
    """A fork that all branches read, `count` branches of `depth` tasks row by row, and a join.

    With `slices` the branches write into the result instead of a join that copies.
    """
    random = Random(count * 100 + depth)
    sizes, tasks = {"in": 100, "shared": 400, "out": 30}, [Task("fork", ("in",), ("shared",))]
    for d in range(depth):
        for i in range(count):
            into = "out" if slices and d == depth - 1 else f"b{i}_{d}"
            sizes.setdefault(into, (40 if d % 2 == 0 else 12) + random.randint(0, jitter))
            tasks.append(Task(f"t{i}_{d}", (f"b{i}_{d - 1}" if d else "shared",), (into,)))
    if not slices:
        tasks.append(Task("join", tuple(f"b{i}_{depth - 1}" for i in range(count)), ("out",)))
    return TaskGraph(tuple(tasks), sizes, ("in",), ("out",))


def cells(random: Random, count: int, nodes: int) -> TaskGraph:
    """Irregularly wired cells, as architecture search finds them: `count` of `nodes` tasks and a concatenation."""
    sizes, tasks, before = {"in": random.randint(50, 100)}, list[Task](), "in"
    for c in range(count):
        names, read = [before], set[str]()
        for k in range(nodes):
            inputs = random.sample(names[-6:], min(random.choice([1, 1, 2, 2, 3]), len(names[-6:])))
            read.update(inputs)
            names.append(f"c{c}n{k}")
            sizes[names[-1]] = random.randint(5, 60)
            tasks.append(Task(names[-1], tuple(inputs), (names[-1],)))
        ends = tuple(n for n in names if n not in read)
        before = f"c{c}"
        sizes[before] = sum(sizes[e] for e in ends) // 2
        tasks.append(Task(before, ends, (before,)))
    return TaskGraph(tuple(tasks), sizes, ("in",), (before,))


def searched_cells(random: Random, count: int) -> TaskGraph:
    """Cells of five sums of two results each, on the outputs of the two cells before; sums may be in place."""
    sizes, tasks, outputs = {"in0": 64, "in1": 64}, list[Task](), ["in0", "in1"]
    for c in range(count):
        names, read = outputs[-2:], set[str]()
        for k in range(5):
            parts = [f"c{c}n{k}a", f"c{c}n{k}b"]
            for part in parts:
                source = random.choice(names)
                read.add(source)
                sizes[part] = random.randint(10, 40)
                tasks.append(Task(part, (source,), (part,)))
            total = f"c{c}n{k}"
            sizes[total] = max(sizes[p] for p in parts)
            tasks.append(Task(total, tuple(parts), (total,), tuple((p, total) for p in parts)))
            names = [*names, total]
        ends = tuple(n for n in names[2:] if n not in read)
        outputs.append(f"c{c}")
        sizes[outputs[-1]] = sum(sizes[e] for e in ends)
        tasks.append(Task(outputs[-1], ends, (outputs[-1],)))
    return TaskGraph(tuple(tasks), sizes, ("in0", "in1"), (outputs[-1],))


def shuffled(graph: TaskGraph, random: Random) -> TaskGraph:
    """The same graph, in which every storage has one writer, with its tasks in another valid order."""
    left, written, order = list(graph.tasks), set(graph.inputs), list[Task]()
    while left:
        order.append(random.choice([t for t in left if written.issuperset(t.reads)]))
        left.remove(order[-1])
        written.update(order[-1].writes)
    return TaskGraph(tuple(order), graph.sizes, graph.inputs, graph.outputs)


def least_peak(graph: TaskGraph) -> int:
    """The least peak of all orders, straight from the definition, over all sets of tasks done."""
    tasks, last = graph.tasks, len(graph.tasks)
    users = {s: [i for i, t in enumerate(tasks) if s in t.reads + t.writes] for s in graph.sizes}
    writers = {s: [i for i, t in enumerate(tasks) if s in t.writes] for s in graph.sizes}
    before = [{j for j in range(i) if set(tasks[j].writes) & set(tasks[i].reads)
               or set(tasks[j].reads) & set(tasks[i].writes)} for i in range(last)]  # fmt: skip

    def dead(s: str, done: frozenset[int]) -> bool:
        return s not in graph.outputs and bool(users[s]) and done.issuperset(users[s])

    def step(done: frozenset[int], i: int) -> int:
        live = {s for s in graph.sizes if (s in graph.inputs or done & set(writers[s])) and not dead(s, done)}
        total = sum(graph.sizes[s] for s in live | set(tasks[i].writes))
        pairs = [(r, w) for r, w in dict.fromkeys(tasks[i].in_place)
                 if r != w and dead(r, done | {i}) and writers[w] == [i] and w not in graph.inputs]  # fmt: skip
        return total - max(_saved(graph, chosen) for k in range(len(pairs) + 1) for chosen in permutations(pairs, k))

    @cache
    def least(done: frozenset[int]) -> int:
        ready = [i for i in range(last) if i not in done and before[i] <= done]
        return min((max(step(done, i), least(done | {i})) for i in ready), default=0)

    return least(frozenset())


def _saved(graph: TaskGraph, pairs: tuple[tuple[str, str], ...]) -> int:
    distinct = len({r for r, _ in pairs}) == len({w for _, w in pairs}) == len(pairs)
    return sum(min(graph.sizes[r], graph.sizes[w]) for r, w in pairs) if distinct else 0


def random_problem(random: Random, buffers: int) -> MemoryProblem:
    drawn = []
    for k in range(buffers):
        lower = random.randint(0, 6)
        size, align = random.randint(0, 9), random.choice([1, 1, 1, 2, 4, 3])
        drawn.append(Buffer(f"b{k}", size, lower, lower + random.randint(1, 5), align))
    return MemoryProblem(tuple(drawn))


def phased_problem(random: Random, buffers: int) -> MemoryProblem:
    """Buffers of which only a part is taken in the first or last part of their lifetime."""
    plain = random_problem(random, buffers)
    drawn = []
    for b in plain.buffers:
        if b.upper - b.lower > 1 and b.size and random.random() < 0.7:
            cut = random.randint(b.lower + 1, b.upper - 1)
            parts = [(random.randint(0, b.size // 2), random.randint(b.size // 2, b.size)), (0, b.size)]
            (one, two), (three, four) = random.sample(parts, 2)
            phases = Phase(b.lower, cut, one, two - one), Phase(cut, b.upper, three, four - three)
            b = replace(b, phases=phases)
        drawn.append(b)
    return replace(plain, buffers=tuple(drawn))


def fits(problem: MemoryProblem, height: int, placed: tuple[int, ...] = ()) -> bool:
    """Whether there is a layout within `height`, by trying all offsets."""
    if len(placed) == len(problem.buffers):
        return True
    b = problem.buffers[len(placed)]
    return any(
        all(not _clash(b, at, c, where) for c, where in zip(problem.buffers, placed, strict=False))
        and fits(problem, height, (*placed, at))
        for at in range(0, height - b.size + 1, b.align)
    )


def least_height(problem: MemoryProblem) -> int:
    """The least height of all layouts: some order of placing buffers as low as possible gives it."""

    def height(order: tuple[Buffer, ...]) -> int:
        placed: list[tuple[Buffer, int]] = []
        for b in order:
            at = 0
            while any(_clash(b, at, c, where) for c, where in placed):
                at += b.align
            placed.append((b, at))
        return max((at + b.size for b, at in placed), default=0)

    return min(height(order) for order in permutations(problem.buffers))


def _clash(b: Buffer, at: int, c: Buffer, where: int) -> bool:
    return any(
        p.lower < q.upper and q.lower < p.upper and p.size and q.size
        and at + p.offset < where + q.offset + q.size and where + q.offset < at + p.offset + p.size
        for p in b.phases or [Phase(b.lower, b.upper, 0, b.size)]
        for q in c.phases or [Phase(c.lower, c.upper, 0, c.size)]
    )  # fmt: skip
