"""Conditions on symbolic dims. The types of a graph are right for calls whose sizes satisfy them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dlc_core.diag import UsageError
from dlc_core.ir.expr import Const, Expr, Var, as_expr, eq, free_vars, logical_and, maximum
from dlc_core.support.record import record

EQUAL, AT_LEAST, MULTIPLE, ONE_OR = "equal", "at_least", "multiple", "one_or"
KINDS = (EQUAL, AT_LEAST, MULTIPLE, ONE_OR)
"""left == right; left >= right; right divides left; left == 1 or left == right."""

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
    def dims(self) -> list[Var]:
        """The dims in the condition."""
        return free_vars(self.left, self.right)

    def expr(self) -> Expr:
        """The condition as a boolean expression."""
        if self.kind == AT_LEAST:
            return self.left >= self.right
        if self.kind == MULTIPLE:
            return logical_and(self.right > 0, eq(self.left % maximum(self.right, 1), 0))
        equal = eq(self.left, self.right)
        return (eq(self.left, 1) | equal) if self.kind == ONE_OR else equal

    def holds(self, left: int, right: int) -> bool:
        """Whether two numbers satisfy the relation."""
        if self.kind == AT_LEAST:
            return left >= right
        if self.kind == MULTIPLE:
            return right > 0 and left % right == 0
        return left == right or (self.kind == ONE_OR and left == 1)


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
    "KINDS",
    "MULTIPLE",
    "ONE_OR",
    "Condition",
    "ConditionRow",
    "check_conditions",
    "conditions_of",
]
