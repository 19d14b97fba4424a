"""The inverse of bijective bindings: from the values back to the loops."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.arith.analyzer import Analyzer
from dlc_core.arith.iter_map import IterMap, IterMark, IterSum
from dlc_core.diag import UsageError
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import Expr, ExprLike, Var, as_expr, const, free_vars


def inverse_iter_map(found: IterMap, outputs: Sequence[ExprLike]) -> dict[Var, Expr]:
    """The loop variables as expressions of `outputs`, which are the values of the bindings in order.

    A loop of one iteration is omitted because no binding uses it; its variable is 0. Raises UsageError if the
    bindings are not bijective.

    >>> from dlc_core.arith.iter_map import detect_iter_map
    >>> i, j, y = Var("i"), Var("j"), Var("y")
    >>> inverse_iter_map(detect_iter_map([i * 8 + j], {i: 4, j: 8}), [y])
    {j: y % 8, i: y // 8}
    """
    if not found.bijective:
        raise UsageError("these bindings have no inverse", why="they are not bijective")
    if len(outputs) != len(found.sums):
        raise UsageError(f"{len(found.sums)} bindings have as many values, not {len(outputs)}")
    analyzer = Analyzer()
    values = [as_expr(value) for value in outputs]
    for symbol in free_vars(
        *(total.base for total in found.sums), *(e for e in found.extents if e is not None)
    ):
        if symbol.dtype is not BOOL:
            analyzer.declare_dim(symbol)
    for total, extent, value in zip(found.sums, found.extents, values, strict=True):
        if isinstance(value, Var) and extent is not None:
            analyzer.bind(value, total.base, extent)
    gathered: dict[IterMark, Expr] = {}
    for total, value in zip(found.sums, values, strict=True):
        _gather(total, value, gathered, analyzer)
    loops: dict[Var, Expr] = {}
    for mark in _topological_order(found.sums):
        value = analyzer.simplify(gathered[mark])
        if isinstance(mark.source, Var):
            loops[mark.source] = analyzer.simplify(value + mark.begin)
        else:
            _gather(mark.source, value, gathered, analyzer)
    return loops


def _gather(total: IterSum, value: Expr, gathered: dict[IterMark, Expr], analyzer: Analyzer) -> None:
    """Add to each mark the digits that the sum determines."""
    rest = analyzer.simplify(value - total.base)
    for split in total.splits:
        # Simplification drops the remainder of the largest digit if the value's range is known.
        digit = rest // split.scale % split.extent
        gathered[split.mark] = gathered.get(split.mark, const(0)) + digit * split.lower


def _topological_order(sums: Sequence[IterSum]) -> list[IterMark]:
    """Topological order: a mark follows all marks whose source has digits of it."""
    done: dict[IterMark, None] = {}

    def visit(mark: IterMark) -> None:
        if mark not in done:
            if isinstance(mark.source, IterSum):
                for split in mark.source.splits:
                    visit(split.mark)
            done[mark] = None

    for total in sums:
        for split in total.splits:
            visit(split.mark)
    return list(reversed(done))
