"""`python -m edgebuild.build.cmake TARGET [DIR]`: the facts about a target for toolchain.cmake.

Prints JSON for CMake's `string(JSON)`, and writes the generated linker script of bare-metal firmware into DIR.
`python -m edgebuild.build.cmake --options` regenerates EdgeBuildOptions.cmake from the table of options.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ...base.artifacts import publish, write_atomic
from ...base.errors import EdgebuildError
from ...base.options import options_of
from ...base.request import CLOCK_OUTPUTS, KINDS
from ...base.target import describe, firmware_support, load_target

OPTIONS_FILE = Path(__file__).with_name("EdgeBuildOptions.cmake")


def options_text() -> str:
    """The options and the products of every kind of request, as properties in CMake's language."""
    lines = ["# Written by `python -m edgebuild.build.cmake --options`. Options are sorted, as in the request."]
    files, lists = [], []
    for kind, request in KINDS.items():
        options = sorted(options_of(request).items())
        names = " ".join(name.upper() for name, _ in options)
        lines.append(f"set_property(GLOBAL PROPERTY EDGEBUILD_{kind.upper()}_OPTIONS {names})")
        files += [f"{name.upper()}={p}" for name, o in options if o.kind.is_file for p in o.kind.prefixes]
        lists += [f"{name.upper()}={o.kind.separator}" for name, o in options if o.kind.separator]
        if request.SUFFIXES:
            suffixes = " ".join(request.SUFFIXES)
            lines.append(f"set_property(GLOBAL PROPERTY EDGEBUILD_{kind.upper()}_SUFFIXES {suffixes})")
    lines.append(f"set_property(GLOBAL PROPERTY EDGEBUILD_CLOCK_OUTPUTS {' '.join(CLOCK_OUTPUTS)})")
    lines.append("# OPTION=separator of an option that has a list of values.")
    quoted = " ".join(f'"{item}"' for item in dict.fromkeys(lists))
    lines.append(f"set_property(GLOBAL PROPERTY EDGEBUILD_LIST_OPTIONS {quoted})")
    lines.append("# OPTION=prefix of a value that goes on with the path of a file.")
    lines.append(f'set_property(GLOBAL PROPERTY EDGEBUILD_FILE_OPTIONS "{"|".join(dict.fromkeys(files))}")')
    return "\n".join([*lines, ""])


def main(name: str, folder: str = "") -> int:
    try:
        if name == "--options":
            write_atomic(OPTIONS_FILE, options_text().encode())
            return 0
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
