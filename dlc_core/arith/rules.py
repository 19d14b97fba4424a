"""Rewrite rules of integer expressions, as data. They complement the arithmetic of polys.

A rule's sides are ordinary expressions over pattern variables: `c1, c2, …` match literals, `x, y, z` any
index expression, `p, q` any condition. It applies if every condition of `when` holds: conditions over
literals alone are computed, the others must be provable. A test evaluates both sides of each rule over small
domains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dlc_core.arith.evaluate import compile_exprs
from dlc_core.diag import RuntimeFailure
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import (
    Binary,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    const,
    eq,
    free_vars,
    maximum,
    minimum,
    ne,
    select,
)

X, Y, Z = Var("x"), Var("y"), Var("z")
C1, C2, C3 = Var("c1"), Var("c2"), Var("c3")
P, Q = Var("p", BOOL), Var("q", BOOL)
LITERALS = frozenset({C1, C2, C3})


@dataclass(frozen=True)
class Rule:
    """`pattern` becomes `replacement` where every condition of `when` holds."""

    name: str
    pattern: Expr
    replacement: Expr
    when: tuple[Expr, ...] = ()
    computed: Callable[..., tuple[int, ...]] | None = field(init=False, repr=False, compare=False)
    """The conditions over literals alone, compiled; called with the values of `literals`."""
    literals: tuple[Var, ...] = field(init=False, repr=False, compare=False)
    proved: tuple[Expr, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        literals = tuple(v for v in free_vars(self.pattern) if v in LITERALS)
        computed = [c for c in self.when if LITERALS.issuperset(free_vars(c))]
        object.__setattr__(self, "literals", literals)
        object.__setattr__(self, "computed", compile_exprs(computed, literals) if computed else None)
        object.__setattr__(self, "proved", tuple(c for c in self.when if c not in computed))

    def fits(self, found: Mapping[Var, Expr]) -> bool:
        """Whether the rule's conditions hold for the matched literals."""
        if self.computed is None:
            return True
        values = [int(x.value) if isinstance(x := found[v], Const) else 0 for v in self.literals]
        try:
            return all(self.computed(*values))
        except RuntimeFailure:
            # A condition may divide by a literal that another condition requires to be nonzero.
            return False


def rules() -> tuple[Rule, ...]:
    """Every rule, in order of priority."""
    return RULES


DIV_MOD = (
    Rule("div-div", (X // C1) // C2, X // (C1 * C2), (C1 > 0, C2 > 0)),
    Rule("div-div-offset", (X // C1 + C3) // C2, (X + C3 * C1) // (C1 * C2), (C1 > 0, C2 > 0)),
    Rule("div-mod", (X % C1) // C2, (X // C2) % (C1 // C2), (C2 > 0, C1 > 0, eq(C1 % C2, 0))),
    Rule("mod-mod", (X % C1) % C2, X % C2, (C2 > 0, C1 > 0, eq(C1 % C2, 0))),
    Rule("div-mod-symbolic", (X % Y) // Y, const(0), (ne(Y, 0),)),
    Rule("mod-mod-symbolic", (X % Y) % Y, X % Y, (ne(Y, 0),)),
    Rule("div-self", X // X, const(1), (ne(X, 0),)),
    Rule("mod-self", X % X, const(0), (ne(X, 0),)),
    Rule("div-div-symbolic", (X // Y) // Z, X // (Y * Z), (Y > 0, Z > 0)),
)

MIN_MAX = (
    Rule("min-of-max-left", minimum(maximum(X, Y), X), X),
    Rule("min-of-max-right", minimum(maximum(X, Y), Y), Y),
    Rule("min-max-left", minimum(X, maximum(X, Y)), X),
    Rule("min-max-right", minimum(Y, maximum(X, Y)), Y),
    Rule("max-of-min-left", maximum(minimum(X, Y), X), X),
    Rule("max-of-min-right", maximum(minimum(X, Y), Y), Y),
    Rule("max-min-left", maximum(X, minimum(X, Y)), X),
    Rule("max-min-right", maximum(Y, minimum(X, Y)), Y),
    Rule("min-clamp", minimum(maximum(X, C1), C2), const(0) + C2, (C1 >= C2,)),
    Rule("max-clamp", maximum(minimum(X, C1), C2), const(0) + C2, (C1 <= C2,)),
    Rule("min-of-max-and-max", minimum(maximum(X, Y), maximum(X, Z)), maximum(X, minimum(Y, Z))),
    Rule("max-of-min-and-min", maximum(minimum(X, Y), minimum(X, Z)), minimum(X, maximum(Y, Z))),
)

COMPARE = (
    Rule("lt-min-both", minimum(X, Y) > Y, const(False, BOOL)),
    Rule("lt-div", X // C1 < C2, X < C1 * C2, (C1 > 0,)),
    Rule("div-lt", C2 < X // C1, C1 * (C2 + 1) - 1 < X, (C1 > 0,)),
    Rule("eq-div-zero", eq(X // C1, 0), (X < C1) & (const(-1) < X), (C1 > 0,)),
    Rule("min-lt-literal", minimum(X, C1) < C2, X < C2, (C1 >= C2,)),
    Rule("literal-lt-max", maximum(X, C1) > C2, C2 < X, (C1 <= C2,)),
    Rule("max-lt-literal", maximum(X, C1) < C2, X < C2, (C1 < C2,)),
    Rule("literal-lt-min", minimum(X, C1) > C2, C2 < X, (C1 > C2,)),
)

SELECT = (
    Rule("select-not", select(~P, X, Y), select(P, Y, X)),
    Rule("select-same-condition-left", select(P, select(P, X, Y), Z), select(P, X, Z)),
    Rule("select-same-condition-right", select(P, X, select(P, Y, Z)), select(P, X, Z)),
    Rule("select-nested-and", select(P, select(Q, X, Y), Y), select(P & Q, X, Y)),
    Rule("select-nested-or", select(P, X, select(Q, X, Y)), select(P | Q, X, Y)),
)

LOGIC = (
    Rule("and-absorb", P & (P | Q), P),
    Rule("and-absorb-right", P & (Q | P), P),
    Rule("or-absorb", P | (P & Q), P),
    Rule("or-absorb-right", P | (Q & P), P),
    Rule("absorb-and", (P | Q) & P, P),
    Rule("absorb-and-right", (Q | P) & P, P),
    Rule("absorb-or", (P & Q) | P, P),
    Rule("absorb-or-right", (Q & P) | P, P),
)

RULES = (*DIV_MOD, *MIN_MAX, *COMPARE, *SELECT, *LOGIC)


def _label(e: Expr) -> str:
    return e.op if isinstance(e, Binary | Unary) else type(e).__name__


def _fits(pattern: Expr, label: str) -> bool:
    if isinstance(pattern, Var):
        return pattern not in LITERALS or label == "Const"
    return _label(pattern) == label


_candidates: dict[tuple[str, ...], tuple[Rule, ...]] = {}


def candidates(e: Expr) -> tuple[Rule, ...]:
    """The rules whose root and operand kinds match those of the expression."""
    labels = (_label(e), *map(_label, e.children))
    found = _candidates.get(labels)
    if found is None:
        found = _candidates[labels] = tuple(
            rule
            for rule in RULES
            if _label(rule.pattern) == labels[0]
            and all(
                _fits(child, label) for child, label in zip(rule.pattern.children, labels[1:], strict=True)
            )
            and (rule.pattern.children[0] is not rule.pattern.children[-1] or labels[1] == labels[-1])
        )
    return found


def match(pattern: Expr, e: Expr, found: dict[Var, Expr]) -> bool:
    """Match `e` against `pattern`. The values of the pattern variables are added to `found`."""
    if isinstance(pattern, Var):
        known = found.get(pattern)
        if known is not None:
            return known is e
        if pattern in LITERALS and not isinstance(e, Const):
            return False
        if pattern.dtype is not e.dtype:
            return False
        found[pattern] = e
        return True
    if type(pattern) is not type(e) or isinstance(pattern, Const):
        return pattern is e
    if isinstance(pattern, Binary | Unary) and pattern.op != e.op:  # type: ignore[attr-defined]
        return False
    if isinstance(pattern, Select) and pattern.dtype is not e.dtype:
        return False
    return all(match(p, c, found) for p, c in zip(pattern.children, e.children, strict=True))


def instantiate(e: Expr, found: dict[Var, Expr]) -> Expr:
    """A side of a rule with the pattern variables replaced by their values."""
    if isinstance(e, Var):
        return found[e]
    return e.rebuild([instantiate(child, found) for child in e.children]) if e.children else e
