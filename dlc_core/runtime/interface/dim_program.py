"""The program that computes host-computed dims for callers outside of Python.

    status, computed dim 0, computed dim 1, … = program(inputs that are read, dims of the inputs' shapes)

The status is 0, or -1 - k if condition k does not hold.  The conditions are first that each computed dim is
within its bounds and not negative, then those of the signature.  If the caller knows all dims, a program over
these alone checks the conditions:

    status = program(dims)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core.ir.bounds import Bounds
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.conditions import Condition
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Expr, Var, cast_to, const, eq, free_vars, load, logical_and, substitute
from dlc_core.runtime.interface.signature import Signature
from dlc_core.tir.stmt import If, PrimFunc, Stmt, Store, seq


def data_symbols(signature: Signature) -> tuple[Var, ...]:
    """The host-computed symbols of a signature."""
    computed = {var for var, _, _ in signature.data_dims}
    return tuple(symbol for symbol in signature.symbols if symbol in computed)


def given_symbols(signature: Signature) -> tuple[Var, ...]:
    """The dims that a call reads from its inputs' shapes: symbols, and those in conditions."""
    computed = {var for var, _, _ in signature.data_dims} | {var for var, _, _ in signature.elements}
    conditions = [expr for _, expr, _ in signature.data_dims] + [
        condition.expr() for condition in signature.conditions
    ]
    return tuple(v for v in dict.fromkeys((*signature.symbols, *free_vars(*conditions))) if v not in computed)


def read_inputs(signature: Signature) -> tuple[int, ...]:
    """The inputs whose elements are read, by index, ascending."""
    return tuple(sorted({index for _, index, _ in signature.elements}))


def in_bounds(var: Var, value: Expr) -> Expr:
    """The condition that the value of a dim is not negative and within its bounds."""
    bounds = var.bounds or Bounds()
    found = value >= bounds.low
    return found if bounds.high is None else logical_and(found, value <= bounds.high)


def dim_program(name: str, signature: Signature) -> PrimFunc:
    """The program `name` over the inputs of `read_inputs`, the results (int64: the status, then the dims of
    `data_symbols`) and the dims of `given_symbols`.
    """
    values = [signature.inputs[index] for index in read_inputs(signature)]
    buffers = {
        index: Buffer(value.name, value.type.dim_exprs(), value.dtype)
        for index, value in zip(read_inputs(signature), values, strict=True)
    }
    symbols = data_symbols(signature)
    results = Buffer("results", (1 + len(signature.data_dims),), INDEX)
    others = [var for var, _, _ in signature.data_dims if var not in symbols]
    result_index = {var: 1 + k for k, var in enumerate((*symbols, *others))}
    known: dict[Var, Expr] = {}
    for var, index, at in signature.elements:
        shape = signature.inputs[index].type.static_shape() or ()
        indices = [const(int(i)) for i in np.unravel_index(at, shape)]
        known[var] = cast_to(var.dtype, load(buffers[index], indices))
    out: list[Stmt] = [Store(results, (const(0),), const(0))]
    conditions: list[Expr] = []
    for var, expr, _ in signature.data_dims:
        out.append(Store(results, (const(result_index[var]),), substitute(expr, known)))
        known[var] = load(results, (const(result_index[var]),))
        conditions.append(in_bounds(var, known[var]))
    conditions += [substitute(condition.expr(), known) for condition in signature.conditions]
    out += _checks(results, conditions)
    return PrimFunc(name, (*buffers.values(), results, *given_symbols(signature)), seq(*out))


def conditions_on_symbols(signature: Signature) -> tuple[Condition, ...]:
    """The conditions whose dims are all symbols of the signature."""
    known = set(signature.symbols)
    return tuple(c for c in signature.conditions if known.issuperset(c.dims))


def condition_program(name: str, signature: Signature) -> PrimFunc:
    """The program `name` over the status (int64) and the dims of the signature's symbols."""
    status = Buffer("status", (1,), INDEX)
    checks = _checks(status, [condition.expr() for condition in conditions_on_symbols(signature)])
    body = seq(Store(status, (const(0),), const(0)), *checks)
    return PrimFunc(name, (status, *signature.symbols), body)


def _checks(results: Buffer, conditions: Sequence[Expr]) -> list[Stmt]:
    """Set the status to -1 - k for the first condition k that does not hold.

    Later conditions are not computed, because they may divide by a value that condition k checks.
    """
    no_error = eq(load(results, (const(0),)), 0)
    return [
        If(no_error, If(~condition, Store(results, (const(0),), const(-1 - k))))
        for k, condition in enumerate(conditions)
    ]


__all__ = [
    "condition_program",
    "conditions_on_symbols",
    "data_symbols",
    "dim_program",
    "given_symbols",
    "in_bounds",
    "read_inputs",
]
