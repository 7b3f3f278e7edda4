"""Every kernel template, whatever model uses it: its assembly states what it overwrites."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgebuild.base.target import hal_dir
from edgebuild.base.templates import FOLDERS, PACKAGE
from edgebuild.model import kernels
from edgebuild.model.ir import Arithmetic

TEMPLATES = sorted(file for folder in FOLDERS for file in (PACKAGE / folder).rglob("*.j2"))
PREDICATES = re.compile(r"\b(?:vctp|vpst|vpt|vcmp|vmsr)\w*")  # instructions that write VPR, which no clobber can name
STATEMENT = re.compile(r"__asm__\b(?:\s+volatile)?\s*\((.*?)\)\s*;", re.S)
WHOLE = re.compile(r"__attribute__\(\(naked\b[^{}]*(?:{{.*?}}|{%.*?%}|[^{}])*\{\s*$", re.S)


def statements(text: str) -> list[tuple[str, str]]:
    """Every assembly statement: the text before it in its function, and the statement."""
    return [(text[: m.start()], m.group(1)) for m in STATEMENT.finditer(text)]


def broken(text: str) -> list[str]:
    """Statements that overwrite the predicate of the code around them: neither whole functions nor saving it."""
    unsafe = []
    for before, statement in statements(text):
        saved = "vmrs" in statement and "vmsr" in statement
        if PREDICATES.search(statement) and not saved and not WHOLE.search(before):
            unsafe.append(statement)
    return unsafe


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_assembly_keeps_the_predicate(file: Path) -> None:
    """gcc keeps P0 across a statement of assembly, and knows no name to say that one changes it."""
    assert not broken(file.read_text())


def test_the_check_finds_a_predicate_that_is_lost() -> None:
    inline = 'static inline void f(void)\n{\n    __asm__ volatile("vctp.8 %0\\n\\t" : : "r"(n) : "memory");\n}\n'
    saved = inline.replace('"vctp', '"vmrs %1, p0\\n\\t" "vctp').replace('%0\\n\\t"', '%0\\n\\t" "vmsr p0, %1"')
    naked = inline.replace("static", "__attribute__((naked, noinline)) static")
    assert broken(inline) and not broken(saved) and not broken(naked)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("arithmetic", Arithmetic)
def test_assembly_of_shared_functions_keeps_the_predicate(arithmetic: Arithmetic) -> None:
    """As printed: macros may hold a part of a statement."""
    assert not broken("\n".join(helper.text for helper in kernels.helpers(arithmetic)))


RESULT = re.compile(r'"[=+](?!&)[^"]*"\(')


def shared_registers(text: str) -> list[str]:
    """Results of several instructions that may share a register with an operand that is read later."""
    return [
        result
        for before, statement in statements(text)
        if statement.count("\\n") > 0 and not WHOLE.search(before)
        for result in RESULT.findall(statement)
    ]


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_results_of_assembly_have_registers_of_their_own(file: Path) -> None:
    """Compilers give a result the register of an operand that has the same value, as a width and a step of 48."""
    assert not shared_registers(file.read_text())


def test_the_check_finds_a_shared_register() -> None:
    inline = '__asm__ volatile("add %0, %0, %1\\n\\t" "sub %0, %0, %1" : "+r"(x) : "r"(y));'
    assert shared_registers(inline) == ['"+r"(']
    assert not shared_registers(inline.replace("+r", "+&r"))
    assert not shared_registers('__asm__("ssat %0, #8, %1" : "=r"(y) : "r"(y));')


ACCESS = re.compile(r"eb_order|v(?:ld|st)r[bh]q(?!_(?:z_|p_)?s8)(?!\{\{[^}]*\}\}_s8)")


def unordered(text: str) -> list[str]:
    """The accesses of a widening or narrowing kind that no `eb_order` keeps apart from those of the other kind."""
    accesses = [match.group() for match in ACCESS.finditer(re.sub(r"/\*.*?\*/", "", text, flags=re.S))]
    kinds = ["order" if word == "eb_order" else word[:4] for word in accesses]
    pairs = zip(["", *kinds], [*kinds, ""], strict=True)
    return [f"{before}, {after}" for before, after in pairs if "order" not in (before, after) and before != after]


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_accesses_that_gcc_takes_for_smaller_ones_are_ordered(file: Path) -> None:
    """gcc 12 describes the memory of `vldrbq_s32` and its like as one element, and reorders what touches the others."""
    assert not unordered(file.read_text())


def test_the_check_finds_an_access_without_order() -> None:
    kernel = "eb_order(); v = vldrbq_z_s32(x, p); eb_order(); vstrbq_p_s32(y, v, p); eb_order();"
    whole = "v = vldrbq_z_s8(x, p); vstrbq_s8(y, v); vldrbq{{ p }}_s8(x);"
    assert not unordered(kernel) and not unordered(whole)
    assert all(unordered(kernel.replace("eb_order();", "", n)) for n in (1, 2, 3))
    assert unordered("eb_order(); vldrbq{{ p }}_s{{ bits }}(x); vstrbq_s16(y, v); eb_order();")


def code(text: str) -> str:
    """A template without comments and without what Jinja computes."""
    return re.sub(r"/\*.*?\*/|\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", "", text, flags=re.S)


SHARED = re.compile(r"\b(?:eb_(?!outputs)[a-z]\w*|EB_(?!CFI|REG\b)\w+|memcpy)\b")


@pytest.mark.parametrize(
    "file",
    [f for f in TEMPLATES if f.name not in ("helpers.c.j2", "math.c.j2", "shared.c.j2", "assembly.c.j2")
     and f.name.endswith(".c.j2") and f.parent.name != "templates" and "clock" not in f.relative_to(PACKAGE).parts],
    ids=lambda file: str(file.relative_to(PACKAGE)),
)  # fmt: skip
def test_templates_say_which_shared_functions_they_use(file: Path) -> None:
    """`{{ use.eb_clamp }}` notes the name; without it, the model's C may lack the function."""
    assert not SHARED.findall(code(file.read_text()))


@pytest.mark.parametrize("arithmetic", Arithmetic)
def test_shared_functions_say_what_they_use(arithmetic: Arithmetic) -> None:
    helpers = kernels.helpers(arithmetic)
    shared = {name for helper in helpers for name in helper.names}
    intrinsics = {"arm_acle.h": r"\b__s(?:mla|sat|xt)\w*", "arm_mve.h": r"\bv\w+q_\w+"}
    for helper in helpers:
        named = {name for name in re.findall(r"\w+", code(helper.text)) if name in shared}
        named |= {file for file, names in intrinsics.items() if re.search(names, code(helper.text))}
        assert named - set(helper.names) == set(helper.uses), helper.names


@pytest.mark.parametrize("arithmetic", Arithmetic)
def test_shared_functions_have_prototypes(arithmetic: Arithmetic) -> None:
    """Functions are marked as such: names that are not of a header, a macro or a type."""
    for helper in kernels.helpers(arithmetic):
        function = not any(name.isupper() or name.endswith((".h", "_t")) for name in helper.names)
        assert bool(helper.head) == function, helper.names
        assert "%=" not in helper.text


@pytest.mark.parametrize("arithmetic", Arithmetic)
def test_helpers_have_names_of_their_own(arithmetic: Arithmetic) -> None:
    """Generated files include headers of the hal: no helper has a name that those declare."""
    declared = {name for file in hal_dir().rglob("*.h") for name in re.findall(r"\beb_\w+", file.read_text())}
    assert "eb_copy" in declared
    assert not declared.intersection(name for helper in kernels.helpers(arithmetic) for name in helper.names)
