"""Constants and activations that go by way of the second level: exact in all modes, and what is broken is caught."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.levels import Dma
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import Target, load_target
from edgebuild.cli import main
from edgebuild.model import ops
from edgebuild.model.compile import compile_model
from edgebuild.model.ir import Graph, Op, Quant, Tensor
from edgebuild.model.plan.check.replay import BrokenPlan, replay
from edgebuild.model.plan.dma.assembly import mapped_plan, search_of, stage_plan
from edgebuild.model.plan.dma.prefetch import Staging, StepConstants, first_copies, schedule_stagings
from edgebuild.model.plan.dma.residency import Step
from edgebuild.model.plan.dma.tiles import MappedOp
from edgebuild.model.plan.hierarchy.nest import Channel, Mapped, Move, TiledLayer
from edgebuild.model.plan.memory.problem import DoesNotFit, Place
from edgebuild.model.plan.printed import PARTS, SLOTS, Copy, Operation, Start, Wait
from edgebuild.model.plan.search import Plan, Planner
from edgebuild.model.verify import verify
from tests.conftest import ROOT, by_day
from tests.graphs import examples, random_inputs, small_graphs, tiny_tflite
from tests.hierarchy.test_auto import request
from tests.hierarchy.test_moved import MODES, changed, check, equal_by_mode, transfers, with_cores, with_transfers
from tests.hierarchy.test_run_mutations import convolutions

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
NETWORKS, MANY = len(by_day(range(8))), 60


def in_a_chain(target: Target, near: int = 64 << 10, home: int = 1 << 30, largest: int = 0) -> Target:
    """The target with one DMA unit from ROM to RAM, and one from there to L1."""
    sizes = {"L1": near, "RAM": home}
    memories = tuple(replace(m, size=sizes.get(m.name, m.size)) for m in target.memories)
    units = Dma("io", ("ROM", "RAM"), 2, start_cycles=200, piece_cycles=50, largest=largest, port=target.dma[0].port)
    return replace(target, memories=memories, dma=(replace(target.dma[0], between=("RAM", "L1")), units))


def with_a_third(target: Target) -> Target:
    """The target with activations in ROM as well."""
    rom = next(m for m in target.memories if m.name == "ROM")
    return replace(target, memories=(replace(rom, roles=(*rom.roles, "arena")), *target.memories[1:]))


def chained(graph: Graph, name: str, seed: int) -> Plan:
    """In a second level with room for the arena and little more, or for less beside a third level; by all ways."""
    asked = request(name, ("auto", "layer", "dory")[seed % 3])
    wide = in_a_chain(with_cores(seed), (2 << 10, 16 << 10, 64 << 10)[seed // 3 % 3], largest=(0, 64)[seed % 2])
    peak, third = Planner(graph, wide, asked).untiled_bytes, seed % 5 < 3
    wide = with_a_third(wide) if third else wide
    for size in (*(peak * n // 5 for n in (3, 4) if third), peak + 128, peak + (1 << 10), peak + (1 << 20)):
        chip = in_a_chain(wide, wide.levels[0].size, size, wide.dma[1].largest)
        try:
            return mapped_plan(graph, chip, asked)
        except Exception as refused:  # too little room is said of, and tried again with more
            if "fit" not in str(refused) or size == peak + (1 << 20):
                raise
    raise AssertionError


def staged(p: Plan) -> list[tuple[int, Start]]:
    """Copies of constants to the second level between steps."""
    return [(first, s) for first, s in transfers(p) if s.copy.into]


@pytest.mark.needs("gcc")
def test_networks_through_the_second_level(tmp_path: Path) -> None:
    plans = check(examples(small_graphs(), NETWORKS), tmp_path, chained)
    assert sum(bool(staged(p)) for p in plans) >= NETWORKS // 2
    assert any(first < s.step for p in plans for first, s in staged(p))
    assert sum(any(m.slots for m in p.moves.values() if isinstance(m, MappedOp)) for p in plans) >= NETWORKS // 4


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_many_networks_through_the_second_level(tmp_path: Path) -> None:
    check(examples(small_graphs(), MANY), tmp_path, chained)


def wide_layer() -> Graph:
    """1x1 on 2x3x16 to 64 channels, after an op without constants of its own."""
    rng = np.random.default_rng(1)
    quant = Quant((0.1,), (3,))
    weights = rng.integers(-100, 100, (64, 1, 1, 16)).astype(np.int8)
    tensors = {
        "x": Tensor("x", (1, 2, 3, 16), "int8", quant),
        "w": Tensor("w", weights.shape, "int8", Quant((0.01,), (0,)), weights),
        "y": Tensor("y", (1, 2, 3, 64), "int8", quant),
    }
    attrs = {"stride": (1, 1), "dilation": (1, 1), "pad": (0, 0, 0, 0), "clamp": (None, None)}
    return Graph("conv", (Op("conv2d", "conv", ("x", "w"), ("y",), attrs),), tensors, ("x",), ("y",))


def channels_by_eight(buffers: int) -> Callable[[TiledLayer], Mapped]:
    """Eight tiles of channels."""
    moves = Move("x", 0, 1), Move("weights", 1, buffers), Move("y", 1, buffers)
    return lambda layer: Mapped({**{a: layer.nest.extents[a] for a in layer.axes}, "k": 8}, ("k",), moves)


def in_parts(buffers: int = 2) -> Plan:
    """The layer with a second level that has no room for all of its constants."""
    asked = ModelRequest(Path("x"), "g0", "host", tile="off", map="layer")
    chip = in_a_chain(load_target("host"), home=96 + 384 + 600)
    return mapped_plan(wide_layer(), chip, asked, channels_by_eight(buffers))


def in_slots(buffers: int) -> Plan:
    """The layer with a second level that has no room for its result."""
    asked = ModelRequest(Path("x"), "g0", "host", tile="off", map="layer")
    chip = with_a_third(in_a_chain(load_target("host"), home=700))
    return mapped_plan(wide_layer(), chip, asked, channels_by_eight(buffers))


def feed(folder: Path) -> bytes:
    inputs = random_inputs(wide_layer(), 2, 1)
    (folder / "in.bin").write_bytes(b"".join(x.tobytes() for row in inputs for x in row))
    return b"".join(ops.run(wide_layer(), *row)["y"].tobytes() for row in inputs)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("buffers", [1, 2])
def test_constants_in_parts(buffers: int, tmp_path: Path) -> None:
    """Eight blocks pass through two slots."""
    p = in_parts(buffers)
    (layer,) = (m for m in p.moves.values() if isinstance(m, MappedOp))
    assert len(staged(p)) == SLOTS and sum(c.into for c in layer.copies) == 8 - SLOTS
    assert all(equal_by_mode(p, feed, tmp_path))


def of_layer(change: Callable[[MappedOp], MappedOp]) -> Callable[[Plan], Plan]:
    return lambda p: changed(p, MappedOp, change)


def too_early(layer: MappedOp) -> MappedOp:
    """The next block comes into its slot before the copy out of that is done."""
    script = list[Operation]()
    for o in layer.script:
        at = len(script)
        while isinstance(o, Copy) and o.into and isinstance(script[at - 1], Wait):
            at -= 1
        script.insert(at, o)
    return replace(layer, script=tuple(script))


def over_the_input(p: Plan) -> Plan:
    place = p.places["x"]
    return with_transfers(
        p, lambda t: replace(t, copy=replace(t.copy, near=place.offset)) if isinstance(t, Start) else t
    )


MUTATIONS: dict[str, Callable[[Plan], Plan]] = {
    "nobody waits for what comes in parts": of_layer(
        lambda m: replace(m, script=tuple(o for o in m.script if not isinstance(o, Wait) or o.channel < PARTS))
    ),
    "a slot is filled while it is read": of_layer(too_early),
    "one slot lies over the other": of_layer(
        lambda m: m.with_copies(replace(c, near=c.near - 8) if c.into else c for c in m.copies)
    ),
    "a block comes from the wrong slot": of_layer(
        lambda m: m.with_copies(replace(c, far=c.far + 8) if c.stage and not c.into else c for c in m.copies)
    ),
    "constants come over the input": over_the_input,
    "what stands before the step does not come": lambda p: with_transfers(
        p, lambda t: None if isinstance(t, Wait) else t),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_replay_refuses(name: str) -> None:
    p = MUTATIONS[name](in_parts())
    with pytest.raises(BrokenPlan):
        replay(p.graph, p.steps, p.places, p.target)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_running_program_is_caught(name: str, tmp_path: Path) -> None:
    assert not all(equal_by_mode(MUTATIONS[name](in_parts()), feed, tmp_path))


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("name", [n for n in MUTATIONS if n.startswith(("nobody", "one slot", "a block"))])
def test_replay_refuses_tiles_that_have_not_come(name: str, buffers: int) -> None:
    p = in_slots(buffers)
    (layer,) = (m for m in p.moves.values() if isinstance(m, MappedOp))
    assert layer.slots is not None and layer.slots.bytes == 96 + 48 * buffers
    with pytest.raises(BrokenPlan):
        replay(p.graph, MUTATIONS[name](p).steps, p.places, p.target)


def test_constants_of_a_run_come_as_a_whole() -> None:
    """A run uses the constants of all its ops from its begin, so two of three blocks in slots are too few."""
    chip, nothing = in_a_chain(load_target("host"), home=2 * 576 + 1600), frozenset[str]()
    search = search_of(Planner(convolutions(), chip, request("g0")), 60 << 10)
    fed = search.run(0, 3, nothing, search.room)
    assert fed is not None and [b.data.nbytes for b in fed.blocks] == [648] * 3
    steps = (Step(0, 3, nothing, fed),)
    assert not search.possible(steps) and replace(search, far={"RAM": 2 * 576 + 3 * 648}).possible(steps)
    with pytest.raises(DoesNotFit):
        stage_plan(search, steps, ())


@pytest.mark.slow
def test_no_copy_skips_the_second_level() -> None:
    """Every copy of constants to the first level is out of the second one."""
    for seed, graph in enumerate(examples(small_graphs(), NETWORKS)):
        p = chained(graph, f"g{seed}", seed)
        layers = [m for m in p.moves.values() if isinstance(m, MappedOp)]
        assert all(c.tensor or c.stage == "RAM" for m in layers for c in m.copies)
        assert all(s.copy.stage == "RAM" for _, s in transfers(p))


@pytest.mark.one_in(4)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("method", ["layer", "dory", "auto"])
def test_copies_of_the_running_program_are_those_of_the_report(method: str, tmp_path: Path) -> None:
    (tmp_path / "tiny.tflite").write_bytes(tiny_tflite())
    file = chain_file(tmp_path, "host", "copier: {between: [RAM, L1], channels: 8}", "ROM, RAM")
    asked = ModelRequest(tmp_path / "tiny.tflite", "model", file, map=method)
    artifacts = compile_model(asked)
    report = json.loads(next(a.data for a in artifacts if a.name == "model_report.json"))["hierarchy"]
    rows = [o for row in report["layers"] for o in row["operands"] if (o["from"], o["to"]) == ("ROM", "RAM")]
    assert rows and report["cycles"]["total"] == pytest.approx(sum(row["cycles"] for row in report["layers"]))
    for mode in MODES:
        verdict = verify(asked.source, load_target(file), artifacts, dma=mode)
        assert verdict["equal"] and verdict["dma"] == report["moved"]


def chain_file(folder: Path, base: str, near: str, far: str) -> str:
    units = f"  {near}\n  io: {{between: [{far}], channels: 2, start_cycles: 200}}\n"
    text = f"inherits: {base}\ndescription: c\ndma:\n{units}"
    (folder / "chain.yaml").write_text(text)
    return str(folder / "chain.yaml")


@pytest.mark.one_in(2)
@pytest.mark.needs("riscv64-unknown-elf-gcc", "qemu-system-riscv32")
@pytest.mark.parametrize("method", ["layer", "auto"])
def test_a_cluster_whose_third_level_is_out_of_reach(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten harts in QEMU; the activations lie in L2 beside the constants on their way."""
    near = "cluster: {between: [L2, L1], channels: 8, start_cycles: 50, piece_cycles: 2, port: src/cores_harts.c}"
    chip = chain_file(tmp_path, "pulp-cluster", near, "L3, L2")
    options = ["--target", chip, "--map", method, "--limit", "L1=4K,L2=8K", "--keep", str(tmp_path / "k")]
    assert main(["verify", str(DIGITS), *options, "--json", "-"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    report = json.loads((tmp_path / "k" / "model_report.json").read_text())["hierarchy"]
    ends = {(o["from"], o["to"]) for row in report["layers"] for o in row["operands"] if o["tensor"] == "weights"}
    assert verdict["equal"] and verdict["dma"] == report["moved"] and ends == {("L3", "L2"), ("L2", "L1")}


CHANNEL = Channel(1.0)


def test_constants_come_as_late_as_they_need_not_be_waited_for() -> None:
    """The first has no step before it; the second comes under it; the third wants two steps, and one was used."""
    steps = [StepConstants((n,), n, at, 100.0) for at, n in enumerate((32, 80, 160))]
    stagings = schedule_stagings(steps, [100.0] * 3, [0] * 3, CHANNEL, 1 << 20, "L2")
    assert [(s.first, s.waited) for s in stagings] == [(0, 32.0), (0, 0.0), (0, 40.0)]
    assert [s.first for s in schedule_stagings(steps, [100.0] * 3, [0] * 3, CHANNEL, 1 << 20, "L2", 0)] == [0, 1, 2]


def test_constants_without_room_come_in_parts() -> None:
    """Four blocks in two slots; the two that come while the step runs take longer than that."""
    (staging,) = schedule_stagings([StepConstants((64, 64, 64, 64), 256, 0, 100.0)], [100.0], [16], CHANNEL, 200, "L2")
    assert staging == Staging(0, 0, 0, SLOTS, 128, 128.0 + 28.0)
    with pytest.raises(DoesNotFit):
        schedule_stagings([StepConstants((64, 64, 64, 64), 256, 0, 100.0)], [100.0], [16], CHANNEL, 140, "L2")


def test_constants_find_room_beside_all_that_is_live() -> None:
    """While they come, and from then to the end of their step."""
    rng, moved = np.random.default_rng(1), 0
    for _ in range(400):
        count = int(rng.integers(2, 9))
        live = [int(n) for n in 8 * rng.integers(0, 40, count)]
        steps: list[StepConstants | None] = []
        for at in range(count):
            blocks = tuple(int(n) for n in rng.integers(1, 90, rng.integers(1, 6)))
            wish = StepConstants(blocks, sum(blocks), max(0, at - int(rng.integers(0, 4))), float(rng.integers(1, 200)))
            steps.append(wish if rng.integers(3) else None)
        room = max(live) + int(rng.integers(100, 600))
        try:
            stagings = schedule_stagings(
                steps, [float(n) for n in rng.integers(1, 200, count)], live, CHANNEL, room, "L2"
            )
        except DoesNotFit:
            continue
        moved += len(stagings)
        for s in stagings:
            assert s.first <= s.until <= s.step
            live = [n + s.bytes * (s.first <= at <= s.step) for at, n in enumerate(live)]
        assert max(live) <= room
    assert moved > 400


def test_a_copy_is_at_most_as_large_as_the_unit_does() -> None:
    p = in_parts()
    layer = next(m for m in p.moves.values() if isinstance(m, MappedOp))
    staging, place = Staging(0, 0, 0, 0, 2000, 5.0), Place("RAM", 0)
    whole = [f.start for f in first_copies(staging, layer.blocks, place, Channel(1.0, largest=100), 3)]
    copies, size = [s.copy for s in whole], whole[0].block.data.nbytes
    assert [c.far for c in copies] == list(range(0, size, 100))
    assert sum(c.bytes for c in copies) == size and max(c.bytes for c in copies) == 100
    assert sum(s.waited for s in whole) == 5.0 and all(c.channel < PARTS for c in copies)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", ["layer", "dory", "auto"])
def test_gap8_has_generated_code(method: str, tmp_path: Path) -> None:
    artifacts = compile_model(ModelRequest(DIGITS, "digits", "gap8", map=method, limit=(("L1", 8 << 10),)))
    source = next(a.data for a in artifacts if a.name == "digits.c").decode()
    assert "_STAGE)" in source


@pytest.mark.one_in(2)
@pytest.mark.needs("riscv64-unknown-elf-gcc", "gcc")
@pytest.mark.parametrize(
    ("method", "limit", "most", "levels"),
    [("auto", "L1=8K", 100_000, {"L1", "L2"}), ("layer", "L1=2K,L2=2K", 300_000, {"L2", "L3"})],
)
def test_a_cluster_of_gap8(
    method: str, limit: str, most: int, levels: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight cores of the simulator, with the event unit, MCHAN and the uDMA; activations also in HyperRAM."""
    options = ["--target", "gap8", "--map", method, "--limit", limit, "--keep", str(tmp_path / "k"), "--json", "-"]
    assert main(["verify", str(DIGITS), *options]) == 0
    verdict = json.loads(capsys.readouterr().out)
    report = json.loads((tmp_path / "k" / "model_report.json").read_text())["hierarchy"]
    assert verdict["equal"] and 0 < verdict["cycles"] < most and verdict["dma"] == report["moved"]
    assert {row["level"] for row in report["residency"]} == levels


def test_weights_that_no_core_reaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", str(DIGITS), "--name", "n", "--target", "gap8"]) == 1
    text = capsys.readouterr().err
    assert "gap8.yaml" in text and "weights lie in L3" in text and "--map auto" in text


@pytest.mark.one_in(3)
@pytest.mark.parametrize("method", ["layer", "dory", "auto"])
def test_a_second_level_without_room(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The memory, how much there is, and a remedy."""
    options = ["--target", "gap8", "--map", method, "--limit", "L2=256", "-o", str(tmp_path)]
    assert main(["model", str(DIGITS), "--name", "n", *options]) == 1
    text = capsys.readouterr().err
    assert "digits.onnx" in text and "fit" in text and "L2" in text
