"""Clock trees as files of their own."""

from __future__ import annotations

import yaml

from edgebuild.base.facts import stated_in
from edgebuild.base.target import hal_dir


def whole(name: str) -> str:
    """The tree of a part, in YAML, without the rest of its family."""
    stated = stated_in(name, hal_dir() / "clocks")
    assert stated
    return str(yaml.serialize(stated[1], width=1000))
