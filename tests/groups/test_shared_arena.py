"""Several models in one arena: random groups against a checker and a bound of their own, planted faults, bad input."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx.utils import Extractor

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import GroupRequest, ModelRequest, group_request
from edgebuild.base.target import load_target
from edgebuild.cli import main
from edgebuild.model.group import shared_arena
from edgebuild.model.group_check import BrokenGroup, check_group, worlds
from tests.conftest import ROOT

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
TARGET = "mps2-an386"
PARTS = ("input", "run", "output")


def report(name: str, size: int, inputs: tuple[int, int], outputs: tuple[int, int], memory: str = "RAM") -> Any:
    """A model's report with all that a group reads of it; inputs and outputs are (offset, bytes)."""
    ports = {"x": inputs, "y": outputs}
    rows = [{"name": n, "memory": memory, "offset": at, "bytes": size} for n, (at, size) in ports.items()]
    shown = {n: {"name": n, "dtype": "int8", "shape": [size], "bytes": size} for n, (_, size) in ports.items()}
    return {
        "model": {"name": name},
        "ram": {"arena_bytes": size, "by_memory": {memory: size}},
        "layout": {"buffers": rows},
        "inputs": [shown["x"]],
        "outputs": [shown["y"]],
        "schedule": {"steps": [{"live_bytes": size // 2}, {"live_bytes": size}]},
        "state_bytes": 0,
        "stream_rows": 0,
    }


def drawn(rng: random.Random) -> tuple[GroupRequest, dict[str, Any]]:
    """A group and the reports of its models. In a pipeline the ends match."""
    count, share = rng.randint(1, 4), rng.choice(["exclusive", "pipeline", "concurrent"])
    names, reports, handed = [f"m{i}" for i in range(count)], {}, rng.randint(1, 300)
    for name in names:
        size, to = rng.randint(400, 4000), rng.randint(1, 300)
        ports = ((4 * rng.randint(0, (size - n) // 4), n) for n in (handed, to))
        reports[name] = report(name, size, *ports)
        handed = to
        if share != "pipeline" and rng.random() < 0.2:
            reports[name]["stream_rows"] = 8
    words = ["idle", *names, *(f"{n}.{part}" for n in names for part in PARTS)]
    buffers = []
    for i in range(rng.randint(0, 5)):
        alive = rng.sample(words, rng.randint(0, min(3, len(words))))
        line = f"b{i}={rng.randint(1, 3000)}" + (f",alive={'+'.join(alive)}" if alive else "")
        buffers.append(line + (f",align={1 << rng.randint(0, 8)}" if rng.random() < 0.5 else ""))
    files = tuple(Path(f"{n}.onnx") for n in names)
    return group_request(files, "g", TARGET, {"share": share, "buffers": " ".join(buffers) or None}), reports


def held(group: GroupRequest, reports: Mapping[str, Any], world: Mapping[str, str]) -> int:
    """Bytes that hold something at one time: no arena has fewer. Gaps between inputs count for nothing."""
    total = 0
    for place, (name, part) in enumerate(world.items()):
        if not (place and group.share == "pipeline"):
            ports = sum(p["bytes"] for p in reports[name].get(f"{part}s", []))
            whole = part == "run" or reports[name]["stream_rows"]
            total += reports[name]["ram"]["arena_bytes"] if whole else ports
    words = {*(world or ["idle"]), *(f"{n}.{part}" for n, part in world.items())}
    return total + sum(b.bytes for b in group.buffers if not b.alive or words & {*b.alive})


@pytest.mark.parametrize("share", ["exclusive", "pipeline", "concurrent"])
def test_random_groups_are_right_and_near_what_is_live(share: str) -> None:
    """The checker agrees; nothing is below the largest sum at one time, and exclusive models are rarely above it."""
    target, rng, above = load_target(TARGET), random.Random(7), 0
    for _ in range(30):
        group, reports = drawn(rng)
        while group.share != share:
            group, reports = drawn(rng)
        layout = shared_arena(group, target, reports)
        check_group(group, reports, layout)
        least = max(held(group, reports, world) for world in worlds(group))
        ram = layout["ram"]
        assert ram["lower_bound_bytes"] >= least - sum(b.align for b in group.buffers) or share == "concurrent"
        assert ram["arena_bytes"] >= max(least, ram["lower_bound_bytes"])
        above += ram["arena_bytes"] > 1.1 * least
    assert above < (4 if share == "exclusive" else 40)


def test_a_planted_overlap_is_seen() -> None:
    """Each spot moved onto another one that is live with it, out of the arena, or off its alignment."""
    target, rng, seen = load_target(TARGET), random.Random(3), 0
    for _ in range(30):
        group, reports = drawn(rng)
        layout = shared_arena(group, target, reports)
        for kind in ("arenas", "buffers"):
            for i, row in enumerate(layout[kind]):
                wrong = copy.deepcopy(layout)
                end = layout["ram"]["by_memory"][row["memory"]]
                wrong[kind][i]["offset"] = rng.choice([end - row["bytes"] + 16, row["offset"] + 16 * i + 1, -16])
                if rng.random() < 0.3:
                    wrong[kind][i] = {**row, "bytes": row["bytes"] - 1}
                align = 16 if kind == "arenas" else row["align"]
                if wrong[kind][i]["offset"] % align or wrong[kind][i]["bytes"] != row["bytes"]:
                    seen += 1
                    with pytest.raises(BrokenGroup):
                        check_group(group, reports, wrong)
    assert seen > 60


@pytest.mark.parametrize("share", ["exclusive", "pipeline", "concurrent"])
def test_the_checker_sees_two_owners_of_a_byte(share: str) -> None:
    """A buffer that lives with both models, moved onto either; a pipeline whose second model finds no input."""
    reports = {n: report(n, 800, (0, 96), (320, 96)) for n in ("a", "b")}
    options = {"share": share, "buffers": "log=64"}
    group = group_request((Path("a.onnx"), Path("b.onnx")), "g", TARGET, options)
    target = load_target(TARGET)
    layout = shared_arena(group, target, reports)
    check_group(group, reports, layout)
    wrong = copy.deepcopy(layout)
    wrong["buffers"][0]["offset"] = layout["arenas"][1]["offset"] + 320
    with pytest.raises(BrokenGroup, match="lies over"):
        check_group(group, reports, wrong)
    wrong = copy.deepcopy(layout)
    wrong["arenas"][1]["offset"] = layout["arenas"][0]["offset"] + (0 if share != "exclusive" else 96)
    if share != "exclusive":
        with pytest.raises(BrokenGroup, match="lies over" if share == "concurrent" else "does not find its input"):
            check_group(group, reports, wrong)


def test_arenas_that_dma_fills_stay_and_nothing_else_goes_there() -> None:
    """GAP8's L1 has no arena of others, and its L3, which the cores do not reach, has none of a whole model."""
    target = load_target("gap8")
    reports = {"a": report("a", 800, (0, 96), (320, 96), "L1"), "b": report("b", 900, (0, 96), (320, 96), "L3")}
    options = {"share": "exclusive", "buffers": "log=400K", "map": "layer"}
    files = (Path("a.onnx"), Path("b.onnx"))
    group = group_request(files, "g", "gap8", {**options, "buffers": "log=300K"})
    layout = shared_arena(group, target, reports)
    check_group(group, reports, layout)
    assert [(a["home"], a["memory"]) for a in layout["arenas"]] == [("L1", "L1"), ("L3", "L3")]
    assert layout["buffers"][0]["memory"] == "L2"
    with pytest.raises(EdgebuildError, match="does not fit: at least 409600 B"):
        shared_arena(group_request(files, "g", "gap8", options), target, reports)
    with pytest.raises(EdgebuildError, match="'a' leaves its output in L1, and 'b' cannot have it there"):
        shared_arena(group_request(files, "g", "gap8", {"share": "pipeline", "map": "layer"}), target, reports)


def halves(folder: Path) -> None:
    """The sample's network cut in two where a tensor is quantised, and `other.onnx`, whose input has another scale."""
    parts = Extractor(onnx.shape_inference.infer_shapes(onnx.load(str(DIGITS))))
    onnx.save(parts.extract_model(["image"], ["residual_relu_DequantizeLinear_Output"]), str(folder / "front.onnx"))
    onnx.save(parts.extract_model(["residual_relu"], ["logits"]), str(folder / "back.onnx"))
    onnx.save(parts.extract_model(["pool"], ["logits"]), str(folder / "other.onnx"))


TWO = "models:\n  front: {file: front.onnx}\n  back: {file: back.onnx}\n"
WRONG = {
    "pipeline_ends": (
        "share: pipeline\nmodels:\n  front: {file: front.onnx}\n  other: {file: other.onnx}\n",
        "of 'front' is not input 'pool' of 'other': scale 0.029",
    ),
    "too_large": (
        f"share: exclusive\n{TWO}buffers:\n  frame: {{bytes: 4M, alive: [front, idle]}}\n",
        "B while front runs (it needs most at its step 3), memory RAM has 4186112 B: 9552 B too much\n  live: front",
    ),
    "concurrent_too_large": (
        f"share: concurrent\n{TWO}buffers:\n  frame: {{bytes: 4184000}}\n",
        "448 B too much\n  live: front (1360 B), back (1200 B), frame (4184000 B)",
    ),
    "memory": (
        f"share: exclusive\n{TWO}buffers:\n  frame: {{bytes: 4K, memory: RAN}}\n",
        "g.yaml: error: buffer 'frame': no arena may lie in memory 'RAN'; did you mean 'RAM'?\n  memories of",
    ),
    "alive": (
        f"share: exclusive\n{TWO}buffers:\n  frame: {{bytes: 4K, alive: frnt.input}}\n",
        "g.yaml:6:10: error: buffer 'frame': alive with 'frnt.input', which is no model; did you mean 'front.input'?",
    ),
    "same_name": (f"share: exclusive\n{TWO}  BACK: {{file: back.onnx}}\n", "error: two models of the name 'BACK'"),
    "same_key": (f"share: exclusive\n{TWO}  back: {{file: back.onnx}}\n", "5:3: error: key 'back' is given twice"),
    "name_of_a_file": (f"share: exclusive\n{TWO}  g: {{file: back.onnx}}\n", "error: two files of the name 'g.h'"),
    "share": (f"share: exclusiv\n{TWO}", "g.yaml:1:8: error: option 'share': 'exclusiv' is not known; did you mean"),
    "no_share": (TWO, "g.yaml:1:1: error: missing key 'share'\n  share: exclusive, pipeline or concurrent"),
    "no_models": ("share: exclusive\nmodels: {}\n", "g.yaml:2:9: error: no models"),
    "no_file": ("share: exclusive\nmodels:\n  a: {ram: 4K}\n", "g.yaml:3:6: error: model 'a': missing key 'file'"),
    "option": (
        "share: exclusive\nmodels:\n  a: {file: back.onnx, rom: 4K}\n",
        "g.yaml:3:24: error: unknown key 'rom'; did you mean 'ram'?",
    ),
    "arena": (
        "share: exclusive\nmodels:\n  a: {file: back.onnx, arena: caller}\n", "g.yaml:3:24: error: unknown key 'arena'"
    ),
    "bytes": (
        f"share: exclusive\n{TWO}buffers:\n  frame: {{bytes: many}}\n",
        "g.yaml:6:10: error: option 'buffers: bytes of frame': 'many' is not a size",
    ),
    "no_bytes": (f"share: exclusive\n{TWO}buffers:\n  f: {{align: 4}}\n", "g.yaml:6:6: error: buffer 'f' has no bytes"),
    "align": (
        f"share: exclusive\n{TWO}buffers:\n  f: {{bytes: 4, align: 24}}\n", "6:6: error: buffer 'f': alignment 24"
    ),
    "arena_name": (
        f"share: exclusive\n{TWO}buffers:\n  arena: {{bytes: 4}}\n", "'g_arena' may be a name of ours"
    ),
    "no_such_file": ("share: exclusive\nmodels:\n  a: {file: nothing.onnx}\n", "nothing.onnx: error: "),
    "empty": ("", "g.yaml:1: error: the file is empty"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_groups(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says where and what, and nothing is written."""
    halves(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("g.yaml").write_text(WRONG[case][0])
    assert main(["group", "g.yaml", "--target", TARGET, "-o", "out", "-q"]) == 1
    assert WRONG[case][1] in capsys.readouterr().err
    assert not Path("out").exists()


def test_the_command_writes_what_the_report_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The arena of a pipeline; its models are as `edgebuild model` makes them but for the place of their arenas."""
    halves(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("g.yaml").write_text(
        f"share: pipeline\n{TWO}buffers:\n  frame: {{bytes: 1K, alive: front.input, align: 64}}\n"
    )
    assert main(["group", "g.yaml", "--target", TARGET, "-o", "out", "--depfile", "out.d", "--json", "-"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(Path("out/g_report.json").read_text())
    assert printed["ram"]["arena_bytes"] <= 1520 and printed["layout"]["optimal"]
    assert printed["buffers"][0]["offset"] % 64 == 0
    assert {"g.yaml", "front.onnx", "back.onnx"} <= {Path(w).name for w in Path("out.d").read_text().split()}
    assert main(["model", "front.onnx", "--target", TARGET, "-o", "alone", "-q"]) == 0
    mine, theirs = (Path(d, "front.c").read_text().splitlines() for d in ("out", "alone"))
    assert [line for line in mine if line not in theirs] == ['#include "front_place.h"']
    assert [line for line in theirs if line not in mine] == ["extern int8_t front_arena[1360];"]


def test_options_of_models_and_names_of_files() -> None:
    """Options go to each model; a model is named after its file, and leaves its arena to the group."""
    group = group_request((Path("a b.onnx"), Path("c.onnx")), "g", TARGET, {"share": "EXCLUSIVE", "ram": "4K"})
    assert [(m.name, m.ram, m.arena) for m in group.models] == [("a_b", 4096, "shared"), ("c", 4096, "shared")]
    assert isinstance(group.models[0], ModelRequest)
    with pytest.raises(EdgebuildError, match="unknown option 'arena'"):
        group_request((Path("a.onnx"),), "g", TARGET, {"share": "exclusive", "arena": "caller"})
    with pytest.raises(EdgebuildError, match="option 'share' is missing"):
        group_request((Path("a.onnx"),), "g", TARGET, {})
