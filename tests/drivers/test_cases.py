"""The 64 adversarial cases, each on its own: results, values and the exact trace of accesses."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from tests.drivers.cases import Case, svd
from tests.drivers.machine import Bench, build
from tests.drivers.more_cases import CASES

KEYWORDS = {"class": "kind", "new": "fresh", "_Bool": "bool"}
SELECTED = "_Generic(r->data, unsigned char: 100, default: 0)"  # C++ has overloads in its place


def in_cpp(case: Case) -> Case:
    """The same driver as C++, with C's names for the linker."""
    words = re.compile(rf"\b({'|'.join(KEYWORDS)})\b")
    source = case.source.replace(SELECTED, "select(decltype(r->data)())")
    source = source.replace("bfGroup bit ", "bfGroup pin ").replace("make_device(bit,", "make_device(pin,")
    source = source.replace("bit bit;", "bit one;").replace("->bit", "->one")  # a member may not hide its type
    lines = words.sub(lambda m: KEYWORDS[m[1]], source)
    trace = tuple(words.sub(lambda m: KEYWORDS[m[1]], t).replace("bit=", "one=") for t in case.trace)
    overloads = (
        "static int select(unsigned char) { return 100; }\n[[maybe_unused]] static int select(int) { return 0; }\n"
    )
    head = overloads if SELECTED in case.source else ""
    return replace(case, source=f'{head}extern "C" {{\n{lines}\n}}\n', trace=trace)


def bench(case: Case, folder: Path, cpp: bool = False) -> Bench:
    layout = "optimize"
    if case.registers:
        (folder / "chip.svd").write_text(svd(case.registers))
        if case.overlay:
            (folder / "chip.overlay.yaml").write_text(case.overlay)
        layout = f"fixed:{folder / 'chip.svd'}"
    return build(
        folder, case.source, target=case.target, layout=layout, extra=case.extra, headers=case.headers, cpp=cpp
    )


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.number:02}-{c.title.replace(' ', '_')}")
@pytest.mark.parametrize("cpp", [False, True], ids=["c", "c++"])
def test_case(case: Case, cpp: bool, tmp_path: Path) -> None:
    case = in_cpp(case) if cpp else case
    if case.error:
        with pytest.raises(EdgebuildError) as caught:
            bench(case, tmp_path, cpp)
        assert case.error in str(caught.value)
        assert caught.value.diagnostics[0].line > 0
        return
    b = bench(case, tmp_path, cpp)
    for model in b.machine.models.values():
        model.values.update(case.values)
        model.sequences.update({k: list(v) for k, v in case.sequences.items()})
    for function, *arguments, expected in case.calls:
        numbers = [argument(b, a) for a in arguments]
        got = b.call(str(function), *numbers)
        if expected is not None:
            assert got == expected, f"{function}{tuple(arguments)}; {b.machine.trace}"
    assert tuple(b.machine.trace) == case.trace
    if case.warning:
        assert any(case.warning in w.text for w in b.driver.warnings)


def argument(b: Bench, a: object) -> int:
    """A number, `device+offset`, or `&function`."""
    if isinstance(a, str) and a.startswith("&"):
        return b.machine.symbols[a[1:]][0]
    if isinstance(a, str):
        device, offset = a.split("+")
        group = b.driver.layout.groups[b.driver.dialect.devices[device].group]
        return b.driver.dialect.devices[device].address + group.subs[0].offset + int(offset)
    assert isinstance(a, int)
    return a


def test_there_are_64() -> None:
    assert [c.number for c in CASES] == list(range(1, 65))
