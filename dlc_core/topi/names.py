"""Usual names of ops that differ from those of the declarations, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Alias(NamedTuple):
    """An op under another name, with pairs of its parameters and their names there."""

    op: str
    renamed: tuple[tuple[str, str], ...] = ()


_AXIS = (("axes", "axis"),)
_BINARY = {
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "floor_divide": "floordiv",
    "floor_mod": "mod",
    "power": "pow",
    "left_shift": "shift_left",
    "right_shift": "shift_right",
}
_REDUCTIONS = ("all", "any", "l1", "l2", "logsumexp", "max", "mean", "min", "prod", "sum")

REDUCE: Mapping[str, Alias] = MappingProxyType(
    {
        **{name: Alias(f"reduce_{name}", _AXIS) for name in _REDUCTIONS},
        "argmax": Alias("argmax"),
        "argmin": Alias("argmin"),
    }
)
"""Reductions, as `topi.reduce.sum(x, axis=1)` and as `topi.sum(x, axis=1)`."""

ALIASES: Mapping[str, Alias] = MappingProxyType(
    {
        **{name: Alias(op) for name, op in _BINARY.items()},
        **REDUCE,
        "concatenate": Alias("concat"),
        "expand_dims": Alias("unsqueeze", _AXIS),
        "negative": Alias("neg"),
        "strided_slice": Alias("slice", (("begins", "begin"), ("ends", "end"))),
        "take": Alias("gather"),
    }
)
"""Names in `topi` itself."""

__all__ = ["ALIASES", "REDUCE", "Alias"]
