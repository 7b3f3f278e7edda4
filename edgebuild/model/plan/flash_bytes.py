"""Bytes of flash that a plan takes, roughly: of kernels with their constants, and of the orders and calls of rows."""

from __future__ import annotations

from ..kernels.code_bytes import OF_CALL, code_bytes
from .search import Plan
from .thrift import flash_of, kernels_of


def code(found: Plan) -> int:
    """Bytes of code of a plan: kernels, and a call for each op."""
    kernels = kernels_of(found.graph, found.steps)
    return code_bytes(kernels, found.graph.arithmetic, found.form) + OF_CALL * len(kernels)


def flash(found: Plan) -> int:
    """Bytes of constants and code of a plan."""
    return flash_of(found.graph, found.steps, found.form)
