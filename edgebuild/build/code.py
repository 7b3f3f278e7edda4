"""`python -m edgebuild.build.code STAMP`: the rule of a CMake build that checks the code of a checkout for changes.

Beside STAMP it writes `code.sha256`, a digest of the code, and `code.d`, which lists all files. So one rule of a build
checks them for all of its models and drivers.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ..base.artifacts import Artifact, publish
from ..base.depfile import cmake_depfile
from ..base.errors import EdgebuildError
from ..base.own_code import code_digest, code_files


def main(stamp: Path) -> int:
    began = time.time_ns()
    rule = os.fsencode(cmake_depfile(str(stamp), code_files()))
    try:
        publish([Artifact("code.sha256", f"{code_digest()}\n".encode()), Artifact("code.d", rule)], stamp.parent)
        publish([Artifact(stamp.name, b"")], stamp.parent)
    except EdgebuildError as error:
        print(error, file=sys.stderr)
        return 1
    os.utime(stamp, ns=(began, began))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
