"""Turn inputs of a graph whose values are known at compile time into constants."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.graph.data_dims import with_known_elements
from dlc_core.graph.node import Function, Node, constant, rewrite
from dlc_core.ir.dtype import dtype
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, tensor_type


def bind_params(module: IRModule, params: Mapping[str, Any]) -> IRModule:
    """Replace inputs of the module's entry, by name, with constant arrays.

    Raises UsageError that lists all misfits: unknown names, other shapes or dtypes.
    """
    entry = module.functions.get(module.entry)
    if not isinstance(entry, Function):
        raise UsageError("parameters can be bound to a graph only", why=f"{module.entry!r} is none")
    names = tuple(entry.attrs.get("inputs") or (p.attrs["name"] for p in entry.params))
    known = dict(zip(names, entry.params, strict=True))
    arrays = {name: np.asarray(value) for name, value in params.items()}
    wrong = [f"there is no input {name!r}" for name in arrays if name not in known]
    wrong += [
        f"{name} is {known[name].type}, not {found}"
        for name, array in arrays.items()
        if name in known and (found := _type(array)) != known[name].type
    ]
    if wrong:
        raise UsageError(
            "parameters do not fit the inputs", details=wrong, hint=f"inputs: {', '.join(names)}"
        )
    bound: dict[Node, Node] = {known[name]: constant(array) for name, array in arrays.items()}
    left = [name for name in names if name not in arrays]
    body = rewrite(entry.body, lambda old, args: bound.get(old))
    attrs = MappingProxyType({**with_known_elements(entry.attrs, arrays), "inputs": tuple(left)})
    function = Function(entry.name, tuple(known[name] for name in left), body, attrs)
    return module.with_function(module.entry, function)


def _type(array: np.ndarray[Any, Any]) -> TensorType:
    return tensor_type(array.shape, dtype(array.dtype))


__all__ = ["bind_params"]
