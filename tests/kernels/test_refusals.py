"""`edgebuild explain --kernels`: each row of a kind makes a kernel, or is refused with a condition."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.target import load_target
from edgebuild.cli import main
from edgebuild.model.explain import FOLDER, refusals
from edgebuild.model.kernels import ROWS, kernel_of, layer_of
from edgebuild.model.plan.search import form_of
from tests.graphs import KINDS, thrown, tiny_tflite

TARGETS = ("mps2-an386", "mps3-an547", "riscv-virt", "microbit", "host")


@pytest.mark.parametrize("target", TARGETS)
def test_every_row_serves_or_says_why_not(target: str) -> None:
    form = form_of(load_target(target))
    for kind in {row.kind for row in ROWS} & set(KINDS):
        for graph in thrown(kind, 8):
            (op,) = graph.ops
            kinds = layer_of(op, graph, form).kinds
            kernel, refused = kernel_of(op, graph, form), refusals(op, graph, form)
            rows = sum(row.kind in kinds for row in ROWS)
            served = 1 + len(kernel.alternatives)
            assert len(refused) + served == rows or (len(refused) == rows and served == 1), kind
            for refusal in refused:
                assert refusal.reason not in ("", "always"), refusal
                if refusal.place:
                    assert not refusal.place.startswith("kernels/"), refusal
                    file, _, line = refusal.place.rpartition(":")
                    source = (FOLDER / file).read_text().splitlines()[int(line) - 1]
                    assert "return" in source or " if " in source, (refusal, source)


def test_the_command_names_the_choice_and_what_excludes_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "tiny.tflite"
    model.write_bytes(tiny_tflite())
    assert main(["explain", str(model), "--kernels", "--target", "mps2-an386"]) == 0
    text = capsys.readouterr().out
    assert "tiny.tflite on mps2-an386: estimates of one call" in text
    assert "    taken: it takes the fewest cycles" in text
    assert "variants for other cores: " in text
    assert "conv2d" in text
    with pytest.raises(SystemExit, match="2"):
        main(["explain", str(model)])
