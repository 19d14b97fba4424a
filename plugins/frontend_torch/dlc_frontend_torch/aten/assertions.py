"""Assertions: of sizes, which become conditions on dims, and of data, which become checks of results."""

from __future__ import annotations

from typing import Any

import torch

from dlc_core.graph.node import Node
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("_assert_tensor_metadata")
def assert_tensor_metadata(c: Call, *_: Any, **__: Any) -> None:
    """Dtypes and devices are those of the traced tensors."""


@aten("_assert_scalar")
def assert_scalar(c: Call, _: Any, text: str = "") -> None:
    given = c.node.args[0]
    value = given.meta.get("val") if isinstance(given, torch.fx.Node) else given
    if isinstance(value, torch.SymBool):
        c.scope.require_dims(c, c.symbols.condition(value), text)
    elif not isinstance(value, (bool, int)):
        raise c.unsupported(f"the assertion of {value}")
    elif not value:
        raise c.unsupported(f"an assertion that never holds ({text})")


@aten("sym_constrain_range sym_constrain_range_for_size")
def sym_constrain_range(c: Call, _: Any, **given: Any) -> None:
    value = c.node.args[0].meta["val"]
    if not isinstance(value, torch.SymInt):
        return
    size, least, most = value.node.expr, given.get("min"), given.get("max")
    text = f"torch constrains the number to {least}..{'' if most is None else most}"
    if isinstance(least, int):
        c.scope.require_dims(c, c.symbols.condition(size >= least), text)
    if isinstance(most, int):
        c.scope.require_dims(c, c.symbols.condition(size <= most), text)


@aten("_assert_async _assert_async.msg")
def assert_async(c: Call, ok: Node, text: str = "") -> None:
    c.scope.require_data(c.cast(c.reshape(ok, ()), "bool"), text or "an assertion of the program")


@aten("_functional_assert_async.msg")
def functional_assert_async(c: Call, ok: Node, text: str, token: Node) -> Node:
    assert_async(c, ok, text)
    return token
