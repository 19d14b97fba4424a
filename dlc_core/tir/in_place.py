"""Inputs of a kernel that may share memory with its outputs.

An output may be written over an input if every element is read only by the store that writes the same
element. This holds for pointwise kernels, and for operands of the epilogue of a GEMM or convolution. The
conditions are checked for kernels in their final form, with flat buffers:

* all reads of the input are in values of stores to the output, at the index of the store;
* the output is read nowhere, and no more elements are written than it has.  As a kernel writes all of them,
  each is written once.

A workspace, the last of a kernel's buffers, is neither input nor output: it has memory only while the kernel
runs.
"""

from __future__ import annotations

from collections import defaultdict

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, const_value, loads_in, post_order
from dlc_core.tir.functor import child_stmts, exprs_of
from dlc_core.tir.stmt import For, PrimFunc, Stmt, Store, View, While

OVERWRITES = "overwrites"
"""Attribute of PrimFuncs: pairs (input, output) of buffers, by their indices, that may be one memory."""


def overwritable(func: PrimFunc) -> tuple[tuple[int, int], ...]:
    """Pairs of buffer indices (input, output) that may share memory."""
    sizes = [(buffer.dtype, const_value(buffer.num_elements())) for buffer in func.buffers]
    if all(size is None or sizes.count((kind, size)) == 1 for kind, size in sizes):
        return ()
    return _Scan(func).pairs()


def shared_buffers(func: PrimFunc) -> frozenset[Buffer]:
    """The parameters whose memory may be shared with another parameter."""
    return frozenset(func.buffers[index] for pair in func.attrs.get(OVERWRITES, ()) for index in pair)


class _Scan:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.params = frozenset(func.buffers)
        self.non_workspace = func.buffers[: len(func.buffers) - func.attrs.get("workspaces", 0)]
        self.bad: set[Buffer] = set()
        """Parameters with an access that violates the conditions."""
        self.read_by: dict[Buffer, set[Buffer]] = defaultdict(set)
        self.writes: dict[Buffer, int | None] = defaultdict(int)
        self.visit(func.body, 1)

    def pairs(self) -> tuple[tuple[int, int], ...]:
        buffers = self.non_workspace
        found = []
        first = next((i for i, b in enumerate(buffers) if b in self.writes), 0)
        for index, source in enumerate(buffers[:first]):  # a result that is not written is no input
            outputs = self.read_by[source]
            if len(outputs) != 1 or source in self.bad or source in self.writes:
                continue
            (output,) = outputs
            if output not in buffers or output in self.bad:
                continue
            count, elements = self.writes[output], const_value(output.num_elements())
            if count is None or elements is None or count > elements:
                continue
            if const_value(source.num_elements()) == elements and source.dtype is output.dtype:
                found.append((index, buffers.index(output)))
        return tuple(found)

    def visit(self, root: Stmt, times: int | None) -> None:
        """Scan the statements in order of execution; `times` is the number of executions of `root`."""
        work = [(root, times)]
        while work:
            stmt, times = work.pop()
            if isinstance(stmt, Store):
                self._store(stmt, times)
                continue
            for expr in exprs_of(stmt):
                self._exclude(expr)
            match stmt:
                case View() if stmt.base in self.params:
                    self.bad.add(stmt.base)
                case For():
                    extent = const_value(stmt.extent)
                    times = None if times is None or extent is None else times * extent
                case While():
                    times = None
            work += [(child, times) for child in reversed(child_stmts(stmt))]

    def _store(self, stmt: Store, times: int | None) -> None:
        known = self.writes[stmt.buffer]
        lanes = stmt.value.dtype.lanes
        self.writes[stmt.buffer] = None if known is None or times is None else known + times * lanes
        for index in stmt.indices:
            self._exclude(index)
        loads = [load for load in loads_in(stmt.value) if load.buffer in self.params]
        for load in loads:
            self.read_by[load.buffer].add(stmt.buffer)
            if load.indices != stmt.indices:
                self.bad.add(load.buffer)
        # Only loads that are at the right index can still be excluded.
        if any(load.buffer not in self.bad for load in loads):
            for expr in post_order(stmt.value):
                if isinstance(expr, Call) and expr.name == "address_of":
                    self._exclude(expr)

    def _exclude(self, expr: Expr) -> None:
        """Record parameters that an expression reads, or whose address it takes."""
        self.bad.update(load.buffer for load in loads_in(expr))


__all__ = ["OVERWRITES", "overwritable", "shared_buffers"]
