"""The command: flags of the preprocessor, and overlays that need no guess."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.drivers.cases import svd

HEADER = """#ifndef DEV_H
#define DEV_H
#include <edgebuild_bf.h>
#include <stdint.h>
bfGroup D { bit a; uint4 b; };
make_device(D, d, BASE);
#endif
"""
SOURCE = "#include <dev.h>\n#include <stdlib.h>\nuint32_t f(int x) { d->a = 1; d->b = x; return X; }\n"
CHIP = "CR@0: EN:0:1 MODE:1:2 REST:8:4\nSR@4: BUSY:0:1:r IRQ:1:1:oneToClear"
DRIVER = """bfGroup C { bit EN; uint2 MODE; bit BUSY; };
make_device(C, c, 0x40000000);
void t(void) { c->EN = 1; while (c->BUSY) ; }
"""


def driver(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edgebuild", "driver", *words, "--name", "n", "-o", "out"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", ["mps2-an385", "pulpino"])
def test_flags(target: str, tmp_path: Path) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "dev.h").write_text(HEADER)
    (tmp_path / "pre.h").write_text("#define X 4\n")
    (tmp_path / "d.bf.c").write_text(SOURCE)
    flags = ("-I", "inc", "-D", "BASE=0x40000000", "-include", "pre.h")
    done = driver(tmp_path, "d.bf.c", "--target", target, *flags, "--depfile", "out.d")
    assert done.returncode == 0, done.stderr
    assert "HAL_WRITE_D_a_b" in (tmp_path / "out" / "n.c").read_text()
    read = (tmp_path / "out.d").read_text()
    assert "pre.h" in read and "dev.h" in read
    without = driver(tmp_path, "d.bf.c", "--target", target, "-I", "inc", "-include", "pre.h")
    assert without.returncode == 1 and "BASE" in without.stderr and "Traceback" not in without.stderr


def test_overlay_template(tmp_path: Path) -> None:
    (tmp_path / "chip.svd").write_text(svd(CHIP))
    (tmp_path / "d.bf.c").write_text(DRIVER)
    words = ("d.bf.c", "--target", "pulpino", "--layout", "fixed:chip.svd")
    first = driver(tmp_path, *words)
    assert first.returncode == 0 and not first.stderr, "settings give no warning"
    template = driver(tmp_path, *words, "--overlay-template")
    lines = template.stdout.splitlines()
    assert (
        "  # C.CR.EN: {plain: true}  # read-write, bit 0; written at line 3; the name suggests a setting"
        in template.stdout
    )
    assert sum(line.startswith("  # C.") for line in lines) == 2, "only what is used"
    (tmp_path / "chip.overlay.yaml").write_text(template.stdout)
    before = (tmp_path / "out" / "n.c").read_bytes()
    assert driver(tmp_path, *words).returncode == 0
    assert (tmp_path / "out" / "n.c").read_bytes() == before, "the template says what holds without it"


def test_keys_that_fit_nothing(tmp_path: Path) -> None:
    (tmp_path / "chip.svd").write_text(svd(CHIP))
    (tmp_path / "d.bf.c").write_text(DRIVER)
    (tmp_path / "chip.overlay.yaml").write_text("fields:\n  C.CR.ENABLE: {plain: true}\n")
    done = driver(tmp_path, "d.bf.c", "--target", "pulpino", "--layout", "fixed:chip.svd")
    assert done.returncode == 1
    assert "chip.overlay.yaml:2: error: 'C.CR.ENABLE' fits no PERIPHERAL.REGISTER.FIELD of chip.svd" in done.stderr


def test_words_that_contradict_each_other(tmp_path: Path) -> None:
    (tmp_path / "chip.svd").write_text(svd(CHIP))
    (tmp_path / "d.bf.c").write_text(DRIVER)
    (tmp_path / "chip.overlay.yaml").write_text("fields:\n  C.CR.*: {plain: true, volatile: true}\n")
    done = driver(tmp_path, "d.bf.c", "--target", "pulpino", "--layout", "fixed:chip.svd")
    assert done.returncode == 1
    assert "chip.overlay.yaml:2: error: 'C.CR.*': what only writes change" in done.stderr


def test_graph_joins_what_became_one(tmp_path: Path) -> None:
    source = tmp_path / "g.bf.c"
    source.write_text(
        "bfGroup G { bit a; bit b; uint3 c; uint8 rse(self) d; };\nmake_device(G, g, 0x40000000);\n"
        "int t(void) { g->a = 1; g->b = 1; g->c = 2; int x = g->d; return x + g->d; }\n"
    )
    options = ["--name", "g", "--target", "pulpino", "-q", "-o", str(tmp_path), "--graph", str(tmp_path / "g.svg")]
    subprocess.run([sys.executable, "-m", "edgebuild", "driver", str(source), *options], check=True)
    text = (tmp_path / "g.svg").read_text()
    ElementTree.fromstring(text)
    assert text.count("<circle") == 5 and text.count("<path") == 2  # three stores became one, no read did
    assert text.count("side effect") == 2 and "write of G.c, line 3" in text
