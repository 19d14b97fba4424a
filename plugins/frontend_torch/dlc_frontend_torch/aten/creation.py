"""Tensors made of numbers: constants, ranges, identities, triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten
from dlc_frontend_torch.weights import as_constant


@aten("full")
def full(c: Call, size: Sequence[Any], value: Any, **_: Any) -> Node:
    return c.full(c.shape, value)


@aten("full_like new_full")
def full_like(c: Call, x: Node, *given: Any, **options: Any) -> Node:
    value = options["fill_value"] if "fill_value" in options else given[-1]
    return c.full(c.shape, value)


@aten("zeros zeros_like new_zeros zero _efficientzerotensor")
def zeros(c: Call, *_: Any, **__: Any) -> Node:
    return c.full(c.shape, 0)


@aten("ones ones_like new_ones")
def ones(c: Call, *_: Any, **__: Any) -> Node:
    return c.full(c.shape, 1)


@aten("empty.memory_format empty_like empty_strided empty_permuted new_empty new_empty_strided")
def empty(c: Call, *_: Any, **__: Any) -> Node:
    """torch leaves the elements undefined; they are 0 here."""
    return c.full(c.shape, 0)


@aten("fill.Scalar fill.Tensor")
def fill(c: Call, x: Node, value: Any) -> Node:
    return c.full(c.shape, value)


@aten("scalar_tensor")
def scalar_tensor(c: Call, value: Any, **_: Any) -> Node:
    return c.tensor(value)


@aten("arange arange.start arange.start_step")
def arange(c: Call, *given: Any, **_: Any) -> Node:
    numbers = [int(each) if isinstance(each, bool) else each for each in given]
    start, end, step = (0, *numbers, 1)[-3:] if len(given) == 1 else (*numbers, 1)[:3]
    if all(isinstance(each, (int, float)) for each in numbers) and not _whole(c, start, step):
        # torch's own rounding of the elements
        return as_constant(torch.arange(start, end, step, dtype=c.value.dtype))
    if not isinstance(step, int) or isinstance(start, float) or isinstance(end, float):
        raise c.unsupported("a range of symbolic sizes with a step that is no integer")
    kind = c.dtype if c.dtype.is_int else None
    made = std.arange(start=start, stop=end, step=step, **({"dtype": kind} if kind else {}))
    return c.cast(made, c.dtype)


def _whole(c: Call, start: Any, step: Any) -> bool:
    return c.dtype.is_int and isinstance(start, int) and isinstance(step, int)


@aten("linspace")
def linspace(c: Call, start: Any, end: Any, steps: int, **_: Any) -> Node:
    if not all(isinstance(each, (int, float)) for each in (start, end, steps)):
        raise c.unsupported("a range between tensors or symbolic sizes")
    return as_constant(torch.linspace(start, end, steps, dtype=c.value.dtype))


@aten("eye eye.m")
def eye(c: Call, rows: Any, columns: Any = None, **_: Any) -> Node:
    return std.eye(rows=rows, columns=rows if columns is None else columns, dtype=c.dtype)


@aten("tril")
def tril(c: Call, x: Node, diagonal: Any = 0) -> Node:
    return std.trilu(x, upper=False, k=diagonal)


@aten("triu")
def triu(c: Call, x: Node, diagonal: Any = 0) -> Node:
    return std.trilu(x, upper=True, k=diagonal)


@aten("tril_indices triu_indices")
def triangle_indices(c: Call, *given: Any, **_: Any) -> Node:
    """The indices are known when the program is imported."""
    sizes = c.numbers(given, "a size of a triangle")
    make = torch.tril_indices if "tril" in c.op else torch.triu_indices
    return as_constant(make(*sizes, dtype=c.value.dtype))
