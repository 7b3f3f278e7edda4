"""edgebuild: neural networks and register drivers as build inputs of firmware.

`edgebuild.compile` is imported at its first use, since the fast path for unchanged builds imports this package.
"""

TYPE_CHECKING = False  # instead of that of `typing`, whose import takes longer than the fast path
if TYPE_CHECKING:
    from .base.errors import EdgebuildError as EdgebuildError
    from .build.api import Result as Result
    from .build.api import compile as compile

__version__ = "0.1.0"


_LAZY = {"EdgebuildError": "base.errors", "Result": "build.api", "compile": "build.api"}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'edgebuild' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"edgebuild.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_LAZY]
