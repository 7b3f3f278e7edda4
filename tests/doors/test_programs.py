"""After the link: sizes, budgets and bills of materials of programs, and tests of models, through three doors."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT, run
from tests.doors.projects import DIGITS, scons

MAIN_C = """\
#include "digits.h"
#include "led_regs.h"
void led(int);
int main(void) { digits_invoke(); led(3); return digits_output() == 0; }
"""
LED = """\
bfGroup Led { bit wo on; uint3 level; };
make_device(Led, led_device, 0x1A103000);
void led(int level) { led_device->level = level; }
"""
CMAKELISTS = """\
cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES C)
enable_testing()
find_package(EdgeBuild REQUIRED)
add_executable(app main.c)
edgebuild_report(app {budgets})
add_model(digits MODEL digits.onnx)
add_bf_driver(led SOURCES led.bf.c)
target_link_libraries(app PRIVATE digits led)
edgebuild_add_test(digits {test})
"""
SCONSTRUCT = """\
import edgebuild.doors
env = Environment(tools=["default", "edgebuild"], toolpath=[str(edgebuild.doors.scons_toolpath())])
digits = env.Model("digits", "digits.onnx")
app = env.Program("app", ["main.c", digits, env.BfDriver("led", "led.bf.c")])
env.EdgeBuildReport(app, {budgets})
env.EdgeBuildTest(digits, {test})
"""
DOORS = [
    pytest.param("scons", marks=pytest.mark.needs("gcc", "size", "objdump")),
    pytest.param("Ninja", marks=pytest.mark.needs("cmake", "ninja", "gcc", "size", "objdump")),
    pytest.param("Unix Makefiles", marks=pytest.mark.needs("cmake", "make", "gcc", "size", "objdump")),
]


class Project:
    """`build_folder`: the folder with the program."""

    def __init__(self, folder: Path, door: str) -> None:
        self.folder, self.door = folder, door
        self.build_folder = folder if door == "scons" else folder / "build"
        shutil.copy(DIGITS / "digits.onnx", folder)
        (folder / "main.c").write_text(MAIN_C)
        (folder / "led.bf.c").write_text(LED)

    def write(self, budgets: dict[str, str], test: dict[str, str] | None = None) -> None:
        if self.door == "scons":
            words = [", ".join(f"{k}={v!r}" for k, v in row.items()) for row in (budgets, test or {})]
            (self.folder / "SConstruct").write_text(SCONSTRUCT.format(budgets=words[0], test=words[1]))
            return
        words = [" ".join(f"{k} {v}" for k, v in row.items()) for row in (budgets, test or {})]
        (self.folder / "CMakeLists.txt").write_text(CMAKELISTS.format(budgets=words[0], test=words[1]))
        config = f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}"
        run("cmake", "-Werror=dev", "-G", self.door, "-B", "build", config, cwd=self.folder)

    def build(self, target: str = "", status: int = 0) -> str:
        if self.door == "scons":
            return scons(self.folder, *([target] if target else []), status=status)
        done = 2 if status and self.door != "Ninja" else 1 if status else 0
        return run("cmake", "--build", "build", *(["--target", target] if target else []), cwd=self.folder, status=done)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("door", DOORS)
def test_sizes_budgets_and_bill(door: str, tmp_path: Path) -> None:
    project = Project(tmp_path, door)
    project.write({"FLASH_BUDGET": "1M", "STACK_BUDGET": "2K"})
    project.build()
    text = project.build("app_report")
    assert [line.split()[0] for line in text.splitlines() if line.startswith(("digits ", "led ", "rest ", "total "))]
    sizes = json.loads((project.build_folder / "app_size.json").read_text())
    counted = list(map(int, run("size", project.build_folder / "app").splitlines()[1].split()[:3]))
    assert [sizes["text"], sizes["data"], sizes["bss"]] == counted
    assert sizes["parts"].keys() == {"digits", "led", "rest"} and 100 < sizes["stack"] < 2048
    bill = json.loads((project.build_folder / "app.spdx.json").read_text())
    digests = {p["name"]: p["checksums"][0]["checksumValue"] for p in bill["packages"] if "checksums" in p}
    assert digests["digits.onnx"] == hashlib.sha256((tmp_path / "digits.onnx").read_bytes()).hexdigest()
    assert digests.keys() == {"app", "digits.onnx", "led.bf.c"}

    more = MAIN_C.replace("int main(void) {", "int more[900] = {1}; int main(void) { volatile char x[3000]; x[0] = 1;")
    (tmp_path / "main.c").write_text(more)
    for _ in range(2):  # a build that failed fails again
        text = project.build("app", status=2)
        assert "stack: " in text and "over the budget" in text and "grew since it was within the budget: rest +" in text
    project.write({"RAM_BUDGET": "1K"})
    text = project.build(status=2)
    assert "ram: " in text and "more +3,600 B" in text and "stack: " not in text
    project.write({"FLASH_BUDGET": "1M"})
    project.build()
    assert "Checking" not in project.build() and "grew" not in project.build()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("door", DOORS)
def test_tests_of_models(door: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(1)
    np.save(tmp_path / "x.npy", rng.integers(-128, 128, (3, 64), np.int8))
    np.save(tmp_path / "y.npy", np.full(3, 4))
    project = Project(tmp_path, door)
    inputs = {"INPUTS": "x.npy", "LABELS": "y.npy"}
    outputs = list[str]()
    for expected, status in (({"MIN_ACCURACY": "0"}, 0), ({}, 1)):
        project.write({}, {"NAME": "named", **inputs, **expected})
        if door == "scons":
            outputs.append(scons(tmp_path, "named", status=2 if status else 0))
        else:
            project.build()
            outputs.append(run("ctest", "-V", "-R", "named", cwd=project.build_folder, status=8 if status else 0))
    for text in outputs:
        assert "digits.onnx on host: equal to the reference (3 inputs" in text and "3 samples: accuracy" in text
    assert "labels; 1 is expected" in outputs[1]


def test_a_bill_is_the_same_in_every_folder(tmp_path: Path) -> None:
    """Its references lead somewhere, and its verification codes are those of its files (SPDX 2.3, 7.9)."""
    bills = []
    for name in ("a", "a longer name"):
        folder = tmp_path / name
        folder.mkdir()
        Project(folder, "scons").write({})
        scons(folder, "codegen")
        requests = [str(folder / "edgebuild" / n / f"{n}.req.json") for n in ("digits", "led")]
        run(sys.executable, "-m", "edgebuild", "sbom", *requests, "-o", folder / "all.spdx.json")
        bills.append((folder / "all.spdx.json").read_bytes())
    assert bills[0] == bills[1]
    bill = json.loads(bills[0])
    files = {f["SPDXID"]: f for f in bill["files"]}
    packages = {p["SPDXID"]: p for p in bill["packages"]}
    assert len(files) == len(bill["files"]) and len(packages) == len(bill["packages"])
    ids = {"SPDXRef-DOCUMENT", *files, *packages}
    assert all({r["spdxElementId"], r["relatedSpdxElement"]} <= ids for r in bill["relationships"])
    named = {p["name"]: p for p in bill["packages"]}
    assert named["edgebuild"]["versionInfo"] and named["edgebuild"]["licenseDeclared"] == "Apache-2.0"
    for name in ("digits", "led"):
        digests = sorted(files[f]["checksums"][0]["checksumValue"] for f in named[name]["hasFiles"])
        code = named[name]["packageVerificationCode"]["packageVerificationCodeValue"]
        assert digests and code == hashlib.sha1("".join(digests).encode()).hexdigest()
    (header,) = (f for f in bill["files"] if f["fileName"] == "./digits/digits.h")
    product = (tmp_path / "a" / "edgebuild" / "digits" / "digits.h").read_bytes()
    assert header["checksums"][1]["checksumValue"] == hashlib.sha256(product).hexdigest()
    assert header["licenseConcluded"] == "0BSD"
    try:
        from spdx_tools.spdx.parser.parse_anything import parse_file
        from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
    except ImportError:
        return
    assert validate_full_spdx_document(parse_file(str(tmp_path / "a" / "all.spdx.json"))) == []
