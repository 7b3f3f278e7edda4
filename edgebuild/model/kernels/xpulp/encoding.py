"""Instructions of XpulpV2 in the encodings of cores: compilers do not know them, so `.insn` spells them out.

`corev`: CV32E40P 1.x (openhwgroup/cv32e40p 6033d2b1, 2026-04-17, docs/source/instruction_set_extensions.rst). `gap8`:
RI5CY, as in GAP8 and PULP clusters (its manual of April 2019). Names are those of CORE-V: `cv.sdotsp.b rd, rs1, rs2`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..micro import Cases, Function, Loop, Part, Unrolled

ENCODINGS = ("corev", "gap8")


@dataclass(frozen=True)
class Code:
    """The code of an instruction: opcode, f3 and the upper bits."""

    opcode: int
    f3: int
    upper: int = 0


@dataclass(frozen=True)
class Row:
    """An instruction: the layout of its operands in the word, and its codes in both encodings.

    `kind`: "three" registers, "two", "load" and "store" with increment by a number, "load by" and "store by" with one
    by a register, "clip" with a number of five bits, "shifted" with a number of five bits in the upper bits, "field"
    with two such numbers, "lanes" with a number of six bits in each lane, "loop".
    """

    kind: str
    corev: Code
    gap8: Code


def _alu(upper: int, gap8: Code, kind: str = "three") -> Row:
    return Row(kind, Code(0x2B, 3, upper), gap8)


def _lanes() -> dict[str, Row]:
    """SIMD: halves and bytes, the second operand a vector, its lowest lane (.sc), or a number (.sci)."""
    alike = ("add", "sub", "avg", "avgu", "min", "minu", "max", "maxu", "srl", "sra", "sll", "or", "xor", "and")
    places = {name: (n, n) for n, name in enumerate(alike)}
    places |= {"dotup": (16, 16), "dotusp": (17, 17), "dotsp": (18, 19)}
    places |= {"sdotup": (19, 20), "sdotusp": (20, 21), "sdotsp": (21, 23)}
    rows = dict[str, Row]()
    for name, (corev, gap8) in places.items():
        for suffix, base in (("", 0), (".sc", 4), (".sci", 6)):
            for f3, letter in enumerate("hb", base):
                kind = "lanes" if base == 6 else "three"
                codes = Code(0x7B, f3, corev << 2), Code(0x57, f3, gap8 << 2)
                rows[f"cv.{name}{suffix}.{letter}"] = Row(kind, *codes)
    for f3, letter in enumerate("hb"):
        rows[f"cv.abs.{letter}"] = Row("two", Code(0x7B, f3, 0x38), Code(0x57, f3, 0x38))
        rows[f"cv.shuffle.{letter}"] = Row("three", Code(0x7B, f3, 0x60), Code(0x57, f3, 0x60))
        rows[f"cv.shuffle2.{letter}"] = Row("three", Code(0x7B, f3, 0x70), Code(0x57, f3, 0x64))
    rows["cv.pack"] = Row("three", Code(0x7B, 0, 0x78), Code(0x57, 0, 0x68))
    rows["cv.packhi.b"] = Row("three", Code(0x7B, 1, 0x7D), Code(0x57, 1, 0x6C))
    rows["cv.packlo.b"] = Row("three", Code(0x7B, 1, 0x7C), Code(0x57, 1, 0x70))
    return rows


def _accesses() -> dict[str, Row]:
    rows = dict[str, Row]()
    loads = {"lb": (0, 0, 0x00), "lh": (1, 1, 0x08), "lw": (2, 2, 0x10), "lbu": (4, 8, 0x20), "lhu": (5, 9, 0x28)}
    for name, (f3, upper, gap8) in loads.items():
        rows[f"cv.{name}"] = Row("load", Code(0x0B, f3), Code(0x0B, f3))
        rows[f"cv.{name}.by"] = Row("load by", Code(0x2B, 3, upper), Code(0x0B, 7, gap8))
    for f3, name in enumerate(("sb", "sh", "sw")):
        rows[f"cv.{name}"] = Row("store", Code(0x2B, f3), Code(0x2B, f3))
        rows[f"cv.{name}.by"] = Row("store by", Code(0x2B, 3, 0x10 + f3), Code(0x2B, 4 + f3, 0))
    return rows


def _numbers() -> dict[str, Row]:
    """Instructions on words: bounds, bits, sums that are shifted, products."""
    rows = dict[str, Row]()
    for f3, (name, upper) in enumerate((("sle", 0x29), ("sleu", 0x2A), ("min", 0x2B), ("minu", 0x2C), ("max", 0x2D),
                                        ("maxu", 0x2E)), 2):  # fmt: skip
        rows[f"cv.{name}"] = _alu(upper, Code(0x33, f3, 0x02))
    rows["cv.abs"] = _alu(0x28, Code(0x33, 0, 0x02), "two")
    for f3, (name, upper) in enumerate((("ff1", 0x21), ("fl1", 0x22), ("clb", 0x23), ("cnt", 0x24), ("exths", 0x30),
                                        ("exthz", 0x31), ("extbs", 0x32), ("extbz", 0x33))):  # fmt: skip
        rows[f"cv.{name}"] = _alu(upper, Code(0x33, f3, 0x08), "two")
    rows["cv.ror"] = _alu(0x20, Code(0x33, 5, 0x04))
    for n, name in enumerate(("clip", "clipu"), 1):
        rows[f"cv.{name}"] = _alu(0x37 + n, Code(0x33, n, 0x0A), "clip")
        rows[f"cv.{name}r"] = _alu(0x39 + n, Code(0x33, n + 4, 0x0A))
    rows["cv.mac"], rows["cv.msu"] = _alu(0x48, Code(0x33, 0, 0x21)), _alu(0x49, Code(0x33, 1, 0x21))
    for n, name in enumerate(("extract", "extractu", "insert")):
        rows[f"cv.{name}"] = Row("field", Code(0x5B, 0, n << 5), Code(0x33, n, 0x60))
        rows[f"cv.{name}r"] = _alu(0x18 + n, Code(0x33, n, 0x40))
    for n, name in enumerate(("bclr", "bset")):
        rows[f"cv.{name}"] = Row("field", Code(0x5B, 1, n << 5), Code(0x33, 3 + n, 0x60))
        rows[f"cv.{name}r"] = _alu(0x1C + n, Code(0x33, 3 + n, 0x40))
    for minus, stem in enumerate(("add", "sub")):
        for unsigned, u in enumerate(("", "u")):
            for rounds, r in enumerate(("", "R")):
                gap8 = Code(0x5B, 2 + minus + 4 * rounds, unsigned << 6)
                rows[f"cv.{stem}{u}{r}N"] = Row("shifted", Code(0x5B, 2 + minus, rounds << 6 | unsigned << 5), gap8)
                by = Code(0x5B, 2 + minus + 4 * rounds, 0x20 | unsigned << 6)
                rows[f"cv.{stem}{u}{r}Nr"] = _alu(0x40 | minus << 2 | rounds << 1 | unsigned, by)
    for added, stem in enumerate(("mul", "mac")):
        for high, h in enumerate(("", "hh")):
            for signed, u in enumerate("us"):
                for rounds, r in enumerate(("", "R")):
                    corev = Code(0x5B, 5 - signed + 2 * added, rounds << 6 | high << 5)
                    gap8 = Code(0x5B, added + 4 * rounds, signed << 6 | high << 5)
                    rows[f"cv.{stem}{h}{u}{r}N"] = Row("shifted", corev, gap8)
    return rows


SETUP = "cv.setup"
TABLE = {**_lanes(), **_accesses(), **_numbers(), SETUP: Row("loop", Code(0x2B, 4, 7), Code(0x7B, 4))}
NO_SIGNS = str.maketrans("(),", "   ")  # drops signs between operands


def encoded(line: str, encoding: str) -> str:
    """A line of assembly with `.insn` for an instruction of XpulpV2, and its text in a comment; other lines unchanged.

    `cv.setup L, rs1, n` begins a hardware loop of the next n instructions. Increments of loads and stores by a
    register have `.by` in their name.
    """
    if not line.startswith("cv."):
        return line
    name, *words = line.partition(" /*")[0].translate(NO_SIGNS).split()
    row = TABLE[name]
    code = row.corev if encoding == "corev" else row.gap8
    head = f"0x{code.opcode:02x}, {code.f3}"
    match row.kind:
        case "load":
            text = f".insn i {head}, {words[0]}, {words[1]}, {words[2]}"
        case "store":
            text = f".insn s {head}, {words[0]}, {words[2]}({words[1]})"
        case "loop":
            text = _loop(code, head, encoding, *words)
        case _:
            upper, registers = _registers(row.kind, code.upper, words)
            text = f".insn r {head}, 0x{upper:02x}, {', '.join(registers)}"
    return f"{text} /* {line} */" if " /*" not in line else f"{text} {line[line.index('/*') :]}"


def _registers(kind: str, upper: int, words: list[str]) -> tuple[int, list[str]]:
    """The upper bits and three registers of a word; numbers replace some of the registers."""
    match kind:
        case "two":
            return upper, [*words, "x0"]
        case "store by":
            return upper, words[::-1]
        case "clip":
            return upper, [*words[:2], f"x{words[2]}"]
        case "shifted":
            return upper | int(words[3]), words[:3]
        case "field":
            return upper | int(words[2]), [*words[:2], f"x{words[3]}"]
        case "lanes":
            six = int(words[2]) & 63
            return upper | (six & 1), [*words[:2], f"x{six >> 1}"]
        case _:
            return upper, words


def _loop(code: Code, head: str, encoding: str, number: str, turns: str, body: str) -> str:
    """The setup of a loop: corev counts words to the end of its last instruction, gap8 halfwords to its begin."""
    if encoding == "corev":
        return f".insn i {head}, x{code.upper << 1 | int(number)}, {turns}, {int(body) + 1}"
    return f".insn i {head}, x{number}, {turns}, {2 * int(body)}"


PRINTED: dict[str, Function] = {}  # functions of kernels, by name


def printed(encoding: str, name: str, parameters: Iterable[str], remark: str, parts: Iterable[Part]) -> Function:
    """A function in assembly without compressed instructions. Registers it by name in PRINTED."""
    whole = (".option push", ".option norvc", ".balign 4", *all_encoded(parts, encoding), ".option pop")
    PRINTED[name] = Function(name, tuple(f"EB_REG {p}" for p in parameters), remark, whole)
    return PRINTED[name]


def all_encoded(parts: Iterable[Part], encoding: str) -> tuple[Part, ...]:
    """Trees of instructions in an encoding. Raises TypeError for `Unrolled` and `Cases`, which XpulpV2 kernels lack."""
    return tuple(_part(part, encoding) for part in parts)


def _part(part: Part, encoding: str) -> Part:
    match part:
        case str():
            return encoded(part, encoding)
        case Loop():
            return Loop(part.turns, all_encoded(part.body, encoding))
        case Unrolled() | Cases():
            raise TypeError("kernels of XpulpV2 have plain loops")


def hardware_loop(number: int, turns: str, named: str | float, body: Sequence[Part]) -> list[Part]:
    """A loop without branches. `turns`: register with the number of iterations; `named`: its name for counting.

    CV32E40P requires at least three instructions, none of them compressed and no branch among them.
    """
    count = _length(body)
    assert count >= 3
    return [f"{SETUP} {number}, {turns}, {count}", Loop(named, tuple(body))]


def _length(parts: Iterable[Part]) -> int:
    return sum(
        _length(part.body) if isinstance(part, Loop) else 1 for part in parts if not isinstance(part, (Unrolled, Cases))
    )
