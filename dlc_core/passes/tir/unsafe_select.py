"""Replace selects that may fail in the side that is not taken by conditionals that evaluate only one side."""

from __future__ import annotations

from typing import ClassVar

from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import Binary, Broadcast, Call, Expr, Select, call, const
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.safety import is_safe, may_fail
from dlc_core.passes.tir.walk import Walker
from dlc_core.support.record import record
from dlc_core.tir.stmt import PrimFunc


class _Lazy(Walker):
    def expr(self, e: Expr) -> Expr:
        return self.lazy(e, {}) if may_fail(e) else e

    def lazy(self, e: Expr, memo: dict[Expr, Expr]) -> Expr:
        """Rewrite an expression with lazy conditionals. `memo` has results under the same conditions."""
        found = memo.get(e)
        if found is None:
            found = memo[e] = self.rewritten(e, memo)
        return found

    def rewritten(self, e: Expr, memo: dict[Expr, Expr]) -> Expr:
        if isinstance(e, Select):
            cond = self.lazy(e.cond, memo)
            a, b = self.under_condition(cond, e.a), self.under_condition(cond, e.b, negated=True)
            if is_safe(a, self.analyzer) and is_safe(b, self.analyzer):
                return e.rebuild((cond, a, b))
            return call("if_then_else", (cond, a, b), e.dtype)
        if isinstance(e, Call) and e.name == "if_then_else":
            cond = self.lazy(e.args[0], memo)
            return e.rebuild(
                (
                    cond,
                    self.under_condition(cond, e.args[1]),
                    self.under_condition(cond, e.args[2], negated=True),
                )
            )
        if isinstance(e, Binary) and e.op in ("and", "or") and may_fail(e.b):
            first = self.lazy(e.a, memo)
            second = self.under_condition(first, e.b, negated=e.op == "or")
            if not is_safe(second, self.analyzer) and e.dtype is BOOL:
                known = const(e.op == "or", BOOL)
                sides = (second, known) if e.op == "and" else (known, second)
                return call("if_then_else", (first, *sides), BOOL)
            return e.rebuild((first, second))
        return e.rebuild([self.lazy(c, memo) for c in e.children]) if e.children else e

    def under_condition(self, cond: Expr, side: Expr, *, negated: bool = False) -> Expr:
        """Rewrite a side of a choice under the condition that selects it."""
        if isinstance(cond, Broadcast):
            cond = cond.value
        if cond.dtype.lanes > 1:
            return self.lazy(side, {})
        with self.analyzer.assume(~cond if negated else cond):
            return self.lazy(side, {})


@record(frozen=True)
class RewriteUnsafeSelect(PrimFuncPass):
    """Replace a `select` by `if_then_else` if one of its sides may read outside of a buffer or divide by
    zero. The same is done for an `and` or `or` whose second condition may.

    Before:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                B[i] = T.select(i >= 1, A[i - 1], A[i])

    After:

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                B[i] = T.if_then_else(i >= 1, A[i - 1], A[i])
    """

    name: ClassVar[str] = "rewrite_unsafe_select"

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        return _Lazy(func).rebuilt()


__all__ = ["RewriteUnsafeSelect"]
