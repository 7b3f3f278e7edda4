"""`edgebuild export`: each form is built by the rules of its ecosystem, runs, and follows a change of the model.

`sdks/` has those rules: functions of CMake and folders that the ecosystems have, and nothing of theirs.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

import edgebuild
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.target import firmware_support, hal_dir, link_flags, load_target
from edgebuild.base.templates import environment
from edgebuild.build import exporting
from edgebuild.build.exporting import Library, _literal, forms, write
from edgebuild.cli import main
from edgebuild.doors import cmake_dir
from edgebuild.model import ops
from edgebuild.model.compile import prepare
from edgebuild.model.ir import Array
from tests.conftest import ROOT, run
from tests.docs.pages import blocks
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
    write(Library(result, form, "edgebuild export ..."), folder)
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
    assert forms() == sorted([*BUILDS, "rust"])


def test_each_form_of_a_network_whose_inputs_have_no_scale(tmp_path: Path) -> None:
    files = edgebuild.compile(ROOT / "sample_projects/digits/training/float.onnx", "host", name="n", weights="c")
    for form in forms():
        write(Library(files, form, "edgebuild export ..."), tmp_path / form)
    assert "real =" not in (tmp_path / "rust/src/lib.rs").read_text()


@pytest.mark.needs("rustc", "gcc")
def test_the_crate_is_safe_rust_for_those_who_use_it(tmp_path: Path) -> None:
    """Without cargo, whose crate `cc` is fetched: the C is compiled as its build script says."""
    source = model(tmp_path / "kws.tflite")
    library = tmp_path / "lib"
    write(Library(edgebuild.compile(source, "host", name=MODEL, weights="c"), "rust", "edgebuild export ..."), library)
    script = (library / "build.rs").read_text()
    files = [library / name for name in re.findall(r'"(csrc/\w+\.c)"', script)]
    run("gcc", "-std=c11", "-I", library / "csrc", "-c", *files, cwd=tmp_path)
    run("ar", "rcs", "libkws.a", *sorted(tmp_path.glob("*.o")), cwd=tmp_path)
    crate = ("--edition=2021", "--crate-type=rlib", "--crate-name=kws", "-Dwarnings", "-L.", "-lstatic=kws")
    run("rustc", *crate, library / "src" / "lib.rs", cwd=tmp_path)
    use = "fn main() {\n    let mut model = unsafe { kws::Model::new() };\n"
    use += '    model.input().fill(3);\n    model.invoke();\n    println!("{:?}", model.output());\n}\n'
    (tmp_path / "main.rs").write_text(use)
    run("rustc", "--edition=2021", "-Dwarnings", "-L.", "--extern=kws", "main.rs", "-o", "app", cwd=tmp_path)
    printed = run(tmp_path / "app")
    expected = ops.run(prepare(source), np.full(_shape(source), 3, np.int8))
    (result,) = (expected[name] for name in prepare(source).outputs)
    assert json.loads(printed) == result.ravel().tolist()


@pytest.mark.needs("g++", "gcc")
@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_spans_for_cpp(standard: str, tmp_path: Path) -> None:
    source, library = model(tmp_path / "kws.tflite"), tmp_path / "lib"
    write(Library(edgebuild.compile(source, "host", name=MODEL, weights="c"), "cmake", ""), library)
    (tmp_path / "main.cpp").write_text(
        "#include <cstdio>\n#include <kws.hpp>\nint main() {\n    for (auto &x : kws_model::input()) { x = 3; }\n"
        '    kws_model::invoke();\n    const char *before = "[";\n'
        '    for (auto y : kws_model::output()) { std::printf("%s%d", before, y); before = ", "; }\n'
        '    std::puts("]");\n}\n'
    )
    run("gcc", "-std=c11", "-I", library / "include", "-c", *(library / "src").glob("*.c"), cwd=tmp_path)
    flags = (f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-fno-exceptions", "-fno-rtti")
    run("g++", *flags, "-I", library / "include", "main.cpp", *tmp_path.glob("*.o"), "-o", "app", cwd=tmp_path)
    expected = ops.run(prepare(source), np.full(_shape(source), 3, np.int8))
    (result,) = (expected[name] for name in prepare(source).outputs)
    assert json.loads(run(tmp_path / "app")) == result.ravel().tolist()


def _shape(source: Path) -> tuple[int, ...]:
    graph = prepare(source)
    return graph.tensors[graph.inputs[0]].shape


@pytest.fixture(scope="module")
def bares(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bare]:
    kept: dict[str, Bare] = {}
    return lambda name: kept.setdefault(name, Bare(name, tmp_path_factory.mktemp("bare") / name))


@pytest.mark.one_in(2)
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
    source = model(tmp_path / "tiny.tflite")
    for form in forms():
        target = TARGETS.get(form, ARM)
        options, output = ["--name", MODEL, "--target", target], tmp_path / target
        assert main(["model", str(source), *options, "--weights", "c", "-q", "-o", str(output)]) == 0
        written = {f.name: f.read_bytes() for f in output.iterdir() if f.suffix in (".c", ".h")}
        assert main(["export", str(source), "--as", form, *options, "-q", "-o", str(tmp_path / form)]) == 0
        tree = contents(tmp_path / form)
        assert {path.name: data for path, data in tree.items() if path.name in written} == written
        assert not any(str(tmp_path).encode() in data for data in tree.values())
        (readme,) = (data.decode() for path, data in tree.items() if path.suffix == ".md")
        assert f"edgebuild export tiny.tflite --as {form} --name kws --target {target} -o DIR" in readme
    elsewhere = tmp_path / "elsewhere" / "b"
    options = ["--name", MODEL, "--target", ARM]
    assert main(["export", str(source), "--as", "cmsis-pack", *options, "-q", "-o", str(elsewhere)]) == 0
    assert contents(elsewhere) == contents(tmp_path / "cmsis-pack")


@pytest.mark.parametrize(("form", "target"), [("esp-idf", ARM), ("cubemx", RISCV), ("cmsis-pack", RISCV)])
def test_a_core_that_no_chip_of_the_form_has(
    form: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = model(tmp_path / "tiny.tflite")
    assert main(["export", str(source), "--as", form, "--target", target, "-o", str(tmp_path / "e")]) == 1
    assert f"option 'target': {form} has no chip with a core of {target}" in capsys.readouterr().err
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("options", [{"arena": "caller"}, {"stream_input": "rows"}, {"stream_output": "rows"}], ids=str)
def test_each_form_has_each_interface(options: dict[str, str], tmp_path: Path) -> None:
    """Files that use the model name only functions that its header declares, with as many arguments."""
    result = edgebuild.compile(model(tmp_path / "kws.tflite"), "host", name=MODEL, weights="c", **options)
    functions = re.compile(rf"\b({MODEL}_(?:input|output|invoke|push_rows)\w*)\(([^()]*)\)")
    declared = {name: words.count(",") + (words not in ("", "void")) for name, words in functions.findall(
        next(a.data.decode() for a in result.artifacts if a.name == f"{MODEL}.h"))}  # fmt: skip
    for form in forms():
        files = {a.name: a.data.decode() for a in Library(result, form, "").artifacts() if not a.name.endswith(".pack")}
        used = [file for name, file in files.items() if name.endswith(("_check.h", ".hpp", "lib.rs"))]
        calls = [call for file in used for call in functions.findall(file)]
        assert calls, form
        assert all(declared[name] == words.count(",") + bool(words) for name, words in calls), (form, calls)


def contents(folder: Path) -> dict[Path, bytes]:
    return {f.relative_to(folder): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Library]:
    """Libraries of one compiled model."""
    source = model(tmp_path_factory.mktemp("model") / "kws.tflite")
    results = {w: edgebuild.compile(source, "host", name=MODEL, weights=w) for w in ("c", "asm")}
    return lambda form="cubemx", weights="c", **metadata: Library(results[weights], form, "", **metadata)


def test_files_of_others_stay(library: Callable[..., Library], tmp_path: Path) -> None:
    """And what an earlier export wrote goes, unless somebody changed it; never a file outside of the folder."""
    write(library("cmake"), tmp_path / "a")
    assert write(library("cmake"), tmp_path / "a") == []
    readme, sample = tmp_path / "a" / "README.md", tmp_path / "a" / "sample" / "main.c"
    for file, text in ((readme, "it was changed since edgebuild wrote it"), (sample, "edgebuild did not write it")):
        before = file.read_bytes()
        if file == sample:
            rows = (tmp_path / "a" / ".kws.edgebuild").read_text().splitlines(keepends=True)
            (tmp_path / "a" / ".kws.edgebuild").write_text("".join(r for r in rows if "main.c" not in r))
        file.write_text("mine")
        with pytest.raises(EdgebuildError, match=text):
            write(library("platformio"), tmp_path / "a") if file == readme else write(library("cmake"), tmp_path / "a")
        assert file.read_text() == "mine" and not (tmp_path / "a" / "library.json").exists()
        file.write_bytes(before)
    (outside := tmp_path / "outside").write_bytes(b"")
    digest = hashlib.sha256(b"").hexdigest()
    for name in ("../outside", str(outside)):
        with (tmp_path / "a" / ".kws.edgebuild").open("a") as listed:
            listed.write(f"{digest}  {name}\n")
    write(library("platformio"), tmp_path / "a")
    assert outside.exists() and sample.exists()  # of which the list knew nothing
    assert not (tmp_path / "a" / "CMakeLists.txt").exists() and (tmp_path / "a" / "library.json").exists()


def test_two_models_share_a_folder(library: Callable[..., Library], tmp_path: Path) -> None:
    other = edgebuild.compile(model(tmp_path / "vww.tflite"), "host", weights="c")
    write(library(), tmp_path / "p")
    write(Library(other, "cubemx", ""), tmp_path / "p")
    write(library(), tmp_path / "p")
    assert {"kws.c", "vww.c"} <= {f.name for f in (tmp_path / "p" / "Core" / "Src").iterdir()}


@pytest.mark.parametrize(
    "metadata", [{"version": "1.0"}, {"version": "01.0.0"}, {"vendor": "A/B"}, {"url": "x"}, {"weights": "asm"}]
)
def test_metadata_that_no_library_can_have(
    library: Callable[..., Library], metadata: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(EdgebuildError, match=f"option '{next(iter(metadata))}'"):
        write(library(**metadata), tmp_path / "p")
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("form", forms())
def test_metadata_is_that_of_the_library(library: Callable[..., Library], form: str) -> None:
    url = "https://acme.example/kws?a=1&b=2"
    files = {a.name: a.data for a in library(form, version="2.3.4", vendor="Acme", url=url).artifacts()}
    for name, data in files.items():
        if name.endswith((".yml", ".yaml")):
            assert yaml.safe_load(data)
        if name.endswith(".json"):
            assert json.loads(data)["homepage"] == url
        if name.endswith(".pdsc"):
            root = ElementTree.fromstring(data)
            assert (root.findtext("vendor"), root.findtext("url")) == ("Acme", url)
    versioned = {"arduino": "library.properties", "platformio": "library.json", "esp-idf": "idf_component.yml"}
    versioned |= {"cmake": "kws-config-version.cmake", "cmsis-pack": "Acme.kws.pdsc"}
    assert form not in versioned or b"2.3.4" in files[versioned[form]]
    assert form != "cmsis-pack" or "Acme.kws.2.3.4.pack" in files


def test_a_further_form_is_a_file(
    library: Callable[..., Library], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a line of Python."""
    (tmp_path / "forms").mkdir()
    (tmp_path / "forms" / "mine.j2").write_text(
        "%% form\nabout: a form of a test\nsources: lib\nheaders: lib\n\n"
        "%% lib/NAME.txt\n{{ sources | join(' ') }} {{ report.ram.arena_bytes }}\n"
    )
    monkeypatch.setattr(exporting, "FORMS", tmp_path / "forms")
    monkeypatch.setattr(environment().loader, "searchpath", [str(tmp_path / "forms")])
    assert forms() == ["mine"]
    write(library("mine"), tmp_path / "out")
    arena = library().result.arena_bytes
    assert (tmp_path / "out" / "lib" / "kws.txt").read_text() == f"lib/kws.c lib/kws_weights.c {arena}\n"


def recipe(name: str, folder: Path, bare: Bare) -> str:
    """A file of docs/export.md, for the target that the tests can run, written below `folder`."""
    (text,) = (block.text for block in blocks(ROOT / "docs" / "export.md") if block.file == name)
    for target in ("nrf52840", "esp32c3", "rp2040", "stm32f411"):
        text = text.replace(target, bare.target.name)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return text


@pytest.mark.slow
@pytest.mark.needs("cmake", "ninja", "arm-none-eabi-gcc", "riscv64-unknown-elf-gcc", "qemu-system-arm")
@pytest.mark.parametrize("sdk", ["zephyr", "esp", "pico"])
def test_recipes_that_call_edgebuild_in_the_build(sdk: str, tmp_path: Path, bares: Callable[[str], Bare]) -> None:
    """The page's build scripts, with the check of an export as the program: they follow the model, too."""
    bare = bares({"zephyr": ARM, "esp": RISCV, "pico": "m0plus-model"}[sdk])
    app = tmp_path / f"{sdk}_app"
    main_folder = app / {"zephyr": "src", "esp": "main", "pico": "."}[sdk]
    recipe({"esp": "esp_app/main"}.get(sdk, f"{sdk}_app") + "/CMakeLists.txt", tmp_path, bare)
    form = {"zephyr": "zephyr", "esp": "esp-idf", "pico": "pico-sdk"}[sdk]
    source = {"esp": main_folder}.get(sdk, app) / "kws.tflite"
    main_folder.mkdir(exist_ok=True)
    if sdk == "esp":
        begin = "cmake_minimum_required(VERSION 3.20)\ninclude($ENV{IDF_PATH}/tools/cmake/project.cmake)\n"
        (app / "CMakeLists.txt").write_text(f"{begin}project(esp_app)\n")
    if sdk == "zephyr":
        (app / "prj.conf").write_text("")

    def check(kind: type[Tiny]) -> None:
        library = exported(form, tmp_path / "lib", model(source, kind))
        (checked,) = library.rglob("kws_check.h")
        (program,) = library.rglob("main.c")
        for file in (checked, program):
            (main_folder / file.name).write_bytes(file.read_bytes())

    check(Tiny)
    build = cmake(app, tmp_path / "build", bare, EdgeBuild_DIR=str(cmake_dir()), EDGEBUILD_PYTHON=sys.executable)
    for kind in (Tiny, Rolled):
        check(kind)
        build()
        (elf,) = (f for f in (tmp_path / "build").rglob("*") if f.suffix in ("", ".elf") and is_elf(f))
        assert bare.printed(elf) == f"{MODEL}: right\n"
        assert "no work to do" in build()


@pytest.mark.slow
@pytest.mark.needs("make", "arm-none-eabi-gcc", "qemu-system-arm")
def test_recipe_of_a_cubemx_makefile(tmp_path: Path, bares: Callable[[str], Bare]) -> None:
    bare, project = bares(ARM), tmp_path / "my_project"
    rule = recipe("my_project/kws_rule.mk", tmp_path, bare)
    (project / "Core" / "Src").mkdir(parents=True)
    edgebuild_py = f"{sys.executable} -m edgebuild"
    for kind in (Tiny, Rolled):
        model(project / "kws.tflite", kind)
        build = cubemx(project, tmp_path / "build", bare)
        text = (project / "Makefile").read_text()
        (project / "Makefile").write_text(text + rule.replace("edgebuild export", f"{edgebuild_py} export"))
        build()
        assert bare.printed(tmp_path / "build" / "app.elf") == f"{MODEL}: right\n"
        assert "Nothing to be done" in build()


@pytest.mark.slow
def test_recipe_of_platformio(tmp_path: Path, bares: Callable[[str], Bare], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its build is SCons: the script is given `env`."""
    app = tmp_path / "pio_app"
    recipe("pio_app/kws_model.py", tmp_path, bares(ARM))
    model(app / "kws.tflite")
    (app / "SConstruct").write_text(
        'env = Environment(PROJECT_DIR=Dir(".").abspath)\nExport("env")\nSConscript("kws_model.py")\n'
        'print(sorted(str(f) for f in Glob("lib/kws/src/*.c")))\nDefault("SConstruct")\n'
    )
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    assert "kws_weights.c" in run(sys.executable, "-m", "SCons", "-Q", cwd=app)


def test_ports_are_in_the_library(tmp_path: Path) -> None:
    """Of the DMA unit, with the header that both sides include; a target that names none is refused."""
    source = model(tmp_path / "kws.tflite")
    result = edgebuild.compile(source, "mps2-an521", name=MODEL, weights="c", map="auto")
    files = {a.name: a.data for a in Library(result, "cmake", "").artifacts()}
    assert files["src/dma_pl081.c"] == (hal_dir() / "src" / "dma_pl081.c").read_bytes()
    assert "include/eb_dma.h" in files and b"src/dma_pl081.c" in files["CMakeLists.txt"]
    modelled = edgebuild.compile(source, "gap8-model", name=MODEL, weights="c", map="auto")
    with pytest.raises(EdgebuildError, match="names no C for its DMA unit"):
        Library(modelled, "cmake", "").artifacts()


@pytest.mark.needs("gcc")
def test_floats_are_compared_within_a_tolerance(tmp_path: Path) -> None:
    """An element that is off by a hundredth of the largest is wrong, one by a millionth is right."""
    source = ROOT / "sample_projects" / "digits" / "training" / "float.onnx"
    result = edgebuild.compile(source, "host", name=MODEL, weights="c")
    write(Library(result, "cmake", ""), tmp_path / "kws")
    check = tmp_path / "kws" / "sample" / "kws_check.h"
    flags = ["-O0", "-std=c11", f"-I{tmp_path / 'kws' / 'include'}", *(tmp_path / "kws" / "src").glob("*.c"), "-lm"]
    text, (place, value) = check.read_text(), re.findall(r"\{(0), ([-\d.e]+)f\}", check.read_text())[0]
    for factor, right in ((1.0, True), (1 + 1e-6, True), (1 + 0.05, False)):
        check.write_text(text.replace(f"{{{place}, {value}f}}", f"{{{place}, {float(value) * factor:.9g}f}}"))
        run("gcc", tmp_path / "kws" / "sample" / "main.c", *flags, "-o", tmp_path / "app")
        assert run(tmp_path / "app", status=0 if right else 1) == f"{MODEL}: {'right' if right else 'wrong'}\n"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (-128, "-128"),
        (-(1 << 31), "(-2147483647 - 1)"),
        (4294967295, "4294967295u"),
        (-(1 << 63), f"(-{(1 << 63) - 1} - 1)"),
    ],
)
def test_integers_are_literals_of_c(number: int, text: str) -> None:
    assert _literal(number, real=False) == text
