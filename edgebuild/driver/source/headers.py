"""Folders of headers that libclang reads beside the user's: a compiler's, a C library's, a C++ library's."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


def builtin_headers() -> list[str]:
    """`-isystem` of some compiler's freestanding headers: the library comes without."""
    found = sorted(Path("/usr/lib").glob("llvm-*/lib/clang/*/include/stddef.h"))
    found += sorted(Path("/usr/lib").glob("clang/*/include/stddef.h"))
    found += sorted(Path("/usr/lib/gcc").glob("*/*/include/stddef.h"))
    return ["-isystem", str(found[0].parent)] if found else []


# Where C libraries have their headers, for the triples that drivers are read as.
LIBRARIES = {
    "thumb": ("/usr/lib/arm-none-eabi/include", "/usr/arm-none-eabi/include"),
    "riscv": ("/usr/lib/picolibc/riscv64-unknown-elf/include", "/usr/riscv64-unknown-elf/include"),
}


def library_headers(triple: str) -> list[str]:
    """`-isystem` of the C library that belongs to the triple, where one is installed."""
    places = (p for start, paths in LIBRARIES.items() if triple.startswith(start) for p in paths)
    found = next((p for p in places if Path(p).is_dir()), None)
    return ["-isystem", found] if found else []


COMPILERS = {"thumb": "arm-none-eabi-g++", "riscv": "riscv64-unknown-elf-g++"}


@cache
def standard_headers(triple: str) -> tuple[str, ...]:
    """`-isystem` of the C++ standard library that the target's compiler has, where there is one."""
    import shutil  # late: C does without
    import subprocess

    compiler = next((shutil.which(c) for start, c in COMPILERS.items() if triple.startswith(start)), None)
    if compiler is None:
        return ()
    command = [compiler, "-x", "c++", "-E", "-v", os.devnull]
    said = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL).stderr
    places = (line.strip() for line in said.splitlines() if line.startswith(" /"))
    return tuple(word for p in places if "c++" in Path(p).parts for word in ("-isystem", os.path.normpath(p)))
