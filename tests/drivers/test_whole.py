"""Whole registers in one access, and the words that say what a register does by itself."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver
from edgebuild.driver.registers.regmap import read_rdl
from edgebuild.driver.registers.svd import read_svd
from tests.drivers.cases import svd
from tests.drivers.machine import Bench, build
from tests.drivers.test_proof import verdicts

OWN = """enum Mode { IDLE, RX, TX = 3 };
bfGroup Ctrl { bit en; uint3 reset(5) mode; bit w1c irq; bit s[2]; uint2 bf_enum(Mode) way; };
bfGroup St { bit ro full; bit ro empty; uint4 ro level; };
bfGroup Ch { uint8 v; bit on; };
bfGroup U { bfGroup Ctrl CTRL; bfGroup St ST; uint8 other; uint8 rc count; bit wo go; bfGroup Ch bf_stride(32) ch[4]; };
make_device(U, u, 0x40000000);
make_device(U, u2, 0x40001000);
"""


def trace(b: Bench) -> list[str]:
    return [str(a) for a in b.model.trace]


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_own_layout(tmp_path: Path) -> None:
    source = f"""{OWN}
    void named(int x) {{ u->CTRL = (bfGroup Ctrl){{ .en = 1, .s[1] = x, .way = TX }}; }}
    void nothing(void) {{ u->CTRL = (bfGroup Ctrl){{}}; }}
    void macro(void) {{ bf_write(u->CTRL, .mode = 2); }}
    int state(void) {{ bfGroup St s = u->ST; if (s.full) return s.level * 2 + s.empty; return -1; }}
    void change(int by) {{ bfGroup Ctrl c = u->CTRL; c.en = 0; c.mode += by; c.s[0]++; c.way = RX; u->CTRL = c; }}
    void at(bfGroup Ctrl *p) {{ *p = (bfGroup Ctrl){{ .mode = 1 }}; }}
    void one(int i) {{ u->ch[i] = (bfGroup Ch){{ .on = 1, .v = i }}; }}"""
    b = build(tmp_path, source)
    b.call("named", 1)
    b.call("nothing")
    b.call("macro")
    whole = ["w CTRL_en=1 CTRL_mode=5 CTRL_irq=0 CTRL_s_0=0 CTRL_s_1=1 CTRL_way=3"]
    whole += ["w CTRL_en=0 CTRL_mode=5 CTRL_irq=0 CTRL_s_0=0 CTRL_s_1=0 CTRL_way=0"]
    assert [t.replace("CTRL_CTRL", "CTRL") for t in trace(b)][:2] == whole
    assert "mode=2" in trace(b)[2] and len(trace(b)) == 3
    prefix = "ST_ST_" if "ST_ST_full" in str(b.driver.layout) else "ST_"
    b.model.values.update({f"{prefix}full": 1, f"{prefix}level": 4})
    assert b.call("state") == 8 and len(b.model.trace) == 4
    b.call("change", 1)
    assert [a.kind for a in b.model.trace[4:]] == ["r", "w"]
    assert "mode=3" in trace(b)[-1] and "way=1" in trace(b)[-1] and "s_0=1" in trace(b)[-1]
    b.call("one", 3)
    start = next(s.offset for s in b.driver.layout.groups["U"].subs if s.name == "ch")
    assert b.model.trace[-1].offset == start + 3 * 32 and "on=1" in trace(b)[-1] and "v=3" in trace(b)[-1]
    after = {f["name"]: f["accesses_after"] for f in _report(b)["functions"]}
    assert after == {"named": 1, "nothing": 1, "macro": 1, "state": 1, "change": 2, "at": 1, "one": 1}


def _report(b: Bench) -> dict[str, list[dict[str, object]]]:
    import json

    report: dict[str, list[dict[str, object]]] = json.loads(b.files["case_report.json"])
    return report


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_kinds_go_out(tmp_path: Path) -> None:
    b = build(tmp_path, OWN + "void t(void) { u->other = 1; u2->other = 2; }")
    for name, read in (("case.svd", read_svd), ("case.rdl", read_rdl)):
        (tmp_path / name).write_bytes(b.files[name])
        fields = {f.name: f for r in read(tmp_path / name).blocks[0].registers for f in r.fields}
        by_name = {n.split("_", 1)[-1]: f for n, f in fields.items()}
        assert by_name["irq"].modified == "oneToClear" and by_name["count"].read_action == "clear", name
        assert (by_name["full"].access, by_name["go"].access) == ("r", "w"), name
        assert dict(by_name["way"].values) == {"IDLE": 0, "RX": 1, "TX": 3}, name
    header = b.files["case_regs.h"].decode()
    assert "CASE_U_CTRL_WAY_TX 3u" in header
    assert "hw = rw" in next(x for x in b.files["case.rdl"].decode().splitlines() if "full[" in x)


SVD = svd(
    "BSRR@0: set:0:16:w reset:16:16:w\nDATA@4: dat:0:8 cmd:8:1 stop:9:1\nKR@8: key:0:16:w\n"
    "SR@12: a:0:1:oneToClear b:1:1:oneToClear c:2:1:oneToClear m:4:4\n"
    "RX@16: byte:0:8:r:read-clear last:8:1:r:read-clear"
)
SILICON = """bfGroup Bsrr { uint16 set; uint16 reset; }; bfGroup Data { uint8 dat; bit cmd; bit stop; };
bfGroup Kr { uint16 key; }; bfGroup Sr { bit a; bit b; bit c; uint4 m; }; bfGroup Rx { uint8 byte; bit last; };
bfGroup C { bfGroup Bsrr BSRR; bfGroup Data DATA; bfGroup Kr KR; bfGroup Sr SR; bfGroup Rx RX; };
make_device(C, c, 0x40000000);
"""


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_silicon(tmp_path: Path) -> None:
    (tmp_path / "chip.svd").write_text(SVD)
    source = f"""{SILICON}
    void pins(int s, int r) {{ c->BSRR = (bfGroup Bsrr){{ .set = s, .reset = r }}; }}
    void push(int n) {{ for (int i = 0; i < n; i++) c->DATA = (bfGroup Data){{ .cmd = 1, .stop = i == n - 1 }}; }}
    void keys(void) {{ c->KR = (bfGroup Kr){{ .key = 0x5555 }}; c->KR = (bfGroup Kr){{ .key = 0xAAAA }}; }}
    void clear(void) {{ c->SR = (bfGroup Sr){{ .a = 1, .c = 1, .m = 9 }}; }}
    int pop(void) {{ bfGroup Rx r = c->RX; return r.last * 256 + r.byte; }}"""
    b = build(tmp_path, source, layout=f"fixed:{tmp_path / 'chip.svd'}")
    b.call("pins", 0x12, 0x100)
    b.call("push", 2)
    b.call("keys")
    b.model.values.update(a=1, b=1, c=1, byte=7, last=1)
    b.call("clear")
    assert b.call("pop") == 263
    writes = ["w set=12 reset=100", "w dat=0 cmd=1 stop=0", "w dat=0 cmd=1 stop=1", "w key=5555", "w key=aaaa"]
    assert trace(b) == [*writes, "w a=1 b=0 c=1 m=9", "r byte last"]
    assert [b.model.values[n] for n in "abc"] == [0, 1, 0]


VARIABLES = """bfGroup R { bit a; uint4 b; bit c; }; bfGroup Q { bit a; uint4 b; bit c; };
bfGroup U { bfGroup R X; bfGroup R Y; bfGroup Q Z[4]; }; make_device(U, u, 0x40000000);
int calls; static int next(void) { return calls++; }
void several(void) { bfGroup R s = u->X, t = u->Y; s.b = t.b + 1; u->X = s; }
int wait(void) { bfGroup R s; do { s = u->X; } while (!s.a); return s.b; }
int turns(void) { bfGroup R s; int n = 0; for (s = u->X; s.a; s = u->X) n++; return n; }
void literal(int v) { bfGroup R s = { .a = 1 }; if (v) s.b = v; u->X = s; s = (bfGroup R){ .b = v }; u->X = s; }
void copies(void) { bfGroup R s = u->X, q; q = s; q.a = 1; u->X = q; u->X = s; bfGroup R z = q; u->X = z; }
void shifted(int n) { bfGroup R v = u->X; while (n--) { bfGroup R w = v; w.b++; v = w; u->Y = w; } u->X = v; }
void direct(void) { u->Y = u->X; u->Z[1] = u->Z[next() + 2]; }
"""
VARIABLE_REGISTERS = "X@0: a:0:1 b:4:4 c:9:1\nY@4: b:0:4 a:5:1 c:6:1\n" + "\n".join(
    f"Z{i}@{8 + 4 * i}: a:0:1 b:4:4 c:9:1" for i in range(4)
)
VARIABLES_IN_CPP = re.sub(r"^(void|int) (\w+\()", r'extern "C" \1 \2', VARIABLES, flags=re.MULTILINE)


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("cpp", [False, True], ids=["c", "c++"])
def test_variables_that_hold_a_register(cpp: bool, tmp_path: Path) -> None:
    """Declared before they get a value, copied, made from a literal, and a register that is stored to another one."""
    (tmp_path / "chip.svd").write_text(svd(VARIABLE_REGISTERS))
    source = VARIABLES_IN_CPP if cpp else VARIABLES
    b = build(tmp_path, source, layout=f"fixed:{tmp_path / 'chip.svd'}", cpp=cpp)

    def done(name: str, *arguments: int) -> tuple[int, list[tuple[str, int, int]]]:
        before = len(b.model.trace)
        value = b.call(name, *arguments)
        return value, [(a.kind, a.offset, a.value) for a in b.model.trace[before:]]

    assert done("literal", 6)[1] == [("w", 0, 0x61), ("w", 0, 0x60)]
    assert done("literal", 0)[1] == [("w", 0, 0x01), ("w", 0, 0x00)]
    b.model.values.update(a=1, b=7, c=1)  # of each register
    assert done("several")[1] == [("r", 0, 0x271), ("r", 4, 0x67), ("w", 0, 0x281)]
    b.model.values.update(a=0, b=5, c=1)
    assert done("copies")[1] == [("r", 0, 0x250), ("w", 0, 0x251), ("w", 0, 0x250), ("w", 0, 0x251)]
    assert done("direct")[1] == [("r", 0, 0x251), ("w", 4, 0x65), ("r", 16, 0x251), ("w", 12, 0x251)]
    b.model.values.update(a=1, b=5, c=0)
    assert done("shifted", 2)[1] == [("r", 0, 0x51), ("w", 4, 0x26), ("w", 4, 0x27), ("w", 0, 0x71)]
    b.model.values.update(a=1, b=5, c=1)
    b.model.sequences["a"] = [0, 0, 1, 1, 1, 0]
    assert done("wait") == (5, [("r", 0, 0x250), ("r", 0, 0x250), ("r", 0, 0x251)])
    assert done("turns") == (2, [("r", 0, 0x251), ("r", 0, 0x251), ("r", 0, 0x250)])


BAD = {
    "bfGroup Ctrl c; c.en = x;": "no register is read into or stored from",
    "bfGroup Ctrl c = u->CTRL, *p = &u->CTRL; *p = c;": "'p' holds no register",
    "bfGroup Ctrl c, d; c = d = u->CTRL;": "a group cannot be copied",
    "static bfGroup Ctrl c; u->CTRL = c;": "a group cannot be a variable",
    "bfGroup Ctrl c = { .en = 1 }; x = c.s[2];": "is not in 0..1",
    "bfGroup Ctrl c = u->CTRL; c = u2->ST;": "incompatible type",
    "u->ST = (bfGroup St){ .full = 1 };": "'ST_full' cannot be written",
    "u->CTRL.irq |= 1;": "'irq' is no stored value (oneToClear)",
    "u->ST.full = 1;": "cannot be written",
    "(void)u->go;": "'go' cannot be read",
    "u->CTRL = (bfGroup Ctrl){ 1, 2 };": "name each field",
    "u->CTRL = (bfGroup Ctrl){ .en = 1, .en = 0 };": "'en' is not one field that is free",
    "bfGroup Ctrl c = u->CTRL; c.s[x] = 1;": "the index must be a constant",
    "bfGroup Ctrl c = u->CTRL; use(&c);": "'c' holds a register",
    "bfGroup U whole = *u;": "'U' holds other groups",
}


@pytest.mark.parametrize("body", BAD)
def test_errors(body: str, tmp_path: Path) -> None:
    source = f"{OWN}void use(void *p);\nvoid t(int x) {{ (void)x; {body} }}"
    with pytest.raises(EdgebuildError) as caught:
        build(tmp_path, source)
    assert BAD[body] in str(caught.value) and caught.value.diagnostics[0].line


# A variable holds what was loaded: what cannot be read is neither used nor written back from there.
WRITE_ONLY = """bfGroup Key { bit wo a; uint4 wo b; };
bfGroup Mixed { bit en; bit wo go; };
bfGroup U { bfGroup Key KEY; bfGroup Mixed MIX; };
make_device(U, u, 0x40000000);
"""
BACK = "writes back 'MIX_go', which cannot be read"
READS = {
    "bfGroup Key k = u->KEY; u->KEY = k;": "'KEY_a' cannot be read",
    "bfGroup Key k; k = u->KEY;": "'KEY_a' cannot be read",
    "bfGroup Key k = { .a = 1 }; k.b |= 2; u->KEY = k;": "",
    "bfGroup Mixed m = u->MIX; x = m.en;": "",
    "bfGroup Mixed m = u->MIX; x = m.go;": "'MIX_go' cannot be read",
    "bfGroup Mixed m = u->MIX, n = m; n.go++; u->MIX = n;": "'MIX_go' cannot be read",
    "bfGroup Mixed m = u->MIX; m.en = 1; u->MIX = m;": BACK,
    "bfGroup Mixed m = u->MIX; m.go = 1; m.go |= x; u->MIX = m;": "",
    "bfGroup Mixed m = u->MIX; if (m.en) { m = (bfGroup Mixed){0}; u->MIX = m; }": "",
    "bfGroup Mixed m = u->MIX; if (x) m.go = 1; u->MIX = m;": BACK,
    "bfGroup Mixed m = u->MIX; if (x) m.go = 1; else m.go = 0; u->MIX = m;": "",
    "bfGroup Mixed m = u->MIX; if (x) return; m.go = 1; u->MIX = m;": "",
    "bfGroup Mixed m = u->MIX; if (x) goto end; m.go = 1; end: u->MIX = m;": BACK,
    "bfGroup Mixed m = u->MIX; again: m.go = 1; if (x--) goto again; u->MIX = m;": "",
    "bfGroup Mixed m = u->MIX; while (x--) m.go = 1; u->MIX = m;": BACK,
    "bfGroup Mixed m = u->MIX; do m.go = 1; while (x--); u->MIX = m;": "",
    "bfGroup Mixed m = u->MIX; for (m.go = 1; x--; ) { u->MIX = m; m = u->MIX; }": BACK,
    "bfGroup Mixed m = u->MIX; switch (x) { case 1: m.en = 1; default: m.go = 1; } u->MIX = m;": "",
    "bfGroup Mixed m = u->MIX; switch (x) { case 1: m.go = 1; } u->MIX = m;": BACK,
    "bfGroup Mixed m = u->MIX; switch (x) { case 1: m.go = 1; case 2: u->MIX = m; }": BACK,
    "bfGroup Mixed m = u->MIX; x ? (m.go = 1, 1) : 0; u->MIX = m;": BACK,
    "bfGroup Mixed m = u->MIX; x ? (m.go = 1, 1) : (m.go = 0, 1); u->MIX = m;": "",
    "bfGroup Mixed m = u->MIX; (void)(x && (m.go = 1, 1)); u->MIX = m;": BACK,
    "bfGroup Mixed m = u->MIX, n; if (x) m.go = 1; n = m; u->MIX = n;": BACK,
    "bfGroup Mixed m = u->MIX, n = m; n.go = 1; if (x) m = n; else m = n; u->MIX = m;": "",
    "bfGroup Mixed m = { .en = 1 }; if (x) m = u->MIX; u->MIX = m;": BACK,
    "bfGroup Mixed m; m.en = 1; u->MIX = m; m = u->MIX;": BACK,
    "bfGroup Mixed m = u->MIX; m.go = 1; m = u->MIX; u->MIX = m;": BACK,
    "bfGroup Mixed m = u->MIX; if (x) m.go = 1; if (m.go) u->MIX.en = 1;": "'MIX_go' cannot be read",
    "u->MIX = u->MIX;": BACK,
    "(void)u->KEY;": "'KEY_a' cannot be read",
    "x = bf_raw(u->KEY) & 1;": "'KEY_a' cannot be read",
    "bf_raw(u->KEY) = 1; x = bf_raw(u->MIX);": "",
}


@pytest.mark.parametrize("body", READS)
def test_what_cannot_be_read_is_not_loaded(body: str, tmp_path: Path) -> None:
    numbers = "bf_raw" in body or "(void)" in body
    (tmp_path / "chip.svd").write_text(svd("KEY@0: a:0:1:w b:1:4:w\nMIX@4: en:0:1 go:1:1:w"))
    (tmp_path / "case.bf.c").write_text(f"{WRITE_ONLY}void t(int x) {{ (void)x; {body} }}")
    layout = f"fixed:{tmp_path / 'chip.svd'}" if numbers else "optimize"
    with pytest.raises(EdgebuildError) if READS[body] else nullcontext() as caught:
        compile_driver(DriverRequest((tmp_path / "case.bf.c",), "case", "pulpino", layout))
    assert not caught or READS[body] in str(caught.value)


# Where the description has a harmless value for such a field, a loaded variable has it, whatever the bus read.
HARMLESS = """
void stored(void) { bfGroup Mixed m = u->MIX; m.en = 1; u->MIX = m; }
void on_a_way(int x) { bfGroup Mixed m = u->MIX; if (x) m.go = 1; u->MIX = m; }
void direct(void) { u->MIX = u->MIX; }
int number(void) { return bf_raw(u->MIX); }
"""


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("back", [0, 1])
def test_a_loaded_variable_has_harmless_values(back: int, tmp_path: Path) -> None:
    (tmp_path / "chip.svd").write_text(svd("KEY@0: a:0:1:w b:1:4:w\nMIX@4: en:0:1 go:1:1:w"))
    (tmp_path / "chip.overlay.yaml").write_text(
        f'fields:\n  C.MIX.go: {{back: "{back}"}}\n  C.MIX.en: {{plain: true}}\n'
    )
    layout = f"fixed:{tmp_path / 'chip.svd'}"
    b = build(tmp_path, WRITE_ONLY + HARMLESS, layout=layout)
    for call in (("stored",), ("on_a_way", 0), ("on_a_way", 1), ("direct",)):
        b.model.values.update(en=0, go=1 - back)  # a read finds the other value
        b.call(*call)
        assert b.model.trace[-1].value >> 1 == (1 if call[1:] == (1,) else back), call
    (tmp_path / "case.bf.c").write_text(WRITE_ONLY + HARMLESS)
    artifacts, driver = compile_driver(DriverRequest((tmp_path / "case.bf.c",), "case", "pulpino", layout))
    assert [v.what for v in verdicts((driver, artifacts))] == ["proved"] * 4
    as_read = [replace(a, data=re.sub(rb"return \(r & \w+\) \| \w+;", b"return r;", a.data)) for a in artifacts]
    assert [v.what for v in verdicts((driver, as_read))] == [*["refuted"] * 3, "proved"]


@pytest.mark.parametrize(
    ("field", "error"),
    [
        (
            "z:1:1:w",
            "writes back 'z', which cannot be read; if that is not so, the overlay says 'C.MIX.z: {back: \"0\"}'",
        ),
        ("z:1:1:modify", "writes back 'z', and no value is harmless there"),
        ("z:1:1:oneToClear", ""),
        ("z:1:1", ""),
    ],
)
def test_a_store_of_a_variable_looks_at_what_only_the_silicon_has(field: str, error: str, tmp_path: Path) -> None:
    (tmp_path / "chip.svd").write_text(svd(f"MIX@4: en:0:1 {field}"))
    source = (
        "bfGroup Mixed { bit en; };\nbfGroup U { bfGroup Mixed MIX; };\nmake_device(U, u, 0x40000000);\nvoid t(int x) "
    )
    for body, wrong in (
        ("{ bfGroup Mixed m = u->MIX; m.en = 1; u->MIX = m; }", error),
        ("{ bfGroup Mixed m = { .en = 1 }; if (x) m = u->MIX; u->MIX = m; }", error),
        ("{ bfGroup Mixed m = { .en = 1 }; m.en ^= x; u->MIX = m; }", ""),
    ):
        (tmp_path / "case.bf.c").write_text(source + body)
        with pytest.raises(EdgebuildError) if wrong else nullcontext() as caught:
            compile_driver(
                DriverRequest((tmp_path / "case.bf.c",), "case", "pulpino", f"fixed:{tmp_path / 'chip.svd'}")
            )
        assert not caught or wrong in str(caught.value)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("bit ro w1c x;", "cannot be written, and says what a write does"),
        ("bit wo rc x;", "cannot be read, and says what a read does"),
        ("bit ro wo x;", "contradicts"),
        ("uint2 reset(7) x;", "does not fit into the 2 bits"),
        ("bit bf_enum(Nothing) x;", "no enum 'Nothing'"),
        ("bit bf_stride(4) x;", "is no array"),
    ],
)
def test_kinds_that_contradict(field: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(EdgebuildError, match=expected):
        build(tmp_path, f"bfGroup G {{ {field} }};\nmake_device(G, g, 0x40000000);\nvoid t(void) {{ }}")


def test_svd_that_contradicts_itself(tmp_path: Path) -> None:
    (tmp_path / "chip.svd").write_text(svd("R@0: a:0:1:r:oneToClear"))
    with pytest.raises(EdgebuildError, match="is read-only, and has modifiedWriteValues"):
        build(
            tmp_path,
            "bfGroup C { bit a; };\nmake_device(C, c, 0x40000000);\nint t(void) { return c->a; }",
            layout=f"fixed:{tmp_path / 'chip.svd'}",
        )


@pytest.mark.parametrize("name", ["a.bf.c", "a.bf.cpp"])
def test_a_group_in_a_struct(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(
        "bfGroup G { bit x; }; make_device(G, g, 0x40000000);\nstruct S { struct G shadow; };\n"
    )
    with pytest.raises(EdgebuildError, match="2:21: error: 'shadow': a group is no member of a struct"):
        compile_driver(DriverRequest((tmp_path / name,), "n", "pulpino"))
