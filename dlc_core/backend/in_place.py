"""Kernels whose matrix units read operands in shared memory (`MatrixUnit.in_place`).

The program loads a fragment of an operand for each thread. The text instead passes the address of the tile,
which the unit reads asynchronously. Consecutive products are issued without waiting. Threads wait for them
before a barrier, because memory may be overwritten after it, and before accumulators are used. In a software
pipeline with `copies_barrier` the memory is not overwritten so early, so products may overlap those of the
next iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dlc_core.arith import Analyzer, compile_exprs
from dlc_core.backend.fragments import FragmentWriter
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, Load, Var, const, free_vars, substitute
from dlc_core.target.source import InPlace
from dlc_core.target.source.scalars import ADD
from dlc_core.tir.functor import exprs_of, loads_in, stmts, stmts_of
from dlc_core.tir.matrix import MATRIX, Fragment, MatrixUnit, operands, products, strip_reinterpret
from dlc_core.tir.stmt import Eval, For, If, Let, PrimFunc, Stmt, Store, View
from dlc_core.tir.threads import SWIZZLED, SWIZZLED_ROW, level


class InPlaceWriter(FragmentWriter):
    """Writes kernels with products that read shared memory."""

    def kernel(self, func: PrimFunc, symbol: str) -> str:
        """The text of a PrimFunc that is one launch."""
        self._tiles: dict[Var, tuple[Buffer, Sequence[Expr]]] = {}
        """Operands in shared memory: the buffer, and the offset of each element of a thread's fragment."""
        found = {var for var, value in operands(func.body).items() if _scope(value) == SWIZZLED}
        calls = [c for c in products(func.body) if strip_reinterpret(c.args[1]) in found]
        self._read = found
        self._added = list(dict.fromkeys(load.buffer for c in calls for load in loads_in(c.args[0])))
        """The accumulators of products that read shared memory."""
        self._stores = any(s.buffer.scope == SWIZZLED for s in stmts_of(func.body, Store))
        """Whether threads write shared memory that units read, so that fences are needed."""
        self._inside = self._running = False
        return super().kernel(func, symbol)

    @property
    def _words(self) -> InPlace:
        if self._matrices.in_place is None:
            raise CodegenError(f"{self.unit.dialect.name} has no products of matrices in shared memory")
        return self._matrices.in_place

    # Waits and fences

    def stmt(self, stmt: Stmt) -> None:
        """Write a statement, with the waits and fences that running products require around it."""
        while self._added and isinstance(stmt, (Let, View)) and not self._inside:
            if self._only_multiplies(stmt):
                break
            if self._touches(stmt):
                self._wait()
            stmt = self.visit_let(stmt) if isinstance(stmt, Let) else self.visit_view(stmt)
        if self._inside or not self._added:
            super().stmt(stmt)
        elif self._only_multiplies(stmt):
            self._around(self._words.begin)
            self._inside = True
            super().stmt(stmt)
            self._inside = False
            self.line(f"{self._words.commit};")
            self._running = True
        elif isinstance(stmt, If):
            if any(map(self._touches, stmts(stmt))) and not any(map(self._multiplies, stmts(stmt))):
                self._wait()  # outside of the branch, where all threads wait
            before = self._running
            super().stmt(stmt)
            self._running = self._running or before
        else:
            if isinstance(stmt, For) and not level(stmt) and any(map(self._multiplies, stmts(stmt))):
                self._running = True
            if self._touches(stmt):
                self._wait()
            super().stmt(stmt)

    def before_barrier(self, groups: int = 0, steps: int = 0) -> None:
        """Emit the statements before a barrier."""
        if self._added and steps == 1 and self._running:
            self._around(self._words.wait_but)
        elif self._added:
            self._wait()
        super().before_barrier(groups, steps)
        if self._added and self._stores:
            self.line(f"{self._words.fence};")

    def _wait(self) -> None:
        if self._running:
            self._around(self._words.wait)
            self._running = False

    def _around(self, text: str) -> None:
        for buffer in self._added:
            count = prod(buffer.static_shape() or ())
            given = {"acc": self.pointers[buffer], "count": count, "type": self.kind(buffer.dtype)}
            self.line(f"{text.format(**given)};")

    def _multiplies(self, stmt: Stmt) -> bool:
        value = stmt.value if isinstance(stmt, Let) else None
        return (
            isinstance(value, Call)
            and value.name == MATRIX
            and strip_reinterpret(value.args[1]) in self._read
        )

    def _only_multiplies(self, stmt: Stmt) -> bool:
        """Whether a statement consists of products only, possibly in loops."""
        inner = list(stmts(stmt))
        made = {s.var for s in inner if isinstance(s, Let) and self._multiplies(s)}
        return bool(made) and not any(
            isinstance(s, (Eval, If))
            or level(s)
            or (isinstance(s, Store) and not made & set(free_vars(s.value)))
            for s in inner
        )

    def _touches(self, stmt: Stmt) -> bool:
        written = isinstance(stmt, Store) and stmt.buffer in self._added
        return written or any(load.buffer in self._added for load in loads_in(*exprs_of(stmt)))

    # Operands

    def _operand(self, stmt: Let) -> Stmt:
        if stmt.var not in self._read:
            return super()._operand(stmt)
        loads = _loads(stmt.value)
        buffer = loads[0].buffer
        self._tiles[stmt.var] = buffer, [buffer.linear_index(load.indices) for load in loads]
        self.text.vars[stmt.var] = stmt.var.name
        return stmt.body

    def product_words(self, unit: MatrixUnit, call: Call) -> dict[str, object]:
        """The texts of the operands a and b of a product, by their names in its format."""
        variables = [strip_reinterpret(arg) for arg in call.args[1:3]]
        if variables[0] not in self._read:
            return super().product_words(unit, call)
        words: dict[str, object] = {"layouts": ""}
        for name, var, fragment in zip("ab", variables, (unit.of_a, unit.of_b), strict=True):
            assert isinstance(var, Var)
            start, outer, stride = self._tile(var, fragment, name == "b")
            self.prepare(start)
            buffer = self._tiles[var][0]
            # Tiles begin at multiples of the swizzle period, so their address needs no permutation.
            words[name] = f"{self.pointers[buffer]} + {self.text.number(start, ADD + 1)}"
            words["layouts"] = f"{words['layouts']}{'t' if outer else 'n'}"
            words[f"{name}_stride"] = stride
        return words

    def _tile(self, var: Var, fragment: Fragment, of_b: bool) -> tuple[Expr, bool, int]:
        """The offset of an operand's tile, whether K is its outer dim, and the stride in bytes between its
        parts of one row width (0 if there is one part).

        Raises CodegenError if the tile does not consist of rows.
        """
        buffer, positions = self._tiles[var]
        axis = self._threads
        assert axis is not None
        analyzer = Analyzer()
        first = substitute(positions[0], {axis.var: const(0, axis.var.dtype)})
        away = [analyzer.simplify(position - first) for position in positions]
        table = None
        if not any(set(free_vars(each)) - {axis.var} for each in away):
            offsets = compile_exprs(away, [axis.var])
            table = np.array([offsets(thread) for thread in range(fragment.width)])
        size = buffer.dtype.itemsize
        row = SWIZZLED_ROW // size
        if table is not None:
            whole = fragment.assemble(table)
            found = whole if of_b else whole.T  # [K, other dim]
            steps, others = (np.arange(n) for n in found.shape)
            if np.array_equal(found, steps[:, None] + others * row):
                return analyzer.simplify(first), False, 0
            stride = int(found[0, row]) if len(others) > row else 0
            if np.array_equal(found, steps[:, None] * row + others // row * stride + others % row):
                return analyzer.simplify(first), True, stride * size
        raise CodegenError(f"the operand {var.name} of a product does not consist of rows of {buffer.name}")


def _loads(value: Expr) -> Sequence[Load]:
    """The loads that form a vector."""
    parts = value.args if isinstance(value, Call) and value.name == "vector_concat" else (value,)
    return [part for part in parts if isinstance(part, Load)]


def _scope(value: Expr) -> str:
    """The memory scope of all parts of a value; "" if they are from several."""
    found = {load.buffer.scope for load in _loads(value)}
    return next(iter(found)) if len(found) == 1 else ""


__all__ = ["InPlaceWriter"]
