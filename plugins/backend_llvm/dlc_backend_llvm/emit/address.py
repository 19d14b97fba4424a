"""The affine form of element offsets, split into variable terms and a constant displacement."""

from __future__ import annotations

from dlc_core.ir.expr import Binary, Const, Expr, binary, const


def affine(expr: Expr) -> tuple[dict[Expr, int], int]:
    """The terms of an expression: a map from atoms to integer coefficients, and a constant."""
    terms: dict[Expr, int] = {}
    total = 0
    stack: list[tuple[Expr, int]] = [(expr, 1)]
    while stack:
        e, scale = stack.pop()
        if isinstance(e, Const):
            total += scale * int(e.value)
        elif isinstance(e, Binary) and e.op == "add":
            stack += [(e.b, scale), (e.a, scale)]
        elif isinstance(e, Binary) and e.op == "sub":
            stack += [(e.b, -scale), (e.a, scale)]
        elif isinstance(e, Binary) and e.op == "mul" and isinstance(e.b, Const):
            stack.append((e.a, scale * int(e.b.value)))
        elif isinstance(e, Binary) and e.op == "mul" and isinstance(e.a, Const):
            stack.append((e.b, scale * int(e.a.value)))
        elif isinstance(e, Binary) and e.op == "mul" and isinstance(e.a, Binary) and e.a.op in ("add", "sub"):
            # Distribute the product. So a constant row times a symbolic stride becomes a term that can be
            # hoisted.
            stack += [(binary("mul", e.a.b, e.b), scale if e.a.op == "add" else -scale)]
            stack += [(binary("mul", e.a.a, e.b), scale)]
        else:
            terms[e] = terms.get(e, 0) + scale
    return {atom: k for atom, k in terms.items() if k}, total


def sum_of(terms: list[tuple[Expr, int]]) -> Expr:
    """The sum of coefficients times atoms, in the given order."""
    total: Expr = const(0)
    for atom, scale in terms:
        total = total + (atom if scale == 1 else atom * scale)
    return total
