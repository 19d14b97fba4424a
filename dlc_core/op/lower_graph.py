"""Lowering of a graph of nodes to tensor expressions: groups of a model, and functions of `dlc_core.topi`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlc_core import te
from dlc_core.diag import DlcError, UnsupportedError
from dlc_core.graph.node import CONST, GET, TUPLE, Node, post_order
from dlc_core.ir.convert import widened
from dlc_core.ir.expr import const
from dlc_core.op.declare import OpDecl, lowering_of
from dlc_core.op.lower import lower_tensors
from dlc_core.te.divide import one_unit

INLINE_CONSTANTS = 1
"""Constants of at most this many elements become literals of the code."""

Tensors = tuple[te.Tensor, ...]


def lower_graph(body: Node, inputs: Mapping[Node, te.Tensor], name: str) -> dict[Node, Tensors]:
    """The tensors of each node that `body` depends on, computed from those of the params.

    A node of a tuple type has several. `name` is that of the graph in messages. Raises UnsupportedError,
    which names every such node, if an op has no lowering, and for a constant of several elements.
    """
    order = list(post_order(body))
    missing = [n for n in order if isinstance(n.op, OpDecl) and lowering_of(n) is None]
    if missing:
        raise UnsupportedError(
            f"{len(missing)} node(s) of {name} have no tensor-level form",
            spans=[span for n in missing for span in n.spans],
            details=sorted({f"op {n.op.name}: {n.type}" for n in missing}),
            hint="ops without a lowering run on the `reference` target",
        )
    values: dict[Node, Tensors] = {n: (tensor,) for n, tensor in inputs.items()}
    for n in order:
        if n not in values:
            values[n] = _lowered(n, values)
    return values


def _lowered(n: Node, values: Mapping[Node, Tensors]) -> Tensors:
    if n.op is TUPLE:
        return tuple(t for arg in n.args for t in values[arg])
    if n.op is GET:
        return (values[n.args[0]][n.attrs["index"]],)
    if n.op is CONST:
        array = widened(n.attrs["value"].data)
        if array.size > INLINE_CONSTANTS:
            raise UnsupportedError(
                "a large constant inside a group", spans=n.spans, hint="pass it as an argument"
            )
        literal = const(array.reshape(-1)[0].item(), n.dtype)
        return (te.compute(n.shape, lambda *_: literal, "literal"),)
    try:
        with one_unit():
            return lower_tensors(n, [t for arg in n.args for t in values[arg]])
    except DlcError as error:
        raise error.at(n.spans) from None


def own_tensors(results: Iterable[te.Tensor], inputs: Iterable[te.Tensor]) -> list[te.Tensor]:
    """The results as computed tensors, each once: one that is an input, or occurs twice, is copied."""
    used = {t.buffer for t in inputs}
    outputs: list[te.Tensor] = []
    for tensor in results:
        if tensor.buffer in used:
            source = tensor
            tensor = te.compute(source.shape, lambda *i, s=source: s[i], "copy")
        used.add(tensor.buffer)
        outputs.append(tensor)
    return outputs


__all__ = ["INLINE_CONSTANTS", "lower_graph", "own_tensors"]
