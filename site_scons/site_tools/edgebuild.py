"""The tool as SCons loads it: a file of this name in a folder of its tool path."""

import sys
from pathlib import Path

# While SCons loads a tool, this module has the name of the package, and this folder is first on the search path. Both
# would hide the package. SCons restores the path afterwards.
del sys.modules["edgebuild"]
sys.path = [folder for folder in sys.path if Path(folder) != Path(__file__).parent]

from edgebuild.build.scons import exists, generate  # noqa: E402, F401
