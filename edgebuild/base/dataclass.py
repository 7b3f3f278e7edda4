"""`dataclass` as in the standard library, but cheap to import.

Python 3.11 writes up to six methods of a dataclass as text and compiles each: 0.25 ms a class, also for the classes of
which a run makes no object. This package has 400 of them, and a small model needs 90. Here all classes share the other
methods, and `__init__` is compiled when the first object is made. Fields are those of the standard library, so that
`fields`, `replace` and `asdict` work. Objects compare, hash and print as there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, kw_only=False):
        """Make the methods of a class from its annotations, as `dataclasses.dataclass` with these options."""

        def decorate(cls):
            return _decorated(cls, frozen, eq, repr, kw_only)

        return decorate if cls is None else decorate(cls)


def _decorated(cls: Any, frozen: bool, eq: bool, repr: bool, kw_only: bool) -> Any:
    own = set(vars(cls))
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    methods: dict[str, Any] = {"__init__": _first_init(cls, frozen), **({"__repr__": _repr} if repr else {})}
    if frozen:
        methods |= {"__setattr__": _setattr, "__delattr__": _delattr}
    if eq:
        fields = dataclasses.fields(cls)
        compared = [f.name for f in fields if f.compare]
        hashed = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
        methods |= {"__eq__": _eq(_getter(compared)), "__hash__": _hash(_getter(hashed)) if frozen else None}
    for name, method in methods.items():
        if name not in own or (name == "__hash__" and "__eq__" in own and cls.__hash__ is None):
            setattr(cls, name, method)
    return cls


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """The values of these fields of an object, as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda value: ()
    only = attrgetter(names[0])
    return lambda value: (only(value),)


def _first_init(cls: Any, frozen: bool) -> Callable[..., None]:
    """An `__init__` that writes the real one in its own place, and calls it."""

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        cls.__init__ = _init(cls, frozen)
        cls.__init__(self, *args, **named)

    return __init__


def _init(cls: Any, frozen: bool) -> Any:
    names: dict[str, Any] = {"_set": object.__setattr__, "_none": dataclasses.MISSING}
    plain, keywords, lines = list[str](), list[str](), list[str]()
    for f in dataclasses.fields(cls):
        has_default, has_factory = f.default is not dataclasses.MISSING, f.default_factory is not dataclasses.MISSING
        if not f.init and not has_factory:
            continue  # `__post_init__` sets it, or its default is found in the class
        value = f.name
        if has_factory:
            names[f"_{f.name}"] = f.default_factory
            value = f"_{f.name}() if {f.name} is _none else {f.name}" if f.init else f"_{f.name}()"
        elif has_default:
            names[f"_{f.name}"] = f.default
        if f.init:
            default = "=_none" if has_factory else f"=_{f.name}" if has_default else ""
            (keywords if f.kw_only else plain).append(f.name + default)
        lines.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    head = ", ".join(["self", *plain, *(["*", *keywords] if keywords else [])])
    exec(f"def __init__({head}):\n " + "\n ".join(lines or ["pass"]), names)
    init = names["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


@recursive_repr("...")
def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _setattr(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
