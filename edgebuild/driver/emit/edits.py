"""Edits of a text: pieces that something else takes the place of, nested as they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Render = Callable[[], str]


@dataclass(eq=False)
class Edit:
    """A piece of text, and what stands there instead."""

    start: int
    end: int
    render: Render
    inner: list[Edit] = field(default_factory=list)


class Text:
    """The unit's text and the edits of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.edits: list[Edit] = []
        self.active: list[Edit] = []

    def add(self, start: int, end: int, render: Render) -> None:
        self.edits.append(Edit(start, end, render))

    def nest(self) -> list[Edit]:
        """The outermost edits, each with those inside of it. Of two with one range the later added is inside."""
        order = sorted(enumerate(self.edits), key=lambda e: (e[1].start, -e[1].end, e[0]))
        top: list[Edit] = []
        stack: list[Edit] = []
        for _, edit in order:
            while stack and not (stack[-1].start <= edit.start and edit.end <= stack[-1].end):
                stack.pop()
            (stack[-1].inner if stack else top).append(edit)
            if edit.end > edit.start:
                stack.append(edit)
        return top

    def rewritten(self) -> str:
        top = self.nest()
        return self._between(0, len(self.data), top)

    def part(self, start: int, end: int) -> str:
        """The text of a range inside of the edit that is being rendered, with the edits in it."""
        inside = [e for e in self.active[-1].inner if start <= e.start and e.end <= end] if self.active else []
        return self._between(start, end, inside)

    def whole(self) -> str:
        """The range of the edit that is being rendered, with the edits in it."""
        edit = self.active[-1]
        return self._between(edit.start, edit.end, edit.inner)

    def _between(self, start: int, end: int, edits: Iterable[Edit]) -> str:
        out, at = [], start
        for edit in edits:
            out.append(self.data[at : edit.start].decode())
            self.active.append(edit)
            text = edit.render()
            self.active.pop()
            lost = self.data.count(b"\n", edit.start, edit.end) - text.count("\n")
            out.append(text + "\n" * max(0, lost))
            at = edit.end
        out.append(self.data[at:end].decode())
        return "".join(out)
