"""A model by hand, with the file set of `compile_model`: y = clamp(x + 1), each byte through an arena and a weight."""

from __future__ import annotations

import json

from edgebuild.base.artifacts import Artifact
from edgebuild.base.target import Target

SIZE, STACK = 64, 512

WARNINGS = "all extra conversion shadow undef strict-prototypes missing-prototypes cast-align error"
STRICT = ["-std=c11", "-O2", *(f"-W{name}" for name in WARNINGS.split())]


def code(first: str = "", last: str = "", *, declare: str = "", plus: str = "0", stack: int = STACK) -> str:
    """The C file. `first` and `last` are statements of the run function, `plus` is added to every y."""
    return f"""\
#include "model.h"
#include <string.h>
extern int8_t model_arena[];
extern const int8_t model_weights[];
{declare}
int8_t *model_input(void) {{ return model_arena; }}
const int8_t *model_output(void) {{ return model_arena + {2 * SIZE}; }}
void model_invoke(void)
{{
    volatile int8_t scratch[{stack}]; /* so that there is a stack to measure */
    for (unsigned i = 0; i < sizeof scratch; ++i) {{
        scratch[i] = 0;
    }}
    {first}
    for (int i = 0; i < {SIZE}; ++i) {{
        int y = model_arena[i] + model_weights[i] + scratch[i] + ({plus});
        model_arena[{SIZE} + i] = (int8_t)(y > 127 ? 127 : y);
    }}
    memcpy(model_arena + {2 * SIZE}, model_arena + {SIZE}, {SIZE});
    {last}
}}
"""


H = """\
#include <stdint.h>
int8_t *model_input(void);
const int8_t *model_output(void);
void model_invoke(void);
"""
ASM = f"""\
    .section .rodata.edgebuild.model.weights, "a", %progbits
    .balign 16
    .global model_weights
    .type model_weights, %object
model_weights:
    .incbin "model_weights.bin"
    .size model_weights, . - model_weights
    .section .bss.edgebuild.model.arena, "aw", %nobits
    .balign 16
    .global model_arena
    .type model_arena, %object
model_arena:
    .space {3 * SIZE}
    .size model_arena, {3 * SIZE}
"""
DATA_C = f"""\
#include <stdint.h>
__attribute__((section(".rodata.edgebuild.model.weights"))) const int8_t model_weights[{SIZE}] = {{{"1, " * SIZE}}};
__attribute__((section(".bss.edgebuild.model.arena"))) int8_t model_arena[{3 * SIZE}];
"""


def fragment(weights: str, arena: str) -> str:
    """A linker fragment as the emitter makes it."""
    return f"""\
SECTIONS
{{
  .edgebuild.model.weights : {{ *(.rodata.edgebuild.model.*) }} > {weights}
}}
INSERT AFTER .text;
SECTIONS
{{
  .edgebuild.model.arena (NOLOAD) : {{ *(.bss.edgebuild.model.arena) }} > {arena}
}}
INSERT BEFORE .bss;
ASSERT(ADDR(.edgebuild.model.arena) + SIZEOF(.edgebuild.model.arena) <= ORIGIN({arena}) + LENGTH({arena}),
       "edgebuild: model model: its arena of {3 * SIZE} bytes does not fit into what is left of memory {arena}")
"""


def port(name: str, function: str) -> dict[str, object]:
    return {"name": name, "function": function, "dtype": "int8", "shape": [1, SIZE], "bytes": SIZE, "scale": 1.0,
            "zero_point": 0}  # fmt: skip


def buffer(name: str, memory: str, offset: int, first: int, last: int) -> dict[str, object]:
    return {"name": name, "bytes": SIZE, "memory": memory, "offset": offset, "first": first, "last": last,
            "dtype": "int8", "shape": [1, SIZE]}  # fmt: skip


def model(target: Target, source: str = "", weights: str = "", arena: str = "") -> tuple[Artifact, ...]:
    """The artifacts; `weights` and `arena` are memories, by default the first with that role."""
    in_c = target.weights == "c"
    where = arena or target.memory("arena").name
    placed = fragment(weights or target.memory("weights").name, where)
    report = {
        "schema": 1,
        "model": {"name": "fake", "sha256": "", "format": "tflite"},
        "target": target.name,
        "ram": {"arena_bytes": 3 * SIZE, "by_memory": {where: 3 * SIZE}},
        "rom": {"weights_bytes": SIZE},
        "macs": {"model": SIZE, "generated": SIZE},
        "inputs": [port("x", "model_input")],
        "outputs": [port("y", "model_output")],
        "layout": {
            "buffers": [
                buffer("x", where, 0, 0, 0),
                buffer("sum", where, SIZE, 0, 1),
                buffer("y", where, 2 * SIZE, 1, 1),
            ]
        },
    }
    texts = {
        "model.c": source or code(),
        "model.h": H,
        "model_weights.S": "" if in_c else ASM,
        "model_weights.c": DATA_C if in_c else "typedef int model_weights_are_assembled;\n",
        "model_memory.ld": placed if target.firmware else "/* no linker script on this target */\n",
        "model_check.ld": "",
        "model_clock.h": "",
        "model_report.json": json.dumps(report),
    }
    return (
        *(Artifact(name, text.encode()) for name, text in texts.items()),
        Artifact("model_weights.bin", b"\1" * SIZE),
    )
