"""edgebuild: neural networks and register drivers as build inputs of firmware.

`edgebuild.compile` is loaded when it is first used: the command's no-change path imports this package.
"""

TYPE_CHECKING = False  # of `typing`, whose import takes longer than the no-change path
if TYPE_CHECKING:
    from edgebuild.build.api import Result as Result
    from edgebuild.build.api import compile as compile

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in ("compile", "Result"):
        raise AttributeError(f"module 'edgebuild' has no attribute '{name}'")
    from edgebuild.build import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return [*globals(), "Result", "compile"]
