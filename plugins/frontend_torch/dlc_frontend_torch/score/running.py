"""Samples compiled and run by dlc: `Prepared`, `prepared`, `results`.

A compile of many small functions in one module takes much less time than one compile each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from dlc_core import driver
from dlc_core.graph.node import CONST, Function, GraphContext, Node, make_tuple, param, using_context
from dlc_core.ir.module import IRModule
from dlc_core.support.record import record
from dlc_frontend_torch.complex_value import Complex, border_type, unpacked
from dlc_frontend_torch.importer import Importer
from dlc_frontend_torch.symbols import Symbols
from dlc_frontend_torch.weights import as_array, as_tensor


@record(frozen=True)
class Prepared:
    """An imported sample. `outputs` has a node, or a Python value, for each result."""

    params: tuple[Node, ...]
    arrays: tuple[Any, ...]
    outputs: tuple[Any, ...]


def prepared(module: GraphModule, tensors: Sequence[torch.Tensor]) -> Prepared:
    """Import the graph of a sample. Raises DlcError if it cannot be."""
    symbols = Symbols({})
    params: list[Node] = []
    arrays: list[Any] = []
    values: list[Any] = []
    for tensor in tensors:
        type_ = border_type(tensor.dtype, tuple(tensor.shape))
        if type_ is None or tensor.layout is not torch.strided:
            values.append(None)  # its users say that they do not take it
            continue
        params.append(param("x", type_))
        arrays.append(as_array(tensor))
        values.append(unpacked(params[-1]) if tensor.is_complex() else params[-1])
    found = Importer(module, symbols).run(values)
    outputs = tuple(found) if isinstance(found, (list, tuple)) else (found,)
    return Prepared(tuple(params), tuple(arrays), outputs)


def results(group: Sequence[Prepared], target: str) -> list[list[Any]]:
    """The results of samples, compiled as one module: tensors and Python values."""
    params = tuple(each for sample in group for each in sample.params)
    named = tuple(f"x{index}" for index in range(len(params)))
    outputs = [
        part
        for sample in group
        for made in sample.outputs
        for part in ((made.real, made.imaginary) if isinstance(made, Complex) else (made,))
    ]
    nodes = list(dict.fromkeys(made for made in outputs if isinstance(made, Node) and made.op is not CONST))
    values: dict[Node, torch.Tensor] = {}
    if nodes:
        body = nodes[0] if len(nodes) == 1 else make_tuple(nodes)
        names = {"inputs": named, "outputs": tuple(f"y{index}" for index in range(len(nodes)))}
        main = Function("main", params, body).with_attrs(**names)
        exe = driver.compile(IRModule({"main": main}, {}), target, num_threads=1)
        made = exe._call([array for sample in group for array in sample.arrays])
        kinds = [each.type.dtype for each in exe.signature.outputs]
        values = {node: as_tensor(array, kind) for node, array, kind in zip(nodes, made, kinds, strict=True)}

    def value(made: Any) -> Any:
        if isinstance(made, Complex):
            return torch.complex(value(made.real), value(made.imaginary))
        if isinstance(made, Node):
            return values[made] if made in values else as_tensor(made.attrs["value"].data, made.dtype)
        return made

    return [[value(made) for made in sample.outputs] for sample in group]


def in_context(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with a context of graph nodes of its own."""
    with using_context(GraphContext()):
        return function(*arguments)


__all__ = ["Prepared", "in_context", "prepared", "results"]
