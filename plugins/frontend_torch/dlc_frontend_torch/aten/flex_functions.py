"""The functions of flex attention: `Change` of scores, and `mask`.

torch keeps each as a graph over numbers: a score, and the indices of its batch, head, query and key. It is
traced again over whole tensors, by `vmap` as torch itself does it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.nn.attention.flex_attention import _vmap_for_bhqkv

from dlc_core.graph.node import Node, const_array
from dlc_core.op import std
from dlc_frontend_torch.call import Call

ATEN = torch.ops.aten
SCORE_BUFFERS, MASK_BUFFERS = 7, 8
"""The positions of the captured tensors among the arguments of the operator."""


class Change:
    """The function of scores. `wanted` is the dtype of scores in torch.

    `is_simple`: it adds at most one `bias` to the scores, and then hides those that one of `shown` does not
    select.
    """

    def __init__(self, c: Call, module: Any, buffers: Sequence[Any], wanted: torch.dtype) -> None:
        self._call, self._dtype = c, wanted
        sizes = _sizes(c)
        scores = _fake(c, lambda: torch.empty(sizes, dtype=wanted))
        self._traced, self._inputs = _traced(c, module, (scores,), sizes, buffers, SCORE_BUFFERS)
        parts = _parts(self._traced.graph, wanted)
        self.is_simple = parts is not None
        self.bias: Node | None = None
        self.shown: tuple[Node, ...] = ()
        if parts is not None:
            bias, negative, shown = parts
            made = self._values([*shown, *(() if bias is None else (bias,))])
            self.shown = made[: len(shown)]
            if bias is not None:
                self.bias = c.cast(made[-1], c.to_dtype(wanted))
                self.bias = std.neg(self.bias) if negative else self.bias

    def applied(self, scores: Node) -> Node:
        """The changed scores, in the dtype of torch's."""
        made = self._call.scope.inline(self._traced, (scores, *self._inputs))
        (output,) = self._traced.graph.find_nodes(op="output")
        changed = torch.promote_types(output.args[0].meta["val"].dtype, self._dtype)
        return self._call.cast(made, self._call.to_dtype(changed))

    def _values(self, nodes: Sequence[torch.fx.Node]) -> tuple[Node, ...]:
        """The values of nodes that do not read the scores."""
        if not nodes:
            return ()
        made = torch.fx.Graph()
        copied: dict[torch.fx.Node, torch.fx.Node] = {}
        made.graph_copy(self._traced.graph, copied)
        made.output(tuple(copied[each] for each in nodes))
        made.eliminate_dead_code()
        unread = self._call.const(0, "float32")
        found = self._call.scope.inline(torch.fx.GraphModule(self._traced, made), (unread, *self._inputs))
        assert isinstance(found, tuple)
        return found


def mask(c: Call, module: Any, buffers: Sequence[Any]) -> Node | None:
    """Which keys each query sees, as a tensor that broadcasts to the scores; None for all of them."""
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    # Without the sizes of unread indices the mask has one row for all batches or heads.
    sizes = [size if place.users else 1 for size, place in zip(_sizes(c), places)]
    traced, inputs = _traced(c, module, (), sizes, buffers, MASK_BUFFERS)
    made = c.cast(c.scope.inline(traced, inputs), "bool")
    return None if _is_true(made) else made


def _is_true(x: Node) -> bool:
    """Whether a tensor of bools is known to be true everywhere."""
    while x.op is std.broadcast_to.decl or x.op is std.reshape.decl:
        x = x.args[0]
    if x.op is std.full.decl:
        return bool(x.attrs["value"])
    array = const_array(x)
    return array is not None and bool(array.all())


def _sizes(c: Call) -> list[Any]:
    """The batches, heads, queries and keys as torch has them."""
    query, key = (each.meta["val"] for each in c.node.args[:2])
    return [*query.shape[:3], key.shape[2]]


def _fake(c: Call, make: Callable[[], Any]) -> Any:
    """The result of `make` with fake tensors of the program."""
    with c.value[0].fake_mode:
        return make()


def _traced(
    c: Call, module: Any, lead: Sequence[Any], sizes: Sequence[Any], buffers: Sequence[Any], position: int
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The graph of a function over tensors, and the values of its inputs after `lead`.

    Raises UnsupportedError if torch cannot trace it.
    """
    examples = _examples(c, position, len(buffers))
    moved = [index for index, each in enumerate(examples) if isinstance(each, torch.Tensor)]
    mapped = _vmap_for_bhqkv(module, prefix=(0,) * len(lead), suffix=(None,) * len(examples))

    def call(*given: Any) -> Any:
        own = list(examples)
        for place, each in zip(moved, given[len(lead) + len(sizes) :], strict=True):
            own[place] = each
        with TransformGetItemToIndex():
            return mapped(*given[: len(lead) + len(sizes)], *own)

    indices = _fake(c, lambda: [torch.arange(size) for size in sizes])
    tensors = [examples[place] for place in moved]
    try:
        traced = _fake(c, lambda: c.scope.trace(call, (*lead, *indices, *tensors)))
    except Exception as error:  # torch raises many kinds
        raise c.unsupported(f"a function that torch does not trace over all scores ({error})") from error
    for node in traced.graph.nodes:
        node.meta["stack_trace"] = c.node.meta.get("stack_trace")
    counts = [std.arange(stop=c.symbols.dim(size)) for size in sizes]
    tensors = [c.tensor(buffers[place], c.dtype_of(examples[place])) for place in moved]
    return traced, [*counts, *tensors]


def _examples(c: Call, position: int, count: int) -> list[Any]:
    """The captured values: fake tensors, and Python numbers. Symbolic sizes become scalars, because `vmap`
    takes none.
    """
    given = c.node.args[position] if count else ()
    found = [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in given]
    scalar = _fake(c, lambda: torch.zeros((), dtype=torch.int64))
    return [scalar if isinstance(each, torch.SymInt) else each for each in found]


def _parts(
    graph: torch.fx.Graph, wanted: torch.dtype
) -> tuple[torch.fx.Node | None, bool, list[torch.fx.Node]] | None:
    """The bias, whether it is subtracted, and the conditions of `where(condition, scores + bias, -inf)`. None
    for other functions.

    One bias at most: two could be large, with a small sum.
    """
    scores = next(iter(graph.nodes))
    reading = {scores}
    for node in graph.nodes:
        if reading.intersection(node.all_input_nodes):
            reading.add(node)
    (output,) = graph.find_nodes(op="output")
    node, bias, negative, shown = output.args[0], None, False, []
    while node is not scores:
        if node not in reading or node.meta["val"].dtype is not wanted or bias is not None:
            return None
        given: list[Any] = [*node.args, None]
        first, second, others = given[0], given[1], given[2:]
        if node.target is ATEN.where.self and second in reading and first not in reading:
            if not _is_low(others[0]):
                return None
            shown.append(first)
            node = second
        elif node.target in (ATEN.add.Tensor, ATEN.sub.Tensor) and not node.kwargs:
            negative = node.target is ATEN.sub.Tensor
            node, bias = (first, second) if first in reading else (second, first)
            if bias in reading or not isinstance(bias, torch.fx.Node) or (negative and bias is first):
                return None
        else:
            return None
    return bias, negative, shown


def _is_low(x: Any) -> bool:
    """Whether a value is known to be -inf."""
    if not isinstance(x, torch.fx.Node):
        return False
    if x.target is ATEN.scalar_tensor.default:
        return bool(x.args[0] == -math.inf)
    return x.target is ATEN.full.default and bool(x.args[1] == -math.inf)


__all__ = ["Change", "mask"]
