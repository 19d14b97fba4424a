"""The extent of a model's graphs, checked against the limits of `dlc_core.limits`."""

from __future__ import annotations

from dlc_core.config import config
from dlc_core.graph.node import CONST, Array, Function, nodes_of
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import static_bytes
from dlc_core.limits import NODES, check_bytes, check_extent

MODEL_NODES = "model_nodes"
"""An attribute of a module: the number of nodes of the model's file, those that no output needs included."""


def check_limits(module: IRModule) -> dict[str, int]:
    """Check the nodes, tensors and constants of the graphs of a module, and return their extent, by what
    takes it (`dlc_core.limits.check_extent`). Raises LimitError.
    """
    most, count, constants, largest = config.max_bytes, 0, 0, 0
    seen: set[int] = set()
    for n in nodes_of(*module.of_kind(Function).values()):
        count += 1
        if n.op is CONST:
            array = n.attrs["value"]
            if isinstance(array, Array) and id(array) not in seen:
                seen.add(id(array))
                constants += 0 if not any(array.data.strides) else array.data.nbytes
        size = static_bytes(n.type) or 0
        if size > largest:
            check_bytes(size, "a tensor", n.spans, most)
            largest = size
    count = max(count, module.attrs.get(MODEL_NODES, 0))
    extent = {NODES: count, "a tensor": largest, "the constants of the model": constants}
    check_extent(extent)
    return extent


__all__ = ["MODEL_NODES", "check_limits"]
