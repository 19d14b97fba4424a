"""Calls from outside of Python to models whose inputs' elements tell sizes: the program that computes these.

    status, told dim 0, told dim 1, … = program(inputs that are read, dims of the inputs' shapes)

The status is 0, or -1 - k where condition k does not hold: that told dim k is within its bounds, at least not
negative, then the needs.
"""

from __future__ import annotations

import numpy as np

from dlc_core.ir.bounds import Bounds
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Expr, Var, cast_to, const, eq, free_vars, load, logical_and, substitute
from dlc_core.runtime.signature import Signature
from dlc_core.tir.stmt import If, PrimFunc, Stmt, Store, seq


def told_symbols(signature: Signature) -> tuple[Var, ...]:
    """Those of a signature's symbols that elements tell."""
    told = {var for var, _, _ in signature.told}
    return tuple(symbol for symbol in signature.symbols if symbol in told)


def given_symbols(signature: Signature) -> tuple[Var, ...]:
    """The other dims that a call is told by its inputs' shapes: symbols, and those that conditions need."""
    told = {var for var, _, _ in signature.told} | {var for var, _, _ in signature.elements}
    conditions = [expr for _, expr, _ in signature.told] + [need.expr() for need in signature.needs]
    return tuple(v for v in dict.fromkeys((*signature.symbols, *free_vars(*conditions))) if v not in told)


def read_inputs(signature: Signature) -> tuple[int, ...]:
    """The inputs whose elements are read, by index, ascending."""
    return tuple(sorted({index for _, index, _ in signature.elements}))


def in_bounds(var: Var, value: Expr) -> Expr:
    """Whether a dim may have a value: it is not negative, and within the bounds."""
    bounds = var.bounds or Bounds()
    found = value >= bounds.low
    return found if bounds.high is None else logical_and(found, value <= bounds.high)


def telling_program(name: str, signature: Signature) -> PrimFunc:
    """The program `name` over the inputs of `read_inputs`, the results (int64: the status, then the dims of
    `told_symbols`) and the dims of `given_symbols`.
    """
    values = [signature.inputs[index] for index in read_inputs(signature)]
    buffers = {
        index: Buffer(value.name, value.type.dim_exprs(), value.dtype)
        for index, value in zip(read_inputs(signature), values, strict=True)
    }
    symbols = told_symbols(signature)
    results = Buffer("results", (1 + len(signature.told),), INDEX)
    place = {var: 1 + k for k, var in enumerate(symbols)}
    others = (var for var, _, _ in signature.told if var not in place)
    place.update((var, 1 + len(symbols) + k) for k, var in enumerate(others))
    known: dict[Var, Expr] = {}
    for var, index, at in signature.elements:
        places = np.unravel_index(at, signature.inputs[index].type.static_shape() or ())
        indices = [const(int(i)) for i in places]
        known[var] = cast_to(var.dtype, load(buffers[index], indices))
    out: list[Stmt] = [Store(results, (const(0),), const(0))]
    conditions: list[Expr] = []
    for var, expr, _ in signature.told:
        out.append(Store(results, (const(place[var]),), substitute(expr, known)))
        known[var] = load(results, (const(place[var]),))
        conditions.append(in_bounds(var, known[var]))
    conditions += [substitute(need.expr(), known) for need in signature.needs]
    status = load(results, (const(0),))
    for k, condition in enumerate(conditions):
        failed = Store(results, (const(0),), const(-1 - k))
        out.append(If(logical_and(eq(status, 0), ~condition), failed))
    return PrimFunc(name, (*buffers.values(), results, *given_symbols(signature)), seq(*out))


__all__ = ["given_symbols", "in_bounds", "read_inputs", "telling_program", "told_symbols"]
