"""A slice of `./sconsw fuzz` with seeds that never change; and that the fuzzer finds and shrinks what is planted."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats.onnx.onnx_operators import READERS as ONNX_READERS
from edgebuild.model.formats.tflite.tflite_operators import READERS as TFLITE_READERS
from tests.fuzz.journal import Journal
from tests.fuzz.machine import Machine, TooLong, at_most, check_explained, compiled, machine, report_of
from tests.fuzz.networks import WRITERS, Case, Judge, Tally, beside, drawn, drawn_sizes, keep, recipes, smaller, sweep
from tests.fuzz.onnx_rows import OPSET
from tests.fuzz.onnx_writer import OnnxWriter
from tests.fuzz.others import damaged_file, plan_faults, plan_of_energy
from tests.fuzz.recipe import BESIDE, FORMS, choice, draw_beside, group_window
from tests.fuzz.tflite_writer import TfliteWriter
from tests.fuzz.units import Result, networks
from tests.graphs.tflite_models import schema

MAX_NETWORKS = 2000  # that are drawn until every operator was among them
BUILTIN = {code: name for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}
FIRST, HOST = 21, 2
TARGETS = (("mps2-an386", 1), ("mps3-an547", 2), ("riscv-virt", 3), ("microbit", 4), ("pulp-cluster", 5))


def listed(cases: list[Case]) -> str:
    return "\n".join(f"{f.failure.kind}: {f.recipe.form} {f.recipe.seed} {f.target} {dict(f.options)}" for f in cases)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return machine("host", tmp_path_factory.mktemp("fuzz"))


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("form", FORMS)
def test_networks_on_the_host(form: str, host: Machine, tmp_path: Path) -> None:
    """In all modes of tiling, under the sanitizers."""
    tally = Tally()
    for recipe in recipes(FIRST, HOST, [form]):
        sweep(recipe, [host], tmp_path, tally)
    assert not tally.cases, listed(tally.cases)
    assert tally.runs - tally.same > HOST
    assert any(mode in what.split() for what in tally.programs for mode in ("layer", "auto", "dory")), tally.programs


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("form", ["tflite", "qdq"])
def test_a_network_of_many_layers(form: str, host: Machine, tmp_path: Path) -> None:
    """Two of its programs run; the other plans run on values."""
    recipe, tally = drawn(form, FIRST, blocks=15), Tally()
    sweep(recipe, [host], tmp_path, tally, most=2)
    assert len(recipe.layers) > 30 and tally.runs > 5
    assert not tally.cases, listed(tally.cases)


def test_values_without_a_scale_make_no_network() -> None:
    """Everything in this network is NaN, for which onnxruntime's quantiser finds no scale."""
    with pytest.raises(ValueError, match="quantiser"):
        WRITERS["qdq"].write(drawn("qdq", 41000763))


def test_steps_that_no_shift_scales_are_refused(tmp_path: Path) -> None:
    """Squares of squares have large steps; for the softmax of these TFLite Micro shifts an int32 by 31 bits or more."""
    with pytest.raises(EdgebuildError, match=r"a step of '.*', times beta, is \d+"):
        Judge(drawn("tflite_int16", 61000008, blocks=15), tmp_path)


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm", "riscv64-unknown-elf-gcc", "qemu-system-riscv32")
@pytest.mark.parametrize(("target", "seed"), TARGETS)
def test_networks_on_a_simulated_target(target: str, seed: int, tmp_path: Path) -> None:
    tally = Tally()
    for recipe in recipes(100 * seed, 3, ["tflite" if seed % 2 else "qdq"]):
        if not tally.runs:  # the reference may refuse a network, whose values become infinite
            sweep(recipe, [machine(target, tmp_path)], tmp_path, tally)
    assert not tally.cases, listed(tally.cases)
    assert tally.runs


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_layers_side_by_side(tmp_path: Path) -> None:
    tally, recipe = Tally(), draw_beside("tflite", 1)
    beside("tflite", 1, [machine("mps2-an386", tmp_path)], tmp_path, tally)
    assert not tally.cases, listed(tally.cases)
    assert tally.programs.total() >= 2 and sum(not layer.operands for layer in recipe.layers) == BESIDE


@pytest.mark.parametrize(
    ("form", "seed", "target", "options"),
    [("qoperator", 8200009, "mps2-an386", {"tile": "fdt"}), ("qoperator", 8200009, "mps2-an386", {"tile": "auto"})],
)
def test_plans_that_were_wrong(form: str, seed: int, target: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Two paths through one tensor, first by channels, then by images, gave their parts the same names."""
    file = tmp_path / "network.onnx"
    file.write_bytes(WRITERS[form].write(drawn(form, seed)))
    check_explained(report_of(compiled(file, target, options)))


@pytest.mark.needs("gcc")
def test_tiles_of_an_op_that_reads_one_tensor_twice(host: Machine, tmp_path: Path) -> None:
    """A matrix times itself, in tiles that need different parts of it on the two sides."""
    judge, options = Judge(drawn("tflite", 10100228), tmp_path), {"map": "dory", "limit": "L1=718", "dma": "eager"}
    judge.execute(host, compiled(judge.file, "host", options), options)


def test_the_least_memory_is_at_most_that_of_auto(tmp_path: Path) -> None:
    """A search that may compute values twice ends higher here than one that may not."""
    file = tmp_path / "network.onnx"
    file.write_bytes(WRITERS["qdq"].write(drawn("qdq", 7040099)))
    ways: list[dict[str, Any]] = [{"objective": "ram"}, {"tile": "auto"}, {"tile": "off"}, {"tile": "ffmt"}]
    least, *others = (report_of(compiled(file, "host", options))["ram"]["arena_bytes"] for options in ways)
    assert least <= min(others)


def test_damaged_files_and_plans_of_energy(tmp_path: Path) -> None:
    plans = [trouble for seed in (3, 4) for trouble in plan_of_energy(seed, tmp_path)]
    troubles = [*plans, *damaged_file("tflite", 3, 50, tmp_path)]
    assert not troubles, troubles[0].text


def test_a_plan_of_energy_that_does_not_add_up_is_noticed() -> None:
    point = {"config": "a", "g": 0, "lfo": False, "time_us": 5.0, "energy_uj": 2.0}
    plan: dict[str, Any] = {"qos_us": 10.0, "time_us": 5.0, "energy_uj": 2.0, "start": "a", "switches": []}
    plan |= {"layers": [{"name": "l", **point, "points": [point]}], "switch_costs": []}
    plan |= {"idle": {"energy_uj": 0.0}, "idle_modes": [{"energy_uj": 0.0, "power_mw": 0.0, "min_time_us": 0.0}]}
    assert not list(plan_faults(plan))
    for change in ({"time_us": 6.0}, {"energy_uj": 9.0}, {"qos_us": 4.0}, {"start": "b"}):
        assert list(plan_faults({**plan, **change})), change


def test_windows_of_groups_are_drawn_evenly() -> None:
    """Every combination of window, groups, pads, stride: none is less than a quarter as frequent as the mean."""
    seen = Counter[tuple[bool, str, bool, bool]]()
    for seed in range(3000):
        drawn = group_window(choice(seed), lambda _, size: size, (8, 8, 12))
        groups = {1: "none", 12: "depthwise"}.get(drawn.groups, "some")
        seen[drawn.taps == (1, 1), groups, drawn.padded, drawn.stride == (1, 1)] += 1
    assert len(seen) == 2 * 3 * 2 * 2
    assert 4 * min(seen.values()) > 3000 / len(seen)


@pytest.mark.slow
@pytest.mark.needs("gcc")
def test_a_planted_fault_is_noticed_and_reduced(host: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of two that are bounded one too low: what remains of the network is about the sum alone."""
    bounds = ops.spatial.bounds

    def lower(op: Any, y: Any) -> tuple[int, int]:
        low, high = bounds(op, y)
        return (low, high - 9) if op.kind == "add" else (low, high)

    monkeypatch.setattr(ops.spatial, "bounds", lower)
    for recipe in recipes(1, 40, ["tflite"]):
        words = [layer.word for layer in recipe.layers]
        tally = Tally()
        if len(words) > 7 and "add" in words:
            sweep(recipe, [host], tmp_path, tally)
        if tally.cases:
            small = smaller(tally.cases[0], host, tmp_path / "small")
            break
    assert small.failure.kind == "wrong"
    assert len(small.recipe.layers) < len(recipe.layers)
    whole = {(number, name): size for number, name, size in drawn_sizes(recipe)}
    assert any(size < whole[number, name] for number, name, size in drawn_sizes(small.recipe))
    kept = keep(small, tmp_path / "cases")
    assert Path(kept.file).name in (tmp_path / "cases" / "README.md").read_text()


def test_recipes_are_functions_of_their_seed(tmp_path: Path) -> None:
    first, second = (Judge(next(recipes(9, 1, ["float"])), tmp_path / name) for name in "ab")
    assert first.file.read_bytes() == second.file.read_bytes()
    assert all(np.array_equal(a, b) for a, b in zip(first.vectors[0], second.vectors[0], strict=True))


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """Units that failed, or whose line was cut, run again."""
    units = list(networks(7, 2, FORMS[:2], ["host"]))
    journal = Journal(tmp_path, resume=False)
    journal.add(Result(units[0].name, runs=6, networks=1))
    journal.add(Result(units[1].name, failures=[{"kind": "wrong", "command": "c", "text": "t"}], causes=["c"]))
    assert journal.write(units, {"seeds": [7, 2]})["wrong"] == 1
    with journal.file.open("a") as file:
        file.write('{"unit": "networks 8')
    again = Journal(tmp_path, resume=True)
    assert again.missing(units) == units[1:]
    again.add(Result(units[1].name, runs=5, networks=1))
    summary = again.write(units, {})
    assert (summary["wrong"], summary["runs"], summary["units"]) == (0, 11, 2)
    assert Journal(tmp_path, resume=True).missing(units) == units[2:]
    assert Journal(tmp_path, resume=False).missing(units) == units


def test_every_operator_name_of_tflite_is_drawn() -> None:
    """In networks as the sweep draws them, of all types of activations together."""
    missing = set(TFLITE_READERS)
    for seed in range(MAX_NETWORKS):
        for form in ("tflite", "tflite_float", "tflite_int16"):
            missing -= {_name(code) for code in written(TfliteWriter(drawn(form, seed))).file.codes}
        if not missing:
            return
    raise AssertionError(
        f"{sorted(missing)}: add a row that draws each, in tflite_elements.py, tflite_moves.py or tflite_sums.py "
        "of tests/fuzz"
    )


def test_every_operator_name_of_onnx_is_drawn() -> None:
    names = {name for name in ONNX_READERS if onnx.defs.has(name, OPSET)}
    missing = {name for name in names if not onnx.defs.get_schema(name, OPSET).deprecated} | {"LSTM", "GRU", "RNN"}
    for seed in range(MAX_NETWORKS):
        missing -= {node.op_type for node in written(OnnxWriter(drawn("float", seed))).nodes}
        if not missing:
            return
    raise AssertionError(f"{sorted(missing)}: add a row that draws each, in tests/fuzz/onnx_rows.py")


def _name(code: Any) -> str:
    return f"custom {code.customCode.decode()}" if code.customCode else BUILTIN[code.builtinCode]


def written(writer: Any) -> Any:
    """The writer, when it is done."""
    with suppress(ValueError):  # nothing is left
        writer.write()
    return writer


def test_time_that_the_machine_spends_elsewhere_does_not_count() -> None:
    """A plan that never ends is stopped; one that waits for other work is not."""
    with at_most(1):
        time.sleep(1.1)
    with pytest.raises(TooLong), at_most(1):
        while True:
            pass
