"""Values of a host program in C: the tensors of nodes, and where they are."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.backend.deploy.steps import DevicePlace, HostPlace
from dlc_core.graph.node import CONST, GET, TUPLE, Node
from dlc_core.ir.expr import Expr, as_expr, const
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.passes.lower.views import VIEW_OPS
from dlc_core.runtime.memory.host import address

FORWARDING = (*VIEW_OPS, "with_dims")
"""Ops on the host whose value is that of an argument: another shape of the same bytes."""

Leaf = tuple[Node, int]
"""A tensor: the node that makes it, and its index among that node's results."""


class Value:
    """A tensor that is on the host, in slots of devices, or both. `owned` says that its slot of the workspace
    is free after its last use.
    """

    def __init__(self, size: Expr, host: HostPlace | None = None, owned: bool = True) -> None:
        self.size = size
        self.host = host
        self.owned = owned
        self.target: HostPlace | None = None
        """The place of a result, if it is one."""
        self.on: dict[int, DevicePlace] = {}


class Values:
    """The tensors of a function's nodes. `base` is the address of the weights."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._leaves: dict[Node, list[Leaf]] = {}
        self._values: dict[Leaf, Value] = {}

    def __getitem__(self, leaf: Leaf) -> Value:
        return self._values[leaf]

    def leaves(self, n: Node) -> list[Leaf]:
        """The tensors of a node's value. Views and tuples have those of their arguments."""
        if n not in self._leaves:
            if n.op is GET:
                fields = _fields(n.args[0].type)
                before = sum(len(each) for each in fields[: n.attrs["index"]])
                mine = self.leaves(n.args[0])[before : before + len(fields[n.attrs["index"]])]
                self._leaves[n] = mine
            elif n.op is TUPLE:
                self._leaves[n] = [leaf for arg in n.args for leaf in self.leaves(arg)]
            elif n.op.name in FORWARDING:
                self._leaves[n] = self.leaves(n.args[-1 if n.op.name == "with_dims" else 0])
            elif n.op is CONST:
                self.add(n, [HostPlace("constant", self._offset(n))])
            else:
                self.add(n, None)
        return self._leaves[n]

    def operands(self, n: Node) -> list[Leaf]:
        """The tensors of a node's arguments."""
        return [leaf for arg in n.args for leaf in self.leaves(arg)]

    def add(self, n: Node, places: Sequence[HostPlace] | None, owned: bool = True) -> None:
        """Add the tensors of a node, which are at `places`, or nowhere yet."""
        types = tensors(n.type)
        self._leaves[n] = [(n, i) for i in range(len(types))]
        for i, type_ in enumerate(types):
            self._values[n, i] = Value(bytes_of(type_), places[i] if places else None, owned)

    def _offset(self, n: Node) -> int:
        """The offset of a constant in the weights."""
        data = n.attrs["value"].data
        return address(data) - self._base if data.nbytes else 0


def bytes_of(type_: TensorType) -> Expr:
    """The bytes of a tensor."""
    size: Expr = const(type_.dtype.itemsize)
    for dim in type_.shape:
        size = as_expr(size * dim)
    return size


def tensors(type_: Type) -> list[TensorType]:
    """The tensor types in a type, which may be a nested tuple."""
    if isinstance(type_, TensorType):
        return [type_]
    return [found for each in type_.fields for found in tensors(each)]


def _fields(type_: Type) -> list[list[TensorType]]:
    """The tensors of each field of a tuple type."""
    assert isinstance(type_, TupleType)
    return [tensors(each) for each in type_.fields]


__all__ = ["FORWARDING", "Leaf", "Value", "Values", "bytes_of", "tensors"]
