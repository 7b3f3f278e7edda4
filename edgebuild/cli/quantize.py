"""`edgebuild quantize`: a float network and samples become an int8 network, and what that loses is measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgebuild.base.artifacts import write_atomic
from edgebuild.cli.common import check_written, show

if TYPE_CHECKING:
    from edgebuild.model.quantizer import Quantised, Trial
    from edgebuild.model.quantizer.samples import Quality


def quantize(args: argparse.Namespace) -> int:
    from edgebuild.model.quantizer import METHODS, quantise

    check_written(args, [args.output], [args.model, args.data, args.labels])
    methods, say = tuple(dict.fromkeys(args.method or METHODS)), [] if args.json == "-" else [_say]
    result = quantise(args.model, args.data, args.labels, methods, args.max_drop, args.wide, *say)
    write_atomic(args.output, result.chosen.model.SerializeToString(deterministic=True))
    show(args, _summary(result, args.output), _figures(result))
    return 0


def _say(trial: Trial) -> None:
    print(f"  {trial.way:44} {_words(trial.quality)}", flush=True)


def _words(q: Quality) -> str:
    return (f"{100 * q.accuracy:6.2f} %  " if q.accuracy is not None else "") + f"{q.sqnr:6.1f} dB"


def _summary(result: Quantised, output: Path) -> str:
    lines = [
        f"{output}: {result.chosen.way}; {result.calibrated} samples to calibrate, {result.judged} others to judge"
    ]
    if result.real.accuracy is not None:
        words = (
            f"  accuracy {100 * (result.chosen.quality.accuracy or 0):.2f} %, float {100 * result.real.accuracy:.2f} %"
        )
        lines.append(f"{words}: {result.drop:+.2f} points lost")
    lines.append(f"  signal to quantisation noise {result.chosen.quality.sqnr:.1f} dB")
    if result.chosen.wide:
        lines.append(f"  wide: {', '.join(result.chosen.wide)}")
    return "\n".join(lines) + "\n"


def _figures(result: Quantised) -> dict[str, Any]:
    def of(q: Quality) -> dict[str, Any]:
        return {"accuracy": q.accuracy, "snr_db": round(q.sqnr, 3)}

    trials = [{"way": t.way, **of(t.quality), "wide": list(t.wide)} for t in result.trials]
    return {
        "float": {"accuracy": result.real.accuracy},
        "chosen": {"way": result.chosen.way, **of(result.chosen.quality), "wide": list(result.chosen.wide)},
        "drop_points": round(result.drop, 4) if result.real.accuracy is not None else None,
        "samples": {"calibrated": result.calibrated, "judged": result.judged},
        "trials": trials,
    }
