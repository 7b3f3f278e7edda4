"""Debuggers find their way from every instruction of functions in assembly back to main."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
from pathlib import Path

import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import plan_model
from edgebuild.model.emit.program import program
from edgebuild.model.plan.search import Plan
from tests.graphs import random_inputs
from tests.kernels.processor import run_plans
from tests.kernels.test_processors import NEEDS
from tests.zoo.builders import ZOO, quantized

onnx = pytest.importorskip("onnx")

# Run by gdb: stops at each instruction of the functions the first time that it is reached, and looks for main.
SCRIPT = """\
import gdb, json
reached, lost = {{}}, []
gdb.execute('set pagination off')
gdb.execute('set confirm off')
gdb.execute('set remotetimeout 100')
gdb.execute('target remote program.socket')
for name in {names}:
    listing = gdb.execute('disassemble ' + name, to_string=True)
    addresses = [int(line.split()[0], 16) for line in listing.splitlines() if line.lstrip().startswith('0x')]
    for address in addresses[:-1:{every}]:
        gdb.execute('tbreak *%d' % address, to_string=True)
gdb.execute('tbreak eb_close', to_string=True)
while True:
    gdb.execute('continue', to_string=True)
    frame, callers = gdb.newest_frame(), []
    while frame is not None:
        callers.append(frame.name())
        frame = frame.older()
    if callers[0] == 'eb_close':
        break
    reached[callers[0]] = reached.get(callers[0], 0) + 1
    if 'main' not in callers:
        lost.append((hex(gdb.newest_frame().pc()), callers))
gdb.execute('kill')
with open('found.json', 'w') as file:
    json.dump([reached, lost], file)
"""


def in_assembly(plan: Plan) -> list[str]:
    """Names of the C functions whose body is assembly."""
    made = program(plan)
    text = "".join([*made.helpers, *(f.text for f in made.functions)])
    return re.findall(r"__attribute__\(\(naked[^{]*?(\w+)\(\n", text)


@pytest.mark.needs(*NEEDS, "gdb-multiarch")
@pytest.mark.parametrize("target, tile", [("mps2-an386", "off"), ("mps3-an547", "off"), ("mps3-an547", "rolling")])
def test_back_to_main(target: str, tile: str, tmp_path: Path) -> None:
    model, known = tmp_path / "model.onnx", load_target(target)
    onnx.save(quantized(ZOO["ds_cnn"]()), model)
    plan = plan_model(ModelRequest(model, "g0", target, tile=tile), known)
    run_plans(known, [plan], [random_inputs(plan.graph, 1)], tmp_path)
    names = in_assembly(plan)
    assert len(names) >= 2
    (tmp_path / "script.py").write_text(SCRIPT.format(names=names, every=3))
    assert known.runner is not None
    command = [word.replace("{elf}", "program.elf") for word in known.runner.command]
    # We listen before the simulator starts, so that the debugger can connect however late the simulator is.
    with socket.socket(socket.AF_UNIX) as listener:
        with contextlib.chdir(tmp_path):
            listener.bind("program.socket")
        listener.listen()
        door = f"socket,id=debugger,fd={listener.fileno()},server=on,wait=off"
        simulator = subprocess.Popen(
            [*command, "-S", "-chardev", door, "-gdb", "chardev:debugger"],
            cwd=tmp_path,
            pass_fds=[listener.fileno()],
        )
    try:
        words = ["gdb-multiarch", "-q", "-batch", "-nx", "-x", "script.py", "program.elf"]
        done = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, timeout=100, check=False)
    finally:
        simulator.kill()
        simulator.wait()
    assert (tmp_path / "found.json").exists(), done.stdout + done.stderr
    reached, lost = json.loads((tmp_path / "found.json").read_text())
    assert not lost
    assert sorted(reached) == sorted(names) and min(reached.values()) > 3, reached
