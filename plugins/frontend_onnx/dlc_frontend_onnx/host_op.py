"""Ops that call Python functions: `custom.host_function` makes their nodes.

A compiled model refers to its functions by name. Functions of plugins have their names in the hook
`dlc_importers`. Other functions have names that are valid only in this process. A model file contains no
Python code, so opening it runs none.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.diag import DlcError, RuntimeFailure, UnsupportedError
from dlc_core.ir.expr import Expr
from dlc_core.ir.types import TensorType, TupleType, Type, tensor_type
from dlc_core.op.declare import Attr, op
from dlc_core.plugin.registry import registry

_given: dict[str, Any] = {}
_numbers = itertools.count(1)


def key_of(item: Any) -> str:
    """The name of a host function in compiled models. Without a plugin, it is unique to this process."""
    if registry().importers.get(item.name) is item:
        return str(item.name)
    for key, known in _given.items():
        if known is item:
            return key
    made = f"{item.name}#{next(_numbers)}"
    _given[made] = item
    return made


def _function(key: str, where: str) -> Callable[..., Any]:
    found = _given.get(key) or registry().importers.get(key)
    call: Callable[..., Any] | None = getattr(found, "call", None)
    if call is None:
        name = key.partition("#")[0]
        raise UnsupportedError(
            f"there is no host function {name!r}, which {where} calls",
            why="the plugin that defines it is not installed"
            if name == key
            else "it was defined in one process only",
            hint="define it in a plugin's hook dlc_importers",
        )
    return call


def _infer(types: Sequence[Type], attrs: Mapping[str, Any]) -> Type:
    dims: list[int | Expr] = list(attrs["dims"])
    made: list[TensorType] = []
    for rank, dtype in zip(attrs["ranks"], attrs["dtypes"].split(","), strict=True):
        made.append(tensor_type(dims[:rank], dtype))
        del dims[:rank]
    return made[0] if len(made) == 1 else TupleType(tuple(made))


def _reference(
    *args: Any, function: str, where: str, inputs: str, attributes: str, ranks: Sequence[int], **types: Any
) -> Any:
    call = _function(function, where)
    given = [None if index is None else args[index] for index in json.loads(inputs)]
    attrs = {
        name: args[value["input"]] if isinstance(value, dict) else value
        for name, value in json.loads(attributes).items()
    }
    try:
        found = call(*given, **attrs)
    except DlcError:
        raise
    except Exception as error:
        raise RuntimeFailure(
            f"{function.partition('#')[0]} failed", why=f"{type(error).__name__}: {error}", details=[where]
        ) from error
    several = isinstance(found, (tuple, list))
    if len(ranks) > 1 and (not several or len(found) != len(ranks)):
        raise RuntimeFailure(f"{function.partition('#')[0]} must return {len(ranks)} arrays", details=[where])
    return tuple(map(np.asarray, found)) if len(ranks) > 1 else np.asarray(found[0] if several else found)


def _declared(name: str, pure: bool) -> Any:
    return op(
        name,
        "A call of a Python function on the host.",
        ["*inputs"],
        [
            Attr("function", "str", help="its name among the importers"),
            Attr("where", "str", help="the model's node, for errors"),
            Attr("inputs", "str", help="JSON: for each parameter the input's number, null for one left out"),
            Attr("attributes", "str", help='JSON: attributes by name, {"input": n} for arrays'),
            Attr("dims", "dims", help="of all results"),
            Attr("ranks", "ints", help="of each result"),
            Attr("dtypes", "str", help="of each result, with commas"),
        ],
        kind="opaque",
        infer=_infer,
        reference=_reference,
        pure=pure,
        raw=True,
    )


HOST_OP = _declared("onnx_host", True)
IMPURE_OP = _declared("onnx_host_impure", False)
HOST, IMPURE = HOST_OP.build, IMPURE_OP.build

__all__ = ["HOST", "HOST_OP", "IMPURE", "IMPURE_OP", "key_of"]
