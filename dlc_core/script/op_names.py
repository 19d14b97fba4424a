"""The ops that a text names, and nodes whose types it leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dlc_core.diag import UsageError
from dlc_core.graph.node import Node, Op
from dlc_core.ir import plan
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_core.op import declare, lookup
else:
    # Parsing a tensor program does not need the ops.
    declare = lazy("dlc_core.op.declare")
    lookup = lazy("dlc_core.op.lookup")


class OpNames:
    """Ops by name: those of a mapping, or, without one, all registered ops.

    Without a mapping an unknown name is an op of its own, which can be printed and compared, unless `strict`.
    """

    def __init__(self, known: Mapping[str, Op] | None = None, *, strict: bool = False) -> None:
        self._known = known
        self._strict = strict or known is not None
        self._bare: dict[str, Op] = {}

    def names(self) -> Iterable[str]:
        """The known names."""
        return self._all()

    def get(self, name: str) -> Op | None:
        """The op of a name; None if it is unknown."""
        found = self._all().get(name)
        if found is None and not self._strict:
            return self._bare.setdefault(name, Op(name))
        return found

    def _all(self) -> Mapping[str, Op]:
        if self._known is None:
            self._known = lookup.registered_ops()
        return self._known


def inferred(op: Op, args: tuple[Node, ...], attrs: Mapping[str, Any]) -> Node:
    """A node whose type is inferred. Raises UsageError for an op without a declaration."""
    if not isinstance(op, declare.OpDecl):
        raise UsageError(
            f"the type of a result of {op.name!r} is not written down",
            why="the op has no declaration, from which it could be inferred",
            hint="write `name: G.Tensor(...) = …`",
        )
    return op.build(*args, **attrs)


def with_defaults(op: Op, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes of a node whose type is given, with the defaults of those that the text leaves out.

    Wrong attributes are not changed: a compile reports them.
    """
    if not isinstance(op, declare.OpDecl):
        return attrs
    own = plan.without_plan(attrs)
    left_out = [each for each in op.attrs.values() if each.name not in own]
    if (
        not left_out
        or any(each.default is declare.REQUIRED for each in left_out)
        or not op.attrs.keys() >= own.keys()
    ):
        return attrs
    return {**attrs, **op.canonical_attrs(own)}


__all__ = ["OpNames", "inferred", "with_defaults"]
