"""Cores of unicorn for the register models, each with a small buffer of translated code.

Unicorn reserves 1 GB of address space for a core's translated code. A few cores that wait for the garbage collector
then exhaust what a small machine gives a process, and the next allocation anywhere fails.
"""

from __future__ import annotations

import unicorn
from unicorn import arm_const

CODE_BYTES = 16 << 20  # our programs are far smaller than this


def cortex_m(model: int | None = None) -> unicorn.Uc:
    """A core that runs Thumb code. `model`: one of unicorn's UC_CPU_ARM constants."""
    core = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
    core.ctl_set_tcg_buffer_size(CODE_BYTES)
    if model is not None:
        core.ctl_set_cpu_model(model)
    return core


def cortex_m7() -> unicorn.Uc:
    """A core that runs the code of a Cortex-M7."""
    return cortex_m(arm_const.UC_CPU_ARM_CORTEX_M7)


def riscv32() -> unicorn.Uc:
    """A core that runs the code of RV32."""
    core = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32)
    core.ctl_set_tcg_buffer_size(CODE_BYTES)
    return core
