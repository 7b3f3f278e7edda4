"""The CDFG of a function while it grows: nodes, accesses, and the pieces of text that will be replaced."""

from __future__ import annotations

from dataclasses import field

from edgebuild.base.dataclass import dataclass
from edgebuild.driver.analysis.cdfg import Access, Chain, Node, Site, link
from edgebuild.driver.analysis.chains import Chains
from edgebuild.driver.source.dialect import Field
from edgebuild.driver.source.ir import Declared, Expression, Span, Variable
from edgebuild.driver.source.ir import Node as Piece

Path = tuple[tuple[str, int], ...]


@dataclass
class Recorder:
    """The graph of one function so far. `path`: the place of an expression in its full expression."""

    chains: Chains
    nodes: list[Node] = field(default_factory=list)
    current: Node | None = None
    exit: Node = field(default_factory=lambda: Node("exit"))
    accesses: list[Access] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    pointers: list[str] = field(default_factory=list)
    fulls: dict[int, Span | None] = field(default_factory=dict)
    starts: dict[int, Node] = field(default_factory=dict)
    path: Path = ()

    def node(self, kind: str, at: Piece | Variable | None = None, text: str = "") -> Node:
        """A new node behind the current one."""
        before, node = self.current, self.floating(kind, at, text)
        if before:
            link(before, node)
        self.current = node
        return node

    def floating(self, kind: str = "join", at: Piece | Variable | None = None, text: str = "") -> Node:
        """A new node that nothing leads to yet."""
        node = Node(kind, at.where if at is not None else None, text=text)
        self.nodes.append(node)
        return node

    def join(self, *ends: Node | None) -> Node:
        """A node after all of `ends`, or after the current one; it becomes the current one."""
        node = self.floating()
        for end in ends or (self.current,):
            if end:
                link(end, node)
        self.current = node
        return node

    def goto(self, target: Node) -> None:
        if self.current:
            link(self.current, target)
        self.current = None

    def start(self, extent: Span | None) -> None:
        """A full expression begins. `extent`: its text; None where nothing can be put in front of it."""
        number = len(self.fulls) + 1
        self.path = ()
        self.fulls[number] = extent
        self.starts[number] = self.node("start", text=str(number))

    def access(self, kind: str, chain: Chain, site: Site) -> Access:
        key, variables = self.chains.key(chain)
        assert isinstance(chain.end, Field)
        node = self.node("access", at=site.left, text=kind)
        assert node.where is not None
        access = Access(kind, chain.end.id, chain, key, variables, node.where, site, node, len(self.fulls), self.path)
        node.access = access
        self.accesses.append(access)
        return access

    def escaped(self, chain: Chain) -> None:
        """A pointer to a group inside of another is made; `simplify` keeps the group then."""
        self.pointers += [chain.group, *([] if chain.device else [chain.prefixes[0].group])]

    def site(
        self,
        form: str,
        c: Expression | Declared,
        left: Expression | Declared,
        operator: str = "",
        right: Expression | None = None,
        used: bool = True,
    ) -> Site:
        site = Site(form, c.span, left, operator, right, used)
        self.sites.append(site)
        return site
