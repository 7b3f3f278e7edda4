"""Elements of XML, and svdtools' patch files, which correct a register description before it is read.

A patch names its description by `_svd`, includes other files, and has a map for each peripheral and register. Patterns
are shell patterns; alternatives are separated by commas or in braces; a pattern with `?~` in front may match nothing.
At each level the operations run in svdtools' order: delete, copy, strip, modify, clear, add, derive, merge, split, and
then the inner maps. `_array` and `_cluster` of a patch are ignored: C's subscripts also match the separate names.
"""

from __future__ import annotations

import codecs
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.errors import EdgebuildError, caret, did_you_mean, fail
from ...base.facts import compose, entries, wrong

if TYPE_CHECKING:
    from yaml.nodes import Node


@dataclass(eq=False)
class Element:
    """An element of XML, with its position."""

    tag: str
    attributes: dict[str, str]
    line: int
    column: int
    text: str = ""
    children: list[Element] = field(default_factory=list)
    file: str = ""  # the patch file that it comes from; "" for the description itself

    def child(self, tag: str) -> Element | None:
        return next((c for c in self.children if c.tag == tag), None)

    def value(self, tag: str) -> str | None:
        child = self.child(tag)
        return child.text.strip() if child else None

    def all(self, *tags: str) -> Iterator[Element]:
        return (c for c in self.children if c.tag in tags)


def refused(file: str, lines: list[str], number: int, column: int, text: str) -> EdgebuildError:
    """An error with the refused line and a mark below it."""
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    return fail(text, file=file, line=number, column=column, hints=caret(line, column) if line else ())


LISTS = ("peripherals", "registers", "fields")  # a parent has one of each; several are joined
DEEPEST = 100  # nesting of elements; SVD has about ten levels, and more with nested clusters
ENCODING = re.compile(rb"""\s*<\?xml[^>]*?encoding\s*=\s*["']([\w.:-]+)["']""")


def decoded(data: bytes, file: str) -> str:
    """The text, decoded as the file declares. Invalid bytes are replaced: they only occur in descriptions."""
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
    """The root element of an XML file. Raises EdgebuildError with line and column."""
    import xml.parsers.expat  # late: only fixed layouts read XML

    lines = text.split("\n")
    parser = xml.parsers.expat.ParserCreate("utf-8")  # whatever it declares, the text is decoded already
    stack: list[Element] = [Element("", {}, 0, 0)]
    texts: list[list[str]] = [[]]  # pieces of the open elements' texts; repeated concatenation takes quadratic time

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1)
        if len(stack) > DEEPEST:
            text = f"elements are nested deeper than {DEEPEST}; a register description has far fewer levels"
            raise refused(file, lines, element.line, element.column, text)
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
        raise refused(file, lines, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1, text)

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, characters
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except xml.parsers.expat.ExpatError as error:
        message = xml.parsers.expat.ErrorString(error.code)
        raise refused(file, lines, error.lineno, error.offset + 1, f"not XML: {message}") from None
    return stack[0].children[0]


MAX_DEPTH, MAX_FILES, MAX_VALUES = 20, 4096, 100_000  # of nested values and files
MAX_PATTERNS = 256  # alternatives of a pattern
MAX_BITS = 64  # bits of a field that is split
READS = {"_read": "", "_RM": "modify", "_RS": "set", "_RC": "clear", "_RME": "modifyExternal"}
WRITES = {
    "_write": "", "_WM": "modify", "_WS": "set", "_WC": "clear", "_W1S": "oneToSet", "_W0C": "zeroToClear",
    "_W1C": "oneToClear", "_W0S": "zeroToSet", "_W1T": "oneToToggle", "_W0T": "zeroToToggle",
}  # fmt: skip
KINDS = {"_registers": "register", "_clusters": "cluster", "_cluster": "cluster", "_interrupts": "interrupt"}
PLACES = ("bitOffset", "bitWidth", "bitRange", "lsb", "msb")
OWN = ("name", "baseAddress", "interrupt", "description", "addressOffset")  # kept by elements that are derived


@dataclass
class Spec:
    """A value of a patch, with its position: `text`, or `words` of a list, or the `map`, with includes merged."""

    node: Node
    text: str = ""
    words: list[Spec] = field(default_factory=list)
    map: dict[str, Spec] = field(default_factory=dict)

    def of(self, key: str) -> Spec:
        return self.map.get(key) or Spec(self.node)

    @property
    def names(self) -> list[str]:
        """The words of a list, or the keys of a map, or the single word."""
        return [w.text for w in self.words] or list(self.map) or [self.text] * bool(self.text)

    @property
    def rows(self) -> list[tuple[str, Spec]]:
        """The entries of a map, or (with the name "") the words of a list, or the single word."""
        return [*self.map.items()] or [("", each) for each in self.words or [self] if each.text]

    @property
    def inner(self) -> Iterator[tuple[str, Spec]]:
        return ((k, v) for k, v in self.map.items() if not k.startswith("_"))

    def wrong(self, text: str) -> EdgebuildError:
        return wrong(self.node, text)


@dataclass(frozen=True)
class Patch:
    """`description`: the file that is patched. `files`: the patch, and all other files that are read."""

    spec: Spec
    description: Path
    files: tuple[str, ...]


def read_patch(path: Path) -> Patch:
    """Read a patch. Raises EdgebuildError if it is no patch, or a file is missing."""
    files: list[str] = []
    spec = _loaded(path, files, 0)
    if not spec.of("_svd").text:
        raise spec.wrong("no patch of svdtools: `_svd: FILE` is missing")
    copied = (each.of("from").text.rpartition(":")[0] for each in spec.of("_copy").map.values())
    files += [str(path.parent / file) for file in dict.fromkeys(copied) if file]
    return Patch(spec, path.parent / spec.of("_svd").text, tuple(files))


def _loaded(path: Path, files: list[str], depth: int) -> Spec:
    node = compose(path)
    files.append(str(path))
    if node is None:
        raise fail("the file is empty", file=str(path))
    spec = _parsed(node, [0])
    _include(spec, path, files, depth)
    return spec


def _parsed(node: Node, seen: list[int], depth: int = 0) -> Spec:
    """Parse a node. `seen`: number of values so far, which is limited because YAML's aliases may multiply them."""
    from yaml.nodes import MappingNode, SequenceNode  # late: few descriptions are patches

    seen[0] += 1
    if seen[0] > MAX_VALUES or depth > MAX_DEPTH:
        raise wrong(node, f"a patch has at most {MAX_VALUES} values, {MAX_DEPTH} deep")
    if isinstance(node, MappingNode):
        return Spec(node, map={k: _parsed(v, seen, depth + 1) for k, v in entries(node).items()})
    if isinstance(node, SequenceNode):
        return Spec(node, words=[_parsed(each, seen, depth + 1) for each in node.value])
    return Spec(node, str(node.value))


def _include(spec: Spec, path: Path, files: list[str], depth: int) -> set[Path]:
    """Merge the includes of a map, except files that one of its inner maps has included, as svdtools does."""
    inside = {p for _, each in spec.inner for p in _include(each, path, files, depth)}
    for name in spec.of("_include").names:
        file = Path(normpath(path.parent / name))
        if depth > MAX_DEPTH or len(files) > MAX_FILES:
            raise spec.of("_include").wrong(f"more than {MAX_FILES} files, or {MAX_DEPTH} that include one another")
        if file not in inside:
            inside.add(file)
            _merge(spec, _loaded(file, files, depth + 1))
    return inside


def _merge(spec: Spec, other: Spec) -> None:
    """Merge an included file into a map. In a conflict, the including file wins."""
    for key, value in other.map.items():
        own = spec.map.get(key)
        if own is None:
            spec.map[key] = value
        elif key != "_include":
            own.words += value.words
            _merge(own, value)


def expanded(pattern: str) -> Iterator[str]:
    """The alternatives of a pattern with commas or braces."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if not match:
        yield from (p.strip() for p in pattern.split(","))
        return
    for word in match[1].split(","):
        yield from expanded(pattern[: match.start()] + word + pattern[match.end() :])


class Patcher:
    """Applies a patch to a description. `bits`: (lowest bit, width) of a field. `other`: peripherals of a file."""

    def __init__(
        self, patch: Patch, bits: Callable[[Element], tuple[int, int]], other: Callable[[str], Element]
    ) -> None:
        self.spec, self.bits, self.other = patch.spec, bits, other

    def device(self, root: Element, top: Element) -> None:
        spec = self.spec
        self._delete(top, "peripheral", spec.of("_delete"))
        for name, each in spec.of("_copy").map.items():
            self._copy(top, "peripheral", name, each, "from")
        for key, each in spec.of("_modify").map.items():
            if key == "_peripherals":
                self._modify_all(top, "peripheral", each)
            elif each.map and key != "cpu":
                self._modify(top, "peripheral", key, each)
            elif not each.map:
                _put(root, key, each)
        for p in self._fitting(top, "peripheral", spec.of("_clear_fields").names, spec, optional=True):
            self._clear(p)
        for name, each in spec.of("_add").map.items():
            self._add(top, "peripheral", name, each)
        for name, each in spec.of("_derive").map.items():
            self._derive(top, "peripheral", name, each)
        for name, each in spec.of("_rebase").map.items():
            new, old = self._one(top, "peripheral", name, each), self._one(top, "peripheral", each.text, each)
            new.children += [c for c in old.children if c.tag not in OWN]
            old.children = [c for c in old.children if c.tag in OWN]
            for p in top.all("peripheral"):
                if p.attributes.get("derivedFrom") == each.text:
                    p.attributes["derivedFrom"] = name
            new.attributes.pop("derivedFrom", None)
            old.attributes["derivedFrom"] = name
        for key, each in spec.inner:
            for p in self._fitting(top, "peripheral", [key], each):
                if "derivedFrom" not in p.attributes:
                    self._registers(p, _holder(p, "registers", spec), each)

    def _registers(self, p: Element, holder: Element, spec: Spec) -> None:
        """Patch the registers of a peripheral or a cluster, which are in `holder`."""
        for key in ("_delete", "_modify", "_add"):
            for name, each in spec.of(key).map.items():
                if name in KINDS:
                    into = p if name == "_interrupts" else holder
                    act = {"_delete": self._delete, "_modify": self._modify_all, "_add": self._add_all}[key]
                    act(into, KINDS[name], each)
        self._level(holder, "register", spec, "_clear_fields")
        for key, each in spec.inner:
            for r in self._fitting(holder, "register", [key], each):
                self._register(r, each)
        for key, each in spec.of("_clusters").map.items():
            for c in self._fitting(holder, "cluster", [key], each):
                self._registers(c, c, each)

    def _register(self, r: Element, spec: Spec) -> None:
        if not spec.map or ("derivedFrom" in r.attributes and r.child("fields") is None):
            return
        holder = _holder(r, "fields", spec)
        self._level(holder, "field", spec, "_clear")
        for name, each in spec.of("_merge").rows:
            fields = self._fitting(holder, "field", each.names or [name], each)
            places, names = [self.bits(f) for f in fields], [_name(f) for f in fields]
            alike = next((n for n in range(len(names[0]), 0, -1) if len({w[:n] for w in names}) == 1), 0)
            whole = name if name and each.names else names[0][:alike]
            holder.children = [c for c in holder.children if not any(c is f for f in fields)]
            holder.children.append(_field(whole, min(lsb for lsb, _ in places), sum(w for _, w in places), each))
        for key, each in spec.of("_split").rows:
            for f in self._fitting(holder, "field", [key or each.text], each):
                lsb, width = self.bits(f)
                if width > MAX_BITS:
                    raise each.wrong(f"a field of {width} bits is too long to be split")
                name = each.of("name").text or f"{_name(f)}%s"
                holder.children.remove(f)
                holder.children += [_field(name.replace("%s", str(i)), lsb + i, 1, each) for i in range(width)]
        for key, each in spec.inner:
            for f in self._fitting(holder, "field", [key], each) if each.map or each.words else ():
                self._field(f, each)

    def _level(self, holder: Element, tag: str, spec: Spec, clear: str) -> None:
        """Apply the operations that registers of a peripheral and fields of a register have in common."""
        self._delete(holder, tag, spec.of("_delete"))
        for name, each in spec.of("_copy").map.items():
            self._copy(holder, tag, name, each, "_from")
        for end, key in ((False, "_strip"), (True, "_strip_end")):
            for word in spec.of(key).names:
                for e in holder.all(tag):
                    _put_text(e, "name", _stripped(_name(e), word, end))
        self._modify_all(holder, tag, spec.of("_modify"))
        for e in self._fitting(holder, tag, spec.of(clear).names, spec, optional=True):
            self._clear(e)
        self._add_all(holder, tag, spec.of("_add"))
        for name, each in spec.of("_derive").map.items():
            if name not in KINDS and "%s" not in name:  # "%s": an array, which is not created
                self._derive(holder, tag, name, each)
        for e in holder.all(tag) if {"_prefix", "_suffix"} & spec.map.keys() else ():
            _put_text(e, "name", spec.of("_prefix").text + _name(e) + spec.of("_suffix").text)

    def _field(self, f: Element, spec: Spec) -> None:
        if len(spec.words) == 2:
            _put(f, "_write_constraint", spec)
        effects = [(READS, "readAction", "read"), (WRITES, "modifiedWriteValues", "write")]
        stated = [(e, k) for e in effects for k in e[0] if k in spec.map]
        for key in spec.map:
            if re.fullmatch(r"_[RW]\w*", key) and key not in (*READS, *WRITES):
                raise spec.wrong(f"'{key}' says nothing of a field{did_you_mean(key, (*READS, *WRITES))}")
        for (words, tag, usage), key in stated:
            _put_text(f, tag, words[key], spec) if words[key] else None
            _enumerate(f, spec.of(key), usage)
        if not stated and spec.map:
            _enumerate(f, spec, "read-write")

    # ---- the same for all kinds of elements

    def _fitting(
        self, holder: Element, tag: str, patterns: list[str], spec: Spec, optional: bool = False
    ) -> list[Element]:
        """Elements whose names match. Raises EdgebuildError if a pattern that is not optional matches none."""
        all_: dict[int, Element] = {}
        for pattern in patterns:
            fits = {id(e): e for e in holder.all(tag) if _fits(_name(e), pattern)}
            if not fits and not optional and not pattern.startswith("?~") and "%s" not in pattern:
                raise spec.wrong(f"no {tag} is called '{pattern}'")
            all_ |= fits
        return list(all_.values())

    def _one(self, holder: Element, tag: str, name: str, spec: Spec) -> Element:
        for e in holder.all(tag):
            if _name(e) == name:
                return e
        raise spec.wrong(f"no {tag} is called '{name}'")

    def _delete(self, holder: Element, tag: str, spec: Spec) -> None:
        gone = self._fitting(holder, tag, [n for n in spec.names if n not in KINDS], spec, optional=True)
        holder.children = [c for c in holder.children if not any(c is e for e in gone)]

    def _copy(self, holder: Element, tag: str, name: str, spec: Spec, word: str) -> None:
        source = spec.of(word).text or spec.of("from").text or spec.text
        file, _, source = source.rpartition(":")
        there = self.other(file) if file else holder
        new = copy.deepcopy(self._one(there, tag, source, spec))
        old = next((e for e in holder.all(tag) if _name(e) == name), None)
        kept = [c for c in (old.children if old else ()) if c.tag in ("baseAddress", "interrupt")]
        if kept or (tag == "peripheral" and not file):
            new.children = [c for c in new.children if c.tag not in ("baseAddress", "interrupt")] + kept
        holder.children = [c for c in holder.children if c is not old] + [new]
        _put_text(new, "name", name)
        for key, each in spec.map.items():
            if key not in ("from", "_from"):
                _put(new, key, each)

    def _modify_all(self, holder: Element, tag: str, spec: Spec) -> None:
        for key, each in spec.map.items():
            if key not in KINDS:
                self._modify(holder, tag, key, each)

    def _modify(self, holder: Element, tag: str, pattern: str, spec: Spec) -> None:
        for e in self._fitting(holder, tag, [pattern], spec, optional=True):
            if {"bitOffset", "bitWidth"} & spec.map.keys() and (e.child("bitRange") or e.child("lsb")):
                place = self.bits(e)
                e.children = [c for c in e.children if c.tag not in PLACES]
                for word, number in zip(("bitOffset", "bitWidth"), place, strict=True):
                    _put_text(e, word, str(number))
            for key, each in spec.map.items():
                if tag == "peripheral" and key == "name":
                    for p in holder.all(tag):
                        if p.attributes.get("derivedFrom") == _name(e):
                            p.attributes["derivedFrom"] = each.text
                elif "derivedFrom" in e.attributes and tag == "peripheral":
                    continue
                _put(e, key, each)

    def _add_all(self, holder: Element, tag: str, spec: Spec) -> None:
        for name, each in spec.map.items():
            if name not in KINDS:
                self._add(holder, tag, name, each)

    def _add(self, holder: Element, tag: str, name: str, spec: Spec) -> None:
        if any(_name(e) == name for e in holder.all(tag)):
            raise spec.wrong(f"there is a {tag} '{name}' already")
        new = _element(tag, spec)
        holder.children.append(new)
        _put_text(new, "name", name, spec)
        for key, each in spec.map.items():
            inner = {"registers": "register", "fields": "field"}.get(key)
            if inner:
                self._add_all(_holder(new, key, each), inner, each)
            elif key != "interrupts":
                _put(new, key, each)

    def _derive(self, holder: Element, tag: str, pattern: str, spec: Spec) -> None:
        """Derive elements from another one, all but name and place; a missing element is added."""
        fits = self._fitting(holder, tag, [pattern], spec, optional=True)
        if not fits and not pattern.startswith("?~"):
            self._add(holder, tag, pattern, Spec(spec.node))
            fits = holder.children[-1:]
        origin = spec.of("_from").text or spec.text
        for e in fits:
            for other in holder.all(tag):
                if other.attributes.get("derivedFrom") == _name(e):
                    other.attributes["derivedFrom"] = origin
            e.children = [c for c in e.children if c.tag in (*OWN, *PLACES)]
            e.attributes["derivedFrom"] = origin
            for key, each in spec.map.items():
                if key != "_from":
                    _put(e, key, each)

    def _clear(self, e: Element) -> None:
        """Remove enumerations and write constraints from the fields of an element."""
        e.children = [c for c in e.children if c.tag not in ("enumeratedValues", "writeConstraint")]
        for c in e.children:
            if c.tag in ("registers", "register", "cluster", "fields", "field"):
                self._clear(c)


def _name(e: Element) -> str:
    return e.value("name") or ""


def _fits(name: str, pattern: str) -> bool:
    return any(fnmatchcase(name, p) for p in islice(expanded(pattern.removeprefix("?~")), MAX_PATTERNS))


def _stripped(name: str, pattern: str, end: bool) -> str:
    """The name without the shortest prefix, or the longest suffix, that matches."""
    for at in range(len(name) + 1):
        if fnmatchcase(name[at:] if end else name[:at], pattern):
            return name[:at] if end else name[at:]
    return name


def _element(tag: str, spec: Spec, text: str = "") -> Element:
    mark = spec.node.start_mark
    line, column, file = (mark.line + 1, mark.column + 1, str(mark.name)) if mark else (0, 0, "")
    return Element(tag, {}, line, column, text, file=file)


def _holder(parent: Element, tag: str, spec: Spec) -> Element:
    """The list `tag` of an element, created if missing."""
    holder = parent.child(tag)
    if holder is None:
        holder = _element(tag, spec)
        parent.children.append(holder)
    return holder


def _field(name: str, lsb: int, width: int, spec: Spec) -> Element:
    new = _element("field", spec)
    for tag, text in (("name", name), ("bitOffset", str(lsb)), ("bitWidth", str(width))):
        new.children.append(_element(tag, spec, text))
    return new


def _put_text(e: Element, tag: str, text: str, spec: Spec | None = None) -> None:
    """Set the text of an element's child; an empty text removes the child."""
    new = _element(tag, spec, text) if spec else Element(tag, {}, e.line, e.column, text, file=e.file)
    e.children = [c for c in e.children if c.tag != tag] + ([new] if text else [])


def _put(e: Element, key: str, spec: Spec) -> None:
    """Set a property of an element. Lists and maps other than write constraints are ignored."""
    if key == "derivedFrom":
        e.attributes[key] = spec.text
    elif key in ("_write_constraint", "writeConstraint"):
        e.children = [c for c in e.children if c.tag != "writeConstraint"]
        limits = _element("writeConstraint", spec)
        if spec.text == "enum":
            limits.children = [_element("useEnumeratedValues", spec, "true")]
        elif len(spec.words) == 2:
            words = zip(("minimum", "maximum"), spec.words, strict=True)
            limits.children = [_element("range", spec)]
            limits.children[0].children = [_element(tag, w, w.text) for tag, w in words]
        e.children += [limits] if limits.children else []
    elif not spec.words and not spec.map and not key.startswith("_"):
        _put_text(e, key, spec.text, spec)


def _enumerate(f: Element, spec: Spec, usage: str) -> None:
    names = spec.of("_replace_enum") if "_replace_enum" in spec.map else spec
    values = [(name, each.words[0]) for name, each in names.inner if each.words]
    if not values:
        return
    holder = _element("enumeratedValues", spec)
    for name, number in values:
        if number.text != "-1":
            value = _element("enumeratedValue", spec)
            value.children = [_element("name", spec, name), _element("value", number, number.text)]
            holder.children.append(value)
    if "_replace_enum" in spec.map:
        f.children = [c for c in f.children if c.tag != "enumeratedValues"]
    holder.children.append(_element("usage", spec, usage))
    f.children.append(holder)
