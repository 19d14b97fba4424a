"""The graph level: nodes, functions, verifier.  The grammar is `graph/node.py`."""

from dlc_core.graph.node import (
    Array,
    Function,
    Node,
    Op,
    call_function,
    const_array,
    constant,
    get_item,
    make_tuple,
    node,
    param,
    post_order,
    rewrite,
    users_of,
)

__all__ = [
    "Array",
    "Function",
    "Node",
    "Op",
    "call_function",
    "const_array",
    "constant",
    "get_item",
    "make_tuple",
    "node",
    "param",
    "post_order",
    "rewrite",
    "users_of",
]
