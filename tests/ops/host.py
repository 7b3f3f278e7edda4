"""Many graphs in one program on this machine, compiled with all warnings and with the sanitizers of gcc."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import emit
from edgebuild.model.emit.code import access_functions
from edgebuild.model.ir import Array, Graph, Tensor
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.search import Plan

FLAGS = "-std=c11 -O0 -Wall -Wextra -Wconversion -Wshadow -Wundef -Werror"
SANITIZERS = "-fsanitize=address,undefined -fno-sanitize-recover=all"
MAIN = """\
#include <stdio.h>
{includes}

static int take(void *to, size_t size, FILE *file)
{{
    return fread(to, 1, size, file) == size;
}}

int main(int count, char **names)
{{
    FILE *in = fopen(names[1], "rb"), *out = fopen(names[2], "wb");
    int good = count == 3 && in && out;
{calls}
    return !good || fclose(out) || fclose(in);
}}
"""


def run_on_host(
    graphs: Sequence[Graph], inputs: Sequence[list[list[Array]]], folder: Path, **options: Any
) -> list[list[list[Array]]]:
    """Outputs of all graphs for their vectors: [graph][vector][output]. `options` are fields of the ModelRequest.

    Raises AssertionError with the compiler's or the sanitizers' words.
    """
    plans = [write(graph, f"g{i}", folder, **options) for i, graph in enumerate(graphs)]
    build(plans, [len(vectors) for vectors in inputs], folder)
    with open(folder / "in.bin", "wb") as file:
        for vectors in inputs:
            file.writelines(np.ascontiguousarray(x).tobytes() for vector in vectors for x in vector)
    checked(["./program", "in.bin", "out.bin"], folder)
    data, at = (folder / "out.bin").read_bytes(), 0
    results = []
    for graph, vectors in zip(graphs, inputs, strict=True):
        results.append([])
        for _ in vectors:
            row = []
            for t in (graph.tensors[n] for n in graph.outputs):
                row.append(np.frombuffer(data, t.dtype, t.elements, at).reshape(t.shape))
                at += t.bytes
            results[-1].append(row)
    assert at == len(data)
    return results


def write(graph: Graph, name: str, folder: Path, **options: Any) -> Plan:
    """Plan and print one graph into `folder`."""
    decided = plan(graph, load_target("host"), ModelRequest(Path("random"), name, "host", **options))
    for artifact in emit(decided, ""):
        (folder / artifact.name).write_bytes(artifact.data)
    return decided


def build(plans: Sequence[Plan], vectors: Sequence[int], folder: Path) -> None:
    includes = "\n".join(f'#include "{p.name}.h"' for p in plans)
    calls = "\n".join(call(p, count) for p, count in zip(plans, vectors, strict=True))
    (folder / "main.c").write_text(MAIN.format(includes=includes, calls=calls))
    (folder / "weights.c").write_text("\n".join(f'#include "{p.name}_weights.c"' for p in plans) + "\n")
    sources = ["main.c", "weights.c", *(f"{p.name}.c" for p in plans)]
    checked(["gcc", *FLAGS.split(), *SANITIZERS.split(), *sources, "-o", "program"], folder)


def call(p: Plan, vectors: int) -> str:
    """Statements that feed and run one model."""
    functions = access_functions(p)

    def bytes_of(t: Tensor) -> int:
        return t.bytes

    lines = [f"    for (int i = 0; good && i < {vectors}; ++i) {{"]
    lines += [f"        good &= take({functions[n]}(), {bytes_of(p.graph.tensors[n])}, in);" for n in p.graph.inputs]
    lines += [f"        {p.name}_invoke();"]
    for n in p.graph.outputs:
        size = bytes_of(p.graph.tensors[n])
        lines += [f"        good &= fwrite({functions[n]}(), 1, {size}, out) == {size};"]
    return "\n".join([*lines, "    }"])


def checked(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout[:8000]
    return done.stdout
