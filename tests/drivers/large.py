"""Cost of a large driver: the command beside a bare parse by libclang, as processes, in seconds of the processor."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from edgebuild.base.target import hal_dir
from tests.conftest import ROOT

LINES, RUNS = 500, 7
PARSE = """import sys
from clang import cindex
unit = cindex.Index.create().parse(sys.argv[1], args=["-std=gnu11", "-ffreestanding", "-I", sys.argv[2]])
assert not list(unit.diagnostics), list(unit.diagnostics)
"""
FIELDS = "".join(f"    uint{1 + i % 12} f{i};\n" for i in range(30))
HEAD = f"""#include "edgebuild_bf.h"
bfGroup Channel {{
    bit en;
    bit dir;
    uint4 mode;
    bit rse(self) busy;
}};
bfGroup Unit {{
    bfGroup Channel ch[16];
{FIELDS}    uint32 wse(self) fifo;
}};
make_device(Unit, unit, 0x40000000);
"""
FUNCTION = """void set_up_{0}(int i, int v)
{{
    unit->ch[i].en = 1;
    unit->ch[i].dir = v & 1;
    unit->ch[i].mode = v;
    if (v > {0}) {{
        unit->f{1} = v;
        unit->f{2} = v + 1;
    }}
    while (unit->ch[i].busy)
        ;
    for (int j = 0; j < v; j++)
        unit->fifo = j + unit->f{3};
}}
"""


def text(lines: int = LINES) -> str:
    """A driver of so many lines: channels that are set up together, fields in pairs, branches and loops."""
    source, i = HEAD, 0
    while source.count("\n") < lines:
        source += FUNCTION.format(i, i % 30, (i + 1) % 30, (i + 2) % 30)
        i += 1
    return source


def measure(folder: Path) -> dict[str, float]:
    """Milliseconds of processor time, the least of some runs, and ratios to the bare parse."""
    file, include = folder / "large.c", str(hal_dir() / "include")
    file.write_text(text())
    driver = [sys.executable, "-P", "-m", "edgebuild", "driver", str(file), "--name", "large", "--target", "pulpino"]
    driver += ["-q", "-o", str(folder / "out")]
    commands = {"parse": [sys.executable, "-c", PARSE, str(file), include]}
    commands |= {layout: [*driver, "--layout", layout] for layout in ("heuristic", "optimize")}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(1 + RUNS):  # by turns, since the machine's pace changes
        for name, command in commands.items():
            times[name].append(_seconds(command, folder))
    least = {name: min(t[1:]) for name, t in times.items()}  # a first run fills caches of files and compiled Python
    result = {f"large_{name}_ms": round(1000 * t) for name, t in least.items()}
    ratios = {f"large_{n}_ratio": round(least[n] / least["parse"], 1) for n in ("heuristic", "optimize")}
    return {**result, **ratios}


def _seconds(command: list[str], folder: Path) -> float:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(folder / "pyc")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=env, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
