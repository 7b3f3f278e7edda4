"""Every kernel template, whatever model uses it: its assembly states what it overwrites."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgebuild.base.templates import FOLDERS, PACKAGE
from edgebuild.model import kernels

TEMPLATES = sorted(file for folder in FOLDERS for file in (PACKAGE / folder).rglob("*.j2"))
PREDICATES = re.compile(r"\b(?:vctp|vpst|vpt|vcmp|vmsr)\w*")  # instructions that write VPR, which no clobber can name
STATEMENT = re.compile(r"__asm__\b(?:\s+volatile)?\s*\((.*?)\)\s*;", re.S)
WHOLE = re.compile(r"__attribute__\(\(naked\b[^{}]*(?:{{.*?}}|{%.*?%}|[^{}])*\{\s*$", re.S)


def statements(text: str) -> list[tuple[str, str]]:
    """Every assembly statement: the text before it in its function, and the statement."""
    return [(text[: m.start()], m.group(1)) for m in STATEMENT.finditer(text)]


def broken(text: str) -> list[str]:
    """Statements that overwrite the predicate of the code around them: neither whole functions nor saving it."""
    found = []
    for before, statement in statements(text):
        saved = "vmrs" in statement and "vmsr" in statement
        if PREDICATES.search(statement) and not saved and not WHOLE.search(before):
            found.append(statement)
    return found


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_assembly_keeps_the_predicate(file: Path) -> None:
    """gcc keeps P0 across a statement of assembly, and knows no name to say that one changes it."""
    assert not broken(file.read_text())


def test_the_check_finds_a_predicate_that_is_lost() -> None:
    inline = 'static inline void f(void)\n{\n    __asm__ volatile("vctp.8 %0\\n\\t" : : "r"(n) : "memory");\n}\n'
    saved = inline.replace('"vctp', '"vmrs %1, p0\\n\\t" "vctp').replace('%0\\n\\t"', '%0\\n\\t" "vmsr p0, %1"')
    naked = inline.replace("static", "__attribute__((naked, noinline)) static")
    assert broken(inline) and not broken(saved) and not broken(naked)


@pytest.mark.parametrize("arithmetic", ["tflite", "onnx"])
def test_assembly_of_shared_functions_keeps_the_predicate(arithmetic: str) -> None:
    """As printed: macros may hold a part of a statement."""
    assert not broken("\n".join(kernels.helpers(arithmetic)))
