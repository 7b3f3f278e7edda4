"""The CDFG of a function while it grows: nodes, accesses, and the pieces of text that will be replaced."""

from __future__ import annotations

from clang.cindex import Cursor, CursorKind, Type, TypeKind

from edgebuild.driver.analysis.cdfg import Access, Chain, Node, Site, link
from edgebuild.driver.analysis.chains import CHAINS, Chains
from edgebuild.driver.analysis.keys import Keys, Limits
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect, Field

K = CursorKind


class Recorder:
    """Grows the graph of one function, and notes its accesses and the text that they stand in.

    The classes on top of it stand in the order of need: whole registers, C's expressions, those of C++, statements. A
    handler is the method of a cursor's kind. Each evaluates its operands through `expression` and knows no class above
    its own.
    """

    def __init__(self, function: Cursor, unit: clang.Unit, dialect: Dialect) -> None:
        self.function, self.unit, self.dialect = function, unit, dialect
        self.chains = Chains(unit, dialect)
        self.keys = Keys(dialect, self.chains, function)
        self.limits = Limits(unit, dialect, self.chains)
        self.exit = Node("exit")
        self.nodes: list[Node] = []
        self.current: Node | None = None
        self.entry = self.node("entry")
        self.accesses: list[Access] = []
        self.sites: list[Site] = []
        self.pointers: list[str] = []
        self.fulls: dict[int, tuple[int, int] | None] = {}
        self.starts: dict[int, Node] = {}
        self.addressed: set[str] = set()
        self.depth = 0  # of full expressions inside of each other (statement expressions)
        self.path: tuple[tuple[str, int], ...] = ()
        self.statements = 0

    # ---- the graph

    def node(self, kind: str, at: Cursor | None = None, text: str = "", floating: bool = False) -> Node:
        """A new node; it follows the current one unless it is `floating`."""
        node = Node(kind, clang.place(at.extent.start) if at is not None else None, text=text)
        self.nodes.append(node)
        if not floating:
            if self.current:
                link(self.current, node)
            self.current = node
        return node

    def join(self, *ends: Node | None) -> Node:
        """A node after all of `ends`, or after the current one; it becomes the current one."""
        node = self.node("join", floating=True)
        for end in ends or (self.current,):
            if end:
                link(end, node)
        self.current = node
        return node

    def goto(self, target: Node) -> None:
        if self.current:
            link(self.current, target)
        self.current = None

    # ---- expressions

    def expression(self, c: Cursor, used: bool = True) -> None:
        """Evaluate it by its handler, the method `e_` and the name of its kind; without one, its operands in order."""
        kind = c.kind
        chain = self.chains.read(c) if kind in CHAINS else None
        if chain:
            self.read_chain(c, chain)
            return
        handler = getattr(self, clang.method("e", kind), None)
        if handler:
            handler(c, used)
        elif kind.is_expression() or kind.is_reference() or kind.is_declaration():
            self.operands([x for x in clang.children(c) if clang.is_expression(x)], "u")
            self.check_volatile(c)
        else:
            raise clang.error_at(
                c, self.unit.text, f"this expression ({c.kind.name.lower()}) is not supported in a driver"
            )

    def operands(self, cursors: list[Cursor], sequencing: str, used: bool = True) -> None:
        outer = self.path
        for i, c in enumerate(cursors):
            self.path = (*outer, (sequencing, i))
            self.expression(c, used)
        self.path = outer

    def check_volatile(self, c: Cursor) -> None:
        if clang.is_volatile(c.type):
            self.node("barrier", at=c, text="a volatile access")

    # ---- chains

    def read_chain(self, c: Cursor, chain: Chain) -> None:
        """A chain whose value is wanted."""
        if chain.is_field and chain.missing:
            raise clang.error_at(c, self.unit.text, f"an array of bit fields has no address: '{chain.end_name}'")
        if chain.is_field:
            site = self.site("read", c, c)
            self.evaluate_chain(chain)
            site.read = self.access("r", chain, site)
        elif chain.missing:
            self.evaluate_chain(chain)
            self.escaped(chain)
        else:
            raise clang.error_at(c, self.unit.text, f"a group is not a value: '{chain.group}'", "  use a pointer to it")

    def evaluate_chain(self, chain: Chain) -> None:
        outer = self.path
        root = clang.bare(chain.root)
        if not chain.device:
            self.path = (*outer, ("u", 0))
            if root.kind == K.ARRAY_SUBSCRIPT_EXPR:
                self.operands(clang.children(root), "u")
            elif root.kind == K.UNARY_OPERATOR and clang.unary(root) == "*":
                self.expression(clang.children(root)[0])
            else:
                self.expression(chain.root)
        for i, step in enumerate(chain.steps):
            if step.index is not None:
                self.path = (*outer, ("u", i + 1))
                self.expression(step.index)
        self.path = outer

    def access(self, kind: str, chain: Chain, site: Site) -> Access:
        key, variables = self.keys.key(chain)
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
        self, form: str, c: Cursor, left: Cursor, operator: str = "", right: Cursor | None = None, used: bool = True
    ) -> Site:
        site = Site(form, clang.span(c), left, operator, right, used)
        self.sites.append(site)
        return site

    def unevaluated(self, c: Cursor) -> None:
        """sizeof, typeof, _Generic: the expression has a type but is no access."""
        chain = self.chains.read(c) if c.kind in (K.MEMBER_REF_EXPR, K.ARRAY_SUBSCRIPT_EXPR) else None
        if chain and chain.is_field:
            site = self.site("unevaluated", c, c)
            site.type = _pointer_to(c.type.get_canonical())
            return
        for x in clang.children(c):
            self.unevaluated(x)


def _pointer_to(type_: Type) -> str:
    """C for the type of a pointer."""
    dims = ""
    while type_.kind == TypeKind.CONSTANTARRAY:
        dims, type_ = f"{dims}[{type_.element_count}]", type_.element_type
    return f"{type_.spelling} (*){dims}" if dims else f"{type_.spelling} *"
