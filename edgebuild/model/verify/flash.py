"""The flash of a board, for which a core waits: the wait states of another board than the simulated one."""

from __future__ import annotations

from ...base.errors import fail
from ...base.target import Flash, load_target, target_names


def flash_of(name: str) -> Flash:
    """The flash of a target. Raises EdgebuildError where the target does not say what it has."""
    target = load_target(name)
    if target.flash is None:
        stated = [other for other in target_names() if load_target(other).flash is not None]
        raise fail(f"target {target.name} does not state its flash", hints=[f"known: {', '.join(stated)}"])
    return target.flash


def in_words(name: str, flash: Flash) -> str:
    return (
        f"flash of {name}: {flash.wait_states} wait states, lines of {flash.line_bytes} B, "
        f"{flash.instruction_lines} of instructions and {flash.data_lines} of data kept"
    )
