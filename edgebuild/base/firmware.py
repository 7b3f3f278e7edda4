"""Facts about a target that a build system needs to make a bare program for it."""

from __future__ import annotations

from edgebuild.base.artifacts import Artifact
from edgebuild.base.errors import fail
from edgebuild.base.target import LISTS, Target, hal_dir
from edgebuild.base.text import comment, file_part


def firmware_support(target: Target) -> tuple[Artifact, ...]:
    """The generated linker script `<target>_regions.ld`; nothing for a target without bare firmware.

    It comes on the linker's command line before the fragments of models (`N_memory.ld`), see `link_flags`.
    """
    if target.firmware is None:
        return ()
    return (Artifact(_regions_name(target), regions_script(target).encode()),)


def regions_script(target: Target) -> str:
    """Linker script text: the target's memories as regions, the roles as their aliases, the stack's size."""
    if target.firmware is None:
        raise fail(f"target {target.name} has no `firmware:`, so there is no linker script for it")
    regions = (f"  {m.name} : ORIGIN = {m.origin:#010x}, LENGTH = {m.size:#x}" for m in target.memories)
    aliases = (
        f'REGION_ALIAS("EB_{role.upper()}", {target.memory(role).name})'
        for role in ("code", "weights", "data", "stack", "arena")
    )
    lists = next((m.name for m in target.memories if LISTS in m.roles), target.memory("data").name)
    return "\n".join([
        "/* SPDX-License-Identifier: 0BSD",
        f" * {comment(f'Memories of {target.name}: {target.description}.')}",
        " */",
        "MEMORY",
        "{",
        *regions,
        "}",
        *aliases,
        f'REGION_ALIAS("EB_LISTS", {lists})',
        f"__stack_size = {target.firmware.stack};",
        "",
    ])  # fmt: skip


def link_flags(target: Target, fragments: tuple[str, ...] = (), folder: str = "") -> tuple[str, ...]:
    """All flags of the link but objects, libraries and the output's name.

    `fragments`: paths of the models' `N_memory.ld`; `folder`: where `firmware_support` was written, with a slash.
    The linker must see the regions, then the fragments, then the fixed script. gcc moves its own -T to the end and
    leaves -Wl,-T where it is, so fragments may stand anywhere behind the regions.
    """
    if target.firmware is None:
        return target.toolchain.ldflags
    scripts = (f"-Wl,-T,{folder}{_regions_name(target)}", *(f"-Wl,-T,{f}" for f in fragments))
    return (*target.toolchain.ldflags, f"-T{_hal(target.firmware.linker)}", *scripts)


def describe(target: Target) -> dict[str, object]:
    """The JSON of `edgebuild targets NAME --json` for build systems. Paths below the hal folder are absolute."""
    tools, firmware, runner = target.toolchain, target.firmware, target.runner
    return {
        "name": target.name,
        "description": target.description,
        "clock_hz": target.clock_hz,
        "source": target.source,
        "core": {"isa": target.core.isa, "features": list(target.core.features)},
        "memories": [
            {"name": m.name, "origin": m.origin, "size": m.size, "roles": list(m.roles)} for m in target.memories
        ],
        "compiler": tools.compiler,
        "cflags": list(tools.cflags),
        "include": [str(hal_dir() / "include")],
        "ldflags": list(link_flags(target)),
        "libs": list(tools.libs),
        "libc_flags": list(tools.libc),
        "libm": list(tools.libm),
        "startup": [_hal(s) for s in target.startup],
        "linker_script": _hal(firmware.linker) if firmware else "",
        "regions_script": _regions_name(target) if firmware else "",
        "runner": list(runner.command) if runner else [],
        "runner_sources": [_hal(s) for s in runner.sources] if runner else [],
        "files": list(target.files),
    }


def _regions_name(target: Target) -> str:
    return f"{file_part(target.name)}_regions.ld"


def _hal(path: str) -> str:
    return (hal_dir() / path).as_posix()
