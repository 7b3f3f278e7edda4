"""`./sconsw` on a machine that lacks what it needs and cannot install it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.conftest import ROOT, run


def test_says_what_is_missing(tmp_path: Path) -> None:
    checkout, programs = tmp_path / "a b", tmp_path / "bin"
    checkout.mkdir()
    programs.mkdir()
    shutil.copy(ROOT / "sconsw", checkout)
    for name in ("cat", "cksum", "dirname", "id", "readlink", "sh", "git", "make"):
        (programs / name).symlink_to(str(shutil.which(name)))
    output = run(checkout / "sconsw", "demo", cwd=tmp_path, env={"PATH": str(programs)}, status=3)
    assert "[sconsw] missing; please install" in output
    assert output.split("packages: ")[1].split()[:2] == ["cmake", "ninja-build"]
    assert "qemu-system-arm" in output
    assert not (checkout / ".venv").exists()
