"""Drawings as values: boxes, lines, words and dots, which one template prints as SVG.

Colours of ink, grid and ground are roles, which the style of a page or of a file by itself sets for light and dark.
Boxes have colours of their own; their words are black or white, whichever has the higher contrast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import floor, log10

from ...base.dataclass import dataclass
from ...base.templates import render

COLOURS = ("#2f6db3", "#f0a030", "#3f8f4f", "#b05fa8", "#d9534f", "#4fa8a0", "#8a6a52", "#e3c93c")
LETTER = 6.4  # pixels of a letter of ten pixels, at most on average
ACCENT = "accent"


@dataclass(frozen=True)
class Shape:
    """A rectangle, line, word, dot or polyline. `role`: its style; `fill`: its own colour; `title`: its tooltip."""

    kind: str
    x: float
    y: float
    width: float = 0.0
    height: float = 0.0
    text: str = ""
    title: str = ""
    role: str = ""
    fill: str = ""
    anchor: str = "start"
    points: str = ""


@dataclass(frozen=True)
class Drawing:
    """`title` says to those who cannot see it what it shows."""

    title: str
    width: int
    height: int
    shapes: tuple[Shape, ...]

    def svg(self) -> str:
        """A file by itself."""
        return render("drawing.svg.j2", drawing=self, alone=True)


def box(x: float, y: float, width: float, height: float, fill: str, title: str, label: str = "") -> Iterator[Shape]:
    """A coloured rectangle with as much of its label as fits inside."""
    yield Shape("rect", _r(x), _r(y), _r(width), _r(height), title=title, fill=fill)
    if label and height >= 11 and (text := fitted(label, width - 6)):
        yield Shape("text", _r(x + 3), _r(y + min(height / 2 + 3.5, 11)), text=text, fill=ink_on(fill), title=title)


def line(x: float, y: float, x2: float, y2: float, role: str = "grid") -> Shape:
    return Shape("line", _r(x), _r(y), _r(x2), _r(y2), role=role)


def words(x: float, y: float, text: str, anchor: str = "start", role: str = "ink") -> Shape:
    return Shape("text", _r(x), _r(y), text=text, anchor=anchor, role=role)


def dot(x: float, y: float, title: str, fill: str, radius: float = 4.0) -> Shape:
    return Shape("dot", _r(x), _r(y), radius, title=title, fill=fill)


def polyline(points: Iterable[tuple[float, float]]) -> Shape:
    return Shape("polyline", 0.0, 0.0, points=" ".join(f"{_r(x)},{_r(y)}" for x, y in points), role="curve")


def legend(x: float, y: float, entries: Iterable[tuple[str, str]]) -> Iterator[Shape]:
    """Squares with words behind them, in a row: (colour, text)."""
    for colour, text in entries:
        yield Shape("rect", _r(x), _r(y - 9), 10.0, 10.0, fill=colour)
        yield words(x + 14, y, text, role="muted")
        x += 28 + LETTER * len(text)


def fitted(text: str, width: float) -> str:
    """The text, or its beginning and an ellipsis, in so many pixels; empty if not even three letters fit."""
    room = int(width / LETTER)
    if len(text) <= room:
        return text
    return f"{text[: room - 1]}\u2026" if room >= 4 else ""


def ticks(most: float, count: int = 5) -> list[float]:
    """Round numbers from zero to `most`, about so many."""
    if most <= 0:
        return [0.0]
    raw = most / count
    power = 10.0 ** floor(log10(raw))
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= raw)
    return [i * step for i in range(int(most / step + 1e-9) + 1)]


def short(number: float) -> str:
    """A number in few letters: 950, 12.5K, 3.1M."""
    for factor, letter in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(number) >= factor:
            return f"{number / factor:.3g}{letter}"
    return f"{number:.3g}"


def ink_on(fill: str) -> str:
    """Black or white, whichever is easier to read on a colour `#rrggbb`."""
    return "#000000" if contrast("#000000", fill) >= contrast("#ffffff", fill) else "#ffffff"


def contrast(a: str, b: str) -> float:
    """Contrast ratio of two colours (WCAG 2.1, relative luminance), from 1 to 21."""
    low, high = sorted((_luminance(a), _luminance(b)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def drawn(title: str, width: int, height: int, shapes: Iterable[Shape] | Sequence[Shape]) -> Drawing:
    return Drawing(title, width, height, tuple(shapes))


def _r(number: float) -> float:
    return round(number, 1)
