"""edgebuild: neural networks and register drivers as build inputs of firmware.

Kept empty on purpose: the command's no-change path imports this package.
"""

__version__ = "0.1.0"
