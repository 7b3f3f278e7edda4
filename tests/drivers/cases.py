# ruff: noqa: E501  (C on one line reads better here)
"""The adversarial cases: what a careless generator gets wrong.

Each has a driver, calls with their results, and the accesses that must cross the bus, in order: `r f g` reads the
register of f and g, `w f=1 g=0` writes it (values in hex). The trace is the expectation of what merges and what does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HEAD = """bfGroup G {
    bit a; bit b; uint3 c; uint8 d; uint16 h; uint32 w; uint64 big;
    bit rse(self) s; uint8 rse(self) data; uint8 rse(self) count;
    bit wse(self) go; uint8 wse(self) fifo; bit wse(d) bank; uint8 rse(d) pop;
    uint8 e[8]; uint8 f[8];
};
make_device(G, r, 0x40000000);
"""
PADS = """bfGroup Pad { bit x; bit y; uint3 z; };
bfGroup Io { bfGroup Pad pads[4]; uint8 n; };
make_device(Io, io, 0x40000000);
make_device(Io, io2, 0x40001000);
"""
FIXED = """bfGroup C { bit en; bit irq; bit irq0; bit busy; uint4 mode; uint8 rx; uint8 key; bit any; bit cfg; bit start; };
make_device(C, c, 0x40000000);
"""


@dataclass(frozen=True)
class Case:
    number: int
    title: str
    source: str
    calls: tuple[tuple[object, ...], ...] = ()  # (function, arguments..., result); None: no result
    trace: tuple[str, ...] = ()
    target: str = "pulpino"
    extra: str = ""
    registers: str = ""  # a fixed layout, see `svd`
    overlay: str = ""
    values: dict[str, int] = field(default_factory=dict)
    sequences: dict[str, tuple[int, ...]] = field(default_factory=dict)
    error: str = ""
    warning: str = ""
    headers: dict[str, str] = field(default_factory=dict)


def svd(registers: str) -> str:
    """`NAME@offset: field:lsb:width[:what]...` per line; what: r, w, or a word of modifiedWriteValues, or read-clear."""
    out = []
    for line in registers.strip().splitlines():
        head, _, rest = line.strip().partition(":")
        name, offset = head.split("@")
        fields = []
        for word in rest.split():
            f, lsb, width, *what = word.split(":")
            text = f"<name>{f}</name><bitOffset>{lsb}</bitOffset><bitWidth>{width}</bitWidth>"
            for w in what:
                text += {
                    "r": "<access>read-only</access>",
                    "w": "<access>write-only</access>",
                    "read-clear": "<readAction>clear</readAction>",
                }.get(w, f"<modifiedWriteValues>{w}</modifiedWriteValues>")
            fields.append(f"<field>{text}</field>")
        out.append(
            f"<register><name>{name}</name><addressOffset>{offset}</addressOffset><fields>{''.join(fields)}</fields></register>"
        )
    return (
        "<device><name>X</name><peripherals><peripheral><name>C</name><baseAddress>0x40000000</baseAddress><registers>"
        + "".join(out)
        + "</registers></peripheral></peripherals></device>"
    )


PLAIN = 'fields: {"C.*.en": {plain: true}, "C.*.mode": {plain: true}, "C.*.cfg": {plain: true}}'

FIRST = [
    Case(1, "write f, then read f", HEAD + "int t(int v) { r->c = v; return r->c; }", (("t", 5, 5),), ("w c=5", "r c")),
    Case(
        2,
        "read f, then write f",
        HEAD + "int t(int v) { int x = r->c; r->c = v; return x; }",
        (("t", 5, 2),),
        ("r c", "w c=5"),
        values={"c": 2},
    ),
    Case(3, "write f twice, plain", HEAD + "void t(int v) { r->c = v; r->c = v + 1; }", (("t", 5, None),), ("w c=6",)),
    Case(
        4,
        "write f twice, wse",
        HEAD + "void t(int v) { r->fifo = v; r->fifo = v + 1; }",
        (("t", 5, None),),
        ("w fifo=5", "w fifo=6"),
    ),
    Case(
        5,
        "two reads of plain f",
        HEAD + "int t(void) { int x = r->c; return x * 10 + r->c; }",
        (("t", 33),),
        ("r c",),
        values={"c": 3},
    ),
    Case(
        6,
        "two reads of rse(self) f",
        HEAD + "int t(void) { int x = r->data; return x * 10 + r->data; }",
        (("t", 78),),
        ("r data", "r data"),
        sequences={"data": (7, 8)},
    ),
    Case(
        7,
        "write g (wse f), read f",
        HEAD + "int t(void) { int x = r->d; r->bank = 1; return x * 10 + r->d; }",
        (("t", 11),),
        ("r d", "w bank=1", "r d"),
        values={"d": 1},
    ),
    Case(
        8,
        "configure, then start bit of the same register",
        FIXED + "void t(void) { c->mode = 5; c->cfg = 1; c->start = 1; }",
        (("t", None),),
        ("r en mode cfg start", "w en=0 mode=5 cfg=1 start=0", "r en mode cfg start", "w en=0 mode=5 cfg=1 start=1"),
        registers="R@0: en:0:1 mode:4:4 cfg:8:1 start:9:1\nS@4: rx:0:8 key:8:8 busy:16:1 irq:17:1 irq0:18:1 any:19:1",
        overlay='fields: {"C.R.[!s]*": {plain: true}, "C.R.start": {back: "0", wse: [self], volatile: false}}',
    ),
    Case(
        9,
        "configure in other registers, then start",
        HEAD + "void t(void) { r->c = 3; r->w = 9; r->go = 1; r->c = 4; }",
        (("t", None),),
        ("w c=3", "w w=9", "w go=1", "w c=4"),
    ),
    Case(
        10,
        "write-one-to-clear neighbour",
        FIXED + "void t(void) { c->en = 1; }",
        (("t", None),),
        ("w en=1 irq=0",),
        registers="R@0: en:0:1 irq:1:1:oneToClear\nS@4: irq0:0:1 busy:1:1 mode:4:4 rx:8:8 key:16:8"
        " any:24:1 cfg:25:1 start:26:1",
        overlay=PLAIN,
        values={"irq": 1},
    ),
    Case(
        11,
        "write-zero-to-clear neighbour",
        FIXED + "void t(void) { c->en = 1; }",
        (("t", None),),
        ("w en=1 irq0=1",),
        registers="R@0: en:0:1 irq0:1:1:zeroToClear\nS@4: irq:0:1 busy:1:1 mode:4:4 rx:8:8"
        " key:16:8 any:24:1 cfg:25:1 start:26:1",
        overlay=PLAIN,
        values={"irq0": 1},
    ),
    Case(
        12,
        "clear-on-any-write neighbour",
        FIXED + "void t(void) { c->en = 1; }",
        registers="R@0: en:0:1 any:1:1:clear\n"
        "S@4: irq:0:1 irq0:2:1 busy:1:1 mode:4:4 rx:8:8 key:16:8 cfg:25:1 start:26:1",
        overlay=PLAIN,
        error="no value is harmless",
    ),
    Case(
        13,
        "read-to-clear neighbour",
        FIXED + "void t(void) { c->en = 1; }",
        registers="R@0: en:0:1 rx:8:8:read-clear mode:1:4\n"
        "S@4: irq:0:1 irq0:2:1 busy:1:1 any:4:1 key:16:8 cfg:25:1 start:26:1",
        overlay=PLAIN,
        error="has a side effect",
    ),
    Case(
        14,
        "read view differs from the write view",
        FIXED + "void t(void) { c->mode = 1; }",
        registers="CMD@0: mode:0:4:w cfg:4:1:w\n"
        "STAT@0: busy:0:1:r rx:8:8:r\nS@4: en:0:1 irq:1:1 irq0:2:1 any:4:1 key:16:8 start:26:1",
        overlay=PLAIN,
        error="cannot be read",
    ),
    Case(
        15,
        "write-only neighbour",
        FIXED + "void t(void) { c->cfg = 1; c->mode = 7; }\nvoid u(void) { c->en = 1; }",
        (("t", None), ("u", None)),
        ("w mode=7 cfg=1", "w en=1 busy=0"),
        registers="R@0: mode:0:4:w cfg:4:1:w\nS@4: en:0:1 busy:1:1:w\nT@8: irq:1:1 irq0:2:1 any:4:1 key:16:8 start:26:1 rx:8:8",
        overlay='fields: {"C.*.en": {plain: true}, "C.*.mode": {plain: true}, "C.*.cfg": {plain: true}, "C.S.busy": {back: "0"}}',
    ),
    Case(
        16,
        "reserved bits are kept",
        FIXED + "void t(void) { c->en = 1; }",
        (("t", None),),
        ("r en cfg res", "w en=1 cfg=0 res=2a"),
        registers="R@0: en:0:1 cfg:1:1 res:8:8\nT@8: irq:1:1 irq0:2:1 any:4:1 key:16:8 start:26:1 rx:8:8 busy:0:1 mode:28:4",
        overlay=PLAIN,
        values={"res": 0x2A},
    ),
    Case(
        17,
        "pops stay, used or not",
        HEAD + "int t(void) { int x = r->data; (void)r->data; r->data; return x * 10 + r->data; }",
        (("t", 14),),
        ("r data",) * 4,
        sequences={"data": (1, 2, 3, 4)},
    ),
    Case(
        18,
        "count before pop",
        HEAD + "int t(void) { int n = r->d; int x = r->pop; return n * 100 + x * 10 + r->d; }",
        (("t", 371),),
        ("r d", "r pop", "r d"),
        sequences={"d": (3, 1), "pop": (7,)},
    ),
    Case(
        19,
        "poll loop",
        HEAD + "int t(void) { int n = 0; while (!r->s) n++; return n; }",
        (("t", 2),),
        ("r s",) * 3,
        sequences={"s": (0, 0, 1)},
    ),
    Case(
        20,
        "poll one field, then use its neighbour",
        HEAD + "int t(void) { while (!r->a) ; return r->d; }",
        (("t", 5),),
        ("r a d", "r a d"),
        sequences={"a": (0, 1), "d": (4, 5, 6)},
    ),
    Case(
        21,
        "no reuse over iterations",
        HEAD + "int t(void) { int x = 0; for (int i = 0; i < 2; i++) { x = x * 10 + r->c; r->c = i + 5; } return x; }",
        (("t", 15),),
        ("r c", "w c=5", "r c", "w c=6"),
        values={"c": 1},
    ),
    Case(
        22,
        "invariant read in a loop with a call",
        HEAD + "extern void hook(void); int t(void) { int x = 0;"
        " for (int i = 0; i < 2; i++) { x = x * 10 + r->c; hook(); } return x; }",
        (("t", 34),),
        ("r c", "r c"),
        extra="void hook(void) {}",
        sequences={"c": (3, 4)},
    ),
    Case(
        23,
        "return between two writes",
        FIXED + "void t(int v) { c->en = 1; if (v) return; c->cfg = 1; }\nvoid u(void) { c->en = 0; c->cfg = 1; }",
        (("u", None), ("t", 1, None)),
        ("w en=0 cfg=1", "r en cfg", "w en=1 cfg=1"),
        registers="R@0: en:0:1 cfg:1:1\nT@8: irq:1:1 irq0:2:1 any:4:1 key:16:8 start:26:1 rx:8:8 busy:0:1 mode:28:4",
        overlay=PLAIN,
    ),
    Case(
        24,
        "&& reads its right side only if",
        HEAD + "int t(void) { return r->a && r->s; }",
        (("t", 0), ("t", 1)),
        ("r a", "r a", "r s"),
        sequences={"a": (0, 1), "s": (1,)},
    ),
    Case(
        25,
        "|| writes only if",
        HEAD + "int t(void) { return r->a || (r->b = 1); }",
        (("t", 1), ("t", 1)),
        ("r a", "r a", "w b=1"),
        sequences={"a": (1, 0)},
    ),
    Case(
        26,
        "one arm of ?:",
        HEAD + "int t(int v) { return v ? r->data : r->count; }",
        (("t", 0, 9), ("t", 1, 8)),
        ("r count", "r data"),
        values={"data": 8, "count": 9},
    ),
    Case(
        27,
        "comma: left first, both kept",
        HEAD + "int t(void) { return (r->data, r->count); }",
        (("t", 9),),
        ("r data", "r count"),
        values={"data": 8, "count": 9},
    ),
    Case(
        28, "value of an assignment", HEAD + "int t(int v) { int x = r->c = v; return x; }", (("t", 13, 5),), ("w c=5",)
    ),
    Case(
        29,
        "truncated to 0",
        HEAD + "int t(void) { int v = 8; if ((r->c = v)) return 1; return 2; }",
        (("t", 2),),
        ("w c=0",),
    ),
    Case(
        30,
        "wrap around",
        HEAD + "int t(void) { int x = r->c++; x = x * 10 + r->c--; r->c += 9; r->c = ~r->c; return x; }",
        (("t", 70),),
        ("r c", "w c=0", "r c", "w c=7", "r c", "w c=0", "r c", "w c=7"),
        values={"c": 7},
    ),
    Case(
        31,
        "too large a value in a merged write",
        HEAD + "void t(int v) { r->a = v; r->c = v; r->b = v; }",
        (("t", 0xFE, None),),
        ("w a=0 b=0 c=6",),
    ),
    Case(32, "negative value", HEAD + "int t(void) { r->c = -1; return r->c > 0; }", (("t", 1),), ("w c=7", "r c")),
]
