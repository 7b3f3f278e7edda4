"""`python -m tests.code_sizes MODEL...`: weights of `model/program_size.py`, from programs that are linked.

The symbols of a program say which bytes are the model's own functions; what the C has is fitted to these alone. The
other bytes are what a program links once, such as start-up: fitted together, small programs are far off.

For each kind of core it prints how far the estimates of flash are off, each network left out of its own fit, and the
weights of all. Needs both compilers; 18 networks take ten minutes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from numpy.typing import NDArray

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.program_size import ONCE, TERMS, counts, kind_of
from edgebuild.model.verify import measure

TARGETS = ("m0plus-model", "mps2-an385", "mps2-an521", "mps2-an386", "m4-flash-model", "mps2-an500", "mps2-an505",
           "mps3-an547", "riscv-virt", "riscv-virt-f", "pulp-cluster", "gap8")  # fmt: skip
LEAST = 3000  # bytes of flash: smaller programs count as if they had so many
SHARED = len(ONCE)
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """A linked program: network, how many of each of TERMS, and bytes."""

    name: str
    terms: Matrix
    counted: float  # assembly and tables
    own: float  # the model's functions, with what is counted
    code: float
    flash: float


def own_bytes(elf: Path, text: str) -> int:
    """Bytes of the functions and tables of a linked program that the model's C defines."""
    names = {*re.findall(r"\b(\w+)\(", text), *re.findall(r"static const \w+ (\w+)\[", text)}
    names -= {"memcpy", "memmove", "memset"}
    sizes = {}
    with elf.open("rb") as stream:
        for table in ELFFile(stream).iter_sections():
            for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
                if symbol.name.split(".")[0] in names and symbol["st_info"]["type"] in ("STT_FUNC", "STT_OBJECT"):
                    sizes[symbol["st_value"]] = symbol["st_size"]
    return sum(sizes.values())


def rows_of(models: list[Path]) -> dict[str, list[Row]]:
    """By kind of core."""
    rows: dict[str, list[Row]] = {}
    for model in models:
        for name in TARGETS:
            target = load_target(name)
            try:
                artifacts = compile_model(ModelRequest(model, "model", name, map="auto" if target.cores > 1 else "off"))
                with TemporaryDirectory() as folder:
                    measured = measure(target, artifacts, Path(folder))
                    text = next(a.data for a in artifacts if a.name == "model.c").decode()
                    own = own_bytes(Path(folder, "minimal.elf"), text)
            except EdgebuildError:
                continue
            kind = kind_of(target)
            counted, terms = counts(text, kind)
            row = np.array([terms[term] for term in TERMS], float)
            rows.setdefault(kind, []).append(
                Row(model.stem, row, counted, own, measured["code_bytes"], measured["flash_bytes"])
            )
    return rows


def least_squares(terms: Matrix, wanted: Matrix) -> Matrix:
    """Weights that are not negative: terms whose weight would be are left out, the worst first."""
    used = [i for i in range(terms.shape[1]) if terms[:, i].any()]
    while True:
        solution = np.linalg.lstsq(terms[:, used], wanted, rcond=None)[0]
        if solution.size == 0 or solution.min() >= 0:
            weights = np.zeros(terms.shape[1])
            weights[used] = solution
            return weights
        del used[int(solution.argmin())]


def weights_of(rows: Sequence[Row]) -> Matrix:
    """Bytes of each of TERMS."""
    terms = np.array([row.terms for row in rows])
    scale = np.array([1 / max(row.flash, LEAST) for row in rows])
    once = least_squares(terms[:, :SHARED] * scale[:, None], np.array([row.code - row.own for row in rows]) * scale)
    own = least_squares(terms[:, SHARED:] * scale[:, None], np.array([row.own - row.counted for row in rows]) * scale)
    return np.concatenate([once, own])


def off(rows: Sequence[Row], weights: Matrix) -> Matrix:
    """How far the estimates of flash are off, as parts of it."""
    return np.array([(row.terms @ weights + row.counted - row.code) / row.flash for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.code_sizes", description=__doc__)
    parser.add_argument("models", type=Path, nargs="+")
    for kind, rows in rows_of(parser.parse_args().models).items():
        left_out = []
        for name in sorted({row.name for row in rows}):
            others = weights_of([row for row in rows if row.name != name])
            left_out += [*off([row for row in rows if row.name == name], others)]
        weights = weights_of(rows)
        fitted = np.abs(off(rows, weights))
        print(f"    # left out: {np.abs(left_out).mean():.1%}, fitted: {fitted.mean():.1%}, "
              f"{(fitted < 0.03).sum()} of {len(rows)} in 3 %")  # fmt: skip
        print(f'    "{kind}": {tuple(float(round(w, 1)) for w in weights)},')


if __name__ == "__main__":
    main()
