"""Operators on lists of tensors, which optimizers call: the operator for each tensor of the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dlc_frontend_torch.decomposed.table import TABLE


def _addcmul(x: Any, y: Any, z: Any, value: Any = 1) -> Any:
    return torch.addcmul(x, y, z, value=value)


def _addcdiv(x: Any, y: Any, z: Any, value: Any = 1) -> Any:
    return torch.addcdiv(x, y, z, value=value)


def _norm(x: Any, order: Any = 2, dtype: Any = None) -> Any:
    return torch.linalg.vector_norm(x, order, dtype=dtype)


_SAME = (
    "abs", "acos", "add", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh", "div", "erf",
    "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "max",
    "maximum", "minimum", "mul", "neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin",
    "sinh", "sqrt", "sub", "tan", "tanh", "trunc",
)  # fmt: skip
"""Operators on lists whose operator on a tensor has the same name and the same arguments."""
_OTHERS: dict[str, Callable[..., Any]] = {"addcdiv": _addcdiv, "addcmul": _addcmul, "norm": _norm}


def _for_each(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for lists of arguments. An argument that is no list is the same for all."""

    def run(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        count = next(len(each) for each in given if isinstance(each, (list, tuple)))

        def nth(value: Any, index: int) -> Any:
            return value[index] if isinstance(value, (list, tuple)) else value

        return [
            function(*(nth(a, index) for a in args), **{name: nth(a, index) for name, a in kwargs.items()})
            for index in range(count)
        ]

    return run


for _name in (*_SAME, *_OTHERS):
    _packet = getattr(torch.ops.aten, f"_foreach_{_name}", None)
    for _overload in [] if _packet is None else _packet.overloads():
        # The values of `addcmul` and `addcdiv` in one tensor are numbers that depend on data.
        if not _overload.endswith("out") and (_name, _overload) not in (
            ("addcmul", "Tensor"),
            ("addcdiv", "Tensor"),
        ):
            _function = _OTHERS[_name] if _name in _OTHERS else getattr(torch, _name)
            TABLE[getattr(_packet, _overload)] = _for_each(_function)
