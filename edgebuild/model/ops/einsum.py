"""Einsum as transposes, sums, products of matrices, two operands at a time, and a transpose."""

from __future__ import annotations

from itertools import combinations
from math import prod
from typing import Any

OPEN = (None, None)
OUTER = "ABCDEFGH"  # letters for the dimensions that an ellipsis stands for
Operand = tuple[str, str]  # letters of its dimensions, and its name


def from_onnx(node: Any) -> None:
    terms, out = _parsed(node)
    sizes: dict[str, int] = {}
    for position, letters in enumerate(terms):
        for letter, size in zip(letters, node.tensor(position).shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise node.error(f"'{letter}' is {sizes[letter]} and {size}", "sizes must be equal; none is broadcast")
    names = list(node.inputs)
    for position, letters in enumerate(terms):
        elsewhere = {*out, *"".join(terms[:position] + terms[position + 1 :])}
        terms[position], names[position] = _summed(node, names[position], letters, elsewhere)
    operands = list(zip(terms, names, strict=True))
    while len(operands) > 1:
        first, second, rest = _pair(node, operands, out, sizes)
        if node.builder.tensors[first[1]].constant:
            first, second = second, first
        name, letters = _product(node, [first[1], second[1]], [first[0], second[0]], _wanted(rest, out), sizes)
        operands = [(letters, node.reshaped(name, tuple(sizes[c] for c in letters)) if rest else name), *rest]
    _last(node, operands[0][1], operands[0][0], out, sizes)


def _pair(
    node: Any, operands: list[Operand], out: str, sizes: dict[str, int]
) -> tuple[Operand, Operand, list[Operand]]:
    """The operands whose product is smallest, not both constant, and the others; of equals the first."""

    def size(places: tuple[int, int]) -> int:
        rest = [x for i, x in enumerate(operands) if i not in places]
        return prod(sizes[c] for c in {*operands[places[0]][0], *operands[places[1]][0]} & {*_wanted(rest, out)})

    computed = [not node.builder.tensors[name].constant for _, name in operands]
    pairs = [pair for pair in combinations(range(len(operands)), 2) if any(computed[i] for i in pair)]
    i, j = min(pairs or [(0, 1)], key=size)
    return operands[i], operands[j], operands[:i] + operands[i + 1 : j] + operands[j + 1 :]


def _wanted(rest: list[Operand], out: str) -> str:
    return out + "".join(letters for letters, _ in rest)


def _parsed(node: Any) -> tuple[list[str], str]:
    """Letters of the operands' dimensions, and of the result's."""
    left, arrow, out = node.attr("equation", "").replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(node.inputs):
        raise node.error(f"equation '{left}' of {len(node.inputs)} operands", "one term for each operand is expected")
    wide = 0
    for position, letters in enumerate(terms):
        rest = len(node.tensor(position).shape) - len(letters.replace("...", ""))
        if "..." in letters:
            wide = max(wide, rest)
            terms[position] = letters.replace("...", OUTER[wide - rest : wide])
        if len(set(terms[position])) != len(terms[position]) or len(terms[position]) != len(
            node.tensor(position).shape
        ):
            raise node.error(f"'{letters}' for shape {node.tensor(position).shape}", "diagonals are not supported")
    every = "".join(terms)
    if not arrow:
        out = OUTER[:wide] + "".join(sorted(c for c in set(every) if every.count(c) == 1 and c not in OUTER))
    return terms, out.replace("...", OUTER[:wide])


def _summed(node: Any, name: str, letters: str, wanted: set[str]) -> tuple[str, str]:
    """Without the dimensions that nothing else has; letters and name."""
    axes = tuple(d for d, letter in enumerate(letters) if letter not in wanted)
    if not axes:
        return letters, name
    return "".join(c for c in letters if c in wanted), node.inner("reduce_sum", [name], axes=axes)


def _product(node: Any, names: list[str], terms: list[str], out: str, sizes: dict[str, int]) -> tuple[str, str]:
    """The sum of products over letters of both operands that the result has not; its name and letters."""
    a, b = terms
    batch = "".join(c for c in a if c in b and c in out)
    inner = "".join(c for c in a if c in b and c not in out)
    left, right = ("".join(c for c in t if c not in batch + inner) for t in terms)

    def size(letters: str) -> int:
        return prod(sizes[c] for c in letters)

    def matrix(name: str, letters: str, order: str) -> str:
        perm = tuple(letters.index(c) for c in order)
        return name if perm == tuple(range(len(perm))) else str(node.turned(name, perm))

    rows = matrix(names[0], a, batch + left + inner)
    if not batch and node.builder.tensors[names[1]].constant:
        flat = node.reshaped(rows, (size(left), size(inner)))
        columns = node.reshaped(matrix(names[1], b, right + inner), (size(right), size(inner)))
        return node.inner("dense", [flat, columns], clamp=OPEN), left + right
    turned = b != batch + inner + right
    columns = matrix(names[1], b, batch + (right + inner if turned else inner + right))
    second = (size(right), size(inner)) if turned else (size(inner), size(right))
    operands = [
        node.reshaped(rows, (1, size(batch), size(left), size(inner))),
        node.reshaped(columns, (1, size(batch), *second)),
    ]
    return node.inner("batch_matmul", operands, turned=turned, clamp=OPEN), batch + left + right


def _last(node: Any, name: str, letters: str, out: str, sizes: dict[str, int]) -> None:
    """The node's output: these letters in the order that is asked for."""
    name = node.reshaped(name, tuple(sizes[c] for c in letters))
    perm = tuple(letters.index(c) for c in out)
    if perm == tuple(range(len(perm))):
        node.emit("reshape", [name], shape=tuple(sizes[c] for c in out))
    else:
        node.emit("transpose", [name], perm=perm)
