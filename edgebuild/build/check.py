"""`python -m edgebuild.build.check FILE`: check requests before a build runs them.

FILE has a list of `{"file", "target", "folder", "flags", "request"}`: a CMake script, the CMake target of a call in it,
the folder of its request, the flags of the C compiler, and the request. Errors are printed with the line of the call
and in CMake's spelling. A row with "chip", "counts", "function", "words" instead of the request is a test of a model.

`python -m edgebuild.build.check SCRIPT TARGET FUNCTION WORDS` prints SCRIPT:LINE of a call, see `line_of`.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..base.errors import Diagnostic, EdgebuildError, MissingTool, fail
from ..base.options import options_of
from ..base.request import KINDS, ClockRequest, ModelRequest, checked_request
from ..base.target import Target, load_target
from ..model.formats import folder_kind

IN_LOOP = r"([^\s)\"]*\$\{[^\s)\"]*)"
ANY_FUNCTION = r"(?:edgebuild_)?add_\w+"
CALL = r"\b{}\s*\(\s*\"?{}(?=[\"\s)])[^)]*"
WORD = r"[\w.+-]+"


def check_request(data: Any, folder: str, flags: str | None = None, plan_clocks: bool = True) -> list[Diagnostic]:
    """Errors of a request, in the spelling of build scripts; empty if it is right.

    `flags` of the C compiler, if given, are checked against the target. `plan_clocks`: check clock configurations, too.
    """
    try:
        request = checked_request(data, "", folder).request
        if plan_clocks and isinstance(request, ClockRequest):
            from ..clock.emit import requested_plan  # late: few projects have clocks

            requested_plan(request)
        if isinstance(request, ModelRequest) and request.source.is_dir():
            kind, hint = folder_kind(request.source) or ("a folder", "name the file of the model")
            raise fail(f"not a model that edgebuild reads: {kind}", file=str(request.source), hints=[hint])
        if flags is not None:
            check_core(load_target(request.target), flags)
    except EdgebuildError as error:
        return [spelled(d) for d in error.diagnostics]
    return []


def check_core(target: Target, flags: str) -> None:
    """Raise EdgebuildError if the compiler's flags are for another core than the target's."""
    here, theirs = _arch(flags), _arch(" ".join(target.toolchain.cflags))
    for option in ("mcpu", "march"):
        compiled_for, wanted = here.get(option, ""), theirs.get(option, "")
        if compiled_for and wanted and not _runs(option, compiled_for, wanted):
            hints = [f"choose a target with that core, or compile with -{option}={wanted}"]
            flag = f"-{option}={compiled_for}"
            text = f"target {target.name} is for -{option}={wanted}, and the flags of the compiler say {flag}"
            raise fail(text, hints=hints)


def check_tested(target: Target, counts: bool) -> None:
    """Raise EdgebuildError if a test limits the instructions (`counts`), and nothing counts them on the target."""
    if counts and (target.firmware is None or (target.runner and target.runner.port)):
        hints = ["leave the limit out, or use a target with a simulator: mps2-an386, riscv-virt"]
        raise fail(f"instructions are not counted on {target.name}", hints=hints)


def _arch(flags: str) -> dict[str, str]:
    """The last value of each of the flags -mcpu and -march."""
    return {match[1]: match[2] for match in re.finditer(r"(?:^|\s)-(mcpu|march)=([\w.+-]+)", flags)}


def _runs(option: str, core: str, target_core: str) -> bool:
    """Whether a core runs code for another one. A RISC-V core must have all of the other's single-letter extensions."""
    if option == "mcpu" or not (core.startswith("rv") and target_core.startswith("rv")):
        return core.partition("+")[0] == target_core.partition("+")[0]
    words = [re.match(r"rv(32|64)([a-wy]*)", arch.replace("g", "imafd")) for arch in (core, target_core)]
    (bits, letters), (bits_wanted, letters_wanted) = (w.groups() if w else ("", "") for w in words)
    return bits == bits_wanted and set(letters_wanted) <= set(letters)


def spelled(d: Diagnostic) -> Diagnostic:
    """The diagnostic with options as in build scripts: TILE auto, not --tile auto."""
    return replace(d, text=in_scripts(d.text), hints=tuple(map(in_scripts, d.hints)))


def in_scripts(text: str) -> str:
    """A text with the options of the command, `--max-mac-overhead` or `option 'ram'`, in upper case."""
    names = {name for request in KINDS.values() for name in options_of(request)}

    def upper(match: re.Match[str]) -> str:
        name = (match[1] or match[2]).replace("-", "_")
        return match[0] if name not in names else name.upper() if match[1] else f"option {name.upper()}"

    return re.sub(r"--([a-z][a-z-]*[a-z])\b|option '([a-z_]+)'", upper, text)


def line_of(script: str, target: str, function: str = "", words: str = "") -> int:
    """The line of the call in a CMake script for this target, possibly in a loop or by a function; 0 if not seen.

    `function`: a pattern of its name; default: those that add libraries. `words`: a text with the arguments. Of several
    calls for one target, as in the branches of an `if`, the one with the most equal words is meant.
    """
    function = function or ANY_FUNCTION
    try:
        text = Path(script).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    text = re.sub(r"#\[(=*)\[.*?\]\1\]|#[^\n]*", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    cluster = target.rpartition("_")[0]  # add_cluster makes a target for each device
    calls = [CALL.format(function, re.escape(target))]
    calls += [CALL.format("(?:edgebuild_)?add_cluster", re.escape(cluster))] if cluster else []
    values = dict(re.findall(r"\bset\s*\(\s*(\w+)\s+\"?([^\s)\"]+)", text))
    for name in re.findall(CALL.format(function, IN_LOOP), text):
        value = re.sub(r"\$\{(\w+)\}", lambda m: values.get(m[1], "*"), name)
        calls += [CALL.format(function, re.escape(name))] if fnmatchcase(target, value) else []
    calls += [CALL.format(r"\w+", re.escape(target))]  # last: by a function of the user
    matches = next(filter(None, (list(re.finditer(call, text)) for call in calls)), [])
    given = set(re.findall(WORD, words.upper()))
    call = min(matches, key=lambda m: len(given ^ {*re.findall(WORD, m[0].upper())}), default=None)
    return text.count("\n", 0, call.start()) + 1 if call else 0


def at_call(error: EdgebuildError, call: str, name: str, function: str = "", words: str = "") -> EdgebuildError:
    """The error of a build, in the spelling of its script. If it has no line, it gets that of the call.

    `call`: SCRIPT:LINE, or SCRIPT:TARGET of a call in CMake (`function`, `words`: see `line_of`), or "". `name`: the
    target of the call.
    """
    script, _, place = call.rpartition(":")
    line = int(place) if place.isdecimal() else line_of(script, place, function, words)
    kind = MissingTool if isinstance(error, MissingTool) else EdgebuildError
    return kind(*(_placed(spelled(d), script, line, name) for d in error.diagnostics))


def _placed(d: Diagnostic, script: str, line: int, name: str) -> Diagnostic:
    """The diagnostic with the position of a call, unless it has a line of its own."""
    if d.line or not script:
        return d
    text = ": ".join(filter(None, [name, *d.places, d.text]))
    return replace(d, text=text, file=script, line=line, node="", kind="")


def _problems(call: Any) -> list[Diagnostic]:
    if "request" in call:
        return check_request(call["request"], call["folder"], call["flags"])
    try:
        check_tested(load_target(call["chip"]), call["counts"])
    except EdgebuildError as error:
        return [spelled(d) for d in error.diagnostics]
    return []


def main(file: Path) -> int:
    status = 0
    for call in json.loads(file.read_text(encoding="utf-8")):
        for d in _problems(call):
            line = line_of(call["file"], call["target"], call.get("function", ""), json.dumps(call))
            print(_placed(d, call["file"], line, call["target"]), file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    if len(sys.argv) == 2:
        raise SystemExit(main(Path(sys.argv[1])))
    if number := line_of(*sys.argv[1:]):
        print(f"{sys.argv[1]}:{number}", end="")
