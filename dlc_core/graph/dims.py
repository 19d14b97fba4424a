"""The symbolic dims that values determine, and those that nodes require."""

from __future__ import annotations

from dlc_core.arith.solve import is_solvable
from dlc_core.cancel import checkpoint
from dlc_core.graph.node import CALL, PARAM, Node, post_order
from dlc_core.ir.expr import Expr, Var, free_vars
from dlc_core.ir.types import TensorType, symbols_of

CONDITIONS = "conditions"
"""The attribute of a function with the conditions on its dims, as tuples of the fields of
`ir.conditions.Condition`.

They are over the dims of its params, host-computed dims, and data-dependent dims.
"""


def dims_bound_by(n: Node) -> set[Var]:
    """The symbolic dims that are known once a value exists: those that its shape determines; for a param all
    its dims, because the call binds them.
    """
    if n.op is PARAM:
        return set(symbols_of(n.type))
    return dims_solved_from(n)


def dims_solved_from(n: Node) -> set[Var]:
    """The symbolic dims that can be computed from a value's shape. A dim such as min(n, 100) does not
    determine n."""
    if not isinstance(n.type, TensorType):
        return set()
    used = [(d, free_vars(d)) for d in n.type.shape if isinstance(d, Expr)]
    return {vars_[0] for d, vars_ in used if len(vars_) == 1 and is_solvable(d, vars_[0])}


def dims_required_by(n: Node) -> set[Var]:
    """The symbolic dims whose values are required to compute a node."""
    inner = post_order(n.attrs["function"].body) if n.op is CALL else (n,)
    found: set[Var] = set()
    checkpoint()
    for each in inner:
        found.update(symbols_of(each.type))
        for arg in each.args:
            found.update(symbols_of(arg.type))
        for value in each.attrs.values():
            items = value if isinstance(value, tuple) else (value,)
            found.update(v for item in items if isinstance(item, Expr) for v in free_vars(item))
    return found


__all__ = ["CONDITIONS", "dims_bound_by", "dims_required_by", "dims_solved_from"]
