"""Every command of the documentation works as it is written, and every link leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgebuild.base.options import options_of
from edgebuild.base.request import ModelRequest
from tests.conftest import ROOT
from tests.docs.pages import ELSEWHERE, FILE, OWN_TESTS, PAGES, blocks, script

OUTSIDE = "../shared"  # models that are not part of the project
SCRIPTS = {page.relative_to(ROOT): text for page in PAGES if page.name not in ELSEWHERE and (text := script(page))}
# By new users: always run, of the others a twelfth. tests/doors builds the sample projects.
FOLLOWED = [Path("README.md"), Path("docs/c-api.md"), Path("docs/integrate.md"), Path("docs/tutorial.md")]


def marks(page: Path, number: int) -> list[pytest.MarkDecorator]:
    meson = [pytest.mark.needs("meson")] if "\nmeson " in SCRIPTS[page] else []
    return meson if page in FOLLOWED or number % 12 == 1 else [*meson, pytest.mark.slow]


@pytest.mark.parametrize(
    "page", [pytest.param(p, id=str(p), marks=marks(p, number)) for number, p in enumerate(SCRIPTS)]
)
@pytest.mark.needs("bash", "gcc", "arm-none-eabi-gcc", "qemu-system-arm", "cmake", "make", "ninja")
def test_commands_of_a_page(page: Path, tmp_path: Path) -> None:
    """In a folder that looks like the checkout, one command after the other."""
    text = SCRIPTS[page]
    if OUTSIDE in text and not (ROOT / OUTSIDE).exists():
        pytest.skip(f"{OUTSIDE} is absent")
    for entry in ROOT.iterdir():
        if entry.name not in ("build", ".venv", ".git"):
            (tmp_path / entry.name).symlink_to(entry)
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT), "VIRTUAL_ENV": sys.prefix}
    done = subprocess.run(
        ["bash", "-e", "-x", "-o", "pipefail", "-c", text], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{page}:\n{done.stderr[-3000:]}\n{done.stdout[-2000:]}"


def test_nearly_every_page_of_use_has_commands() -> None:
    names = {page.name for page in SCRIPTS}
    assert {"README.md", "tutorial.md", "integrate.md", "c-api.md", "debugging.md", "tiling.md", "clocks.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_are_marked_so_that_they_run(page: Path) -> None:
    """A block that begins with a program of ours has `$ ` in front of it."""
    for block in blocks(page):
        first = block.text.split(None, 1)[0]
        assert page.name in ELSEWHERE or first not in ("edgebuild", "cmake", OWN_TESTS), (
            f"{page.name}:{block.line}: write `$ {first} ...`"
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_occur_in_the_files_that_a_page_names(page: Path) -> None:
    """Where a page says "`name` in `file.py`", the name stands there: readers open that file."""
    for name, file in re.findall(r"`(\w+)`\s+(?:in|of)\s+`([\w/]+\.py)`", page.read_text()):
        files = [
            f for folder in ("edgebuild", "tests") for f in (ROOT / folder).rglob("*.py") if str(f).endswith(f"/{file}")
        ]
        assert any(re.search(rf"\b{name}\b", f.read_text()) for f in files), f"{page.name}: {name} is not in {file}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_calls_within_a_sentence_are_those_of_the_build_systems(page: Path) -> None:
    """Compare their arguments with the table of options: nobody runs what stands between backquotes."""
    options = {o.upper() for o in options_of(ModelRequest)} | {"TARGET", "NAME", "MODEL"}
    text = page.read_text()
    for arguments in re.findall(r"`env\.Model\(([^`]*)\)`", text):
        assert options.issuperset(re.findall(r"(\w+)=", re.sub(r"'[^']*'", "", arguments))), f"{page.name}: {arguments}"
    for arguments in re.findall(r"`(?:edgebuild_)?add_model\(([^`.]+ [^`]*)\)`", text):
        name, first, *_ = arguments.split()
        assert first == "MODEL", f"{page.name}: {name} {first}"
        assert options.issuperset(re.findall(r"(?<= )[A-Z_]{4,}(?= )", arguments))


def test_file_blocks_are_recognised() -> None:
    assert (
        FILE.fullmatch("# app/CMakeLists.txt") and FILE.fullmatch("/* app/main.c */") and FILE.fullmatch("# SConstruct")
    )
    assert not FILE.fullmatch("# CMakeLists.txt      # SConscript") and not FILE.fullmatch("# a comment of words")
