"""`edgebuild run NAME.req.json`: generate the products of a request, and the files that build systems need.

For a driver, `NAME.flags` beside the request, if present, has options of the compiler. `NAME.lines` is written
with the products: compiler flags with the paths of the sources on this machine.
Beside the products are `NAME.d`, a rule for CMake with the files that were read, and `NAME.stamp`, which is written
last: if it exists, the products are complete.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.artifacts import Artifact, is_written, publish
from ..base.cache import compiled, states
from ..base.depfile import cmake_depfile, refuse, unread_by_makefiles
from ..base.errors import fail, from_os
from ..base.inputs import check_file, check_replaced, read_text
from ..base.own_code import code_inputs, with_code
from ..base.progress import follow, warn
from ..base.request import ClockRequest, DriverRequest, GroupRequest, ModelRequest, read_request
from ..base.target import load_target
from ..base.text import NAME, named, named_data, visible
from ..model import choices
from . import stamp as stamps
from .header import finish, is_header

PREPROCESSOR = re.compile(r"(-(?:[IDU]|isystem|iquote|idirafter|include(?!-)|imacros))(.*)", re.DOTALL)


def run(path: Path, makefiles: bool = False) -> int:
    """Generate the products of a request file; returns 0. `makefiles`: list the products in the depfile, too.

    Raises EdgebuildError for wrong input; then the products of an earlier run are not changed.
    """
    code = code_inputs()  # first: no product may be older than the file that represents the code
    began = time.time_ns()
    file = read_request(path)
    request = file.request
    if isinstance(request, DriverRequest):
        return _run_driver(path, request, file.output, code, began, makefiles)
    inputs = with_code(files_read(request), code)
    # Fingerprints are taken before the work, so that a file that changes meanwhile differs from its record.
    read = [os.path.abspath(path), *inputs]
    before, lines = states(read), _fingerprints(read, began)
    if isinstance(request, ModelRequest):
        follow()
    artifacts, text = _clocks(request) if isinstance(request, ClockRequest) else compiled_files(request)
    lines = _settled_lines(read, before, lines)
    _finish(path, began, file.output, artifacts, inputs, lines, makefiles)
    print(text)
    return 0


def run_header(path: Path, makefiles: bool = False) -> int:
    """Write the header of a model from its graph, without a plan; returns 0.

    Raises EdgebuildError for wrong input, and for a request other than of a model on one device.
    """
    from ..model.compile import graph_of  # late: `write_plain` does not need it
    from ..model.interface_of import interface_of

    code = code_inputs()
    began = time.time_ns()
    file = read_request(path)
    request = file.request
    if not isinstance(request, ModelRequest) or request.cluster is not None:
        raise fail("no header of its own: only models for one device have one", file=str(path))
    target = load_target(request.target)
    graph = graph_of(request)
    interface = interface_of(graph, request, target.name)
    finish(str(path), began, interface, str(file.output), with_code(files_read(request), ()), code, makefiles)
    return 0


def _fingerprints(paths: Sequence[str], began: int) -> list[str]:
    try:
        for path in paths:
            refuse(path, "\n\r\t", "stamps and depfiles, which have one on a line")
            check_file(path)
        return [stamps.fingerprint(p, began - stamps.SETTLED_NS) for p in paths]
    except OSError as error:
        raise from_os(error, "cannot read it") from error


def _settled_lines(paths: list[str], before: list[tuple[int, int, int] | None], lines: list[str]) -> list[str]:
    """The stamp lines of files. A file that was written since `before` gets a line that never matches: the work may
    have read other bytes, even if the present ones are as before.
    """
    rows = zip(paths, before, states(paths), lines, strict=True)
    return [line if then == now else stamps.never(path) for path, then, now, line in rows]


def files_read(request: ModelRequest | GroupRequest | ClockRequest) -> list[str]:
    """The files that the work will read, without those of this package."""
    files = list(load_target(request.target).files)
    if isinstance(request, GroupRequest):
        own = [str(request.file)] if request.file else []
        return [*own, *dict.fromkeys(file for m in request.models for file in model_files(m)), *files]
    return files if isinstance(request, ClockRequest) else [*model_files(request), *files]


def model_files(request: ModelRequest) -> list[str]:
    from ..model.formats import files_beside  # late: drivers and clocks do not need it

    beside = map(str, files_beside(request.source))
    return [*map(str, request.files), *beside, *choices.files(request), *targets_of(request)]


def unused_weights(request: ModelRequest) -> str:
    """The name of the empty one of `NAME_weights.S` and `NAME_weights.c`, which commands do not write.

    make's suffix rules would build one object from both. Build systems always get both files.
    """
    choice = load_target(request.target).weights if request.weights == "auto" else request.weights
    return f"{request.name}_weights.{'c' if choice == 'asm' else 'S'}"


def targets_of(request: ModelRequest) -> list[str]:
    """The target files of all devices of the cluster; empty without a cluster."""
    if request.cluster is None:
        return []
    from ..model.plan.distribute.forms import read_cluster

    devices = read_cluster(request.cluster)[0].devices
    return list(dict.fromkeys(file for d in devices for file in load_target(d.target).files))


def _run_driver(
    path: Path, request: DriverRequest, output: Path, code: tuple[str, ...], began: int, makefiles: bool
) -> int:
    """Run the request of a driver. Its headers are only known after it is read, and are fingerprinted then."""
    from ..driver.command import generate
    from ..driver.source.sources import path_flags

    flags = Path(stamps.stamp_of(os.path.abspath(path))).with_suffix(".flags")
    request = with_flags(request, flags)
    sources = [os.path.abspath(p) for p in (path, *request.sources, *([flags] if flags.exists() else []))]
    before, lines = states(sources), _fingerprints(sources, began)
    artifacts, driver, text = generate(request)
    lines = _settled_lines(sources, before, lines)
    inputs = list(dict.fromkeys([*sources[1:], *with_code(list(driver.files), code)]))
    headers = [p for p in inputs if p not in sources]
    rows = zip(headers, states(headers), _fingerprints(headers, began), strict=True)
    lines += [stamps.never(header) if state and state[0] >= began else line for header, state, line in rows]
    lines += [stamps.absent(os.path.abspath(p)) for p in driver.absent]
    paths = Artifact(f"{request.name}.lines", os.fsencode(path_flags(driver.source.lines)))
    _finish(path, began, output, (*artifacts, paths), inputs, lines, makefiles)
    print(text)
    return 0


def with_flags(request: DriverRequest, file: Path) -> DriverRequest:
    """The request with the flags in `NAME.flags`, which build systems write: the compiler's options, one per line.

    A line that begins with `SHELL:` has several, as a shell reads them. `-I` lines are relative to the file's folder,
    others to the working directory. Options that do not change what the preprocessor reads are ignored.
    """
    if not file.exists():
        return request
    options, words = list[str](), deque[str]()
    for line in read_text(file).split("\n"):
        if line.startswith("SHELL:"):
            try:
                words.extend(shlex.split(line[6:]))
            except ValueError as error:
                raise fail(f"compiler options cannot be read: {error}: {line[6:]}", file=str(file)) from error
        else:
            words.append(f"-I{file.parent / line[2:]}" if re.match("-I.", line) else line)
    own = {os.path.abspath(f) for f in request.force_include}
    while words:
        match = PREPROCESSOR.fullmatch(words.popleft())
        value = match and (match[2] or (words.popleft() if words else ""))
        if match and value and match[1] in ("-D", "-U"):
            options.append(f"{match[1]}{value}")
        elif match and value and os.path.abspath(value) not in own:
            # compilers search for such a name as for that of an #include
            is_name = match[1] in ("-include", "-imacros") and not os.path.exists(value)
            options += [f"-{match[1]}={value}"] if is_name else [match[1], os.path.normpath(value)]
    return replace(request, compiler=tuple(options))


def _finish(
    path: Path,
    began: int,
    output: Path,
    artifacts: tuple[Artifact, ...],
    inputs: list[str],
    lines: list[str],
    makefiles: bool,
) -> None:
    """Write the products, the depfile, and last the stamp, so that incomplete products have none.

    All get the date of the beginning, so that an input that changed during the work is newer. In makefiles the stamp
    also depends on the products: make runs the rule again if one is missing, but not if their dates are equal.
    """
    stamp = Path(stamps.stamp_of(os.path.abspath(path)))
    check_replaced([*(output / a.name for a in artifacts), stamp.with_suffix(".d"), stamp], [path, *inputs])
    ahead = [a for a in artifacts if a.name == f"{stamp.stem}.h"]
    agrees = all(is_header(str(path), str(output / a.name), a.data) for a in ahead)
    if not all(is_written(output / a.name, a.data) for a in artifacts):
        stamp.unlink(missing_ok=True)
    changed = publish(artifacts, output)
    for name in [a.name for a in artifacts] if stamps.is_ahead(inputs) else changed:
        os.utime(output / name, ns=(began, began))
    lines += [stamps.fingerprint(str(output / a.name), time.time_ns()) for a in artifacts]
    if not agrees:
        hints = ["it was replaced: build again", "please report this with the model: it is a mistake of edgebuild"]
        raise fail("the header that was written ahead is not that of the model", file=str(output), hints=hints)

    # `publish` replaces a link or a pipe in their place, and does not write to it.
    unread = unread_by_makefiles(inputs) if makefiles else []
    for problem in unread:
        warn(problem)
    seen = [file for file in inputs if file not in {problem.file for problem in unread}]
    products = [str(output / a.name) for a in artifacts] if makefiles else []
    rule = Artifact(stamp.with_suffix(".d").name, os.fsencode(cmake_depfile(str(stamp), seen, products)))
    publish([rule], stamp.parent)
    publish([Artifact(stamp.name, os.fsencode("\n".join([stamps.HEADER, *lines, stamps.END, ""])))], stamp.parent)
    os.utime(stamp, ns=(began, began))


def compile_request(request: ModelRequest) -> tuple[Artifact, ...]:
    """Compile a model, or one device's part of it. Imports are late, since a cached result does not need them."""
    if request.cluster is None and request.device is None:
        from ..model.compile import compile_model

        return compile_model(request)
    from ..model.cluster.products import compile_part

    return compile_part(request)


def kept_or_compiled(request: ModelRequest) -> tuple[Artifact, ...]:
    """The files of a model, from the cache or compiled. The request must have its kernel choices already."""
    asked = for_any_name(request)
    artifacts = compiled(asked, model_files(asked), compile_request)
    return artifacts if asked is request else tuple(_named(a, request) for a in artifacts)


def for_any_name(request: ModelRequest) -> ModelRequest:
    """The request with placeholders for the names of a model and its file, unless its result depends on them."""
    has_names = request.cluster is not None or request.device is not None or request.set_weights
    return request if has_names else replace(request, name=NAME)


def _named(artifact: Artifact, request: ModelRequest) -> Artifact:
    name, file = artifact.name.replace(NAME, request.name), visible(request.source.name)
    if name.endswith(".bin"):
        return Artifact(name, artifact.data)
    text = artifact.data.decode()
    if name.endswith(".json"):
        text = json.dumps(named_data(json.loads(text), request.name, file), indent=1, sort_keys=True) + "\n"
    else:
        text = named(text, request.name, file)
    return Artifact(name, text.encode())


def compiled_files(request: ModelRequest | GroupRequest) -> tuple[tuple[Artifact, ...], str]:
    """The files of a model, or of a group and its models, and their summary."""
    if isinstance(request, ModelRequest):
        artifacts = kept_or_compiled(choices.with_choices(request))
        return artifacts, summary(artifacts)
    from ..model.group import group_files, group_summary

    models = {m.name: kept_or_compiled(choices.with_choices(m)) for m in request.models}
    artifacts = group_files(request, models)
    return artifacts, "\n".join([*map(summary, models.values()), group_summary(artifacts)])


def _clocks(request: ClockRequest) -> tuple[tuple[Artifact, ...], str]:
    from ..clock import emit as clock

    plan = clock.requested_plan(request)
    return clock.clock_files(plan), clock.summary(request, plan)


MIN_FLASH = 1024  # least difference of flash in bytes that a hint mentions


def summary(artifacts: Sequence[Artifact]) -> str:
    """Summary of a model in three lines, with further lines on slices, the price of less memory, and energy."""
    files = {a.name: a.data for a in artifacts}
    r = json.loads(next(data for name, data in files.items() if name.endswith("_report.json")))
    ram, rom, macs = r["ram"], r["rom"], r["macs"]["model"]
    proved = r["layout"]["optimal"] and (r["schedule"]["optimal"] or r["tiling"])
    proof = "optimal" if proved else f"bound {ram['lower_bound_bytes']} B"
    size = f"{macs / 1e6:.2f} M" if macs >= 10000 else str(macs)
    count = sum(len(step["ops"]) for step in r["schedule"]["steps"])
    saved = f"{ram['untiled_arena_bytes']} B -> " if r["tiling"] else ""
    how = f"{_tiling(r)}; layout {proof}" if r["tiling"] else f"layout {proof}"
    return "\n".join(
        f"[edgebuild] {line}"
        for line in (
            f"{r['model']['file']} -> {r['target']}: {count} ops, {size} MACs",
            f"arena {saved}{ram['arena_bytes']} B ({how})",
            *_slices(r),
            *_price(r),
            *_less(r),
            f"weights {rom['weights_bytes']} B in {rom['memory']}, code about {rom['estimated_code_bytes']} B",
            *([_energy(r["energy"])] if "energy" in r else []),
        )
    )


def _tiling(r: dict[str, Any]) -> str:
    rolled = sum(len(t["ops"]) for t in r["tiling"] if t["kind"] == "rolling")
    parts = sum(t["kind"] != "rolling" for t in r["tiling"])
    macs = r["macs"]["generated"] - r["macs"]["model"]
    words = [f"{rolled} ops row by row"] if rolled else []
    words += [f"{parts} {'run' if parts == 1 else 'runs'} of ops in parts"] if parts else []
    return ", ".join([*words, f"{100 * macs / r['macs']['model']:.1f} % more MACs" if macs > 0 else "no extra MACs"])


def _slices(r: dict[str, Any]) -> list[str]:
    """The longest step of a stepwise inference, if the clock is known, and whether it exceeds the limit."""
    if (s := r.get("slices")) is None:
        return []
    name, limit = r["schedule"]["order"][s["step"]], s.get("limit_us")
    text = f"longest step {s['longest_us']:.0f} us, modelled: {s['step']} {name.split(';')[0]}"
    if limit is None or s["longest_us"] <= limit:
        return [text]
    return [f"{text}; it is longer than {limit:g} us, for it cannot be cut further"]


def _price(r: dict[str, Any]) -> list[str]:
    """Cost of the tiling against a plan without tiling; empty if nothing is tiled."""
    if not r["tiling"] or "price" not in r:
        return []
    more = _share_words(r["price"]["instructions"], r["price"]["cycles"])
    return [f"{more} against --tile off ({r['ram']['untiled_arena_bytes']} B), estimated"]


def _less(r: dict[str, Any]) -> list[str]:
    """Costs of less memory: of the next smaller cut, and of the smallest; empty if none takes less."""
    cuts = r.get("trade_off", [])
    at = next((i for i, cut in enumerate(cuts) if cut["chosen"]), 0)
    if not at:
        return []
    costs = dict.fromkeys(f"{cut['peak_bytes']} B for {_against(cuts[at], cut)}" for cut in (cuts[at - 1], cuts[0]))
    return [f"less memory: {'; '.join(costs)}, estimated (--ram BYTES, --objective ram)"]


def _against(now: dict[str, Any], cut: dict[str, Any]) -> str:
    """Relative cost of another cut against the plan's, and the difference of flash in bytes."""
    more = _share_words(cut["estimated_instructions"] / max(now["estimated_instructions"], 1) - 1, cut["time"] - 1)
    flash = cut["flash_bytes"] - now["flash_bytes"]
    return f"{more}, {flash:+d} B of flash" if flash >= MIN_FLASH else more


def _share_words(instructions: float, cycles: float) -> str:
    """Relative changes as text; cycles only if they differ from instructions."""
    words = f"{instructions:+.1%} instructions"
    return words if abs(cycles - instructions) < 0.005 else f"{words}, {cycles:+.1%} cycles"


def _energy(e: dict[str, Any]) -> str:
    clocks = ", ".join(dict.fromkeys(layer["config"] for layer in e["layers"]))
    spent = f"{e['time_us'] / 1000:.1f} of {e['qos_us'] / 1000:g} ms at {clocks}"
    return f"energy {e['energy_uj'] / 1000:.2f} mJ modelled, {spent}, then {e['idle']['mode'].replace('_', ' ')}"
