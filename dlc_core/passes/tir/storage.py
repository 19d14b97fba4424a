"""Let temporaries with disjoint live ranges share memory.

The live range of a temporary goes from its first access to its last one. It includes every loop, inside its
allocation, that contains one of these. Temporaries with disjoint live ranges become views of one allocation.
A temporary that is computed element by element from another one may also take its memory, if the other one is
not read afterwards. Each element is then read directly before it is overwritten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from dlc_core.arith import Analyzer, detect_iter_map
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Const, Expr, Ramp, Var, const, const_value, free_vars, loads_in, substitute
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.effects import Memory
from dlc_core.schedule.tree import touched, with_children
from dlc_core.support.record import record
from dlc_core.tir.functor import child_stmts, exprs_of
from dlc_core.tir.stmt import Alloc, Block, For, PrimFunc, Stmt, Store, View, While

Path = tuple[Stmt, ...]
"""A statement with all around it, the outermost first."""


@dataclass
class _Temporary:
    """A temporary: its allocation, and the time for which it is needed."""

    path: Path
    begin: int = 1 << 60
    end: int = -1
    accesses: list[Path] = field(default_factory=list)

    @property
    def alloc(self) -> Alloc:
        stmt = self.path[-1]
        assert isinstance(stmt, Alloc)
        return stmt

    @property
    def buffer(self) -> Buffer:
        return self.alloc.buffer

    @property
    def elements(self) -> Expr:
        return self.buffer.num_elements()


class _Storage:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.memory = Memory(func.body)
        self.temporaries: dict[Buffer, _Temporary] = {}
        self.times: dict[Stmt, tuple[int, int]] = {}
        self.clock = 0
        self.visit(func.body, ())
        for temporary in self.temporaries.values():
            for path in temporary.accesses:
                begin, end = self.times[_outermost_loop(path, temporary.alloc) or path[-1]]
                temporary.begin, temporary.end = min(temporary.begin, begin), max(temporary.end, end)

    def visit(self, stmt: Stmt, around: Path) -> None:
        path = (*around, stmt)
        begin = self.clock
        self.clock += 1
        if isinstance(stmt, Alloc):
            self.temporaries[stmt.buffer] = _Temporary(path)
        if not isinstance(stmt, View):
            for buffer in touched(stmt):
                temporary = self.temporaries.get(self.memory.root(buffer))
                if temporary is not None:
                    temporary.accesses.append(path)
        for child in child_stmts(stmt):
            self.visit(child, path)
        self.times[stmt] = begin, self.clock
        self.clock += 1

    def rewritten(self) -> PrimFunc:
        """Return the program with fewer allocations."""
        groups = [group for group in self.groups() if len(group) > 1]
        windows: dict[Stmt, Buffer] = {}
        bases: dict[Stmt, list[Buffer]] = defaultdict(list)
        for group in groups:
            ancestor = _common_ancestor(group)
            largest = max(group, key=_size)
            align = max(temporary.buffer.align for temporary in group)
            if largest.alloc is ancestor and largest.buffer.align == align:
                base = largest.buffer
            else:
                base = Buffer(
                    largest.buffer.name,
                    (largest.elements,),
                    largest.buffer.dtype,
                    scope=largest.buffer.scope,
                    align=align,
                )
                bases[ancestor].append(base)
            windows.update((temporary.alloc, base) for temporary in group if temporary.buffer is not base)
        if not groups:
            return self.func
        body = _replaced(self.func.body, windows, bases)
        return replace(self.func, body=body)

    def groups(self) -> list[list[_Temporary]]:
        """Group the temporaries that share an allocation. Groups are in the order of their first use."""
        found: list[list[_Temporary]] = []
        for temporary in sorted(
            self.temporaries.values(), key=lambda temporary: (temporary.begin, temporary.end)
        ):
            if temporary.end < 0 or not self.is_sharable(temporary):
                continue
            fitting = [group for group in found if all(self.can_share(other, temporary) for other in group)]
            if fitting:
                size = _size(temporary)
                best = min(fitting, key=lambda group: abs(max(map(_size, group)) - size))
                best.append(temporary)
            else:
                found.append([temporary])
        return found

    def is_sharable(self, temporary: _Temporary) -> bool:
        """Whether a temporary may share memory. One with only constant indices is left to registers."""
        buffer = temporary.buffer
        if buffer.strides is not None or const_value(buffer.offset) != 0:
            return False
        if not set(free_vars(temporary.elements)) <= set(self.func.scalars):
            return False
        indices = [i for path in temporary.accesses for i in _access_indices(path[-1], buffer, self.memory)]
        return not all(map(_is_constant, indices))

    def can_share(self, first: _Temporary, second: _Temporary) -> bool:
        a, b = first.buffer, second.buffer
        if a.scope != b.scope or _memory_scope(first.path) is not _memory_scope(second.path):
            return False
        unknown = _bytes(a) is None or _bytes(b) is None
        if unknown and (first.elements is not second.elements or a.dtype.itemsize != b.dtype.itemsize):
            return False
        if first.end < second.begin or second.end < first.begin:
            return True
        return self.can_overwrite(first, second)

    def can_overwrite(self, first: _Temporary, second: _Temporary) -> bool:
        """Whether each element's last read of one temporary is in the store that first writes the other's."""
        paths = [p for p in second.accesses if self.times[p[-1]][0] <= first.end]
        if len(paths) != 1:
            return False
        (path,) = paths
        stmt = path[-1]
        start = _outermost_loop(path, second.alloc) or stmt
        begin, end = self.times[start]
        overlapping = [p for p in first.accesses if self.times[p[-1]][1] >= begin]
        if not isinstance(stmt, Store) or stmt.buffer is not second.buffer or len(overlapping) != 1:
            return False
        if overlapping[0][-1] is not stmt or first.end > end:
            return False
        if (_outermost_loop(path, first.alloc) or stmt) is not start:
            return False
        a, b = first.buffer, second.buffer
        if any(self.memory.root(x) in (a, b) and x not in (a, b) for x in touched(stmt)):
            return False
        same = a.dtype.itemsize == b.dtype.itemsize and a.ndim == b.ndim
        if not same or any(x is not y for x, y in zip(a.shape[1:], b.shape[1:], strict=True)):
            return False
        read = [e.indices for e in loads_in(*stmt.indices, stmt.value) if e.buffer is a]
        if any(e.buffer is b for e in loads_in(stmt.value)) or any(place != stmt.indices for place in read):
            return False
        inside = path[path.index(start) :]
        return _is_injective(stmt.indices, [s for s in inside if isinstance(s, (For, While))])


def _outermost_loop(path: Path, alloc: Alloc) -> Stmt | None:
    """Return the outermost loop around a statement, or the statement itself, inside of an allocation."""
    inside = path[path.index(alloc) + 1 :]
    return next((s for s in inside if isinstance(s, (For, While))), None)


def _memory_scope(path: Path) -> Stmt | None:
    """Return the innermost statement around an allocation whose executions have separate memory."""
    private = ("parallel", "thread", "vectorized")
    return next(
        (
            s
            for s in reversed(path[:-1])
            if isinstance(s, Block) or (isinstance(s, For) and s.kind in private)
        ),
        None,
    )


def _common_ancestor(group: Sequence[_Temporary]) -> Stmt:
    """Return the innermost statement that contains all allocations; it may be one of them."""
    first, *others = (temporary.path for temporary in group)
    length = min(
        next((k for k, (a, b) in enumerate(zip(first, path)) if a is not b), min(len(first), len(path)))
        for path in others
    )
    return first[length - 1]


def _bytes(buffer: Buffer) -> int | None:
    size = const_value(buffer.num_elements())
    return None if size is None else size * buffer.dtype.itemsize


def _size(temporary: _Temporary) -> int:
    """Return the bytes of a temporary; 0 if unknown."""
    return _bytes(temporary.buffer) or 0


def _access_indices(stmt: Stmt, buffer: Buffer, memory: Memory) -> list[Expr]:
    """Return the indices with which a statement accesses a buffer, or a window on it."""
    stores = [stmt.indices] if isinstance(stmt, Store) and memory.root(stmt.buffer) is buffer else []
    loads = [e.indices for e in loads_in(*exprs_of(stmt)) if memory.root(e.buffer) is buffer]
    return [index for indices in (*stores, *loads) for index in indices]


def _is_constant(index: Expr) -> bool:
    return isinstance(index.base if isinstance(index, Ramp) else index, Const)


def _is_injective(indices: Sequence[Expr], loops: Sequence[For | While]) -> bool:
    """Whether indices are injective over the iterations of loops and over lanes."""
    ranges: dict[Var, Expr] = {}
    begins: dict[Var, Expr] = {}
    analyzer = Analyzer()
    for s in loops:
        if isinstance(s, While) or s.var.dtype is not INDEX or loads_in(s.begin, s.extent):
            return False
        factors = [analyzer.coefficient_of(i, s.var) for i in indices if i.dtype is INDEX]
        backwards = any((const_value(f) or 0) < 0 for f in factors if f is not None)
        ranges[s.var] = s.extent
        begins[s.var] = s.begin + (s.extent - 1 - s.var if backwards else s.var)
    values = []
    for index in indices:
        if isinstance(index, Ramp):
            lane = Var("lane")
            ranges[lane] = const(index.lanes)
            index = index.base + index.stride * lane
        if index.dtype is not INDEX or loads_in(index):
            return False
        values.append(substitute(index, begins))
    if not ranges:
        return True
    found = detect_iter_map(values, ranges)
    return found is not None and found.injective


def _replaced(s: Stmt, windows: dict[Stmt, Buffer], bases: dict[Stmt, list[Buffer]]) -> Stmt:
    """Replace allocations by windows, and insert the new allocations around statements."""
    children = [_replaced(child, windows, bases) for child in child_stmts(s)]
    same = all(new is old for new, old in zip(children, child_stmts(s), strict=True))
    new = s if same else with_children(s, children)
    if s in windows:
        assert isinstance(s, Alloc)
        new = View(s.buffer, windows[s], children[0])
    for base in bases.get(s, ()):
        new = Alloc(base, new)
    return new


@record(frozen=True)
class StorageRewrite(PrimFuncPass):
    """Let temporaries with disjoint live ranges share memory, and compute elementwise results in place.

    The pass belongs after `unroll_loops`: temporaries with only constant indices are left to registers.

    Before:

        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
            s = T.alloc_buffer((64,), "float32")
            t = T.alloc_buffer((64,), "float32")
            u = T.alloc_buffer((32,), "int32")
            for i in range(64):
                s[i] = A[i] * T.float32(2.0)
            for i in range(64):
                t[i] = s[i] + T.float32(1.0)
            for i in range(64):
                B[i] = t[63 - i]
            for i in range(32):
                u[i] = T.cast(B[i], "int32")
            for i in range(32):
                B[31 - i] = T.cast(u[i], "float32")

    After:

        @T.prim_func
        def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
            s = T.alloc_buffer((64,), "float32")
            t = T.view(s, (64,), "float32")
            u = T.view(s, (32,), "int32")
            for i in range(64):
                s[i] = A[i] * T.float32(2.0)
            for i in range(64):
                t[i] = s[i] + T.float32(1.0)
            for i in range(64):
                B[i] = t[63 - i]
            for i in range(32):
                u[i] = T.cast(B[i], "int32")
            for i in range(32):
                B[31 - i] = T.cast(u[i], "float32")
    """

    name: ClassVar[str] = "storage_rewrite"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return _Storage(func).rewritten()


__all__ = ["StorageRewrite"]
