"""Tensor intrinsics for the dot-product instructions of a target's description.

C[l] += A[j] * B[l * group + j]          for each lane l, summed over the group's elements j
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, cast_to, const, load, ramp
from dlc_core.schedule.intrin import Array, TensorIntrin, over_its_axes
from dlc_core.target.description import Dot
from dlc_core.tir.intrinsics import vector_dot
from dlc_core.tir.stmt import Block, IterVar, PrimFunc, Range, Region, Store


def dot_intrin(dot: Dot, lanes: int, scope: str = "global") -> TensorIntrin:
    """The intrinsic for a dot product of `lanes` lanes, a power of two up to the lanes of the instruction.

    `scope` is that of the buffers that hold both operands.
    """
    return _made(Dot(dot.a, dot.b, dot.acc, dot.group, lanes), scope)  # costs do not matter


@cache
def _made(dot: Dot, scope: str) -> TensorIntrin:
    lanes = dot.lanes
    name = f"dot.{dot.a}.{dot.b}.{dot.acc}.{lanes}x{dot.group}"
    buffers = _buffers(dot, lanes, scope)
    return TensorIntrin(
        name if scope == "global" else f"{name}.{scope}",
        _description(dot, *buffers),
        _implementation(*buffers),
        _reference,
        doc=f"{lanes} sums of {dot.group} products of {dot.a} and {dot.b} in {dot.acc}",
    )


def dot_intrins(dot: Dot, scope: str = "global") -> Iterator[TensorIntrin]:
    """Yield the intrinsics for all numbers of lanes."""
    lanes = dot.lanes
    while lanes:
        yield dot_intrin(dot, lanes, scope)
        lanes //= 2


def _buffers(dot: Dot, lanes: int, scope: str) -> tuple[Buffer, Buffer, Buffer]:
    return (
        Buffer("A", (dot.group,), dot.a, scope=scope),
        Buffer("B", (lanes * dot.group,), dot.b, scope=scope),
        Buffer("C", (lanes,), dot.acc, scope="local"),
    )


def _description(dot: Dot, a: Buffer, b: Buffer, c: Buffer) -> PrimFunc:
    lane, element = Var("vl"), Var("vj")
    product = cast_to(c.dtype, load(a, (element,))) * cast_to(c.dtype, load(b, (lane * dot.group + element,)))
    regions = [(a, element), (b, lane * dot.group + element), (c, lane)]
    reads = tuple(Region(buffer, (Range(index, const(1)),)) for buffer, index in regions)
    axes = (
        IterVar(lane, Range(const(0), const(dot.lanes))),
        IterVar(element, Range(const(0), const(dot.group)), "reduce"),
    )
    loops = [Var("l"), Var("j")]
    body = Block("dot", axes, tuple(loops), reads, reads[2:], Store(c, (lane,), load(c, (lane,)) + product))
    return PrimFunc("dot", (a, b, c), over_its_axes(body))


def _implementation(a: Buffer, b: Buffer, c: Buffer) -> PrimFunc:
    def all_of(buffer: Buffer) -> Expr:
        return load(buffer, _all_elements(buffer))

    return PrimFunc("dot", (a, b, c), Store(c, _all_elements(c), vector_dot(all_of(c), all_of(a), all_of(b))))


def _all_elements(buffer: Buffer) -> tuple[Expr]:
    """The index of all elements of a buffer of one dim."""
    shape = buffer.static_shape()
    assert shape is not None
    return (const(0) if shape[0] == 1 else ramp(const(0), const(1), shape[0]),)


def _reference(a: Array, b: Array, c: Array) -> None:
    groups = b.reshape(c.size, a.size).astype(c.dtype)
    c += np.sum(groups * a.astype(c.dtype), axis=1, dtype=c.dtype)


__all__ = ["dot_intrin", "dot_intrins"]
