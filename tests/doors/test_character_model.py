"""The sample with a language model: its cache in place, its arena, and its text beside onnxruntime's."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import plan_model
from edgebuild.model.formats import read_model

ROOT = Path(__file__).resolve().parents[2]
SAMPLE, CMAKE = ROOT / "sample_projects" / "character_model", ROOT / "edgebuild" / "build" / "cmake"
TARGET, MAX_ARENA, RECENT, FIRST = "mps2-an500", 64 * 1024, 8, 7  # as main.c has them


def module() -> Any:
    spec = importlib.util.spec_from_file_location("network", SAMPLE / "network.py")
    assert spec is not None and spec.loader is not None
    network = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(network)
    return network


def test_the_cache_stays_in_place(tmp_path: Path) -> None:
    file = tmp_path / "characters.onnx"
    subprocess.run([sys.executable, SAMPLE / "network.py", file], check=True)
    plan = plan_model(model_request(file, "characters", TARGET, {"ram": "64K"}), load_target(TARGET))
    assert plan.arena_bytes <= MAX_ARENA
    assert sum(t.elements for t in read_model(file).tensors.values() if t.constant) > 1_000_000
    storage = plan.rolling.storage
    assert storage["kept"] == storage["cache"]


def text_of(model: bytes, count: int) -> str:
    """The text that onnxruntime makes, by the loop of main.c."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    layers, places, head = 6, 128, 32
    cache, recent, character, text = np.zeros((2 * layers, places, head), np.int8), [-1] * RECENT, FIRST, ""
    for step in range(count):
        mask = np.full((1, places + 1), -127, np.int8)
        mask[0, places] = 0
        for place in range(min(places, step)):
            mask[0, place] = -(((step - 1 - place) % places + 1) // 8)
        feed = {"token": np.array([character]), "mask": mask, "cache": cache.reshape(-1, head)}
        logits, cache[:, step % places] = session.run(["logits", "rows"], feed)
        best = np.argsort(-logits[0].astype(int), kind="stable")
        character = recent[step % RECENT] = next(int(c) for c in best if c not in recent)
        text += chr(ord(" ") + character)
    return text


@pytest.mark.slow
@pytest.mark.needs("cmake", "ninja", "arm-none-eabi-gcc", "qemu-system-arm")
def test_the_text_is_that_of_onnxruntime(tmp_path: Path) -> None:
    """Two hundred characters: the cache is full after 128, and old places are written anew."""
    options: dict[str, object] = {
        "EdgeBuild_DIR": CMAKE,
        "CMAKE_TOOLCHAIN_FILE": CMAKE / "toolchain-arm-none-eabi.cmake",
    }
    options |= {"EDGEBUILD_TARGET": TARGET, "Python3_EXECUTABLE": sys.executable}
    words = ["cmake", "-S", str(SAMPLE), "-B", str(tmp_path), "-G", "Ninja"]
    words += [f"-D{name}={option}" for name, option in options.items()]
    subprocess.run(words, check=True, capture_output=True)
    build = ["cmake", "--build", str(tmp_path), "--target", "run_characters.elf"]  # prints to the standard error
    printed = subprocess.run(build, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    expected = text_of(module().model().SerializeToString(), 200)
    assert len(set(expected)) > 40 and expected in printed.splitlines()
    report = json.loads(next(tmp_path.rglob("characters_report.json")).read_text())
    assert report["ram"]["arena_bytes"] <= MAX_ARENA
