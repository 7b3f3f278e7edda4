"""Templates as bytecode: they are used where they are what would be compiled, and nothing depends on them."""

from __future__ import annotations

import hashlib
import marshal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pytest

from edgebuild.base import templates
from edgebuild.base.templates import CompiledTemplates

TEXT = "{{ remark('x', 'y') }} {{ a | times(2) }}"


@pytest.fixture
def render(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, bool]]:
    """Prints a template in an environment of its own: the text, and whether the template was compiled for it."""

    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)

    def rendered(text: str = TEXT, module: str = "") -> tuple[str, bool]:
        (tmp_path / "t.j2").write_text(text)
        (tmp_path / "module.py").write_text(module)
        kept = CompiledTemplates(tmp_path / "module.py")
        environment = jinja2.Environment(loader=jinja2.FileSystemLoader(tmp_path), bytecode_cache=kept)
        environment.filters["times"], environment.globals["remark"] = templates.times, templates.remark
        compiled, right = list[str](), environment.compile

        def noted(source: str, *more: Any) -> Any:
            compiled.append(source)
            return right(source, *more)

        monkeypatch.setattr(environment, "compile", noted)
        return environment.get_template("t.j2").render(a="b"), bool(compiled)

    return rendered


def test_a_template_is_compiled_once(render: Callable[..., tuple[str, bool]]) -> None:
    assert render() == ("x/* y */ b * 2", True)
    assert render() == ("x/* y */ b * 2", False)


def test_another_text_or_environment_is_compiled(render: Callable[..., tuple[str, bool]]) -> None:
    render()
    assert render("other") == ("other", True)
    assert render("other", module="another environment") == ("other", True)


def test_a_file_with_a_changed_byte_is_not_read(render: Callable[..., tuple[str, bool]], tmp_path: Path) -> None:
    right = render()[0]
    (file,) = (tmp_path / "__pycache__").iterdir()
    data = file.read_bytes()
    for broken in (b"", data[:40], data[:-1], data[:-3] + bytes([data[-3] ^ 1]) + data[-2:], b"\0" + data[1:]):
        file.write_bytes(broken)
        assert render() == (right, True)
        assert file.read_bytes() != broken


def test_a_folder_that_cannot_be_written(render: Callable[..., tuple[str, bool]], tmp_path: Path) -> None:
    (tmp_path / "__pycache__").write_text("no folder")
    for _ in range(2):
        assert render() == ("x/* y */ b * 2", True)


def test_the_switches_of_python_hold(
    render: Callable[..., tuple[str, bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert render()[1] and render()[1]
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "prefix"))
    assert render()[1] and not render()[1]
    assert not (tmp_path / "__pycache__").exists()


def test_the_cache_of_compiled_models_holds_no_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever plants bytecode there, under any name that a template has, runs none of it."""
    poison = marshal.dumps(compile("raise SystemExit('code of the cache ran')", "t", "exec"))
    monkeypatch.setenv("EDGEBUILD_CACHE", str(tmp_path))
    templates.environment.cache_clear()
    try:
        kept = templates.environment().bytecode_cache
        assert isinstance(kept, CompiledTemplates)
        assert kept.folder == Path(templates.__file__).parent / "__pycache__" or sys.pycache_prefix
        (tmp_path / "templates").mkdir()
        for name in templates.environment().list_templates(extensions=["j2"]):
            key = kept.get_cache_key(name, None)
            (tmp_path / "templates" / key).write_bytes(hashlib.sha256(poison).digest() + poison)
        before = sorted(tmp_path.rglob("*"))
        templates.environment().get_template("helpers.c.j2")
    finally:
        templates.environment.cache_clear()
    assert sorted(tmp_path.rglob("*")) == before


def test_files_and_pieces_are_listed() -> None:
    names = templates.environment().list_templates()
    assert {"weights.j2", "weights:S", "arm_dsp/convolution.c:dense", "drawing.svg.j2"} <= set(names)
