"""`python -m edgebuild.build.check FILE`: whether requests are right, before a build runs them.

FILE has a list of `{"file", "target", "folder", "request"}`: a script of CMake and the target that a call in it makes,
the folder of its request, and the request. Errors are printed with the line of the call and in the spelling of CMake.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgebuild.base.errors import Diagnostic, EdgebuildError
from edgebuild.base.options import options_of
from edgebuild.base.request import KINDS, checked_request
from edgebuild.base.target import load_target

IN_LOOP = r"[^\s)\"]*\$\{[^\s)\"]*"
CALL = r"\b(?:edgebuild_)?add_\w+\s*\(\s*\"?{}[\"\s)]"


def check_request(data: Any, folder: str, with_target: bool = True) -> list[Diagnostic]:
    """Errors of a request, and of its target, in the spelling of build scripts; none if it is right."""
    try:
        request = checked_request(data, "", folder).request
        if with_target:
            load_target(request.target)
    except EdgebuildError as error:
        return [spelled(d) for d in error.diagnostics]
    return []


def spelled(d: Diagnostic) -> Diagnostic:
    """The diagnostic with options as build scripts have them: TILE auto, not --tile auto."""
    return replace(d, text=in_scripts(d.text), hints=tuple(map(in_scripts, d.hints)))


def in_scripts(text: str) -> str:
    """A text with the options of the command, `--max-mac-overhead` or `option 'ram'`, in upper case."""
    names = {name for request in KINDS.values() for name in options_of(request)}

    def upper(match: re.Match[str]) -> str:
        name = (match[1] or match[2]).replace("-", "_")
        return match[0] if name not in names else name.upper() if match[1] else f"option {name.upper()}"

    return re.sub(r"--([a-z][a-z-]*[a-z])\b|option '([a-z_]+)'", upper, text)


def line_of(script: str, target: str) -> int:
    """The line of the script with the call that makes this target, or such a call in a loop; 0 where there is none."""
    try:
        text = Path(script).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    call = re.search(CALL.format(re.escape(target)), text) or re.search(CALL.format(IN_LOOP), text)
    return text.count("\n", 0, call.start()) + 1 if call else 0


def main(file: Path) -> int:
    status = 0
    for call in json.loads(file.read_text(encoding="utf-8")):
        for d in check_request(call["request"], call["folder"]):
            line = 0 if d.file else line_of(call["file"], call["target"])
            place = d if d.file else Diagnostic(f"{call['target']}: {d.text}", call["file"], line, hints=d.hints)
            print(place, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
