"""The proof of generated code: it proves what is right, and refutes each fault that is planted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path
from random import Random

import pytest

from edgebuild.base.artifacts import Artifact
from edgebuild.base.request import DriverRequest
from edgebuild.cli import main
from edgebuild.driver.layout.registers import Slot
from edgebuild.driver.merge.merging import Driver
from edgebuild.driver.pipeline import compile_driver, triple_of
from tests.conftest import ROOT
from tests.drivers import held_chips, held_chips2, held_chips3, held_exact, held_exact2
from tests.drivers.cases import Case, svd
from tests.drivers.more_cases import CASES
from tests.drivers.programs import Generator
from tests.drivers.silicon import PARTS, Part, cut
from tests.drivers.test_places import PACKED, PLAIN, one_register

pytest.importorskip("z3")
from edgebuild.driver.prove.verdicts import Verdict, prove

RIGHT = [c for c in CASES if not c.error]
Compiled = tuple[Driver, tuple[Artifact, ...]]


def compiled(case: Case, folder: Path) -> Compiled:
    layout = "optimize"
    if case.registers:
        (folder / "chip.svd").write_text(svd(case.registers))
        if case.overlay:
            (folder / "chip.overlay.yaml").write_text(case.overlay)
        layout = f"fixed:{folder / 'chip.svd'}"
    for name, text in case.headers.items():
        (folder / name).write_text(text)
    (folder / "case.bf.c").write_text(case.source)
    artifacts, driver = compile_driver(DriverRequest((folder / "case.bf.c",), "case", case.target, layout))
    return driver, artifacts


def verdicts(build: Compiled, only: frozenset[str] | None = None) -> list[Verdict]:
    driver, artifacts = build
    return prove(driver, triple_of(driver.request.target), artifacts, only)


def slots_at(driver: Driver, group: str, line: str) -> Iterator[tuple[Slot, int]]:
    """The fields where a line accesses a register, and their bits in the access."""
    offset = int(re.search(r"\)group(?: \+ (\w+)u)?", line)[1] or "0", 0)
    for r in driver.layout.groups[group].registers:
        element, rest = divmod(offset - r.offset, r.stride or 1 << 32)
        first = 8 * rest
        if 0 <= element < r.count and first < r.bits:
            yield from ((s, s.cover >> first) for s in r.slots)


def ignored(slots: list[tuple[Slot, int]]) -> int:
    """Bits that no write changes, by the description: those of fields that can only be read."""
    read = reduce(or_, (bits for _, bits in slots), 0)
    return read & ~reduce(or_, (bits for s, bits in slots if "w" in s.access), 0)


def steady(driver: Driver, slots: list[tuple[Slot, int]]) -> bool:
    """Whether a read finds what was written last, and changes nothing, by the declarations: nobody may miss it."""
    fields = [driver.dialect.field(s.field) for s, _ in slots if s.field]
    alone = any(s.volatile or s.sensitive or "w" not in s.access for s, _ in slots)
    return not alone and not any(f.volatile or f.rse for f in fields)


def unwrapped(header: str) -> str:
    """The functions with a statement a line; the generator breaks long ones."""
    function = re.compile(r"^(static inline [^{};]*\bHAL_[^{};]*)\n(\{\n[^}]*\n\})", re.MULTILINE)

    def joined(match: re.Match[str]) -> str:
        body = re.sub(r"(?<![;{])\n +", " ", match[2])
        return " ".join(match[1].split()) + "\n" + body

    return function.sub(joined, header)


def faulty(build: Compiled) -> Iterator[tuple[str, Compiled]]:
    """Each store left out or one bit off, each load left out or wrong, in functions that the driver calls.

    The bit is the lowest one that the hardware takes: a field's that can be written, or one of no field, which is to
    stay as it is after reset. A load is left out where somebody may miss it.
    """
    driver, artifacts = build
    header = next(a for a in artifacts if a.name == "case_hal.h").data.decode()
    body = next(a for a in artifacts if a.name in ("case.c", "case.cpp")).data.decode()
    function = group = ""
    for number, line in enumerate(lines := unwrapped(header).split("\n")):
        if match := re.search(r"\b(HAL_\w+)\((?:const )?volatile struct (\w+) .*\)$", line):
            function, group = match[1], match[2]
        if not re.search(rf"\b{function}\(", body) or not function:
            continue
        wrong = []
        if re.match(r" *\*\(volatile", line):
            writable = ~ignored(list(slots_at(driver, group, line)))
            wrong += [";", line.replace(" = (unsigned", f" = {writable & -writable}u ^ (unsigned", 1)]
        elif "= *(volatile" in line and "HAL_LOAD_WHOLE" not in function:
            slots = list(slots_at(driver, group, line))
            inverted = line.replace("= *", f"= {reduce(or_, (bits for _, bits in slots))}ull & ~*", 1)
            value = inverted if steady(driver, slots) else line.partition("=")[0] + "= 0u;"
            wrong.append(value if not line.lstrip().startswith("r |") else ";")
        for text in wrong:
            changed = "\n".join([*lines[:number], text, *lines[number + 1 :]]).encode()
            new = tuple(Artifact(a.name, changed) if a.name == "case_hal.h" else a for a in artifacts)
            yield f"{function}: {text or 'nothing'} for {line}", (driver, new)


@pytest.mark.parametrize("case", RIGHT, ids=lambda c: f"{c.number:02}-{c.title.replace(' ', '_')}")
def test_cases_are_proved_and_their_faults_refuted(case: Case, tmp_path: Path) -> None:
    build = compiled(case, tmp_path)
    assert [v for v in verdicts(build) if v.what != "proved"] == []
    for what, wrong in faulty(build):
        assert any(v.what == "refuted" for v in verdicts(wrong)), what


@pytest.mark.parametrize("name", ["gpio", "spi"])
def test_pulpino_is_proved(name: str) -> None:
    source = ROOT / "hal" / "drivers" / f"pulpino_{name}.bf.c"
    artifacts, driver = compile_driver(DriverRequest((source,), name, "pulpino"))
    assert [v for v in verdicts((driver, artifacts)) if v.what != "proved"] == []


HELD = (*held_exact.PARTS, *held_exact2.PARTS, *held_chips.PARTS, *held_chips2.PARTS, *held_chips3.PARTS)
QUICK = ("FE310 PWM", "FE310 PMU", "XMC4500 USIC and PORT", "PIC32MX", "Renesas RA")  # of those
LONG = [p.name for p in HELD if p.name not in QUICK] + ["RP2040 I2C"]


def of_silicon(part: Part, folder: Path) -> Compiled:
    if not part.present:
        pytest.skip(f"{part.file} is not beside the checkout")
    file = folder / "chip.svd"
    text = part.text if part.text.startswith("<") else svd(part.text)
    file.write_bytes(cut(part.file, part.base) if part.file else text.encode())
    (folder / "chip.overlay.yaml").write_text(part.overlay)
    (folder / "case.bf.c").write_text(part.source)
    request = DriverRequest((folder / "case.bf.c",), "case", "pulpino", f"fixed:{file}")
    artifacts, driver = compile_driver(request)
    return driver, artifacts


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(p, id=p.name.replace(" ", "_"), marks=[pytest.mark.slow] * (p.name in LONG))
        for p in (*PARTS, *HELD)
    ],
)
def test_silicon_is_proved(part: Part, tmp_path: Path) -> None:
    """One has loops around loops, and some hundred ways."""
    assert [v for v in verdicts(of_silicon(part, tmp_path)) if v.what != "proved"] == []


def callers(build: Compiled, function: str) -> frozenset[str]:
    """The driver's functions from whose definition to the next one the name of a function stands."""
    driver, artifacts = build
    body = next(a for a in artifacts if a.name == "case.c").data.decode()
    starts = {n: m.start() for n in driver.cdfg.functions if (m := re.search(rf"\b{n}\([^;{{}}()]*\)\s*{{", body))}
    ends = [*sorted(starts.values())[1:], len(body)]
    spans = zip(sorted(starts, key=lambda n: starts[n]), ends, strict=True)
    return frozenset(n for n, end in spans if re.search(rf"\b{function}\(", body[starts[n] : end]))


MANY_FAULTS = ("RP2040 I2C", "RP2040 USBCTRL", "nRF52 TWI", "FE310 I2C", "STM32 ADC", "STM32 TIM", "SAM SERCOM")


@pytest.mark.one_in(12)
@pytest.mark.parametrize(
    "part",
    [
        pytest.param(p, id=p.name.replace(" ", "_"), marks=[pytest.mark.slow] * (p.name in MANY_FAULTS))
        for p in (*PARTS, *HELD)
    ],
)
def test_faults_of_drivers_of_silicon_are_refuted(part: Part, tmp_path: Path) -> None:
    """In a function that makes the access."""
    build = of_silicon(part, tmp_path)
    wrong = [(what, artifacts) for what, (_, artifacts) in faulty(build)]
    assert wrong
    for what, artifacts in wrong:
        results = prove(build[0], triple_of("pulpino"), artifacts, callers(build, what.partition(":")[0]))
        assert any(v.what == "refuted" for v in results), what


SYNC_REGISTERS = "A@0: A:0:8\nB@4: B:0:8\nC@8: C:0:8\nD@12: D:0:8\nS@16: BUSY:0:1:r ERR:1:1:r"
SYNC_OVERLAY = 'fields: {"C.[A-D].*": {plain: true}}'
SYNCED = """bfGroup S { bit BUSY; bit ERR; uint8 A; uint8 B; uint8 C; uint8 D; }; make_device(S, s, 0x40000000);
static void sync(void) { while (s->BUSY) ; }
static int failed(void) { if (!s->ERR) return 0; return s->BUSY ? -1 : -2; }
void t(int a) { s->A = a; sync(); s->B = a; sync(); s->C = a; sync(); s->D = a; sync(); s->A = 1; sync(); }
int u(void) { while (s->BUSY) { int f = failed(); if (f) return f; } s->A = 1; while (s->BUSY) ; return 0; }"""


def test_faults_among_many_loops_that_wait_are_refuted(tmp_path: Path) -> None:
    build = compiled(Case(0, "synced", SYNCED, registers=SYNC_REGISTERS, overlay=SYNC_OVERLAY), tmp_path)
    assert [v for v in verdicts(build) if v.what != "proved"] == []
    for what, (_, artifacts) in faulty(build):
        results = prove(build[0], triple_of("pulpino"), artifacts, callers(build, what.partition(":")[0]))
        assert any(v.what == "refuted" for v in results), what


SHARED_GROUP = """bfGroup Set { bit A; bit B; }; bfGroup P { bfGroup Set INTENSET; bfGroup Set MASK; };
make_device(P, p, 0x40000000);
void t(void) { p->INTENSET.A = 1; p->MASK = (bfGroup Set){ .A = 1 }; p->MASK.B = 1; p->INTENSET.B = 1; }"""


def test_registers_that_share_a_group_are_proved(tmp_path: Path) -> None:
    """Only one of them has side effects: what is written back to the other is no event."""
    overlay = 'fields: {"C.INTENSET.*": {back: "0"}, "C.MASK.*": {plain: true}}'
    registers = "INTENSET@0: A:0:1 B:1:1\nMASK@4: A:0:1 B:1:1 C:2:1"
    build = compiled(Case(0, "pair", SHARED_GROUP, registers=registers, overlay=overlay), tmp_path)
    assert [v for v in verdicts(build) if v.what != "proved"] == []
    for what, wrong in faulty(build):
        assert any(v.what == "refuted" for v in verdicts(wrong)), what


HELD_OVER = """bfGroup M { bit A; bit B; uint8 KEY; }; bfGroup S { bfGroup M R; bit D; }; make_device(S, s, 0x40000000);
void t(int n) { bfGroup M m = s->R; m.KEY = 0x37; m.A = 1; s->R = m; while (!s->D) ; m.B = n; s->R = m; }"""


def test_a_group_variable_across_a_loop_that_waits(tmp_path: Path) -> None:
    """It holds what the source does not name, too, whatever the register has by then."""
    registers = "R@0: A:0:1 B:1:1 KEY:16:8 CF:25:1\nS@4: D:0:1:r"
    overlay = 'fields: {"C.R.[ABC]*": {plain: true}, "C.R.KEY": {back: never}}'
    build = compiled(Case(0, "held over", HELD_OVER, registers=registers, overlay=overlay), tmp_path)
    assert [v for v in verdicts(build) if v.what != "proved"] == []
    driver, artifacts = build
    for mask in ("0xFFFFFFFDu", "0xFDFFFFFDu"):  # the second one loses CF
        text = [a.data.replace(b"r & 0xFFFFFFFDu", f"r & {mask}".encode()) for a in artifacts]
        wrong = driver, tuple(replace(a, data=t) for a, t in zip(artifacts, text, strict=True))
        assert [v.what for v in verdicts(wrong)] == (["proved"] if mask == "0xFFFFFFFDu" else ["refuted"])


NAMESAKES = """bfGroup C { bit EN; uint4 D; }; bfGroup P { bfGroup C ONE; bfGroup C TWO; bit Z; };
make_device(P, p, 0x40000000);
void open(int v) { p->ONE = (bfGroup C){ .EN = 1, .D = v }; p->TWO = (bfGroup C){ .D = v }; p->Z = 1; p->ONE.D = 2; }"""


def test_fields_that_the_source_leaves_out_are_distinguished(tmp_path: Path) -> None:
    """ONE, TWO and THREE each hold an X of their own, of which the source knows nothing."""
    overlay = 'fields: {"C.*.*": {plain: true}}'
    registers = "ONE@0: X:0:1 EN:1:1 D:4:4\nTWO@4: X:0:3 EN:3:1 D:4:4\nTHREE@8: X:0:1 Z:5:1"
    build = compiled(Case(0, "names", NAMESAKES, registers=registers, overlay=overlay), tmp_path)
    assert [v for v in verdicts(build) if v.what != "proved"] == []
    planted = list(faulty(build))
    assert sum("1u ^" in what for what, _ in planted) >= 3  # the lowest bit is one that the source leaves out
    for what, wrong in planted:
        assert any(v.what == "refuted" for v in verdicts(wrong)), what


IDLE = """bfGroup C { bit EN; bit GO; uint4 D; }; bfGroup P { bfGroup C CR; bfGroup C OTHER; };
make_device(P, p, 0x40000000);
void stop(void) { p->CR.GO = 0; }
void all(int v) { p->CR.EN = 1; p->CR.GO = 0; p->CR.D = v; p->OTHER.GO = 0; p->OTHER.D = v; }
void either(int v) { if (v) p->CR.GO = 0; else p->CR.GO = 1; }
void any(int v) { p->CR.GO = v; p->OTHER.GO = v; }
void group(void) { p->CR = (bfGroup C){ .EN = 1, .GO = 0 }; }"""


@pytest.mark.parametrize("order", ["", "plain: true", "memory: true"])
def test_writes_of_values_that_do_nothing_are_proved(order: str, tmp_path: Path) -> None:
    """Their store may be there, with its neighbours as they are, once and in its own register."""
    rest = f"access: rw, {order}" if order else "access: rw"
    overlay = "\n".join(
        [
            "fields:",
            *(f"  C.{r}.{f}: {{{rest}}}" for r in ("CR", "OTHER") for f in ("EN", "D")),
            '  "C.*.GO": {back: "0"}',
        ]
    )
    registers = "CR@0: EN:0:1 GO:1:1 D:4:4\nOTHER@4: EN:0:1 GO:1:1 D:4:4"
    build = compiled(Case(0, "idle", IDLE, registers=registers, overlay=overlay), tmp_path)
    assert [v for v in verdicts(build) if v.what != "proved"] == []
    if order == "memory: true":  # there a store of what is there, or one soon written over, is no difference
        return
    for what, wrong in faulty(build):
        assert any(v.what == "refuted" for v in verdicts(wrong)), what
    body = next(a for a in build[1] if a.name == "case.c").data.decode()
    stop = "{ HAL_WRITE_P_CR_GO(p, 0); }"
    assert stop in body
    for more in ("HAL_WRITE_P_CR_GO(p, 0); HAL_WRITE_P_CR_GO(p, 0);", "HAL_WRITE_P_OTHER_GO(p, 0);"):
        changed = body.replace(stop, f"{{ {more} }}").encode()
        new = tuple(Artifact(a.name, changed) if a.name == "case.c" else a for a in build[1])
        assert [v.function for v in verdicts((build[0], new)) if v.what == "refuted"] == ["stop"]


ACTING = """bfGroup R { uint4 F; bit GO; uint4 G; }; bfGroup D { bfGroup R R; bit S; }; make_device(D, d, 0x40000000);
void start(int v) { d->R.F = v; d->R.GO = 1; d->R.G = 4; }
int both(int v) { d->R.F = v; d->R.GO = v; d->R.G = v; return d->R.F + d->S; }"""


@pytest.mark.parametrize("effect", ["self", "C.S.S", "C.S.S, C.R.F"])
def test_a_field_with_an_effect_may_be_written_back(effect: str, tmp_path: Path) -> None:
    """As `plain` says: a write of its neighbour stores what is there, and that has no effect."""
    overlay = f'fields: {{"C.R.[FG]": {{plain: true}}, "C.R.GO": {{plain: true, wse: [{effect}]}}}}'
    registers = "R@0: F:0:4 GO:4:1 G:8:4\nS@4: S:0:1"
    build = compiled(Case(0, "acting", ACTING, registers=registers, overlay=overlay), tmp_path)
    assert [v for v in verdicts(build) if v.what != "proved"] == []
    planted = list(faulty(build))
    assert len(planted) >= 6
    for what, wrong in planted:
        assert any(v.what == "refuted" for v in verdicts(wrong)), what


def test_the_command_proves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.bf.c").write_text(
        "bfGroup G { bit a; bit b; };\nmake_device(G, g, 0x40000000);\nvoid t(void) { g->a = 1; g->b = 0; }\n"
    )
    assert (
        main(["driver", str(tmp_path / "x.bf.c"), "--name", "x", "--target", "pulpino", "--prove", "-o", str(tmp_path)])
        == 0
    )
    assert "t: proved\n1 proved, 0 refuted, 0 unknown" in capsys.readouterr().out


WORDS = """#include <stdatomic.h>
#include <stddef.h>
bfGroup D { uint8 f; uint4 a[2]; bit g; }; make_device(D, d, 0x40000000);
struct plain { int one; int two; };
static atomic_int n;
int offsets(void) { return (int)offsetof(bfGroup D, a) + 256 * (int)offsetof(struct plain, two); }
int elvis(int v) { d->a[0] = v; return d->f ?: (d->g = 1, d->a[0] ?: v); }
int counted(void) { return atomic_fetch_add(&n, d->f) + (int)offsetof(bfGroup D, g); }"""


def test_words_of_the_compiler_are_proved(tmp_path: Path) -> None:
    """`offsetof` and `a ?: b` are no operations on atomic objects."""
    build = compiled(Case(0, "words", WORDS), tmp_path)
    assert [v for v in verdicts(build) if v.what != "proved"] == []
    body = next(a for a in build[1] if a.name == "case.c").data.decode()
    fault = {"offsets": ("(int)4u", "(int)8u"), "elvis": ("?: v", "?: 1"), "counted": ("(&n, ", "(&n, 1 +")}
    for function, (old, new) in fault.items():
        assert body.count(old) == 1, body
        wrong = tuple(replace(a, data=body.replace(old, new).encode()) if a.name == "case.c" else a for a in build[1])
        assert [v.function for v in verdicts((build[0], wrong)) if v.what == "refuted"] == [function]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_programs_are_never_refuted(seed: int, tmp_path: Path) -> None:
    generator = Generator(Random(seed))
    text = "#include <stdatomic.h>\n#include <stddef.h>\n" + "\n".join(generator.program(n).c() for n in range(3))
    build = compiled(Case(0, "random", text, target="riscv-virt" if seed % 2 else "pulpino"), tmp_path)
    results = verdicts(build)
    assert [v for v in results if v.what == "refuted"] == []
    assert any(v.what == "proved" for v in results)


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("what", PACKED)
def test_arrays_in_one_register_are_proved(what: str, tmp_path: Path) -> None:
    """A store of one element counts for all; a wrong shift or a lost neighbour is refuted."""
    fields, reset, source, *_ = PACKED[what]
    bench = one_register(tmp_path, fields, reset, source, PLAIN)
    artifacts = tuple(Artifact(name, data) for name, data in bench.files.items())
    assert [v for v in verdicts((bench.driver, artifacts)) if v.what != "proved"] == []
    for wrong, faults in faulty((bench.driver, artifacts)):
        assert any(v.what == "refuted" for v in verdicts(faults)), wrong
    header = bench.files["case_hal.h"].decode()
    moved = re.sub(r"(?<!int )\bindex\b", "(index + 1)", header)
    new = tuple(Artifact(a.name, moved.encode()) if a.name == "case_hal.h" else a for a in artifacts)
    assert any(v.what == "refuted" for v in verdicts((bench.driver, new)))


VIEWS = """bfGroup Out { uint2 S; uint3 M; bit PE; }; bfGroup In { uint2 S; uint2 P; uint4 F; };
bfGroup Flags { bit w0c U; bit w0c A; }; bfGroup Tim { bfGroup Out OUT; bfGroup In IN; bfGroup Flags SR; };
make_device(Tim, t, 0x40000000);
void both(int v) { t->OUT.M = v; t->OUT.PE = 1; t->IN.P = v; t->IN.F = 3; t->OUT.S = 1; }
void clear(int last) { t->SR = (bfGroup Flags){ .A = 0 };
    t->OUT.PE = 0; t->OUT.M = last; if (last) { t->OUT.S = 0; t->OUT.PE = 0; } }"""
VIEW_REGISTERS = "OUT@0: S:0:2 PE:3:1 M:4:3\nIN@0: S:0:2 P:2:2 F:4:4\nSR@16: U:0:1 A:1:1 B:2:1"


@pytest.mark.parametrize("order", ["plain", "memory"])
def test_views_of_one_address_are_proved(order: str, tmp_path: Path) -> None:
    """Two registers at one address, a store of what is there already, and flags that the source does not name."""
    overlay = f'fields: {{"C.OUT.*": {{{order}: true}}, "C.IN.*": {{{order}: true}}, "C.SR.*": {{back: "1"}}}}'
    build = compiled(Case(0, "views", VIEWS, registers=VIEW_REGISTERS, overlay=overlay), tmp_path)
    assert [v for v in verdicts(build) if v.what != "proved"] == []
    for what, wrong in faulty(build):
        assert any(v.what == "refuted" for v in verdicts(wrong)), what
    body = next(a for a in build[1] if a.name == "case.c").data.decode()
    both = body[body.index("void both") : body.index("void clear")]
    assert re.findall(r"HAL_WRITE_Tim_(OUT|IN)_", both) == ["OUT", "IN", "OUT"]  # they share bits: their order counts


MANY = """bfGroup Ev { uint32 H; uint32 L; }; bfGroup Adc { bfGroup Ev EV[8]; uint32 PORT; uint8 n; };
make_device(Adc, adc, 0x40000000);
static volatile int seen;
int limits(int bits)
{
    int m = 0;
    for (int i = 0; i < 8; i++) {
        if (adc->EV[i].H) { adc->EV[i].H = 0; m |= bits << i; }
        if (adc->EV[i].L) { adc->EV[i].L = 0; m |= 256 << i; }
    }
    return m;
}
bf_interrupt void isr(void)
{
    for (int i = 0; i < 8; i++)
        if (adc->EV[i].H) {
            adc->EV[i].H = 0;
            (void)adc->EV[i].H;
            seen |= 1 << i;
        }
    if (adc->PORT)
        adc->PORT = 0;
}
int total(const int *p, int n) { int s = 0; do { while (adc->PORT) adc->n = s; s += *p++; } while (--n); return s; }"""


def many(folder: Path) -> Compiled:
    registers = "".join(f"EV{i}_H@{8 * i}: H:0:32\nEV{i}_L@{8 * i + 4}: L:0:32\n" for i in range(8))
    return compiled(Case(0, "many", MANY, registers=registers + "PORT@64: P:0:32\nN@68: n:0:8"), folder)


def test_loops_with_many_ways_are_proved_by_induction(tmp_path: Path) -> None:
    """65,536 ways through one function, and loops without an end."""
    results = [(v.function, v.what, v.bounded) for v in verdicts(many(tmp_path))]
    assert results == [(f, "proved", False) for f in ("limits", "isr", "total")]


@pytest.mark.parametrize(
    ("old", "new"), [("m |= bits << i", "m |= bits << 7"), ("i < 8", "i < 7"), ("s += *p++", "s -= *p++")]
)
def test_faults_in_loops_are_refuted(old: str, new: str, tmp_path: Path) -> None:
    driver, artifacts = many(tmp_path)
    body = next(a for a in artifacts if a.name == "case.c").data.decode()
    wrong = tuple(Artifact(a.name, body.replace(old, new).encode()) if a.name == "case.c" else a for a in artifacts)
    assert any(v.what == "refuted" for v in verdicts((driver, wrong)))


@pytest.mark.slow
def test_faults_in_accesses_of_loops_are_refuted(tmp_path: Path) -> None:
    for what, wrong in faulty(many(tmp_path)):
        assert any(v.what == "refuted" for v in verdicts(wrong)), what


SHAPES = """bfGroup D { uint8 f; }; make_device(D, d, 0x40000000);
struct pair { struct { unsigned char low, high; } part[2]; int sum; };
static int next(int v) { return v + d->f; }
int taken(int v) { return next(v) - next(v); }
void noted(struct pair *p) { p->sum = d->f; p->part[1].high = 3; }"""


@pytest.mark.parametrize(
    ("old", "new", "function", "what"),
    [
        ("int sum;", "short sum;", "pair", "refuted"),
        ("unsigned char low, high;", "unsigned char high, low;", "pair", "refuted"),
        ("part[2]", "part[3]", "pair", "refuted"),
        ("return v + ", "(void)", "taken", "refuted"),
    ],
)
def test_structs_of_other_members_and_missing_values(
    old: str, new: str, function: str, what: str, tmp_path: Path
) -> None:
    """Other files know a struct's members; a function without a value has any."""
    build = compiled(Case(0, "shapes", SHAPES), tmp_path)
    assert [v for v in verdicts(build) if v.what != "proved"] == []
    body = next(a for a in build[1] if a.name == "case.c").data.decode()
    assert body.count(old) == 1, body
    wrong = tuple(replace(a, data=body.replace(old, new).encode()) if a.name == "case.c" else a for a in build[1])
    assert {v.function: v.what for v in verdicts((build[0], wrong))}[function] == what
