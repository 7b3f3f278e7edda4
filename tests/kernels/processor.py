"""Many graphs in one firmware for a simulated processor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgebuild.base.artifacts import publish
from edgebuild.base.programs import own
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import Target, firmware_support, hal_dir, link_flags
from edgebuild.model.compile import emit
from edgebuild.model.emit.addresses import access_functions
from edgebuild.model.ir import Array, Graph
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.search import Plan
from tests.ops.host import checked

MAIN = """\
#include "eb_semihost.h"
{includes}

int main(void)
{{
    const int in = eb_open("in.bin", EB_READ), out = eb_open("out.bin", EB_WRITE);
    int good = in >= 0 && out >= 0;
{calls}
    eb_close(out);
    return !good;
}}
"""


def run_on(
    target: Target, graphs: Sequence[Graph], inputs: Sequence[list[list[Array]]], folder: Path, **options: Any
) -> list[list[list[Array]]]:
    """Outputs of all graphs for their vectors: [graph][vector][output]. `options` are fields of the ModelRequest."""
    plans = [plan(g, target, ModelRequest(Path("x"), f"g{i}", target.name, **options)) for i, g in enumerate(graphs)]
    return run_plans(target, plans, inputs, folder)


def run_plans(
    target: Target, plans: Sequence[Plan], inputs: Sequence[list[list[Array]]], folder: Path, debug: bool = False
) -> list[list[list[Array]]]:
    """The same for plans, whose names differ. `debug`: with what debuggers read, as the target's flags have it."""
    for p in plans:
        publish(emit(p, ""), folder)
    publish(firmware_support(target), folder)
    _build(target, plans, [len(vectors) for vectors in inputs], folder, [] if debug else ["-g0"])
    data = b"".join(np.ascontiguousarray(x).tobytes() for vectors in inputs for v in vectors for x in v)
    (folder / "in.bin").write_bytes(data)
    assert target.runner is not None
    checked(own([word.replace("{elf}", "program.elf") for word in target.runner.command]), folder)
    data, at, results = (folder / "out.bin").read_bytes(), 0, []
    for graph, vectors in zip([p.graph for p in plans], inputs, strict=True):
        rows = []
        for _ in vectors:
            rows.append([])
            for t in (graph.tensors[n] for n in graph.outputs):
                rows[-1].append(np.frombuffer(data, t.dtype, t.elements, at).reshape(t.shape))
                at += t.bytes
        results.append(rows)
    assert at == len(data)
    return results


def _build(target: Target, plans: Sequence[Plan], vectors: Sequence[int], folder: Path, flags: Sequence[str]) -> None:
    includes = "\n".join(f'#include "{p.name}.h"' for p in plans)
    calls = "\n".join(_calls(p, count) for p, count in zip(plans, vectors, strict=True))
    (folder / "main.c").write_text(MAIN.format(includes=includes, calls=calls))
    assert target.runner is not None and target.firmware is not None
    hal = [str(hal_dir() / s) for s in (*target.firmware.startup, *target.runner.sources)]
    models = [file for p in plans for file in (f"{p.name}.c", f"{p.name}_weights.S")]
    tools = target.toolchain
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef", "-Werror"]
    includes_of = ["-I.", f"-I{hal_dir() / 'include'}"]
    checked(
        [tools.compiler, *tools.cflags, *flags, *warnings, *includes_of, "main.c", *models, *hal,
         *link_flags(target, tuple(f"{p.name}_memory.ld" for p in plans)), "-o", "program.elf", *tools.libs],
        folder,
    )  # fmt: skip


def _calls(p: Plan, vectors: int) -> str:
    functions, graph = access_functions(p), p.graph
    lines = [f"    for (int i = 0; i < {vectors}; ++i) {{"]
    for n in graph.inputs:
        lines.append(
            f"        good &= eb_read(in, {functions[n]}(), {graph.tensors[n].bytes}) == {graph.tensors[n].bytes};"
        )
    lines.append(f"        {p.name}_invoke();")
    for n in graph.outputs:
        lines.append(
            f"        good &= eb_write(out, {functions[n]}(), {graph.tensors[n].bytes}) == {graph.tensors[n].bytes};"
        )
    return "\n".join([*lines, "    }"])
