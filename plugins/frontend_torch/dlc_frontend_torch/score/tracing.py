"""A sample as a functional graph of the operators that reach the importer: `traced`.

The graph is that of AOT autograd in inference: composite operators are taken apart, writes are made
functional, and operators without a converter are decomposed. Sizes of the inputs are numbers; sizes that
depend on data are symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from dlc_frontend_torch.decompositions import for_autograd
from dlc_frontend_torch.score.samples import Case


def traced(case: Case, table: Mapping[Any, Callable[..., Any]] | None = None) -> GraphModule:
    """The graph of a case. Its placeholders are the case's tensors, its output is a flat list.

    `table` are the decompositions, by default those of the backend. Raises ValueError for sparse tensors.
    """
    if any(each.layout is not torch.strided for each in case.tensors):
        raise ValueError("a graph has no sparse tensors")
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)

    def flat(*tensors: torch.Tensor) -> Any:
        return pytree.tree_leaves(case.function(*tensors))

    fakes = [mode.from_tensor(tensor, static_shapes=True) for tensor in case.tensors]
    with mode, torch.no_grad():
        table = for_autograd() if table is None else table
        functional = dispatch_functionalize(flat, FunctionalTensorMode(export=False))
        return make_fx(functional, decomposition_table=table, tracing_mode="fake")(*fakes)


def called(module: GraphModule) -> list[Any]:
    """The overloads of operators in a graph and its subgraphs."""
    return [
        node.target
        for inner in module.modules()
        if isinstance(inner, GraphModule)
        for node in inner.graph.nodes
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
    ]


def draws(module: GraphModule) -> bool:
    """Whether the graph draws random numbers."""
    return any(torch.Tag.nondeterministic_seeded in target.tags for target in called(module))


__all__ = ["called", "draws", "traced"]
