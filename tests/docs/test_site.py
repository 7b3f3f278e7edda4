"""The site of the documents: each page has its place, and MkDocs builds it without a warning."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT, run


def leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [leaf for part in (nav.values() if isinstance(nav, dict) else nav) for leaf in leaves(part)]


def test_each_page_has_its_place_once() -> None:
    placed = leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    pages = {file.name for folder in (ROOT, ROOT / "docs") for file in folder.glob("*.md")}
    assert sorted(placed) == sorted((pages - {"README.md"}) | {"index.md"})


def test_the_site(tmp_path: Path) -> None:
    """All links lead to a page and a heading, which strict mode checks; pages load nothing from elsewhere."""
    pytest.importorskip("mkdocs")
    printed = run(sys.executable, "-m", "mkdocs", "build", "-d", tmp_path / "site", cwd=ROOT)
    assert "WARNING" not in printed
    pages = {file.name: file.read_text() for file in (tmp_path / "site").glob("*.html")}
    assert "edgebuild verify" in pages["index.html"] and len(pages) > 30
    for name, page in pages.items():
        assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=.https?:", page), name
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", page, flags=re.DOTALL)
        assert not re.findall(r"\]\([^)]*\)", text), name


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_rows_of_a_table_have_equally_many_cells(page: Path) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), flags=re.MULTILINE):
        rows = [re.sub(r"`[^`\n]*`|\\\|", "", row).count("|") for row in table.splitlines()]
        assert len(set(rows)) == 1, table
