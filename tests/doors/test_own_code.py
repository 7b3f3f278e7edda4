"""The file that stands for the code of edgebuild in depfiles and stamps changes whenever the code does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgebuild.base import own_code
from edgebuild.build import code


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a package of two files, whose dates are of long ago."""
    place = tmp_path / "edgebuild"
    (place / "a").mkdir(parents=True)
    for name in ("one.py", "a/two.c.j2"):
        (place / name).write_text("text")
        os.utime(place / name, (1e9, 1e9))
    monkeypatch.setattr(own_code, "PACKAGE", str(place))
    monkeypatch.setattr(own_code, "FOLDER", str(place / "__pycache__"))
    for name in ("KEPT", "INDEX"):
        monkeypatch.setattr(own_code, name, str(place / "__pycache__" / name))
    monkeypatch.setattr(own_code, "_AT_START", {})
    return place


def next_command() -> tuple[str, ...]:
    """The `code_inputs` of a process that begins now."""
    own_code._AT_START.clear()
    return own_code.code_inputs()


def test_one_file_changes_with_any_byte_of_a_checkout(package: Path) -> None:
    (kept,) = next_command()
    seen = {Path(kept).read_text()}
    os.utime(kept, (1e9, 1e9))
    os.utime(package / "one.py", (2e9, 2e9))
    assert next_command() == (kept,) and os.stat(kept).st_mtime == 1e9, "a date alone is no change"
    (package / "a" / "two.c.j2").write_text("texT")
    seen.add(Path(*next_command()).read_text())
    assert os.stat(kept).st_mtime > 1e9
    (package / "three.py").write_text("")
    seen.add(Path(*next_command()).read_text())
    (package / "three.py").rename(package / "four.py")
    seen.add(Path(*next_command()).read_text())
    (package / "four.py").unlink()
    (package / "one.py").unlink()
    seen.add(Path(*next_command()).read_text())
    assert len(seen) == 5


def test_an_edit_within_a_tick_of_the_clock_is_seen(package: Path) -> None:
    """With the same size and date: only files that are older than a tick are taken as they were."""
    file, digests = package / "one.py", set[str]()
    for text in ("1", "2", "3"):
        file.write_text(text)
        digests.add(own_code.code_digest())
    assert len(digests) == 3


@pytest.mark.skipif(not os.getuid(), reason="root may write anywhere")
def test_all_files_are_listed_where_none_can_be_kept(package: Path) -> None:
    package.chmod(0o500)
    assert len(own_code.code_inputs()) == 2
    package.chmod(0o700)


def test_a_kept_file_of_other_code_does_not_count(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_code.code_inputs()
    monkeypatch.setattr(own_code, "_replace", lambda file, text: None)  # the folder cannot be written any more
    (package / "one.py").write_text("other")
    assert next_command() == own_code.code_files() and len(own_code.code_files()) == 2


def test_an_installed_package_has_the_list_of_its_installer(package: Path) -> None:
    folder = package.parent / "edgebuild-1.2.dist-info"
    folder.mkdir()
    assert own_code.installed_record() is None
    (folder / "RECORD").write_text("")
    assert own_code.code_inputs() == (str(folder / "RECORD"),)
    folder.with_name("edgebuild-1.1.dist-info").mkdir()  # what an installer that failed leaves
    assert own_code.installed_record() is None


def test_what_ships_is_not_listed_besides(package: Path) -> None:
    code = own_code.code_inputs()
    files = ["/m.onnx", str(package / "one.py"), "/m.onnx"]
    assert own_code.with_code(files, code) == ["/m.onnx", *code]


def test_the_rule_of_a_build_that_cannot_write_says_so(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = package / "one.py"
    assert code.main(file / "code.stamp") == 1
    assert "error: cannot write it" in capsys.readouterr().err
