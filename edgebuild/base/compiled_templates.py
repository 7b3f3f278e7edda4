"""Templates as bytecode beside that of the package's modules: to compile those of a core takes half a second.

Python keeps the bytecode of a module in `__pycache__` and runs it when the module is imported next. Templates do the
same in the same folder, so whoever could change them could change the code itself. Python's own switches hold:
PYTHONPYCACHEPREFIX moves them, and with PYTHONDONTWRITEBYTECODE none are written.

Only what belongs to the same template, environment, Jinja and Python is read, and only if no byte of it is changed.
Where the folder cannot be written, templates are compiled each time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import sys
import tempfile
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

LENGTH = hashlib.sha256().digest_size


class CompiledTemplates(jinja2.BytecodeCache):
    """A file for each template: a digest, then the code. `environment`: the module that makes Jinja's environment."""

    def __init__(self, environment: Path) -> None:
        self.folder = Path(importlib.util.cache_from_source(str(environment))).parent
        self.made_with = f"{sys.version} {jinja2.__version__}".encode() + environment.read_bytes()

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            data = self._file(bucket).read_bytes()
        except OSError:
            return
        if data[:LENGTH] == self._digest(bucket, data[LENGTH:]):
            bucket.code = marshal.loads(data[LENGTH:])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a whole file or none, so that others may read and write meanwhile."""
        if sys.dont_write_bytecode:
            return
        code, file = marshal.dumps(bucket.code), self._file(bucket)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=".") as aside:
                (Path(aside) / file.name).write_bytes(self._digest(bucket, code) + code)
                os.replace(Path(aside) / file.name, file)
        except OSError:
            pass  # nobody may write there, or the disk is full

    def _file(self, bucket: Bucket) -> Path:
        return self.folder / f"template-{bucket.key}.{sys.implementation.cache_tag}.pyc"

    def _digest(self, bucket: Bucket, code: bytes) -> bytes:
        return hashlib.sha256(b"\0".join([self.made_with, bucket.checksum.encode(), code])).digest()
