"""The command that tries models of others: its lists are sound, and each verdict is what the command said."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.wild import __main__ as wild
from tests.wild import sources
from tests.wild.sources import Model

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"


def test_lists_name_versions_and_scripts() -> None:
    for entry in sources.packages():
        assert entry["version"] and entry["files"], entry["package"]
    for entry in sources.exporters():
        assert (sources.HERE / "scripts" / f"{entry['script']}.py").is_file()


def test_files_of_a_package_are_read_by_pattern_and_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "package"
    (folder / "models").mkdir(parents=True)
    for name, content in (("a.onnx", b"1"), ("copy.onnx", b"1"), ("b.tflite", b"2"), ("c.txt", b"3")):
        (folder / "models" / name).write_bytes(content)
    monkeypatch.setattr(sources, "_unpacked", lambda entry: folder)
    entry = {"package": "p", "version": "1", "files": ["*.onnx", "*b.tflite"], "options": {"a*": ["--shape", "x=1"]}}
    models = [(m.name, m.options) for m in sources.of_package(entry)]
    assert models == [("models/a.onnx", ("--shape", "x=1")), ("models/b.tflite", ())]


def test_a_download_is_unpacked_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sources, "FOLDER", tmp_path)
    monkeypatch.setattr(sources.subprocess, "run", _download)
    entry = {"package": "p", "version": "1", "files": ["*"]}
    assert [m.name for m in sources.of_package(entry)] == ["net.onnx"]
    with pytest.raises(sources.Unavailable, match="no such package"):
        list(sources.of_package({**entry, "package": "missing"}))
    assert sorted(f.name for f in (tmp_path / "packages").iterdir() if f.suffix != ".part") == ["p-1"]


def _download(command: list[str], cwd: Path, **_: object) -> object:
    class Done:
        returncode, stderr = int("missing==1" in command), "no such package"

    if not Done.returncode:
        with zipfile.ZipFile(cwd / "p.whl", "w") as wheel:
            wheel.writestr("net.onnx", b"model")
    return Done


@pytest.mark.needs("gcc")
def test_verdicts(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(DIGITS.read_bytes()[:-40])
    assert wild.verified(Model("digits", "here", DIGITS), "host")[0] == "right"
    status, why, _ = wild.verified(Model("damaged", "here", damaged), "host")
    assert status == "refused" and why
    assert wild.verified(Model("digits", "here", DIGITS, ("--no-such-option",)), "host")[0] == "crashed"
