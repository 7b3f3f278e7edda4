"""A program of random instructions of XpulpV2, whose results and cycles a simulator and RTL must have in common.

`python -m tests.xpulp.instructions CORE.yaml` runs it on the target of that file, say a target whose runner is RTL, and
on the simulator. It prints what tests/figures/xpulp.yaml has: how many instructions, the digest of all their results,
and cycles from the first to the last.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from edgebuild.base.artifacts import publish
from edgebuild.base.target import Target, firmware_support, hal_dir, link_flags, load_target
from edgebuild.model.kernels.xpulp.encoding import TABLE, encoded
from edgebuild.model.verify.harness import run_program, run_tool

SEED, ROUNDS = 1, 150  # of each instruction
DATA = 256  # bytes that loads and stores reach
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80808080, 0x7F7F7F7F)
MAIN = """\
#include <stddef.h>
#include <stdint.h>
#include "eb_counter.h"
#include "eb_firmware.h"
#include "eb_semihost.h"
uint32_t results[{count}];
uint8_t data[{data}] __attribute__((aligned(4)));
void instructions(uint32_t *results, uint8_t *data);
int main(void)
{{
    for (int i = 0; i < {data}; ++i) {{
        data[i] = (uint8_t)(i * 37 + (i >> 3));
    }}
    const uint64_t before = eb_cycles_read();
    instructions(results, data);
    const uint32_t cycles = (uint32_t)(eb_cycles_read() - before);
    const int file = eb_open("out.bin", EB_WRITE);
    (void)eb_write(file, results, sizeof results);
    (void)eb_write(file, data, sizeof data);
    (void)eb_write(file, &cycles, 4);
    eb_close(file);
    return 0;
}}
"""


def _value(rng: random.Random) -> int:
    return rng.choice(EDGES) if rng.random() < 0.25 else rng.getrandbits(32)


def _operands(kind: str, name: str, rng: random.Random) -> str:
    match kind:
        case "two":
            return "t2, t0"
        case "clip":
            return f"t2, t0, {rng.randrange(32)}"
        case "shifted":
            return f"t2, t0, t1, {rng.randrange(32)}"
        case "field":
            place = rng.randrange(32)
            return f"t2, t0, {rng.randrange(32 - place)}, {place}"
        case "lanes":
            shift = any(part in name for part in ("srl", "sra", "sll"))
            return f"t2, t0, {rng.randrange(8 if name.endswith('b') else 16) if shift else rng.randrange(-32, 32)}"
        case _:
            return "t2, t0, t1"


def lines(encoding: str, seed: int = SEED, rounds: int = ROUNDS) -> Iterator[str]:
    """Assembly; a0 points to results, a1 to data. Each instruction stores its result, and its address if it moves."""
    rng = random.Random(seed)
    for _ in range(rounds):
        for name, row in TABLE.items():
            values = [_value(rng) for _ in range(3)]
            if row.kind == "loop":
                yield f"li t0, {1 + values[0] % 9}"
                yield from (encoded(line, encoding) for line in ("cv.setup 0, t0, 3",))
                yield from ("addi t2, t2, 3", "slli t1, t2, 1", "xor t2, t2, t1")
            elif row.kind.split()[0] in ("load", "store"):
                step = rng.randrange(-64, 64)
                yield f"addi t0, a1, {64 + rng.randrange(DATA - 128)}"
                yield f"li t2, {values[1]}"
                by = row.kind.endswith("by")
                yield from (f"li t1, {step}",) if by else ()
                yield encoded(f"{name} t2, (t0), {'t1' if by else step}", encoding)
            else:
                yield from (f"li t{n}, {value}" for n, value in enumerate(values))
                if name.endswith((".r", "r")) and name.startswith(("cv.extract", "cv.insert", "cv.bclr", "cv.bset")):
                    yield f"li t1, {rng.randrange(16) << 5 | rng.randrange(16)}"
                yield encoded(f"{name} {_operands(row.kind, name, rng)}", encoding)
            yield "sw t2, 0(a0)"
            yield "sw t0, 4(a0)"
            yield "addi a0, a0, 8"


def run(target: Target, encoding: str = "corev") -> tuple[int, str, int]:
    """Instructions, the digest of their results, cycles."""
    with tempfile.TemporaryDirectory(prefix="edgebuild-xpulp-") as name:
        folder, tools = Path(name), target.toolchain
        text = [line.partition(" /*")[0] for line in lines(encoding)]
        head = [".option norvc", ".section .text", ".balign 4", ".globl instructions", "instructions:"]
        (folder / "instructions.s").write_text("\n".join([*head, *text, "ret", ""]))
        count = sum(line == "sw t2, 0(a0)" for line in text)
        (folder / "main.c").write_text(MAIN.format(count=2 * count, data=DATA))
        publish(firmware_support(target), folder)
        assert target.runner is not None and target.firmware is not None
        hal = [str(hal_dir() / s) for s in (*target.firmware.startup, *target.runner.sources, "src/counter.c")]
        command = [tools.compiler, *tools.cflags, f"-I{hal_dir() / 'include'}", "-o", "program.elf", "main.c"]
        command += ["instructions.s", *hal, *link_flags(target, ()), *tools.libs]
        run_tool(command, folder, tools.package)
        run_program(folder / "program.elf", target)
        data = (folder / "out.bin").read_bytes()
    return count, sha256(data[:-4]).hexdigest(), int.from_bytes(data[-4:], "little")


def main() -> int:
    for name in ("cv32e40p", *sys.argv[1:]):
        count, digest, cycles = run(load_target(name))
        print(f"{name}: instructions: {count}, sha256: {digest}, cycles: {cycles}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
