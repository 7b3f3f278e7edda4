"""`./sconsw zoo`: models of packages and of exporters, which nobody here made, compiled and judged.

Each is compiled for the build machine and for a Cortex-M4, run, and compared with its reference. Writes build/zoo.json:
`rows[{model, source, form, status, why, arena_bytes, on}]`. `status` is right, refused, wrong or crashed; `on` says the
same of the Cortex-M4, or that the model does not fit. The status of the command is 1 where one is wrong or crashed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from edgebuild.base.workers import results
from tests.conftest import ROOT
from tests.wild.sources import Model, Unavailable, exporters, of_exporter, of_package, packages

TARGET = "mps2-an386"
LIMIT_S = 900  # of processor time and of waiting; beyond it the command hangs


@dataclass(frozen=True)
class Row:
    model: str
    source: str
    form: str
    status: str
    why: str
    arena_bytes: int | None
    on: str  # of the Cortex-M4

    def __str__(self) -> str:
        arena = "" if self.arena_bytes is None else f"{self.arena_bytes:,}"
        return f"{self.status:8} {self.on:12} {arena:>12}  {self.source}: {self.model}  {self.why}"


def verified(model: Model, target: str) -> tuple[str, str, int | None]:
    """Status, reason and bytes of the arena of a model on a target."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [sys.executable, "-m", "edgebuild", "verify", str(model.file), "--target", target, "--tile", "off",
                   *model.options, "--json", str(out)]  # fmt: skip
        try:
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return "crashed", f"takes more than {LIMIT_S} s", None
        if out.is_file():
            result = json.loads(out.read_text())
            why = "" if result["equal"] else f"differs by up to {result['max_abs_diff']}"
            return "right" if result["equal"] else "wrong", why, result.get("arena_bytes")
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    if done.returncode != 1 or "Traceback" in done.stderr or not errors:
        return "crashed", done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message", None
    return "refused", errors[-1].partition("error: ")[2], None


def row_of(model: Model) -> Row:
    """A row of the table; what the build machine refuses is not tried on the Cortex-M4."""
    status, why, arena = verified(model, "host")
    on = ""
    if status == "right":
        on, reason, _ = verified(model, TARGET)
        if on == "refused":
            on = "too large" if "fit" in reason or "overflow" in reason else f"refused: {reason}"
    return Row(model.name, model.source, model.file.suffix[1:], status, why, arena, on)


def models(only: str) -> Iterator[Model]:
    """All models whose source and name contain a text; a source that cannot be had is reported and left out."""
    sources = [*((of_package, entry) for entry in packages()), *((of_exporter, entry) for entry in exporters())]
    for read, entry in sources:
        if only and only not in f"{entry.get('package', entry.get('name'))}":
            continue
        try:
            yield from read(entry)
        except Unavailable as problem:
            print(f"not available: {problem}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./sconsw zoo", description=__doc__)
    parser.add_argument("--only", default="", help="a part of the name of a package or of an exporter")
    parser.add_argument("--scheduler", metavar="tcp://HOST:PORT", help="let the workers of a scheduler of dask do the "
                        "work, each in a checkout at the same path")  # fmt: skip
    args = parser.parse_args()
    rows = []
    for row in results(row_of, models(args.only), args.scheduler):
        rows.append(row)
        print(rows[-1], flush=True)
        out = ROOT / "build" / "zoo.json"
        out.parent.mkdir(exist_ok=True)
        out.write_text(json.dumps({"rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    counts = Counter(row.status for row in rows)
    print(f"{len(rows)} models: " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    bad = [row for row in rows if row.status in ("wrong", "crashed") or row.on in ("wrong", "crashed")]
    return int(bool(bad))


if __name__ == "__main__":
    raise SystemExit(main())
