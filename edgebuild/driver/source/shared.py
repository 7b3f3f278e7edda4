"""Sources of one driver are one unit, so a macro of one source must not change what another one means."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from edgebuild.base.errors import caret, fail

DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:[^\n\\]|\\.|\\\n)*)", re.M)
UNDEF = re.compile(r"^[ \t]*#[ \t]*undef[ \t]+(\w+)", re.M)
TEST = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif)\b([^\n]*)", re.M)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def check_macros(texts: Sequence[tuple[Path, str]], given: Collection[str]) -> None:
    """Raise EdgebuildError where a source asks for a macro that one before it defines in another way.

    Compiled by itself it would find none. `given`: macros that all of them find.
    """
    before: dict[str, tuple[Path, str]] = {}
    for path, text in texts:
        bare = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
        own = {m[1]: (m.start(), " ".join(m[2].split())) for m in reversed([*DEFINE.finditer(bare)])}
        for test in TEST.finditer(bare):
            for word in re.finditer(r"[A-Za-z_]\w*", test[1]):
                name = word[0]
                if name not in before or name in given:
                    continue
                place, value = own.get(name, (len(bare), ""))
                if place > test.start() and (name not in own or value != before[name][1]):
                    raise _changed(path, text, test.start(1) + word.start(), name, before[name][0])
        before |= {name: (path, value) for name, (_, value) in own.items()}
        for name in UNDEF.findall(bare):
            before.pop(name, None)


def _changed(path: Path, text: str, at: int, name: str, other: Path) -> Exception:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    said = f"'{name}' is a macro of {other.name}, which stands in front of this source in the same unit"
    hints = (*caret(text.split("\n")[line - 1], column, len(name)), "  use another name, or make two drivers")
    return fail(said, file=str(path), line=line, column=column, hints=hints)
