"""The request: sizes, words, paths, and what is said about wrong ones."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.options import add_options, checked, given, options_of, parse_hz, parse_size
from edgebuild.base.request import KINDS, ClockRequest, ModelRequest, model_request, read_request
from edgebuild.build.cmake.__main__ import OPTIONS_FILE, options_text

GOOD: dict[str, Any] = {
    "schema": 1, "kind": "model", "name": "kws", "source": "../m/kws.tflite", "target": "host", "output": ".",
    "options": {"ram": "16K", "objective": "LATENCY", "qos": 12.5},
}  # fmt: skip


def write(folder: Path, **changes: Any) -> Path:
    file = folder / "kws.req.json"
    file.write_text(json.dumps({k: v for k, v in {**GOOD, **changes}.items() if v is not None}))
    return file


def test_good_request(tmp_path: Path) -> None:
    request = read_request(write(tmp_path))
    source = tmp_path.parent / "m" / "kws.tflite"
    assert request.request == ModelRequest(source, "kws", "host", objective="latency", ram=16384, qos=12.5)
    assert request.output == tmp_path


def test_target_file_is_relative_to_the_request(tmp_path: Path) -> None:
    assert read_request(write(tmp_path, target="../board.yaml")).request.target == str(tmp_path.parent / "board.yaml")


@pytest.mark.parametrize(
    ("text", "size"), [("16384", 16384), ("0x4000", 16384), ("16K", 16384), ("16 KiB", 16384), ("1m", 1 << 20), (7, 7)]
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size("ram", text) == size


@pytest.mark.parametrize(
    ("text", "hz"), [("8000000", 8_000_000), ("8MHz", 8_000_000), ("25M", 25_000_000), ("8e6", 8_000_000)]
)
def test_frequencies(text: str, hz: int) -> None:
    assert parse_hz("hse", text) == hz


@pytest.mark.parametrize("text", ["", "fast", "-8MHz", "0", "8GHz", "1.2.3M"])
def test_what_is_no_frequency(text: str) -> None:
    with pytest.raises(EdgebuildError, match="is not a frequency"):
        parse_hz("hse", text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": {"ram": "16Q"}}, "option 'ram': '16Q' is not a size"),
        ({"options": {"ram": -1}}, "option 'ram': '-1' is not a size"),
        ({"options": {"ramm": "1"}}, "unknown option 'ramm'; did you mean 'ram'?"),
        ({"options": {"objective": "latncy"}}, "option 'objective': 'latncy' is not known; did you mean 'latency'?"),
        ({"options": {"qos": "nan"}}, "option 'qos': 'nan' is not a number from 0 to 1e+12"),
        ({"options": {"qos": "30,,60"}}, "option 'qos': '' is not a number from 0 to 1e+12"),
        ({"options": {"qos": "1e308"}}, "option 'qos': '1e308' is not a number from 0 to 1e+12"),
        ({"options": {"max_mac_overhead": "inf"}}, "'inf' is not a number from 0 to 1e+12"),
        ({"options": {"time_limit": True}}, "option 'time_limit': 'True' is not a number"),
        ({"name": "2fast"}, "name: '2fast' is not a C identifier"),
        ({"name": "Signal"}, "name: Signal.h would hide the C library's <signal.h>"),
        ({"schema": 2}, "schema 2 is not known here"),
        ({"kind": "modle"}, "kind 'modle' is not known"),
        ({"source": None}, "member 'source' must be there"),
        ({"sauce": "x"}, "unknown member 'sauce'; did you mean 'source'?"),
    ],
)
def test_wrong_requests(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EdgebuildError) as caught:
        read_request(write(tmp_path, **changes))
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", '"model"'])
def test_not_a_request(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kws.req.json"
    file.write_text(text)
    with pytest.raises(EdgebuildError, match="not a request"):
        read_request(file)


def test_paths_of_options_are_relative_to_the_request(tmp_path: Path) -> None:
    request = read_request(write(tmp_path, options={"calibration": "../c.yaml", "cmsis_nn": "nn"}))
    assert request.request.calibration == tmp_path.parent / "c.yaml" and request.request.cmsis_nn == tmp_path / "nn"
    assert request.request.files == (tmp_path.parent / "m" / "kws.tflite", tmp_path.parent / "c.yaml")


def test_options_left_out_keep_their_default() -> None:
    given = dict.fromkeys(options_of(ModelRequest))
    assert model_request(Path("m"), "m", "host", given) == ModelRequest(Path("m"), "m", "host")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"qos": "30", "calibration": "c.yaml"},
            ["'qos' changes nothing without --objective", "'calibration' changes"],
        ),
        ({"objective": "energy", "qos": "30", "hse": "8000000"}, []),
        ({"limit": "L1=4K"}, ["'limit' changes nothing without --map"]),
        ({"tile": "off", "max_mac_overhead": "10"}, ["'max_mac_overhead' changes nothing without"]),
        ({"tile": "ffmt", "max_mac_overhead": "10", "ram": "4K"}, []),
    ],
)
def test_options_that_change_nothing_are_named(options: dict[str, str], words: list[str]) -> None:
    hints = model_request(Path("m.onnx"), "m", "host", options).ineffective_options
    assert len(hints) == len(words) and all(word in text for word, text in zip(words, hints, strict=True)), hints


def test_cmake_has_the_same_table() -> None:
    """After a change: python -m edgebuild.build.cmake --options"""
    assert OPTIONS_FILE.read_text() == options_text()


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_default_is_of_the_type_that_its_reader_makes(kind: type) -> None:
    for field in dataclasses.fields(kind):
        if "option" in field.metadata and field.default is not None and field.default != ():
            o = field.metadata["option"]
            assert o.kind.read(field.name, str(field.default)) == field.default


CLOCK = {"kind": "clock", "name": "board", "source": [], "target": "stm32f767"}


def test_clock_request(tmp_path: Path) -> None:
    request = read_request(write(tmp_path, **CLOCK, options={"hse": "8MHz", "sysclk": "144MHz,216000000"}))
    assert request.request == ClockRequest("board", "stm32f767", 8_000_000, (144_000_000, 216_000_000))
    assert read_request(write(tmp_path, **CLOCK, options={})).request == ClockRequest("board", "stm32f767")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": {"sysclk": "144MHz,quick"}}, "option 'sysclk': 'quick' is not a frequency"),
        ({"options": {"hse": "."}}, "option 'hse': '.' is not a frequency"),
        ({"options": {"ram": "1"}}, "unknown option 'ram'"),
        ({"options": {}, "name": "a-b"}, "name: 'a-b' is not a C identifier"),
        ({"options": {}, "source": ["a.c"]}, "member 'source' must be there and be an empty list"),
    ],
)
def test_wrong_clock_requests(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EdgebuildError) as caught:
        read_request(write(tmp_path, **{**CLOCK, **changes}))
    assert message in str(caught.value)


def test_an_option_that_takes_a_list_may_be_given_several_times() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, ModelRequest)
    read = parser.parse_args(["--shape", "x=1,2", "--shape", "y=3 z=4", "--limit", "L1=1K", "--limit", "L2=2K"])
    values = checked(ModelRequest, given(read, ModelRequest))
    assert values["shape"] == (("x", (1, 2)), ("y", (3,)), ("z", (4,)))
    assert values["limit"] == (("L1", 1024), ("L2", 2048))
