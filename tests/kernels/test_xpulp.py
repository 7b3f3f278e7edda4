"""Kernels for XpulpV2, in both encodings, on the simulator; the simulator against what the RTL of CV32E40P gave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.target import load_target
from edgebuild.cli import main
from edgebuild.model import kernels, ops
from edgebuild.model.ir import Array, Graph, Op, Quant, Tensor
from edgebuild.model.kernels import kernel_of
from edgebuild.model.kernels.xpulp.dot import Ends, ends, raw_ends
from edgebuild.model.kernels.xpulp.encoding import encoded
from edgebuild.model.ops import fixedpoint
from edgebuild.model.ops.base import Sums
from edgebuild.model.plan.search import form_of
from tests.conftest import ROOT
from tests.kernels.test_processors import check
from tests.kernels.test_vectors import random_net
from tests.xpulp import instructions

NEEDS = ("riscv64-unknown-elf-gcc", "gcc")
KINDS = ("conv2d", "conv2d", "depthwise_conv2d", "add", "max_pool2d", "avg_pool2d")


def networks(seeds: Sequence[int]) -> list[Graph]:
    """Two of three of one dense layer or of three other layers."""
    return [random_net(s, ["dense"] if s % 3 == 0 else KINDS, 1 if s % 3 == 0 else 3) for s in seeds]


def preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for XpulpV2 wherever they serve, whatever their estimates."""
    ordinary = kernels.by_cost

    def first(candidates: list[kernels.Kernel], form: kernels.Form) -> list[kernels.Kernel]:
        return sorted(ordinary(candidates, form), key=lambda k: not k.variant.startswith("xpulp"))

    monkeypatch.setattr(kernels, "by_cost", first)


@pytest.mark.one_in(2)
@pytest.mark.needs(*NEEDS)
@pytest.mark.parametrize("target", ["cv32e40p", "ri5cy"])
def test_random_networks(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preferred(monkeypatch)
    graphs = [*networks(range(24)), *depthwise(6), *map(with_a_dead_channel, depthwise(3))]
    form = form_of(load_target(target))
    counts = Counter(kernel_of(op, replace(g), form).variant.partition(" pixels")[0] for g in graphs for op in g.ops)
    assert {
        "xpulp 1",
        "xpulp 2",
        "xpulp 4",
        "xpulp 5",
        "xpulp windows",
        "xpulp linear",
        "xpulp four at once",
    } <= counts.keys(), counts
    check(target, graphs, tmp_path)


@pytest.mark.needs(*NEEDS)
def test_planes_become_pixels(tmp_path: Path) -> None:
    form, graphs = form_of(load_target("cv32e40p")), list[Graph]()
    for rows, columns in ((4, 8), (3, 5), (2, 2), (7, 9), (1, 6)):
        shapes, quant = {"x": (1, 3, rows, columns), "y": (1, rows, columns, 3)}, Quant((0.5,), (3,))
        turn = Op("transpose", "turn", ("x",), ("y",), {"perm": (0, 2, 3, 1)})
        graphs.append(Graph("g", (turn,), {n: Tensor(n, s, "int8", quant) for n, s in shapes.items()}, ("x",), ("y",)))
        assert kernel_of(turn, graphs[-1], form).variant == "xpulp pixels"
    check("cv32e40p", graphs, tmp_path)


@pytest.mark.needs(*NEEDS)
def test_rows_and_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that get rows in rings."""
    preferred(monkeypatch)
    attrs = {"window": (2, 2), "stride": (1, 2), "dilation": (1, 1), "pad": (0, 0, 0, 0), "clamp": (-1.0, 1.0)}
    shapes, quant = {"x": (1, 4, 6, 8), "y": (1, 3, 3, 8)}, Quant((0.05,), (3,))
    tensors, pool = (
        {n: Tensor(n, s, "int8", quant) for n, s in shapes.items()},
        Op("max_pool2d", "p", ("x",), ("y",), attrs),
    )
    graphs = [*networks((*range(100, 104), 217)), *depthwise(4), Graph("g", (pool,), tensors, ("x",), ("y",))]
    check("cv32e40p", graphs, tmp_path, tile="rolling", objective="ram")


def depthwise(count: int) -> list[Graph]:
    """Layers of 3x3 whose channels are fours."""
    layers = list[Graph]()
    for seed in range(10_000):
        g = random_net(seed, ["depthwise_conv2d"], 1)
        s = sums_of(g.ops[0], g)
        if s is not None and s.window == (3, 3) and s.stride[0] == s.stride[1] and s.size[1] >= 4:
            layers += [g] if s.size[2] == s.out[2] and s.size[2] % 4 == 0 else []
        if len(layers) == count:
            break
    return layers


def with_a_dead_channel(g: Graph) -> Graph:
    """The last channel of the first layer has weights and a bias of 0, as pruned networks have them."""
    _, w, b = g.ops[0].inputs
    weights, bias = (g.tensors[name].data.copy() for name in (w, b))
    weights[..., -1] = bias[-1] = 0
    changed = {w: replace(g.tensors[w], data=weights), b: replace(g.tensors[b], data=bias)}
    return replace(g, tensors={**g.tensors, **changed})


def test_dead_channels_have_kernels() -> None:
    for g in depthwise(8):
        (s, other) = (sums_of(n.ops[0], n) for n in (g, with_a_dead_channel(g)))
        assert s is not None and other is not None and other.bound[-1] == 0
        assert ends(s) is None or ends(other) is not None


def sums_of(op: Op, graph: Graph) -> Sums | None:
    return ops.SPECS[op.kind].sums(op, graph)


def wrapped(x: Array) -> Array:
    return np.asarray(x).astype(np.int32).astype(np.int64)


def computed(e: Ends, x: Array) -> Array:
    """Results before they are clipped, instruction by instruction, in int32; x: sums by channel."""
    p, columns = e.product, list(wrapped(e.words).T[:, :, None])
    away = columns.pop() if p.away else 0
    if p.way == "high":
        (m, r, shift), up = columns, wrapped(x << p.bits)
        scaled = up * m >> 32
    else:
        low, high, r, shift = columns
        scaled = wrapped((wrapped((x >> p.dropped) * low) >> p.bits) + wrapped(x * high))
    scaled = wrapped(scaled + wrapped((x >> 31) * away))
    return np.asarray(wrapped(scaled + r) >> shift)


def test_results_of_all_sums() -> None:
    """At and around each sum at which a result begins, and at the largest ones."""
    rng, ways = np.random.default_rng(1), Counter[str]()
    for g in networks(range(60)):
        for op in g.ops:
            s = sums_of(op, g)
            for e, left_out in ((ends(s), 0), (raw_ends(s), s.start[:, None])) if s is not None else ():
                if e is None or s is None:
                    continue
                most = s.bound[:, None] - abs(left_out)
                real = np.ldexp(s.mantissa.astype(float), (-31 - s.right).astype(int))[:, None]
                near = np.arange(-129, 130) / real - left_out + rng.integers(-3, 4, (len(real), 259))
                x = np.clip(near, -most, most).astype(np.int64)
                x = np.concatenate([x, most, -most, np.zeros_like(most)], axis=1)
                scaled = fixedpoint.requantize(x + left_out, s.mantissa[:, None], -s.right[:, None], s.arithmetic)
                want = np.clip(scaled + s.y_zero, s.low, s.high)
                np.testing.assert_array_equal(np.clip(computed(e, x), s.low, s.high), want)
                ways[e.product.way + ("_away" if e.product.away else "")] += 1
    assert {"two", "high", "two_away", "high_away"} <= ways.keys(), ways


def test_results_of_shifted_sums() -> None:
    """At all sums at which (sum * factor + added) / 2^bits, halves up, takes another value."""
    rng, served = np.random.default_rng(2), 0
    for g in networks(range(20)):
        for s in (s for op in g.ops if (s := sums_of(op, g)) is not None):
            factor, bits = rng.integers(20, 900, len(s.start)), int(rng.integers(10, 18))
            mantissa, shift = (a.astype(np.int64) for a in fixedpoint.quantize_multipliers(factor / 2.0**bits))
            added = rng.integers(-(2**bits) * 99, 2**bits * 99, len(s.start))
            offset = (added << 31 - shift - bits) + (1 << 30 - shift)
            s = replace(s, mantissa=mantissa, right=-shift, added=offset)
            for e, left_out in ((ends(s), 0), (raw_ends(s), s.start[:, None])):
                if e is None:
                    continue
                most = s.bound[:, None] - abs(left_out)
                begins = (((np.arange(-300, 301) << bits) - (1 << bits >> 1) - added[:, None]) // factor[:, None]) + 1
                x = np.clip(np.concatenate([begins, begins - 1], axis=1) - left_out, -most, most)
                scaled = ((x + left_out) * factor[:, None] + added[:, None] + (1 << bits >> 1)) >> bits
                want = np.clip(scaled + s.y_zero, s.low, s.high)
                np.testing.assert_array_equal(np.clip(computed(e, x), s.low, s.high), want)
                served += 1
    assert served > 10, served


@pytest.mark.needs(*NEEDS)
def test_instructions_as_on_rtl() -> None:
    """Each instruction of the table many times: the results of all, and nearly the cycles, are those of the RTL."""
    (row,) = yaml.safe_load((ROOT / "tests/figures/xpulp.yaml").read_text())
    count, digest, cycles = instructions.run(load_target("cv32e40p"))
    assert (count, digest) == (row["instructions"], row["sha256"])
    assert abs(cycles / row["cycles"] - 1) < 0.001
    assert instructions.run(load_target("ri5cy"), "gap8")[:2] == (count, digest)


@pytest.mark.needs(*NEEDS)
def test_an_encoding_that_the_core_lacks(tmp_path: Path) -> None:
    """The simulator ends at the first instruction of the other encoding, and says where."""
    with pytest.raises(EdgebuildError, match="an instruction that the core lacks"):
        instructions.run(load_target("cv32e40p"), "gap8")


@pytest.mark.needs(*NEEDS)
def test_counts_of_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the kept firmware, whose single inference is a part of what the program executes."""
    digits = str(ROOT / "sample_projects/digits/digits.onnx")
    assert main(["verify", digits, "--target", "cv32e40p", "--keep", str(tmp_path), "--json", "-"]) == 0
    inference = json.loads(capsys.readouterr().out)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    words = ["edgebuild", "simulate", "corev", "harness.elf", "--json"]
    for where in ("-", "counts.json"):
        done = subprocess.run([*words, where], cwd=tmp_path, env=environment, capture_output=True, check=True)
    (core,) = json.loads((tmp_path / "counts.json").read_text())["cores"]
    assert inference["instructions"] < core["instructions"] < core["cycles"] < 20 * inference["cycles"]
    done = subprocess.run(words[:-1], cwd=tmp_path, env=environment, capture_output=True, check=True, text=True)
    assert f"harness.elf: {core['instructions']:,} instructions, {core['cycles']:,} cycles\n" in done.stderr


def test_one_encoding(tmp_path: Path) -> None:
    file = tmp_path / "both.yaml"
    file.write_text("inherits: cv32e40p\ncore: {features: [rv32, m, c, corev, gap8]}\n")
    with pytest.raises(EdgebuildError, match=r"both\.yaml:2:.*two encodings of XpulpV2"):
        load_target(str(file))


def test_encodings() -> None:
    """Words of the manuals: CV32E40P's, and a listing of RI5CY's compiler."""
    assert encoded("cv.sdotsp.b a0, a1, a2", "corev").startswith(".insn r 0x7b, 1, 0x54, a0, a1, a2")
    assert encoded("cv.sdotsp.b a0, a1, a2", "gap8").startswith(".insn r 0x57, 1, 0x5c, a0, a1, a2")
    assert encoded("cv.setup 1, t1, 5", "corev").startswith(".insn i 0x2b, 4, x15, t1, 6")
    assert encoded("cv.setup 1, t1, 6", "gap8").startswith(".insn i 0x7b, 4, x1, t1, 12")
    assert encoded("addi a0, a0, 1", "gap8") == "addi a0, a0, 1"
