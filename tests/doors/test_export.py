"""`edgebuild export`: each form is built by the rules of its ecosystem, runs, and follows a change of the model.

`sdks/` has those rules: functions of CMake and folders that the ecosystems have, and nothing of theirs.
"""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import edgebuild
from edgebuild.base.firmware import firmware_support, link_flags
from edgebuild.base.target import hal_dir, load_target
from edgebuild.build.exporting import Library, forms, write
from edgebuild.cli import main
from edgebuild.model.ir import Array
from tests.conftest import ROOT, run
from tests.graphs.tiny import Tiny

SDKS = Path(__file__).parent / "sdks"
ARM, RISCV = "mps2-an386", "riscv-virt"
TARGETS = {"esp-idf": RISCV, "pico-sdk": "m0plus-model"}  # of the others: ARM
MODEL = "kws"
PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


class Rolled(Tiny):
    """The small model with other weights."""

    def values(self, *shape: int) -> Array:
        return np.roll(super().values(*shape), 1)


def model(path: Path, kind: type[Tiny] = Tiny) -> Path:
    path.write_bytes(kind().pack())
    return path


def exported(form: str, folder: Path, source: Path, **options: str) -> Path:
    result = edgebuild.compile(source, TARGETS.get(form, ARM), name=MODEL, weights="c", **options)
    write(Library(result, form, "1.0.0", "edgebuild export ..."), folder)
    return folder


class Bare:
    """A bare target's facts as build systems take them, with its start-up code compiled in `folder`."""

    def __init__(self, name: str, folder: Path) -> None:
        self.target, self.folder = load_target(name), folder
        folder.mkdir()
        for a in firmware_support(self.target):
            (folder / a.name).write_bytes(a.data)
        assert self.target.runner
        self.runner, tools = self.target.runner, self.target.toolchain
        sources = [SDKS / "support.c", *(hal_dir() / s for s in (*self.target.startup, *self.runner.sources))]
        includes = [f"-I{SDKS / 'include'}", f"-I{hal_dir() / 'include'}"]
        run(tools.compiler, *tools.arch, "-O1", "-ffreestanding", *includes, "-c", *sources, cwd=folder)
        self.values = {
            "EB_COMPILER": tools.compiler.removesuffix("gcc"),
            "EB_CFLAGS": " ".join([*(f for f in tools.cflags if not f.startswith("-std")), "-O1"]),
            "EB_LDFLAGS": " ".join(link_flags(self.target, folder=f"{folder}/")),
            "EB_OBJECTS": " ".join(map(str, sorted(folder.glob("*.o")))),
        }

    def printed(self, elf: Path) -> str:
        """The program's output; its exit status is none of ours: main of a sketch has none."""
        command = [word.replace("{elf}", str(elf)) for word in self.runner.command]
        return subprocess.run(command, **PIPES, text=True, timeout=60).stdout


def cmake(source: Path, build: Path, bare: Bare, **values: str) -> Callable[[], str]:
    """Configure a project, and give its build."""
    words = {**bare.values, "CMAKE_TOOLCHAIN_FILE": str(SDKS / "bare.cmake"), **values}
    env = {"IDF_PATH": str(SDKS / "idf"), "PICO_SDK_PATH": str(SDKS / "pico"), "ZEPHYR_BASE": str(SDKS / "zephyr")}
    run("cmake", "-G", "Ninja", "-S", source, "-B", build, *(f"-D{k}={v}" for k, v in words.items()), env=env)
    return lambda: run("ninja", "-C", build)


def plain(folder: Path, sources: list[Path], includes: list[Path], app: Path, bare: Bare) -> Callable[[], str]:
    values = {"SOURCES": ";".join(map(str, sources)), "INCLUDES": ";".join(map(str, includes)), "APP": str(app)}
    return cmake(SDKS / "plain", folder, bare, **values)


def arduino(library: Path, build: Path, bare: Bare) -> Callable[[], str]:
    """Every source below `src`, headers of `src`; a sketch is C++ behind Arduino.h."""
    facts = dict(line.split("=", 1) for line in (library / "library.properties").read_text().splitlines())
    assert facts.keys() >= {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url"}
    assert (library / "src" / facts["includes"]).is_file()
    sketch = library / "examples" / MODEL / f"{MODEL}.ino"
    build.mkdir()
    begin = "int main() { setup(); return 0; }\n"
    (build / "sketch.cpp").write_text(f'#include <Arduino.h>\n#include "{sketch}"\n{begin}')
    sources = [f for f in (library / "src").rglob("*") if f.suffix in (".c", ".cpp", ".S")]
    return plain(build, sources, [library / "src", sketch.parent], build / "sketch.cpp", bare)


def platformio(library: Path, build: Path, bare: Bare) -> Callable[[], str]:
    """Every source below `src`, headers of `include` and `src`."""
    facts = json.loads((library / "library.json").read_text())
    assert (library / "include" / facts["headers"]).is_file()
    example = facts["examples"][0]
    files = [library / example["base"] / file for file in example["files"]]
    assert all(f.is_file() for f in files)
    return plain(build, [*(library / "src").rglob("*.c")], [library / "include", library / "src"], files[0], bare)


def pack(library: Path, build: Path, bare: Bare) -> Callable[[], str]:
    """Files that the description in the archive names, and no others."""
    unpacked(library)
    (pdsc,) = (library.parent / "unpacked").glob("*.pdsc")
    rows = ElementTree.parse(pdsc).iter("file")
    files = [(f.get("category"), pdsc.parent / str(f.get("name")), f.get("attr")) for f in rows]
    assert all(path.exists() for _, path, _ in files)
    sources = [path for kind, path, attr in files if kind == "source" and not attr]
    (app,) = (path for kind, path, attr in files if kind == "source" and attr)
    return plain(build, sources, [path for kind, path, _ in files if kind == "include"], app, bare)


def unpacked(library: Path) -> None:
    (archive,) = library.glob("*.pack")
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(library.parent / "unpacked")


def cubemx(project: Path, build: Path, bare: Bare) -> Callable[[], str]:
    (project / "Makefile").write_bytes((SDKS / "Makefile.cubemx").read_bytes())
    (project / "Core" / "Src" / "main.c").write_text(
        f"#include <stdio.h>\nint {MODEL}_sample(void);\n"
        f'int main(void) {{ puts({MODEL}_sample() ? "{MODEL}: wrong" : "{MODEL}: right"); return 0; }}\n'
    )
    flags = f"{bare.values['EB_CFLAGS']} -I{SDKS / 'include'}"
    words = {**bare.values, "EB_CFLAGS": flags, "MODEL": MODEL, "BUILD_DIR": str(build)}
    return lambda: run("make", "-C", project, *(f"{k}={v}" for k, v in words.items()))


def sample(where: str) -> Callable[[Path, Path, Bare], Callable[[], str]]:
    return lambda library, build, bare: cmake(library / where, build, bare)


BUILDS = {
    "arduino": arduino,
    "platformio": platformio,
    "zephyr": sample(f"samples/{MODEL}"),
    "esp-idf": sample(f"examples/{MODEL}"),
    "pico-sdk": sample("example"),
    "cubemx": cubemx,
    "cmsis-pack": pack,
    "cmake": sample("sample"),
}


def test_each_form_is_built_here() -> None:
    assert forms() == sorted(BUILDS)


@pytest.fixture(scope="module")
def bares(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bare]:
    kept: dict[str, Bare] = {}
    return lambda name: kept.setdefault(name, Bare(name, tmp_path_factory.mktemp("bare") / name))


@pytest.mark.needs(
    "cmake", "ninja", "make", "arm-none-eabi-gcc", "riscv64-unknown-elf-gcc", "qemu-system-arm", "qemu-system-riscv32"
)
@pytest.mark.parametrize("form", sorted(BUILDS))
def test_it_builds_runs_and_follows_the_model(form: str, tmp_path: Path, bares: Callable[[str], Bare]) -> None:
    """Clean, a second time without work, and behind an export of other weights. Those fail the check of before."""
    bare, folder = bares(TARGETS.get(form, ARM)), tmp_path / "lib" / MODEL
    library = exported(form, folder, model(tmp_path / "kws.tflite"))
    build = BUILDS[form](library, tmp_path / "build", bare)
    build()
    (elf,) = (f for f in (tmp_path / "build").rglob("*") if f.suffix in ("", ".elf") and is_elf(f))
    assert bare.printed(elf) == f"{MODEL}: right\n"
    done = build()
    assert "no work to do" in done or "Nothing to be done" in done
    (check,) = library.rglob(f"{MODEL}_check.h")
    before = check.read_bytes()
    exported(form, folder, model(tmp_path / "kws.tflite", Rolled))
    if form == "cmsis-pack":
        unpacked(library)
        (check,) = (library.parent / "unpacked").rglob(f"{MODEL}_check.h")
    build()
    assert bare.printed(elf) == f"{MODEL}: right\n"
    check.write_bytes(before)
    build()
    assert bare.printed(elf) == f"{MODEL}: wrong\n"


def is_elf(file: Path) -> bool:
    return file.is_file() and file.read_bytes()[:4] == b"\x7fELF"


def test_sources_are_those_of_the_model_command(tmp_path: Path) -> None:
    """Byte for byte, in every form; and no file depends on where or when the export was made."""
    digits = ROOT / "sample_projects" / "digits" / "digits.onnx"
    assert (
        main(["model", str(digits), "--name", MODEL, "--target", ARM, "--weights", "c", "-o", str(tmp_path / "c")]) == 0
    )
    made = {f.name: f.read_bytes() for f in (tmp_path / "c").iterdir() if f.suffix in (".c", ".h")}
    for form in forms():
        command = ["export", str(digits), "--as", form, "--name", MODEL, "--target", ARM, "-q", "-o"]
        trees = []
        for folder in (tmp_path / "a" / form, tmp_path / "elsewhere" / "b" / form):
            assert main([*command, str(folder)]) == 0
            trees.append({f.relative_to(folder): f.read_bytes() for f in folder.rglob("*") if f.is_file()})
        assert trees[0] == trees[1]
        copies = {path.name: data for path, data in trees[0].items() if path.name in made}
        assert copies == made
        assert not any(str(tmp_path).encode() in data for data in trees[0].values())
        (readme,) = (data.decode() for path, data in trees[0].items() if path.suffix == ".md")
        assert f"edgebuild export digits.onnx --as {form} --name kws --target {ARM} -o DIR" in readme
