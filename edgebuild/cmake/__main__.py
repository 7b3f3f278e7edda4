"""`python -m edgebuild.cmake TARGET [DIR]`: what toolchain.cmake asks about a target.

Prints JSON for CMake's `string(JSON)`, and writes the generated linker script of bare firmware into DIR.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from edgebuild.artifacts import publish
from edgebuild.errors import EdgebuildError
from edgebuild.firmware import describe, firmware_support
from edgebuild.target import load_target


def main(name: str, folder: str = "") -> int:
    try:
        target = load_target(name)
        if folder:
            publish(firmware_support(target), Path(folder))
        print(json.dumps(describe(target)))
    except EdgebuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
