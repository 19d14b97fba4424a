"""expand_composites: replace composites by their bodies over other ops.

Law: the function computes the same values within the ops' tolerance. By default, composites with their own
lowering, or with a plan, are kept, because it is better than the lowering of their body.

    flatten(x, axis=1)                  =>      reshape(x, shape=(2, 12))
    softmax(x) with expand=("softmax",) =>      exp(x - max(x)) / sum(exp(x - max(x)))
"""

from __future__ import annotations

from typing import ClassVar

from dlc_core.diag import PassError
from dlc_core.graph.node import Function, Node, post_order, rewrite
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import OpDecl, lowering_of
from dlc_core.op.std.shape import RESHAPE
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.support.record import record

MAX_NESTING = 32
"""Composites inside each other beyond which one is taken to expand to itself."""


@record(frozen=True)
class ExpandComposites(GraphPass):
    """Replace composites by their bodies.

    `keep` names composites that are kept (None: all with a lowering). `expand` names composites that are
    expanded in any case.
    """

    name: ClassVar[str] = "expand_composites"
    exact: ClassVar[bool] = False
    keep: tuple[str, ...] | None = None
    expand: tuple[str, ...] = ()

    def is_expanded(self, value: Node) -> bool:
        decl = value.op
        if not isinstance(decl, OpDecl) or not decl.is_composite:
            return False
        if decl.name in self.expand:
            return True
        return lowering_of(value) is None if self.keep is None else decl.name not in self.keep

    def run_function(self, function: Function, context: PassContext) -> Function:
        body = function.body
        for _ in range(MAX_NESTING):
            if not any(self.is_expanded(n) for n in post_order(body)):
                return function if body is function.body else function.with_body(body)
            body = rewrite(body, self._visit)
        raise PassError(f"composites of {function.name!r} are nested more than {MAX_NESTING} deep")

    def _visit(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        if not self.is_expanded(old):
            return None
        decl = old.op
        assert isinstance(decl, OpDecl)
        new = decl.expand(args, old.attrs)
        if new.type != old.type and _may_be(new.type, old.type):
            # If dims are assumed to be equal, inference may use one of them and the body another.
            new = RESHAPE.build(new, shape=old.tensor_type.shape)
        if new.type != old.type:
            raise PassError(f"{decl.name} of type {old.type} expands to {new.type}", spans=old.spans)
        return new


def _may_be(a: Type, b: Type) -> bool:
    """Whether two tensor types may be equal: they differ at most in symbolic dims."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.dtype is not b.dtype:
        return False
    pairs = zip(a.shape, b.shape)
    return a.ndim == b.ndim and all(
        not isinstance(x, int) or not isinstance(y, int) or x == y for x, y in pairs
    )
