"""Products: the headers and descriptions, diagnostics, and what a bench must not lose."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest, driver_outputs
from edgebuild.driver.emit import products
from edgebuild.driver.emit.products import register_map
from edgebuild.driver.pipeline import analyse, compile_driver
from edgebuild.driver.registers.regmap import read_rdl
from edgebuild.driver.registers.svd import read_svd
from tests import bench_drivers
from tests.conftest import run
from tests.drivers import fixed7, large
from tests.drivers.cases import svd
from tests.drivers.machine import build
from tests.drivers.scenarios import GPIO, SPI
from tests.drivers.test_layout import make


@pytest.mark.parametrize("target", ["pulpino", "riscv-virt"])
def test_descriptions_say_what_the_header_says(target: str, tmp_path: Path) -> None:
    for source in (GPIO, SPI):
        artifacts, driver = compile_driver(DriverRequest((source,), "n", target))
        files = {a.name: a.data.decode() for a in artifacts}
        assert tuple(files) == driver_outputs("n")
        for name in ("n.svd", "n.rdl"):
            (tmp_path / name).write_text(files[name])
        svd_map, rdl_map = read_svd(tmp_path / "n.svd"), read_rdl(tmp_path / "n.rdl")
        header = dict(re.findall(r"#define (\w+) (0x[0-9A-F]+|\d+)u", files["n_regs.h"]))
        for device, block, other in zip(driver.dialect.devices.values(), svd_map.blocks, rdl_map.blocks, strict=True):
            assert int(header[f"N_{device.name.upper()}_BASE"], 0) == block.base == other.base
            places = [
                {(r.offset, f.lsb, f.width, f.name) for r in b.registers for f in r.fields} for b in (block, other)
            ]
            assert places[0] == places[1]
            group = driver.layout.groups[device.group]
            for r in group.registers:
                for s in r.slots:
                    word = f"N_{device.group}_{s.name}".upper()
                    assert (
                        int(header[f"{word}_OFFSET"], 0),
                        int(header[f"{word}_SHIFT"]),
                        int(header[f"{word}_WIDTH"]),
                        s.name,
                    ) in places[0]
            names = re.findall(r'{"(\w+)", 0x', files["n_systemc.h"])
            fields = {n.split("_", 2)[-1] if n.startswith("pads_") else n for n in names}
            assert {n for *_, n in places[0]} <= fields | {re.sub(r"_\d+$", "", n) for n in fields}


SIGNED = """#include "edgebuild_bf.h"
bfGroup P { uint3 m; uint8 n; };
bfGroup G { uint4 a; uint8 e[4][2]; uint32 rse(self) w; uint32 big; bit x; bit y; bfGroup P p[4]; };
make_device(G, g, 0x40000000);
int next(int v);
void values(int i, int v) { g->a = v; g->e[i][v] = next(v); g->big = -1; g->x = v; g->y = v < 3; }
void changes(int i, int v) { g->a += v; g->e[i][1] -= v; --g->a; g->p[i].m++; g->big = ~v; }
int both(int i) { bfGroup G *at = g; at->p[next(i)].n = i; return g->p[i].m + g->e[i][i]; }
int old(void) { int before = g->a++; return before; }
"""
CONVERSIONS = ["-O1", "-ffreestanding", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Werror"]
COMPILERS = [
    "arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb", "clang --target=arm-none-eabi -mcpu=cortex-m4 -mthumb",
    "riscv64-unknown-elf-gcc -march=rv32imac -mabi=ilp32", "clang --target=riscv32 -march=rv32imac -mabi=ilp32",
]  # fmt: skip


@pytest.mark.needs("arm-none-eabi-gcc", "riscv64-unknown-elf-gcc", "clang")
def test_no_conversion_of_ours_is_warned_of(tmp_path: Path) -> None:
    """Indexes and values with a sign come to parameters without one."""
    (signed := tmp_path / "signed.bf.c").write_text(SIGNED)
    for name, source in (("gpio", GPIO), ("spi", SPI), ("signed", signed)):
        for artifact in compile_driver(DriverRequest((source,), name, "pulpino"))[0]:
            (tmp_path / artifact.name).write_bytes(artifact.data)
        for compiler in COMPILERS:
            headers = ["-I", str(GPIO.parent)]
            run(*compiler.split(), *CONVERSIONS, *headers, "-c", f"{name}.c", "-o", "n.o", cwd=tmp_path)


@pytest.mark.needs("g++")
def test_systemc_header_compiles_alone(tmp_path: Path) -> None:
    for name, source in (("gpio", GPIO), ("spi", SPI)):
        artifacts, _ = compile_driver(DriverRequest((source,), name, "pulpino"))
        (tmp_path / f"{name}_systemc.h").write_bytes(next(a.data for a in artifacts if a.name.endswith("_systemc.h")))
    (tmp_path / "x.cpp").write_text(
        '#include "gpio_systemc.h"\n#include "spi_systemc.h"\n'
        "static_assert(gpio_regs::gpio_device::fields[gpio_regs::gpio_device::pads_31_out_index].lsb == 0);\n"
        "int main() { return int(spi_regs::spi_device::field_count) - 21; }\n"
    )
    run("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "x.cpp", "-o", "x", cwd=tmp_path)
    run(tmp_path / "x")


def test_same_bytes_from_any_folder(tmp_path: Path) -> None:
    outputs = []
    for folder in (tmp_path / "a", tmp_path / "much" / "deeper"):
        folder.mkdir(parents=True)
        for file in (GPIO, GPIO.with_name("pulpino_gpio.bf.h"), GPIO.with_name("pulpino_gpio.h")):
            (folder / file.name).write_text(file.read_text())
        outputs.append([a.data for a in compile_driver(DriverRequest((folder / GPIO.name,), "n", "pulpino"))[0]])
        assert not any(str(tmp_path).encode() in data for data in outputs[-1])
    assert outputs[0] == outputs[1]


def test_lines_stay_where_they_are(tmp_path: Path) -> None:
    file = tmp_path / "x.c"
    file.write_text(
        "bfGroup G {\n    bit a;\n    bit b;\n};\nmake_device(G, g,\n            0x40000000);\nvoid t(void)\n{\n"
        "    g->a = /* here */\n        1;\n    g->b = 0; // there\n}\nint after;\n"
    )
    artifacts, _ = compile_driver(DriverRequest((file,), "x", "pulpino"))
    lines = artifacts[0].data.decode().split("#line 1 EB_FILE_x_c\n")[1].splitlines()
    original = file.read_text().splitlines()
    assert lines.index("int after;") == original.index("int after;")
    assert "// there" in lines[10] and len(lines) == len(original)


def test_report_says_why(tmp_path: Path) -> None:
    file = tmp_path / "x.c"
    file.write_text(
        "bfGroup G { bit a; bit b; };\nmake_device(G, g, 0x40000000);\nextern void delay(void);\n"
        "void t(void) { g->a = 1; delay(); g->b = 1; }\nvoid u(void) { g->a = 1; g->b = 0; }\n"
    )
    artifacts, _ = compile_driver(DriverRequest((file,), "x", "pulpino"))
    report = json.loads(next(a.data for a in artifacts if a.name == "x_report.json"))
    assert [k for k in report["kept_apart"] if "delay()" in k["why"] and k["where"].startswith("x.c:4")]
    assert [f["name"] for f in report["functions"]] == ["t", "u"]


WRONG = {
    "syntax": ("int f( { }", "1:8: error: expected parameter declarator"),
    "rse": ("bfGroup G { bit rse(b) a; };", "1:21: error: rse target 'b' is not a field of group 'G'"),
    "wse group": ("bfGroup G { bit wse(Q::b) a; };", "no group 'Q'"),
    "cyclic": ("bfGroup G { bfGroup G g; };", "1:23: error: field has incomplete type 'struct G'"),
    "one address": (
        "bfGroup G { bit a; };\nmake_device(G, x, 0x1000);\nmake_device(G, y, 0x1000);",
        "3:1: error: device 'y' is at 0x1000",
    ),
    "address": (
        "bfGroup G { bit a; };\nmake_device(G, x, 0x1000);\nvoid *p(void) { return &x->a; }",
        "3:24: error: a bit field has no address",
    ),
    "copy": (
        "bfGroup H { bit a; };\nbfGroup G { bfGroup H h; };\nvoid p(bfGroup G *x, bfGroup G *y) { *x = *y; }",
        "3:38: error: 'G' holds other groups",
    ),
    "by value": (
        "bfGroup G { bit a; };\nvoid p(bfGroup G x) { x.a = 1; }",
        "cannot be a variable or be passed by value",
    ),
    "type": ("bfGroup G { float a; };", "1:19: error: 'float' is not a type of a bit field"),
    "goto": ("void p(void) { void *q = &&l; goto *q; l:; }", "the address of a label is not supported"),
    "asm": (
        'bfGroup G { bit a; };\nmake_device(G, x, 0x1000);\nvoid p(void) { __asm__("" :: "r"(x)); }',
        "cannot use a group",
    ),
    "cast": ("bfGroup G { bit a; };\nmake_device(G, x, 0x1000);\nint p(void) { return *(int *)x; }", "this cast takes"),
    "index": (
        "bfGroup G { bit a[4]; };\nmake_device(G, x, 0x1000);\nint p(void) { return x->a[4]; }",
        "index 4 of 'a' is not in 0..3",
    ),
    "group behind the last": (
        "bfGroup G { bit a; }; bfGroup D { bfGroup G g[4]; };\nmake_device(D, d, 8);\nint p() { return d->g[4].a; }",
        "3:23: error: index 4 of 'g' is not in 0..3",
    ),
    "array": ("bfGroup G { bit a[4]; };\nmake_device(G, x, 0x1000);\nvoid *p(void) { return x->a; }", "has no address"),
    "variable length": ("bfGroup G { bit a; };\nvoid p(int n) { bfGroup G v[n]; v[0].a = 1; }", "cannot be a variable"),
    "union": (
        "bfGroup G { bit a; };\nunion U { bfGroup G *g; int *words; };\nvoid p(void) {}",
        "2:22: error: 'g': a union cannot hold a group",
    ),
    "union inside": (
        "bfGroup G { bit a; };\nvoid p(bfGroup G *x) { struct { union { bfGroup G *g; int *w; } u; } s; s.u.g = x; }",
        "a union cannot hold a group",
    ),
    "variable": ("bfGroup G { bit a; } g;", "cannot be a variable"),
    "no name": ("typedef bfGroup { bit a; } G;", "a group needs a name"),
    "setjmp": ("int setjmp(int *);\nint p(int *b) { return setjmp(b); }", "is not supported"),
}


@pytest.mark.parametrize("what", WRONG)
def test_mistakes_are_reported(what: str, tmp_path: Path) -> None:
    text, expected = WRONG[what]
    with pytest.raises(EdgebuildError) as caught:
        make(tmp_path, text + "\n")
    message = str(caught.value)
    assert expected in message
    assert message.startswith(f"{tmp_path}/x.c:") and "^" in message


@pytest.mark.needs("riscv64-unknown-elf-gcc", "arm-none-eabi-gcc")
def test_bars(tmp_path: Path) -> None:
    before, after = bench_drivers.measure(tmp_path)
    assert (before["g100_accesses"], before["s25_accesses"]) == (100, 25)
    for key, (*_, bar) in bench_drivers.THESIS.items():
        if bar is not None:
            assert after[key] <= bar, key
    assert after["g100_instructions"] <= 0.6 * before["g100_instructions"]
    assert after["s25_instructions"] <= 0.65 * before["s25_instructions"]
    fixed = fixed7.measure(tmp_path)
    assert fixed["fixed7_accesses"] == 2
    assert fixed["fixed7_rv32imc_bytes"] <= 40 and fixed["fixed7_cortex_m3_bytes"] <= 40


def test_large_driver(tmp_path: Path) -> None:
    """Every function of 500 lines becomes cheaper, and the exact layout is no worse than the heuristic one."""
    (tmp_path / "large.c").write_text(large.text())
    cost = {}
    for layout in ("heuristic", "optimize"):
        _, driver = compile_driver(DriverRequest((tmp_path / "large.c",), "large", "pulpino", layout))
        assert len(driver.cdfg.functions) > 20
        for name in driver.cdfg.functions:
            assert products.after(driver, name) <= products.before(driver, name) - 3, name
        cost[layout] = driver.layout.cost
        channel = driver.layout.groups["Channel"]
        assert len({channel.register_of(f).name for f in ("en", "dir", "mode")}) == 1
    assert driver.layout.bound <= cost["optimize"] <= cost["heuristic"]


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_ways_to_a_group(tmp_path: Path) -> None:
    """Type names, pointers in structs, functions that return groups, decayed arrays, `&` and `*`."""
    b = build(
        tmp_path,
        """typedef bfGroup Pad { bit a; bit b; uint5 n; uint8 arr[2][3]; } Pad_t;
bfGroup D { Pad_t pads[4]; Pad_t one; uint24 x; };
make_device(D, d, 0x40000000);
static inline Pad_t *get(int i) { return &d->pads[i]; }
struct context { Pad_t *pad; int n; };
static void work(struct context *c, const Pad_t *q, int i)
{
    c->pad->a = 1;
    c->pad->b = q->b;
    get(i)->n = 3;
    get(i)->arr[i][1] += 2;
    (*c->pad).n++;
    for (Pad_t *p = d->pads; p < d->pads + 4; p++) p->b = 1;
    for (Pad_t *p = d->pads; p != &d->pads[4]; ++p) p->a |= p == &d->pads[3];
    d->pads->a = 1;
    (&d->one)->b = 1;
    d->x = 5u, d->one.a = !d->one.b;
    if (d->one.a ? d->x : d->one.b) d->x = 7;
    c->n = (d->one.n = 9) + 1;
}
int t(int i)
{
    struct context c = {&d->pads[2], 0};
    work(&c, &d->one, i);
    return c.n;
}
""",
        target="riscv-virt",
    )
    assert b.call("t", 1) == 10
    state = {k: v for k, v in b.model.values.items() if v}
    assert state == {
        "pads_0_a": 1, "pads_2_a": 1, "pads_3_a": 1,
        "pads_1_n": 3, "pads_2_n": 1, "pads_1_arr_1_1": 2, "one_b": 1, "one_n": 9, "x": 7,
        **{f"pads_{i}_b": 1 for i in range(4)},
    }  # fmt: skip


def test_arrays_stay_arrays_in_descriptions(tmp_path: Path) -> None:
    """`<dim>` and `[4]` in place of four clusters; what is read back is the same."""
    source = """bfGroup Ch { uint8 v; bit on; uint4 lut[3]; };
    bfGroup A { bfGroup Ch ch[4]; uint16 e[6]; uint8 m[2][3]; bit x; };
    make_device(A, a, 0x40000000);
    void t(int i) { a->ch[i].on = 1; a->ch[i].v = 2; a->ch[i].lut[i] = 3; a->e[i] = 4; a->m[i][i] = 5; a->x = 1; }"""
    file = tmp_path / "a.bf.c"
    file.write_text(source)
    artifacts, driver = compile_driver(DriverRequest((file,), "n", "pulpino"))
    files = {a.name: a.data.decode() for a in artifacts}
    assert "<dim>4</dim>" in files["n.svd"] and "<name>ch_%s</name>" in files["n.svd"]
    for array, count in (("ch_%s", 4), ("lut_%s", 3), ("e_%s", 6), ("m_0_%s", 3), ("m_1_%s", 3)):
        step = r"<dimIncrement>0x\w+</dimIncrement>"
        assert re.search(rf"<dim>{count}</dim>\s*{step}\s*<name>{array}</name>", files["n.svd"])
        assert re.search(rf"}} {array[:-3]}\[{count}\] @ 0x\w+ \+= 0x", files["n.rdl"])
    places = {(r.full_name, r.offset) for r in register_map("n", driver).blocks[0].registers}
    for name, read in (("n.svd", read_svd), ("n.rdl", read_rdl)):
        (tmp_path / name).write_text(files[name])
        assert {(r.full_name, r.offset) for r in read(tmp_path / name).blocks[0].registers} == places, name
        again = analyse(DriverRequest((file,), "n", "pulpino", f"fixed:{tmp_path / name}"))
        for group in driver.layout.groups:
            expected, actual = (
                {(s.name, r.offset, s.lsb, r.stride) for r in x.layout.groups[group].registers for s in r.slots}
                for x in (driver, again)
            )
            assert actual == expected


MIXED = """R@0: A:0:4 FLAG:4:1:oneToClear LOW:5:1:zeroToClear SEEN:6:1:::r B:8:8
S@4: class:0:8 wide:16:16
T@8: KEY:0:8:modify X:8:1
N@12: D:0:32"""
USES = """bfGroup R { uint4 A; bit FLAG; bit LOW; bit SEEN; uint8 B; };
bfGroup P { bfGroup R R; uint8 S_class; uint16 S_wide; bit T_X; uint8 T_KEY; uint32 N_D; };
make_device(P, p, 0x40000000); int f(void) { return p->R.A + p->S_class + p->S_wide + p->N_D; }
"""
PAGE = {
    "cpp": """#include <cstdio>
#include <sys/mman.h>
#include "n_io.hpp"
int main() {
    volatile uint32_t *word = (volatile uint32_t *)mmap((void *)0x40000000, 4096, 3, 0x32, -1, 0);
    using namespace n_io::p_device;
    %s
}
""",
    "rs": """mod n_io;
use n_io::p_device::*;
extern "C" { fn mmap(at: usize, bytes: usize, how: i32, flags: i32, file: i32, offset: i64) -> *mut u32; }
fn main() { unsafe {
    let word = mmap(0x40000000, 4096, 3, 0x32, -1, 0);
    %s
} }
""",
}
STEP = {
    "cpp": 'word[{i}] = 0xA5A5A5A5; {f}::write(0x5A); printf("%x %x\\n", (unsigned)word[{i}], (unsigned){f}::read());',
    "rs": '*word.add({i}) = 0xA5A5A5A5; {f}::write(0x5A); println!("{{:x}} {{:x}}", *word.add({i}), {f}::read());',
}


@pytest.mark.parametrize(
    ("language", "compiler"),
    [
        pytest.param("cpp", ("g++", "-std=c++14", "-Wall", "-Wextra", "-Werror"), marks=pytest.mark.needs("g++")),
        pytest.param("rs", ("rustc", "-Dwarnings"), marks=pytest.mark.needs("rustc")),
    ],
)
def test_fields_as_types_of_c_plus_plus_and_rust(language: str, compiler: tuple[str, ...], tmp_path: Path) -> None:
    """A write keeps plain neighbours and bits of no field, and leaves flags as they are."""
    (tmp_path / "chip.svd").write_text(svd(MIXED))
    (tmp_path / "n.bf.c").write_text(USES)
    artifacts, _ = compile_driver(DriverRequest((tmp_path / "n.bf.c",), "n", "pulpino", f"fixed:{tmp_path}/chip.svd"))
    for a in artifacts:
        (tmp_path / a.name).write_bytes(a.data)
    fields = (("R_A", 0), ("R_FLAG", 0), ("R_B", 0), ("S_class", 1), ("S_wide", 1), ("N_D", 3))
    steps = "\n    ".join(STEP[language].format(f=f, i=i) for f, i in fields)
    (tmp_path / f"main.{language}").write_text(PAGE[language] % steps)
    run(*compiler, "-o", "main", f"main.{language}", cwd=tmp_path)
    assert run("./main", cwd=tmp_path).split("\n")[:6] == [
        "a5a5a5aa a", "a5a5a5a5 0", "a5a55aa5 5a", "a5a5a55a 5a", "5aa5a5 5a", "5a 5a"
    ]  # fmt: skip
    text = (tmp_path / ("n_io.hpp" if language == "cpp" else "n_io.rs")).read_text()
    assert not re.search(r"T_X = (InOut|Out)|mod T_X \{[^}]*\}[^}]*fn write", text), "a write would change the key"
