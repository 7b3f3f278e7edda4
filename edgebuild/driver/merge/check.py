"""The checker: no two conflicting accesses merged, no two fields on one bit. Short, naive, and always run.

It shares only values with the analysis, above all the graph. For each merged region it walks the control flow from the
first access, node by node. It determines by itself which accesses an interrupt may see.
"""

from __future__ import annotations

from ..analysis.cdfg import OFF, ON, Access, Cdfg, Function, Node
from ..analysis.conflicts import Facts, Region
from ..layout.registers import GroupLayout, Layout
from ..source.dialect import Dialect
from .merging import Merged


def check(dialect: Dialect, cdfg: Cdfg, merged: Merged) -> None:
    """Check all regions and the layout. Raises AssertionError: a violation is a fault of this program."""
    check_layout(merged.layout)
    facts = Facts(dialect, merged.conflicts.refs)
    done: set[Access] = set()
    runs = _runs(cdfg)
    loads: dict[Node, list[Access]] = {}
    for name, region in merged.all():
        if region.kind == "r":
            node = cdfg.functions[name].starts[region.place.full] if region.hoisted else region.place.node
            loads.setdefault(node, []).extend(region.accesses)
    for name, region in merged.all():
        assert not done & set(region.accesses), "an access is in two regions"
        done |= set(region.accesses)
        if region.place.whole:
            assert {merged.register(a).name for a in region.accesses} == {merged.register(region.place).name}
            assert len({a.site for a in region.accesses}) == 1, "a whole register became one with another access"
        elif len(region.accesses) > 1:
            _check_ordered(facts, merged, region)
            for a, b in zip(region.accesses, region.accesses[1:], strict=False):
                assert merged.register(a) == merged.register(b) and a.kind == b.kind
            _check_region(facts, cdfg, cdfg.functions[name], region, loads)
            _check_visible(_seen(cdfg, runs, name), region)
    assert done == {a for f in cdfg.functions.values() for a in f.accesses}, "an access is in no region"


def _check_region(facts: Facts, cdfg: Cdfg, f: Function, region: Region, loads: dict[Node, list[Access]]) -> None:
    """Walk from each member to the place where the merged access is made (or back, for reads)."""
    members = {a.node for a in region.accesses}
    if region.kind == "r":
        first = region.accesses[0]
        for follower in region.accesses[1:]:
            for node in _on_the_way(first.node, follower.node):
                assert node not in (f.entry, f.exit)
                _assert_harmless(facts, cdfg, node, follower, members, [])
            assert follower.node not in _reached(f.entry, stop=first.node), "read before the merged read"
        return
    last = region.accesses[-1]
    for early in region.accesses[:-1]:
        assert not facts.of(early).wse and not facts.of(last).wse, "side effect merged"
        passed = _on_the_way(early.node, last.node)
        for node in passed:
            _assert_harmless(facts, cdfg, node, early, members, loads.get(node, []))
        assert f.exit not in _reached(early.node, stop=last.node), "a merged write is lost on some path"
        assert last.node not in _reached(f.entry, stop=early.node), "a merged write is made up on some path"


def _check_ordered(facts: Facts, merged: Merged, region: Region) -> None:
    """Check that no store of silicon's fields replaces another, and no read of a volatile field another."""
    leaves = [
        merged.ref(a).leaf
        for a in region.accesses
        if (facts.of(a).order != "memory" if region.kind == "w" else facts.of(a).volatile)
    ]
    assert len(set(leaves)) == len(leaves), "a store or a read of silicon is dropped"


def _check_visible(seen: set[Access], region: Region) -> None:
    """Check that accesses that an interrupt may see keep their order."""
    visible = {a.node: a for a in region.accesses if a in seen}
    last = region.place.node
    for a in visible.values():
        passed = _on_the_way(last, a.node) if region.kind == "r" else _on_the_way(a.node, last)
        for node in passed:
            crossed = node.access
            assert not (crossed and crossed in seen and node not in visible), "an interrupt may see another order"


def _runs(cdfg: Cdfg) -> dict[str, set[str]]:
    """The contexts that run each function: names of interrupt functions, and "" for the rest of the program."""
    runs: dict[str, set[str]] = {name: set() for name in cdfg.functions}
    called = {callee for f in cdfg.functions.values() for callee in f.callees}
    for root, f in cdfg.functions.items():
        if f.interrupt is None and (f.around or (f.static and root in called)):
            continue
        todo = [root]
        while todo:
            name, context = todo.pop(), root if f.interrupt is not None else ""
            if name in runs and context not in runs[name]:
                runs[name].add(context)
                todo += [*cdfg.functions[name].callees, *(n for n, g in cdfg.functions.items() if g.around == name)]
    return runs


def _seen(cdfg: Cdfg, runs: dict[str, set[str]], name: str) -> set[Access]:
    """Accesses of a function with interrupts on, to fields that an interrupt may access meanwhile; one side writes."""
    function, others = cdfg.functions[name], list[Access]()
    for other, f in cdfg.functions.items():
        if any(context and context != own for context in runs[other] for own in runs[name]):
            others += f.accesses
    off = _interrupts_off(function)
    return {
        a
        for a in function.accesses
        if a.node not in off and any(a.field == x.field and "w" in (a.kind, x.kind) for x in others)
    }


def _interrupts_off(function: Function) -> set[Node]:
    """The nodes that are only reached with interrupts off."""
    reached, todo = set[tuple[Node, bool]](), [(function.entry, False)]
    while todo:
        node, off = todo.pop()
        if (node, off) not in reached:
            reached.add((node, off))
            called = node.text if node.kind == "call" else ""
            off = (off or called in OFF or node.text.endswith("turns interrupts off")) and not (
                called in ON or node.text.endswith("turns interrupts on")
            )
            todo += [(s, off) for s in node.succ]
    return {node for node, off in reached if off} - {node for node, off in reached if not off}


def _on_the_way(a: Node, b: Node) -> set[Node]:
    return (_reached(a, stop=b) & _reached(b, stop=a, back=True)) - {a, b}


def _reached(start: Node, stop: Node, back: bool = False) -> set[Node]:
    """Nodes after `start`, or before it; `stop` is reached but not passed."""
    seen: set[Node] = set()
    todo = list(start.pred if back else start.succ)
    while todo:
        n = todo.pop()
        if n in seen:
            continue
        seen.add(n)
        if n is not stop:
            todo += n.pred if back else n.succ
    return seen


def _assert_harmless(facts: Facts, cdfg: Cdfg, node: Node, a: Access, members: set[Node], loaded: list[Access]) -> None:
    """Assert that access `a` may move over `node`. `loaded`: accesses of the merged reads at this node."""
    write = a.kind == "w"
    assert node.kind != "barrier", "merged across a barrier"
    assert not (node.kind == "assign" and node.text in a.variables), "the address changes"
    if node.access and node not in members and node.access.whole:
        b = node.access.chain.device
        assert b and a.chain.device and b != a.chain.device, "moved over an access of a whole register"
    if node.kind == "call":
        called = _called(cdfg, node.text)
        nodes = [n for f in called for n in called[f]]
        assert all(n.kind != "barrier" for n in nodes), "merged across a call with a barrier in it"
        stores = any(n.kind == "assign" and n.text == "*" for n in nodes)
        assert not ("*" in a.variables and stores), "the address may change by a call"
        inside = [n.access for n in nodes if n.access]
        assert not (write and inside and _waits(node.text, called)), "a write moved over a call that may wait"
        for x in inside:
            assert not (write and x.field == a.field), "a write moved over a call that uses its field"
            assert not (write and (x.whole or facts.of(x).effects(x.kind))), "over a call with side effects"
            assert not (write and facts.of(a).order == "ordered"), "over a call that uses devices"
            effects = facts.of(a).effects(a.kind)
            orders = {facts.of(a).order, facts.of(x).order}
            assert orders != {"ordered"}, "an access of silicon moved over a call that uses it"
            assert not effects, "a read with a side effect moved over a call that uses devices"
            assert not (x.kind == "w" and x.field == a.field), "merged across a call that writes the field"
            assert a.field not in facts.of(x).effects(x.kind), "merged across a call with an effect on it"
    met = [node.access] if node.access and node not in members else []
    for n in met + loaded:
        other_device = n.chain.device != a.chain.device and n.chain.device and a.chain.device
        same = (
            n.field == a.field
            and not other_device
            and not _other_element(n, a)
            and not (
                n.chain.device
                and n.chain.device == a.chain.device
                and n.constants != a.constants
                and None not in n.constants
                and None not in a.constants
            )
        )
        assert not (same and (write or n.kind == "w")), "merged across an access to the same field"
        orders = {facts.of(a).order, facts.of(n).order}
        assert orders != {"ordered"}, "two accesses of silicon changed their order"
        effects = facts.of(n).effects(n.kind)
        assert other_device or a.field not in effects, "merged across a side effect on the field"
        assert other_device or not (write and effects), "a write moved over a side effect"


def _called(cdfg: Cdfg, name: str) -> dict[str, list[Node]]:
    """The nodes of all functions that a call may run. Raises AssertionError if one of them is unknown."""
    nodes: dict[str, list[Node]] = {}
    todo = [name]
    while todo:
        callee = todo.pop()
        if callee not in nodes:
            assert callee in cdfg.functions, "merged across an unknown call"
            nodes[callee] = cdfg.functions[callee].nodes
            todo += [n.text for n in nodes[callee] if n.kind == "call"]
    return nodes


def _waits(name: str, called: dict[str, list[Node]]) -> bool:
    """Whether a call of a function may run a loop or a recursion."""
    nodes = ((f, n) for f in called for n in called[f])
    return any(n in _reached(n, n) or (n.kind == "call" and n.text in (f, name)) for f, n in nodes)


def check_layout(layout: Layout) -> None:
    for group in layout.groups.values():
        _check_group(group, layout)


def _check_group(group: GroupLayout, layout: Layout) -> None:
    owners: dict[int, str] = {}
    for r in group.registers:
        used = 0
        for s in r.slots:
            assert s.lsb + s.width <= r.bits, f"{group.group}.{s.name} leaves its register"
            if s.field and layout.method != "fixed":
                assert not used & s.cover, f"{group.group}.{s.name} overlaps"
            used |= s.cover
        assert r.offset % (min(r.bits, layout.bus.width) // 8) == 0 or layout.method == "fixed", (
            f"{r.name} is not aligned"
        )
        if layout.method == "fixed":
            continue
        for i in range(r.count):
            for byte in range(r.offset + i * r.stride, r.offset + i * r.stride + r.bits // 8):
                assert byte not in owners, f"{group.group}: {r.name} and {owners[byte]} share byte {byte}"
                assert byte < group.size
                owners[byte] = r.name
    if layout.method != "fixed":
        for sub in group.subs:
            count = 1
            for n in sub.dims:
                count *= n
            for byte in range(sub.offset, sub.offset + count * sub.stride):
                assert byte not in owners and byte < group.size, f"{group.group}: {sub.name} overlaps"
                owners[byte] = sub.name


def _other_element(a: Access, b: Access) -> bool:
    """Whether two accesses of one array of fields have constant subscripts that differ."""
    first, second = ([s.constant for s in x.chain.steps if not s.member] for x in (a, b))
    depth = len(getattr(a.chain.end, "dims", ()))
    last = zip(first[::-1][:depth], second[::-1][:depth], strict=True)
    return any(None not in (x, y) and x != y for x, y in last)
