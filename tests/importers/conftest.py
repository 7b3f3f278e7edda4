"""Tests here check the meaning of a network, not how fast it is."""

from __future__ import annotations

import pytest

from edgebuild.model.verify.harness import Builder


@pytest.fixture(autouse=True)
def without_optimisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """gcc takes half as long for programs of the build machine."""
    run = Builder._run

    def quick(self: Builder, *arguments: str) -> None:
        run(self, *arguments, *["-O0"] * (self.target.name == "host"))

    monkeypatch.setattr(Builder, "_run", quick)
