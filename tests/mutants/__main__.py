"""`./sconsw mutants [--count N] [--seed S]`: faults of one token that no test notices."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.conftest import ROOT
from tests.mutants import covered
from tests.mutants.checkout import Checkout, Verdict, checkout
from tests.mutants.faults import Fault, c_faults, python_faults
from tests.mutants.rooms import ROOMS, Room, files, keyword, tests_of

BUDGET_S = 20
TRIES = 200  # draws of a fault, some of which no compiler of Python reads


@dataclass(frozen=True)
class Planted:
    """`text`: the file as it is, read once, for its user may go on editing."""

    room: str
    file: str
    fault: Fault
    text: bytes

    @property
    def function(self) -> str:
        """In which it stands, in Python."""
        return self.place.rpartition(".")[2]

    @property
    def place(self) -> str:
        """The function with the classes and functions around it; a macro of a template."""
        if not self.file.endswith((".py", ".j2")):
            return covered.MODULE
        return covered.function_at(self.file, self.text, self.fault.line(self.text))

    def row(self) -> dict[str, Any]:
        """As it stands in mutants.json."""
        was, now = (t.decode(errors="replace") for t in (self.fault.was, self.fault.now))
        line = self.fault.line(self.text)
        return {"file": self.file, "line": line, "was": was, "is": now, "room": self.room, "kind": self.fault.kind}


def faults(room: Room, file: str, text: bytes) -> list[Fault]:
    return python_faults(text, room.c) if file.endswith(".py") else c_faults(text)


def drawn(count: int, seed: int, rooms: Iterable[str]) -> Iterator[Planted]:
    """Faults of each room in turn. Within a room: a file by its number of faults, then a kind, then a place."""
    random, rooms = Random(seed), list(rooms)
    texts = {file: (ROOT / file).read_bytes() for name in rooms for file in files(ROOMS[name])}
    choices = {name: {file: faults(ROOMS[name], file, texts[file]) for file in files(ROOMS[name])} for name in rooms}
    chosen = set[Planted]()
    for number in range(count):
        name = rooms[number % len(rooms)]
        for _ in range(TRIES):
            (file,) = random.choices(list(choices[name]), [len(some) for some in choices[name].values()])
            kind = random.choice(sorted({f.kind for f in choices[name][file]}))
            fault = random.choice([f for f in choices[name][file] if f.kind == kind])
            planted = Planted(name, file, fault, texts[file])
            if planted not in chosen and is_read(planted):
                chosen.add(planted)
                yield planted
                break


def is_read(planted: Planted) -> bool:
    """Whether Python can read the file with its fault; a compiler of C says so by failing tests."""
    if not planted.file.endswith(".py"):
        return True
    try:
        compile(planted.fault.planted(planted.text), planted.file, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def judged(planted: Planted, copy: Checkout, sound: set[str], by_function: covered.Map) -> Verdict:
    """The verdict of tests that pass without the fault. Others judge nothing any more, and are `copy.unsound`.

    Those that execute its function run first, as far as the map has them, then those of its room.
    """
    room, quick = ROOMS[planted.room], by_function.of(planted.file, planted.place)
    while True:
        with copy.planted(planted.file, planted.fault.planted(planted.text)):
            verdict = copy.run(quick) if quick else Verdict()
            if not verdict and verdict.whole and room.keyed and not quick:
                verdict = copy.run(room.keyed, keyword(planted.file))
            if not verdict and verdict.whole:
                verdict = copy.run(tests_of(room, planted.file, planted.function))
        if not verdict.by or verdict.by in sound:
            return verdict
        if not copy.run([verdict.by]):
            sound.add(verdict.by)
            return verdict
        if verdict.by in copy.unsound:
            raise RuntimeError(f"{verdict.by} runs though it is deselected")
        copy.unsound.append(verdict.by)
        print(f"{verdict.by} fails without a fault, too, and judges no further one", file=sys.stderr)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./sconsw mutants", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the draw; today's date if none is given")
    parser.add_argument("--count", type=int, default=100, help="faults, of each room in turn (%(default)s)")
    parser.add_argument("--rooms", nargs="+", choices=list(ROOMS), default=list(ROOMS), help="all if none is given")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further fault after this time")
    parser.add_argument("--limit", type=float, default=600, help="seconds of the processor for the tests of a "
                        "fault (%(default)s); if none failed until then, it survived")  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="leave out what an earlier run with this seed judged to "
                        "its end")  # fmt: skip
    parser.add_argument("--map", action="store_true", help="record which tests execute each function, of test files "
                        "that have changed, and judge nothing")  # fmt: skip
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds of the processor for each file of "
                        "tests in the map (%(default)s)")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the faults, and run nothing")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build", help="for mutants.json (build)")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.map:
        for test in covered.build(options.output, options.budget):
            print(test, flush=True)
        return 0
    seed = options.seed if options.seed is not None else int(time.strftime("%Y%m%d"))
    planted = list(drawn(options.count, seed, options.rooms))
    if options.list:
        print("\n".join(json.dumps(p.row()) for p in planted))
        return 0
    rows = earlier(options.output, seed, planted) if options.resume else {}
    unsound = list[str]()
    try:
        with checkout(options.limit) as copy:
            unsound = copy.unsound
            by_function = covered.load(options.output)
            for number, row in run(planted, rows, copy, options.seconds, by_function):
                times = f"{row['seconds']} s ({row['cpu']} of the processor)"
                print(f"{number}/{len(planted)} {row['why']} {times} {row['file']}:{row['line']} "
                      f"{row['was']!r} -> {row['is']!r} {row['by']}", flush=True)  # fmt: skip
                written(rows, unsound, seed, options.output)
    except KeyboardInterrupt:
        print("interrupted: what follows is of the part that ran", file=sys.stderr)
    summary = written(rows, unsound, seed, options.output)
    print(json.dumps({k: v for k, v in summary.items() if k != "rows"}, indent=1))
    return int(bool(summary["survivors"] or unsound))


Rows = dict[Planted, dict[str, Any]]


def earlier(folder: Path, seed: int, planted: list[Planted]) -> Rows:
    """Rows of an earlier run of this seed, as far as it came to a verdict."""
    before = json.loads((folder / "mutants.json").read_text())
    kept = {key(r): r for r in before["rows"] if before["seed"] == seed and (r["why"] != "survived" or r["whole"])}
    return {p: kept[key(p.row())] for p in planted if key(p.row()) in kept}


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("room", "file", "line", "kind", "was", "is"))


def run(
    planted: list[Planted], rows: Rows, copy: Checkout, most_s: float, by_function: covered.Map
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Judges what has no row yet; adds the rows, and gives each with its number."""
    start, sound = time.monotonic(), set[str]()
    for number, one in enumerate(planted, start=1):
        begin, cpu = time.monotonic(), sum(os.times()[2:4])
        if begin - start > most_s:
            return
        if one not in rows:
            verdict = judged(one, copy, sound, by_function)
            seconds, cpu = round(time.monotonic() - begin), round(sum(os.times()[2:4]) - cpu, 1)
            judgement = {"by": verdict.by, "why": verdict.why or "survived", "whole": verdict.whole}
            judgement |= {"seconds": seconds, "cpu": cpu}
            rows[one] = one.row() | judgement
            yield number, rows[one]


def written(judged: Rows, unsound: list[str], seed: int, folder: Path) -> dict[str, Any]:
    """Writes mutants.json."""
    rows = list(judged.values())
    survivors = [row for row in rows if row["why"] == "survived"]
    by_room = {name: [sum(r["room"] == name for r in part) for part in (rows, survivors)] for name in ROOMS}
    summary = {
        "seed": seed,
        "planted": len(rows),
        "killed": len(rows) - len(survivors),
        "timeouts": sum(row["why"] == "timeout" for row in rows),
        "unsound": unsound,
        "rooms": {name: {"planted": a, "survived": b} for name, (a, b) in by_room.items() if a},
        "survivors": [{k: row[k] for k in ("file", "line", "was", "is", "room", "kind", "whole")} for row in survivors],
        "rows": rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mutants.json").write_text(json.dumps(summary, indent=1) + "\n")
    return summary


if __name__ == "__main__":
    sys.exit(main())
