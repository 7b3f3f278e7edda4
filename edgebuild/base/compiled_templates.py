"""Templates as bytecode, kept in the folder of compiled models: to compile those of a core takes half a second.

Only what belongs to the same template, environment, Jinja and Python is read, and only if no byte of it is changed.
Without such a folder, or where it cannot be written, templates are compiled each time.
"""

from __future__ import annotations

import hashlib
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

    def __init__(self, folder: Path, environment: Path) -> None:
        self.folder = folder
        self.made_with = f"{sys.version} {jinja2.__version__}".encode() + environment.read_bytes()

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            data = (self.folder / bucket.key).read_bytes()
        except OSError:
            return
        if data[:LENGTH] == self._digest(bucket, data[LENGTH:]):
            bucket.code = marshal.loads(data[LENGTH:])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a whole file or none, so that others may read and write meanwhile."""
        code = marshal.dumps(bucket.code)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder, prefix=".") as aside:
                (Path(aside) / bucket.key).write_bytes(self._digest(bucket, code) + code)
                os.replace(Path(aside) / bucket.key, self.folder / bucket.key)
        except OSError:
            pass  # nobody may write there, or the disk is full

    def _digest(self, bucket: Bucket, code: bytes) -> bytes:
        return hashlib.sha256(b"\0".join([self.made_with, bucket.checksum.encode(), code])).digest()
