# ruff: noqa: E501  (C++ on one line reads better here)
"""Drivers in C++: what classes, references and objects do is what the generated code does, access by access."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest
from edgebuild.base.target import hal_dir
from edgebuild.driver.pipeline import compile_driver
from tests.drivers.cases import HEAD, PADS, svd
from tests.drivers.machine import Bench, build
from tests.drivers.more_cases import CASES
from tests.drivers.test_cases import in_cpp

REGISTERS = """namespace chip {
bfGroup Control { bit enable; uint2 parity; uint3 reset(5) bits; };
bfGroup Status { bit ro full; uint4 ro level; };
bfGroup Port { uint4 pins; uint4 mask; };
bfGroup Uart { bfGroup Control CONTROL; bfGroup Status STATUS; uint16 divider; uint8 rse(self) wse(self) data;
               bfGroup Port ports[3]; };
make_device(Uart, uart, 0x40000000);
}
"""
CLASS = """
namespace driver {
constexpr unsigned divider(unsigned clock, unsigned baud) { return clock / baud; }
template <typename T> constexpr T least(T a, T b) { return a < b ? a : b; }
enum class Parity : unsigned char { none, even = 2 };

class Serial {
public:
    explicit Serial(chip::Uart *registers) : hw_(registers) {}
    void open(unsigned baud);
    int read() const { return hw_->data; }
    int both() const { return hw_->divider + hw_->STATUS.level * 1000; }
    int twice() const { return hw_->ports[0].pins + hw_->ports[0].mask * 16; }
private:
    bfGroup chip::Uart *const hw_;
};

void Serial::open(unsigned baud)
{
    hw_->divider = divider(16000000, baud);
    hw_->CONTROL = chip::Control{ .enable = 1, .parity = static_cast<unsigned char>(Parity::even) };
}

static void set(chip::Port &port, int pins) { int mask = least(pins, 3); port.pins = pins; port.mask = mask; }
}
extern "C" int t(unsigned baud)
{
    driver::Serial serial(chip::uart);
    serial.open(baud);
    auto s = chip::uart->STATUS;
    for (int i = 0; i < 2; i++) {
        auto &port = chip::uart->ports[i];
        driver::set(port, i + 5);
    }
    return s.level + serial.read();
}
extern "C" int u() { return driver::Serial(chip::uart).twice(); }
"""


def run(folder: Path, source: str, *calls: tuple[object, ...], **values: int) -> Bench:
    b = build(folder, source, cpp=True)
    b.model.values.update(values)
    for name, *arguments, expected in calls:
        assert b.call(str(name), *(int(str(a)) for a in arguments)) == expected, b.machine.trace
    return b


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_a_class_of_a_namespace(tmp_path: Path) -> None:
    b = run(tmp_path, REGISTERS + CLASS, ("t", 115200, 12), ("u", 0x35), STATUS_level=3, data=9)
    assert b.machine.trace == [
        "w divider=8a",
        "w CONTROL_enable=1 CONTROL_parity=2 CONTROL_bits=5",
        "r STATUS_full STATUS_level",
        "w ports_0_pins=5 ports_0_mask=3",
        "w ports_1_pins=6 ports_1_mask=3",
        "r data",
        "r ports_0_pins ports_0_mask",
    ]


LAMBDAS = """
extern "C" int t(int n)
{
    auto *hw = chip::uart;
    auto level = [hw] { auto s = hw->STATUS; return (int)s.level; };
    auto port = [&](int i, int pins) { hw->ports[i].pins = pins; hw->ports[i].mask = pins + 1; };
    port(0, n);
    hw->divider = [=] { return hw->CONTROL.parity * 16 + hw->CONTROL.bits; }() + level();
    return hw->divider;
}
template <typename F> void twice(F f) { f(1); f(2); }
extern "C" int u()
{
    twice([](int i) { chip::uart->ports[i].pins = i; chip::uart->ports[i].mask = 3; });
    return 0;
}
struct Driver {
    chip::Uart *const hw;
    int go(int n) {
        auto f = [this, n](int k) {
            hw->ports[k].pins = n;
            hw->ports[k].mask = n;
            auto inner = [this] { return hw->divider; };
            return inner() + k;
        };
        return f(2);
    }
};
extern "C" int v(int n) { return Driver{chip::uart}.go(n); }
extern "C" int w(bfGroup chip::Port *p, bfGroup chip::Port *q)
{
    auto other = [&] { p = q; };
    auto f = [&] { p->pins = 1; other(); p->mask = 2; };
    f();
    return p == q;
}
"""


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_bodies_of_lambdas(tmp_path: Path) -> None:
    b = run(tmp_path, REGISTERS + LAMBDAS, ("t", 5, 0x28), ("u", 0), ("v", 4, 0x2A), STATUS_level=3, CONTROL_parity=2)
    assert b.machine.trace == [
        "w ports_0_pins=5 ports_0_mask=6",
        "r CONTROL_parity CONTROL_bits",
        "r STATUS_full STATUS_level",
        "w divider=28",
        "r divider",
        "w ports_1_pins=1 ports_1_mask=3",
        "w ports_2_pins=2 ports_2_mask=3",
        "w ports_2_pins=4 ports_2_mask=4",
        "r divider",
    ]
    b.model.trace.clear()
    first = 0x40000000 + next(s for s in b.driver.layout.groups["Uart"].subs if s.name == "ports").offset
    stride = next(s for s in b.driver.layout.groups["Uart"].subs if s.name == "ports").stride
    b.call("w", first, first + stride)
    written = [t for t in b.machine.trace if t.startswith("w")]
    assert "ports_0_pins=1" in written[0] and "ports_1_mask=2" in written[1]


def test_a_lambda_runs_where_its_function_does(tmp_path: Path) -> None:
    source = """bfGroup G { bit a; bit b; uint30 c; };
make_device(G, r, 0x40000000);
bf_interrupt void isr() { auto f = [] { r->a = 1; }; f(); }
void t() { r->b = 1; }
"""
    file = tmp_path / "case.bf.cpp"
    file.write_text(source)
    _, driver = compile_driver(DriverRequest((file,), "case", "pulpino"))
    registers = driver.layout.groups["G"].registers
    assert not any({"a", "b"} <= {s.name for s in r.slots} for r in registers), "an interrupt could lose the update"


NESTED = """
using chip::uart;
extern "C" int t(int n) {
    uart->divider = n; uart->ports[0].pins = n;
    auto f = [&](int k) {
        int both = uart->CONTROL.parity + uart->CONTROL.bits;
        auto g = [&](int m) { uart->ports[1].pins = m + k; return uart->CONTROL.parity + uart->CONTROL.bits; };
        return g(both);
    };
    return f(2) + uart->CONTROL.parity + uart->CONTROL.bits;
}
"""


@pytest.mark.needs("g++")
def test_names_of_a_lambda_hide_none_of_its_function(tmp_path: Path) -> None:
    (tmp_path / "case.bf.cpp").write_text(REGISTERS + NESTED)
    artifacts, _ = compile_driver(DriverRequest((tmp_path / "case.bf.cpp",), "case", "pulpino"))
    for artifact in artifacts:
        (tmp_path / artifact.name).write_bytes(artifact.data)
    command = ["g++", "-std=gnu++17", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Wno-volatile", "-Werror"]
    command += ["-Wold-style-cast", "-I", str(hal_dir() / "include"), "case.cpp"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([*command[:-1], "-include", "case_mock.h", "case.cpp"], cwd=tmp_path, check=True)


GUARD = """
extern "C" void lock(void);
extern "C" void unlock(void);
struct Guard { Guard() { lock(); } ~Guard() { unlock(); } };
struct Mutex { void lock() { ::lock(); } void unlock() { ::unlock(); } };
template <typename T> struct Held { T &of; explicit Held(T &x) : of(x) { of.lock(); } ~Held() { of.unlock(); } };
template <typename T> struct Wrapped { Held<T> held; explicit Wrapped(T &x) : held(x) {} };
template <typename T> struct Derived : Held<T> { explicit Derived(T &x) : Held<T>(x) {} };
template <typename T> struct Pair { T a, b; };
static Mutex mutex;
static inline int ask() { lock(); return 1; }
static inline int asked(int a = ask()) { return a; }
static inline int plain(int a = 3) { return a; }
struct Asking { int m = ask(); };
struct Simple { int a, b; };
"""


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize(
    ("source", "trace"),
    [
        ("Guard g; r->a = 1;", ["w a=1", "w b=1"]),
        ("if (x) { Guard g; r->a = 1; }", ["w a=1", "w b=1"]),
        ("for (int i = 0; i < 1; i++) { Guard g; r->a = 1; if (x) break; }", ["w a=1", "w b=1"]),
        ("r->a = 1; { r->c = 2; }", ["w a=1 b=1 c=2"]),
        ("r->a = 1; Guard();", ["w a=1", "w b=1"]),
        ("{ Held<Mutex> g(mutex); r->a = 1; }", ["w a=1", "w b=1"]),
        ("{ Wrapped<Mutex> g(mutex); r->a = 1; }", ["w a=1", "w b=1"]),
        ("{ Derived<Mutex> g(mutex); r->a = 1; }", ["w a=1", "w b=1"]),
        ("if (x) { Held<Mutex> list[] = { Held<Mutex>(mutex) }; r->a = 1; }", ["w a=1", "w b=1"]),
        ("{ Pair<int> p = { x, x }; r->a = p.a; }", ["w a=1 b=1"]),
        ("r->a = 1; (void)asked();", ["w a=1", "w b=1"]),
        ("r->a = 1; Asking s{}; (void)s;", ["w a=1", "w b=1"]),
        ("r->a = 1; (void)Asking{}.m;", ["w a=1", "w b=1"]),
        ("{ const Guard &g = Guard(); (void)g; r->a = 1; }", ["w a=1", "w b=1"]),
        ("r->a = 1; Simple s{}; (void)s; (void)plain();", ["w a=1 b=1"]),
    ],
)
def test_destructors_are_calls(source: str, trace: list[str], tmp_path: Path) -> None:
    """A store does not go past the end of an object's life."""
    inside = f"{{ {source} }}" if source.startswith("Guard g") else source
    text = f'{HEAD}{GUARD}extern "C" void t(int x) {{ {inside} r->b = 1; }}\n'
    b = build(tmp_path, text, extra="void lock(void) {} void unlock(void) {}", cpp=True)
    b.call("t", 1)
    assert b.machine.trace == trace


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize(
    ("source", "call", "trace"),
    [          ("int t() { r->e[r->data & 7] = r->count; return 0; }", ("t", 0), ["r count", "r data", "w e_3=4"]),
        ("int t() { r->c += r->data; return 0; }", ("t", 0), ["r data", "r c", "w c=4"]),
        ("static int f() { r->c = 3; return 1; } int t() { int x = r->c; r->c += f(); return x; }", ("t", 1),
         ["r c", "w c=3", "r c", "w c=4"]),
        ("int t(int i) { r->e[i] = ++i; return i; }", ("t", 2, 3), ["w e_3=3"]),
        ("static void f(int &i) { i = 5; } int t(int i) { r->e[i] = 1; f(i); r->f[i] = 2; return i; }", ("t", 1, 5),
         ["w e_1=1", "w f_5=2"]),
        ("int t(int i) { int &j = i; r->e[i] = 1; j = 4; r->f[i] = 2; return i; }", ("t", 1, 4),
         ["w e_1=1", "w f_4=2"]),
        ("int t(int i) { int k = 0; r->e[i] = 1; (k ? k : i) = 6; r->f[i] = 2; return i; }", ("t", 1, 6),
         ["w e_1=1", "w f_6=2"]),
        ("int t(int i) { r->e[i] = 1; auto next = [&i] { i++; }; next(); r->f[i] = 2; return i; }", ("t", 1, 2),
         ["w e_1=1", "w f_2=2"]),
        ("int t() { int sum = 0; int list[] = {1, 2}; for (int i : list) sum += r->data * i; return sum; }", ("t", 9), ["r data"] * 2),
        ("int t() { if (int x = r->c; x) return x; return r->d; }", ("t", 1), ["r c d"]),
        ("struct S { int i; int at(int v) { r->e[i] = v; i++; r->f[i] = v; return i; } }; int t() { S s{2}; return s.at(7); }",
         ("t", 3), ["w e_2=7", "w f_3=7"]),
        ("int t() { r->P = P{ .x = r->data, .y = r->count, .z = r->data }; return 0; }", ("t", 0),
         ["r data", "r count", "r data", "w P_x=1 P_y=4 P_z=3"]),
        (("struct Handle { G *g; G *operator->() const { return g; } G &operator*() const { return *g; } };"
         "int t() { Handle h{r}; h->c = 5; (*h).d = 2; return h->c; }"), ("t", 5), ["w c=5", "w d=2", "r c"]),
        (("template <typename T> T least(T a, T b) { return a < b ? a : b; } struct O { int c; };"
         "template <typename T> int get(T *p) { auto f = [](auto *q) { return q->c; }; return f(p); }"
         "int t() { O o{4}; auto *p = r; p->c = least(get(&o), 9); return 0; }"), ("t", 0), ["w c=4"]),
        ("struct S { virtual int f() { return r->c; } }; int t() { S s; S &x = s; r->a = 1; r->b = x.f(); return 0; }",
         ("t", 0), ["w a=1", "r c", "w b=1"]),
    ],
)  # fmt: skip
def test_what_only_cpp_has(source: str, call: tuple[object, ...], trace: list[str], tmp_path: Path) -> None:
    support = "void _ZTVN10__cxxabiv117__class_type_infoE(void) {}"
    head = HEAD.replace("bfGroup G {", "bfGroup P { bit x; uint3 y; uint2 z; };\nbfGroup G { bfGroup P P;")
    b = build(tmp_path, f'{head if "P{" in source else HEAD}extern "C" {{ int t{"()" if " t()" in source else "(int)"}; }}\n{source}\n',
              extra=support, cpp=True)  # fmt: skip
    b.model.values.update(data=3, count=4, c=1)
    name, *arguments, expected = call
    assert b.call(str(name), *(int(str(a)) for a in arguments)) == expected
    assert b.machine.trace == trace


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("template <typename T> T get() { return r->c; }", "as in a template"),
        ("int t() { auto f = [c = r->c] { return c; }; return f(); }", "what a lambda captures"),
        ("auto f = [] { return r->c; };", "where the generator cannot follow"),
        ("struct S { int x; S() : x(r->c) {} };", "in front of a constructor's body"),
        ("struct S { int x = r->c; };", "where the generator cannot follow"),
        ("void f(unsigned char &); void t() { f(r->d); }", "no reference"),
        ("void t() { const auto &x = r->d; (void)x; }", "no reference"),
        ("int t() { switch (int x = r->c; x) { case 1: return 1; } return 2; }", "in front of a switch's value"),
        (
            "int f(); int t() { switch (int x = f(); x) { case 1: return r->c; } return 2; }",
            "in front of a switch's value",
        ),
        ("void t() { try { r->c = 1; } catch (...) { } }", "exceptions are not supported"),
        ("int x = r->c;", "where the generator cannot follow"),
        ("class G2 { bfGroup In { bit a; }; };", "outside of classes"),
        ("namespace a { class G { }; }", "also the name of a bfGroup"),
        ("namespace a { class G { }; static G list[2]; }", "also the name of a bfGroup"),
        ("bfGroup H { bit a; void f(); };", "a group holds fields and groups"),
        ("#include <string.h>\nvoid t() { memcpy(r, r, 1); }", "registers are not memory"),
        (
            "template <typename T> void set(T *p) { p->c = 3; } void t() { set(r); }",
            "'G::c', is used where the generator",
        ),
        ("void t() { auto f = [](auto p) { p->c = 1; }; f(r); }", "'G::c', is used where the generator"),
        (
            "template <typename T> struct D { T *p; void go() { p->c = 2; } }; void t() { D<G>{r}.go(); }",
            "parameter of a template",
        ),
        (
            "template <typename T> auto get(T *p) -> decltype(p->c + 0) { return p->c; } int t() { return get(r); }",
            "no members in templates",
        ),
        ("template <typename T> void f(T &a, T &b) { a = b; } void t() { f(*r, *r); }", "a group is copied where"),
        (
            "template <typename T> void f(G &a, G &b, T) { a = b; } void t() { f(*r, *r, 1); }",
            "a group is copied where",
        ),
        ("template <typename T> void f(T *a) { T b = *a; (void)b; } void t() { f(r); }", "a group is copied where"),
    ],
)
def test_errors(source: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(EdgebuildError) as caught:
        build(tmp_path, f"{HEAD}{source}\n", cpp=True)
    assert expected in str(caught.value) and caught.value.diagnostics[0].line >= HEAD.count("\n")


def test_a_group_is_no_value(tmp_path: Path) -> None:
    with pytest.raises(EdgebuildError, match="a group"):
        build(tmp_path, PADS + "void f(Pad p); void t() { f(io->pads[0]); }", cpp=True)


def test_one_language(tmp_path: Path) -> None:
    for name in ("a.bf.c", "b.bf.cpp"):
        (tmp_path / name).write_text("")
    with pytest.raises(EdgebuildError, match="two drivers"):
        compile_driver(DriverRequest((tmp_path / "a.bf.c", tmp_path / "b.bf.cpp"), "n", "pulpino"))


@pytest.mark.one_in(2)
@pytest.mark.needs("g++")
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_no_warnings(compiler: str, tmp_path: Path) -> None:
    """All cases and the class above; unused results and the like are those of the cases themselves."""
    sources = {f"case{c.number}": in_cpp(c) for c in CASES if not c.error and not c.registers}
    (tmp_path / "class.bf.cpp").write_text(REGISTERS + CLASS)
    for name, case in sources.items():
        (tmp_path / f"{name}.bf.cpp").write_text(case.source)
        for header, text in case.headers.items():
            (tmp_path / header).write_text(text)
    for name in ["class", *sources]:
        artifacts, _ = compile_driver(DriverRequest((tmp_path / f"{name}.bf.cpp",), name, "riscv-virt"))
        for a in artifacts:
            (tmp_path / a.name).write_bytes(a.data)
    flags = ["-Wno-unused-value", "-Wno-unused-variable", "-Wno-unused-but-set-variable", "-Wno-implicit-fallthrough"]
    flags += ["-Wno-type-limits", "-Wno-sign-compare"] + (["-Wno-volatile"] if compiler == "g++" else [])
    command = [compiler, "-std=gnu++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *flags]
    files = ["class.cpp", *(f"{name}.cpp" for name in sources)]
    result = subprocess.run([*command, *files], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_groups_of_a_namespace_on_a_fixed_layout(tmp_path: Path) -> None:
    (tmp_path / "chip.svd").write_text(svd("CR@0: EN:0:1 DIV:4:4"))
    text = """namespace hw { bfGroup Cr { bit EN; uint4 DIV; }; bfGroup Dev { bfGroup Cr CR; }; make_device(Dev, dev, 0x40000000); }
    static void set(hw::Cr &r, hw::Dev *d) { r.DIV = 3; d->CR.EN = 1; }
    extern "C" void t(void) { set(hw::dev->CR, hw::dev); }
    """
    b = build(tmp_path, text, layout=f"fixed:{tmp_path / 'chip.svd'}", cpp=True)
    b.call("t")
    assert [line for line in b.machine.trace if line[0] == "w"] == ["w EN=0 DIV=3", "w EN=1 DIV=3"]
