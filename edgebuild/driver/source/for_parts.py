"""The parts of a `for`: those that are missing have no child in libclang's tree."""

from __future__ import annotations

from clang.cindex import Cursor

from edgebuild.driver.source import clang


def for_parts(c: Cursor) -> tuple[list[Cursor], list[Cursor], list[Cursor]] | None:
    """(start, condition, step) of a loop, each of one expression or statement, or none.

    The places of the two semicolons tell which is which; None where they cannot be seen.
    """
    *parts, _ = clang.children(c)
    if len(parts) in (0, 3):
        return parts[:1], parts[1:2], parts[2:]
    places = _semicolons(c)
    if places is None:
        return None
    first, second = places
    starts = [clang.span(p)[0] for p in parts]
    start = [p for p, at in zip(parts, starts, strict=True) if at < first]
    condition = [p for p, at in zip(parts, starts, strict=True) if first < at <= second]
    return start, condition, [p for p, at in zip(parts, starts, strict=True) if at > second]


def _semicolons(c: Cursor) -> tuple[int, int] | None:
    depth, found = 0, []
    for token in c.get_tokens():
        word = token.spelling
        depth += (word in "([{") - (word in ")]}")
        if word == ";" and depth == 1:
            found.append(token.extent.start.offset)
            if len(found) == 2:
                return found[0], found[1]
    return None
