"""`python -m tests.code_sizes MODEL...`: weights of `model/fitting.py`, from programs that are linked.

For each kind of core it prints how far the estimates of flash are off, each network left out of its own fit, and the
weights of all. Needs both compilers; 18 networks take ten minutes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.fitting import TERMS, counts, kind_of
from edgebuild.model.verify import measure

TARGETS = ("m0plus-model", "mps2-an385", "mps2-an521", "mps2-an386", "m4-flash-model", "mps2-an500", "mps2-an505",
           "mps3-an547", "riscv-virt", "riscv-virt-f")  # fmt: skip
LEAST = 6000  # bytes of flash: smaller programs count as if they had so many
Matrix = NDArray[np.float64]


def rows_of(models: list[Path]) -> dict[str, list[tuple[str, Matrix, float, float]]]:
    """By kind of core: network, its terms, bytes that are not counted exactly, and bytes of flash."""
    rows: dict[str, list[tuple[str, Matrix, float, float]]] = {}
    for model in models:
        for name in TARGETS:
            target = load_target(name)
            try:
                artifacts = compile_model(ModelRequest(model, "model", name))
            except EdgebuildError:
                continue
            measured, kind = measure(target, artifacts), kind_of(target)
            counted, terms = counts(next(a.data for a in artifacts if a.name == "model.c").decode(), kind)
            row = np.array([terms[term] for term in TERMS], float)
            rows.setdefault(kind, []).append(
                (model.stem, row, measured["code_bytes"] - counted, measured["flash_bytes"])
            )
    return rows


def least_squares(terms: Matrix, wanted: Matrix) -> Matrix:
    """Weights that are not negative: terms whose weight would be are left out, the worst first."""
    used = [i for i in range(terms.shape[1]) if terms[:, i].any()]
    while True:
        found = np.linalg.lstsq(terms[:, used], wanted, rcond=None)[0]
        if found.size == 0 or found.min() >= 0:
            weights = np.zeros(terms.shape[1])
            weights[used] = found
            return weights
        del used[int(found.argmin())]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.code_sizes", description=__doc__)
    parser.add_argument("models", type=Path, nargs="+")
    for kind, rows in rows_of(parser.parse_args().models).items():
        terms, rest, flash = (np.array(column, float) for column in list(zip(*rows, strict=True))[1:])
        scale = 1 / np.maximum(flash, LEAST)
        names, errors = [row[0] for row in rows], np.zeros(len(rows))
        for name in set(names):
            mine = np.array([other == name for other in names])
            weights = least_squares((terms * scale[:, None])[~mine], (rest * scale)[~mine])
            errors[mine] = np.abs(terms[mine] @ weights - rest[mine]) / flash[mine]
        weights = least_squares(terms * scale[:, None], rest * scale)
        off = np.abs(terms @ weights - rest) / flash
        print(
            f"    # left out: {errors.mean():.1%}, fitted: {off.mean():.1%}, {(off < 0.03).sum()} of {len(off)} in 3 %"
        )
        print(f'    "{kind}": {tuple(float(round(w, 1)) for w in weights)},')


if __name__ == "__main__":
    main()
