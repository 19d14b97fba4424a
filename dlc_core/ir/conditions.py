"""Conditions on symbolic dims. The types of a graph are right for calls whose sizes satisfy them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dlc_core.diag import UsageError
from dlc_core.ir.expr import (
    Binary,
    Const,
    Expr,
    Select,
    Var,
    as_expr,
    const,
    const_value,
    eq,
    free_vars,
    logical_and,
    maximum,
    ne,
    select,
    transform,
)
from dlc_core.support.record import record

EQUAL, AT_LEAST, MULTIPLE, ONE_OR, HOLDS = "equal", "at_least", "multiple", "one_or", "holds"
KINDS = (EQUAL, AT_LEAST, MULTIPLE, ONE_OR, HOLDS)
"""left == right; left >= right; right divides left; left == 1 or left == right; left is not 0, whatever right
is (see `holding`)."""

_DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod", "div")

ConditionRow = tuple[str, Expr, Expr, str, str]
"""A condition as attributes hold it: the fields of a `Condition`."""

_REQUIREMENTS = {
    EQUAL: "{} is needed",
    AT_LEAST: "at least {} is needed",
    MULTIPLE: "a multiple of {} is needed",
    ONE_OR: "1 or {} is needed",
}


@record(frozen=True)
class Condition:
    """A relation of two integer expressions. `why` explains it, and `where` names the model node that
    requires it."""

    kind: str
    left: Expr
    right: Expr
    why: str
    where: str = ""

    @property
    def row(self) -> ConditionRow:
        """The condition as attributes hold it."""
        return (self.kind, self.left, self.right, self.why, self.where)

    @property
    def dims(self) -> list[Var]:
        """The dims in the condition."""
        return free_vars(self.left, self.right)

    def expr(self) -> Expr:
        """The condition as a boolean expression."""
        if self.kind == AT_LEAST:
            return self.left >= self.right
        if self.kind == MULTIPLE:
            return logical_and(self.right > 0, eq(self.left % maximum(self.right, 1), 0))
        if self.kind == HOLDS:
            return _as_bool(self.left)
        equal = eq(self.left, self.right)
        return (eq(self.left, 1) | equal) if self.kind == ONE_OR else equal

    def holds(self, left: int, right: int) -> bool:
        """Whether two numbers satisfy the relation."""
        if self.kind == AT_LEAST:
            return left >= right
        if self.kind == MULTIPLE:
            return right > 0 and left % right == 0
        if self.kind == HOLDS:
            return left != 0
        return left == right or (self.kind == ONE_OR and left == 1)


def holding(cond: Expr, why: str, where: str = "") -> Condition:
    """The condition that a boolean expression over dims is true. If it divides by an expression, this must be
    at least 1, so that all conditions can be evaluated for all dims.
    """
    positive: dict[Expr, None] = {}

    def guarded(e: Expr) -> Expr | None:
        if not isinstance(e, Binary) or e.op not in _DIVISIONS or const_value(e.b) is not None:
            return None
        positive[e.b >= 1] = None
        return e.rebuild((e.a, maximum(e.b, 1)))

    safe = transform(cond, guarded)
    return Condition(HOLDS, select(logical_and(*positive, safe), const(1), const(0)), const(1), why, where)


def _as_bool(number: Expr) -> Expr:
    if isinstance(number, Select) and const_value(number.a) == 1 and const_value(number.b) == 0:
        return number.cond
    return ne(number, 0)


def check_conditions(
    conditions: Iterable[Condition],
    known: Mapping[Var, int],
    evaluate: Callable[[Expr, Mapping[Var, int]], int],
    describe: Callable[[Var], str] = str,
) -> None:
    """Raise UsageError for the first violated condition. `describe` names the dim of a symbol."""

    def number(e: Expr) -> int:
        if isinstance(e, Const):
            return int(e.value)
        return known[e] if isinstance(e, Var) else evaluate(e, known)

    for one in conditions:
        left, right = number(one.left), number(one.right)
        if not one.holds(left, right):
            raise _violation(one, left, right, known, describe)


def _violation(
    one: Condition, left: int, right: int, known: Mapping[Var, int], describe: Callable[[Var], str]
) -> UsageError:
    if one.kind == HOLDS:
        sizes = ", ".join(f"{describe(var)} is {known[var]}" for var in one.dims)
        where = f"{one.where}: " if one.where else ""
        what = f"{where}{_as_bool(one.left)} is needed{f', and {sizes}' if sizes else ''}"
        return UsageError(f"the inputs do not fit the model: {what}", why=one.why)
    if isinstance(one.left, Const) and one.kind == EQUAL:
        one, left, right = Condition(one.kind, one.right, one.left, one.why, one.where), right, left

    def shown(e: Expr) -> str:
        return describe(e) if isinstance(e, Var) else str(e)

    required = f"{right}" if isinstance(one.right, Const) else f"{right} ({shown(one.right)})"
    what = f"{shown(one.left)} is {left}, {_REQUIREMENTS[one.kind].format(required)}"
    given = ", ".join(f"{var.name}={known[var]}" for var in one.dims)
    why = f"{one.why}, where {given}" if given else one.why
    where = f"{one.where}: " if one.where else ""
    return UsageError(f"the inputs do not fit the model: {where}{what}", why=why)


def conditions_of(rows: Iterable[tuple[str, Expr | int, Expr | int, str, str]]) -> tuple[Condition, ...]:
    """The conditions from a function's attribute, which holds them as plain rows."""
    return tuple(Condition(kind, as_expr(a), as_expr(b), why, where) for kind, a, b, why, where in rows)


__all__ = [
    "AT_LEAST",
    "EQUAL",
    "HOLDS",
    "KINDS",
    "MULTIPLE",
    "ONE_OR",
    "Condition",
    "ConditionRow",
    "check_conditions",
    "conditions_of",
    "holding",
]
