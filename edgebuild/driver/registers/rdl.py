"""SystemRDL: read through systemrdl-compiler, written as plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from edgebuild.base.errors import Diagnostic, EdgebuildError, MissingTool, caret, fail
from edgebuild.base.inputs import read_text
from edgebuild.base.text import comment as remark
from edgebuild.base.text import rdl_name
from edgebuild.driver.registers.beside import files_beside, overlay_of
from edgebuild.driver.registers.regmap import Array, Block, Cluster, FieldInfo, RegisterInfo, RegisterMap, clusters

T = TypeVar("T")
MANY = 1 << 16

ONWRITE = {
    "woclr": "oneToClear",
    "woset": "oneToSet",
    "wot": "oneToToggle",
    "wzc": "zeroToClear",
    "wzs": "zeroToSet",
    "wzt": "zeroToToggle",
    "wclr": "clear",
    "wset": "set",
    "wuser": "modify",
}
TAGS = re.compile(r"/\*.*?\*/|//[^\n]*|<%", re.S)  # comments, and where Perl begins
PERL = ["expand it with another tool, and name the description that comes out"]
ONREAD = {"rclr": "clear", "rset": "set", "ruser": "modify"}


def read_rdl(path: Path) -> RegisterMap:
    """The last address map of the file. Raises EdgebuildError with the compiler's messages."""
    try:
        from systemrdl.compiler import RDLCompiler
        from systemrdl.messages import MessagePrinter, RDLCompileError
        from systemrdl.node import AddrmapNode
    except ImportError as error:
        raise MissingTool(
            Diagnostic(
                "SystemRDL needs the Python package systemrdl-compiler",
                file=str(path),
                hints=("pip install systemrdl-compiler",),
            )
        ) from error
    _check_files(path)
    found: list[Diagnostic] = []

    class Printer(MessagePrinter):
        def print_message(self, severity: Any, text: str, src_ref: Any) -> None:
            if severity.name in ("ERROR", "FATAL"):
                line = src_ref.line if src_ref is not None else 0
                column = src_ref.line_selection[0] + 1 if src_ref is not None else 0
                hints = caret(src_ref.line_text, column) if src_ref is not None else ()
                found.append(Diagnostic(text, str(path), line, column, hints=hints))

    compiler = RDLCompiler(message_printer=Printer(), perl_safe_opcodes=[])
    try:
        files = compiler.compile_file(str(path)).included_files
        top = compiler.elaborate().top
        _check_arrays(top, path)
        maps = (c for c in top.children(unroll=True) if isinstance(c, AddrmapNode))
        inner = _counted(maps, "address maps", path)
        blocks = [
            Block(
                b.inst_name if b is not top else top.inst_name,
                b.absolute_address,
                _counted(_registers(b, b, (), (), str(path)), f"registers in {b.inst_name}", path),
                b.type_name or "",
            )
            for b in (inner or [top])
        ]
    except RDLCompileError as error:
        raise EdgebuildError(*found or [Diagnostic(str(error), str(path))]) from error
    except RecursionError:
        raise fail("its parts are nested too deeply", file=str(path)) from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # the compiler fails on some damage
        text = f"the compiler of SystemRDL cannot read it: {type(error).__name__}: {error}"
        raise fail(text, file=str(path)) from None
    return RegisterMap(top.inst_name, tuple(blocks), files=tuple(files))


def _check_arrays(node: Any, path: Path) -> None:
    """Raise EdgebuildError for an array of more elements than any chip has; its elements need not be made for that."""
    for child in node.children(unroll=False):
        dimensions = getattr(child.inst, "array_dimensions", None) or ()
        if prod(dimensions) > MANY:
            line = getattr(child.inst.inst_src_ref, "line", 0)
            raise fail(f"'{child.inst_name}' has more than {MANY} elements", file=str(path), line=line)
        _check_arrays(child, path)


def _counted(parts: Iterator[T], what: str, path: Path) -> tuple[T, ...]:
    """All parts. Raises EdgebuildError where there are more than any chip has: an array may name any number."""
    found = tuple(islice(parts, MANY + 1))
    if len(found) > MANY:
        raise fail(f"there are more than {MANY} {what}", file=str(path))
    return found


def _check_files(path: Path) -> None:
    """Refuse what is no file, is too large, or holds Perl, which the compiler would run. Raises EdgebuildError."""
    for file in (path, *map(Path, files_beside(path))):
        if file == overlay_of(path):
            continue
        text = read_text(file)
        for tag in TAGS.finditer(text):
            if tag[0].startswith("<%"):
                line = text.count("\n", 0, tag.start()) + 1
                raise fail("it holds Perl, which edgebuild does not run", file=str(file), line=line, hints=PERL)


def _registers(
    node: Any, block: Any, scope: tuple[str, ...], marks: tuple[str, ...], file: str
) -> Iterator[RegisterInfo]:
    from systemrdl.node import AddrmapNode, RegfileNode, RegNode

    seen: set[int] = set()
    for child in node.children(unroll=True):
        name, mark = (child.inst_name + "".join(f"{sign}{i}" for i in child.current_idx or ()) for sign in "_#")
        if isinstance(child, RegNode):
            if child.is_msb0_order:  # some tools swap the bits of each field, others place it from the other end
                line = getattr(child.inst.inst_src_ref, "line", 0)
                text = f"register '{child.inst_name}' counts bits from the most significant one (msb0), which tools"
                raise fail(f"{text} take in different ways; number them [high:low]", file=file, line=line)
            offset = child.absolute_address - block.absolute_address
            fields = tuple(_field(f) for f in child.fields())
            resets = [(f.low, f.get_property("reset")) for f in child.fields()]
            reset = sum(value << low for low, value in resets if isinstance(value, int))
            access = "".join(c for c in "rw" if any(c in f.access for f in fields))
            width, path = child.get_property("regwidth"), (*marks, mark)
            yield RegisterInfo(name, offset, width, fields, scope, access, reset, offset in seen, path)
            seen.add(offset)
        elif isinstance(child, RegfileNode | AddrmapNode):
            yield from _registers(child, block, (*scope, name), (*marks, mark), file)


def _field(f: Any) -> FieldInfo:
    access = ("r" if f.is_sw_readable else "") + ("w" if f.is_sw_writable else "")
    onwrite, onread = f.get_property("onwrite"), f.get_property("onread")
    modified = ONWRITE[onwrite.name] if onwrite is not None else ""
    action = ONREAD[onread.name] if onread is not None else ""
    if not modified and f.get_property("singlepulse"):
        modified = "oneToSet"  # it clears itself; a 0 does nothing
    if not modified and "w" in access and (f.get_property("swmod") or f.get_property("swacc")):
        modified = "modify"
    if not action and "r" in access and f.get_property("swacc"):
        action = "modify"
    encode = f.get_property("encode")
    values = tuple((m.name, int(m.value)) for m in encode) if encode is not None else ()
    volatile, once = bool(f.is_volatile), f.get_property("sw").name.endswith("1")
    return FieldInfo(
        f.inst_name, f.low, f.width, access, modified, action, volatile, known=True, values=values, once=once
    )


# ---- writing


def write_rdl(map_: RegisterMap, comment: str = "") -> str:
    """One address map of the devices, below a map for each type of them, which tools can take as their top.

    Instances are in the order of the description, clusters are register files.
    """
    lines = [f"// {remark(line)}" for line in comment.splitlines()]
    types: dict[str, tuple[RegisterInfo, ...]] = {}
    instances = []
    for block in map_.blocks:
        word = block.group
        if not word or word == map_.name or types.get(word, block.registers) != block.registers:
            word = f"{block.name}_map"
        if word not in types:
            lines += [f"addrmap {rdl_name(word)} {{", *_inside(block.registers, "    "), "};"]
        types[word] = block.registers
        instances.append(f"    {rdl_name(word)} {rdl_name(block.name)} @ {block.base:#x};")
    return "\n".join([*lines, f"addrmap {rdl_name(map_.name)} {{", *instances, "};", ""])


def _inside(registers: tuple[RegisterInfo, ...], pad: str) -> Iterator[str]:
    for item in clusters(registers):
        if isinstance(item, Cluster):
            yield f"{pad}regfile {{"
            yield from _inside(item.registers, pad + "    ")
            yield _end(item, item.name, item.offset, pad)
        else:
            yield from _register(item, pad)


def _end(item: RegisterInfo | Array | Cluster, name: str, offset: int, pad: str) -> str:
    """The line that closes a register or a regfile, or an array of them."""
    if isinstance(item, RegisterInfo) or not item.count:
        return f"{pad}}} {rdl_name(name)} @ {offset:#x};"
    return f"{pad}}} {rdl_name(name)}[{item.count}] @ {offset:#x} += {item.stride:#x};"


def _register(item: RegisterInfo | Array, pad: str) -> Iterator[str]:
    r = item.first if isinstance(item, Array) else item
    width = f"regwidth = {r.bits}; accesswidth = {min(r.bits, 32)}; "
    for f in r.fields:
        if f.values:
            rows = " ".join(f"{rdl_name(n)} = {f.width}'d{v};" for n, v in f.values)
            yield f"{pad}enum {_enum(r, f)} {{ {rows} }};"
    yield f"{pad}{'external ' if any('modify' in (f.modified, f.read_action) for f in r.fields) else ''}reg {{ {width}"
    for f in r.fields:
        words = [
            f"sw = {f.access}{'1' if f.once else ''};",
            f"hw = {'rw' if f.volatile or f.access == 'r' else 'r'};",
            *_hardware(f),
        ]
        words += [f"onwrite = {k};" for k, v in ONWRITE.items() if v == f.modified]
        words += [f"onread = {k};" for k, v in ONREAD.items() if v == f.read_action]
        words += [f"encode = {_enum(r, f)};"] if f.values else []
        reset = (r.reset >> f.lsb) & ((1 << f.width) - 1)
        yield f"{pad}    field {{ {' '.join(words)} }} {rdl_name(f.name)}[{f.lsb + f.width - 1}:{f.lsb}] = {reset:#x};"
    yield _end(item, r.name, r.offset, pad)


def _hardware(f: FieldInfo) -> Iterator[str]:
    """How hardware writes what software writes, too: one sets flags that the other clears, else it strobes a value."""
    if "Clear" in f.modified:
        yield "hwset;"
    elif "Set" in f.modified:
        yield "hwclr;"
    elif f.volatile and (f.read_action or f.access != "r"):
        yield "we;"


def _enum(r: RegisterInfo, f: FieldInfo) -> str:
    return rdl_name(f"{r.full_name}_{f.name}_values")
