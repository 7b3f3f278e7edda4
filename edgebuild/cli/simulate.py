"""`edgebuild simulate`: run a program of an RV32IMC core with XpulpV2, for targets whose runner this is."""

from __future__ import annotations

import argparse
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("encoding", choices=("corev", "gap8"), help="of XpulpV2: CV32E40P 1.x, or RI5CY as in GAP8")
    parser.add_argument("program", type=Path, metavar="ELF", help="the program, whose file calls see this folder")
    parser.add_argument("--cores", type=int, default=1, metavar="N", help="of a PULP cluster: 1 to 16 (default: 1)")


def run(args: argparse.Namespace) -> int:
    import subprocess
    import sys
    import tempfile

    from edgebuild.base.errors import fail
    from edgebuild.base.programs import together
    from edgebuild.model.verify.harness import xpulp_simulator

    if not args.program.is_file():
        raise fail("no such program", file=str(args.program))
    with tempfile.TemporaryDirectory(prefix="edgebuild-simulate-") as name:
        simulator = xpulp_simulator(Path(name))
        sys.stdout.flush()
        with together() as start:
            program = start([simulator, args.encoding, args.program, str(args.cores)], stdin=subprocess.DEVNULL)
            return int(program.wait())
