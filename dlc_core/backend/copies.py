"""Kernels in languages with asynchronous copies from global to shared memory.

Copies complete at the next barrier. Copies in a batch complete at the barrier that waits for this batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from math import prod

from dlc_core.arith import compile_exprs
from dlc_core.backend.kernels import KernelWriter, Shared
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    Broadcast,
    Call,
    Const,
    Expr,
    Load,
    Var,
    const,
    const_value,
    free_vars,
    logical_and,
    substitute,
)
from dlc_core.target.source import TensorCopies
from dlc_core.target.source.expression import neighbours
from dlc_core.target.source.scalars import ADD
from dlc_core.tir.functor import exprs_of, loads_in, stmts, stmts_of
from dlc_core.tir.intrinsics import BARRIERS, BULK
from dlc_core.tir.matrix import operands
from dlc_core.tir.stmt import PrimFunc, Store
from dlc_core.tir.tensor_copy import bulk_copies, tensor_copy_of
from dlc_core.tir.threads import THREAD, axes_in, is_shared


class CopyWriter(KernelWriter):
    """Writes kernels with asynchronous copies and tensor copies."""

    def kernel(self, func: PrimFunc, symbol: str) -> str:
        """The text of a PrimFunc that is one launch."""
        self._filled = _common(func) if self.words.copies is not None else set()
        self._waits = any(map(self._is_copy, stmts_of(func.body, Store)))
        for one in map(tensor_copy_of, bulk_copies(func.body)):
            if one.tensor not in self.tensors:
                self.tensors[one.tensor] = self.names.fresh("tensor"), one
        if self.tensors:
            self._declare_barriers()
        return super().kernel(func, symbol)

    # Tensor copies

    @property
    def _tensor_copies(self) -> TensorCopies:
        if self.words.tensor_copies is None:
            raise CodegenError(f"{self.unit.dialect.name} has no tensor copies")
        return self.words.tensor_copies

    def first_parameters(self) -> list[str]:
        """The parameters with the descriptors of tensors."""
        return [self._tensor_copies.tensor.format(name=name) for name, _ in self.tensors.values()]

    def _declare_barriers(self) -> None:
        count = self._tensor_copies.count
        self._barriers, self._committed, self._completed = map(
            self.names.fresh, ("barriers", "committed", "completed")
        )
        self.line(f"{self._tensor_copies.declare.format(barriers=self._barriers, count=count)};")
        self.line(f"unsigned {self._committed} = 0, {self._completed} = 0;")
        self.line(f"{self._tensor_copies.begin.format(barriers=self._barriers, count=count)};")
        self.shared.append(Shared(self._barriers, 8 * count))

    def _barrier(self, number: str) -> str:
        """The pointer to the barrier word of a batch of copies; `number` is its index."""
        return f"{self._barriers} + {number} % {self._tensor_copies.count}"

    def _copy_tensor(self, call: Call) -> None:
        one = tensor_copy_of(call)
        start = one.to.linear_index(one.at)
        self.prepare(start, *one.first)
        text = self._tensor_copies.copy.format(
            rank=len(one.box),
            # Boxes begin at multiples of the swizzle period, so their address needs no permutation.
            to=f"{self.pointers[one.to]} + {self.text.number(start, ADD + 1)}",
            tensor=self.tensors[one.tensor][0],
            first=", ".join(self.text.number(at) for at in reversed(one.first)),
            barrier=self._barrier(self._committed),
            bytes=math.prod(one.box) * one.to.dtype.itemsize,
        )
        self.line(f"{text};")

    def _commit_tensor_copies(self) -> None:
        self.line(f"{self._tensor_copies.end.format(barrier=self._barrier(self._committed))};")
        self.line(f"++{self._committed};")

    def _wait_for_tensor_copies(self, groups: int) -> None:
        counter, maximum = self._completed, self._tensor_copies.count
        if groups >= maximum:
            raise CodegenError(
                f"{groups + 1} batches of tensor copies are in flight; at most {maximum} may be"
            )
        parity = f"{counter} / {self._tensor_copies.count} % 2"
        last = f"{counter} + {groups}" if groups else counter
        with self.block(f"for (; {last} < {self._committed}; ++{counter})"):
            self.line(f"{self._tensor_copies.wait.format(barrier=self._barrier(counter), parity=parity)};")

    # Copies by threads

    def visit_store(self, stmt: Store) -> None:
        if not self._is_copy(stmt):
            super().visit_store(stmt)
            return
        cond, value = _guarded(stmt.value)
        assert isinstance(value, Load)
        lanes = value.dtype.lanes
        to = _start(stmt.buffer, stmt.indices, lanes)
        source = _start(value.buffer, value.indices, lanes)
        assert to is not None
        assert source is not None
        self.text.named = {}
        self.prepare(to, source, *([] if cond is None else [cond]))
        at, start = self.text.address(stmt.buffer, to), self.text.address(value.buffer, source)
        size, copies = stmt.buffer.dtype.itemsize * lanes, self.words.copies
        assert copies is not None
        if cond is None:
            self.line(copies.copy.format(bytes=size, to=at, source=start) + ";")
        else:
            condition = self.text.value(cond)
            self.line(copies.guarded.format(bytes=size, to=at, source=start, cond=condition) + ";")
        self.text.named = {}

    def _is_copy(self, stmt: Store) -> bool:
        """Whether a store is a copy from global to shared memory that may be asynchronous."""
        if stmt.buffer not in self._filled:
            return False
        cond, value = _guarded(stmt.value)
        if not isinstance(value, Load) or value.buffer.scope != "global":
            return False
        if cond is not None and (self.words.copies is None or not self.words.copies.guarded):
            return False
        lanes = value.dtype.lanes
        starts = [_start(each.buffer, each.indices, lanes) for each in (stmt, value)]
        is_vector = lanes == 1 or all(
            start is not None and self._is_vector_access(value.dtype, lanes, start) for start in starts
        )
        copies = self.words.copies
        return is_vector and copies is not None and stmt.buffer.dtype.itemsize * lanes in copies.bytes

    def effect(self, value: Call) -> None:
        if value.name == BULK:
            self._copy_tensor(value)
            return
        if value.name == "barrier" and self.tensors:
            self._commit_tensor_copies()  # ends the copies that are in no batch, too
        if value.name in BARRIERS:
            self.before_barrier(*(int(const_value(arg) or 0) for arg in value.args))
        elif value.name == "copies_end" and self._waits and self.words.copies is not None:
            self.line(f"{self.words.copies.commit};")
        if value.name == "copies_end" and self.tensors:
            self._commit_tensor_copies()
        super().effect(value)

    def before_barrier(self, groups: int = 0, steps: int = 0) -> None:
        """Emit the statements before a barrier.

        The last `groups` batches of copies, and products that matrix units began at most `steps` barriers
        ago, may stay in flight.
        """
        copies = self.words.copies
        if self._waits and copies is not None:
            has_wait = groups in copies.groups
            self.line(f"{copies.wait_but.format(groups=groups) if has_wait else copies.wait};")
        if self.tensors:
            self._wait_for_tensor_copies(groups)


def _guarded(value: Expr) -> tuple[Expr | None, Expr]:
    """The condition of a value that is a load or zero, and the load. The condition is None for a
    plain load.
    """
    conds: list[Expr] = []
    copied = value
    while isinstance(copied, Call) and copied.name == "if_then_else":
        cond, other = (e.value if isinstance(e, Broadcast) else e for e in (copied.args[0], copied.args[2]))
        zero = isinstance(other, Const) and other.value == 0 and math.copysign(1, other.value) == 1
        if not zero or cond.dtype.lanes != 1:
            return None, value
        conds += [cond] if const_value(cond) != 1 else []
        copied = copied.args[1]
    return logical_and(*conds) if conds else None, copied


def _start(buffer: Buffer, indices: Sequence[Expr], lanes: int) -> Expr | None:
    """The offset of the first element of a vector access; None if it is not contiguous."""
    return buffer.linear_index(indices) if lanes == 1 else neighbours(buffer, indices)


def _common(func: PrimFunc) -> set[Buffer]:
    """The shared arrays in which each element that is read is read by several threads.

    Most of these threads read an element that another thread has written, so there is a barrier between the
    write and the read, at which a copy can be waited for. A thread that only reads elements that it wrote
    needs no barrier.
    """
    threads = {axis.var: axis.extent for axis in axes_in(func.body, THREAD)}
    found: dict[Buffer, bool] = {}
    multiplied = {load for value in operands(func.body).values() for load in loads_in(value)}
    for stmt in stmts(func.body):
        for load in loads_in(*exprs_of(stmt)):
            if is_shared(load.buffer) and found.get(load.buffer, True):
                # Fragments are spread over the vectors that several threads have copied.
                found[load.buffer] = load in multiplied or _several(load, threads)
    return {buffer for buffer, common in found.items() if common}


def _several(load: Load, threads: dict[Var, Expr]) -> bool:
    """Whether several threads of a group read the same elements of a buffer."""
    start = _start(load.buffer, load.indices, load.dtype.lanes)
    if start is None:
        return False
    others = {var: const(0, var.dtype) for var in free_vars(start) if var not in threads}
    own = [var for var in free_vars(start) if var in threads]
    counts = compile_exprs([threads[var] for var in threads], [])()
    extents = dict(zip(threads, counts, strict=True))
    points = compile_exprs([substitute(start, others)], own)
    read = {points(*at)[0] for at in product(*(range(extents[var]) for var in own))}
    return 2 * len(read) <= prod(extents.values())


__all__ = ["CopyWriter"]
