"""Rooms of the house: their files, and the tests that bear on them, those that notice most in a second first.

A fault's tests are those that name its file, then those of its room. `tests/mutants/test_mutants.py` checks that each
file of the package lies in a room and that each test is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath

from edgebuild.model import ops
from tests.conftest import ROOT

MAX_NAMING = 6  # tests: many import the registry or the compiler, and say little of it
PLAIN_WORDS = 4  # letters of names that occur in any text
COMMON_NAMES = ("helpers", "assembly", "report", "model", "harness", "shared", "check", "options", "cache", "target",
                "select", "program", "names", "layers", "result", "values", "problem", "storage", "matrix", "hidden",
                "compare", "memory", "access", "products", "weights", "counter", "order", "search")  # fmt: skip


@dataclass(frozen=True)
class Room:
    """`files`: patterns of paths; `tests`: files or single tests, in the order in which they run.

    `keyed`: tests whose cases have the names of kinds; those of the kinds in the fault's file run first.
    """

    files: tuple[str, ...]
    tests: tuple[str, ...]
    keyed: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    c: bool = False  # in the strings of its Python


def _in(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names)


WHOLE = _in("fuzz", "fuzz", "planted")  # random networks in all forms and ways


def _on(test: str, *targets: str) -> tuple[str, ...]:
    return tuple(f"tests/kernels/test_{test}[{target}]" for target in targets)


FIRST = _in("kernels", "candidates", "templates")
ALL_KERNELS = _in("kernels", "processors", "vectors", "gathered", "pairs", "lines", "floats", "winograd", "factors",
                  "curves", "exponentials", "dae", "cmsis_nn", "code_bytes", "estimates", "modes", "purity",
                  "backtrace")  # fmt: skip
DSP = (*FIRST, *_on("processors.py::test_single_ops", "mps2-an386"),
       *_in("kernels", "lines", "factors", "gathered", "winograd", "curves"), *ALL_KERNELS)  # fmt: skip
MVE = (*FIRST, *_in("kernels", "vectors"), "tests/kernels/test_gathered.py::test_vectors", *_in("kernels", "curves"),
       *_on("processors.py::test_single_ops", "mps3-an547"), *ALL_KERNELS)  # fmt: skip
BLOCKS = (*FIRST, *_on("processors.py::test_single_ops", "riscv-virt", "mps2-an385"),
          "tests/kernels/test_processors.py::test_the_smallest_processor", *_in("kernels", "floats", "pairs"),
          "tests/kernels/test_gathered.py::test_without_vectors", *ALL_KERNELS)  # fmt: skip
OPERATORS = _in("ops", "wrapping", "functions", "table", "special", "every_operator", "long_sums", "host", "tflm")
NODE_TESTS = "tests/ops/test_every_operator.py::test_node_tests_of_the_standard"
IMPORTED = (NODE_TESTS, *_in(
    "importers", "signatures", "composed", "fused", "ml", "control", "parameters", "absurd", "cells", "places",
    "computed", "spectra", "windows", "layer_models", "tflm_models", "detection", "trees", "biases", "fields", "resize",
    "svm", "types", "dynamic", "spreads", "opsets", "quantised", "channels_last", "state", "int4", "loops", "attention",
    "lstm", "signal", "infinities", "grid", "onnx", "stored", "disagree", "normalise", "forms", "fuzz"))  # fmt: skip
DRIVERS = _in("drivers", "layout", "small_merges", "cases", "random", "registers", "svd", "macros", "places", "ordered",
              "numbers", "stm32",
              "interrupts", "cpp", "whole", "cfg", "products", "header", "wide", "extend", "command", "sample",
              "held_exact", "held_out", "vendor", "rebuilds", "silicon", "peakrdl", "mock")  # fmt: skip
PROOFS = _in("drivers", "proof", "proof_writes", "proof_reads", "proof_classes", "proof_jumps", "proof_objects",
             "proof_reals", "proof_cpp", "versions", "adopt")  # fmt: skip
ROLLED = _in("rolling", "networks", "newest", "overlaid", "in_place", "choices", "search", "rolling", "planted")
PLANNED = (*_in("memory", "pareto", "schedule", "layout"), *_in("tiling", "baselines", "strips", "exploration",
           "parts"), *_in("emit", "golden"), *ROLLED, *_in("passes", "plans"))  # fmt: skip
LEVELS = _in("hierarchy", "parts", "shares", "mutations", "run_mutations", "search", "units", "moved", "staging",
             "level_energy", "auto", "caches", "mdma", "engines", "sweep", "bad_inputs", "targets")  # fmt: skip
CLUSTERS = _in("distribute", "paths", "cut", "wrong", "times", "plans", "report", "products", "links", "restarts",
               "relay")  # fmt: skip
CLOCKS = _in("clocks", "clock_calibrate", "clock_picture", "clock_tree", "clock_configs", "clock_command",
             "clock_profile", "clock_cost", "clock_select", "energy", "clock_sequences")  # fmt: skip
VERIFIED = _in("firmware", "oracles", "stepwise", "given_inputs", "verify", "layers", "cycles", "flash", "caller",
               "tune", "killed")  # fmt: skip
DOORS = _in("doors", "request", "stamp", "cache", "compiled_templates", "make", "cmake", "scons", "builds", "shapes",
            "scons_shapes", "export", "python", "linker_scripts", "editors", "clock_door", "cluster_door",
            "install")  # fmt: skip
EMITTED = (*_in("emit", "width", "golden", "names", "compilers"), *_in("firmware", "hal"))
FAILURES = _in("fail", "cases", "messages", "machine")

ROOMS: dict[str, Room] = {
    "operators": Room(
        ("edgebuild/model/ops/*.py", "edgebuild/model/ir/*.py"),
        (*OPERATORS, *_in("passes", "canonicalize"), *_in("tiling", "parts"), *IMPORTED, *WHOLE),
        keyed=_in("ops", "host", "tflm"),
        c=True,
    ),
    "operators in C": Room(
        ("edgebuild/model/ops/*.c.j2",), (*OPERATORS, *_in("kernels", "curves"), *IMPORTED, *WHOLE),
        keyed=_in("ops", "host"),
    ),
    "kernels of ARM DSP": Room(
        ("edgebuild/model/kernels/arm_dsp/**/*.py", "edgebuild/model/kernels/arm_dsp/**/*.j2"), (*DSP, *WHOLE), c=True
    ),
    "kernels of ARM MVE": Room(
        ("edgebuild/model/kernels/arm_mve/**/*.py", "edgebuild/model/kernels/arm_mve/**/*.j2"), (*MVE, *WHOLE), c=True
    ),
    "other kernels": Room(
        ("edgebuild/model/kernels/**/*.py", "edgebuild/model/kernels/**/*.j2", "edgebuild/model/explain.py"),
        (*BLOCKS, *WHOLE),
        without=("*/arm_dsp/*", "*/arm_mve/*"),
        c=True,
    ),
    "planner": Room(
        ("edgebuild/model/plan/*.py", "edgebuild/model/plan/memory/*.py", "edgebuild/model/plan/tiling/*.py",
         "edgebuild/model/choices.py", "edgebuild/model/compile.py"),
        (*PLANNED, *FAILURES, *WHOLE),
    ),
    "memory levels": Room(
        ("edgebuild/model/plan/dma/*.py", "edgebuild/model/plan/hierarchy/*.py", "edgebuild/model/plan/check/*.py",
         "edgebuild/model/plan/printed/*.py",
         "edgebuild/model/mapping.py"),
        (*_in("rolling", "planted"), *LEVELS, *WHOLE),
    ),
    "clusters": Room(("edgebuild/model/plan/distribute/*.py", "edgebuild/model/cluster/*.py"), CLUSTERS),
    "groups": Room(
        ("edgebuild/model/group*.py",),
        (*_in("groups", "shared_arena"), *_in("doors", "group_door")),
    ),
    "merge": Room(("edgebuild/driver/merge/*.py",), (*DRIVERS, *PROOFS)),
    "drivers": Room(
        ("edgebuild/driver/**/*.py", "edgebuild/driver/templates/*.j2"), (*DRIVERS, *PROOFS),
        without=("*/merge/*", "*/prove/*"), c=True,
    ),
    "proofs": Room(("edgebuild/driver/prove/*.py",), PROOFS),
    "emitter": Room(
        ("edgebuild/model/emit/*.py", "edgebuild/model/emit/templates/*.j2"),
        (*EMITTED, *ROLLED, *LEVELS, *WHOLE, *_in("docs", "report")),
        without=("*.svg.j2",),
        c=True,
    ),
    "views": Room(
        ("edgebuild/model/fitting.py", "edgebuild/model/program_size.py", "edgebuild/model/views/*.py"),
        _in("fit", "views", "fit"),
    ),
    "importers": Room(
        ("edgebuild/model/formats/**/*.py", "edgebuild/model/supported.py"), (*IMPORTED, *FAILURES, *WHOLE)
    ),
    "passes": Room(
        ("edgebuild/model/passes/**/*.py",),
        (*_in("passes", "patterns", "constants", "intervals_of_scalars", "canonicalize", "plans"), *IMPORTED, *WHOLE),
    ),
    "verify": Room(
        ("edgebuild/model/verify/*.py",), (*VERIFIED, *CLUSTERS, *_in("kernels", "peers"))
    ),
    "quantiser": Room(("edgebuild/model/quantizer/*.py",), _in("quantizer", "quantize")),
    "clocks": Room(
        ("edgebuild/clock/**/*.py", "edgebuild/clock/**/*.[ch].j2", "edgebuild/model/energy/*.py",
         "edgebuild/model/clocked.py"),
        CLOCKS,
        c=True,
    ),
    "hal": Room(
        ("hal/src/*.c", "hal/harness/*.[ch]", "hal/include/*.h", "hal/startup/*.[cS]", "hal/accelerators/*/*.c"),
        (*_in("firmware", "hal", "verify", "layers", "flash"), *_in("distribute", "links", "products", "restarts"),
         *_in("hierarchy", "mutations", "mdma", "targets", "caches", "engines", "accelerators"),
         *_in("drivers", "header", "cases"), *_in("clocks", "clock_profile")),
    ),
    "base": Room(
        ("edgebuild/base/*.py", "edgebuild/build/**/*.py", "edgebuild/build/forms/**/*.j2", "edgebuild/cli/*.py",
         "edgebuild/*.py",
         "edgebuild/model/__init__.py", "edgebuild/model/interface_of.py", "edgebuild/model/surface.py"),
        (*_in("target", "target"), *DOORS, *FAILURES, *_in("docs", "commands", "report"), *EMITTED),
    ),
}  # fmt: skip


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(path, p) for p in patterns)


def files(room: Room) -> list[str]:
    """Paths from the checkout on."""
    paths = {f.relative_to(ROOT).as_posix() for pattern in room.files for f in ROOT.glob(pattern)}
    return sorted(p for p in paths if not _matches(p, room.without) and "__pycache__" not in p)


@cache
def texts() -> dict[str, str]:
    """Of all files of tests, the shortest first."""
    paths = sorted((ROOT / "tests").glob("*/test_*.py"), key=lambda p: (p.stat().st_size, p))
    return {p.relative_to(ROOT).as_posix(): p.read_text() for p in paths if p.parent.name not in ("mutants", "house")}


def naming(file: str, function: str) -> Iterator[str]:
    """Tests that say the name of this function, import this module, or say the name of this file of C."""
    path = PurePosixPath(file)
    stem = path.name.partition(".")[0]
    reader = re.fullmatch(r"from_(?:onnx|tflite)_(\w+)", function)
    patterns = [rf"\b{function}\b"] if len(function) > PLAIN_WORDS and function not in COMMON_NAMES else []
    if reader:  # of an operator, whose name tests write in their files
        patterns = [rf"(?i)\"{reader[1].replace('_', '_?')}\""]
    if path.parent.name == "cli":
        patterns += [rf"\"{stem}\""]
    if path.suffix == ".py":
        module = ".".join((*path.parts[:-1], stem)) if stem != "__init__" else ".".join(path.parts[:-1])
        above, _, last = module.rpartition(".")
        patterns += [rf"(?:from|import) {re.escape(module)}\b(?!\.)|from {re.escape(above)} import [^\n]*\b{last}\b"]
    elif len(stem) > PLAIN_WORDS and stem not in COMMON_NAMES:
        patterns += [rf"\b{stem}\b"]
    for pattern in patterns:
        names = [test for test, text in texts().items() if re.search(pattern, text)]
        yield from names if len(names) <= MAX_NAMING else ()


def tests_of(room: Room, file: str, function: str) -> list[str]:
    """In the order in which they run."""
    return list(dict.fromkeys((*naming(file, function), *room.tests)))


def keyword(file: str) -> str:
    """For `pytest -k`: the kinds of the ops in this file or in the Python beside it, else the file's name."""
    stem = Path(file).name.partition(".")[0]
    room = getattr(ops, stem, None)
    return " or ".join(spec.kind for spec in ops.specs(room)) if room in ops.ROOMS else stem
