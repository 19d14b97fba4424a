"""The interface of a graph that runs directly: its signature, and the offsets of its constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from dlc_core.graph.data_dims import DATA_DIMS, ELEMENTS, data_dims
from dlc_core.graph.extract import is_region
from dlc_core.graph.node import Array, Function, nodes_of
from dlc_core.ir.conditions import conditions_of
from dlc_core.ir.expr import const
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.passes.base import Pass, PassContext
from dlc_core.passes.graph.dim_conditions import CONDITIONS, dim_conditions
from dlc_core.passes.lower.arena import ALIGN
from dlc_core.runtime.interface.signature import Signature, Value
from dlc_core.support.record import record

ARGUMENTS = "arguments"
"""The attribute of a graph that was made of one operator (see `Signature.arguments`)."""


@record(frozen=True)
class DescribeGraph(Pass):
    """Set the module's attributes `signature`, `segments` (the signatures of its other entry points) and
    `constants`, without changing its functions.
    """

    name: ClassVar[str] = "describe_graph"
    stage: ClassVar[str] = "interface"

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        function: Function = module[module.entry]
        if CONDITIONS not in function.attrs:  # no pass has processed the graph
            function = function.with_attrs(**{CONDITIONS: dim_conditions(function)})
        offsets: dict[int, tuple[int, Any]] = {}
        size = 0
        for array in arrays_of(module):
            if id(array.data) not in offsets:
                offsets[id(array.data)] = size, array.data
                size += -(-array.data.nbytes // ALIGN) * ALIGN
        segments = {
            name: interface_of(each, size)
            for name, each in module.of_kind(Function).items()
            if each.attrs.get("segment")
        }
        signature = interface_of(function, size)
        return module.with_attrs(signature=signature, segments=segments, constants=tuple(offsets.values()))


def interface_of(function: Function, weights_size: int) -> Signature:
    """Return the interface of a graph that runs directly. Its inputs determine its symbolic dims."""
    results = [t for r in function.results for t in _tensors(r.type)]
    names = function.attrs
    in_names = names.get("inputs") or tuple(p.attrs["name"] for p in function.params)
    out_names = names.get("outputs") or tuple(f"output{i}" for i in range(len(results)))
    inputs = tuple(Value(n, p.tensor_type) for n, p in zip(in_names, function.params, strict=True))
    outputs = tuple(Value(n, t) for n, t in zip(out_names, results, strict=True))
    symbols = dict.fromkeys((*(v for i in inputs for v in i.type.symbols()), *data_dims(function)))
    made = Signature(inputs, outputs, tuple(symbols), const(0), weights_size)
    return with_conditions(made, function)


def with_conditions(signature: Signature, function: Function) -> Signature:
    """Add the conditions on dims, the host-computed dims, and the order of arguments, to a signature."""
    positions = {value.name: index for index, value in enumerate(signature.inputs)}
    attrs = function.attrs
    dims = {v for value in signature.inputs for v in value.type.symbols()}.union(data_dims(function))
    return replace(
        signature,
        conditions=tuple(c for c in conditions_of(attrs.get(CONDITIONS, ())) if dims.issuperset(c.dims)),
        elements=tuple((var, positions[name], k) for var, name, k in attrs.get(ELEMENTS, ())),
        data_dims=attrs.get(DATA_DIMS, ()),
        arguments=attrs.get(ARGUMENTS, ()),
    )


def arrays_of(module: IRModule) -> Iterator[Array]:
    """Yield every array among the attributes of a module's graphs, including functions in attributes.

    Regions are compiled separately and have their own weights, so they are left out.
    """
    for n in nodes_of(*(f for f in module.of_kind(Function).values() if not is_region(f))):
        for value in n.attrs.values():
            yield from (v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, Array))


def _tensors(type_: Type) -> list[TensorType]:
    if isinstance(type_, TupleType):
        return [t for field in type_.fields for t in _tensors(field)]
    return [type_]


__all__ = ["ARGUMENTS", "DescribeGraph", "arrays_of", "interface_of", "with_conditions"]
