"""XML of register descriptions, with the lines where elements stand."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from edgebuild.base.errors import EdgebuildError, caret, fail


@dataclass(eq=False)
class Element:
    """An element of XML, and where it stands."""

    tag: str
    attributes: dict[str, str]
    line: int
    column: int
    text: str = ""
    children: list[Element] = field(default_factory=list)
    file: str = ""  # another one that a part of the description is from

    def child(self, tag: str) -> Element | None:
        return next((c for c in self.children if c.tag == tag), None)

    def value(self, tag: str) -> str | None:
        child = self.child(tag)
        return child.text.strip() if child else None

    def all(self, *tags: str) -> Iterator[Element]:
        return (c for c in self.children if c.tag in tags)


def wrong(file: str, lines: list[str], number: int, column: int, text: str) -> EdgebuildError:
    """The error with the line that is wrong and a mark below it."""
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    return fail(text, file=file, line=number, column=column, hints=caret(line, column) if line else ())


LISTS = ("peripherals", "registers", "fields")  # a parent has one of each; files that have more mean one
DEEPEST = 100  # elements in one another; SVD has about ten levels, and more where clusters are in clusters
ENCODING = re.compile(rb"""\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)["']""")


def decoded(data: bytes, file: str) -> str:
    """The text in the encoding that the file names; bytes that it has no sign for stand in descriptions only."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    data = data.removeprefix(codecs.BOM_UTF8)
    match = ENCODING.match(data)
    name = match[1].decode() if match else "utf-8"
    try:
        return data.decode(name, "replace")
    except LookupError:
        raise fail(f"encoding '{name}' is not known; save it as UTF-8", file=file, line=1) from None


def parse(text: str, file: str) -> Element:
    """The root of the file. Raises EdgebuildError with line and column."""
    import xml.parsers.expat  # late: a driver's own description is only written

    lines = text.split("\n")
    parser = xml.parsers.expat.ParserCreate("utf-8")  # whatever the text says: it is decoded
    stack: list[Element] = [Element("", {}, 0, 0)]
    texts: list[list[str]] = [[]]  # of the open elements, in pieces: to join them one by one takes quadratic time

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1)
        if len(stack) > DEEPEST:
            text = f"elements are nested deeper than {DEEPEST}; a register description has far fewer levels"
            raise wrong(file, lines, element.line, element.column, text)
        stack[-1].children.append(element)
        stack.append(element)
        texts.append([])

    def end(tag: str) -> None:
        element = stack.pop()
        element.text = "".join(texts.pop())
        first = stack[-1].child(tag) if tag in LISTS else None
        if first is not None and first is not element:  # the list continues, as in TI's MSP432P411V.svd
            first.children += element.children
            stack[-1].children.pop()

    def characters(data: str) -> None:
        texts[-1].append(data)

    def entity(*declaration: object) -> None:
        text = "an entity is declared, which edgebuild does not expand; write the text in its place"
        raise wrong(file, lines, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1, text)

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, characters
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except xml.parsers.expat.ExpatError as error:
        message = xml.parsers.expat.ErrorString(error.code)
        raise wrong(file, lines, error.lineno, error.offset + 1, f"not XML: {message}") from None
    return stack[0].children[0]
