"""Calls of functions: the kernels that a program calls, and calls of functions outside of the module."""

from __future__ import annotations

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DTypeLike
from dlc_core.ir.expr import Expr, ExprLike, as_expr, call
from dlc_core.tir.functor import stmts_of
from dlc_core.tir.intrinsics import EXTERN, PURE_EXTERN, STATUS, address_of, kernel_symbol
from dlc_core.tir.stmt import Eval, Stmt


def called_kernels(root: Stmt) -> list[str]:
    """The names of the PrimFuncs that the statement calls, each once, in the order of the calls."""
    found = (kernel_symbol(stmt.value) for stmt in stmts_of(root, Eval))
    return list(dict.fromkeys(symbol for symbol in found if symbol is not None))


def call_extern(name: str, *args: Buffer | ExprLike, dtype_: DTypeLike = STATUS) -> Expr:
    """A call of a foreign function (`dlc_core.foreign`), or of one that the target knows by its symbol.
    Buffers are passed by address.

    Under `Eval` it is called for its side effect.
    """
    exprs = [address_of(a) if isinstance(a, Buffer) else as_expr(a) for a in args]
    return call(EXTERN + name, exprs, dtype_)


def call_pure_extern(name: str, *args: ExprLike, dtype_: DTypeLike) -> Expr:
    """A call of a foreign function that is declared as pure. It takes values, and may be in expressions."""
    return call(PURE_EXTERN + name, [as_expr(a) for a in args], dtype_)


__all__ = ["call_extern", "call_pure_extern", "called_kernels"]
