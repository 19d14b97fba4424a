"""Flatten multi-dimensional buffers: each access gets its simplified element offset as its only index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Const, Expr, Load, const, const_value, load, loads_in, transform
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.simplify import Simplify
from dlc_core.support.record import record
from dlc_core.tir.stmt import Block, PrimFunc, Stmt


def flatten_and_simplify(func: PrimFunc) -> PrimFunc:
    """Flatten buffers and simplify under the loops' ranges in one walk.

    Loops of one iteration are replaced by their body, empty loops are removed, and proved conditions are
    folded. Raises CodegenError for blocks, which have to be lowered before.
    """
    walker = _Flatten(func)
    params = tuple(walker.flat_buffer(p) if isinstance(p, Buffer) else p for p in func.params)
    return replace(func, params=params, body=walker.stmt(func.body))


class _Flatten(Simplify):
    def flat_buffer(self, buffer: Buffer) -> Buffer:
        found = self.buffers.get(buffer)
        if found is None:
            size = self.analyzer.simplify(self.substituted(extent_in_elements(buffer)))
            found = Buffer(
                buffer.name,
                (size,),
                buffer.dtype,
                scope=buffer.scope,
                offset=self.substituted(buffer.offset),
                align=buffer.align,
            )
            self.buffers[buffer] = found
            self.memory.alias(found, buffer)
        return found

    def buffer(self, buffer: Buffer) -> Buffer:
        return self.flat_buffer(buffer)

    def define_buffer(self, buffer: Buffer) -> None:
        """Create the flat buffer on the first visit."""

    def index(self, buffer: Buffer, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return (self.offset(buffer, [self.expr(i) for i in indices]),)

    def offset(self, buffer: Buffer, indices: Sequence[Expr]) -> Expr:
        """Return the element offset of an access. The flat buffer keeps the buffer's own offset."""
        total: Expr = const(0)
        for index, stride in zip(indices, buffer.element_strides(), strict=True):
            total = total + index.astype(INDEX.with_lanes(index.dtype.lanes)) * self.substituted(stride)
        return self.analyzer.simplify(total)

    def expr(self, e: Expr) -> Expr:
        def visit(x: Expr) -> Expr | None:
            if isinstance(x, Load):
                return load(self.flat_buffer(x.buffer), (self.offset(x.buffer, x.indices),))
            return None

        if isinstance(e, Const):
            return e
        e = self.substituted(e)
        return self.analyzer.simplify(transform(e, visit) if loads_in(e) else e)

    def block(self, s: Block) -> Stmt:
        raise CodegenError(f"block {s.name} has buffers of several dims", hint="run lower_blocks first")


def extent_in_elements(buffer: Buffer) -> Expr:
    """Return the number of elements from index zero to the last element."""
    if buffer.strides is None:
        return buffer.num_elements()
    if any(const_value(size) == 0 for size in buffer.shape):
        return const(0)
    last: Expr = const(0)
    for size, stride in zip(buffer.shape, buffer.strides, strict=True):
        last = last + (size - 1) * stride
    return last + 1


@record(frozen=True)
class FlattenBuffers(PrimFuncPass):
    """Flatten buffers to one dim, and simplify indices and conditions by the ranges of the loops.

    Before:

        @T.prim_func
        def f(A: T.Buffer((4, 8), "float32"), B: T.Buffer((8, 4), "float32")):
            for i, j in T.grid(4, 8):
                if i * 8 + j < 32:
                    B[j, i] = A[i, j]

    After:

        @T.prim_func
        def f(A: T.Buffer((32,), "float32"), B: T.Buffer((32,), "float32")):
            for i, j in T.grid(4, 8):
                B[j * 4 + i] = A[i * 8 + j]
    """

    name: ClassVar[str] = "flatten_buffers"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return flatten_and_simplify(func)


__all__ = ["FlattenBuffers", "flatten_and_simplify"]
