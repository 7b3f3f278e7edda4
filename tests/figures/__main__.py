"""`./sconsw figures`: measures every number of the README and of docs again and prints it beside what the page says.

Writes build/figures.json: `rows[{page, line, what, says, measured, holds}]`. The status is 1 where a number differs
or is not measured.
"""

from __future__ import annotations

import argparse
import json

from tests.conftest import ROOT
from tests.figures import measure
from tests.figures.register import Checked, checks


def main() -> int:
    parser = argparse.ArgumentParser(prog="./sconsw figures", description=__doc__)
    parser.add_argument("--only", default="", help="a part of 'PAGE: first cell of the table'")
    parser.add_argument("--reuse", action="store_true", help="take results of benches that lie in build/bench")
    args = parser.parse_args()
    if args.reuse:
        measure.REUSE.append(True)
    rows, missing = list[Checked](), 0
    for check in checks():
        if args.only in str(check):
            try:
                measured = check.run()
            except measure.NotMeasured as reason:
                missing += 1
                print(f"{check}: not measured: {reason}", flush=True)
                continue
            rows += measured
            print(*measured, sep="\n", flush=True)
    wrong = [row for row in rows if not row.holds]
    print(f"{len(rows)} numbers, {len(wrong)} differ; not measured: {missing}")
    out = ROOT / "build" / "figures.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"rows": [row.as_json() for row in rows]}, indent=1) + "\n")
    return int(bool(wrong or missing))


if __name__ == "__main__":
    raise SystemExit(main())
