"""The kernels that a program calls."""

from __future__ import annotations

from dlc_core.tir.functor import stmts_of
from dlc_core.tir.intrinsics import kernel_symbol
from dlc_core.tir.stmt import Eval, Stmt


def called_kernels(root: Stmt) -> list[str]:
    """The names of the PrimFuncs that the statement calls, each once, in the order of the calls."""
    found = (kernel_symbol(stmt.value) for stmt in stmts_of(root, Eval))
    return list(dict.fromkeys(symbol for symbol in found if symbol is not None))
