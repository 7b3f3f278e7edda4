"""Hostile names through every product: each is read by the program that it is for, and says what it says of a, b, c.

Names come from a grammar of what has a meaning in some language: ends of comments, quotes, line ends, trigraphs,
directives, variables of make and CMake, markup, escapes of terminals, marks of direction.
"""

from __future__ import annotations

import json
import re
import subprocess
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import numpy as np
import onnx
import yaml
from onnx import helper, numpy_helper

from edgebuild.base.artifacts import Artifact, publish
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ClockRequest, DriverRequest, model_request
from edgebuild.base.target import firmware_support, hal_dir, link_flags, load_target
from edgebuild.base.text import is_xml, visible
from edgebuild.clock.emit import clock_files, requested_plan
from edgebuild.driver.pipeline import compile_driver, template
from edgebuild.driver.registers.regmap import read_rdl
from edgebuild.driver.registers.svd import read_svd
from edgebuild.model.cluster.products import ClusterRequest, build_cluster
from edgebuild.model.compile import compile_model, inspect_plan
from edgebuild.model.emit.pictures import timeline_picture

# Each atom means something to one of the languages that names are printed in.
ATOMS = (
    "*/", "/*", "*\\", "*\\/", "/", "*", "\\", "\\\n", "??/", "??/\n", "?", "//", '"', "'", "\n", "\r", "\t", "\r\n",
    "\v", "\f", "\x01", "\x1b[31m", "\x1b]0;t\x07", "\x7f", "\x85", "\x9b2J", "\u2028", "\u2029", "\u202e", "\u2066",
    "\u200b", "\ufeff", "\ufffe", "#include <x.h>", "\n#error e\n", "#define int", "_Pragma(\"x\")", "EB_STEP", "int",
    "%:", "<:", "${CMAKE_C_FLAGS}", "$(shell id)", "$<1:x>", "$", "$$", ";", ":", "=", "&", "<", ">", "<script>",
    "&lt;", "&#0;", "]]>", "<!--", "--", "-->", "<?xml?>", "{{ 7 }}", "{% raw %}", "{#", "%s", "%n", "{0}", "\\u202e",
    "\\x41", "\\E}(__attribute__((constructor))p)(void){__builtin_trap();}enum{", "INCLUDE x.ld", "ASSERT(0, \"\")",
    ".incbin \"x\"", "@", "`id`", "|", "a", "A", "b", "0", "9", " ", "  ", ".", "-", "_", "é", "漢字", "ש", "\u0301",
    "\U0001f600", "\U000e0041", "x" * 200,
)  # fmt: skip


def names(seed: int) -> Iterator[str]:
    """Different names without end."""
    random, used = Random(seed), set[str]()
    while True:
        name = "".join(random.choices(ATOMS, k=random.choice((1, 2, 2, 3, 3, 4, 6, 12))))
        if visible(name) not in used:  # two tensors of such names are refused
            used.add(visible(name))
            yield name


def plain() -> Iterator[str]:
    """Names that mean nothing."""
    return (f"n{number}" for number in range(1 << 30))


@dataclass(frozen=True)
class Form:
    """A way to compile, of chains of so many ops."""

    target: str
    ops: int
    options: Mapping[str, Any]

    @property
    def names(self) -> int:
        """Of the ops, of their results and of the input."""
        return 2 * self.ops + 1


FORMS = {
    "whole": Form("host", 100, {"tile": "off"}),
    "rows": Form("mps2-an386", 24, {"tile": "rolling"}),
    "moved": Form("pulp-cluster", 4, {"map": "auto"}),
    "fed": Form("mps2-an521", 6, {"map": "auto"}),
    "clocks": Form("stm32f767", 6, {"objective": "energy", "qos": 50.0}),
}


def model(words: Iterator[str], ops: int, ports: int = 1) -> onnx.ModelProto:
    """A chain of ops on an image, whose names are the next words; `ports`: inputs, of which all but one are added."""
    rng = np.random.default_rng(1)
    weights = numpy_helper.from_array(rng.normal(size=(4, 4, 3, 3)).astype(np.float32), "weights of all")
    inputs = [next(words) for _ in range(ports)]
    x, nodes = inputs[0], []
    for number in range(ops):
        y, own = next(words), next(words)
        if number % 4 == 0:
            nodes.append(helper.make_node("Conv", [x, weights.name], [y], own, pads=[1] * 4))
        elif number % 4 == 1 and number // 4 + 1 < ports:
            nodes.append(helper.make_node("Add", [x, inputs[number // 4 + 1]], [y], own))
        else:
            nodes.append(helper.make_node(("Abs", "Tanh", "Sigmoid")[number % 4 - 1], [x], [y], own))
        x = y
    surfaces = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (1, 4, 8, 8)) for n in (*inputs, x)]
    graph = helper.make_graph(nodes, "g", surfaces[:-1], surfaces[-1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def file_name(words: Iterator[str], suffix: str) -> str:
    """A name that a file can have."""
    fits = (w.replace("/", "").replace("\0", "") for w in words)
    return next(w for w in fits if 0 < len(w.encode()) < 200 and "\udc80" not in w) + suffix


@dataclass(frozen=True)
class Seen:
    """Contents of the products as programs read them: the same for all names that are as many."""

    tokens: dict[str, str]
    objects: dict[str, bytes]
    shapes: dict[str, Any]


def compiled(words: Iterator[str], folder: Path, form: Form, ports: int = 1) -> Seen:
    """Compile a model of these names; read its products. Raises AssertionError for what cannot be read."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / file_name(words, ".onnx")
    onnx.save(model(words, form.ops, ports), str(file))
    request = model_request(file, "net", form.target, form.options)
    text, *pictures, _ = inspect_plan(request, tiling=True, energy="qos" in form.options)
    artifacts = compile_model(request)
    file.unlink()
    publish(artifacts, folder)
    drawn = [Artifact(f"{n}.svg", picture.encode()) for n, picture in enumerate(pictures)]
    seen = Seen(*sources(folder, form, artifacts), shapes_of([*artifacts, *drawn]))
    assert shown(text)
    return seen


def shown(text: str) -> bool:
    """Whether lines have nothing that steers a terminal or a reader's eye."""
    return all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text if c not in "\n\t")


def sources(folder: Path, form: Form, artifacts: Sequence[Artifact]) -> tuple[dict[str, str], dict[str, bytes]]:
    """Tokens of the C as the preprocessor has them, and objects of the assembler and of the linker."""
    target = load_target(form.target)
    c = [target.toolchain.compiler, *target.toolchain.cflags, "-I", str(hal_dir() / "include")]
    warn = ["-std=c11", "-trigraphs", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I."]
    tokens, objects = {}, dict[str, bytes]()
    if clocked := form.options.get("objective") == "energy":
        publish(clock_files(requested_plan(ClockRequest("clocks", form.target))), folder)
    warn += ["-DEDGEBUILD_CLOCKS"] if clocked else []
    for name in ("net.c", "net.h", "net_clock.h", "net_weights.c"):
        text = tool([*c, *warn, "-E", "-P", "-x", "c", name], folder)
        tokens[name] = " ".join(text.split())
    tool([*c, *warn, "-fsyntax-only", "net.c"], folder)
    tool([*c, "-c", "-x", "assembler", "net_weights.S", "-o", "weights.o"], folder)
    objects["weights.o"] = (folder / "weights.o").read_bytes()
    if target.firmware:
        (folder / "start.c").write_text("void Reset_Handler(void);\nvoid Reset_Handler(void) {}\n")
        publish(firmware_support(target), folder)
        flags = link_flags(target, ("net_memory.ld",))
        flags += ("-nostdlib", "-s", "-Wl,--unresolved-symbols=ignore-all")
        tool([*c, *flags, "start.c", "weights.o", "net_check.ld", "-o", "elf"], folder)
        objects["elf"] = (folder / "elf").read_bytes()
    return tokens, objects


def tool(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[:2000]}"
    return done.stdout


def shapes_of(artifacts: Sequence[Artifact]) -> dict[str, Any]:
    """JSON and pictures without their texts. JSON is ASCII, so that no reader meets half a character."""
    shapes = dict[str, Any]()
    for a in artifacts:
        if a.name.endswith(".json"):
            assert a.data.isascii()
            shapes[a.name] = shape_of(json.loads(a.data))
        elif a.name.endswith((".svg",)):
            root = ElementTree.fromstring(a.data)
            shapes[a.name] = [(e.tag, sorted(e.attrib)) for e in root.iter()]
    return shapes


def shape_of(value: Any) -> Any:
    """JSON without the texts, whose lengths differ."""
    if isinstance(value, dict):
        return {key: shape_of(inner) for key, inner in value.items()}
    return [shape_of(inner) for inner in value] if isinstance(value, list) else type(value).__name__


def different(seen: Seen, expected: Seen, ports: int = 1) -> str:
    """Say what is not as it is with plain names. With several ports functions and macros have their names."""
    for name, tokens in seen.tokens.items():
        if ports == 1 and tokens != expected.tokens[name]:
            return f"{name} has other tokens"
        if ports > 1 and len(tokens.split()) != len(expected.tokens[name].split()):
            return f"{name} has more or fewer tokens"
    if seen.objects != expected.objects:
        return "objects differ: " + ", ".join(n for n in seen.objects if seen.objects[n] != expected.objects[n])
    wrong = [n for n, shape in seen.shapes.items() if shape != expected.shapes[n]]
    return f"another form: {', '.join(wrong)}" if wrong else ""


def cluster(words: Iterator[str], folder: Path) -> Seen:
    """The products of two devices, whose names are hostile too, as far as a cluster file takes them."""
    folder.mkdir(parents=True, exist_ok=True)
    file, description = folder / "m.onnx", folder / "cluster.yaml"
    onnx.save(model(words, 4), str(file))
    own = list(islice((w for w in words if w.isprintable()), 2))
    rows = [{"name": w, "target": "host", "flash": 400, "ram": "64K", "share": 1.0} for w in own]
    facts = {"devices": rows, "source": own[0], "medium": {"kind": "switch", "bits_per_s": 1e9}}
    description.write_text(yaml.safe_dump(facts, allow_unicode=True), encoding="utf-8")
    built = build_cluster(ClusterRequest(file, description, "net"))
    publish(built.artifacts, folder)
    drawn = [built.timeline and timeline_picture(built.timeline, own, 1.0, own[0]).svg()]
    pictures = [Artifact("timeline.svg", text.encode()) for text in drawn if text]
    tokens = {}
    for name in ("net_cluster.h", *(a.name for a in built.artifacts if a.name.endswith((".c", ".h")))):
        text = tool([*WARN, "-I", str(hal_dir() / "include"), "-E", "-P", "-x", "c", name], folder)
        text = re.sub(r"NET_DEVICE_\w+", "NET_DEVICE", re.sub(r"0x[0-9a-f]{8}u", "HASH", text))
        tokens[name] = " ".join(text.split())
    return Seen(tokens, {}, shapes_of([*built.artifacts, *pictures]))


WARN = ("gcc", "-std=c11", "-trigraphs", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I.")
DRIVER = """\
bfGroup P { bit A; bit B; }; bfGroup S { bfGroup P R; }; make_device(S, s, 0x40000000);
void set(void) { s->R.A = 1; s->R.B = 1; }
"""
FIELDS = 20  # besides those of the source


def driver(words: Iterator[str], folder: Path) -> Seen:
    """The products of a driver on a register description of these names."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "d.bf.c").write_text(DRIVER)
    used = set[str]()

    def name(stem: str = "") -> str:
        """One that XML can hold. Names of the source's registers and fields have no other letters or digits."""
        for word in words:
            word = "".join(c for c in word if is_xml(c) and not (stem and c.isalnum()))
            word = " ".join(f"{word[:1]}{stem}{word[1:]}".split())
            means = re.sub("[^A-Z0-9]", "", word.upper())  # to whoever looks for a field of the source
            if word and word not in used and "%s" not in word and (stem or means not in ("A", "B", "RA", "RB")):
                used.add(word)
                return escape(word)
        raise StopIteration

    def field(word: str, lsb: int) -> str:
        values = "".join(f"<enumeratedValue><name>{name()}</name><value>{v}</value></enumeratedValue>" for v in (0, 1))
        inside = f"<bitOffset>{lsb}</bitOffset><bitWidth>1</bitWidth><enumeratedValues>{values}</enumeratedValues>"
        return f"<field><name>{word}</name><description>{name()}</description>{inside}</field>"

    def register(word: str, offset: int, fields: Sequence[str]) -> str:
        inside = f"<addressOffset>{offset}</addressOffset><fields>{''.join(fields)}</fields>"
        return f"<register><name>{word}</name>{inside}</register>"

    own = [field(name("A"), 0), field(name("B"), 1), *(field(name(), lsb) for lsb in range(2, 2 + FIELDS))]
    rows = [register(name("R"), 0, own), register(name(), 4, [field(name(), 0)])]
    block = f"<name>{name()}</name><baseAddress>0x40000000</baseAddress><registers>{''.join(rows)}</registers>"
    text = f"<device><name>{name()}</name><peripherals><peripheral>{block}</peripheral></peripherals></device>"
    (folder / "chip.svd").write_text(text, encoding="utf-8")
    request = DriverRequest((folder / "d.bf.c",), "d", "riscv-virt", layout=f"fixed:{folder / 'chip.svd'}")
    assert set(yaml.safe_load(template(request))) == {"fields"}
    artifacts, _ = compile_driver(request)
    publish(artifacts, folder)
    data = {a.name: a.data.decode() for a in artifacts}
    assert shown(data["d_report.txt"])
    tool([*WARN, "-fsyntax-only", "-Wno-unused-function", "d.c"], folder)
    tool(["g++", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "d_systemc.h"], folder)
    counts = {
        "svd": [len(b.registers) for b in read_svd(folder / "d.svd").blocks],
        "rdl": [len(b.registers) for b in read_rdl(folder / "d.rdl").blocks],
    }
    tokens = {n: " ".join(tool([*WARN, "-E", "-P", "-x", "c", n], folder).split()) for n in ("d.c", "d_regs.h")}
    return Seen(tokens, {}, shapes_of(artifacts) | counts)


@dataclass(frozen=True)
class Use:
    """A use of names. `names`: of a model or a description; `ports`: inputs of a model."""

    run: Callable[[Iterator[str], Path], Seen]
    names: int
    ports: int = 1


PORTS = Form("host", 24, {"tile": "off"})
USES = {
    **{name: Use(partial(compiled, form=form), form.names) for name, form in FORMS.items()},
    "ports": Use(partial(compiled, form=PORTS, ports=6), PORTS.names + 5, 6),
    "cluster": Use(cluster, 11),
    "driver": Use(driver, 4 * FIELDS),
}


def problems(kind: str, seeds: Sequence[int], folder: Path) -> Iterator[tuple[int, str]]:
    """Seeds, and what was not read as it is with plain names."""
    use = USES[kind]
    expected = use.run(plain(), folder / kind)
    for seed in seeds:
        try:
            wrong = different(use.run(names(seed), folder / kind), expected, use.ports)
        except (AssertionError, EdgebuildError, ValueError, ElementTree.ParseError) as error:
            wrong = str(error)
        if wrong:
            yield seed, wrong
