"""Tensor intrinsics for tile units, the matrix units of a single thread.

C[i, o] += A[i, s] * B[s // group, o * group + s % group]        summed over the steps s
"""

from __future__ import annotations

from functools import cache

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Expr, Var, cast_to, const, load, ramp
from dlc_core.schedule.intrin import Array, TensorIntrin, over_its_axes
from dlc_core.tir.intrinsics import vector_concat, vector_shuffle
from dlc_core.tir.matrix import MatrixUnit, matrix_product
from dlc_core.tir.stmt import Block, IterVar, Let, PrimFunc, Range, Region, Store, seq


def group_of(unit: MatrixUnit) -> int:
    """Neighbouring K steps that are contiguous in the second operand."""
    return dtype(unit.acc).bits // dtype(unit.a).bits


@cache
def tile_intrin(unit: MatrixUnit) -> TensorIntrin:
    """The intrinsic for a product by the tile unit of one thread."""
    buffers = _buffers(unit)
    return TensorIntrin(
        f"tile.{unit.name}",
        _description(unit, *buffers),
        _implementation(unit, *buffers),
        _reference,
        doc=f"{unit.m} x {unit.n} += products of {unit.a} and {unit.b}, {unit.k} deep",
    )


def _buffers(unit: MatrixUnit) -> tuple[Buffer, Buffer, Buffer]:
    group = group_of(unit)
    return (
        Buffer("A", (unit.m, unit.k), unit.a),
        Buffer("B", (unit.k // group, unit.n * group), unit.b),
        Buffer("C", (unit.m, unit.n), unit.acc, scope="local"),
    )


def _description(unit: MatrixUnit, a: Buffer, b: Buffer, c: Buffer) -> PrimFunc:
    group = group_of(unit)
    i, o, step = (Var(f"v{name}") for name in "ios")
    one_group = unit.k == group
    b_indices = (const(0), o * group + step) if one_group else (step // group, o * group + step % group)
    accesses: list[tuple[Buffer, tuple[Expr, ...]]] = [
        (a, (i, step)),
        (b, b_indices),
        (c, (i, o)),
    ]
    reads = tuple(Region.point(buffer, at) for buffer, at in accesses)
    one, other, total = (load(buffer, at) for buffer, at in accesses)
    value = total + cast_to(c.dtype, one) * cast_to(c.dtype, other)
    sizes = ((i, unit.m), (o, unit.n), (step, unit.k))
    axes = tuple(
        IterVar(var, Range(const(0), const(size)), "reduce" if var is step else "spatial")
        for var, size in sizes
    )
    loops = [Var(name) for name in "ios"]
    body = Block("tile", axes, tuple(loops), reads, reads[2:], Store(c, (i, o), value))
    return PrimFunc("tile", (a, b, c), over_its_axes(body))


def _implementation(unit: MatrixUnit, a: Buffer, b: Buffer, c: Buffer) -> PrimFunc:
    made = Var("sum", c.dtype.with_lanes(unit.m * unit.n))
    product = matrix_product(unit, _all_of(c), _all_of(a), _all_of(b))
    rows = [
        Store(c, (const(i), _along(unit.n)), _row(made, i, unit.n) if unit.m > 1 else made)
        for i in range(unit.m)
    ]
    return PrimFunc("tile", (a, b, c), Let(made, product, seq(*rows)))


def _row(values: Expr, number: int, size: int) -> Expr:
    return vector_shuffle(values, list(range(number * size, (number + 1) * size)))


def _all_of(buffer: Buffer) -> Expr:
    """Load all elements, row by row."""
    rows, columns = buffer.static_shape() or (0, 0)
    found = [load(buffer, (const(row), _along(columns))) for row in range(rows)]
    return vector_concat(*found) if rows > 1 else found[0]


def _along(size: int) -> Expr:
    return const(0) if size == 1 else ramp(const(0), const(1), size)


def _reference(a: Array, b: Array, c: Array) -> None:
    groups = b.reshape(len(b), c.shape[1], -1)
    right = groups.transpose(0, 2, 1).reshape(a.shape[1], c.shape[1])
    c += a.astype(c.dtype) @ right.astype(c.dtype)


__all__ = ["group_of", "tile_intrin"]
