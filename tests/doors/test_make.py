"""Plain make, by the dependency file of the command: what is current starts nothing, what is lost or newer is made."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgebuild.cli import main
from tests.conftest import ROOT, run
from tests.doors.projects import DIGITS, MAIN_C

pytestmark = pytest.mark.needs("make", "gcc")

MAKEFILE = """\
RUN = $(PYTHON) -m edgebuild
app: main.o a.o a_weights.o digits.o digits_weights.o
	$(CC) -o $@ $^
main.o: digits.h
a.o: a.c
%.c %.h %_weights.c: %.onnx
	$(RUN) model $< --name $* --target host -o . --depfile $*.d --weights c -q
-include a.d digits.d
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two models; the weights of one are in a file beside it."""
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    ports = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 300]) for n in "xy"]
    weights = numpy_helper.from_array(np.ones((300, 300), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "a.onnx", save_as_external_data=True, location="a.data")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "main.c").write_text(MAIN_C)
    assert len(started(tmp_path)) == 2
    return tmp_path


def started(folder: Path, builds: int = 1) -> list[str]:
    """Build so many times, and again; the names of models that were made, where the last build makes nothing."""
    words = ["make", "-j8", f"PYTHON={sys.executable} -P"]
    shell = {**os.environ, "PYTHONPATH": str(ROOT)}
    lines = [line for _ in range(builds) for line in run(*words, cwd=folder, env=shell).splitlines()]
    run(folder / "app", cwd=folder)
    assert "is up to date" in run(*words, cwd=folder, env=shell)
    return [line.split()[line.split().index("model") + 1] for line in lines if " -m edgebuild " in line]


def test_a_touched_model_is_generated_once(project: Path) -> None:
    """The products have the same bytes: with their old date they were made in every build."""
    (project / "digits.onnx").touch()
    assert started(project) == ["digits.onnx"]


def test_weights_beside_the_model_count(project: Path) -> None:
    data = bytearray((project / "a.data").read_bytes())
    data[3] ^= 1
    (project / "a.data").write_bytes(data)
    before = (project / "a_weights.c").read_bytes()
    assert started(project) == ["a.onnx"] and (project / "a_weights.c").read_bytes() != before


def test_a_removed_product_comes_back(project: Path) -> None:
    for name in ("digits.c", "digits.h", "digits_weights.c"):
        (project / name).unlink()
        # GNU make 4.3 compiles main.c with a header that came with other targets in the next build.
        assert started(project, builds=2) == ["digits.onnx"], name
        assert (project / name).exists()


CUBE = """\
C_SOURCES = main.c digits.c {c}
ASM_SOURCES = {s}
OBJECTS = $(addprefix build/,$(notdir $(C_SOURCES:.c=.o)) $(notdir $(ASM_SOURCES:.S=.o)))
build/app: $(OBJECTS)
	cc -o $@ $^
{rules}
digits.c digits.h {c} {s}: digits.onnx
	$(RUN) model $< --name digits --target host --weights {weights} -o . -q
build/main.o: digits.h
"""
RULES = [
    "build/%.o: %.c | build\n\tcc -I. -c -o $@ $<\n",
    "build/%.o: %.S | build\n\tcc -I. -x assembler -c -o $@ $<\n",
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("first", ["c", "S"])
@pytest.mark.parametrize("weights", ["c", "asm"])
def test_rules_for_suffixes_link_twice(weights: str, first: str, tmp_path: Path) -> None:
    """As in makefiles of STM32CubeMX. Products whose names differ in the suffix alone would share an object."""
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    (tmp_path / "main.c").write_text(MAIN_C)
    rules = "".join(RULES if first == "c" else reversed(RULES)) + "build:\n\tmkdir -p $@\n"
    names = ("digits_weights.c", "") if weights == "c" else ("", "digits_weights.S")
    (tmp_path / "Makefile").write_text(CUBE.format(c=names[0], s=names[1], rules=rules, weights=weights))
    for _ in range(2):
        shutil.rmtree(tmp_path / "build", ignore_errors=True)
        run("make", f"RUN={sys.executable} -P -m edgebuild", cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
        run(tmp_path / "build" / "app", cwd=tmp_path)


@pytest.mark.parametrize("weights", ["c", "asm"])
def test_the_other_form_of_weights_goes(weights: str, tmp_path: Path) -> None:
    """So no two sources of a folder have one stem, and none is of an earlier run."""
    words = ["model", str(DIGITS / "digits.onnx"), "--name", "digits", "--target", "host", "-o", str(tmp_path), "-q"]
    for form in ("asm" if weights == "c" else "c", weights):
        assert main([*words, "--weights", form]) == 0
    assert {f.name for f in tmp_path.glob("*_weights.[cS]")} == {f"digits_weights.{'c' if weights == 'c' else 'S'}"}


def test_a_file_of_the_user_in_the_place_of_unused_weights_stays(tmp_path: Path) -> None:
    (mine := tmp_path / "digits_weights.c").write_text("of the user")
    words = ["model", str(DIGITS / "digits.onnx"), "--name", "digits", "--target", "host", "-o", str(tmp_path), "-q"]
    assert main([*words, "--weights", "asm"]) == 0 and mine.read_text() == "of the user"
    assert main([*words, "--weights", "c"]) == 1 and mine.read_text() == "of the user"
