"""Views among the outputs of a graph: `Views` makes them in torch, of an argument or a computed result.

AOT autograd makes an output that is a view of an input, or of another output, again from its base: with the
size, strides and offset of the tensor that the graph returns. So these must be those of a view.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Container, Sequence
from typing import Any

import torch

from dlc_frontend_torch.dynamo.sizes import Sizes

_SAME = (torch.ops.aten.alias.default, torch.ops.aten.detach.default)


def base_of(node: Any, shared: Container[Any] = ()) -> tuple[Any, list[Any]]:
    """The node that a view is one of, and the view operators from there on, in order.

    The list is empty if the node is no view. It is also empty if its tensor begins with its base's memory and
    is contiguous, and its base is not `shared`: that can be computed as any other result.
    """
    if not isinstance(node, torch.fx.Node):
        return node, []
    if _is_plain(node.meta.get("val")) and _root(node) not in shared:
        return node, []
    steps = []
    while is_view(node):
        steps.append(node)
        node = node.args[0]
    return node, steps[::-1]


def shared_bases(sources: Sequence[Any], places: Sequence[Any]) -> set[Any]:
    """The nodes whose memory several outputs have, or an output and an input."""
    roots = [_root(each) for each in dict.fromkeys(sources) if isinstance(each, torch.fx.Node)]
    return {*places, *(root for root, count in Counter(roots).items() if count > 1)}


def reshaped_bases(sources: Sequence[Any], shared: Container[Any]) -> set[Any]:
    """The nodes of `shared` that an output views with another shape or order of dims."""
    found = set()
    for source in sources:
        root, steps = base_of(source, shared)
        if any(step.target not in _SAME for step in steps):
            found.add(root)
    return found


def _root(node: Any) -> Any:
    while is_view(node):
        node = node.args[0]
    return node


def is_view(node: Any) -> bool:
    """Whether the result of a node is a view of its first argument."""
    if node.op != "call_function" or not node.args:
        return False
    if node.target is operator.getitem:
        return is_view(node.args[0])
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view


def _is_plain(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return True
    expected: Any = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride())):
        if not _same(stride, expected) and not _same(size, 1):
            return False
        expected = expected * size
    return _same(value.storage_offset(), 0)


def _same(one: Any, other: Any) -> bool:
    """Whether two sizes are equal in all calls. Nothing is guarded."""
    exprs = [each.node.expr if isinstance(each, torch.SymInt) else each for each in (one, other)]
    return bool(exprs[0] == exprs[1])


def permutation(value: torch.Tensor) -> tuple[int, ...] | None:
    """The order of the dims in which a dense tensor lies in memory; None if it is contiguous or not dense in
    some calls.
    """
    sizes, strides = tuple(value.shape), tuple(value.stride())
    hints = [(-_hint(stride), -_hint(size)) for size, stride in zip(sizes, strides)]
    if any(_same(size, 0) for size in sizes):
        return None
    order = tuple(sorted(range(len(sizes)), key=hints.__getitem__))
    expected: Any = 1
    for axis in reversed(order):
        if not _same(sizes[axis], 1) and not _same(strides[axis], expected):
            return None
        expected = expected * sizes[axis]
    return None if order == tuple(range(len(sizes))) else order


def _hint(size: Any) -> int:
    """A size in the traced call; 0 if data decide it."""
    return size if isinstance(size, int) else size.node.hint or 0


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    return tuple(map(order.index, range(len(order))))


class Views:
    """View operators that are applied to a tensor in each call. `sizes` finds the sizes of a call.

    Raises KeyError if a size depends on data that no argument has.
    """

    def __init__(self, steps: Sequence[Any], sizes: Sizes) -> None:
        self._steps, self._sizes = steps, sizes
        for step in steps:
            for each in (
                *step.all_input_nodes[1:],
                *torch.utils._pytree.tree_leaves((step.args, step.kwargs)),
            ):
                value = each.meta.get("val") if isinstance(each, torch.fx.Node) else each
                if isinstance(value, torch.SymInt):
                    for symbol in value.node.expr.free_symbols:
                        if not sizes.knows(symbol):
                            raise KeyError(symbol)

    def __call__(self, base: Any, arguments: Sequence[Any]) -> torch.Tensor:
        """The view of a tensor, for a call with these arguments."""
        for step in self._steps:
            if step.target is operator.getitem:
                base = base[step.args[1]]
                continue
            args = [self._value(each, arguments) for each in step.args[1:]]
            kwargs = {name: self._value(each, arguments) for name, each in step.kwargs.items()}
            base = step.target(base, *args, **kwargs)
        return base

    def _value(self, given: Any, arguments: Sequence[Any]) -> Any:
        if isinstance(given, torch.fx.Node):
            given = given.meta["val"]
        if isinstance(given, (list, tuple)):
            return [self._value(each, arguments) for each in given]
        return self._sizes.value(given, arguments) if isinstance(given, torch.SymInt) else given


__all__ = ["Views", "base_of", "inverse", "permutation", "reshaped_bases", "shared_bases"]
