"""What the symbolic dims of a graph must fulfil, so that calls with others are refused.

Inference accepts what some sizes make right: a vector of n elements as a matrix of 3 by 4, one of n as one of
m.  What must be equal then is noted before passes rewrite it, and checked where a call tells the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc_core.arith import Analyzer
from dlc_core.graph.dims import NEEDS
from dlc_core.graph.node import Function, Node, functions_of, post_order
from dlc_core.graph.told import told_dims
from dlc_core.ir.expr import Expr, as_expr, binary, const, const_value, free_vars
from dlc_core.ir.types import TupleType
from dlc_core.op.declare import tensor_types
from dlc_core.op.infer import dims_text, product
from dlc_core.op.std.control import result_of

Need = tuple[Expr, Expr, str]


def needs_of(function: Function) -> tuple[Need, ...]:
    """What the dims that a call tells must fulfil, each condition once."""
    known = {*told_dims(function), *(var for p in function.params for var in p.tensor_type.symbols())}
    if not known:
        return ()
    analyzer = Analyzer()
    for var in known:
        analyzer.declare_dim(var)
    found: dict[tuple[Expr, Expr], str] = {}
    for n in _nodes(function):
        for one, other, what in _conditions(n):
            a, b = as_expr(one), as_expr(other)
            if not set(free_vars(a, b)) <= known or (a, b) in found:
                continue
            if const_value(analyzer.simplify(a - b)) != 0:
                at = n.spans[0].name if n.spans else ""
                found[a, b] = f"{what}{f' by {at!r}' if at else ''}"
    return tuple((a, b, text) for (a, b), text in found.items())


def _nodes(function: Function) -> Iterator[Node]:
    """The nodes of a function and of the bodies in it, but not of branches, which may not be taken."""
    waiting, seen = [function], {id(function)}
    while waiting:
        for n in post_order(waiting.pop().body):
            yield n
            for inner in functions_of(n) if n.op.name != "if_" else ():
                if id(inner) not in seen:
                    seen.add(id(inner))
                    waiting.append(inner)


def _conditions(n: Node) -> Iterator[tuple[Expr | int, Expr | int, str]]:
    """What a node's dims must fulfil: pairs that must be equal."""
    if n.op.name == "slice":
        yield from _bounds(n)
    if n.op.name == "if_":
        yield from _branches(n)
    if n.op.name == "split":
        size, sizes = n.args[0].tensor_type.shape[n.attrs["axis"]], n.attrs["sizes"]
        yield size, sum(sizes, start=0), f"dim {size} is split to {dims_text(sizes)}"
    if n.op.name not in ("reshape", "broadcast_to"):
        return
    given, made = n.args[0].tensor_type, n.tensor_type
    if given.is_static and made.is_static:
        return
    if n.op.name == "reshape":
        yield product(given.shape), product(made.shape), f"{given} is reshaped to {dims_text(made.shape)}"
        return
    what = f"{given} is broadcast to {dims_text(made.shape)}"
    for size, wanted in zip(given.shape, made.shape[made.ndim - given.ndim :]):
        if size != 1 and size != wanted:
            yield (as_expr(size) - 1) * (as_expr(size) - wanted), 0, what


def _bounds(n: Node) -> Iterator[tuple[Expr | int, Expr | int, str]]:
    """Begins and ends of a slice that are expressions lie in its dim."""
    shape = n.args[0].tensor_type.shape
    begins, ends, axes = n.attrs["begins"], n.attrs["ends"], n.attrs["axes"]
    for index, axis in enumerate(range(len(begins)) if axes is None else axes):
        for bound in (begins[index], ends[index]):
            if isinstance(bound, Expr):
                what = f"{n.args[0].tensor_type} is cut at {bound}"
                yield binary("max", bound - shape[axis], const(0)), 0, what
                yield binary("min", bound, const(0)), 0, what


def _branches(n: Node) -> Iterator[tuple[Expr | int, Expr | int, str]]:
    """Both branches give results of one shape."""
    types = tensor_types(n.type.fields if isinstance(n.type, TupleType) else (n.type,))
    for branch in functions_of(n):
        for made, wanted in zip(result_of(branch, [arg.type for arg in n.args[1:]], branch.name), types):
            for size, other in zip(made.shape, wanted.shape):
                if size != other:
                    yield size, other, f"a branch gives {made} where {wanted} is needed"


__all__ = ["NEEDS", "Need", "needs_of"]
