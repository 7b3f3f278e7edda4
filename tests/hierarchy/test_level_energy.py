"""Energies of memory levels, DMA units, cores and engines: what is read, the least energy, and what is printed."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.target import load_target
from edgebuild.cli import main
from edgebuild.model.plan.dma.levels import channel_to, hop_pj
from edgebuild.model.plan.hierarchy.mapper import NoMapping, best, best_of
from edgebuild.model.plan.hierarchy.nest import Mapped, Move, OperandCost, Power, TiledLayer, cost, read_layers
from tests.conftest import ROOT
from tests.hierarchy.layers27 import BEST, FILE, layers
from tests.hierarchy.test_search import naive, some_layer, together, used

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"

# Powers of two, so that sums are exact.
ENERGIES = """inherits: gap8-model
description: levels with energies
memories:
  L1: {energy: {read_pj: 0.5, write_pj: 0.25, source: a}}
  RAM: {energy: {read_pj: 2, write_pj: 4, source: a}}
  ROM: {energy: {read_pj: 32, write_pj: 64, source: a}}
dma:
  copier: {energy: {byte_pj: 0.125, source: a}}
  io: {energy: {byte_pj: 1, source: a}}
core: {energy: {mac_pj: 1, busy_pj: 2, idle_pj: 0.5, source: a}}
"""


def chip(folder: Path, text: str = ENERGIES) -> str:
    file = folder / "chip.yaml"
    file.write_text(text)
    return str(file)


def priced(layer: TiledLayer, r: random.Random, least: bool) -> TiledLayer:
    """With random energies: of what computes, and of a byte of each operand on its way."""
    fetch, store = r.choice((0.0, 1.5, 40.0)), r.choice((0.0, 2.5, 9.0))
    operands = [replace(o, channel=replace(o.channel, fetch_pj=fetch, store_pj=store)) for o in layer.operands]
    operands[1] = replace(operands[1], channel=replace(operands[1].channel, fetch_pj=r.choice((0.1, 7.0))))
    power = Power(r.choice((0.0, 100.0)), r.choice((0.0, 2.0)), r.choice((0.0, 0.5, 3.0)), least)
    return replace(layer, operands=tuple(operands), power=power)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("seed", range(200))
def test_no_mapping_takes_less_energy(seed: int) -> None:
    """Every tile size, order, depth and number of buffers, its energy summed here."""
    layer, room = some_layer(seed)
    layer = priced(layer, random.Random(seed), least=True)
    power, operands = layer.power, layer.operands
    assert power is not None

    def energy(compute: float, calls: int, moved: list[OperandCost], buffers: tuple[int, ...]) -> float:
        waiting = together(compute, calls, moved, buffers) - compute
        channels = (o.channel for o in operands)
        bytes_pj = [c.store_pj if o.name == "O" else c.fetch_pj for o, c in zip(operands, channels, strict=True)]
        copied = sum(m.bytes * pj for m, pj in zip(moved, bytes_pj, strict=True))
        return power.once_pj + power.busy_pj * compute + power.idle_pj * waiting + copied

    want = naive(layer, room, energy)
    if want is None:
        with pytest.raises(NoMapping):
            best(layer, room)
        return
    _, figures = best(layer, room)
    assert figures.picojoules == pytest.approx(want)
    assert all(size <= room[s] for s, size in used(layer, figures).items())
    fastest = best(priced(some_layer(seed)[0], random.Random(seed), least=False), room)[1]
    assert fastest.total <= figures.total and (fastest.picojoules or 0.0) >= want - 1e-6


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", [name for name in BEST if name[0] == "A"])
def test_no_other_tile_size_takes_less_energy(name: str) -> None:
    """Of layers that are longer than the sizes which the search tries."""
    layer, room = next(row for row in layers() if row[0].name == name)
    small = {space: size // 2 for space, size in room.items()}
    ours = priced(layer, random.Random(layer.name), least=True)
    every = tuple(tuple(range(1, ours.nest.extents[a] + 1)) for a in ours.axes)
    least = best_of(ours, small, every)[1].picojoules
    assert best(ours, small)[1].picojoules == pytest.approx(least, rel=1e-9)


def test_energy_of_a_mapping_by_hand() -> None:
    """Every byte once, and what computes."""
    layer, _ = some_layer(3)
    operands = tuple(replace(o, channel=replace(o.channel, fetch_pj=2.0, store_pj=3.0)) for o in layer.operands)
    layer = replace(layer, operands=operands, power=Power(10.0, 5.0, 7.0))
    whole = Mapped({a: layer.nest.extents[a] for a in layer.axes}, (), tuple(Move(n, 0, 1) for n in "IWO"))
    figures = cost(layer, whole)
    i, w, o = (moved.bytes for moved in figures.operands)
    assert figures.picojoules == 10 + 5 * figures.compute + 7 * (figures.total - figures.compute) + 2 * (i + w) + 3 * o


def test_a_byte_is_read_carried_and_written(tmp_path: Path) -> None:
    """Between neighbours, and by way of the second level."""
    target = load_target(chip(tmp_path))
    near, second, third = (target.memory_named(name) for name in ("L1", "RAM", "ROM"))
    assert hop_pj(target, "RAM", "L1") == 2 + 0.125 + 0.25
    assert hop_pj(target, "L1", "RAM") == 0.5 + 0.125 + 4
    assert channel_to(target, near, second).fetch_pj == hop_pj(target, "RAM", "L1")
    through = channel_to(target, near, third)
    assert through.fetch_pj == hop_pj(target, "ROM", "RAM") + hop_pj(target, "RAM", "L1")
    assert through.store_pj == hop_pj(target, "L1", "RAM") + hop_pj(target, "RAM", "ROM")


def mapped(target: str, capsys: pytest.CaptureFixture[str], *options: str, source: Path = DIGITS) -> dict:  # type: ignore[type-arg]
    assert main(["map", str(source), "--target", target, "--json", "-", *options]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_map_prints_microjoules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of every layer and of the network; with `--objective energy` none takes more."""
    target = chip(tmp_path)
    each = [mapped(target, capsys, "--limit", "L1=2K", "--objective", goal) for goal in ("latency", "energy")]
    fast, frugal = (rows["layers"] for rows in each)
    assert [rows["objective"] for rows in each] == ["latency", "energy"]
    for a, b in zip(fast, frugal, strict=True):
        assert b["energy_uj"] <= a["energy_uj"] + 1e-9 and a["total_cycles"] <= b["total_cycles"]
    assert sum(b["energy_uj"] for b in frugal) < sum(a["energy_uj"] for a in fast)
    assert main(["map", str(DIGITS), "--target", target]) == 0
    head, *_, total = capsys.readouterr().out.splitlines()
    assert "uJ" in head and re.search(r"total +[\d,]+ +\d+\.\d{3}$", total)
    assert main(["map", str(DIGITS), "--target", "gap8"]) == 0
    assert "uJ" not in capsys.readouterr().out


def test_an_engine_and_the_waiting_core(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Energy of a layer on an engine, from the figures that `map` prints."""
    text = "inherits: diana\ndescription: x\ncore: {energy: {idle_pj: 3, busy_pj: 20, source: a}}\n"
    text += "engines: {digital: {energy: {mac_pj: 0.25, busy_pj: 4, idle_pj: 1, source: a}}}\n"
    target = chip(tmp_path, text)
    macs = {row.name: row.K * row.C * row.FY * row.FX * row.OY * row.OX // row.groups for row in read_layers(FILE)}
    pj = {"I": 6.25 + 4.8125, "W": 6.25 + 3.4375, "O": 4.15 + 6.875}
    for row in mapped(target, capsys, source=FILE)["layers"]:
        copied = sum(row["bytes"][name] * pj[name] for name in pj)
        waiting = row["total_cycles"] - row["compute_cycles"]
        rest = row["energy_uj"] * 1e6 - copied - 7 * row["compute_cycles"] - 4 * waiting
        assert rest == pytest.approx(0.25 * macs[row["name"]], rel=1e-9)


def report_of(target: str, folder: Path, goal: str) -> dict:  # type: ignore[type-arg]
    options = ["--target", target, "--map", "layer", "--limit", "L1=2K", "--objective", goal]
    assert main(["model", str(DIGITS), "--name", "n", *options, "-o", str(folder / goal)]) == 0
    return json.loads((folder / goal / "n_report.json").read_text())["hierarchy"]  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_network_of_least_energy(tmp_path: Path) -> None:
    """The report sums its copies hop by hop; both plans, and the generated code gives the same bytes as the oracle."""
    target = chip(tmp_path)
    fast, frugal = (report_of(target, tmp_path, goal) for goal in ("latency", "energy"))
    assert frugal["energy_uj"] < fast["energy_uj"] and fast["cycles"]["total"] <= frugal["cycles"]["total"]
    facts = load_target(target)
    for row in frugal["layers"]:
        copied = sum(o["bytes"] * hop_pj(facts, o["from"], o["to"]) for o in row["operands"])
        idle = row["cycles"] - row["compute_cycles"]
        macs = row["energy_uj"] * 1e6 - copied - 8 * 2 * row["compute_cycles"] - 8 * 0.5 * idle
        assert macs == pytest.approx(round(macs), abs=1e-3) and macs >= 0
    assert frugal["energy_uj"] == pytest.approx(sum(row["energy_uj"] for row in frugal["layers"]))
    options = ["--map", "layer", "--limit", "L1=2K", "--objective", "energy", "--dma", "random:3"]
    assert main(["verify", str(DIGITS), "--target", target, *options]) == 0


def test_fit_prints_the_energy_of_levels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    targets = f"{chip(tmp_path)},gap8"
    assert main(["fit", str(DIGITS), "--targets", targets, "--json", "-"]) == 0
    rows = {row["target"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["chip"]["energy_uj"] > 0 and rows["gap8"]["energy_uj"] is None


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("read_pj: 2,", "read_pj: -2,", 5, "expected picojoules, a number from 0 upwards, not '-2'"),
        ("read_pj: 2,", "read_pj: .nan,", 5, "expected picojoules"),
        ("read_pj: 2,", "read_pj: [2],", 5, "expected picojoules"),
        ("read_pj: 2,", f"read_pj: {'9' * 40},", 5, "too large"),
        ("read_pj: 2,", "", 5, "missing key 'read_pj'"),
        ("read_pj: 2,", "reads_pj: 2,", 5, "unknown key 'reads_pj'; did you mean 'read_pj'?"),
        ("write_pj: 4, source: a", "write_pj: 4", 5, "missing key 'source'"),
        ("write_pj: 4, source: a", "write_pj: 4, source: ' '", 5, "no `source`"),
        ("byte_pj: 0.125", "byte_pj: many", 8, "expected picojoules, a number from 0 upwards, not 'many'"),
        ("mac_pj: 1,", "mac_pj: 1e-3,", 10, "expected picojoules"),
    ],
)  # fmt: skip
def test_energies_that_cannot_be(old: str, new: str, line: int, text: str, tmp_path: Path) -> None:
    file = chip(tmp_path, ENERGIES.replace(old, new))
    with pytest.raises(EdgebuildError) as error:
        load_target(file)
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.file == file and diagnostic.line == line and text in str(error.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["map", str(DIGITS), "--target", "gap8"], "gap8 states no `energy:` of memory L1, memory L2"),
        (["map", str(FILE), "--target", "diana", "--search", "dory"], "--search dory is a rule that knows no energies"),
        (["model", str(DIGITS), "--name", "n", "--target", "gap8", "--map", "layer"], "no `energy:` of memory L1"),
        (["model", str(DIGITS), "--name", "n", "--target", "diana", "--map", "layer"], "no `energy:` of the core"),
        (["model", str(DIGITS), "--name", "n", "--target", "gap8", "--map", "auto"], "goes with --map layer"),
        (["model", str(DIGITS), "--name", "n", "--target", "gap8", "--map", "layer", "--qos", "9"], "not with --qos"),
    ],
)  # fmt: skip
def test_energies_that_are_not_stated(options: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = ["-o", "out"] if options[0] == "model" else []
    assert main([*options, "--objective", "energy", *output]) == 1
    assert text in capsys.readouterr().err
    assert not Path("out").exists()
