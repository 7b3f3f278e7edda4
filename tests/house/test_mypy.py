"""Types, as mypy checks them: a test among the others, for it keeps one processor busy for half a minute."""

import sys

from tests.conftest import ROOT, run


def test_types() -> None:
    run(sys.executable, "-m", "mypy", cwd=ROOT)
