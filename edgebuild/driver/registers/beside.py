"""Files that belong to a register description, listed without parsing it: build systems ask for them in every build."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from ...base.errors import EdgebuildError
from ...base.inputs import read_bytes

PATCHES = (".yaml", ".yml")  # of svdtools
INCLUDE = re.compile(r'`include\s+["<]([^">\r\n]+)[">]')  # SystemRDL


def overlay_of(description: Path) -> Path:
    """The path of the overlay beside a register description, which need not exist."""
    return description.with_suffix(".overlay.yaml")


def files_beside(description: Path) -> list[str]:
    """The overlay, if there is one, and the includes of a SystemRDL description or an svdtools patch."""
    included, todo = dict[str, None](), [description] if description.suffix.lower() == ".rdl" else []
    if description.suffix.lower() in PATCHES:
        from .patches import read_patch  # late: few descriptions are patches

        with suppress(EdgebuildError):
            patch = read_patch(description)
            included = dict.fromkeys((*patch.files[1:], str(patch.description)))
    while todo:
        file = todo.pop()
        try:
            text = read_bytes(file).decode("utf-8", "replace")
        except EdgebuildError:  # the description's reader reports it
            text = ""
        inner = [Path(os.path.normpath(file.parent / name)) for name in INCLUDE.findall(text)]
        todo += [f for f in inner if str(f) not in included]
        included |= dict.fromkeys(map(str, inner))
    overlay = overlay_of(description)
    return [*included, *([str(overlay)] if overlay.exists() else [])]
