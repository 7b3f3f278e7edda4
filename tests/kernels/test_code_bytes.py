"""Bytes of code: estimates against linked programs, and kernels that give way because their functions take too many."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from edgebuild.base.artifacts import publish
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest, model_request
from edgebuild.base.target import load_target
from edgebuild.model import kernels
from edgebuild.model.clocked import uses_of
from edgebuild.model.compile import compile_model, emit, plan_model
from edgebuild.model.kernels import code_bytes, kernel_of
from edgebuild.model.plan.choose import plan
from edgebuild.model.plan.kernel_selection import MAX_SLOWER
from edgebuild.model.plan.search import Plan, form_of
from edgebuild.model.plan.section import instructions
from edgebuild.model.verify import verify
from tests.graphs import thrown
from tests.kernels.test_gathered import network as wide_network
from tests.kernels.test_pairs import Layers
from tests.kernels.test_processors import NEEDS, preferring
from tests.zoo.builders import ZOO, quantized


def network(name: str, folder: Path) -> Path:
    """One of the zoo, or layers of any shape in a file of TFLite."""
    if name in ZOO:
        file = folder / f"{name}.onnx"
        file.write_bytes(quantized(ZOO[name]()).SerializeToString())
        return file
    layers, file = Layers(int(name)), folder / "layers.tflite"
    for n in range(16):
        (layers.dense if n % 4 == 3 else layers.convolution)()
    file.write_bytes(layers.pack(layers.inputs, layers.outputs))
    return file


def planned(model: Path, target: str, **options: Any) -> Plan:
    return plan_model(model_request(model, "model", target, {"tile": "off", **options}), load_target(target))


def code(choice: Plan) -> int:
    pairs = [pair for s in choice.steps for pair in zip(s.ops, s.forms, strict=True)]
    kernels = [kernel_of(op, choice.graph, form) for op, form in pairs]
    return code_bytes(kernels, choice.graph.arithmetic, choice.cutter.form)


@pytest.mark.one_in(6)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["riscv-virt", "mps2-an386", "mps2-an385"])
@pytest.mark.parametrize("name", ["ds_cnn", "3"])
def test_less_code_for_few_instructions(name: str, target: str, tmp_path: Path) -> None:
    """`balanced` takes no more flash than `speed`, costs at most MAX_SLOWER, and results stay equal."""
    model, chip = network(name, tmp_path), load_target(target)
    sizes = {}
    for optimize in ("speed", "balanced"):
        request = model_request(model, "model", target, {"tile": "off", "optimize": optimize})
        sizes[optimize] = verify(model, chip, compile_model(request))
        assert sizes[optimize]["equal"]
    fast, less = (planned(model, target, optimize=optimize) for optimize in ("speed", "balanced"))
    assert instructions(less.steps) <= (1 + MAX_SLOWER) * instructions(fast.steps) + 1
    assert less.arena_bytes == fast.arena_bytes
    assert less.flash_bytes <= fast.flash_bytes and sizes["balanced"]["flash_bytes"] <= sizes["speed"]["flash_bytes"]
    for choice, size in ((fast, sizes["speed"]), (less, sizes["balanced"])):  # calls and start-up are beside kernels
        assert 0.5 * size["code_bytes"] < code(choice) < 1.1 * size["code_bytes"]


def test_a_decoupled_plan_has_no_more_code_than_another(tmp_path: Path) -> None:
    """Exponentials are computed in both, not read from a table; the op that gathers keeps its kernel."""
    ordinary = planned(network("ds_cnn", tmp_path), "stm32f767")
    first = next(op.outputs[0] for op in ordinary.graph.ops if op.kind == "depthwise_conv2d")
    decoupled = plan(ordinary.graph, ordinary.target, ordinary.request, {first: (4, False)})
    for p in (ordinary, decoupled):
        forms = {op.kind: form for s in p.steps for op, form in zip(s.ops, s.forms, strict=True)}
        assert forms["softmax"].variant == "computed exponentials"
    assert first in decoupled.cutter.decoupled


def test_a_smaller_kernel_may_still_be_decoupled(tmp_path: Path) -> None:
    decided = planned(network("ds_cnn", tmp_path), "stm32f767")
    step = next(s for s in decided.steps if s.ops[0].kind == "conv2d" and len(s.ops) == 1 and
                decided.graph.tensors[s.ops[0].inputs[1]].shape[1:3] == (1, 1))  # fmt: skip
    form = replace(step.forms[0], in_place=False)
    slower = kernel_of(step.ops[0], decided.graph, form).alternatives[0].variant
    small = replace(step, forms=(replace(form, variant=slower),))
    assert [u.kernel.traffic.rounds > 0 for g in (0, 4) for u in uses_of(decided, small, g)] == [False, True]


@pytest.mark.needs(*NEEDS)
def test_one_rounding_is_enough_on_rv32(tmp_path: Path) -> None:
    """ResNet-8 needs the assembly of one rounding only."""
    balanced = planned(network("resnet8", tmp_path), "riscv-virt")
    assert code(balanced) < 0.8 * code(planned(network("resnet8", tmp_path), "riscv-virt", optimize="speed"))


@pytest.mark.one_in(4)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["riscv-virt", "mps2-an385"])
@pytest.mark.parametrize("name", ["ds_cnn", "5"])
def test_kernels_get_smaller_as_far_as_flash_wants_it(name: str, target: str, tmp_path: Path) -> None:
    """Between `balanced` and `size` the limit is kept, by the linked program roughly, and results stay equal."""
    model, chip = network(name, tmp_path), load_target(target)
    ways = {optimize: planned(model, target, optimize=optimize) for optimize in ("balanced", "size")}
    most, least = (choice.flash_bytes for choice in ways.values())
    wide = planned(model, target, flash=str(most))
    assert [s.forms for s in wide.steps] == [s.forms for s in ways["balanced"].steps]
    limit = (most + least) // 2
    request = model_request(model, "model", target, {"tile": "off", "flash": str(limit)})
    choice = plan_model(request, chip)
    assert choice.flash_bytes <= limit < most
    assert instructions(ways["balanced"].steps) <= instructions(choice.steps) <= instructions(ways["size"].steps)
    less = verify(model, chip, compile_model(request))
    more = verify(model, chip, compile_model(replace(request, flash=None)))
    assert less["equal"] and less["flash_bytes"] < more["flash_bytes"]
    assert less["flash_bytes"] <= 1.1 * limit


def test_too_little_flash_is_refused(tmp_path: Path) -> None:
    model = network("ds_cnn", tmp_path)
    with pytest.raises(EdgebuildError, match=r"constants and code take about \d+ B at least, --flash gives 1000 B"):
        planned(model, "riscv-virt", flash="1000")
    with pytest.raises(EdgebuildError, match="not with --map"):
        planned(model, "pulp-cluster", flash="1M", map="layer")


def test_code_that_may_not_fit_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, target, warned = network("ds_cnn", tmp_path), tmp_path / "tight.yaml", []
    rom = json.loads(compile_model(model_request(model, "model", "mps2-an386", {"tile": "off"}))[-1].data)["rom"]
    code, both = rom["estimated_code_bytes"], rom["estimated_code_bytes"] + rom["weights_bytes"]
    beside = f"FLASH: {{size: 1M, roles: [weights]}}\n  CODE: {{origin: 0x200000, size: {code}, roles: [code]}}"
    for memories in (beside, f"FLASH: {{size: {both - 100}}}"):
        target.write_text(f"inherits: mps2-an386\ndescription: little code\nmemories:\n  {memories}\n")
        compile_model(model_request(model, "model", str(target), {"tile": "off"}))
        printed = capsys.readouterr().err
        warned.append("may not fit" in printed)
    assert warned == [False, True]
    message = r"may not fit: code about \d+ B and weights \d+ B, memory FLASH of tight has \d+ B\n.*about 100 B;"
    assert re.search(message, printed)


def unreached(source: Path, target: str) -> set[str]:
    """Functions of C that the compiled code calls from nowhere. Those in assembly stay in the object without a call."""
    tools = load_target(target).toolchain
    command = [tools.compiler, *tools.cflags, "-O2", "-std=c11", "-ffreestanding", "-ffunction-sections", "-c"]
    subprocess.run([*command, source.name, "-o", "model.o"], cwd=source.parent, check=True)
    with (source.parent / "model.o").open("rb") as stream:
        sections = list(ELFFile(stream).iter_sections())
        symbols = next([*s.iter_symbols()] for s in sections if isinstance(s, SymbolTableSection))
        called = {symbol["st_shndx"] for symbol in symbols if symbol["st_info"]["bind"] == "STB_GLOBAL"}
        for section in (s for s in sections if isinstance(s, RelocationSection)):
            if sections[section["sh_info"]].name.startswith(".text"):
                places = {symbols[r["r_info_sym"]]["st_shndx"] for r in section.iter_relocations()}
                called |= places - {section["sh_info"]}
        return {s.name for number, s in enumerate(sections) if s.name.startswith(".text.") and number not in called}


@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.parametrize("target, variant, kinds", [
    ("mps2-an386", "dsp 2 pixels", ("conv2d", "dense")), ("m4-flash-model", "dsp 4 pixels", ("conv2d",)),
    ("mps3-an547", "pixels and channels in registers", ("conv2d", "dense", "batch_matmul")),
])  # fmt: skip
def test_no_function_is_printed_that_nothing_calls(
    target: str, variant: str, kinds: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "by_cost", preferring(variant))
    form, compiled = form_of(load_target(target)), 0
    wide = [wide_network(seed, "conv2d", channels=(1, 4), columns=(4, 5), together=(1,)) for seed in range(24)]
    for graph in map(replace, [*wide, *(g for kind in kinds for g in thrown(kind, 14))]):
        if len(graph.ops) == 1 and kernel_of(graph.ops[0], graph, form).variant == variant:
            artifacts = emit(plan(graph, load_target(target), ModelRequest(Path("m.onnx"), "model", target)), "")
            publish([a for a in artifacts if a.name in ("model.c", "model.h")], tmp_path)
            assert not unreached(tmp_path / "model.c", target), graph.operands(graph.ops[0])
            compiled += 1
    assert compiled
