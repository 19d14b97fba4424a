"""Tensor intrinsics by which neighbouring threads of a subgroup reduce their values; all threads get the
result.

    B[i, r] = op over l of A[i, l]          threads i * lanes + r: each has an element of both

The threads exchange values over distances that double in each step (butterfly).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, as_expr, binary, const, load
from dlc_core.schedule.intrin import Array, TensorIntrin, over_its_axes
from dlc_core.tir.intrinsics import intrinsic
from dlc_core.tir.stmt import Block, IterVar, Let, PrimFunc, Range, Region, Stmt, Store, loop

IDENTITY = {"max": -np.inf, "add": 0.0}
"""The operations with their neutral values."""


@cache
def lanes_intrin(op: str, width: int, lanes: int, axis: str, dtype: str = "float32") -> TensorIntrin:
    """Return the reduction over `lanes` neighbouring threads of a subgroup of `width` threads along `axis`.

    `op` is "max" or "add", of floats.  Raises UsageError if `lanes` is not a power of two, or does not divide
    the subgroup.
    """
    if op not in IDENTITY or lanes < 1 or lanes & (lanes - 1) or width % lanes:
        raise UsageError(f"{lanes} of {width} threads have no {op!r} together")
    shape = (width // lanes, lanes)

    def buffers() -> tuple[Buffer, Buffer]:
        return tuple(Buffer(name, shape, dtype, scope="local") for name in "AB")  # type: ignore[return-value]

    def described() -> PrimFunc:
        a, b = buffers()
        i, r, x = (Var(name) for name in ("vi", "vr", "vx"))
        sizes = (*shape, lanes)
        reads, writes = (
            (Region(of, tuple(Range(at, const(1)) for at in indices)),)
            for of, indices in ((a, (i, x)), (b, (i, r)))
        )
        axes = tuple(
            IterVar(var, Range(const(0), const(size)), kind)
            for var, size, kind in zip((i, r, x), sizes, ("spatial", "spatial", "reduce"), strict=True)
        )
        loops = [Var(name) for name in "irx"]
        value = binary(op, load(b, (i, r)), load(a, (i, x)))
        init = Store(b, (i, r), const(IDENTITY[op], dtype))
        body = Block("together", axes, tuple(loops), reads, writes, Store(b, (i, r), value), init)
        return PrimFunc("together", (a, b), over_its_axes(body))

    def made() -> PrimFunc:
        a, b = buffers()
        lane = Var("lane")
        indices = (lane // lanes, lane % lanes)
        steps: list[tuple[Var, Expr]] = []
        value: Expr = load(a, indices)
        away = 1
        while away < lanes:
            one = Var("known", a.dtype)
            steps.append((one, value))
            value = binary(op, one, intrinsic("subgroup_shuffle_xor", one, as_expr(away), as_expr(lanes)))
            away *= 2
        body: Stmt = Store(b, indices, value)
        for var, known in reversed(steps):
            body = Let(var, known, body)
        return PrimFunc("together", (a, b), loop(lane, width, body, "thread", thread=axis))

    def reference(a: Array, b: Array) -> None:
        b[:] = (np.max if op == "max" else np.sum)(a, axis=1, keepdims=True)

    name = f"lanes.{op}.{dtype}.{lanes}of{width}.{axis}"
    return TensorIntrin(name, described(), made(), reference, doc=f"the {op} of {lanes} neighbours, for each")


def lanes_intrins(width: int, axis: str) -> Iterator[TensorIntrin]:
    """Yield all such intrinsics for subgroups along an axis."""
    for op, power in product(IDENTITY, range(width.bit_length())):
        if width % (1 << power) == 0:
            yield lanes_intrin(op, width, 1 << power, axis)


__all__ = ["IDENTITY", "lanes_intrin", "lanes_intrins"]
