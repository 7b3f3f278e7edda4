"""Layouts that silicon has fixed: fields of the source are looked up in a CMSIS-SVD or SystemRDL file.

Fields of silicon are *ordered*: neighbouring accesses of one register may merge, every store is made, and all accesses
keep their order. SVD does not say which fields are plain. So without an overlay no read replaces another, either."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import combinations, pairwise, product, takewhile
from math import prod
from pathlib import Path

from ...base.errors import EdgebuildError, did_you_mean, fail
from ...base.facts import read_facts
from ...base.inputs import Kept
from ..analysis.conflicts import Leaf, Shape, Shapes
from ..layout.registers import Bus, GroupLayout, Layout, Register, Slot, Sub, unlike
from ..source import clang
from ..source.dialect import Device, Dialect, Field, FieldId, all_fields
from .beside import PATCHES, overlay_of
from .overlay import (
    Facts,
    Overlay,
    Words,
    check_devices,
    check_keys,
    field_name,
    field_names,
    overlays_of,
    with_aliases,
)
from .regmap import Block, FieldInfo, Finder, Location, RegisterInfo, RegisterMap, normal, read_rdl
from .svd import read_patched, read_svd


@dataclass(frozen=True)
class Fixed:
    dialect: Dialect
    layout: Layout
    files: tuple[str, ...]
    absent: tuple[str, ...]  # files that would have been read, but do not exist
    interrupts: frozenset[str]
    shapes: Shapes  # with `packed`: the arrays that silicon has in one register


_MAPS = Kept[RegisterMap](1)  # the last one, for all forms of a source that is adopted


def read_map(path: Path) -> RegisterMap:
    return _MAPS.get(str(path), _read_map, lambda registers: (str(path), *registers.files))


def _read_map(name: str) -> RegisterMap:
    path = Path(name)
    if path.suffix.lower() == ".rdl":
        return read_rdl(path)
    if path.suffix.lower() in (".svd", ".xml"):
        return read_svd(path)
    if path.suffix.lower() in PATCHES:
        return read_patched(path)
    raise fail(
        f"'{path.suffix}' is not a register description", file=str(path), hints=["use .svd, .rdl or svdtools' .yaml"]
    )


def fix(path: Path, text: bytes, dialect: Dialect, shapes: Shapes, bus: Bus) -> Fixed:
    """Lay out a driver as the description `path` says. `text`: the source's. Raises EdgebuildError if the file lacks a
    field, has it with another width, or has an array's elements at unequal distances."""
    overlay_file = overlay_of(path)
    overlay = read_facts(Overlay, overlay_file) if overlay_file.is_file() else Overlay()
    map_ = with_aliases(read_map(path), overlay, overlay_file)
    check_devices(overlay, overlay_file, map_, dialect.devices)
    layers = overlays_of(map_, overlay, overlay_file)
    fixer = _Fixer(path, text, map_, Facts(map_, layers), dialect, shapes)
    groups = {name: fixer.group(shape) for name, shape in shapes.groups.items() if name not in shapes.idle}
    fixer.order_views()
    fixer.add_targets(overlay_file)
    check_keys(overlay, overlay_file, map_, path)
    size = sum(groups[d.group].size for d in dialect.devices.values())
    fields = fixer.fields
    new = {
        g.name: replace(g, members=tuple(fields.get(m.id, m) if isinstance(m, Field) else m for m in g.members))
        for g in dialect.groups.values()
    }
    files = [str(path), *map_.files, *([str(overlay_file)] if overlay_file.is_file() else [])]
    absent = () if overlay_file.is_file() else (str(overlay_file),)
    layout = Layout(groups, replace(bus, bytes=any(o.bytes for o in layers)), "fixed", True, 0, 0, size)
    packed = {(g.group, s.name) for g in groups.values() for r in g.registers for s in r.slots if s.count > 1}
    with_facts = Dialect(new, dialect.devices, dialect.cursors, fixer.places)
    return Fixed(with_facts, layout, tuple(files), absent, map_.interrupts, replace(shapes, packed=frozenset(packed)))


class _Fixer:
    def __init__(
        self, path: Path, text: bytes, map_: RegisterMap, facts: Facts, dialect: Dialect, shapes: Shapes
    ) -> None:
        self.path, self.text, self.map, self.facts = path, text, map_, facts
        self.dialect, self.shapes = dialect, shapes
        self.fields: dict[FieldId, Field] = {}
        self.names: dict[FieldId, set[str]] = {}  # BLOCK.REGISTER.FIELD of all instances
        self.places: dict[tuple[str, str], Field] = {}  # attributes of each (group, leaf)
        self.targets: dict[tuple[tuple[str, str], FieldId, str, str], None] = {}  # (..., rse or wse, pattern)
        self.blocks = {d.name: block_of(d, map_, facts.layers[-1], path, text) for d in dialect.devices.values()}
        self.finders = {name: Finder(block) for name, block in self.blocks.items()}
        self.bases: dict[tuple[str, tuple[str, ...]], int] = {}
        self.groups: dict[str, GroupLayout] = {}  # the finished layouts, inner groups first

    def _wrong_field(self, leaf: Leaf, text: str, *hints: str) -> EdgebuildError:
        return clang.error_at(self.dialect.cursors[leaf.field], self.text, text, *hints)

    def _wrong_group(self, group: str, text: str, *hints: str) -> EdgebuildError:
        return clang.wrong(self.dialect.groups[group].where, self.text, text, *hints, length=len(group))

    # ---- instances

    def instances(self, group: str) -> Iterator[tuple[Device, tuple[str, ...]]]:
        """The instances of a group: each device with it, and the path to it in the device."""
        for device in self.dialect.devices.values():
            yield from ((device, words) for words in self._ways(device.group, group, ()))

    def _ways(self, at: str, group: str, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if at == group:
            yield words
        for part in self.shapes.groups[at].parts:
            for index in product(*(range(n) for n in part.dims)):
                yield from self._ways(part.group, group, (*words, *_words(part.name, index)))

    def locate(self, device: Device, words: tuple[str, ...], leaf: Leaf) -> Location:
        matches = self.finders[device.name].find(words)
        if len(matches) != 1 or matches[0].field.width != leaf.width:
            matches = [f for f in [self._number(device, words, leaf)] if f] or matches
        if len(matches) != 1:
            self._check_mistakes(device, words)
            name = ".".join((self.blocks[device.name].name, *words))
            registers = {f"{f.register.full_name}.{f.field.name}" for f in matches}
            text = f"'{name}' fits more than one field" if matches else f"'{name}' is not in {self.path.name}"
            names = [f"{r.full_name}_{f.name}" for r in self.blocks[device.name].registers for f in r.fields]
            near = "" if matches else did_you_mean("_".join(words), names)
            if (whole := self.finders[device.name].whole(words)) and not matches:
                text, near = f"'{name}' is a register of {whole.bits} bits, and '{leaf.name}' has {leaf.width}", ""
                registers = {f"use uint{whole.bits}, or a group of its fields"}
            raise self._wrong_field(leaf, text + near, *sorted(registers))
        self._check(device, matches[0], leaf)
        return matches[0]

    def _number(self, device: Device, words: tuple[str, ...], leaf: Leaf) -> Location | None:
        """A register, or its lowest part, as one field; None if the source's field does not have that width."""
        register = self.finders[device.name].whole(words)
        if register is None:
            return None
        info = register.number(leaf.width)
        top = max(p.lsb + p.width for p in info.parts)
        facts = [self.facts.of(self.blocks[device.name], register, p)[0] for p in info.parts]
        in_parts = any(w.bytes for w in facts) or self.facts.layers[-1].bytes
        fits = leaf.width == register.bits or top <= leaf.width < register.bits
        if not fits and not (in_parts and leaf.width in (8, 16, 32) and leaf.width < register.bits):
            return None
        if leaf.width < top:
            info = replace(info, parts=tuple(replace(p, lsb=0, width=leaf.width) for p in info.parts if not p.lsb))
        return Location(replace(register, fields=(info,), marks=register.marks), info)

    def _check_mistakes(self, device: Device, words: tuple[str, ...]) -> None:
        """Raise the description's mistake about a register, if it explains why a name was not found."""
        block = self.blocks[device.name].name
        for register, error in self.map.mistakes:
            at, _, name = register.rpartition(".")
            if at == block and normal(words).startswith(normal((name,))):
                raise error

    def _check(self, device: Device, location: Location, leaf: Leaf) -> None:
        info, block = location.field, self.blocks[device.name]
        for register, error in self.map.mistakes:
            if register == f"{block.name}.{location.register.name}":
                raise error
        if info.width != leaf.width:
            text = f"'{leaf.name}' has {leaf.width} bits, and {info.width} in {self.path.name}"
            hints = [f"use {'bit' if info.width == 1 else f'uint{info.width}'}"]
            key = field_name(block, location.register, info)
            hints += [f"if the bus takes that, the overlay says '{key}: {{bytes: true}}'"] * (leaf.width in (8, 16, 32))
            raise self._wrong_field(leaf, text, *hints)

    # ---- layouts

    def group(self, shape: Shape) -> GroupLayout:
        instances = list(self.instances(shape.group))
        if not instances:
            raise self._wrong_group(shape.group, f"no device has a group '{shape.group}'")
        layouts = {instance: self._instance(shape, *instance) for instance in instances}
        first = layouts[instances[0]]
        for instance, other in layouts.items():
            if [(r.offset, _compared_slots(r)) for r in other] != [(r.offset, _compared_slots(r)) for r in first]:
                differs, from_ = (".".join(w) or d.name for d, w in (instance, instances[0]))
                hints = (f"a pointer to '{shape.group}' needs one layout for all", *unlike(other, first))
                raise self._wrong_group(shape.group, f"'{differs}' is laid out unlike '{from_}'", *hints)
        subs = tuple(self._sub(part.name, part.group, part.dims, instances) for part in shape.parts)
        size = self._size(shape, first, subs)
        self.groups[shape.group] = GroupLayout(shape.group, size, tuple(first), subs)
        return self.groups[shape.group]

    def _instance(self, shape: Shape, device: Device, words: tuple[str, ...]) -> list[Register]:
        """The registers of one instance, with offsets from the instance's own base."""
        spots: list[tuple[Leaf, list[Location]]] = []
        for leaf in shape.leaves:
            path = tuple(w for name, index in leaf.path for w in _words(name, index))
            indices = product(*(range(n) for n in leaf.dims))
            spots.append((leaf, [self.locate(device, (*words, *path, *map(str, i)), leaf) for i in indices]))
        inner = [self.bases[(device.name, (*words, *_words(p.name, (0,) * len(p.dims))))] for p in shape.parts]
        base = min([s[0].register.offset for _, s in spots] + inner, default=0) if words else 0
        self.bases[(device.name, words)] = base
        registers: dict[str, Register] = {}
        scopes = [s[0].register.scope for _, s in spots] if words else []
        around = sum(1 for _ in takewhile(lambda clusters: len(set(clusters)) == 1, zip(*scopes, strict=False)))
        for leaf, places in spots:
            self._add(registers, shape.group, leaf, places, base, device, around)
        return sorted(registers.values(), key=lambda r: (r.offset, r.name))

    def _add(
        self, registers: dict[str, Register], group: str, leaf: Leaf, spots: list[Location], base: int, device: Device,
        around: int,
    ) -> None:  # fmt: skip
        """Add a leaf to its register. `around`: number of clusters around all registers of the group, left unnamed."""
        info, block = spots[0].register, self.blocks[device.name]
        steps = {b.register.offset - a.register.offset for a, b in pairwise(spots)}
        shifts = {b.field.lsb - a.field.lsb for a, b in pairwise(spots)}
        if len(steps) > 1 or len(shifts) > 1 or (steps and shifts and 0 not in (*steps, *shifts)):
            raise self._wrong_field(leaf, f"the elements of '{leaf.name}' are not at equal distances")
        packed = shifts.pop() if shifts else 0
        stride = steps.pop() if steps else 0
        name = "_".join((*info.scope[around:], info.name))
        name = name if not leaf.dims or packed else f"{name}_array"
        if name not in registers:
            slots = [self._slot(f, info, block) for f in info.fields or (info.whole,)]
            registers[name] = Register(
                name,
                info.offset - base,
                info.bits,
                tuple(slots),
                len(spots) if stride else 1,
                stride,
                info.reset,
                () if packed else leaf.dims,
                any(self.facts.of(block, info, f)[0].bytes for f in info.fields or (info.whole,)),
            )
        register = registers[name]
        if all(s.name not in (spots[0].field.name, leaf.name) for s in register.slots):
            text = f"register '{name}' is used as a number and by fields"
            raise self._wrong_field(leaf, text, "  make its fields a group, and its number bf_raw(device->GROUP)")
        elements = {s.field.name for s in spots[1:]} if packed else set()  # one slot represents all elements
        first_field = spots[0].field.name
        slots = [
            replace(
                self._agreed(s, leaf),
                name=leaf.name,
                field=leaf.field,
                stride=packed,
                count=len(spots) if packed else 1,
            )
            if s.name == first_field and not s.field
            else s
            for s in register.slots
            if s.field or s.name not in elements
        ]
        registers[name] = replace(register, slots=tuple(slots))
        slot = next(s for s in slots if s.name == leaf.name)
        self._note((group, leaf.name), leaf.field, slot, spots[0], device)

    def _agreed(self, slot: Slot, leaf: Leaf) -> Slot:
        """The slot with the source's attributes added. Raises EdgebuildError if they contradict the file."""
        info = leaf.info
        if info is None:
            return slot
        access = "".join(c for c in slot.access if c in info.access)
        wrong = "" if access else f"access {info.access} in the source, and {slot.access}"
        for stated, of_file, what in ((info.modified, slot.modified, "a write"), (info.action, slot.action, "a read")):
            if stated and of_file and stated != of_file:
                wrong = f"{what} is {stated} in the source, and {of_file}"
        if wrong:
            raise self._wrong_field(leaf, f"'{leaf.name}': {wrong} in {self.path.name}")
        return replace(
            slot,
            access=access,
            modified=info.modified or slot.modified,
            action=info.action or slot.action,
            back=info.back if info.modified else "0" if (access, slot.back) == ("r", "keep") else slot.back,
            sensitive=slot.sensitive or bool(info.action),
        )

    def _slot(self, info: FieldInfo, register: RegisterInfo, block: Block) -> Slot:
        if info.parts:
            return self._slot_of_number(info, [self._slot(p, register, block) for p in info.parts])
        over, why = self.facts.of(block, register, info)
        plain = over.stored
        access = over.access or info.access
        volatile = (info.volatile or not info.complete) and not plain if over.volatile is None else over.volatile
        modified = "" if plain else over.write or info.modified
        action = "" if plain else over.read or info.read_action
        acts = block.acts(register, info) and not over.write
        default = "never" if acts else replace(info, access=access, modified=modified, once=info.once).back
        back = over.back or ("keep" if plain and "w" in access else default)
        sensitive = bool(over.rse) or bool(action)
        return Slot(
            info.name,
            info.lsb,
            info.width,
            None,
            access,
            back,
            sensitive,
            volatile,
            modified=modified,
            action=action,
            key=field_name(block, register, info),
            values=info.values,
            accepts=info.accepts,
            open=not info.complete and not plain and not info.volatile and (bool(why) or over.volatile is None),
            assumed=why,
        )

    @staticmethod
    def _slot_of_number(info: FieldInfo, parts: list[Slot]) -> Slot:
        """The slot of a register as a number: it has the effects of all of its fields."""
        written = {s.modified for s in parts if "w" in s.access}
        modified = written.pop() if len(written) == 1 else "modify" if written else ""
        action = next((s.action for s in parts if s.action), "")
        sensitive, volatile = any(s.sensitive for s in parts), any(s.volatile for s in parts)
        back = "never" if modified or any(s.back == "never" for s in parts) else parts[0].back
        return Slot(info.name, 0, info.width, None, info.access, back, sensitive, volatile, modified=modified,
                    action=action, key=parts[0].key.rpartition(".")[0], open=any(s.open for s in parts))  # fmt: skip

    def _note(self, place: tuple[str, str], id: FieldId, slot: Slot, location: Location, device: Device) -> None:
        """Add the file's attributes of a field to those of the source, for the field and for its leaf."""
        info, block = location.field, self.blocks[device.name]
        over, _ = self.facts.of(block, location.register, info)
        self.names.setdefault(id, set()).add(field_name(block, location.register, info))
        for kind, words in (("rse", over.rse), ("wse", over.wse)):
            self.targets.update({(place, id, kind, word): None for word in words or () if word != "self"})
        self.fields[id] = self._with_facts(self.fields.get(id), id, slot, info, over, device)
        self.places[place] = self._with_facts(self.places.get(place), id, slot, info, over, device)

    def _with_facts(
        self, before: Field | None, id: FieldId, slot: Slot, info: FieldInfo, over: Words, device: Device
    ) -> Field:
        old = before or self.dialect.field(id)
        rse, wse = set(old.rse), set(old.wse)
        guessed = slot.assumed and slot.action  # each of its reads counts anyway, and a neighbour's read is refused
        if (slot.sensitive and not over.rse and not guessed) or "self" in (over.rse or ()):
            rse |= self._near(device) if slot.action == "modifyExternal" else {id}
        if (slot.back in ("0", "1", "never") and "w" in slot.access) or "self" in (over.wse or ()):
            wse |= {id}
        order = "memory" if over.memory else "independent" if over.independent else "ordered"
        if before:  # the strictest order of all instances
            order = min(order, old.order, key=("ordered", "independent", "memory").index)
        volatile, shared = old.volatile or slot.volatile, old.shared or bool(over.shared)
        effects = {"rse": frozenset(rse), "wse": frozenset(wse)}
        return replace(old, **effects, volatile=volatile, order=order, shared=shared)  # type: ignore[arg-type]

    def order_views(self) -> None:
        """Order the fields of registers that share addresses, even if the overlay says otherwise of each."""
        for group in self.groups.values():
            for a, b in combinations(group.registers, 2):
                ends = [r.offset + r.stride * (r.count - 1) + r.bits // 8 for r in (a, b)]
                views = a.offset < ends[1] and b.offset < ends[0] and not a.dims and not b.dims
                for slot in (s for r in (a, b) for s in r.slots if s.field and views):
                    place = group.group, slot.name
                    assert slot.field
                    self.fields[slot.field] = replace(self.fields[slot.field], order="ordered")
                    self.places[place] = replace(self.places[place], order="ordered")

    def add_targets(self, file: Path) -> None:
        """Add the other fields that accesses change by the overlay, after the names of all fields are known."""
        silicon = field_names(self.map)
        for place, id, kind, pattern in self.targets:
            if not any(fnmatchcase(name, pattern) for name in silicon):
                near = did_you_mean(pattern, silicon)
                raise fail(f"{kind} target '{pattern}' is not in {self.path.name}{near}", file=str(file))
            matching = {f for f, names in self.names.items() if any(fnmatchcase(name, pattern) for name in names)}
            self.fields[id] = replace(self.fields[id], **{kind: getattr(self.fields[id], kind) | matching})
            here = self.places[place]
            self.places[place] = replace(here, **{kind: getattr(here, kind) | matching})

    def _near(self, device: Device) -> set[FieldId]:
        return all_fields({g.name: g.members for g in self.dialect.groups.values()}, device.group)

    def _sub(self, name: str, group: str, dims: tuple[int, ...], ways: list[tuple[Device, tuple[str, ...]]]) -> Sub:
        device, words = ways[0]
        base = self.bases[(device.name, words)]
        places = self._bases(device, words, name, dims)
        steps = {b - a for a, b in pairwise(places)}
        if len(steps) > 1:
            raise self._wrong_group(group, f"the elements of '{name}' are not at equal distances")
        return Sub(name, group, places[0] - base, steps.pop() if steps else 0, dims)

    def _bases(self, device: Device, words: tuple[str, ...], name: str, dims: tuple[int, ...]) -> list[int]:
        """Base addresses of the elements of a nested group, from the block's base."""
        return [self.bases[(device.name, (*words, *_words(name, i)))] for i in product(*(range(n) for n in dims))]

    def _size(self, shape: Shape, registers: list[Register], subs: tuple[Sub, ...]) -> int:
        """Size in bytes: the distance of the elements if the group is in an array, else the bytes that it covers."""
        strides = set()
        for g in (g for name, g in self.shapes.groups.items() if name not in self.shapes.idle):
            for part in g.parts:
                if part.group == shape.group and part.dims:
                    device, words = next(iter(self.instances(g.group)))
                    strides |= {b - a for a, b in pairwise(self._bases(device, words, part.name, part.dims))}
        if len(strides) > 1:
            raise self._wrong_group(shape.group, f"arrays of '{shape.group}' have different distances")
        inner = [s.offset + self.groups[s.group].size * prod(s.dims) for s in subs]
        if strides and max(inner, default=0) > max(strides):
            text = f"groups inside of '{shape.group}' lie beyond the {max(strides)} bytes from one element to the next"
            raise self._wrong_group(shape.group, text, f"write their fields into '{shape.group}' itself")
        if strides:
            return strides.pop()
        ends = [r.offset + r.stride * (r.count - 1) + r.bits // 8 for r in registers]
        return max([*ends, *inner], default=4)


def _compared_slots(register: Register) -> list[Slot]:
    """The slots that must be equal in all instances. Others are only kept, as bits outside of fields are."""
    return [s for s in register.slots if s.field or s.back != "keep" or s.sensitive]


def _words(name: str, index: tuple[int, ...]) -> tuple[str, ...]:
    return (name + "".join(f"[{i}]" for i in index),)


def block_of(device: Device, map_: RegisterMap, overlay: Overlay, path: Path, text: bytes) -> Block:
    """The peripheral at the device's address, or the one that the overlay names for it.

    SystemRDL has relative addresses, so an equal name suffices there, or a single block. `text`: the source's. Raises
    EdgebuildError if no peripheral fits, or it has another address.
    """
    if device.name in overlay.devices:
        return next(b for b in map_.blocks if b.name == overlay.devices[device.name])
    here = [block for block in map_.blocks if block.base == device.address]
    for name in (device.name.upper(), device.group.upper()):  # several may share an address, as views of one part
        for block in here:
            whole = block.name.upper()
            if name in (whole, whole.rstrip("0123456789")) or name.startswith(whole + "_"):
                return block
    if here:
        return here[0]
    named = (b for b in map_.blocks if device.name.lower() == b.name.lower())
    other = next(named, map_.blocks[0] if len(map_.blocks) == 1 else None)
    if other and path.suffix.lower() == ".rdl":
        return other
    if other:
        wrong = f"device '{device.name}' is at {device.address:#x}, and {other.name} of {path.name} at {other.base:#x}"
        hint = f"if it has the registers of {other.name}, the overlay says 'devices: {{{device.name}: {other.name}}}'"
        raise clang.wrong(device.where, text, wrong, f"  {hint}", length=len(device.name))
    near = did_you_mean(device.name.upper(), [b.name for b in map_.blocks])
    raise clang.wrong(
        device.where, text, f"device '{device.name}': {path.name} has nothing at {device.address:#x}{near}"
    )
