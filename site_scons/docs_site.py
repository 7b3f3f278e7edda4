"""Hooks of MkDocs (mkdocs.yml): they add the pages at the top of the checkout to those of docs/, and adapt links."""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
TOP = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "SECURITY.md": "SECURITY.md",
       "CHANGELOG.md": "CHANGELOG.md"}  # fmt: skip
LINK = re.compile(r"(?<!!)\[([^]]*)\]\(([^)#]+)(#[^)]*)?\)|(!\[[^]]*\]\()([^)]+)\)")


def on_files(files, config):
    for source, name in TOP.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown, page, **_):
    """Rewrite links between the top and docs/ for the site; links to files that the site lacks become text."""
    folder = "" if page.file.src_uri in TOP.values() else "docs"

    def moved(match):
        text, target, place, picture, source = match.groups()
        if picture:
            return f"{picture}{source.removeprefix('docs/')})"
        if "://" in target:
            return match[0]
        file = (ROOT / folder / target).resolve().relative_to(ROOT).as_posix()
        name = TOP.get(file, file.removeprefix("docs/") if file.startswith("docs/") else "")
        return f"[{text}]({name}{place or ''})" if name else f"{text} (`{file}`)"

    return LINK.sub(moved, markdown)
