"""`python -m tests.operator_lines`: lines of Python for each operator, by what counts as one and as its Python.

Lines are all lines of files: comments, docstrings and blank ones, too. Code that operators share counts, templates of C
do not. A name is one that a model file may have: ADD of TFLite and Add of ONNX are two, with a reader each. As one
operator count names that differ in format, case and underscores alone.
"""

from __future__ import annotations

from pathlib import Path

from edgebuild.model.formats import exported

MODEL = Path(__file__).parents[1] / "edgebuild" / "model"


def lines_of(*wings: str) -> int:
    return sum(len(file.read_text().splitlines()) for wing in wings for file in (MODEL / wing).rglob("*.py"))


def names() -> list[str]:
    """Every name that a reader accepts, of each format and domain."""
    operators = set[tuple[str, str, str]]()
    for form in exported().values():
        own = form.operators()
        operators |= {(form.name, "", name) for kind, names in own.by_kind.items() if kind for name in names}
        operators |= {(form.name, domain, name) for domain, names in own.others.items() for name in names}
    return [name for *_, name in sorted(operators)]


def main() -> None:
    one_each = {name.removeprefix("custom ").replace("_", "").lower() for name in names()}
    print(f"{'':24}{'lines':>8}{'per name':>10}{'per operator':>14}")
    for what, wings in {"operators": ("ops",), "with formats": ("ops", "formats")}.items():
        total = lines_of(*wings)
        print(f"{what:24}{total:8}{total / len(names()):10.1f}{total / len(one_each):14.1f}")
    print(f"{len(names())} names, {len(one_each)} operators")


if __name__ == "__main__":
    main()
