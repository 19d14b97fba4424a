"""Proofs, from the code of an entry alone, that values which are live at the same time are disjoint in the
arena.

The proofs do not use the memory plan, so they also check it. A value is a window on the arena together with
all windows on it: parts of a concatenation that are computed in place, and views in another shape. It is live
from the first step that mentions it to the last one; a branch or a loop is one step. Values that are live at
the same time must have disjoint bytes. The only exception is a kernel that writes an output over an input
that ends with it, which the kernel must allow (`tir.in_place`). Parts of one value that different steps write
must be disjoint too.

For symbolic sizes, offsets and sizes are expressions. If a proof fails, it becomes a condition on sizes that
the entry tests, unless some sizes refute it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise

from dlc_core.arith import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.conditions import EQUAL, Condition
from dlc_core.ir.expr import (
    Call,
    Expr,
    Load,
    Var,
    const,
    const_value,
    post_order,
    substitute,
)
from dlc_core.passes.heuristics import MEMORY
from dlc_core.passes.tir.bounds.proof import Access, Proof
from dlc_core.passes.tir.bounds.prover import extent_in_bytes
from dlc_core.support.record import record
from dlc_core.tir.functor import exprs_of, stmts, stmts_of
from dlc_core.tir.in_place import OVERWRITES
from dlc_core.tir.intrinsics import kernel_symbol
from dlc_core.tir.sizes import SIZES
from dlc_core.tir.stmt import Eval, PrimFunc, Seq, Stmt, Store, View


@record(frozen=True)
class _Extent:
    """Bytes of the arena, [begin, end), and their values at the sample sizes.

    An empty tensor with strides ends before it begins. `ordered` means that this cannot happen.
    """

    begin: Expr
    end: Expr
    sample_begin: int
    sample_end: int
    ordered: bool


@record(frozen=True, eq=False)
class _Value:
    """A window on the arena, and the first and last step of its live range."""

    view: View
    extent: _Extent
    first: int
    last: int


_Entry = tuple[int, int, int, _Value]
"""The begin and end of a value at the sample sizes, its number, and the value."""


def prove_disjoint(
    func: PrimFunc,
    arena: Buffer,
    functions: Mapping[str, object],
    *,
    always_live: Collection[Buffer] = (),
    written: Collection[Buffer] = (),
    conditions: Sequence[Condition] = (),
    versions: Collection[Buffer] = (),
) -> Proof:
    """Prove that pairs of values are disjoint.

    `always_live` are windows on the arena that are live throughout. `written` are those that steps write to.
    `conditions` are those that callers' sizes satisfy. A pair without a proof has a condition on sizes, or
    None if it overlaps for sizes that callers may pass. `versions` are new values in the memory of inputs,
    one over the other (see `versions`); they are not checked here.
    """
    separate = frozenset(written).difference(versions)
    return _Checker(func, arena, functions, always_live, separate, conditions).run()


class _Checker:
    def __init__(
        self,
        func: PrimFunc,
        arena: Buffer,
        functions: Mapping[str, object],
        always_live: Collection[Buffer],
        written: frozenset[Buffer],
        conditions: Sequence[Condition],
    ) -> None:
        self.func, self.arena, self.functions = func, arena, functions
        self.always_live, self.written = always_live, written
        self.views = {s.buffer: s for s in stmts_of(func.body, View)}
        self.proof = Proof()
        self.dims = Analyzer()
        for scalar in func.scalars:
            if scalar.dtype.is_int:
                self.dims.declare_dim(scalar, low=0)
        self.dims.add_assumptions(*(size >= 0 for size in func.attrs.get(SIZES, ())))
        self.constants = _fixed_dims(func.scalars, conditions)
        self.sample = _sample(func.scalars, conditions)
        sizes = (size >= 0 for size in func.attrs.get(SIZES, ()))
        self.possible = all(
            const_value(self.dims.simplify(substitute(e, self.sample))) == 1
            for e in (*sizes, *(condition.expr() for condition in conditions))
        )
        """Whether callers may have the sizes of the sample."""
        self.extents: dict[tuple[Expr, Expr], _Extent] = {}
        self.disjoint_memo: dict[tuple[_Extent, _Extent], bool] = {}

    def run(self) -> Proof:
        steps = list(steps_in(self.func.body))
        values = self._values(steps)
        active: list[_Entry] = []
        unordered: list[_Entry] = []
        ends: list[tuple[int, int, _Entry]] = []
        for number, value in enumerate(sorted(values, key=lambda value: value.first)):
            while ends and ends[0][0] < value.first:
                entry = heappop(ends)[2]
                (active if entry[-1].extent.ordered else unordered).remove(entry)
            entry = value.extent.sample_begin, value.extent.sample_end, number, value
            candidates = unordered
            if value.extent.ordered:
                # Active extents are sorted and disjoint, so that only the neighbours can overlap.
                index = bisect_left(active, entry)
                candidates = [*active[max(index - 1, 0) : index + 1], *candidates]
            else:
                candidates = [*active, *candidates]
            for *_, other in candidates:
                self._check_pair(other, value, steps)
            insort(active if value.extent.ordered else unordered, entry)
            heappush(ends, (value.last, number, entry))
        self._check_parts()
        return self.proof

    def _values(self, steps: Sequence[Stmt]) -> list[_Value]:
        """Return the non-empty values in the arena that any step uses."""
        live_ranges: dict[Buffer, tuple[int, int]] = {}
        for number, step in enumerate(steps):
            for buffer in buffers_used(step):
                root = self._root(buffer)
                if root is not None:
                    live_ranges[root] = live_ranges.get(root, (number, number))[0], number
        live_ranges.update({buffer: (-1, len(steps)) for buffer in self.always_live if buffer in self.views})
        made = [
            _Value(self.views[root], self._extent(root), first, last)
            for root, (first, last) in live_ranges.items()
        ]
        return [value for value in made if value.extent.begin is not value.extent.end]

    def _root(self, buffer: Buffer) -> Buffer | None:
        """Return the window on the arena that contains a buffer."""
        while (view := self.views.get(buffer)) is not None:
            if view.base is self.arena:
                return buffer
            buffer = view.base
        return None

    def _extent(self, buffer: Buffer) -> _Extent:
        begin, end = extent_in_bytes(buffer)
        found = self.extents.get((begin, end))
        if found is None:
            key = begin, end
            if const_value(begin) is None or const_value(end) is None:
                begin, end = (self.dims.simplify(substitute(e, self.constants)) for e in key)
                found = self.extents.get((begin, end))
            if found is None:
                ordered = self.dims.prove(begin <= end)
                found = _Extent(begin, end, self._at_sample(begin), self._at_sample(end), ordered)
                self.extents[begin, end] = found
            self.extents[key] = found
        return found

    def _at_sample(self, e: Expr) -> int:
        value = const_value(e)
        if value is None:
            value = const_value(self.dims.simplify(substitute(e, self.sample)))
        return 0 if value is None else int(value)

    # Values

    def _check_pair(self, one: _Value, other: _Value, steps: Sequence[Stmt]) -> None:
        """Prove that two values with overlapping live ranges are disjoint; `other` becomes live later."""
        if self._is_in_place(one, other, steps):
            self.proof.proved += 1
            return
        self._require_disjoint(
            other.view,
            one.extent,
            other.extent,
            lambda: f"{other.view.buffer!r} overlaps {one.view.buffer!r}, which is live",
        )

    def _require_disjoint(self, stmt: View, a: _Extent, b: _Extent, about: Callable[[], str]) -> None:
        low, high = (a, b) if (a.sample_begin, a.sample_end) <= (b.sample_begin, b.sample_end) else (b, a)
        found = self.disjoint_memo.get((low, high))
        if found is None:
            found = self.dims.prove(low.end <= high.begin)
            if not found and not (low.ordered and high.ordered):
                found = self.dims.prove(high.end <= low.begin)
            self.disjoint_memo[low, high] = found
        if found:
            self.proof.proved += 1
            return
        condition = (a.end <= b.begin) | (b.end <= a.begin)
        for each in (a, b):
            condition = condition if each.ordered else condition | (each.end <= each.begin)
        when: Expr | None = condition
        certain = self.possible or all(const_value(e) is not None for e in (a.begin, a.end, b.begin, b.end))
        empty = any(each.sample_begin >= each.sample_end for each in (low, high))
        if certain and low.sample_end > high.sample_begin and not empty:
            when = None  # they overlap for sizes that callers may pass
        why = f"{about()}: bytes {a.begin} to {a.end}, and {b.begin} to {b.end}"
        self.proof.open.append(Access(stmt, "places", stmt.buffer, (), (), why, when))

    def _is_in_place(self, one: _Value, other: _Value, steps: Sequence[Stmt]) -> bool:
        """Whether the kernel with the last read of one value may write the other one in place."""
        if one.last != other.first or one.extent is not other.extent:
            return False
        step = steps[one.last]
        call = step.value if isinstance(step, Eval) else None
        if not isinstance(call, Call):
            return False
        callee = self.functions.get(kernel_symbol(call) or "")
        if not isinstance(callee, PrimFunc):
            return False
        arguments = [passed_buffer(arg) for arg in call.args]
        roots = [None if buffer is None else self._root(buffer) for buffer in arguments]
        allowed = callee.attrs.get(OVERWRITES, ())
        for source, output in allowed:
            ends = arguments[source], arguments[output]
            if (roots[source], roots[output]) == (one.view.buffer, other.view.buffer) and None not in ends:
                extents = [self._extent(buffer) for buffer in ends if buffer is not None]
                only_use = roots.count(roots[source]) == roots.count(roots[output]) == 1
                return only_use and extents[0] is extents[1]
        return False

    # Parts of values

    def _check_parts(self) -> None:
        """Check that the parts of one buffer that steps write are disjoint."""
        parts: defaultdict[Buffer, list[View]] = defaultdict(list)
        for buffer, view in self.views.items():
            if buffer in self.written and view.base is not self.arena:
                parts[view.base].append(view)
        for base, views in parts.items():
            if self._follow_each_other(views):
                self.proof.proved += len(views) * (len(views) - 1) // 2
                continue
            for number, one in enumerate(views):
                for other in views[:number]:
                    if _disjoint_in_pieces(one.buffer, other.buffer, base):
                        self.proof.proved += 1
                        continue
                    about = "{!r} and {!r} are parts of {!r}".format
                    self._require_disjoint(
                        one,
                        self._extent(other.buffer),
                        self._extent(one.buffer),
                        partial(about, one.buffer, other.buffer, base),
                    )

    def _follow_each_other(self, views: Sequence[View]) -> bool:
        """Whether each part ends before the next one begins, so that all pairs are disjoint.

        This takes one proof per part instead of one per pair.
        """
        extents = [self._extent(view.buffer) for view in views]
        if not all(extent.ordered for extent in extents):
            return False
        extents.sort(key=lambda extent: (extent.sample_begin, extent.sample_end))
        return all(self.dims.prove(one.end <= other.begin) for one, other in pairwise(extents))


def _fixed_dims(dims: Sequence[Var], conditions: Sequence[Condition]) -> dict[Var, Expr]:
    """Return the dims that the conditions on callers' sizes fix to a constant."""
    return {
        one: other
        for condition in conditions
        for one, other in ((condition.left, condition.right), (condition.right, condition.left))
        if condition.kind == EQUAL and isinstance(one, Var) and one in dims and const_value(other) is not None
    }


def _sample(dims: Sequence[Var], conditions: Sequence[Condition]) -> dict[Var, Expr]:
    """Return a sample size for each dim that satisfies the required equalities."""
    found: dict[Var, Expr] = {v: const(_sample_of(v, i)) for i, v in enumerate(dims)}
    for condition in conditions:
        for one, other in ((condition.left, condition.right), (condition.right, condition.left)):
            if condition.kind == EQUAL and isinstance(one, Var) and one in found:
                found[one] = substitute(other, found)
                break
    return found


def _sample_of(var: Var, index: int) -> int:
    """Return a sample size for a dim within its bounds, different for each index."""
    size = MEMORY.sampled_dim + 2 * index
    if var.bounds is None:
        return size
    high = size if var.bounds.high is None else var.bounds.high
    return max(var.bounds.low, min(size, high))


def steps_in(root: Stmt) -> Iterator[Stmt]:
    """Yield the statements of an entry in order. Control flow counts as one statement."""
    work = [root]
    while work:
        stmt = work.pop()
        match stmt:
            case View():
                work.append(stmt.body)
            case Seq():
                work += reversed(stmt.stmts)
            case _:
                yield stmt


def buffers_used(step: Stmt) -> Iterator[Buffer]:
    """Yield the buffers that a step reads, writes or passes on. A buffer may occur several times."""
    for stmt in stmts(step):
        if isinstance(stmt, Store):
            yield stmt.buffer
        for e in exprs_of(stmt):
            for part in post_order(e):
                if isinstance(part, Load):
                    yield part.buffer


def passed_buffer(arg: Expr) -> Buffer | None:
    """The buffer whose address an argument of a kernel call is."""
    if isinstance(arg, Call) and arg.name == "address_of" and isinstance(arg.args[0], Load):
        return arg.args[0].buffer
    return None


def _disjoint_in_pieces(one: Buffer, other: Buffer, base: Buffer) -> bool:
    """Whether two parts of a buffer are disjoint within each row, or within each plane.

    If all outer strides are multiples of one stride, this stride divides memory into equal pieces. The parts
    have the same offsets in each piece, so that comparing them in one piece suffices.
    """
    found = [_layout(buffer, base) for buffer in (one, other)]
    if found[0] is None or found[1] is None:
        return False
    (a_begin, a_steps, a_sizes), (b_begin, b_steps, b_sizes) = found[0], found[1]
    if a_steps != b_steps:
        return False
    for axis in range(1, len(a_steps)):
        piece = a_steps[axis - 1]
        if piece <= 0 or any(step % piece for step in a_steps[:axis]):
            continue
        inner = a_steps[axis:]
        a_size, b_size = (
            1 + sum((n - 1) * step for n, step in zip(sizes[axis:], inner, strict=True))
            for sizes in (a_sizes, b_sizes)
        )
        a, b = a_begin % piece, b_begin % piece
        if max(a + a_size, b + b_size) <= piece and (a + a_size <= b or b + b_size <= a):
            return True
    return False


def _layout(buffer: Buffer, base: Buffer) -> tuple[int, list[int], list[int]] | None:
    """Return the offset of a part in a whole, its strides and its sizes, in elements.

    The outermost size may be symbolic; it is then 0. None if any other number is symbolic.
    """
    begin = const_value(Analyzer().simplify(buffer.offset - base.offset))
    steps = [const_value(step) for step in buffer.element_strides()]
    sizes = [const_value(size) for size in buffer.shape]
    if begin is None or None in steps or None in sizes[1:] or not sizes:
        return None
    return int(begin), [int(s) for s in steps if s is not None], [int(n or 0) for n in sizes]


__all__ = ["buffers_used", "passed_buffer", "prove_disjoint", "steps_in"]
