"""The reads and writes of a block's statements, as regions over its axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlc_core.arith.analyzer import Analyzer
from dlc_core.arith.sets import IntSet, set_of, union
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import (
    Call,
    Expr,
    Load,
    Ramp,
    Var,
    const,
    free_vars,
    loads_in,
    maximum,
    minimum,
    post_order,
    substitute,
)
from dlc_core.tir.functor import child_stmts, exprs_of, stmts
from dlc_core.tir.stmt import Alloc, Block, Eval, For, IterVar, Let, Range, Region, Stmt, Store, View

Regions = tuple[Region, ...]


def access_regions(axes: Sequence[IterVar], body: Stmt, init: Stmt | None = None) -> tuple[Regions, Regions]:
    """(reads, writes) of a block: one rectangular region for each buffer, in the order of first access.

    A region covers all accesses in inner loops and blocks. If its bounds are unknown, it is the whole buffer.
    Buffers that are allocated inside are omitted. So is the read of a reduction's accumulator, because only
    the written element is read.
    """
    return _Accesses(axes).regions([s for s in (init, body) if s is not None])


class _Accesses:
    def __init__(self, axes: Sequence[IterVar]) -> None:
        self.az = Analyzer()
        for dim in free_vars(*(e for a in axes for e in (a.dom.begin, a.dom.extent))):
            self._declare(dim)
        for axis in axes:
            if axis.var.dtype is INDEX:
                self.az.bind(axis.var, axis.dom.begin, axis.dom.extent)
        self.inner: list[Var] = []
        self.unknown: set[Var] = set()
        self.lets: dict[Var, Expr] = {}
        self.local: set[Buffer] = set()
        self.views: dict[Buffer, Buffer] = {}
        self.reads: dict[Buffer, list[Region]] = {}
        self.writes: dict[Buffer, list[Region]] = {}

    def _declare(self, dim: Var) -> None:
        if dim.dtype is INDEX:
            self.az.declare_dim(dim)

    def regions(self, parts: Iterable[Stmt]) -> tuple[Regions, Regions]:
        parts = list(parts)
        for part in parts:
            for stmt in stmts(part):
                match stmt:
                    case Alloc():
                        self.local.add(stmt.buffer)
                    case View():
                        self.views[stmt.buffer] = stmt.base
        for part in parts:
            self._visit(part)
        written = {(b, r.ranges) for b, regions in self.writes.items() for r in regions}
        reads = {b: rs for b, rs in self.reads.items() if not all((b, r.ranges) in written for r in rs)}
        return self._unions(reads), self._unions(self.writes)

    def _unions(self, found: dict[Buffer, list[Region]]) -> Regions:
        return tuple(self._union(buffer, regions) for buffer, regions in found.items())

    def _visit(self, root: Stmt) -> None:
        work: list[Stmt] = [root]
        while work:
            stmt = work.pop()
            match stmt:
                case Block():
                    self._nested(stmt)
                    continue
                case For():
                    self._bind(stmt.var, stmt.begin, stmt.extent)
                case Let():
                    self.lets[stmt.var] = substitute(stmt.value, self.lets)
                case Eval():
                    self._add_addresses(stmt.value)
            if not stmt.bound_buffers():
                for load in loads_in(*exprs_of(stmt)):
                    self._add(self.reads, load.buffer, [Range(i, const(1)) for i in load.indices])
            if isinstance(stmt, Store):
                self._add(self.writes, stmt.buffer, [Range(i, const(1)) for i in stmt.indices])
            work.extend(reversed(child_stmts(stmt)))

    def _add_addresses(self, value: Expr) -> None:
        """Record the buffers whose address is passed to a function, which may read and write all their
        elements."""
        for e in post_order(value):
            if isinstance(e, Call) and e.name == "address_of":
                for load in loads_in(*e.args):
                    for table in (self.reads, self.writes):
                        self._add(table, load.buffer, Region.whole(load.buffer).ranges)

    def _nested(self, block: Block) -> None:
        """Record the declared regions of an inner block, over its own axes."""
        for load in loads_in(*block.values):
            self._add(self.reads, load.buffer, [Range(i, const(1)) for i in load.indices])
        values = {a.var: substitute(v, self.lets) for a, v in zip(block.axes, block.values, strict=True)}
        for table, regions in ((self.reads, block.reads), (self.writes, block.writes)):
            for region in regions:
                ranges = [
                    Range(substitute(r.begin, values), substitute(r.extent, values)) for r in region.ranges
                ]
                self._add(table, region.buffer, ranges)

    def _bind(self, var: Var, begin: Expr, extent: Expr) -> None:
        ends = [substitute(e, self.lets) for e in (begin, extent)]
        if var.dtype is not INDEX or loads_in(*ends) or any(v in self.unknown for v in free_vars(*ends)):
            self.unknown.add(var)
        else:
            for dim in free_vars(*ends):
                if dim not in self.inner and self.az.const_bounds(dim)[0] < 0:
                    self._declare(dim)
            self.az.bind(var, *ends)
            self.inner.append(var)

    def _add(self, table: dict[Buffer, list[Region]], buffer: Buffer, ranges: Sequence[Range]) -> None:
        if buffer in self.views:
            while buffer in self.views:
                buffer = self.views[buffer]
            ranges = Region.whole(buffer).ranges
        if buffer in self.local:
            return
        box = tuple(self._bounded(r, dim) for r, dim in zip(ranges, buffer.shape, strict=True))
        known = table.setdefault(buffer, [])
        if not any(region.ranges == box for region in known):
            known.append(Region(buffer, box))

    def _bounded(self, given: Range, dim: Expr) -> Range:
        """A range that covers the given one for all values of the variables inside the block."""
        begin, extent = (substitute(e, self.lets) for e in (given.begin, given.extent))
        parts = [begin]
        if isinstance(begin, Ramp):
            parts = [begin.base, begin.base + begin.stride * (begin.lanes - 1)]
        known = [self._covering(part, extent) for part in parts]
        found = [r for r in known if r is not None]
        return self._joined(found) if len(found) == len(parts) else Range(const(0, dim.dtype), dim)

    def _covering(self, begin: Expr, extent: Expr) -> Range | None:
        used = free_vars(begin, extent)
        if loads_in(begin, extent) or isinstance(begin, Load) or any(v in self.unknown for v in used):
            return None
        varying = [v for v in used if v in self.inner]
        if not varying:
            return Range(begin, extent)
        if begin.dtype is not INDEX or extent.dtype is not INDEX:
            return None
        low, end = set_of(self.az, begin, varying).low, set_of(self.az, begin + extent, varying).high
        return None if low is None or end is None else Range(low, self.az.simplify(end - low))

    def _joined(self, ranges: Sequence[Range]) -> Range:
        if len(ranges) == 1:
            return ranges[0]
        if any(r.begin.dtype is not INDEX or r.extent.dtype is not INDEX for r in ranges):
            begin, end = ranges[0].begin, ranges[0].begin + ranges[0].extent
            for r in ranges[1:]:
                begin, end = minimum(begin, r.begin), maximum(end, r.begin + r.extent)
            return Range(begin, end - begin)
        found = union(self.az, [IntSet.of(r.begin, r.extent) for r in ranges])
        assert found.low is not None
        assert found.high is not None
        return Range(found.low, self.az.simplify(found.high - found.low + 1))

    def _union(self, buffer: Buffer, regions: Sequence[Region]) -> Region:
        columns = zip(*(r.ranges for r in regions), strict=True)
        return Region(buffer, tuple(self._joined(list(column)) for column in columns))
