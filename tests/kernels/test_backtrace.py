"""Debuggers find their way from the instructions of every kernel back to main, and show the arguments at its start."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import plan_model
from edgebuild.model.emit.code import program
from edgebuild.model.plan.search import Plan
from tests.fuzz.networks import WRITERS, drawn
from tests.graphs import random_inputs
from tests.kernels.processor import run_plans
from tests.kernels.test_processors import NEEDS
from tests.layer_models import conv
from tests.zoo.builders import ZOO, quantized

onnx = pytest.importorskip("onnx")

# Run by gdb: stops at instructions of the functions the first time that each is reached, and looks for main. A function
# that the compiler put into its caller is stopped at by its name. At a function's first instruction its arguments are
# there to read: none is optimized out.
SCRIPT = """\
import gdb, json
reached, lost, starts = {{}}, [], {{}}
gdb.execute('set pagination off')
gdb.execute('set confirm off')
gdb.execute('set remotetimeout 100')
gdb.execute('target remote program.socket')
for name in {inlined}:
    gdb.execute('tbreak ' + name, to_string=True)
for name in {names}:
    listing = gdb.execute('disassemble ' + name, to_string=True)
    addresses = [int(line.split()[0], 16) for line in listing.splitlines() if line.lstrip().startswith('0x')]
    starts[addresses[0]] = name
    for address in addresses[:-1:max({every}, len(addresses) // 60)]:
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
    found = [name for name in callers if name in {inlined} + {names}]
    for name in found[:1]:
        reached[name] = reached.get(name, 0) + 1
    if 'main' not in callers or not found:
        lost.append((hex(gdb.newest_frame().pc()), callers))
    name = starts.pop(gdb.newest_frame().pc(), None)
    if name is not None:
        arguments = gdb.execute('info args', to_string=True)
        if 'optimized out' in arguments or '=' not in arguments:
            lost.append((name, arguments))
with open('found.json', 'w') as file:
    json.dump([reached, lost], file)
gdb.execute('kill')
"""


def in_assembly(plan: Plan) -> list[str]:
    """Names of the C functions whose body is assembly."""
    unit = program(plan)
    text = "".join([*(helper.text for helper in unit.helpers), *(f.text for f in unit.functions)])
    return re.findall(r"__attribute__\(\(naked[^{]*?(\w+)\(\n", text)


CASES = [
    ("mps2-an385", "off"),
    ("mps2-an386", "off"),
    ("mps2-an386", "rolling"),
    ("m4-flash-model", "off"),
    ("mps3-an547", "off"),
    ("mps3-an547", "rolling"),
    ("riscv-virt", "off"),
    ("riscv-virt", "rolling"),
]
RANDOM = [  # target, form and seed of a random network
    ("mps2-an386", "tflite_int16", 0),
    ("mps3-an547", "tflite", 2),
    ("riscv-virt", "qdq", 0),
]


@pytest.mark.one_in(8)
@pytest.mark.needs(*NEEDS, "gdb-multiarch")
@pytest.mark.parametrize("target, tile", CASES)
def test_back_to_main(target: str, tile: str, tmp_path: Path) -> None:
    """From every kernel of a keyword spotter, compiled or in assembly, with the flags of the target."""
    model = tmp_path / "model.onnx"
    onnx.save(quantized(ZOO["ds_cnn"]()), model)
    assembly = assert_led_back(ModelRequest(model, "g0", target, tile=tile), tmp_path)
    assert assembly or tile == "rolling"


@pytest.mark.needs(*NEEDS, "gdb-multiarch")
def test_back_to_main_where_flash_is_free(tmp_path: Path) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(conv(6, 6, 64, 8, (3, 3))())
    assembly = assert_led_back(ModelRequest(model, "g0", "mps2-an386", optimize="speed"), tmp_path)
    assert {name.split("_")[1] for name in assembly} >= {"winograd", "winograd4"}


@pytest.mark.one_in(4)
@pytest.mark.needs(*NEEDS, "gdb-multiarch")
@pytest.mark.parametrize("target, form, seed", RANDOM)
def test_back_to_main_from_random_networks(target: str, form: str, seed: int, tmp_path: Path) -> None:
    model = tmp_path / f"model.{'tflite' if form.startswith('tflite') else 'onnx'}"
    model.write_bytes(WRITERS[form].write(drawn(form, seed)))
    assert_led_back(ModelRequest(model, "g0", target, tile="auto"), tmp_path)


def assert_led_back(request: ModelRequest, tmp_path: Path) -> list[str]:
    """Names of the functions in assembly; every kernel was stopped at, and led back to `main`.

    Of kernels with equal bodies gcc keeps one.
    """
    chip = load_target(request.target)
    plan = plan_model(request, chip)
    run_plans(chip, [plan], [random_inputs(plan.graph, 1)], tmp_path, debug=True)
    assembly = in_assembly(plan)
    kernels = [f.name for f in program(plan).functions]
    with (tmp_path / "program.elf").open("rb") as file:
        symbols = {symbol.name for symbol in ELFFile(file).get_section_by_name(".symtab").iter_symbols()}
    names = [name for name in [*kernels, *assembly] if name in symbols]
    inlined = [name for name in kernels if name not in symbols]
    (tmp_path / "script.py").write_text(SCRIPT.format(names=names, inlined=inlined, every=3))
    assert chip.runner is not None
    command = [word.replace("{elf}", "program.elf") for word in chip.runner.command]
    # We listen before the simulator starts, so that the debugger can connect however late the simulator is.
    with socket.socket(socket.AF_UNIX) as listener:
        with contextlib.chdir(tmp_path):
            listener.bind("program.socket")
        listener.listen()
        door = f"socket,id=debugger,fd={listener.fileno()},server=on,wait=off"
        simulator = subprocess.Popen(
            [*command, "-S", "-chardev", door, "-gdb", "chardev:debugger"], cwd=tmp_path, pass_fds=[listener.fileno()]
        )
    try:
        words = ["gdb-multiarch", "-q", "-batch", "-nx", "-x", "script.py", "program.elf"]
        done = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, timeout=600, check=False)
    finally:
        simulator.kill()
        simulator.wait()
    assert (tmp_path / "found.json").exists(), done.stdout + done.stderr
    reached, lost = json.loads((tmp_path / "found.json").read_text())
    assert not lost
    bodies = {f.name: f.text.replace(f.name, "").split() for f in program(plan).functions}
    equal = {name: {other for other in bodies if bodies[other] == bodies[name]} for name in bodies}
    assert not [name for name in names + inlined if not equal.get(name, {name}) & set(reached)]
    assert all(reached[name] > 3 for name in names if name in reached), reached
    return assembly
