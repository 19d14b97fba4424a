"""fold_constants: evaluate nodes that depend on constants only.

Law: the function computes the same values, bit for bit as the reference does.

    add(c1, c2)                       =>      constant(c1 + c2)
    full(shape=(64, 3, 7, 7), v=0.1)  =>      a constant whose elements share one memory location
    if_(True, x, then_branch=f, …)    =>      f(x)

A result larger than `max_bytes` is folded only if its operands together are at least as large. So a broadcast
does not become an array. Views (transposes, reshapes) of constants stay views.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dlc_core.diag import PassError
from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.node import (
    CONST,
    GET,
    TUPLE,
    Function,
    Node,
    const_array,
    constant,
    functions_of,
    get_item,
    make_tuple,
    rewrite,
)
from dlc_core.ir.expr import Expr, free_vars
from dlc_core.ir.types import TensorType, static_bytes
from dlc_core.op.declare import NDArray, OpDecl
from dlc_core.op.reference import Value, apply
from dlc_core.op.std import BY_NAME
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.inline import inlined
from dlc_core.passes.heuristics import CONSTANTS
from dlc_core.runtime.memory.mapped import drop_pages
from dlc_core.support.record import record

IF = BY_NAME["if_"]


@record(frozen=True)
class FoldConstants(GraphPass):
    """Evaluate nodes that depend on constants only; results larger than their operands have at most
    `max_bytes`.  None takes the heuristic `constants.folded_bytes`."""

    name: ClassVar[str] = "fold_constants"
    min_level: ClassVar[int] = 1
    drops_spans: ClassVar[bool] = True
    max_bytes: int | None = None

    def run_function(self, function: Function, context: PassContext) -> Function:
        body = rewrite(function.body, self._fold)
        return function if body is function.body else function.with_body(body)

    def _fold(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        if old.op is GET and args[0].op is TUPLE:
            return get_item(args[0], old.attrs["index"])
        if old.op is IF and args[0].op is CONST:
            return _chosen_branch(old, args)
        decl = old.op
        if not isinstance(decl, OpDecl) or not decl.pure or any(a.op is not CONST for a in args):
            return None
        size = static_bytes(old.type)
        if size is None or functions_of(old) or any(map(_depends_on_dims, old.attrs.values())):
            return None
        if decl is BY_NAME["full"]:
            return _filled(old) if size <= CONSTANTS.filled_bytes else None
        given = sum(array.nbytes for a in args if (array := const_array(a)) is not None)
        most = CONSTANTS.folded_bytes if self.max_bytes is None else self.max_bytes
        if size > max(most, CONSTANTS.growth * given):
            return None
        try:
            value = apply(decl, [a.attrs["value"].data for a in args], old.attrs, old.type)
        except Exception as error:
            raise PassError(f"{decl.name} of constants fails: {error}", spans=old.spans) from error
        folded = _constant(value)
        for arg in args:
            folded.add_spans(arg.spans)
            drop_pages(arg.attrs["value"].data)
        return folded


def _chosen_branch(old: Node, args: tuple[Node, ...]) -> Node | None:
    """Inline the branch of a constant condition, if it has the result's type and no conditions on sizes."""
    cond = const_array(args[0])
    assert cond is not None
    branch: Function = old.attrs["then_branch" if cond.item() else "else_branch"]
    taken = inlined(branch, args[1:])
    return taken if taken.type == old.type and not branch.attrs.get(CONDITIONS) else None


def _depends_on_dims(value: Any) -> bool:
    """Whether an attribute contains symbolic dims."""
    items = value if isinstance(value, tuple) else (value,)
    return any(isinstance(item, Expr) and free_vars(item) for item in items)


def _constant(value: Value) -> Node:
    if isinstance(value, tuple):
        return make_tuple([_constant(item) for item in value])
    return constant(value)


def _filled(old: Node) -> Node:
    type_ = old.type
    assert isinstance(type_, TensorType)
    shape = type_.static_shape()
    assert shape is not None
    with np.errstate(all="ignore"):
        one: NDArray = np.asarray(old.attrs["value"]).astype(type_.dtype.numpy)
    return constant(np.broadcast_to(one, shape))
