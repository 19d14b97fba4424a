"""The dims of segments and regions as expressions over those of the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dlc_core.diag import UnsupportedError
from dlc_core.ir.expr import Expr, Var, as_expr, free_vars, substitute
from dlc_core.ir.types import TensorType
from dlc_core.runtime.interface.signature import Signature


def matched(pairs: Iterable[tuple[TensorType, TensorType]]) -> dict[Var, Expr]:
    """The values of the variables in the dims of the first types, if these are the second types."""
    known: dict[Var, Expr] = {}
    work = [
        (as_expr(dim), as_expr(actual))
        for expected, given in pairs
        for dim, actual in zip(expected.shape, given.shape, strict=True)
    ]
    # Dims that are variables first: they determine those of expressions.
    work.sort(key=lambda pair: not isinstance(pair[0], Var))
    for dim, actual in work:
        _match(dim, actual, known)
    return known


def _match(dim: Expr, actual: Expr, known: dict[Var, Expr]) -> None:
    """Match two expressions of the same form."""
    stack = [(dim, actual)]
    while stack:
        one, other = stack.pop()
        if isinstance(one, Var):
            known.setdefault(one, other)
        elif _form(one) == _form(other):
            stack += zip(one.children, other.children, strict=True)


def _form(expr: Expr) -> tuple[type, object, int]:
    return type(expr), getattr(expr, "op", None), len(expr.children)


def scalars_of(
    signature: Signature, given: Sequence[TensorType], where: str
) -> tuple[tuple[Expr, ...], Expr]:
    """The integers of a call of `where` on values of these types, and the bytes of its scratch memory.

    Raises UnsupportedError if the types do not determine them.
    """
    known = matched((value.type, type_) for value, type_ in zip(signature.inputs, given, strict=True))
    unknown = [symbol.name for symbol in signature.symbols if symbol not in known]
    if unknown:
        raise UnsupportedError(
            f"the dims {', '.join(unknown)} of {where} are known only when it has run",
            hint="fix them: dlc.compile(model, targets, shapes={...})",
        )
    return tuple(known[symbol] for symbol in signature.symbols), substitute(signature.arena_size, known)


def over_symbols(expr: Expr, known: Mapping[Var, Expr], symbols: Sequence[Var]) -> Expr:
    """An expression over the symbols of the model's signature. Raises UnsupportedError if it has others."""
    found = substitute(expr, known)
    others = [var.name for var in free_vars(found) if var not in symbols]
    if others:
        raise UnsupportedError(
            f"sizes of this model depend on {', '.join(others)}, which are known only when it runs",
            hint="fix its dims: dlc.compile(model, targets, shapes={...})",
        )
    return found


__all__ = ["matched", "over_symbols", "scalars_of"]
