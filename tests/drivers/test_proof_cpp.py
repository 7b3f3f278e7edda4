"""The proof of drivers in C++: the cases and the drivers of silicon as C++, classes, references, and planted faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.artifacts import Artifact
from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver
from tests.drivers.cases import Case, svd
from tests.drivers.silicon import PARTS, Part, cut
from tests.drivers.test_cases import in_cpp
from tests.drivers.test_cpp import CLASS, REGISTERS

pytest.importorskip("z3")
from tests.drivers.test_proof import HELD, LONG, RIGHT, Compiled, faulty, verdicts


def compiled(folder: Path, source: str, registers: bytes = b"", overlay: str = "", target: str = "pulpino") -> Compiled:
    layout = "optimize"
    if registers:
        (folder / "chip.svd").write_bytes(registers)
        layout = f"fixed:{folder / 'chip.svd'}"
    if overlay:
        (folder / "chip.overlay.yaml").write_text(overlay)
    (folder / "case.bf.cpp").write_text(source)
    artifacts, driver = compile_driver(DriverRequest((folder / "case.bf.cpp",), "case", target, layout))
    return driver, artifacts


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", RIGHT, ids=lambda c: f"{c.number:02}-{c.title.replace(' ', '_')}")
def test_cases_are_proved_and_their_faults_refuted(case: Case, tmp_path: Path) -> None:
    case = in_cpp(case)
    for name, text in case.headers.items():
        (tmp_path / name).write_text(text)
    registers = svd(case.registers).encode() if case.registers else b""
    build = compiled(tmp_path, case.source, registers, case.overlay, case.target)
    assert [v for v in verdicts(build) if v.what != "proved"] == []
    for what, wrong in faulty(build):
        assert any(v.what == "refuted" for v in verdicts(wrong)), what


SLOW = (*LONG, "RP2040 UART", "RP2040 SPI", "RP2040 ADC", "RP2040 DMA", "nRF52 TWIM", "FE310 GPIO")


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(p, id=p.name.replace(" ", "_"), marks=[pytest.mark.slow] * (p.name in SLOW))
        for p in (*PARTS, *HELD)
    ],
)
def test_silicon_is_proved(part: Part, tmp_path: Path) -> None:
    if not part.present:
        pytest.skip(f"{part.file} is not beside the checkout")
    text = part.text if part.text.startswith("<") else svd(part.text)
    registers = cut(part.file, part.base) if part.file else text.encode()
    build = compiled(tmp_path, f'extern "C" {{\n{part.source}\n}}\n', registers, part.overlay)
    assert [v for v in verdicts(build) if v.what != "proved"] == []


def test_classes_are_proved(tmp_path: Path) -> None:
    """Methods, members, references, a constructor, and functions that make objects."""
    results = {v.function: v.what for v in verdicts(compiled(tmp_path, REGISTERS + CLASS))}
    methods = {f"driver::{n}" for n in ("divider", "set", *(f"Serial::{m}" for m in METHODS))}
    assert results == dict.fromkeys(methods, "proved") | {"t": "proved", "u": "proved"}


METHODS = ("Serial", "open", "read", "both", "twice")
FAULTS = (("* 1000", "* 1001", "driver::Serial::both"), ("least(pins, 3)", "least(pins, 2)", "driver::set"))


@pytest.mark.parametrize(("old", "new", "function"), FAULTS)
def test_faults_in_methods_are_refuted(old: str, new: str, function: str, tmp_path: Path) -> None:
    driver, artifacts = compiled(tmp_path, REGISTERS + CLASS)
    body = next(a.data.decode() for a in artifacts if a.name == "case.cpp")
    assert body.count(old) == 1
    changed = Artifact("case.cpp", body.replace(old, new).encode())
    wrong = tuple(changed if a.name == "case.cpp" else a for a in artifacts)
    refuted = {v.function for v in verdicts((driver, wrong)) if v.what == "refuted"}
    assert function in refuted and refuted <= {function, "t", "u"}  # the last two call it


RANGES = """bfGroup S { bit A; bit B; uint8 F; }; make_device(S, s, 0x40000000);
static const int start[] = {1, 2, 3};
extern "C" void values(int n) { for (auto v : start) { if (v == n) break; s->F = v; } s->A = 1; }
extern "C" void places(int n) { int t[2] = {1, n}; for (auto &v : t) v += 1; s->F = t[0] + t[1]; }"""


@pytest.mark.parametrize(
    ("old", "new", "function"),
    [
        ("", "", ""),
        ("v == n", "v != n", "values"),
        ("{1, 2, 3}", "{1, 2}", "values"),
        ("auto &v : t", "auto v : t", "places"),
        ("v += 1", "v += 2", "places"),
    ],
)
def test_loops_over_arrays(old: str, new: str, function: str, tmp_path: Path) -> None:
    driver, artifacts = compiled(tmp_path, RANGES, svd("F@0: F:0:8\nE@4: A:0:1 B:1:1").encode(), "fields: {}")
    assert old.encode() in next(a.data for a in artifacts if a.name == "case.cpp")
    changed = tuple(
        Artifact(a.name, a.data.replace(old.encode(), new.encode()) if old and a.name == "case.cpp" else a.data)
        for a in artifacts
    )
    wrong = {v.function for v in verdicts((driver, changed)) if v.what != "proved"}
    assert wrong - {"start"} == {function} - {""}  # `start` is no function: it begins with other values
    assert all(v.what == "refuted" for v in verdicts((driver, changed)) if v.function == function)


BASES = """bfGroup S { bit A; bit B; uint8 F; }; make_device(S, s, 0x40000000);
class Root { public: int first = 3; }; class Other { public: int other = 3; };
class Base : public Root { public: explicit Base(S *h, int n) : hw(h), n(n) { hw->A = 1; } void put(int v) { hw->F = v + n; } protected: S *const hw; int n; };
class Part : public Base { public: explicit Part(S *h) : Base(h, 5), last(7) {} void go(int v) { put(v + first); hw->F = last; } private: int last; };
extern "C" void run(int v) { Part part(s); part.go(v); }"""  # noqa: E501  (C on one line reads better here)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("", "", "proved"),
        ("Base(h, 5)", "Base(h, 6)", "refuted"),
        ("first = 3", "first = 4", "refuted"),
        ("last(7)", "last(8)", "refuted"),
        ("public Base", "virtual public Base", "unknown"),
        ("public Base", "public Other, public Base", "unknown"),
    ],
)
def test_objects_of_a_class_with_a_base(old: str, new: str, verdict: str, tmp_path: Path) -> None:
    """A planted fault is only in the generated code; what cannot be followed is in both."""
    source = BASES.replace(old, new) if verdict == "unknown" else BASES
    driver, artifacts = compiled(tmp_path, source, svd("F@0: F:0:8\nE@4: A:0:1 B:1:1").encode(), "fields: {}")
    if verdict == "refuted":
        assert old.encode() in next(a.data for a in artifacts if a.name == "case.cpp")
        artifacts = tuple(Artifact(a.name, a.data.replace(old.encode(), new.encode())) for a in artifacts)
    assert next(v.what for v in verdicts((driver, artifacts)) if v.function == "run") == verdict


VIRTUAL = """bfGroup S { bit A; bit B; uint8 F; }; make_device(S, s, 0x40000000);
class Port { public: explicit Port(S *h) : hw(h) {} virtual void put(int v) { hw->F = v; } void twice(int v) { put(v); put(v + 1); } virtual ~Port() = default; S *const hw; };
class Loud final : public Port { public: explicit Loud(S *h) : Port(h), n(3) {} void put(int v) override { hw->F = v + n; } int n; };
extern "C" void through(Port *p, Port &q, int v) { s->A = 1; p->put(v); s->A = 0; q.put(v); }
extern "C" void made(int v) { Loud loud(s); loud.twice(v); loud.n = 2; s->B = 1; loud.put(v); }"""  # noqa: E501  (as above)


@pytest.mark.parametrize(
    ("old", "new", "function"),
    [
        ("", "", ""),
        ("v + n", "v - n", "Loud::put"),
        ("put(v + 1)", "put(v + 2)", "Port::twice"),
        ("p->put(v)", "q.put(v)", "through"),
        ("n(3)", "n(4)", "Loud::Loud"),
        ("loud.n = 2; ", "", "made"),
    ],
)
def test_virtual_methods(old: str, new: str, function: str, tmp_path: Path) -> None:
    """A call of one is a call of something unknown, which each body is proved for by itself."""
    driver, artifacts = compiled(tmp_path, VIRTUAL, svd("F@0: F:0:8\nE@4: A:0:1 B:1:1").encode(), "fields: {}")
    changed = tuple(
        Artifact(a.name, a.data.replace(old.encode(), new.encode()) if old and a.name == "case.cpp" else a.data)
        for a in artifacts
    )
    assert not old or changed != artifacts
    results = {v.function: v.what for v in verdicts((driver, changed)) if v.what != "proved"}
    assert results.pop(function, "refuted") == "refuted" and set(results) <= {"made", "Loud::Loud"} - {""}
    assert set(results.values()) <= {"refuted"} and (old or not results)
    assert not old or "refuted" in {v.what for v in verdicts((driver, changed))}


PASSED = """
template <typename F> void run(F f) { f(1); }
extern "C" void t(int n)
{
    auto f = [n](int i) { r->a = i; r->b = n; };
    r->a = 0; USE
}
"""


@pytest.mark.parametrize("use", ["run(f); f(2);", "run(f);", "auto g = f; g(1);"])
def test_a_named_lambda_that_is_passed_on_is_unknown(use: str, tmp_path: Path) -> None:
    """Whoever gets it runs a body that nothing compares."""
    group = "bfGroup G { bit a; bit b; };\nmake_device(G, r, 0x40000000);\n"
    results = [v for v in verdicts(compiled(tmp_path, group + PASSED.replace("USE", use))) if v.function == "t"]
    assert [(v.what, v.why) for v in results] == [("unknown", "a lambda that is passed on")]


GIVEN = """
template <typename F> int run(F &&f) { return f(1); }
struct D {
    G *const g;
    void go(int k) { run([this, k](int i) { g->b = i + k; return 0; }); }
};
extern "C" void t(int k, int m)
{
    int a = k, b = m;
    r->a = 0;
    r->b = run([=](int i) { unsigned x = r->a; r->a = i + a; return b + x; });
    D d{r};
    d.go(3);
}
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("i + k", "i - k"),
        ("i + a", "i"),
        ("b + x", "b - x"),
        ("a = k, b = m", "a = m, b = k"),
        ("go(3)", "go(2)"),
        ("a(r, 0)", "a(r, 1)"),
    ],
)
def test_a_lambda_that_is_given_away_is_proved_by_itself(right: str, wrong: str, tmp_path: Path) -> None:
    driver, artifacts = compiled(tmp_path, "bfGroup G { bit a; uint4 b; };\nmake_device(G, r, 0x40000000);\n" + GIVEN)
    assert [v for v in verdicts((driver, artifacts)) if v.what != "proved"] == []
    assert any(right.encode() in a.data for a in artifacts if a.name.endswith(".cpp"))
    changed = tuple(
        Artifact(a.name, a.data.replace(right.encode(), wrong.encode())) if a.name.endswith(".cpp") else a
        for a in artifacts
    )
    assert "refuted" in [v.what for v in verdicts((driver, changed))]


def test_a_lambda_that_refers_to_variables_is_unknown(tmp_path: Path) -> None:
    """Whoever gets it may change them."""
    source = "bfGroup G { bit a; bit b; };\nmake_device(G, r, 0x40000000);\n" + PASSED
    source = source.replace("USE", "run([&](int i) { n = i; }); r->b = n;")
    assert "unknown" in [v.what for v in verdicts(compiled(tmp_path, source)) if v.function == "t"]
