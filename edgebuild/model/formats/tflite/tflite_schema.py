"""The schema of TFLite files, a module at a time.

`import tflite` runs all 187 modules of the package, in 30 ms; a model needs ten of them. So its own `__init__` is not
run before somebody asks for a name that no module has.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """The package `tflite`: each class is looked for in the module of its name, and stands in the module's place."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if find_spec(f"tflite.{name}") is not None:
            import_module(f"tflite.{name}")
        else:
            self.__class__ = ModuleType  # type: ignore[assignment]
            self.__loader__.exec_module(self)  # type: ignore[union-attr]
        return getattr(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, getattr(value, name, value) if isinstance(value, ModuleType) else value)


def _package() -> ModuleType:
    spec = find_spec("tflite")
    if "tflite" in sys.modules or spec is None:
        return import_module("tflite")
    package = module_from_spec(spec)
    package.__class__ = _Package
    sys.modules["tflite"] = package
    return package


tflite: Any = _package()
