"""Output of `./sconsw demo`: runs of the sample's programs, and a table of their sizes and instructions."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from edgebuild.base.target import load_target
from edgebuild.model.verify.harness import read_sizes

COLUMNS = ("target", "flash B", "of it weights", "arena B", "stack B", "instructions", "as the oracle")


def demo(apps: dict[str, Path], model: Path) -> int:
    """Run the program of each target, then print a table; returns 0 if all programs recognise all digits."""
    rows = []
    for name, elf in apps.items():
        target = load_target(name)
        print(f"---- {target.description}\n", flush=True)
        assert target.runner is not None
        command = [word.replace("{elf}", str(elf)) for word in target.runner.command]
        status = subprocess.run(command, stderr=subprocess.STDOUT).returncode  # QEMU's console is its stderr
        if status:
            print(f"{elf}: {status} wrong answers", file=sys.stderr)
            return 1
        rows.append(measured(name, elf, model))
    for row in (COLUMNS, *rows):
        print(f"{row[0]:<11}", *(f"{cell:>{len(title) + 3}}" for cell, title in zip(row[1:], COLUMNS[1:], strict=True)))
    print("\nflash and arena: of the programs above. stack and instructions: of one inference, by edgebuild verify,")
    print("which also compared all outputs with onnxruntime.")
    return 0


def measured(target: str, elf: Path, model: Path) -> tuple[object, ...]:
    """One row: sizes from the program itself, other figures from a test program with the same model."""
    sizes = read_sizes(elf, "digits", allow_libm=False)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "verify.json"
        command = ["verify", str(model), "--target", target, "--json", str(file)]
        subprocess.run([sys.executable, "-P", "-m", "edgebuild", *command], check=True, stdout=subprocess.DEVNULL)
        result = json.loads(file.read_text())
    equal = "equal" if result["equal"] else f"differs by {result['max_abs_diff']}"
    return target, sizes.flash, sizes.weights, sizes.arena, result["stack_bytes"], result["instructions"], equal
