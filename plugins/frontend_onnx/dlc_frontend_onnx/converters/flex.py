"""FlexAttention: attention whose scores and weights pass through graphs of the model."""

from __future__ import annotations

import math

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter

PREVIEW = "ai.onnx.preview"


def _modified(c: Call, name: str, value: Node) -> Node:
    """The value after the subgraph of an attribute; the value itself if there is none."""
    if name not in c.node.attrs:
        return value
    (made,) = c.inline(c.graph(name), [value])
    if not isinstance(made, Node) or len(made.shape) != 4:
        raise c.error(f"the graph {name} must return a tensor of its input's type")
    return c.cast(made, value.dtype)


@converter("FlexAttention", 1, PREVIEW)
def flex_attention(c: Call, q: Node, k: Node, v: Node) -> Node:
    """Operands are [batch, heads, length, size]; groups of query heads share a head of keys and values."""
    if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
        raise c.error(f"FlexAttention of {q.type}, {k.type} and {v.type}")
    heads, shared, size = q.shape[1], k.shape[1], q.shape[3]
    if not isinstance(heads, int) or not isinstance(shared, int) or not isinstance(size, int):
        raise c.unsupported(f"FlexAttention of {q.type}", hint="pin the dims with shapes={...}")
    if shared < 1 or heads % shared:
        raise c.error(f"{heads} heads of queries do not share {shared} of keys")
    c.equal(v.shape[1], shared, "keys and values have equally many heads")
    if heads != shared:
        k, v = (std.repeat(x, repeats=heads // shared, axis=1) for x in (k, v))
    scale = c.real("scale", 1 / math.sqrt(size)) if size > 0 else 1.0
    if scale < 0:
        raise c.error(f"the scale of the scores is {scale}", why="its square root is a factor")
    root = c.const(math.sqrt(scale), q.dtype)
    scores = std.matmul(std.mul(q, root), std.mul(k, root), transpose_b=True)
    named = c.integer("softmax_precision", 0)
    precision = c.element_type(named).name if named else q.dtype.name if q.dtype.bits > 16 else "float32"
    scores = _modified(c, "score_mod", c.cast(scores, precision))
    weights = _modified(c, "prob_mod", std.softmax(scores, axis=-1))
    return c.cast(std.matmul(weights, c.cast(v, precision)), v.dtype)
