"""Generated RV32 code on a SystemC prototype of diana: its engine, its scratchpads, and the unit that fills them.

The registers are those that edgebuild lays out for hal/drivers/diana.bf.c. The core has no way to the scratchpads.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("unicorn", reason="the core of the prototype is unicorn's")
import unicorn

from edgebuild.base.artifacts import publish
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import firmware_support, hal_dir, link_flags, load_target
from edgebuild.cli import main
from edgebuild.model import ops
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.ir import Array
from edgebuild.model.ops.base import PER_CALL
from tests.conftest import ROOT
from tests.graphs import random_inputs
from tests.hierarchy.test_engines import power_of_two_file, residual_file

pytestmark = pytest.mark.needs("riscv64-unknown-elf-gcc", "g++")
HERE, UNICORN = Path(__file__).parent / "diana", Path(unicorn.__file__).parent
MAIN = """
#include "net.h"

static const int8_t inputs[VECTORS][NET_INPUT_SIZE] = {{
{rows}
}};
int8_t results[VECTORS][NET_OUTPUT_SIZE];

int main(void)
{{
    for (int v = 0; v < VECTORS; ++v) {{
        for (int i = 0; i < NET_INPUT_SIZE; ++i) {{
            net_input()[i] = inputs[v][i];
        }}
        net_invoke();
        for (int i = 0; i < NET_OUTPUT_SIZE; ++i) {{
            results[v][i] = net_output()[i];
        }}
    }}
    return 0;
}}
"""


def checked(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.fixture(scope="module")
def prototype(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the driver's products and the prototype."""
    folder = tmp_path_factory.mktemp("diana")
    driver = hal_dir() / "drivers" / "diana.bf.c"
    assert main(["driver", str(driver), "--name", "diana", "--target", "diana", "-o", str(folder)]) == 0
    (library,) = (UNICORN / "lib").glob("libunicorn.so.?")
    headers = [f"-I{f}" for f in (folder, ROOT / "sample_projects/pulpino_gpio_spi/prototype", HERE)]
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-isystem", str(UNICORN / "include"), *headers]
    libraries = [str(library), "-lsystemc", f"-Wl,-rpath,{library.parent}"]
    done = subprocess.run(["g++", "-print-file-name=libsystemc.so"], capture_output=True, text=True)
    if "/" not in done.stdout:
        pytest.skip("SystemC is not installed")
    checked(["g++", *flags, str(HERE / "main.cpp"), *libraries, "-o", "prototype"], folder)
    return folder


class Program:
    """A network as a program of the prototype. `limit` and `weights`: bytes of the scratchpads."""

    def __init__(self, folder: Path, limit: str, weights: str, method: str = "layer", scales: str = "file") -> None:
        self.folder = folder
        (power_of_two_file if scales == "file" else residual_file)(folder / "net.tflite")
        target = folder / "diana.yaml"
        facts = (hal_dir() / "targets" / "diana.yaml").read_text()
        assert "activations: 256K" in facts
        assert "weights: 64K" in facts
        facts = facts.replace("activations: 256K", f"activations: {limit}").replace(
            "weights: 64K", f"weights: {weights}"
        )
        target.write_text(facts)
        artifacts = compile_model(ModelRequest(folder / "net.tflite", "net", str(target), map=method, scales=scales))
        publish((*artifacts, *firmware_support(load_target(str(target)))), folder)
        self.target = load_target(str(target))
        self.report = json.loads((folder / "net_report.json").read_text())["hierarchy"]
        graph = prepare(folder / "net.tflite", scales=scales)
        self.inputs = random_inputs(graph, 2, 3)
        self.expected = [ops.run(graph, *vector)[graph.outputs[0]] for vector in self.inputs]
        rows = ",\n".join("{" + ", ".join(map(str, v[0].ravel().tolist())) + "}" for v in self.inputs)
        text = MAIN.format(rows=rows).replace("VECTORS", str(len(self.inputs)))
        text = text.replace("NET_INPUT_SIZE", str(self.inputs[0][0].size))
        (folder / "main.c").write_text(text.replace("NET_OUTPUT_SIZE", str(self.expected[0].size)))

    def run(self, prototype: Path, change: tuple[str, str] | None = None) -> tuple[list[Array], list[int]]:
        """Outputs, and the numbers that the devices counted. `change`: of the driver. Raises where that is refused."""
        driver = (prototype / "diana.c").read_text()
        assert not change or change[0] in driver
        (self.folder / "driver.c").write_text(driver.replace(*change) if change else driver)
        tools = self.target.toolchain
        flags = [*tools.cflags, "-Wall", "-Wextra", "-Werror"] if not change else [*tools.cflags]
        sources = ["main.c", "net.c", "net_weights.S", "driver.c", *(str(hal_dir() / s) for s in self.target.startup)]
        includes = ["-I.", f"-I{hal_dir() / 'include'}", f"-I{prototype}"]
        checked([tools.compiler, *flags, *includes, *link_flags(self.target, ("net_memory.ld",)), *sources, *tools.libs,
                 "-o", "net.elf"], self.folder)  # fmt: skip
        size = sum(y.size for y in self.expected)
        command = [str(prototype / "prototype"), "net.elf", "out.bin", "results", str(size)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        results = np.fromfile(self.folder / "out.bin", np.int8).reshape(len(self.expected), *self.expected[0].shape)
        return list(results), [int(word) for word in done.stdout.splitlines()[-1].split()]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("limit", "weights", "method"), [("64K", "64K", "layer"), ("12K", "12K", "layer"), ("80K", "64K", "auto")]
)
def test_a_network_on_the_prototype(limit: str, weights: str, method: str, prototype: Path, tmp_path: Path) -> None:
    """Equal to the ops' own meaning; copies, bytes, pieces and cycles are those of the report."""
    program = Program(tmp_path, limit, weights, method)
    outputs, counted = program.run(prototype)
    for have, want in zip(outputs, program.expected, strict=True):
        assert np.array_equal(have, want)
    rows = [row for row in program.report["layers"] if row["engine"] == "digital"]
    assert len(rows) == 2
    assert limit != "12K" or sum(row["calls"] for row in rows) > 2
    staying = [row for row in program.report["residency"] if row["level"] == "ACT"]
    assert len(staying) == (method == "auto")
    moved, vectors = program.report["moved"], len(outputs)
    copies, size, pieces, mover, jobs, digital = (n // vectors for n in counted)
    assert (copies, size, pieces) == (moved["transfers"], moved["bytes"], moved["pieces"])
    assert jobs == sum(row["calls"] for row in rows)
    assert digital == sum(row["compute_cycles"] - PER_CALL * row["calls"] for row in rows)
    assert mover == sum(row["dma_cycles"] for row in rows)


def test_all_patterns_on_the_prototype(prototype: Path, tmp_path: Path) -> None:
    """A residual network whose scales became powers of two: every layer runs on the engine, in the modelled cycles."""
    program = Program(tmp_path, "12K", "12K", "auto", "power-of-two")
    outputs, counted = program.run(prototype)
    for have, want in zip(outputs, program.expected, strict=True):
        assert np.array_equal(have, want)
    rows = program.report["layers"]
    assert {row["engine"] for row in rows} == {"digital"}, [row["why"] for row in rows]
    assert counted[5] // len(outputs) == sum(row["compute_cycles"] - PER_CALL * row["calls"] for row in rows)


def test_powers_of_two_keep_what_the_type_cuts_off() -> None:
    """A ReLU that is nothing but a zero point of -128 is still there where the zero point is 0."""
    digits = ROOT / "sample_projects" / "digits" / "digits.onnx"
    graphs = [prepare(digits, scales=scales) for scales in ("file", "power-of-two")]
    compared = 0
    for name, t in graphs[0].tensors.items():
        other, makers = graphs[1].tensors[name], [op for op in graphs[1].ops if name in op.outputs]
        if t.quant and other.quant and t.quant.zero_point == (-128,) and other.quant.zero_point == (0,):
            compared += sum(op.attrs["clamp"][0] == 0.0 for op in makers if "clamp" in op.attrs)
    assert compared > 2


MISTAKES = {
    "no wait for copies": ("(void)channel;\n    idle();\n}", "(void)channel;\n}"),
    "starts over a copy": ("(void)channel;\n    idle();\n    ", "(void)channel;\n    "),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_prototype_notices(mistake: str, prototype: Path, tmp_path: Path) -> None:
    program = Program(tmp_path, "12K", "12K")
    try:
        outputs, _ = program.run(prototype, MISTAKES[mistake])
    except RuntimeError as objection:
        assert "busy" in str(objection)
        return
    assert any(not np.array_equal(have, want) for have, want in zip(outputs, program.expected, strict=True))
