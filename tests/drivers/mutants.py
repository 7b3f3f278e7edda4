"""Small faults in generated drivers, and whether a proof accepts one that a random trace tells from the original."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from edgebuild.base.artifacts import Artifact
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest
from edgebuild.driver.merge.merging import Driver
from edgebuild.driver.pipeline import compile_driver, triple_of
from tests.conftest import ROOT
from tests.drivers.cases import Case, svd
from tests.drivers.judge import Judge
from tests.drivers.more_cases import CASES
from tests.drivers.peripherals import PERIPHERALS
from tests.drivers.programs import Generator
from tests.drivers.silicon import PARTS, Part, cut

Change = Callable[[str, Random], str]  # of the text that a pattern fits
SEEDS = range(10)
WIDTHS = ("unsigned char", "unsigned short", "unsigned int", "unsigned long long")


def _other(*choices: str) -> Change:
    return lambda text, random: random.choice([c for c in choices if c != text])


def _number(text: str, random: Random) -> str:
    """Another number: the next one, one with another bit, or none at all."""
    digits, suffix = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)", text).groups()  # type: ignore[union-attr]
    value = int(digits, 0)
    changed = random.choice([value + 1, max(0, value - 1), value ^ (1 << random.randrange(8)), value + 4, 0, value * 2])
    return f"{changed}{suffix}" if changed != value else f"{value + 1}{suffix}"


HEADER: dict[str, tuple[str, Change]] = {  # name: (what is changed, how)
    "width": (r"(?<=\*\(volatile )unsigned \w+(?: long)?(?= \*\))", _other(*WIDTHS)),
    "address": (
        r"(?<=__UINTPTR_TYPE__\)group)(?: \+ \w+)?(?=\))",
        lambda t, r: r.choice([" + 1u", " + 4u", " + 0x10u", ""]),
    ),
    "number": (r"\b(?:0x[0-9A-F]+|\d+)u(?:ll)?\b", _number),
    "shift": (r"(?<=(?:<<|>>) )\d+", _number),
    "shift way": (r"<<|>>", _other("<<", ">>")),
    "store left out": (r"(?<=\n)    \*\(volatile[^;]*;", lambda t, r: "    ;"),
    "store twice": (r"(?<=\n)    \*\(volatile[^;]*;", lambda t, r: t + "\n" + t),
    "read twice": (
        r"(?<=\n)    unsigned [^=;]*= (\*\(volatile[^;]*;)",
        lambda t, r: f"{t}\n    r = {t[t.index('*') :]}",
    ),
    "read left out": (r"(?<= = )\*\(volatile[^;]*(?=;)", lambda t, r: "0u"),
    "read besides": (
        r"(?<=\n)    \*\(volatile[^;=]*= [^;]*;",
        lambda t, r: f"    (void){t.strip().partition(' = ')[0]};\n{t}",
    ),
    "not volatile": (r"(?<=\*\()volatile ", lambda t, r: ""),
    "operator": (r" [|&] ", _other(" | ", " & ", " ^ ")),
    "stride": (r"(?<=index \* )\d+u", _number),
    "no index": (r" \+ index(?: \* \d+u)?", lambda t, r: r.choice(["", " + index + 1u"])),
}
CALL = r"HAL_\w+\((?:[^()]|\([^()]*\))*\)"
BODY: dict[str, tuple[str, Change]] = {
    "access left out": (CALL, lambda t, r: "0" if "READ" in t or "LOAD" in t else "(void)0"),
    "access twice": (CALL, lambda t, r: f"({t}, {t})"),
    "statement left out": (r"(?<=[;{}])\s+[^;{}#]+;", lambda t, r: t[: len(t) - len(t.lstrip())] + ";"),
    "statement twice": (r"(?<=[;{}])\s+[^;{}#=]+(?:\([^;{}#]*);", lambda t, r: t + t),
    "statements in turn": (
        r"(?<=[;{}])(\s+[^;{}#]+;)(\s+[^;{}#]+;)",
        lambda t, r: "".join(reversed(re.findall(r"\s+[^;{}#]+;", t))),
    ),
    "number": (r"(?<![\w.#])(?:0x[0-9a-fA-F]+|\d+)[uUlL]*(?![\w.\"])", _number),
    "comparison": (r" (?:<|>|<=|>=|==|!=) ", _other(" < ", " > ", " <= ", " >= ", " == ", " != ")),
    "arithmetic": (r" (?:\+|-|\*|&|\||\^) ", _other(" + ", " - ", " & ", " | ", " ^ ")),
    "logic": (r"&&|\|\|", _other("&&", "||")),
    "not": (r"!(?=[\w(])", lambda t, r: ""),
    "condition": (r"(?<=if \()(?=\w)", lambda t, r: "!"),
    "step": (r"\+\+|--", _other("++", "--")),
    "jump": (r"\b(?:break|continue);", _other("break;", "continue;", ";")),
    "device": (r"(?<=, )0x[0-9A-Fa-f]{8}(?=\))", lambda t, r: hex(int(t, 16) + r.choice([4, 0x1000, -4, 0x100]))),
    "volatile": (r"\bvolatile ", lambda t, r: ""),
    "type": (r"\b(?:int|unsigned|short|char)\b(?= \w)", _other("int", "unsigned", "short", "unsigned char")),
    "result": (r"(?<=return )[^;]+", lambda t, r: r.choice([f"({t}) + 1", "0", f"-({t})"])),
    "no result": (r"return [^;]+;", lambda t, r: ";"),
    "other function": (r"HAL_\w+(?=\()", lambda t, r: t),  # see `_mutants`
    "loop": (r"\b(?:while|if) \(", lambda t, r: t + r.choice(["1 || ", "0 && "])),
}


@dataclass
class Score:
    """Verdicts on the mutants of one driver. `false`: proved, and told apart by a trace."""

    planted: int = 0
    refused: int = 0  # by the compiler
    alike: int = 0  # no trace tells them apart
    refuted: int = 0
    unknown: int = 0
    false: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Mutant:
    title: str
    artifacts: tuple[Artifact, ...]
    functions: frozenset[str]  # of the driver, that are not as they were


Subject = tuple[str, Callable[[Path], tuple[Driver, tuple[Artifact, ...]]]]  # a name, and how it is compiled


def compiled(folder: Path, source: str, target: str, layout: str = "optimize") -> tuple[Driver, tuple[Artifact, ...]]:
    (folder / "case.bf.c").write_text(source)
    artifacts, driver = compile_driver(DriverRequest((folder / "case.bf.c",), "case", target, layout))
    return driver, tuple(a for a in artifacts if a.name in ("case.c", "case_hal.h"))


def _of_case(case: Case, target: str) -> Subject:
    def build(folder: Path) -> tuple[Driver, tuple[Artifact, ...]]:
        layout = "optimize"
        if case.registers:
            (folder / "chip.svd").write_text(svd(case.registers))
            layout = f"fixed:{folder / 'chip.svd'}"
            if case.overlay:
                (folder / "chip.overlay.yaml").write_text(case.overlay)
        for name, text in case.headers.items():
            (folder / name).write_text(text)
        return compiled(folder, case.source, target, layout)

    return case.title, build


def _of_part(part: Part) -> Subject:
    def build(folder: Path) -> tuple[Driver, tuple[Artifact, ...]]:
        text = part.text if part.text.startswith("<") else svd(part.text)
        (folder / "chip.svd").write_bytes(cut(part.file, part.base) if part.file else text.encode())
        (folder / "chip.overlay.yaml").write_text(part.overlay)
        return compiled(folder, part.source, "pulpino", f"fixed:{folder / 'chip.svd'}")

    return part.name, build


def _of_chance(seed: int) -> Subject:
    """A random driver."""
    source = "#include <stddef.h>\n#include <stdatomic.h>\n" + Generator(Random(seed)).program(0).c()
    return f"random program {seed}", lambda folder: compiled(folder, source, "riscv-virt" if seed % 2 else "pulpino")


def _of_file(name: str) -> Subject:
    folder = ROOT / "hal" / "drivers"

    def build(to: Path) -> tuple[Driver, tuple[Artifact, ...]]:
        for header in folder.glob("*.h"):
            (to / header.name).write_bytes(header.read_bytes())
        return compiled(to, (folder / f"pulpino_{name}.bf.c").read_text(), "pulpino")

    return f"pulpino {name}", build


def subject(number: int) -> Subject:
    """One of 40 drivers in turn: of the other tests, of `peripherals`, and random ones that never come again."""
    place, turn = number % 40, number // 40
    if place < 14:
        return _of_case(PERIPHERALS[place], "riscv-virt" if turn % 2 else "pulpino")
    if place < 20:
        return _of_chance(number)
    if place < 22:
        return _of_file(("gpio", "spi")[place - 20])
    parts = [p for p in PARTS if p.present]
    if place < 32 and parts:
        return _of_part(parts[(place - 22 + 10 * turn) % len(parts)])
    cases = [c for c in CASES if not c.error]
    return _of_case(case := cases[(number * 7) % len(cases)], case.target)


def mutants(driver: Driver, artifacts: tuple[Artifact, ...], count: int, random: Random) -> Iterator[Mutant]:
    """Draw single faults: a kind first, then a place."""
    texts = {a.name: a.data.decode() for a in artifacts}
    start = texts["case_hal.h"].index("/* Groups inside of groups")
    names = re.findall(r"\b(HAL_\w+)\(", texts["case_hal.h"])
    for _ in range(20 * count):
        file, kinds = random.choice([("case_hal.h", HEADER), ("case.c", BODY)])
        kind = random.choice(sorted(kinds))
        pattern, change = kinds[kind]
        whole = texts[file]
        places = [m for m in re.finditer(pattern, whole) if file == "case.c" or m.start() > start]
        if not places:
            continue
        m = random.choice(places)
        new = random.choice(names) if kind == "other function" else change(m[0], random)
        if new == m[0]:
            continue
        text = whole[: m.start()] + new + whole[m.end() :]
        changed = _changed(driver, texts, {**texts, file: text})
        line = whole.count("\n", 0, m.start()) + 1
        title = f"{file}:{line}: {kind}: {m[0].strip()!r} as {new.strip()!r}"
        files = tuple(Artifact(a.name, text.encode() if a.name == file else a.data) for a in artifacts)
        yield Mutant(title, files, frozenset(changed))
        count -= 1
        if not count:
            return


def _bodies(text: str) -> dict[str, str]:
    """Functions of generated C by their names."""
    functions = {}
    for m in re.finditer(r"^[^\n;#/*]*?\b(\w+)\([^;{]*\)\s*\{", text, re.MULTILINE):
        at, depth = m.end(), 1
        while depth and at < len(text):
            depth += (text[at] == "{") - (text[at] == "}")
            at += 1
        functions[m[1]] = text[m.start() : at]
    return functions


def _changed(driver: Driver, old: dict[str, str], new: dict[str, str]) -> set[str]:
    """The driver's functions that a change reaches; all of them where it stands outside of functions."""
    before = {n: t for text in old.values() for n, t in _bodies(text).items()}
    after = {n: t for text in new.values() for n, t in _bodies(text).items()}
    changed = {n for n in before if before[n] != after.get(n)}
    if not changed or before.keys() != after.keys():
        return set(driver.cdfg.functions)
    while more := {n for n, t in after.items() if n not in changed and changed & set(re.findall(r"\w+", t[len(n) :]))}:
        changed |= more
    return changed & set(driver.cdfg.functions)


def judged(driver: Driver, artifacts: tuple[Artifact, ...], count: int, seed: int, folder: Path) -> Score:
    """Make mutants of a driver, and prove each that a trace tells from the original, in each function it does."""
    from edgebuild.driver.prove.verdicts import generated_unit, prove
    from edgebuild.driver.prove.versions import Words, compare_programs
    from edgebuild.driver.source.lowering import Program

    triple = triple_of(driver.request.target)
    score, judge = Score(), Judge(driver, folder)
    original = judge.compiled({a.name: a.data for a in artifacts}, "original")
    assert original is not None, "the original does not compile"
    able = judge.judged()
    for mutant in mutants(driver, artifacts, count, Random(seed)):
        score.planted += 1
        program = judge.compiled({a.name: a.data for a in mutant.artifacts}, "mutant")
        if program is None:
            score.refused += 1
            continue
        distinct = {
            n: how for n in able if n in mutant.functions and (how := judge.difference(original, program, n, SEEDS))
        }
        if not distinct:
            score.alike += 1
            continue
        try:
            verdicts = prove(driver, triple, mutant.artifacts, frozenset(distinct))
            versions = (Program(generated_unit(driver, triple, files)) for files in (artifacts, mutant.artifacts))
            plain = compare_programs(*versions, Words("the original", "the mutant", {}), tuple(sorted(distinct)))
        except EdgebuildError:
            score.refused += 1
            continue
        if any(v.what == "refuted" for v in verdicts):
            score.refuted += 1
        else:
            score.unknown += 1
        outside = any(v.function not in driver.cdfg.functions for v in verdicts)
        proved = [v.function for v in verdicts if v.what == "proved" and v.function in distinct and not outside]
        proved += [c.function for c in plain if c.verdict == "proved"]
        score.false += [f"{mutant.title}\n  {name}: {distinct[name]}" for name in proved]
    return score
