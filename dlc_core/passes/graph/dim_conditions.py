"""Conditions on the symbolic dims of a graph, so that calls with other sizes are refused.

Inference accepts a type that is right for some sizes: a vector of n elements as a 3 × 4 matrix, or n elements
as m (see `op.assume`).  The assumptions are recorded before passes rewrite the graph.  They are checked when
a call gives the sizes, or, for data-dependent dims, when a host program has computed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dlc_core.arith import Analyzer
from dlc_core.graph.data_dims import data_dims
from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.node import Function, Node, functions_of, post_order
from dlc_core.ir.conditions import (
    AT_LEAST,
    EQUAL,
    HOLDS,
    MULTIPLE,
    ONE_OR,
    Condition,
    ConditionRow,
    conditions_of,
)
from dlc_core.ir.expr import Binary, Expr, Var, as_expr, const, free_vars, substitute
from dlc_core.ir.expr import post_order as expr_post_order
from dlc_core.ir.types import Dim, TensorType, Type, symbols_of
from dlc_core.op.assume import assumptions
from dlc_core.op.declare import OpDecl, fresh_dims
from dlc_core.op.std.control import body_dims

DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")


def dim_conditions(function: Function) -> tuple[ConditionRow, ...]:
    """Return the conditions on the dims of a function, each once: on dims of a call, and on data-dependent
    dims.

    Conditions in the function's attribute are kept.
    """
    known = determined_dims(function)
    held = conditions_of(function.attrs.get(CONDITIONS, ()))
    if not known and not held:
        return ()
    assumed = _conditions(post_order(function.body))
    return _undecided(c for c in (*held, *assumed) if known.issuperset(c.dims))


def dim_conditions_of_nodes(nodes: Iterable[Node]) -> tuple[ConditionRow, ...]:
    """Return the conditions on the dims of some nodes, each once. The nodes need not be in a function."""
    return _undecided(_conditions(nodes))


def _undecided(conditions: Iterable[Condition]) -> tuple[ConditionRow, ...]:
    """Return the conditions that do not hold for all sizes, each once."""
    found: dict[tuple[str, Expr, Expr], Condition] = {}
    analyzer = Analyzer()
    declared: set[Var] = set()
    for each in conditions:
        key = (each.kind, each.left, each.right)
        for var in each.dims:
            if var not in declared:
                declared.add(var)
                analyzer.declare_dim(var, 0)
        if key not in found and not _always(each, analyzer):
            found[key] = each
    return tuple(c.row for c in found.values())


def determined_dims(function: Function) -> set[Var]:
    """Return the symbolic dims that a function's params, their elements, or its data determine."""
    known = {*data_dims(function), *(var for p in function.params for var in p.tensor_type.symbols())}
    for n in post_order(function.body):
        known.update(fresh_dims(n))
    return known


def _always(each: Condition, analyzer: Analyzer) -> bool:
    """Whether a condition holds for all sizes."""
    left, right = each.left, each.right
    if each.kind == AT_LEAST:
        return analyzer.prove(left >= right)
    if each.kind == MULTIPLE:
        return analyzer.prove_equal(left % right, 0)
    if each.kind == HOLDS:
        return analyzer.prove(each.expr())
    return analyzer.prove_equal(left, right) or (each.kind == ONE_OR and analyzer.prove_equal(left, 1))


def _conditions(nodes: Iterable[Node]) -> Iterator[Condition]:
    """Yield the assumptions of a function's nodes and bodies, in terms of the function's own dims.

    Branches are excluded, as they may not be taken, and bodies whose dims change between iterations.
    """
    waiting: list[tuple[Iterable[Node], Mapping[Var, Expr], str]] = [(nodes, {}, "")]
    seen: set[tuple[int, tuple[tuple[Var, Expr], ...]]] = set()
    while waiting:
        current, dims, around = waiting.pop()
        for n in current:
            where = _where(n) or around
            for each in _assumed(n):
                left, right = substitute(each.left, dims), substitute(each.right, dims)
                yield replace(each, left=left, right=right, where=where)
            if n.op.name == "if_" or n.attrs.get("sizes"):
                continue
            for inner in functions_of(n):
                own = {v: substitute(e, dims) for v, e in body_dims(n, inner).items()}
                key = id(inner), tuple(own.items())
                if key not in seen:
                    seen.add(key)
                    waiting.append((post_order(inner.body), {**dims, **own}, where))


def _where(n: Node) -> str:
    """Return the innermost model node that a node came from. Spans list outer model nodes first."""
    span = next((s for s in reversed(n.spans) if s.name or s.op), None)
    if span is None:
        return n.op.name
    name = repr(span.name) if span.name else "(unnamed)"
    return f"node {name} ({span.op})" if span.op else f"node {name}"


def _assumed(n: Node) -> Iterator[Condition]:
    """Yield the assumptions of inference on a node: its dims are as recorded and not negative."""
    if not isinstance(n.op, OpDecl) or not (symbols_of(n.type) or any(symbols_of(a.type) for a in n.args)):
        return
    for size in (d for type_ in (n.type, *(a.type for a in n.args)) for d, _ in _pairs(type_, type_)):
        for e in expr_post_order(as_expr(size)):
            if isinstance(e, Binary) and e.op in DIVISIONS and free_vars(e.b):
                yield Condition(AT_LEAST, e.b, const(1), f"{n.op.name} gives {n.type}")
    with assumptions() as found:
        made = n.op.infer_type([a.type for a in n.args], n.attrs, n.args)
    yield from found
    given = {var for arg in n.args for var in symbols_of(arg.type)}
    why = f"{n.op.name} gives {made} where {n.type} is needed"
    for own, declared_dim in _pairs(made, n.type):
        if own != declared_dim and given.issuperset(free_vars(as_expr(own))):
            yield Condition(EQUAL, as_expr(declared_dim), as_expr(own), why)
        if isinstance(declared_dim, Expr) and not isinstance(declared_dim, Var):
            yield Condition(AT_LEAST, declared_dim, const(0), f"{n.op.name} gives {n.type}")


def _pairs(a: Type, b: Type) -> Iterator[tuple[Dim, Dim]]:
    """Yield the pairs of dims of two types with the same structure."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        yield from zip(a.shape, b.shape)
    elif not isinstance(a, TensorType) and not isinstance(b, TensorType):
        for one, other in zip(a.fields, b.fields):
            yield from _pairs(one, other)


__all__ = ["CONDITIONS", "determined_dims", "dim_conditions", "dim_conditions_of_nodes"]
